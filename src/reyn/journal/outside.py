"""Record what happens to a run while no process executes it: messages, a cancellation, a submission, an undo.

What executes a run appends to it through its tape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal.registry import GENESIS, chain_events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.journal.canonical import Blob
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.port import Journal
    from reyn.journal.registry import Body
    from reyn.journal.wakes import Wake

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
    events = chain_events(run_id, [body for body, _ in recorded], seq, last, ts)
    journal.append(run_id, seq, events, [blob for _, blobs in recorded for blob in blobs], wakes)
