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


def project(row: RunRow | None, events: Sequence[Event], bodies: Sequence[Body]) -> RunRow:
    """The line after some more events."""
    last = events[-1]
    if row is None:
        opening = bodies[0]
        assert isinstance(opening, kinds.RunStarted)
        row = RunRow(last.run_id, 0, "", opening.skill, opening.rules, "running", "", "", events[0].ts, last.ts)
    status, phase, reason = row.status, row.phase, row.reason
    for body in bodies:
        if isinstance(body, kinds.PhaseStarted):
            phase = body.phase
        if body.enters is not None:
            status, reason = body.enters, getattr(body, "reason", "")
    return RunRow(row.run_id, last.seq, last.hash, row.skill, row.rules, status, phase, reason, row.started, last.ts)


def rebuild(events: Iterable[Event]) -> RunRow | None:
    """The line of one run, from its events alone."""
    listed = list(events)
    return project(None, listed, [decode(event) for event in listed]) if listed else None
