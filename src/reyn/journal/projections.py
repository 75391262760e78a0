"""Where each run stands, kept beside the journal for quick listing. Always rebuildable from the events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal import kinds
from reyn.journal.registry import Status, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reyn.journal.event import Event
    from reyn.journal.registry import Body


class RunRow(msgspec.Struct, frozen=True):
    """One line about one run."""

    run_id: str
    seq: int
    hash: str
    skill: str
    rules: int
    status: Status
    phase: str
    reason: str
    started: int
    updated: int
    parent: str = ""
    """The run that asked for this one."""
    fork_of: str = ""
    fork_seq: int = 0
    """The event of `fork_of` that this one goes on from."""
    wait: str = ""
    """The id of the question that the run waits for."""
    rejoins: bool = False
    """Whether the question is a sub-run's: then resuming means asking that one."""
    heard: int = 0
    """The last message that the run took; ids of later ones are larger, wherever the run was before."""


_SAID = (kinds.RunCancelled, kinds.LimitRaised, kinds.WaitAnswered, kinds.MessageRefused)
"""Events that record the hearing of a message."""


def project(
    row: RunRow | None, events: Sequence[Event], bodies: Sequence[Body], origin: RunRow | None = None
) -> RunRow:
    """The line after some more events. A fork that opens starts from the line of its origin."""
    row = row or _opened(events[0], bodies[0], origin)
    status, phase, reason, wait, rejoins = row.status, row.phase, row.reason, row.wait, row.rejoins
    heard = row.heard
    for body in bodies:
        if isinstance(body, kinds.PhaseStarted):
            phase = body.phase
        if isinstance(body, _SAID):
            heard = max(heard, body.message)
        if body.enters is None or (isinstance(body, kinds.RunResumed) and wait and not rejoins):
            continue
        if status in ("finished", "aborted", "cancelled") and not isinstance(body, kinds.RunForked):
            continue
        status, reason, wait, rejoins = body.enters, getattr(body, "reason", ""), "", False
        if isinstance(body, kinds.WaitOpened):
            wait, rejoins = body.wait.id, body.wait.run is not None
    last = events[-1]
    return RunRow(
        row.run_id, last.seq, last.hash, row.skill, row.rules, status, phase, reason, row.started, last.ts,
        row.parent, row.fork_of, row.fork_seq, wait, rejoins, heard,
    )  # fmt: skip


def _opened(event: Event, body: Body, origin: RunRow | None) -> RunRow:
    """The line of a run that begins, before its first event is counted."""
    if isinstance(body, kinds.RunForked):
        assert origin is not None
        skill, rules, parent, point = body.skill or origin.skill, origin.rules, "", body.point
    else:
        assert isinstance(body, kinds.RunStarted)
        skill, rules, parent = body.skill, body.rules, body.parent.run if body.parent else ""
        point = kinds.ForkPoint("", 0, "")
    return RunRow(
        event.run_id, 0, "", skill, rules, "running", "", "", event.ts, event.ts, parent, point.run, point.seq
    )


def rebuild(events: Iterable[Event]) -> RunRow | None:
    """The line of one run, from its events alone."""
    listed = list(events)
    return project(None, listed, [decode(event) for event in listed]) if listed else None
