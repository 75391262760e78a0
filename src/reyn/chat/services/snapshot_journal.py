"""Read conversations from the journal: lists of them, their messages in order, and where a fork says something else."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from reyn.chat.reader import Speaker, read_turns, text_of
from reyn.errors import ConversationInvalid
from reyn.journal import Event, InboxMessage, Rename, kinds
from reyn.journal.listing import RunQuery

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.journal.canonical import ReadBlob
    from reyn.runs.reading import RecordedRuns


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


class RecordedConversation:
    """A conversation as it is recorded. Lists, pages and commands read conversations through it.

    Attributes:
        row: The run.
    """

    def __init__(self, runs: RecordedRuns, row: RunRow) -> None:
        self.row = row
        self._runs = runs

    @property
    def agent(self) -> str:
        """The agent."""
        return self.row.skill.removeprefix(kinds.AGENT_PREFIX)

    @property
    def display_status(self) -> str:
        """The status, for users."""
        return self._runs.display_status(self.row)

    @cached_property
    def overview(self) -> ChatOverview:
        """The title, the first message, and the number of messages."""
        run = self.row.run_id
        return read_overview(self._runs.events(run), self._runs.content, self._runs.inbox(run))

    @cached_property
    def messages(self) -> list[RecordedMessage]:
        """The messages and replies, in order."""
        return read_messages(self._runs.events(self.row.run_id), self._runs.content)

    def fork_point(self, number: int) -> int:
        """Return the event after which a fork waits for another message in place of message `number`.

        Raises:
            ConversationInvalid: The conversation has no such message, or it is the first one.
        """
        return fork_point(self._runs.events(self.row.run_id), number)

    def has_words(self, words: Iterable[str]) -> bool:
        """Return whether each word is in the title or in a message, in whatever case."""
        texts = [self.overview.title.casefold(), *(message.text.casefold() for message in self.messages)]
        return all(any(word.casefold() in text for text in texts) for word in words)

    def latest_with(self, word: str) -> RecordedMessage | None:
        """Return the last message with a word; `None` if only the title has it."""
        found = (message for message in reversed(self.messages) if word.casefold() in message.text.casefold())
        return next(found, None)


def find_conversation(runs: RecordedRuns, run: str, agent: str | None = None) -> RecordedConversation:
    """Return a conversation by its id, or by a unique prefix of it.

    Raises:
        RunNotFound: There is no such run, or the prefix is ambiguous.
        ConversationInvalid: It is no conversation, or not one with `agent`.
    """
    row = runs.find(run)
    check_conversation(row, agent)
    return RecordedConversation(runs, row)


def check_conversation(row: RunRow, agent: str | None) -> None:
    """Check that a run is a conversation, and one with `agent` unless that is `None`.

    Raises:
        ConversationInvalid: It is not.
    """
    if not row.skill.startswith(kinds.AGENT_PREFIX):
        raise ConversationInvalid(f"run `{row.run_id}` is a run of `{row.skill}`, not a conversation with an agent")
    if agent is not None and f"{kinds.AGENT_PREFIX}{agent}" != row.skill:
        named = row.skill.removeprefix(kinds.AGENT_PREFIX)
        message = f"conversation `{row.run_id}` is one with the agent `{named}`, not `{agent}`"
        raise ConversationInvalid(message, hint="Leave the agent out; the conversation keeps the one that it has.")


def latest_conversations(runs: RecordedRuns, agents: Iterable[str], limit: int) -> list[RecordedConversation]:
    """Return conversations, the latest first, without reading all runs.

    They are those of each agent that began last, and those among the newest runs.

    Args:
        runs: The runs of the project.
        agents: The agents of the project.
        limit: The number of conversations of each agent.
    """
    found = runs.page(RunQuery(top=True), limit=_NEWEST_RUNS).rows
    for agent in agents:
        found = found + runs.page(RunQuery(skill=f"{kinds.AGENT_PREFIX}{agent}", top=True), limit=limit).rows
    return _latest_first(runs, found)


def all_conversations(runs: RecordedRuns, query: RunQuery | None = None) -> list[RecordedConversation]:
    """Return the conversations of a query, by default all of them, the latest first."""
    return _latest_first(runs, runs.select(query or RunQuery(top=True)))


def _latest_first(runs: RecordedRuns, rows: Iterable[RunRow]) -> list[RecordedConversation]:
    found = {row.run_id: row for row in rows if row.skill.startswith(kinds.AGENT_PREFIX) and not row.parent}
    ordered = sorted(found.values(), key=lambda row: (row.updated, row.run_id), reverse=True)
    return [RecordedConversation(runs, row) for row in ordered]


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
