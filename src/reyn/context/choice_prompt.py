"""The prompt that asks for the choice alone: each choice's text is an example input, its label the answer.

Models below one billion parameters choose better by these examples than from a list (`bench/decisions`). An adapter
that asks this first then constrains the answer to the choice (`reyn.models.local`). The examples are the same on every
visit of a phase; they are stored once, as a JSON list of messages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.context.render import message_text
from reyn.context.words import one_line
from reyn.journal import canonical
from reyn.journal.kinds import FrameMessage, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.context.frame import StableFrame
    from reyn.journal.kinds import ChoicePrompt


class ChoiceMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of the prompt."""

    role: Literal["system", "user", "assistant"]
    text: str


def choice_examples(frame: StableFrame) -> bytes | None:
    """Return the messages that precede the input, as they are stored.

    There are none if the phase has one candidate, if two candidates have the same text, or if ops are offered: the
    model may then act instead.
    """
    candidates = frame.candidate_outputs
    texts = {one_line(candidate.description).casefold() for candidate in candidates}
    if len(candidates) < 2 or len(texts) < len(candidates) or frame.available_control_ops:
        return None
    role = f"Your role: {one_line(frame.current_phase_role)}\n" if frame.current_phase_role else ""
    messages = [ChoiceMessage("system", role + frame.instructions.rstrip())]
    for candidate in candidates:
        messages.append(ChoiceMessage("user", one_line(candidate.description)))
        messages.append(ChoiceMessage("assistant", json.dumps({"choice": candidate.label}, ensure_ascii=False)))
    return canonical(messages)


def without_closing(turn: FrameMessage, closing: str) -> FrameMessage:
    """Return the message with the input without its end, which says what to answer."""
    *parts, last = turn.parts
    text = last.text.removesuffix(closing)
    if last.blob is None and not last.results:
        return FrameMessage(turn.role, (*parts, Part(text=text)) if text else tuple(parts))
    return turn


def choice_messages(
    prompt: ChoicePrompt, content: Callable[[str], bytes], results: Sequence[str] = ()
) -> tuple[ChoiceMessage, ...]:
    """Return the messages of a recorded prompt.

    Args:
        prompt: The recorded prompt.
        content: Returns stored content by its hash.
        results: The hashes of the op results of the visit, as they appear in the frame.
    """
    examples = msgspec.json.decode(content(prompt.examples), type=tuple[ChoiceMessage, ...])
    return (*examples, ChoiceMessage("user", message_text(prompt.turn, content, results)))
