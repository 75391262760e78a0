"""The change feed: which runs have new events, for all streams of a server together.

Events of this process arrive at once; those of other processes are found by looking at the list of runs. A page gets
notes, and reads through the API what it shows. A reader that is too slow is ended: it comes back and reads everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ReynError
from reyn.journal.listing import RunQuery

if TYPE_CHECKING:
    from reyn.journal import Event, Journal, RunRow
    from reyn.models import Delta

LOOK_SECONDS = 0.25
"""How often to look for events of other processes, while there is a stream."""
_SPACING = 0.02
"""The least time between two notes about a run of this process, however many commits it makes."""
_MAX_QUEUED = 1_000
_NEWEST, _MOST_OPEN = 100, 10_000
"""How many runs are looked at: of the newest, and of those that are open."""


class RunChanged(msgspec.Struct, frozen=True, tag_field="type", tag="run"):
    """A run has new events."""

    run_id: str
    seq: int


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


class FeedReader:
    """What one reader of the feed has not read yet."""

    def __init__(self) -> None:
        self._changes: asyncio.Queue[FeedChange | None] = asyncio.Queue()

    def add(self, change: FeedChange) -> None:
        """Add a change. Of a reader that is slow, deltas are dropped; it is ended if there is still more."""
        if self._changes.qsize() < _MAX_QUEUED:
            self._changes.put_nowait(change)
        elif not isinstance(change, DeltaArrived):
            self.end()

    def end(self) -> None:
        """Let the reader end once it has read what is there."""
        self._changes.put_nowait(None)

    async def read(self) -> AsyncGenerator[list[FeedChange]]:
        """Yield what arrives, all that waits together, until the reader is ended."""
        while True:
            found = [await self._changes.get()]
            while not self._changes.empty():
                found.append(self._changes.get_nowait())
            changes = [change for change in found if change is not None]
            if changes:
                yield changes
            if len(changes) < len(found):
                return


class ChangeFeed:
    """What changed, for any number of readers.

    Args:
        journal: The journal.
        observe: Receives every event of this process.
    """

    def __init__(self, journal: Callable[[], Journal], observe: Callable[[Event], object]) -> None:
        self._open_journal = journal
        self._observe = observe
        self._readers: set[FeedReader] = set()
        self._seen: dict[str, int] = {}
        """The last known event of each run."""
        self._new: dict[str, int] = {}
        """That of the runs of this process that readers were not told of."""
        self._sending: asyncio.TimerHandle | None = None
        self._send_at = 0.0
        self._open: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self._wake, self._has_looked = asyncio.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def publish(self, event: Event) -> None:
        """Pass on that a run of this process has an event."""
        self._observe(event)
        if not self._readers:
            return
        self._new[event.run_id] = event.seq
        if self._sending is None:
            self._sending = asyncio.get_running_loop().call_at(self._send_at, self._send_new)

    def _send_new(self) -> None:
        self._send_at, self._sending = asyncio.get_running_loop().time() + _SPACING, None
        new, self._new = self._new, {}
        self._seen |= new
        for run_id, seq in new.items():
            self._send(RunChanged(run_id, seq))

    def publish_delta(self, run_id: str, delta: Delta) -> None:
        """Pass on a piece of an answer."""
        self._send(DeltaArrived(run_id, delta.call, delta.text))

    def publish_item(self, run_id: str, item: Any) -> None:
        """Pass on an item of a conversation."""
        self._send(ItemArrived(run_id, msgspec.to_builtins(item)))

    def look(self) -> None:
        """Look for new events of other processes soon."""
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    def _send(self, change: FeedChange) -> None:
        for reader in self._readers:
            reader.add(change)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[FeedReader]:
        """Give a reader, which gets what changes from now on until the block or the feed ends."""
        reader = FeedReader()
        self._readers.add(reader)
        if self._looking is None or self._looking.done():
            self._loop, self._has_looked = asyncio.get_running_loop(), asyncio.Event()
            self._looking = asyncio.ensure_future(self._look_always(self._has_looked))
        try:
            await self._has_looked.wait()
            yield reader
        finally:
            self._readers.discard(reader)
            if not self._readers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def close(self) -> None:
        """End all readers."""
        for reader in self._readers:
            reader.end()

    async def _look_always(self, has_looked: asyncio.Event) -> None:
        """Look, and send what has changed since the first look."""
        is_known = False
        while True:
            self._wake.clear()
            with suppress(ReynError):  # a journal that is away for a moment
                for row in await asyncio.to_thread(self._rows):
                    seen, self._seen[row.run_id] = self._seen.get(row.run_id, 0), row.seq
                    if is_known and row.seq > seen:
                        self._send(RunChanged(row.run_id, row.seq))
                is_known = True
            has_looked.set()
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
