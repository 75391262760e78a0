"""Open a question of a run and wait for the reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import kinds
from reyn.kernel.effects import Ask

if TYPE_CHECKING:
    from reyn.kernel.tape import Tape


def printable(value: Any, *, indent: int = 0) -> str:
    """Return a value as JSON in which no text can end a line or control a terminal."""
    text = msgspec.json.encode(value)
    lines = (msgspec.json.format(text, indent=indent) if indent else text).decode().split("\n")
    return "\n".join(
        line if line.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in line)
        for line in lines
    )


def _escaped(char: str) -> str:
    """Escape a character as JSON does, so that the text stays JSON."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


async def ask_person(
    call: str,
    message: str,
    response_schema: dict[str, Any],
    tape: Tape,
    *,
    reason: str = "question",
    suggestions: tuple[str, ...] = (),
    expires_at: int | None = None,
    is_deferred: bool = False,
) -> Any:
    """Return the JSON value of the reply, `EXPIRED`, or `QUEUED` if a conversation waits and a message is queued.

    Args:
        call: Identifies the question within the run.
        message: The question.
        response_schema: The JSON Schema of the reply.
        tape: The tape of the run.
        reason: Why the run waits: `question`, `message`, `approval`, `decision` or `unsafe`.
        suggestions: Suggested replies.
        expires_at: When the question expires, in microseconds since 1970.
        is_deferred: Whether a person has just postponed this question, so that it is not asked again at once.
    """
    wait = kinds.Wait(
        _wait_id(call, tape), reason, message, response_schema, expires_at=expires_at, suggestions=suggestions
    )
    tape.emit(kinds.WaitOpened(wait))
    return await Ask(wait.id, is_deferred, wait.is_message)


def _wait_id(call: str, tape: Tape) -> str:
    """Return the id of a question, unique among a run and its sub-runs, so that no reply reaches another question."""
    assert tape.state.started is not None
    parent = tape.state.started.parent
    return f"{parent.path}/{call}" if parent else call
