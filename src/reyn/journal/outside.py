"""Record what happens to a run while no process executes it: messages, a cancellation, a submission, an undo.

What executes a run appends to it through its tape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal.lifecycle import ENDED, project
from reyn.journal.registry import GENESIS, chain_events
from reyn.journal.wakes import Wake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.journal.canonical import Blob
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.port import Journal
    from reyn.journal.registry import Body

    EventWithBlobs = tuple[Body, tuple[Blob, ...]]


def record_outside(
    journal: Journal,
    run_id: str,
    now: int,
    events_of: Callable[[RunRow | None], Sequence[EventWithBlobs]],
    wakes: Sequence[Wake] = (),
) -> bool:
    """Record events of a run under its claim; return whether there were any.

    Args:
        journal: The journal of the run.
        run_id: The run.
        now: The time.
        events_of: Returns the events to record; it gets the row of the run as it is now, `None` for a new one.
        wakes: What is stored with the events.

    Raises:
        RunBusy: A process executes the run.
    """
    with journal.claim(run_id):
        row = journal.find(run_id)
        recorded = events_of(row)
        if recorded:
            append_outside(journal, run_id, now, recorded, row, wakes)
    return bool(recorded)


def append_outside(
    journal: Journal,
    run_id: str,
    now: int,
    recorded: Sequence[EventWithBlobs],
    row: RunRow | None = None,
    wakes: Sequence[Wake] = (),
) -> None:
    """Append events to a run whose claim the caller holds, after those that it has."""
    row = row or journal.find(run_id)
    seq, last, ts = (row.seq, row.hash, max(now, row.updated)) if row is not None else (0, GENESIS, now)
    bodies = [body for body, _ in recorded]
    events = chain_events(run_id, bodies, seq, last, ts)
    if row is not None and row.parent and row.queue and project(row, events, bodies).status != "running":
        wakes = (*wakes, *wakes_of_parent(journal, row.parent))
    journal.append(run_id, seq, events, [blob for _, blobs in recorded for blob in blobs], wakes)


def wakes_of_parent(journal: Journal, parent: str) -> tuple[Wake, ...]:
    """Return what is stored with the end or the stop of a submitted sub-run: its parent has something to do."""
    row = journal.find(parent)
    if row is None or not row.queue or row.status in ENDED:
        return ()
    return (Wake(row.run_id, 0, row.queue, row.priority),)
