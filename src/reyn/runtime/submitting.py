"""Submit runs to workers, and execute what was submitted: the two ends of a queue.

A worker calls `drive` for every wake. It may be called at any time, in any process and more than once: a run that has
nothing to do is left alone, and one that another process executes is tried again later.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from reyn.config.workers import LABEL_PATTERN, MAX_PRIORITY
from reyn.context.transcript import normalize
from reyn.documents.unicode_forms import to_normal_form
from reyn.errors import (
    AppendConflict,
    ConfigError,
    ModelError,
    OpMissing,
    QueueInvalid,
    RunBlocked,
    RunBusy,
    RunNotResumable,
    RunPoisoned,
    SandboxUnavailable,
)
from reyn.journal import ENDED, decode, kinds
from reyn.journal.cancellation import cancel_runs
from reyn.journal.family import check_not_imported, descendants
from reyn.journal.outside import record_outside
from reyn.journal.slots import limit_key, slots_of
from reyn.journal.submission import is_left_to_workers, submit
from reyn.kernel.world.loading import first_event
from reyn.kernel.world.services import Observers
from reyn.kernel.world.submitted_children import is_in_progress
from reyn.ops.programs import SandboxedExecOp
from reyn.permissions.gate import ProjectMissing
from reyn.runtime.same_call import RunCall, check_same_call
from reyn.skills.names import is_valid_name
from reyn.skills.step_types import PythonCall

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from reyn.config.values import PythonSandbox
    from reyn.config.workers import WorkersSettings
    from reyn.engines import Serving
    from reyn.journal import Journal, RunRow
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.world.services import Services
    from reyn.runtime.executor import RunExecutor
    from reyn.skills import Skill

BUSY_SECONDS = 0.5
"""After how long a run that another process executes is tried again."""
REFUSED_SECONDS = 5.0
"""After how long a run is offered again that this worker cannot execute."""
MAX_TAKEOVERS = 10
"""The drivers of a run that may die one after the other without progress, before it is set aside."""
PROJECT_LABEL = "project"
"""The label of workers whose folder has the files of the project. On a journal of one machine, all have it."""
_SCANNED_EVENTS = 20 * MAX_TAKEOVERS
_PROGRESS = (
    *(kinds.LlmResponded, kinds.OpCompleted, kinds.StepCompleted, kinds.ChildEnded, kinds.PhaseCompleted),
    *(kinds.WaitOpened, kinds.WaitAnswered, kinds.RunSubmitted, kinds.RunSuspended, kinds.RunStarted),
)


def submit_new(
    executor: RunExecutor,
    skill: str | Skill,
    value: Any,
    run_id: str | None,
    queue: str,
    priority: int | None,
    labels: Sequence[str] = (),
) -> RunRow:
    """Submit a new run, or the one of this call that exists; `OSRuntime.submit` documents the arguments."""
    services, name = executor.services, executor.checked_id(run_id)
    _check_submission(queue, priority, labels)
    call = RunCall(skill, value, normalize(()))
    if executor.runs.is_recorded(name):
        row = executor.runs.find(name)
        check_not_imported(row, "submitted")
        check_same_call(call, executor.runs.state(name).started, services)
        return row if row.queue or row.status in ENDED else submit_existing(executor, row, queue, priority, labels)
    services.check_owner()
    run = executor.beginning(name, call)()
    submitted = _submitted(services, run.event.skill, queue, priority, labels)
    submit(services.journal, name, submitted, services.clock.now(), run.event, blobs=run.blobs)
    return executor.runs.find(name)


def submit_existing(
    executor: RunExecutor, row: RunRow, queue: str, priority: int | None, labels: Sequence[str] = ()
) -> RunRow:
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
    _check_submission(queue, priority, labels)
    submitted = _submitted(services, row.skill, queue, priority, (*row.labels, *labels))
    submit(services.journal, row.run_id, submitted, services.clock.now())
    return executor.runs.find(row.run_id)


def _check_submission(queue: str, priority: int | None, labels: Sequence[str]) -> None:
    if not is_valid_name(queue):
        raise QueueInvalid(f"`{queue}` is not a valid name of a queue")
    if priority is not None and abs(priority) > MAX_PRIORITY:
        raise QueueInvalid(f"the priority {priority} is not between -{MAX_PRIORITY} and {MAX_PRIORITY}")
    for label in labels:
        if not re.match(LABEL_PATTERN, label):
            raise QueueInvalid(f"`{label}` is not a valid label")


def _submitted(
    services: Services, skill: str, queue: str, priority: int | None, labels: Sequence[str]
) -> kinds.RunSubmitted:
    if priority is None:
        priority = services.config.workers.priority(queue, skill)
    return kinds.RunSubmitted(queue, priority, tuple(dict.fromkeys(labels)))


async def drive(executor: RunExecutor, run_id: str, serving: Serving) -> float | None:
    """Execute a submitted run as long as it has something to do.

    Args:
        executor: Executes it.
        run_id: The run.
        serving: The worker; its `refusals` receive why it does not take the run.

    Returns:
        `None` if it has nothing to do any more, or waits for a slot; otherwise the seconds after which to call this
        again.
    """
    services = executor.services
    journal, settings = services.journal, services.config.workers
    row = journal.find(run_id)
    if row is None or not row.queue or row.status in ENDED:
        return None
    if row.parent and (parent := journal.find(row.parent)) is not None and parent.status in ENDED:
        cancel_runs(journal, [row, *descendants(journal, run_id)], "its parent has ended", services.clock.now)
        return None
    if row.is_suspended and not _is_woken(journal, row):
        return None
    needed = {*settings.of_skill(row.skill).labels, *row.labels}
    if missing := sorted(needed.difference(serving.labels)):
        serving.refusals[run_id] = f"it needs a worker with the label `{missing[0]}`"
        return REFUSED_SECONDS
    is_claimed = journal.is_claimed(run_id)
    if row.status == "running" and not is_claimed and set_aside(executor, row):
        return None
    limits = slot_limits(settings, row) if _has_something_to_do(executor, row) else {}
    if limits and is_claimed:
        return BUSY_SECONDS
    try:
        _check_sandbox(executor.services, run_id)
        with slots_of(journal, row, limits) as missing_slot:
            if missing_slot:
                return None  # it waits in line
            observers = Observers(serving.listener)
            await executor.claim_and_share(run_id, partial(executor.resume, run_id, observers), observers)
        serving.refusals.pop(run_id, None)
    except (RunBusy, AppendConflict):
        return BUSY_SECONDS
    except RunNotResumable:  # it waits, or has stopped
        pass
    except ProjectMissing:
        return _leave_to_project(executor, run_id)
    except (RunBlocked, OpMissing, SandboxUnavailable, ModelError, ConfigError) as error:
        serving.refusals[run_id] = f"{error.code}: {error.message}"
        return REFUSED_SECONDS
    row = journal.find(run_id)
    if row is not None and row.is_suspended and _is_woken(journal, row):  # while it was executed here
        return 0.0
    if row is None or row.wait is None or row.wait.expires_at is None or row.status != "waiting":
        return None
    return max(0.0, (row.wait.expires_at - services.clock.now()) / 1_000_000)


def _is_woken(journal: Journal, row: RunRow) -> bool:
    """Return whether a run that waits for sub-runs has something to do: one has ended or stopped, or a message came."""
    last = next(iter(journal.read(row.run_id, row.seq - 1)), None)
    body = decode(last) if last is not None else None
    if not isinstance(body, kinds.RunSuspended) or journal.drain(row.run_id, row.messages_taken):
        return True
    return not all(is_in_progress(journal, journal.find(run)) for run in body.runs)


def slot_limits(settings: WorkersSettings, row: RunRow) -> dict[str, int]:
    """Return the limits of a submitted run: the number of slots, by key."""
    queue = settings.queue.get(row.queue)
    slots = {
        limit_key("queue", row.queue): queue.concurrency if queue is not None else None,
        limit_key("skill", row.skill): settings.of_skill(row.skill).concurrency,
    }
    return {key: count for key, count in slots.items() if count is not None}


def all_slot_limits(settings: WorkersSettings) -> dict[str, int]:
    """Return all limits of submitted runs."""
    queues = {limit_key("queue", name): one.concurrency for name, one in settings.queue.items()}
    skills = {limit_key("skill", to_normal_form("NFC", name)): one.concurrency for name, one in settings.skill.items()}
    return {key: count for key, count in (queues | skills).items() if count is not None}


def _check_sandbox(services: Services, run_id: str) -> None:
    """Raise `SandboxUnavailable` if a run needs the process sandbox, and this machine has none."""
    started = first_event(services.journal, run_id)
    if started is None:
        return
    skill = services.compile_skill(started, services.journal.blob).skill
    if needed := _needs_sandbox(skill, services.config.python.sandbox):
        from reyn.sandbox import choose_backend

        try:
            choose_backend(services.config.sandbox.backend)
        except SandboxUnavailable as error:
            raise SandboxUnavailable(f"{needed}, and {error.message}") from error


def _leave_to_project(executor: RunExecutor, run_id: str) -> float | None:
    """Record that a run needs a worker with the files of the project; such a one continues it."""
    row = executor.runs.find(run_id)
    submitted = kinds.RunSubmitted(row.queue, row.priority, tuple(dict.fromkeys((*row.labels, PROJECT_LABEL))))
    try:
        submit(executor.services.journal, run_id, submitted, executor.services.clock.now())
    except RunBusy:
        return BUSY_SECONDS
    return None


def _has_something_to_do(executor: RunExecutor, row: RunRow) -> bool:
    """Return whether a run would use a slot: one that waits for a person uses none."""
    services = executor.services
    if row.status != "waiting" or is_left_to_workers(services.journal, row):
        return True
    return row.wait is not None and row.wait.is_expired(services.clock.now())


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


def _needs_sandbox(skill: Skill, sandbox: PythonSandbox) -> str:
    """Return why a skill, or one of its sub-skills, needs the process sandbox; empty if it does not.

    Args:
        skill: The skill.
        sandbox: Where safe python steps run. A module that fails in Monty only when it runs is not found here.
    """
    if (kind := SandboxedExecOp.spec.kind) in skill.op_kinds:
        return f"it may use the op `{kind}`"
    for one in (skill, *skill.skills.values()):
        for placed in one.steps:
            step = placed.applied
            if isinstance(step, PythonCall) and step.mode == "safe" and _in_process(one, step, sandbox):
                return f"`{step.function}` of `{step.module}` runs in CPython"
    return ""


def _in_process(skill: Skill, step: PythonCall, sandbox: PythonSandbox) -> bool:
    from reyn.sandbox.interpreter_choice import needs_cpython

    source = skill.modules.get(step.module)
    return sandbox == "process" or (sandbox == "auto" and source is not None and bool(needs_cpython(source)))
