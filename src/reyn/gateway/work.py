"""The runs that this process executes for its clients, as tasks of the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reyn.errors import ReynError, RunBusy

if TYPE_CHECKING:
    from reyn.api import ChatRuntime
    from reyn.engines import Serving
    from reyn.gateway.changes import ChangeFeed
    from reyn.journal import Event, RunRow
    from reyn.journal.results import RunResult
    from reyn.models import Delta

    RunWork = Callable[..., Awaitable[RunResult | None]]

_log = logging.getLogger("reyn.gateway")
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 60.0
"""How long to wait, in seconds, before an engine that failed is used again."""


class BackgroundRuns:
    """Executes runs in the background.

    Args:
        runtime: The runtime.
        changes: Learns of every event and delta.
        may_work: Whether this process executes runs.
    """

    def __init__(self, runtime: ChatRuntime, changes: ChangeFeed, *, may_work: bool = True) -> None:
        self._runtime = runtime
        self._changes = changes
        self.may_work = may_work
        self._tasks: dict[asyncio.Task[Any], str] = {}

    @property
    def count(self) -> int:
        """The number of runs in progress."""
        return len(self._tasks)

    def check(self) -> None:
        """Raise `RunBusy` if this process executes no runs."""
        if not self.may_work:
            raise RunBusy("this server executes no runs", hint="Start or continue the run in another process.")

    async def start(self, run_id: str, execute: RunWork) -> RunRow:
        """Execute a run in the background, and return its row as soon as it is recorded.

        Args:
            run_id: The run.
            execute: Called with the arguments `listener` and `on_delta`.

        Raises:
            ReynError: Why the run did not begin, or ended at once.
        """
        self.check()
        begun = asyncio.Event()

        def listener(event: Event) -> None:
            if event.run_id == run_id:
                begun.set()
            self._changes.publish(event)

        def on_delta(delta: Delta) -> None:
            self._changes.publish_delta(run_id, delta)

        task = asyncio.ensure_future(execute(listener=listener, on_delta=on_delta))
        self._tasks[task] = run_id
        task.add_done_callback(self._ended)
        waiting = asyncio.ensure_future(begun.wait())
        try:
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
        return self._runtime.runs.find(run_id)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        run_id = self._tasks.pop(task, "")
        self._changes.look()
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, ReynError):
            _log.info("run %s: %s %s", run_id, error.code, type(error).__name__)
        elif error is not None:
            _log.error("run %s failed", run_id, exc_info=error)

    async def close(self) -> None:
        """Interrupt the runs in progress."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def execute_submitted(runtime: ChatRuntime, serving: Serving) -> None:
    """Execute submitted runs as `reyn worker` does, until `serving.stop` is set. An engine that fails is used again."""
    pause = _FIRST_PAUSE
    while not serving.stop.is_set():
        try:
            await runtime.workers.serve(serving=serving)
            break
        except ReynError as error:
            _log.warning("submitted runs are not executed: %s %s", error.code, error.message)
            with suppress(TimeoutError):
                await asyncio.wait_for(serving.stop.wait(), pause)
            pause = min(_MAX_PAUSE, pause * 2)
