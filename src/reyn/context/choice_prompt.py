"""The prompts that ask for the choice alone, for models below one billion parameters (`bench/decisions`).

In the first, each choice's text is an example input and its label the answer. The second is the prompt of the answer,
with the input and with the text of each choice: an adapter compares the words with which the model begins its reason,
then constrains the answer to the choice (`reyn.models.local`). In a conversation, the prompt of the answer depends on
the choice, so the second prompt asks for the topic of a text in one word. What is the same on every visit of a phase is
stored once, as JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.context.render import message_text
from reyn.context.words import describe_fields, one_line
from reyn.contract.forms import ABORT
from reyn.journal.kinds import FrameMessage, Part
from reyn.models import OpChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.context.frame import StableFrame
    from reyn.journal.kinds import ChoicePrompt
    from reyn.vocabulary import OpSpec, OpTarget

TOPIC = "First say in one word what the message is about."


class ChoiceMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of the prompt."""

    role: Literal["system", "user", "assistant"]
    text: str


class StaticChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The static part of the prompts.

    Attributes:
        examples: The messages before the input in the first prompt; none if there is one choice.
        texts: The texts to compare the input with, in the order of the choices.
        topic: The system message of the second prompt; empty if it is that of the answer.
        ops: The choices that are ops; they come after the candidates.
        replies: In a conversation, example messages for each candidate. `texts` then has the ops alone.
        is_conversation: Whether the input is the last message of a conversation.
        field: In a conversation whose reply is a single text, the field of the text.
    """

    examples: tuple[ChoiceMessage, ...]
    texts: tuple[str, ...]
    topic: str = ""
    ops: tuple[OpChoice, ...] = ()
    replies: tuple[tuple[str, ...], ...] = ()
    is_conversation: bool = False
    field: str = ""


def static_choice(frame: StableFrame) -> StaticChoice | None:
    """Return the static part of the prompts.

    There is none if the phase has one candidate, if two candidates have the same text, or if ops are offered: the model
    may then act instead.
    """
    candidates = frame.candidate_outputs
    texts = {one_line(candidate.description).casefold() for candidate in candidates}
    if len(candidates) < 2 or len(texts) < len(candidates) or frame.available_control_ops:
        return None
    choices = [(candidate.label, one_line(candidate.description)) for candidate in candidates]
    return StaticChoice(_examples(frame, choices), _named(choices))


def conversation_choice(
    frame: StableFrame, ops: Sequence[OpSpec], best: Sequence[str], field: str | None
) -> StaticChoice:
    """Return the static part of the prompts of a turn in a conversation: reply, or an op with one of its targets.

    The text of a candidate lists messages to which the model replies, separated by semicolons. A small model is not
    offered ops without targets, because it calls them at random.

    Args:
        frame: The frame of the phase.
        ops: The ops on offer; none if the model has to reply.
        best: The names of the targets to choose from, if there are many.
        field: The field of a reply that is a single text.
    """
    choices = [(candidate.label, one_line(candidate.description)) for candidate in frame.candidate_outputs]
    taken = {label for label, _ in choices} | {ABORT}
    texts = {text.casefold() for _, text in choices}
    found: list[OpChoice] = []
    for spec in ops:
        if spec.target_field is None or spec.targets_of:
            continue
        for target in spec.targets:
            if best and target.name not in best:
                continue
            label = f"{spec.kind}:{target.name}" if target.name in taken else target.name
            text = one_line(target.text)
            if text.casefold() in texts:
                text = f"{label}: {text}"
            taken.add(label)
            texts.add(text.casefold())
            choices.append((label, text))
            found.append(OpChoice(label, spec.kind, spec.target_field, target.name, _op_prompt(label, text, target)))
    replies = choices[: len(choices) - len(found)] if found else []
    return StaticChoice(
        _examples(frame, choices) if len(choices) > 1 else (),
        _named(choices[len(replies) :]) if len(choices) > 1 else (),
        f"{_task(frame)}\n\n{TOPIC}" if len(choices) > 1 else "",
        tuple(found),
        tuple(_parts(text) for _, text in replies),
        is_conversation=True,
        field=field or "",
    )


def _op_prompt(label: str, text: str, target: OpTarget) -> str:
    """Return the system message for an answer that calls an op with this target."""
    described = ((name, describe_fields(schema)) for name, schema in target.arguments.items())
    fields = "".join(f"{name}: {fields}.\n" for name, fields in described if fields)
    return f"{text}.\n\nTake the input of {label} from the message.\n{fields}"


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip()) or (text,)


def _task(frame: StableFrame) -> str:
    role = f"Your role: {one_line(frame.current_phase_role)}\n" if frame.current_phase_role else ""
    return role + frame.instructions.rstrip()


def _examples(frame: StableFrame, choices: Sequence[tuple[str, str]]) -> tuple[ChoiceMessage, ...]:
    """Return an example for each choice: the text that says when to choose it, and its label."""
    examples = [ChoiceMessage("system", _task(frame))]
    for label, text in choices:
        examples.append(ChoiceMessage("user", text))
        examples.append(ChoiceMessage("assistant", json.dumps({"choice": label}, ensure_ascii=False)))
    return tuple(examples)


def _named(choices: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{label}: {text}" for label, text in choices)


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
