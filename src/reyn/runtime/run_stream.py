"""`RunStream`: the events of a run as an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from reyn.errors import ReynError
from reyn.journal import Event
from reyn.streams import Stream

if TYPE_CHECKING:
    from reyn.journal.results import RunResult
    from reyn.kernel.world.services import Listener


class RunStream(Stream[Event]):
    """An async iterator of events. The run starts with the first event that is requested.

    Closing the stream early, or leaving a loop over it, interrupts the run, which can be resumed. If other callers wait
    for the same run, it goes on for them.
    """

    def __init__(self, start: Callable[[Listener], Awaitable[RunResult]]) -> None:
        self._start = start
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Future[RunResult] | None = None
        self._is_left = False

    @property
    def result(self) -> RunResult:
        """The result of the run, available after the last event."""
        if self._task is None or not self._task.done():
            raise ReynError("the run has not ended", hint="Iterate to the end of the stream first.")
        if self._task.cancelled():
            raise ReynError("the stream was left before the run ended", hint="Resume the run.")
        return self._task.result()

    async def _next(self) -> Event:
        if self._task is None:
            self._task = asyncio.ensure_future(self._start(self._events.put_nowait))
            self._task.add_done_callback(_end(self._events))
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            if not self._is_left:
                self._task.result()  # raises what the run raised
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Interrupt the run, if it is still in progress, and wait until it has stopped."""
        self._leave()
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def _leave(self) -> None:
        task = self._task
        if task is None or task.done() or task.get_loop().is_closed():
            return
        self._is_left = True
        task.get_loop().call_soon_threadsafe(task.cancel)


def _end(events: asyncio.Queue[Event | None]) -> Callable[[asyncio.Future[RunResult]], None]:
    """Return a callback that ends a queue of events. It does not refer to the stream, which may be dropped."""
    return lambda _: events.put_nowait(None)
