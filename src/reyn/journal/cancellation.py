"""Cancel runs with the journal alone: post the request, then record it unless another process executes the run.

`reyn.kernel.world.inbox` describes the protocol of claims and inboxes, and records all other messages.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from reyn.errors import RunBusy
from reyn.journal import kinds
from reyn.journal.family import check_open, descendants
from reyn.journal.lifecycle import ENDED
from reyn.journal.port import Cancel
from reyn.journal.registry import chain_events
from reyn.journal.spending import in_full

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.journal import Journal
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.port import InboxMessage
    from reyn.journal.registry import Body


def cancel_run(journal: Journal, row: RunRow, reason: str, now: Callable[[], int]) -> list[str]:
    """Cancel a run and its descendants; return the ids of those that had not ended.

    Raises:
        RunNotResumable: The run has ended.
        RunImported: The run was imported.
    """
    check_open(row, "cancelled", "There is nothing to cancel.")
    return cancel_runs(journal, [row, *descendants(journal, row.run_id)], reason, now)


def cancel_runs(journal: Journal, rows: Sequence[RunRow], reason: str, now: Callable[[], int]) -> list[str]:
    """Cancel the runs that have not ended, and return their ids.

    A process that executes one of them stops before its next effect.
    """
    running = [row for row in rows if row.status not in ENDED]
    for one in running:
        messages = journal.drain(one.run_id, one.messages_taken)
        if not any(isinstance(message.payload, Cancel) for message in messages):
            journal.post(one.run_id, Cancel(reason))
    for one in running:
        with suppress(RunBusy), journal.claim(one.run_id):
            _record(journal, one.run_id, now())
    return [one.run_id for one in running]


def _record(journal: Journal, run_id: str, now: int) -> None:
    """Record the messages to a run that no process executes, unless its last driver did."""
    row = journal.find(run_id)
    assert row is not None
    if bodies := cancellation(journal.drain(run_id, row.messages_taken), row.reserved):
        events = chain_events(run_id, bodies, row.seq, row.hash, max(now, row.updated))
        journal.append(run_id, row.seq, events)


def cancellation(messages: Sequence[InboxMessage], reserved: kinds.BudgetReserved | None) -> list[Body]:
    """Return the events that record messages if one of them cancels the run: all others are refused.

    Args:
        messages: The messages.
        reserved: What the run has reserved for a model call. The process that made the call died.
    """
    cancel = next((message.id for message in messages if isinstance(message.payload, Cancel)), None)
    events: list[Body] = []
    for message in messages if cancel is not None else ():
        payload = message.payload
        if message.id == cancel and isinstance(payload, Cancel):
            events += [kinds.RunCancelled(payload.reason, cancel), *([in_full(reserved)] if reserved else [])]
        else:
            events.append(kinds.MessageRefused(message.id, payload.name, "the run is cancelled"))
    return events
