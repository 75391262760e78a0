"""Submit runs to workers, and execute what was submitted: the two ends of a queue.

A worker calls `drive` for every wake. It may be called at any time, in any process and more than once: a run that has
nothing to do is left alone, and one that another process executes is tried again later.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reyn.context.transcript import normalize
from reyn.errors import (
    ConfigError,
    ModelError,
    OpMissing,
    QueueInvalid,
    RunBlocked,
    RunBusy,
    RunNotResumable,
    RunPoisoned,
)
from reyn.journal import ENDED, decode, kinds
from reyn.journal.family import check_not_imported
from reyn.journal.outside import record_outside
from reyn.journal.submission import submit
from reyn.kernel.world.services import Observers
from reyn.runtime.same_call import RunCall, check_same_call
from reyn.skills.names import is_valid_name

if TYPE_CHECKING:
    from typing import Any

    from reyn.engines import Refusals
    from reyn.journal import RunRow
    from reyn.journal.outside import EventWithBlobs
    from reyn.runtime.executor import RunExecutor
    from reyn.skills import Skill

BUSY_SECONDS = 0.5
"""After how long a run that another process executes is tried again."""
REFUSED_SECONDS = 5.0
"""After how long a run is offered again that this worker cannot execute."""
MAX_TAKEOVERS = 10
"""The drivers of a run that may die one after the other without progress, before it is set aside."""
_SCANNED_EVENTS = 20 * MAX_TAKEOVERS
_MAX_PRIORITY = 1_000
_PROGRESS = (
    *(kinds.LlmResponded, kinds.OpCompleted, kinds.StepCompleted, kinds.ChildEnded, kinds.PhaseCompleted),
    *(kinds.WaitOpened, kinds.WaitAnswered, kinds.RunSubmitted, kinds.RunStarted),
)


def submit_new(
    executor: RunExecutor, skill: str | Skill, value: Any, run_id: str | None, queue: str, priority: int
) -> RunRow:
    """Submit a new run, or the one of this call that exists; `OSRuntime.submit` documents the arguments."""
    services, name = executor.services, executor.checked_id(run_id)
    submitted = _submitted(queue, priority)
    call = RunCall(skill, value, normalize(()))
    if executor.runs.is_recorded(name):
        row = executor.runs.find(name)
        check_not_imported(row, "submitted")
        check_same_call(call, executor.runs.state(name).started, services)
        return row if row.queue or row.status in ENDED else submit_existing(executor, row, queue, priority)
    services.check_owner()
    run = executor.beginning(name, call)()
    submit(services.journal, name, submitted, services.clock.now(), run.event, blobs=run.blobs)
    return executor.runs.find(name)


def submit_existing(executor: RunExecutor, row: RunRow, queue: str, priority: int) -> RunRow:
    """Let workers execute a run that was interrupted or waits.

    Raises:
        RunBusy: A process executes it.
        RunNotResumable: It has ended or stopped, or is a sub-run.
    """
    check_not_imported(row, "submitted")
    if row.status not in ("running", "waiting") or row.parent:
        what = f"is a sub-run of `{row.parent}`" if row.parent else f"is {row.status}"
        raise RunNotResumable(
            f"run `{row.run_id}` {what}; only one that was interrupted or waits can be submitted",
            action=executor.runs.next_action(row),
        )
    services = executor.services
    services.check_owner()
    submit(services.journal, row.run_id, _submitted(queue, priority), services.clock.now())
    return executor.runs.find(row.run_id)


def _submitted(queue: str, priority: int) -> kinds.RunSubmitted:
    if not is_valid_name(queue):
        raise QueueInvalid(f"`{queue}` is not a valid name of a queue")
    if abs(priority) > _MAX_PRIORITY:
        raise QueueInvalid(f"the priority {priority} is not between -{_MAX_PRIORITY} and {_MAX_PRIORITY}")
    return kinds.RunSubmitted(queue, priority)


async def drive(executor: RunExecutor, run_id: str, refusals: Refusals) -> float | None:
    """Execute a submitted run as long as it has something to do.

    Args:
        executor: Executes it.
        run_id: The run.
        refusals: Receives why this worker does not take the run.

    Returns:
        `None` if it has nothing to do any more; otherwise the seconds after which to call this again.
    """
    services = executor.services
    row = services.journal.find(run_id)
    if row is None or not row.queue or row.status in ENDED:
        return None
    if row.status == "running" and not services.journal.is_claimed(run_id) and set_aside(executor, row):
        return None
    try:
        await executor.claim_and_share(run_id, partial(executor.resume, run_id, Observers()), Observers())
        refusals.pop(run_id, None)
    except RunBusy:
        return BUSY_SECONDS
    except RunNotResumable:  # it waits, or has stopped
        pass
    except (RunBlocked, OpMissing, ModelError, ConfigError) as error:
        refusals[run_id] = f"{error.code}: {error.message}"
        return REFUSED_SECONDS
    row = services.journal.find(run_id)
    if row is None or row.wait is None or row.wait.expires_at is None or row.status != "waiting":
        return None
    return max(0.0, (row.wait.expires_at - services.clock.now()) / 1_000_000)


def set_aside(executor: RunExecutor, row: RunRow) -> bool:
    """Let a run fail whose drivers die one after the other; return whether it did.

    Takeovers without progress are counted in the journal, so the count does not depend on workers that died.
    """
    journal, takeovers = executor.services.journal, 0
    for event in journal.read(row.run_id, max(0, row.seq - _SCANNED_EVENTS)):
        body = decode(event)
        takeovers = 0 if isinstance(body, _PROGRESS) else takeovers + isinstance(body, kinds.RunResumed)
    if takeovers < MAX_TAKEOVERS:
        return False
    reason = f"{takeovers} processes that executed it one after the other died, or were stopped, without any progress"
    broken: list[EventWithBlobs] = [(kinds.RunBroken(RunPoisoned.code, reason), ())]
    try:
        return record_outside(
            journal, row.run_id, executor.services.clock.now(), lambda found: broken if found == row else ()
        )
    except RunBusy:
        return False
