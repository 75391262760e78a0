"""The list of runs: one row per run, stored beside the events and rebuildable from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.errors import HistoryInvalid
from reyn.journal import kinds
from reyn.journal.lifecycle import Lifecycle, advance
from reyn.journal.registry import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reyn.journal.event import Event
    from reyn.journal.registry import Body


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


def project(
    row: RunRow | None, events: Sequence[Event], bodies: Sequence[Body], origin: RunRow | None = None
) -> RunRow:
    """Return the row after more events. For a new fork, `origin` is the row of its origin at the fork point."""
    row = row or _new_row(events[0], bodies[0], origin)
    for body in bodies:
        row = advance(row, body)
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
