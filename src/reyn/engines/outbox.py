"""The dispatcher that needs nothing but the journal: workers take wakes from its outbox.

A wake that a worker has taken is held while the worker renews it. If the worker dies, another one gets the wake.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from reyn.engines.port import DriveRun, Serving
    from reyn.journal import Journal
    from reyn.journal.wakes import PendingWake

    T = TypeVar("T")

LEASE_SECONDS = 5.0
"""How long a wake is held without a sign of life of its worker."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
"""Seconds between two looks for wakes."""


class Outbox:
    """Serves the wakes of a journal."""

    def __init__(self, journal: Journal, lease: float = LEASE_SECONDS) -> None:
        self._journal = journal
        self._lease = lease

    async def serve(self, drive: DriveRun, serving: Serving) -> None:
        """See `Dispatcher.serve`."""
        tasks: dict[asyncio.Task[float | None], PendingWake] = {}
        stopping = asyncio.ensure_future(serving.stop.wait())
        pause, renewed = _FIRST_PAUSE, time.monotonic()
        try:
            while not serving.stop.is_set():
                free = serving.concurrency - len(tasks)
                taken = await self._do(self._journal.take_wakes, serving.queues, free, self._lease) if free > 0 else []
                for wake in taken:
                    tasks[asyncio.ensure_future(drive(wake.run_id))] = wake
                    serving.active.add(wake.run_id)
                if serving.is_once and not tasks:
                    return
                pause = _FIRST_PAUSE if taken else min(2 * pause, _LONGEST_PAUSE)
                await asyncio.wait({stopping, *tasks}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                await self._settle(tasks, serving)
                if tasks and time.monotonic() - renewed > self._lease / 3:
                    renewed = time.monotonic()
                    await self._do(self._journal.hold_wakes, [wake.seq for wake in tasks.values()], self._lease)
        finally:
            stopping.cancel()
            await self._give_back(tasks, serving)

    async def _settle(self, tasks: dict[asyncio.Task[float | None], PendingWake], serving: Serving) -> None:
        """Finish the wakes of runs that have nothing to do, and hold those that are to be tried again."""
        for task in [task for task in tasks if task.done()]:
            wake = tasks.pop(task)
            serving.active.discard(wake.run_id)
            if task.cancelled():
                await self._do(self._journal.hold_wakes, [wake.seq], 0)
            elif task.exception() is not None:
                await self._do(self._journal.hold_wakes, [wake.seq], self._lease)
            elif (seconds := task.result()) is None:
                await self._do(self._journal.finish_wakes, [wake.seq])
            else:
                await self._do(self._journal.hold_wakes, [wake.seq], seconds)

    async def _give_back(self, tasks: dict[asyncio.Task[float | None], PendingWake], serving: Serving) -> None:
        """Interrupt what is in progress, and let other workers have it at once."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            await self._settle(tasks, serving)

    async def _do(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call the journal; in a thread if it is on a server."""
        return await (asyncio.to_thread(call, *arguments) if self._journal.is_remote else _now(call, *arguments))


async def _now(call: Callable[..., T], *arguments: Any) -> T:
    return call(*arguments)
