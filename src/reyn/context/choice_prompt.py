"""The prompt that asks for the choice alone: each choice's text is an example input, its label the answer.

Models below one billion parameters choose better by these examples than from a list (`bench/decisions`). An adapter
that asks this first then constrains the answer to the choice (`reyn.models.local`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from reyn.context.words import one_line
from reyn.models.protocol import Message

if TYPE_CHECKING:
    from reyn.context.frame import StableFrame


def choice_examples(frame: StableFrame) -> tuple[Message, ...]:
    """Return the static messages of the prompt, which precede the input.

    There are none if the phase has one candidate, if two candidates have the same text, or if ops are offered: the
    model may then act instead.
    """
    candidates = frame.candidate_outputs
    texts = {one_line(candidate.description).casefold() for candidate in candidates}
    if len(candidates) < 2 or len(texts) < len(candidates) or frame.available_control_ops:
        return ()
    role = f"Your role: {one_line(frame.current_phase_role)}\n" if frame.current_phase_role else ""
    messages = [Message("system", role + frame.instructions.rstrip())]
    for candidate in candidates:
        messages.append(Message("user", one_line(candidate.description)))
        messages.append(Message("assistant", json.dumps({"choice": candidate.label}, ensure_ascii=False)))
    return tuple(messages)
