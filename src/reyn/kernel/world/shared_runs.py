"""Executions of runs for which several callers of this process wait: each goes on as long as one of them waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from reyn.errors import RunBusy

if TYPE_CHECKING:
    from reyn.journal.results import RunResult


class SharedRuns:
    """The executions of a project by the ids of their runs, and the number of callers that wait for each."""

    def __init__(self) -> None:
        self._executions: dict[str, asyncio.Task[RunResult]] = {}
        self._callers: dict[str, int] = {}

    def is_executing(self, run_id: str) -> bool:
        """Return whether a caller has begun to execute the run."""
        return run_id in self._executions

    def has_others(self, run_id: str) -> bool:
        """Return whether the run goes on without a caller that waits for it: for another one, or elsewhere."""
        return self._callers.get(run_id, 0) > (run_id in self._executions)

    @asynccontextmanager
    async def caller(self, run_id: str) -> AsyncIterator[None]:
        """Count a caller in the block. The last one that is cancelled ends the execution."""
        self._callers[run_id] = self._callers.get(run_id, 0) + 1
        try:
            yield
        finally:
            self._callers[run_id] -= 1
            if not self._callers[run_id]:
                del self._callers[run_id]
                if (execution := self._executions.get(run_id)) is not None:
                    execution.cancel()
                    await asyncio.wait([execution])

    async def execute(self, run_id: str, work: Coroutine[Any, Any, RunResult]) -> RunResult:
        """Execute a run and return its result. If this caller is cancelled, the execution goes on for the others.

        Raises:
            RunBusy: Another caller executes it.
        """
        if run_id in self._executions:
            work.close()
            raise RunBusy.in_this_process(run_id)
        execution = self._executions[run_id] = asyncio.ensure_future(work)
        execution.add_done_callback(lambda done: self._forget(run_id, done))
        return await asyncio.shield(execution)

    def _forget(self, run_id: str, execution: asyncio.Task[RunResult]) -> None:
        del self._executions[run_id]
        if not execution.cancelled():
            execution.exception()  # the other callers find what is recorded
