"""Read a conversation from its journal: its messages in order, and the event from which a fork says something else."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.chat.items import unanswered_text
from reyn.errors import ConversationInvalid
from reyn.journal import Rename, decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.journal import Event, InboxMessage

Role = Literal["user", "run", "agent"]


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
    role: Role
    text: str
    seq: int
    at: int


class Overview(msgspec.Struct, frozen=True):
    """A conversation in a list.

    Attributes:
        title: The title that a user gave it; empty if it has none.
        first: The first message.
        messages: The number of messages that the agent has taken, reports of background runs included.
    """

    title: str
    first: str
    messages: int


def read_messages(events: Iterable[Event], content: Callable[[str], bytes]) -> list[RecordedMessage]:
    """Return the messages of a conversation, in order."""
    return [
        RecordedMessage(number, role, _text(body, content), event.seq, event.ts)
        for number, role, event, body in _taken(events)
    ]


def read_overview(
    events: Iterable[Event], content: Callable[[str], bytes], inbox: Iterable[InboxMessage] = ()
) -> Overview:
    """Return the overview of a conversation. Only its first message is read.

    Args:
        events: The events of the conversation.
        content: Returns content by its hash.
        inbox: What the conversation has not recorded yet; it may have a title.
    """
    title, first, count = "", "", 0
    for number, role, event, body in _taken(events, kinds.ConversationRenamed.kind):
        if isinstance(body, kinds.ConversationRenamed):
            title = body.title
        elif role != "agent":
            first = first if event.seq > 1 else _text(body, content)
            count = number
    titles = [title, *(one.payload.title for one in inbox if isinstance(one.payload, Rename))]
    return Overview(titles[-1], first, count)


def _taken(events: Iterable[Event], *also: str) -> Iterator[tuple[int, Role, Event, Any]]:
    """Yield number, role, event and data of each message, and events of further kinds."""
    reports: deque[bool] = deque()
    number = 0
    for event in events:
        if event.kind not in _MESSAGES and event.kind not in also:
            continue
        body = decode(event)
        role: Role = "user"
        match body:
            case kinds.MessageQueued(run=run):
                reports.append(bool(run))
                continue
            case kinds.RunForked():  # the inbox of the origin stays there
                reports.clear()
                continue
            case kinds.MessageTaken() if reports and reports.popleft():
                role = "run"
            case kinds.WaitAnswered(is_message=False):
                continue
            case kinds.ArtifactStored() | kinds.PhaseAborted():
                role = "agent"
        if event.kind in _MESSAGES:
            number += role != "agent"
        yield number, role, event, body


_MESSAGES = {
    body.kind
    for body in (
        kinds.RunStarted,
        kinds.RunForked,
        kinds.MessageQueued,
        kinds.MessageTaken,
        kinds.WaitAnswered,
        kinds.ArtifactStored,
        kinds.PhaseAborted,
    )
}


def _text(body: Any, content: Callable[[str], bytes]) -> str:
    match body:
        case kinds.RunStarted(input=artifact) | kinds.ArtifactStored(artifact=artifact):
            return str(msgspec.json.decode(content(artifact.hash))["data"].get("text", ""))
        case kinds.MessageTaken(text=text):
            return content(text).decode()
        case kinds.WaitAnswered(value=value):
            return str(msgspec.json.decode(content(value)))
        case kinds.PhaseAborted(code=code, reason=reason) if code:
            return unanswered_text(reason)
    return ""


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
        if isinstance(body, kinds.MessageTaken) or (isinstance(body, kinds.WaitAnswered) and body.is_message):
            count += 1
            if count == number:
                return completed
    if number == 1:
        raise ConversationInvalid("message 1 cannot be replaced", hint="Start a new conversation instead.")
    raise ConversationInvalid(f"there is no message {number}; the last message of the conversation is {count}")
