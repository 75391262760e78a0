"""`RunStream`: the events of a run as an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from reyn.errors import ReynError

if TYPE_CHECKING:
    from reyn.journal import Event
    from reyn.journal.results import RunResult
    from reyn.kernel.world.services import Listener


class RunStream:
    """An async iterator of events. The run starts with the first event that is requested.

    Closing the stream early interrupts the run, which can be resumed.
    """

    def __init__(self, start: Callable[[Listener], Awaitable[RunResult]]) -> None:
        self._start = start
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[RunResult] | None = None

    @property
    def result(self) -> RunResult:
        """The result of the run, available after the last event."""
        if self._task is None or not self._task.done():
            raise ReynError("the run has not ended", hint="Iterate to the end of the stream first.")
        return self._task.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._task is None:
            self._task = asyncio.ensure_future(self._start(self._events.put_nowait))
            self._task.add_done_callback(lambda _: self._events.put_nowait(None))
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            self._task.result()  # raises what the run raised
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
