"""The loop of a worker: take what is due, execute it, renew what is in progress, and give back the rest.

Where tasks come from is behind the small interface `TaskSource`: the outbox of a journal, or the tables of Absurd.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from reyn.engines.port import DriveRun, Serving

    T = TypeVar("T")

Subscribe = Callable[[Callable[[Collection[str]], None]], Callable[[], None]]
LEASE_SECONDS = 5.0
"""How long a task is held without a sign of life of its worker."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
"""Seconds between two looks for tasks."""
_HINTED_PAUSE = 1.0
"""The longest pause where hints make a look come earlier. What is due at a time, or was a dead worker's, has none."""


class Task(NamedTuple):
    """A call of `drive` that one worker has to make. `key` identifies it for its source."""

    run_id: str
    key: Hashable


class TaskSource(Protocol):
    """Gives each task to one worker, and to another one if that does not renew it."""

    lease: float
    """How many seconds a task is held."""

    def take(self, queues: Sequence[str], limit: int) -> list[Task]:
        """Return tasks that are due. This worker holds them."""

    def renew(self, tasks: Collection[Task]) -> list[Task]:
        """Hold tasks for a further lease; return those that this worker holds no more."""

    def finish(self, tasks: Collection[Task]) -> None:
        """Remove tasks: their runs have nothing to do."""

    def postpone(self, tasks: Collection[Task], seconds: float) -> None:
        """Let tasks be due after some seconds, for any worker."""


async def serve_tasks(
    source: TaskSource, drive: DriveRun, serving: Serving, *, is_remote: bool, subscribe: Subscribe | None = None
) -> None:
    """Execute the tasks of a source, until `serving.stop` is set.

    Args:
        source: The source.
        drive: Executes a run.
        serving: What this worker does.
        is_remote: Whether calls of the source wait for a server.
        subscribe: Calls a function, in another thread, when there may be a task; returns how to end that.
    """
    pause = _LONGEST_PAUSE if subscribe is None else _HINTED_PAUSE
    loop = _TaskLoop(source, serving, is_remote=is_remote, longest_pause=pause)
    unsubscribe = subscribe(loop.hint) if subscribe else None
    try:
        await loop.serve(drive)
    finally:
        if unsubscribe is not None:
            unsubscribe()


class _TaskLoop:
    """The tasks in progress of one worker."""

    def __init__(self, source: TaskSource, serving: Serving, *, is_remote: bool, longest_pause: float) -> None:
        self._source = source
        self._longest_pause = longest_pause
        self._is_remote = is_remote
        self._serving = serving
        self._tasks: dict[asyncio.Task[float | None], Task] = {}
        self._hinted = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def hint(self, run_ids: Collection[str]) -> None:
        """Look for tasks at once. Called in another thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hinted.set)

    async def serve(self, drive: DriveRun) -> None:
        serving, tasks = self._serving, self._tasks
        stopping = asyncio.ensure_future(serving.stop.wait())
        pause, renewed = _FIRST_PAUSE, time.monotonic()
        try:
            while not serving.stop.is_set():
                self._hinted.clear()
                free = serving.concurrency - len(tasks)
                taken = await self._do(self._source.take, serving.queues, free) if free > 0 else []
                for task in taken:
                    tasks[asyncio.ensure_future(drive(task.run_id))] = task
                    serving.active.add(task.run_id)
                if serving.is_once and not tasks:
                    return
                pause = _FIRST_PAUSE if taken else min(2 * pause, self._longest_pause)
                await self._wait(stopping, min(pause, self._source.lease / 6) if tasks else pause)
                await self._settle()
                if tasks and time.monotonic() - renewed > self._source.lease / 3:
                    renewed = time.monotonic()
                    await self._renew()
        finally:
            stopping.cancel()
            await self._give_back()

    async def _wait(self, stopping: asyncio.Future[Any], seconds: float) -> None:
        hinted = asyncio.ensure_future(self._hinted.wait())
        try:
            await asyncio.wait({stopping, hinted, *self._tasks}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hinted.cancel()

    async def _renew(self) -> None:
        """Renew what is in progress; interrupt what another worker has taken over."""
        held = list(self._tasks.values())
        lost = set(await self._do(self._source.renew, held))
        calls = [call for call, task in self._tasks.items() if task in lost]
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        for call in calls:
            self._forget(call)

    async def _settle(self) -> None:
        """Finish the tasks of runs that have nothing to do, and postpone those that are to be tried again."""
        finished, postponed = list[Task](), dict[float, list[Task]]()
        for call in [call for call in self._tasks if call.done()]:
            task = self._forget(call)
            if call.cancelled():
                seconds: float | None = 0.0
            elif call.exception() is not None:
                seconds = self._source.lease
            else:
                seconds = call.result()
            if seconds is None:
                finished.append(task)
            else:
                postponed.setdefault(seconds, []).append(task)
        if finished:
            await self._do(self._source.finish, finished)
        for seconds, tasks in postponed.items():
            await self._do(self._source.postpone, tasks, seconds)

    def _forget(self, call: asyncio.Task[float | None]) -> Task:
        task = self._tasks.pop(call)
        if task.run_id not in {one.run_id for one in self._tasks.values()}:
            self._serving.active.discard(task.run_id)
        return task

    async def _give_back(self) -> None:
        """Interrupt what is in progress, and let other workers have it at once."""
        for call in self._tasks:
            call.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
            await self._settle()

    async def _do(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call the source; in a thread if it is on a server."""
        return await (asyncio.to_thread(call, *arguments) if self._is_remote else _now(call, *arguments))


async def _now(call: Callable[..., T], *arguments: Any) -> T:
    return call(*arguments)
