"""Read a conversation from its journal: its messages in order, and the event from which a fork says something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.chat.items import unanswered_text
from reyn.errors import ConversationInvalid
from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reyn.journal import Event


class RecordedMessage(msgspec.Struct, frozen=True):
    """A message of a recorded conversation.

    Attributes:
        number: Counts the messages that the agent answered, from 1. A reply has the number of its message.
        role: `user`, `run` for the report of a background run, or `agent`.
        text: The message; empty for a reply that was aborted.
        seq: The event that recorded it.
        at: When, in microseconds since 1970, UTC.
    """

    number: int
    role: Literal["user", "run", "agent"]
    text: str
    seq: int
    at: int


def read_messages(events: Iterable[Event], content: Callable[[str], bytes]) -> list[RecordedMessage]:
    """Return the messages of a conversation, in order."""
    found: list[RecordedMessage] = []
    reports: set[str] = set()
    number = 0
    for event in events:
        body = decode(event)
        role: Literal["user", "run", "agent"] = "user"
        match body:
            case kinds.MessageQueued(run=run) if run:
                reports.add(body.text)
                continue
            case kinds.RunStarted():
                text = msgspec.json.decode(content(body.input.hash))["data"].get("text", "")
            case kinds.MessageTaken():
                role = "run" if body.text in reports else "user"
                text = content(body.text).decode()
            case kinds.WaitAnswered(wait=wait) if wait.endswith(".message"):
                text = msgspec.json.decode(content(body.value))
            case kinds.ArtifactStored():
                role, text = "agent", msgspec.json.decode(content(body.artifact.hash))["data"].get("text", "")
            case kinds.PhaseAborted(code=code, reason=reason):
                role, text = "agent", unanswered_text(reason) if code else ""
            case _:
                continue
        number += role != "agent"
        found.append(RecordedMessage(number, role, str(text), event.seq, event.ts))
    return found


def fork_point(events: Iterable[Event], number: int) -> int:
    """Return the event after which a fork waits for another message in place of message `number`.

    Raises:
        ConversationInvalid: The conversation has no such message, or it is the first one.
    """
    completed, count = 0, 1
    for event in events:
        if event.kind in (kinds.PhaseCompleted.kind, kinds.PhaseAborted.kind):
            completed = event.seq
        body = decode(event) if event.kind in (kinds.MessageTaken.kind, kinds.WaitAnswered.kind) else None
        if isinstance(body, kinds.MessageTaken) or (
            isinstance(body, kinds.WaitAnswered) and body.wait.endswith(".message")
        ):
            count += 1
            if count == number:
                return completed
    if number == 1:
        raise ConversationInvalid("message 1 cannot be replaced", hint="Start a new conversation instead.")
    raise ConversationInvalid(f"there is no message {number}; the last message of the conversation is {count}")
