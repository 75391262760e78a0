"""The lifecycle of a run: status, reason, phase, open question, and what its model calls were charged.

The kernel's `RunState` and `RunRow`, a row of the list of runs, both extend `Lifecycle` and advance by the rules here,
so they cannot disagree. Rows are stored beside the events and can be rebuilt from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from reyn.errors import HistoryInvalid
from reyn.journal import kinds
from reyn.journal.registry import Body, Event, Status, decode
from reyn.journal.registry import kinds as registered
from reyn.texts import counted

ENDED: tuple[Status, ...] = ("finished", "aborted", "cancelled")
"""Terminal statuses: a run never leaves them. A fork can continue from it as a new run."""

UNENDED: tuple[Status, ...] = ("running", "waiting", "limited", "failed", "blocked")
"""All other statuses."""


class Lifecycle(msgspec.Struct, frozen=True, gc=False):
    """The lifecycle of one run.

    Attributes:
        status: The status; `None` only before the first event.
        reason: Why the run is in this status.
        phase: The phase in progress, or the next one.
        wait: The open question, the run's own or that of a sub-run.
        messages_taken: The id of the last inbox message that the run has processed.
        charge: What its model calls and its sub-runs were charged. A fork starts without its origin's.
        reserved: What a model call in progress may use; also that of a process that died during the call.
        queue: The queue whose workers execute the run; empty if it was not submitted.
        priority: The priority in the queue; the highest comes first.
        labels: The labels that a worker needs to execute it.
        title: The title that a user gave the conversation.
    """

    status: Status | None = None
    reason: str = ""
    phase: str = ""
    wait: kinds.Question | None = None
    messages_taken: int = 0
    charge: kinds.Charge = kinds.Charge()
    reserved: kinds.BudgetReserved | None = None
    queue: str = ""
    priority: int = 0
    title: str = ""
    labels: tuple[str, ...] = ()

    @property
    def is_suspended(self) -> bool:
        """Whether it waits for sub-runs that workers execute: only then a running run has a reason."""
        return self.status == "running" and bool(self.reason)


L = TypeVar("L", bound=Lifecycle)


def lifecycle_rule(kind: type[Body]) -> Callable[[Any, Any], Any] | None:
    """Return what an event kind changes in a lifecycle; `None` if it changes nothing."""
    return _RULES.get(kind)


def _entered(life: L, status: Status, reason: str = "") -> L:
    """Return the lifecycle in a status, unless the run has ended."""
    return life if life.status in ENDED else replace(life, status=status, reason=reason)


def _enter(life: L, body: Any) -> L:
    """Enter the status of an event kind; every kind without a rule of its own has a reason."""
    return _entered(life, body.enters, body.reason)


def _start(life: L, _: kinds.RunStarted) -> L:
    return replace(life, status="running", reason="")


def _fork(life: L, body: kinds.RunForked) -> L:
    """Start with the status `running`, not with the status of the origin. An open question of the origin is asked
    again."""
    phase = body.phase or life.phase
    life = replace(life, status="running", reason="", phase=phase, wait=None, queue="", priority=0, labels=())
    return replace(life, charge=kinds.Charge(), reserved=None)


def _submit(life: L, body: kinds.RunSubmitted) -> L:
    return replace(life, queue=body.queue, priority=body.priority, labels=body.labels)


def _suspend(life: L, body: kinds.RunSuspended) -> L:
    return _entered(life, "running", f"waits for {counted(len(body.runs), 'sub-run')}")


def _resume(life: L, _: kinds.RunResumed) -> L:
    """Keep waiting for the run's own question; a sub-run asks its question again itself."""
    if life.status in ENDED:
        return life
    if life.wait is not None and life.wait.run is None:
        return replace(life, status="waiting", reason=life.wait.message)
    return replace(life, status="running", reason="", wait=None)


def _cancel(life: L, body: kinds.RunCancelled) -> L:
    return _entered(replace(life, wait=None, messages_taken=body.message), "cancelled", body.reason)


def _open_wait(life: L, body: kinds.WaitOpened) -> L:
    return life if life.status in ENDED else replace(life, status="waiting", reason=body.wait.message, wait=body.wait)


def _continue(life: L, body: kinds.WaitAnswered | kinds.TurnAborted) -> L:
    """Close the open question and run on; after an aborted turn, to complete the transcript."""
    return _entered(replace(life, wait=None, messages_taken=body.message), "running")


def _expire(life: L, _: kinds.WaitExpired) -> L:
    return _entered(replace(life, wait=None), "running")


def _take_message(
    life: L,
    body: kinds.LimitRaised | kinds.MessageRefused | kinds.MemoryChanged | kinds.NotificationSent,
) -> L:
    """A message that is refused at the end of the run may be older than others that were taken."""
    return replace(life, messages_taken=max(life.messages_taken, body.message))


def _rename(life: L, body: kinds.ConversationRenamed) -> L:
    return replace(life, title=body.title, messages_taken=max(life.messages_taken, body.message))


def _queue_message(life: L, body: kinds.MessageQueued) -> L:
    """Continue a conversation that waits for a message. A question stays open."""
    life = replace(life, messages_taken=body.message)
    if life.status in ENDED or life.wait is None or not life.wait.is_message or life.wait.run is not None:
        return life
    return replace(life, wait=None, status="running", reason="")


