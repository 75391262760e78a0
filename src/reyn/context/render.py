"""Render a frame as messages. All text that the model sees is built here.

Content that all phases share comes first, then content that is stable for a phase, then content that changes, so that
provider prompt caches hit. A recorded message is a list of parts, which refer to stored content by hash.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context.fields import describe_fields, escape_line_ends, one_line, quote_schema
from reyn.context.frame import Execution, Rollback
from reyn.journal import canonical, digest
from reyn.journal.kinds import FrameMessage, Part
from reyn.workspace.paths import FULL_CONTENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.context.frame import StableFrame
    from reyn.contract import Candidate
    from reyn.journal.kinds import AnswerForm

INPUT = "# Input\n"
OPENING = "You carry out one step of a workflow. Answer with one JSON object and nothing else.\n"

ACTING = "Before you decide, you may run ops. You are then asked again, with their results.\n"


def stable_text(frame: StableFrame, form: AnswerForm) -> str:
    """Return the text of the first message: the task, the choices with their fields, the ops, the answer's format."""
    candidates = frame.candidate_outputs
    finish = "\n".join(f"- {one_line(criterion)}" for criterion in frame.finish_criteria)
    role = f"Your role: {one_line(frame.current_phase_role)}\n" if frame.current_phase_role else ""
    sections = [
        ("Task", role + frame.instructions),
        ("Choices", "\n".join(_choice(candidate, form) for candidate in candidates)),
        ("Ops", ACTING + "\n".join(map(_op, frame.available_control_ops)) if frame.available_control_ops else ""),
        ("Finish only when", finish),
        ("Language", f"Write all texts in {one_line(frame.output_language)}." if frame.output_language else ""),
        ("Answer", _answer_format(form, may_act=bool(frame.available_control_ops))),
    ]
    return OPENING + "".join(f"\n# {name}\n{text}\n" for name, text in sections if text)


def closing_text(frame: StableFrame, form: AnswerForm) -> str:
    """Return the end of the last message: the choices once more in short, after everything that may distract."""
    choices = "\n".join(f"- {_label(one, form)}: {one_line(one.description)}" for one in frame.candidate_outputs)
    act = ", or ops first" if frame.available_control_ops else ""
    return f"\n\n# Your answer\nThe reason first, then one choice{act}:\n{choices}\n"


def examples(frame: StableFrame, form: AnswerForm) -> tuple[FrameMessage, ...]:
    """Return one example turn per choice, whose input is the choice's description.

    Measured on small models: they choose better from examples than from a list, as long as every choice has one. The
    answers have no data, so that a copied one is never valid.
    """
    candidates = frame.candidate_outputs
    if form == "full" or len(candidates) < 2:
        return ()
    messages: list[FrameMessage] = []
    for candidate in candidates:
        description = one_line(candidate.description)
        answer = json.dumps({"reason": description, "choice": candidate.label}, ensure_ascii=False)
        messages += [
            FrameMessage("user", (Part(text=f"{INPUT}{description}"),)),
            FrameMessage("assistant", (Part(text=answer),)),
        ]
    return tuple(messages)


def _label(candidate: Candidate, form: AnswerForm) -> str:
    """Return the name by which a choice is made: its label, or its `next_phase` in the full form."""
    return candidate.label if form == "short" else candidate.next_phase


def _choice(candidate: Candidate, form: AnswerForm) -> str:
    fields = describe_fields(candidate.artifact_schema)
    where = "data" if form == "short" else f"artifact type {candidate.schema_name}, data"
    data = f"JSON that satisfies {quote_schema(candidate.artifact_schema)}" if fields is None else fields or "empty"
    return f"- {_label(candidate, form)}: {one_line(candidate.description)}\n  {where}: {data}"


def _op(op: dict[str, Any]) -> str:
    # `...` keeps the shape from being valid JSON: a model that copies an example copies its values, too.
    shape = ", ".join(
        f'"{name}": {json.dumps(value) if name in ("kind", "op") else "..."}' for name, value in op["example"].items()
    )
    return f"- {{{shape}}}: {one_line(op['description'])}"


