"""Execute the background runs of a conversation while it continues. Their results come back through its inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from reyn.chat.items import ChatItem, SkillEnded, SkillProgressed
from reyn.chat.reader import read_progress
from reyn.errors import ReynError, RunBusy
from reyn.kernel.world.child_tasks import unreported

if TYPE_CHECKING:
    from reyn.journal import Event, RunRow
    from reyn.kernel.core.snapshot import RunState
    from reyn.runtime import OSRuntime


class SkillRunner:
    """The background runs of one conversation that this process executes."""

    def __init__(self, runtime: OSRuntime, conversation: str, put: Callable[[ChatItem], None]) -> None:
        self._runtime = runtime
        self._conversation = conversation
        self._put = put
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.progress: dict[str, SkillProgressed] = {}
        """Where the runs are that this process executes."""

    def start(self, run: str, conversation: str = "") -> None:
        """Execute a background run, unless it is being executed.

        Args:
            run: The run.
            conversation: The conversation that started it, if it is one with an agent that was asked.
        """
        if run not in self._tasks or self._tasks[run].done():
            self._tasks[run] = asyncio.ensure_future(self._execute(run, conversation or self._conversation))

    def continue_all(self, state: RunState) -> None:
        """Execute the background runs that an earlier process left, or whose end was not reported.

        Those of the agents that were asked are among them.
        """
        for run in unreported(self._runtime.services.journal, state):
            self.start(run, state.run_id)
        for thread in state.threads.values():
            if thread.run.startswith(f"{state.run_id}.") and self._runtime.runs.is_recorded(thread.run):
                self.continue_all(self._runtime.runs.state(thread.run))

    async def _execute(self, run: str, conversation: str) -> None:
        try:
            result = await self._runtime.conversations.run_background(conversation, run, listener=self._on_event)
        except RunBusy:
            return  # another process executes it, and reports its end
        except ReynError as error:
            self._put(SkillEnded(run, "failed", f"{error.code}: {error.message}"))
            return
        finally:
            self.progress.pop(run, None)
        self._put(SkillEnded(run, str(result.status), result.reason))

    def _on_event(self, event: Event) -> None:
        if event.run_id in self._tasks and (item := read_progress(event, self._skill_of)) is not None:
            self.progress[event.run_id] = item
            self._put(item)

    def _skill_of(self, run: str) -> str:
        row = self._runtime.services.journal.find(run)
        return row.skill if row is not None else ""

    def rows(self) -> list[RunRow]:
        """Return the background runs that have begun, in the order in which they were started."""
        background = self._runtime.runs.state(self._conversation).inbox.background
        rows = (self._runtime.services.journal.find(run) for run in background)
        return [row for row in rows if row is not None]

    @property
    def in_progress(self) -> list[str]:
        """The runs that this process executes."""
        return [run for run, task in self._tasks.items() if not task.done()]

    def is_executing(self, run: str) -> bool:
        """Return whether a run is one of the background runs in progress, or a sub-run of one."""
        return any(run == one or run.startswith(f"{one}.") for one in self.in_progress)

    async def settle(self) -> None:
        """Wait until no background run is being executed."""
        while tasks := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Interrupt the runs; they can be continued."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