def _enter_phase(life: L, body: kinds.PhaseStarted) -> L:
    return replace(life, phase=body.phase)


def _leave_phase(life: L, body: kinds.PhaseCompleted) -> L:
    return replace(life, phase=body.next_phase) if body.next_phase else life


def _handle_error(life: L, body: kinds.ErrorHandled) -> L:
    return replace(life, phase=body.to) if body.to != kinds.TO_END else life


def _roll_back(life: L, body: kinds.PhaseRolledBack) -> L:
    return replace(life, phase=body.to)


def _complete(life: L, body: kinds.SkillCompleted) -> L:
    return _entered(life, "finished")


def _reserve(life: L, body: kinds.BudgetReserved) -> L:
    return replace(life, reserved=body)


def settle(life: L, body: kinds.BudgetSettled) -> L:
    """Add what a call was charged."""
    currency = life.reserved.currency if life.reserved is not None else ""
    charge = kinds.Charge(body.usage.total, body.cost or 0, currency, 1, int(body.cost is None), int(body.is_assumed))
    return replace(life, charge=life.charge + charge, reserved=None)


def _add_charge(life: L, body: kinds.ChildEnded) -> L:
    return life if body.charge is None else replace(life, charge=life.charge + body.charge)


_RULES: dict[type[Body], Callable[[Any, Any], Any]] = {
    kinds.RunStarted: _start,
    kinds.RunForked: _fork,
    kinds.RunResumed: _resume,
    kinds.RunSubmitted: _submit,
    kinds.RunSuspended: _suspend,
    kinds.RunCancelled: _cancel,
    kinds.WaitOpened: _open_wait,
    kinds.WaitAnswered: _continue,
    kinds.WaitExpired: _expire,
    kinds.LimitRaised: _take_message,
    kinds.MessageRefused: _take_message,
    kinds.MemoryChanged: _take_message,
    kinds.ConversationRenamed: _rename,
    kinds.NotificationSent: _take_message,
    kinds.MessageQueued: _queue_message,
    kinds.TurnAborted: _continue,
    kinds.PhaseStarted: _enter_phase,
    kinds.PhaseCompleted: _leave_phase,
    kinds.ErrorHandled: _handle_error,
    kinds.PhaseRolledBack: _roll_back,
    kinds.SkillCompleted: _complete,
    kinds.BudgetReserved: _reserve,
    kinds.BudgetSettled: settle,
    kinds.ChildEnded: _add_charge,
}
_RULES |= {cls: _enter for cls in registered().values() if cls.enters is not None and cls not in _RULES}


class RunRow(Lifecycle, frozen=True, kw_only=True):
    """One run: its lifecycle, its last event, and its relation to other runs.

    Attributes:
        run_id: The run.
        skill: The name of its skill.
        rules: The version of the derivation rules that it follows.
        started: The time of its first event.
        seq: The sequence number of its last event.
        hash: The hash of its last event.
        updated: The time of its last event.
        parent: The run that started it, if it is a sub-run.
        fork_of: The run that it was forked from.
        fork_seq: The event of `fork_of` that it continues from.
        imported: Where the run was imported from; empty for a run of this project. Not derived from events, which
            the author of the archive chose.
    """

    run_id: str
    skill: str
    rules: int
    started: int
    seq: int = 0
    hash: str = ""
    updated: int = 0
    parent: str = ""
    fork_of: str = ""
    fork_seq: int = 0
    imported: str = ""


def is_listed_alike(before: RunRow | None, after: RunRow) -> bool:
    """Return whether nothing has changed that the list of runs is searched by."""
    if before is None:
        return False
    return (before.status, before.reason, before.title) == (after.status, after.reason, after.title)


def project(
    row: RunRow | None, events: Sequence[Event], bodies: Sequence[Body], origin: RunRow | None = None
) -> RunRow:
    """Return the row after more events. For a new fork, `origin` is the row of its origin at the fork point."""
    row = row or _new_row(events[0], bodies[0], origin)
    for body in bodies:
        if (rule := _RULES.get(type(body))) is not None:
            row = rule(row, body)
    last = events[-1]
    return replace(row, seq=last.seq, hash=last.hash, updated=last.ts)


def _new_row(event: Event, body: Body, origin: RunRow | None) -> RunRow:
    """Return the row of a new run before its first event."""
    if isinstance(body, kinds.RunForked):
        if origin is None:
            raise HistoryInvalid(f"the origin `{body.point.run}` of the fork `{event.run_id}` is missing")
        return replace(
            origin,
            run_id=event.run_id,
            skill=body.skill or origin.skill,
            rules=body.rules or origin.rules,
            started=event.ts,
            parent="",
            fork_of=body.point.run,
            fork_seq=body.point.seq,
            imported="",
        )
    if not isinstance(body, kinds.RunStarted):
        raise HistoryInvalid(f"run `{event.run_id}` begins with `{body.kind}`")
    parent = body.parent.run if body.parent and not body.parent.background else ""
    return RunRow(run_id=event.run_id, skill=body.skill, rules=body.rules, started=event.ts, parent=parent)


def rebuild(events: Iterable[Event]) -> RunRow | None:
    """Return the row of a run from all of its events; those of a fork include its origin's."""
    row: RunRow | None = None
    for event in events:
        body = decode(event)
        if isinstance(body, kinds.RunForked):
            row = project(None, [event], [body], row)
        else:
            row = project(row, [event], [body])
    return row
