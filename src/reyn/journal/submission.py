"""Submitted runs: those that workers execute, from any machine.

A run is submitted by an event, so its row has the queue. Everything that gives a submitted run something to do is
stored with a wake, in the same transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal.family import lineage
from reyn.journal.outside import record_outside
from reyn.journal.wakes import Wake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.journal import kinds
    from reyn.journal.canonical import Blob
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.messages import InboxPayload
    from reyn.journal.outside import EventWithBlobs
    from reyn.journal.port import Journal
    from reyn.journal.registry import Body

DEFAULT_QUEUE = "default"


def submit(
    journal: Journal, run_id: str, submitted: kinds.RunSubmitted, now: int, *first: Body, blobs: Sequence[Blob] = ()
) -> None:
    """Record that a run is submitted, and wake a worker. A new run begins with the events `first`.

    The claim on the run is held meanwhile.

    Raises:
        RunBusy: A process executes the run.
    """
    recorded: list[EventWithBlobs] = [*((body, tuple(blobs)) for body in first), (submitted, ())]
    wake = Wake(run_id, 0, submitted.queue, submitted.priority)
    record_outside(journal, run_id, now, lambda _: recorded, [wake])


def post_message(journal: Journal, row: RunRow, payload: InboxPayload) -> int:
    """Send a message to a run; return its id.

    A worker is woken for the run if it is submitted, else for the next one above it; and for those above that wait.
    """
    return journal.post(row.run_id, payload, _wakes(journal, row) if row.queue or row.parent else ())


def _wakes(journal: Journal, row: RunRow) -> list[Wake]:
    submitted = [one for one in lineage(journal, row) if one.queue]
    woken = submitted[:1] + [one for one in submitted[1:] if one.status == "waiting"]
    return [Wake(one.run_id, 0, one.queue, one.priority) for one in woken]


def is_left_to_workers(journal: Journal, row: RunRow) -> bool:
    """Return whether a worker is to execute a run next: it was submitted, and has something to do."""
    if not row.queue:
        return False
    if row.status == "running":
        return True
    return row.status == "waiting" and bool(journal.drain(row.run_id, row.messages_taken))
