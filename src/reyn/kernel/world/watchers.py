"""Those in this process that watch runs: they are woken when events of a run are committed here, and receive these and
the pieces of its model's answers. `reyn.runs.watching` reads everything else from the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

from reyn.models import Delta

if TYPE_CHECKING:
    from reyn.journal import Event

OnDelta = Callable[[Delta], None]
_MAX_RECENT = 1_000
"""The events that are stored for a reader. One that is slower reads them from the journal."""


class Watcher:
    """One reader of a run. It is created in the event loop of the reader."""

    def __init__(self, on_delta: OnDelta | None, *, has_children: bool) -> None:
        self.on_delta = on_delta
        self.has_children = has_children
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._changed = asyncio.Event()
        self._is_woken = False
        self._recent: dict[str, list[Event]] = {}

    def wake(self, run_id: str, events: Sequence[Event]) -> None:
        """Let the reader look for new events. Any number of commits before it does wake it once."""
        if events:
            recent = self._recent.setdefault(run_id, [])
            if recent and (len(recent) > _MAX_RECENT or recent[-1].seq + 1 != events[0].seq):
                recent.clear()  # the journal has them
            recent += events
        if self._is_woken or self._loop.is_closed():
            return
        self._is_woken = True
        if get_ident() == self._thread:
            self._changed.set()  # without the system calls that wake an event loop
        else:
            self._loop.call_soon_threadsafe(self._changed.set)

    def take(self, run_id: str, after: int) -> list[Event]:
        """Return the events of a run that were committed here and follow an event, if none is missing between them.

        The reader may have read some of them from the journal, while they were committed.
        """
        recent = self._recent.pop(run_id, [])
        return recent[max(0, after + 1 - recent[0].seq) :] if recent and recent[0].seq <= after + 1 else []

    def has_new(self, run_id: str) -> bool:
        """Return whether events of a run were committed here since the last call of `take`."""
        return run_id in self._recent

    def forget(self) -> None:
        """Forget the events that were committed here, so that the reader reads the journal."""
        self._recent.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait for `wake`, at most for some time; return whether it was called."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        self._is_woken = False
        return True

    def send(self, delta: Delta) -> None:
        """Pass on a piece of an answer. A callback that raises gets no more of them."""
        if self.on_delta is not None:
            try:
                self.on_delta(delta)
            except Exception:  # noqa: BLE001 - the callback is the caller's code
                self.on_delta = None


class Watchers:
    """The watchers of a project in this process.

    Attributes:
        by_run: The watchers by the run that they watch. Nothing else is called while there are none.
        count: Their number.
    """

    def __init__(self) -> None:
        self.by_run: dict[str, list[Watcher]] = {}
        self.count = 0

    @contextmanager
    def watching(self, run_id: str, on_delta: OnDelta | None = None, *, has_children: bool) -> Iterator[Watcher]:
        """Watch a run in the block, and the runs that it awaits if `has_children` is true."""
        watcher = Watcher(on_delta, has_children=has_children)
        self.by_run.setdefault(run_id, []).append(watcher)
        self.count += 1
        try:
            yield watcher
        finally:
            self.count -= 1
            self.by_run[run_id].remove(watcher)
            if not self.by_run[run_id]:
                del self.by_run[run_id]

    def wake(self, run_id: str, events: Sequence[Event] = ()) -> None:
        """Wake the watchers of a run: events of it were committed, or its execution ended."""
        for watcher in self._of(run_id):
            watcher.wake(run_id, events)

    def deltas(self, run_id: str, on_delta: OnDelta | None) -> OnDelta | None:
        """Return what receives the pieces of an answer of a run: `on_delta` of its caller, and those who watch it."""
        if all(watcher.on_delta is None for watcher in self._of(run_id)):
            return on_delta
        own = Watcher(on_delta, has_children=False)

        def send(delta: Delta) -> None:
            own.send(delta)
            for watcher in self._of(run_id):
                watcher.send(delta)

        return send

    def _of(self, run_id: str) -> list[Watcher]:
        """Return the watchers of a run, and those of the runs above it, whose ids its own id extends."""
        found = [*self.by_run.get(run_id, ())]
        above, _, last = run_id.rpartition(".")
        while last and above:
            found += [watcher for watcher in self.by_run.get(above, ()) if watcher.has_children]
            above, _, last = above.rpartition(".")
        return found
