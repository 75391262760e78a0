"""What the server returns beside the values of the runtime. The gateway makes these values, the client reads them."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.errors import NextAction  # noqa: TC001 - a field of a struct
from reyn.journal import Event, RunRow
from reyn.journal.kinds import Question
from reyn.journal.results import Cost, RunResult
from reyn.kernel.world.inbox import PostedReply


class RemoteReply(PostedReply, frozen=True, kw_only=True):
    """A reply that the server stored. `is_continued` tells whether a process continues the run, after event `seq`."""

    is_continued: bool
    seq: int


class Resource(msgspec.Struct, frozen=True):
    """A value that the server returns. `fields` has everything."""

    fields: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.fields:
            raise AttributeError(name)
        return self.fields[name]


class StartedRun(msgspec.Struct, frozen=True):
    """What starting a run returns: the run, and its last event."""

    run_id: str
    seq: int
    fork_seq: int = 0


class Begun(msgspec.Struct, frozen=True):
    """The run of a conversation."""

    run_id: str


class AskedQuestion(msgspec.Struct, frozen=True):
    """An open question.

    Attributes:
        run_id: The run that asks.
        root_run: The run that continues with the reply.
        skill: The skill of the run that asks.
        question: The question. The `message` of an approval may be a preview; `text` has all of it.
        text: The whole text: of an approval, what exactly will be executed.
        edits: The field of the reply `edit`: `args` of an op, `artifact` of a decision; empty if there is none.
        draft: The op or the artifact that was proposed, as JSON text, so that no client changes its numbers.
        is_answered: Whether a reply is stored that no process has taken yet.
        since: The time of the last event of the run, in microseconds since 1970.
    """

    run_id: str
    root_run: str
    skill: str
    question: Question
    text: str
    edits: str
    draft: str
    is_answered: bool
    since: int


class RunView(RunRow, frozen=True, kw_only=True):
    """A run in a list: its row in the journal, and what users see beside it. The times are microseconds since 1970.

    Attributes:
        display_status: The status that users see.
        root_run: The run that continues with a reply to this one.
        cost: What its model calls cost.
        next: The operation that continues the run.
        question: The open question of the run or of one of its descendants.
    """

    display_status: str
    root_run: str
    cost: Cost | None
    next: NextAction | None
    question: AskedQuestion | None

    @property
    def row(self) -> RunRow:
        """The row alone."""
        return RunRow(**{name: getattr(self, name) for name in RunRow.__struct_fields__})


class RunDetails(msgspec.Struct, frozen=True):
    """A run with its result. `active` are the microseconds of execution."""

    run: RunView
    result: RunResult
    active: int


class EventFields(msgspec.Struct, frozen=True):
    """An event, as the server sends it."""

    seq: int
    run_id: str
    ts: int
    kind: str
    v: int
    data: msgspec.Raw
    prev: str
    hash: str

    @property
    def event(self) -> Event:
        """The event as the journal has it."""
        raw = bytes(self.data)
        return Event(self.seq, self.run_id, self.ts, self.kind, self.v, raw, self.prev, self.hash)

    def __post_init__(self) -> None:
        if not bytes(self.data).startswith(b"{"):
            raise ValueError("the data of an event is no object")
