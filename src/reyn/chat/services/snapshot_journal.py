"""Read a conversation from its journal: its messages in order, and the event from which a fork says something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from reyn.chat.reader import Speaker, read_turns, text_of
from reyn.errors import ConversationInvalid
from reyn.journal import Event, InboxMessage, Rename, kinds
from reyn.journal.listing import RunQuery

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.journal.canonical import ReadBlob
    from reyn.runs.reading import RunPage


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
    role: Speaker
    text: str
    seq: int
    at: int


class ChatOverview(msgspec.Struct, frozen=True):
    """A conversation in a list.

    Attributes:
        title: The title that a user gave it; empty if it has none.
        first: The first message.
        messages: The number of messages that the agent has taken, reports of background runs included.
    """

    title: str
    first: str
    messages: int


_NEWEST_RUNS = 500
"""How many of the newest runs are looked at for conversations with agents that the project has no more."""


def latest_conversations(page: Callable[..., RunPage], agents: Iterable[str], limit: int) -> list[RunRow]:
    """Return conversations, the latest first, without reading all runs.

    They are those of each agent that began last, and those among the newest runs.

    Args:
        page: Returns a page of the list of runs, as `Runs.page`.
        agents: The agents of the project.
        limit: The number of conversations of each agent.
    """
    newest = page(RunQuery(top=True), limit=_NEWEST_RUNS).rows
    found = {row.run_id: row for row in newest if row.skill.startswith(kinds.AGENT_PREFIX)}
    for agent in agents:
        rows = page(RunQuery(skill=f"{kinds.AGENT_PREFIX}{agent}", top=True), limit=limit).rows
        found |= {row.run_id: row for row in rows}
    conversations = (row for row in found.values() if not row.parent)
    return sorted(conversations, key=lambda row: (row.updated, row.run_id), reverse=True)


def read_messages(events: Iterable[Event], content: ReadBlob) -> list[RecordedMessage]:
    """Return the messages of a conversation, in order."""
    return [
        RecordedMessage(said.number, said.role, text_of(body, content), event.seq, event.ts)
        for said, event, body in read_turns(events)
        if said is not None
    ]


def read_overview(events: Iterable[Event], content: ReadBlob, inbox: Iterable[InboxMessage] = ()) -> ChatOverview:
    """Return the overview of a conversation. Only its first message is read.

    Args:
        events: The events of the conversation.
        content: Returns content by its hash.
        inbox: What the conversation has not recorded yet; it may have a title.
    """
    title, first, count = "", "", 0
    for said, event, body in read_turns(events, kinds.ConversationRenamed):
        if said is None:
            title = body.title
            continue
        first = text_of(body, content) if event.seq == 1 else first
        count = said.number
    titles = [title, *(one.payload.title for one in inbox if isinstance(one.payload, Rename))]
    return ChatOverview(titles[-1], first, count)


def fork_point(events: Iterable[Event], number: int) -> int:
    """Return the event after which a fork waits for another message in place of message `number`.

    Raises:
        ConversationInvalid: The conversation has no such message, or it is the first one.
    """
    completed, count = 0, 1
    for said, event, _ in read_turns(events, kinds.PhaseCompleted):
        if event.kind in (kinds.PhaseCompleted.kind, kinds.PhaseAborted.kind):
            completed = event.seq
        elif said is not None:
            count = said.number
            if count == number > 1:
                return completed
    if number == 1:
        raise ConversationInvalid("message 1 cannot be replaced", hint="Start a new conversation instead.")
    raise ConversationInvalid(f"there is no message {number}; the last message of the conversation is {count}")
