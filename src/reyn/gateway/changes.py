"""The change feed: which runs have new events, for all streams of a server together.

Events of this process arrive at once; those of other processes are found by looking at the list of runs. A stream gets
notes, and reads from the journal what it needs: so nothing is lost when a client reads slowly or comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ReynError
from reyn.journal.listing import RunQuery

if TYPE_CHECKING:
    from reyn.journal import Event, Journal, RunRow
    from reyn.models import Delta

LOOK_SECONDS = 0.25
"""How often to look for events of other processes, while there is a stream."""
_MAX_QUEUED = 1_000
_NEWEST, _MOST_OPEN = 100, 10_000
"""How many runs are looked at: of the newest, and of those that are open."""


class RunChanged(msgspec.Struct, frozen=True, tag_field="type", tag="run"):
    """A run has new events."""

    run_id: str
    seq: int
    status: str
    skill: str
    parent: str = ""


class DeltaArrived(msgspec.Struct, frozen=True, tag_field="type", tag="delta"):
    """A piece of a model's answer arrived, in a run that the server executes. It is not recorded."""

    run_id: str
    call: str
    text: str


class ItemArrived(msgspec.Struct, frozen=True, tag_field="type", tag="item"):
    """An item of a conversation that the server has open."""

    run_id: str
    item: dict[str, Any]


FeedChange = RunChanged | DeltaArrived | ItemArrived


class ChangeFeed:
    """What changed, for any number of readers.

    Args:
        journal: The journal.
        observe: Receives every event of this process.
    """

    def __init__(self, journal: Callable[[], Journal], observe: Callable[[Event], object]) -> None:
        self._open_journal = journal
        self._observe = observe
        self._readers: dict[asyncio.Queue[FeedChange | None], None] = {}
        self._seen: dict[str, int] = {}
        self._open: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def publish(self, event: Event) -> None:
        """Pass on that a run of this process has an event."""
        self._observe(event)
        if self._readers:
            self.look()

    def publish_delta(self, run_id: str, delta: Delta) -> None:
        """Pass on a piece of an answer."""
        self._send(DeltaArrived(run_id, delta.call, delta.text))

    def publish_item(self, run_id: str, item: Any) -> None:
        """Pass on an item of a conversation."""
        self._send(ItemArrived(run_id, msgspec.to_builtins(item)))

    def look(self) -> None:
        """Look for new events soon."""
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    def _send(self, change: FeedChange) -> None:
        for queue in self._readers:
            if queue.qsize() < _MAX_QUEUED or not isinstance(change, DeltaArrived):
                queue.put_nowait(change)

    async def read(self) -> AsyncGenerator[FeedChange]:
        """Yield what changes from now on, until the feed is closed."""
        queue: asyncio.Queue[FeedChange | None] = asyncio.Queue()
        if not self._readers:
            self._seen = {row.run_id: row.seq for row in self._rows()}
        self._readers[queue] = None
        self._start()
        try:
            while (change := await queue.get()) is not None:
                yield change
        finally:
            self._readers.pop(queue, None)
            if not self._readers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def close(self) -> None:
        """End all readers."""
        for queue in self._readers:
            queue.put_nowait(None)

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_always())

    async def _look_always(self) -> None:
        while True:
            self._wake.clear()
            with suppress(ReynError):  # a journal that is away for a moment
                for row in await asyncio.to_thread(self._rows):
                    if self._seen.get(row.run_id) != row.seq:
                        self._seen[row.run_id] = row.seq
                        self._send(RunChanged(row.run_id, row.seq, row.status or "", row.skill, row.parent))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)

    def _rows(self) -> list[RunRow]:
        """Return the runs that can have new events: open ones, those that were open at the last look, and new ones."""
        journal = self._open_journal()
        rows = {row.run_id: row for row in journal.page(RunQuery(), _NEWEST)}
        rows |= {row.run_id: row for row in journal.page(RunQuery(("running", "waiting")), _MOST_OPEN)}
        rows |= {run_id: row for run_id in self._open - rows.keys() if (row := journal.find(run_id)) is not None}
        self._open = {row.run_id for row in rows.values() if row.status in ("running", "waiting")}
        return list(rows.values())
