"""The prompts that ask for the choice alone, for models below one billion parameters (`bench/decisions`).

In the first, each choice's text is an example input and its label the answer. The second asks for the topic of a text
in one word; a model gets it with the input and with the text of each choice, and compares the words. An adapter that
uses them then constrains the answer to the choice (`reyn.models.local`). What is the same on every visit of a phase is
stored once, as JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.context.render import message_text
from reyn.context.words import one_line
from reyn.journal.kinds import FrameMessage, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.context.frame import StableFrame
    from reyn.journal.kinds import ChoicePrompt

TOPIC = "First say in one word what the message is about."


class ChoiceMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of the prompt."""

    role: Literal["system", "user", "assistant"]
    text: str


class StaticChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The static part of the prompts.

    Attributes:
        examples: The messages before the input in the first prompt.
        topic: The system message of the second prompt.
        texts: The texts to compare the input with, in the order of the candidates.
    """

    examples: tuple[ChoiceMessage, ...]
    topic: str
    texts: tuple[str, ...]


def static_choice(frame: StableFrame) -> StaticChoice | None:
    """Return the static part of the prompts.

    There is none if the phase has one candidate, if two candidates have the same text, or if ops are offered: the model
    may then act instead.
    """
    candidates = frame.candidate_outputs
    texts = {one_line(candidate.description).casefold() for candidate in candidates}
    if len(candidates) < 2 or len(texts) < len(candidates) or frame.available_control_ops:
        return None
    role = f"Your role: {one_line(frame.current_phase_role)}\n" if frame.current_phase_role else ""
    task = role + frame.instructions.rstrip()
    examples = [ChoiceMessage("system", task)]
    for candidate in candidates:
        examples.append(ChoiceMessage("user", one_line(candidate.description)))
        examples.append(ChoiceMessage("assistant", json.dumps({"choice": candidate.label}, ensure_ascii=False)))
    named = (f"{candidate.label}: {one_line(candidate.description)}" for candidate in candidates)
    return StaticChoice(tuple(examples), f"{task}\n\n{TOPIC}", tuple(named))


def without_closing(turn: FrameMessage, closing: str) -> FrameMessage:
    """Return the message with the input without its end, which says what to answer."""
    *parts, last = turn.parts
    if last.blob is not None or last.results:
        return turn
    text = last.text.removesuffix(closing)
    return FrameMessage(turn.role, (*parts, Part(text=text)) if text else tuple(parts))


def recorded_choice(
    prompt: ChoicePrompt, content: Callable[[str], bytes], results: Sequence[str] = ()
) -> tuple[StaticChoice, str]:
    """Return the static part of recorded prompts, and the text of the input.

    Args:
        prompt: The recorded prompts.
        content: Returns stored content by its hash.
        results: The hashes of the op results of the visit, as they appear in the frame.
    """
    static = msgspec.json.decode(content(prompt.static), type=StaticChoice)
    return static, message_text(prompt.turn, content, results)
