"""Wait for a run that another caller executes, here or in another process, and follow its events meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from reyn.errors import RunBusy
from reyn.journal.family import lineage
from reyn.journal.submission import is_left_to_workers
from reyn.kernel.world.run_scope import current_scope
from reyn.runs.watching import Tail

if TYPE_CHECKING:
    from reyn.journal.results import RunResult
    from reyn.kernel.world.services import Observers, Services
    from reyn.runs.recorded import Runs


class FollowedRun:
    """Passes the events of a run, and of the runs that it awaits, to the observers of a caller that waits for it.

    Attributes:
        has_begun: Whether there was another caller to follow.
        warnings: Why the listener was dropped, if it was.
    """

    def __init__(self, services: Services, run_id: str, observers: Observers) -> None:
        self.has_begun = False
        self.warnings: tuple[str, ...] = ()
        self.tail = Tail(services, run_id, 0, has_children=True, on_delta=observers.on_delta)
        self._listener = observers.listener

    def report(self) -> None:
        """Pass on the events that were recorded since the last call."""
        self.has_begun = True
        if self._listener is not None:
            try:
                for event in self.tail.new_events():
                    self._listener(event)
            except Exception as error:  # noqa: BLE001 - listeners are foreign code
                self._listener, self.warnings = None, (f"the listener failed and was dropped: {error!r}",)


async def attach(
    services: Services,
    runs: Runs,
    run_id: str,
    execute: Callable[[], Awaitable[RunResult]],
    followed: FollowedRun,
    *,
    wait: bool = True,
) -> RunResult:
    """Claim and `execute` a run once no other caller does.

    Args:
        services: The services of the runtime.
        runs: Its recorded runs.
        run_id: The run.
        execute: Claims and executes the run.
        followed: Follows the run while it is in progress.
        wait: Whether to wait; if not, the state of a run in progress is returned.

    Raises:
        RunBusy: The run itself, or a run that it started, calls this.
    """
    journal, scope = services.journal, current_scope()
    row = journal.find(scope.tape.run_id) if scope is not None else None
    if row is not None and any(one.run_id == run_id for one in lineage(journal, row)):
        raise RunBusy(f"run `{run_id}` would wait for itself", run_id=run_id, hint="Use another run id.")
    while True:
        with followed.tail:
            while _is_elsewhere(services, run_id):
                if not wait and runs.is_recorded(run_id):
                    return runs.result(run_id)
                followed.report()
                await followed.tail.changed()
        try:
            return await execute()
        except RunBusy as error:  # another caller was faster
            if error.run_id != run_id:
                raise


def _is_elsewhere(services: Services, run_id: str) -> bool:
    """Return whether another caller executes a run, or a worker is to do so."""
    journal = services.journal
    if journal.is_claimed(run_id) or services.shared_runs.is_executing(run_id):
        return True
    row = journal.find(run_id)
    return row is not None and is_left_to_workers(journal, row)
