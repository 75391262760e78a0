"""What the server returns beside the values of the runtime. Everything that a client reads has a checked type."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.errors import NextAction  # noqa: TC001 - a field of a struct
from reyn.journal import Event, RunRow
from reyn.journal.kinds import Question
from reyn.journal.results import RunResult
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


class AskedFields(msgspec.Struct, frozen=True):
    """The question of a run, as the server sends it."""

    run_id: str
    text: str
    question: Question
    is_answered: bool


class RunFields(RunRow, frozen=True, kw_only=True):
    """A run, as the server sends it: its row, and what users see beside it."""

    display_status: str
    root_run: str
    next: NextAction | None
    question: AskedFields | None

    @property
    def row(self) -> RunRow:
        """The row alone."""
        return RunRow(**{name: getattr(self, name) for name in RunRow.__struct_fields__})


class RunAndResult(msgspec.Struct, frozen=True):
    """A run with its result."""

    run: RunFields
    result: RunResult


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