def _answer_format(form: AnswerForm, *, may_act: bool) -> str:
    if form == "short":
        decide = '{"reason": ..., "choice": ..., "confidence": ..., "data": {...}}'
        act = 'To run ops, answer {"reason": ..., "ops": [...]} instead.\n' if may_act else ""
        return (
            f"{decide}\n"
            "reason: one short sentence about the input. choice: the name of one choice. confidence: 0 to 1. "
            f"data: the fields of that choice.\n{act}"
            'If the task cannot be done at all, the choice is "abort", without data.'
        )
    act = 'To run ops, answer {"control_ir": [...]} alone; a decision may carry "control_ir", too.\n' if may_act else ""
    return (
        '{"control": {"reason": {"summary": ...}, "type": ..., "decision": ..., "next_phase": ..., "confidence": ...}, '
        '"artifact": {"type": ..., "data": {...}}}\n'
        "summary: one short sentence about the input. confidence: 0 to 1. artifact: its type and the fields of the "
        "choice.\n"
        'To go on to a phase: type "transition", decision "continue", next_phase its name. '
        'For the choice end: type "finish", decision "finish", next_phase null.\n'
        f'{act}If the task cannot be done at all: type "abort", decision "abort", next_phase null, artifact null.'
    )


class TurnFrame(msgspec.Struct, frozen=True):
    """The part of the frame that changes from turn to turn.

    Attributes:
        input_hash: The hash of the input artifact, or of its truncated text.
        execution: The position in the run.
        rollback: Set if the phase was re-entered by a rollback.
        results: The number of op results in this visit.
        results_digest: The digest of their hashes (`next_digest`).
        remaining_act_turns: Turns left for ops; `None` if no ops are offered.
    """

    input_hash: str
    execution: Execution
    rollback: Rollback | None = None
    results: int = 0
    results_digest: str | None = None
    remaining_act_turns: int | None = None


def turn_message(turn: TurnFrame, closing: str) -> FrameMessage:
    """Build the second message: the input, the results of ops, and at the end what to answer.

    Args:
        turn: What changes from turn to turn.
        closing: The end of the message, the same in every visit of a phase.
    """
    parts = [_INPUT_HEADING, Part(blob=turn.input_hash)]
    if turn.rollback is not None:
        reason = canonical(turn.rollback.reason).decode()
        parts += [
            Part(text="\n\n# Rejected\nYour earlier artifact was rejected: "),
            Part(text=f"{escape_line_ends(reason)}\n"),
            Part(blob=turn.rollback.rejected_artifact),
        ]
    tail = ""
    if turn.results:
        parts += [Part(text="\n\n# Results\n"), Part(results=turn.results, digest=turn.results_digest)]
    if turn.execution.current_visit > 1:
        tail += f"\n\n# Visits\nYou are in this phase for the {_ordinal(turn.execution.current_visit)} time."
    if turn.remaining_act_turns is not None:
        tail += f"\n\n# Turns\nTurns with ops left: {turn.remaining_act_turns}."
    return FrameMessage("user", (*parts, Part(text=tail + closing)))


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def next_digest(previous: str | None, result: str) -> str:
    """Return the digest of a list of results with one more appended, in constant time."""
    return digest(f"{previous or ''}{result}".encode())


READ_LENGTH = 2_000
"""Characters to read at once, as the truncation marker suggests. In any script, they fit the size cap of a result."""


def truncate(content: bytes, limit: int, name: str) -> bytes:
    """Truncate content to `limit` bytes, and append a marker that says how to read the rest."""
    beginning = content[:limit].decode("utf-8", "ignore")
    path, start = f"{FULL_CONTENT}{name}", len(beginning)
    marker = (
        f"\n[cut: the first {start} characters of {len(content)} bytes. "
        f'The rest: {{"kind": "file", "op": "read", "path": "{path}", "start": {start}, "length": {READ_LENGTH}}}]'
    )
    return (beginning + marker).encode()


def correction(answer_hash: str, path: str, message: str) -> tuple[FrameMessage, FrameMessage]:
    """Build the two messages that follow a rejected answer: the answer itself, and the error."""
    text = (
        f"Your answer was rejected: {one_line(path)}: {one_line(message)}\nAnswer again with one corrected JSON object."
    )
    return (
        FrameMessage("assistant", (Part(blob=answer_hash),)),
        FrameMessage("user", (Part(text=text),)),
    )


def message_text(message: FrameMessage, content: Callable[[str], bytes], results: Sequence[str] = ()) -> str:
    """Return the exact text of a message.

    Args:
        message: The message.
        content: Returns stored content by its hash.
        results: The hashes of the op results of the visit, as they appear in the frame.
    """
    return "".join(_part_text(part, content, results) for part in message.parts)


def _part_text(part: Part, content: Callable[[str], bytes], results: Sequence[str]) -> str:
    if part.results:
        return "\n".join(escape_line_ends(content(name).decode()) for name in results[: part.results])
    return part.text if part.blob is None else escape_line_ends(content(part.blob).decode())


_INPUT_HEADING = Part(text=INPUT)
