"""Render a turn as messages: the input, earlier artifacts, results, and what to answer.

The static messages before it come from `reyn.context.prompt`; together they are all that the model sees. A recorded
message is a list of parts, which refer to stored content by hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.context.frame import Execution, Repetition, Rollback
from reyn.context.words import escape_line_ends, one_line, plain_text
from reyn.journal import digest
from reyn.journal.kinds import FrameMessage, Part
from reyn.workspace.paths import FULL_CONTENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class TurnFrame(msgspec.Struct, frozen=True):
    """The part of the frame that changes from turn to turn.

    Attributes:
        input_hash: The hash of the input artifact, or of its truncated text.
        execution: The position in the run.
        rollback: Set if the phase was re-entered by a rollback.
        results: The number of op results in this visit.
        results_digest: The digest of their hashes (`next_digest`).
        remaining_act_turns: Turns left for ops; `None` if no ops are offered.
        reads: Type and hash of each earlier artifact that the phase reads, or the hash of its truncated text.
        repetitions: What the model did more than once without progress.
        handoff: The hash of what the phase sees of the handoffs of earlier phases.
    """

    input_hash: str
    execution: Execution
    rollback: Rollback | None = None
    results: int = 0
    results_digest: str | None = None
    remaining_act_turns: int | None = None
    reads: tuple[tuple[str, str], ...] = ()
    repetitions: tuple[Repetition, ...] = ()
    handoff: str | None = None


HANDOFF_HEADING = "# Handoff"


def turn_message(turn: TurnFrame, closing: str, *, has_choices: bool) -> FrameMessage:
    """Build the last message: what is constant in a visit, then the results, then what to answer.

    Args:
        turn: What changes from turn to turn.
        closing: The end of the message.
        has_choices: Whether there are several candidates. With one, a message with the input alone has no closing.
    """
    parts = [Part(blob=turn.input_hash, plain=True)]
    for name, content in turn.reads:
        parts += [Part(text=f"\n\n# Earlier {name}\n"), Part(blob=content, plain=True)]
    if turn.handoff is not None:
        parts += [Part(text=f"\n\n{HANDOFF_HEADING}\n"), Part(blob=turn.handoff)]
    if turn.rollback is not None:
        reason = one_line(turn.rollback.reason)
        parts += [
            Part(text=f"\n\n# Rejected\nThe next phase failed: {reason}\nIt was given what you produced before:\n"),
            Part(blob=turn.rollback.rejected_artifact, plain=True),
        ]
    if turn.results:
        parts += [Part(text="\n\n# Results\n"), Part(results=turn.results, digest=turn.results_digest)]
    notes = _notes(turn)
    tail = f"\n\n# Notes\n{notes}" if notes else ""
    if len(parts) > 1 or tail or has_choices:
        parts.append(Part(text=tail + closing))
    return FrameMessage("user", tuple(parts))


def _notes(turn: TurnFrame) -> str:
    notes = []
    if turn.execution.current_visit > 1:
        notes.append(f"You are in this phase for the {_ordinal(turn.execution.current_visit)} time.")
    notes += [
        f"`{name}` can be visited {_count(count, 'more time')}."
        for name, count in turn.execution.remaining_visits.items()
    ]
    if turn.remaining_act_turns is not None:
        notes.append(f"Turns with ops left: {turn.remaining_act_turns}.")
    notes += [_repetition(one) for one in turn.repetitions]
    return "\n".join(notes)


def _repetition(repetition: Repetition) -> str:
    if repetition.kind == "op":
        return (
            f"You called `{repetition.name}` {repetition.times} times with the same arguments; it failed each time. "
            "Change the arguments, use another op, or decide."
        )
    return (
        f"For this input you chose `{repetition.name}` with the same artifact {repetition.times} times. "
        "Choose another output, or change the artifact."
    )


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
        f"\n[truncated: these are the first {start} characters of {len(content)} bytes. "
        f'Read more with {{"kind": "file", "op": "read", "path": "{path}", "start": {start}, "length": {READ_LENGTH}}}]'
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
    if part.blob is None:
        return part.text
    return plain_text(content(part.blob)) if part.plain else content(part.blob).decode()
