"""Cancel runs with the journal alone: post the request, then record it unless another process executes the run.

`reyn.kernel.world.inbox` describes the protocol of claims and inboxes, and decides how other messages are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from reyn.errors import RunBusy
from reyn.journal import Journal, kinds
from reyn.journal.canonical import Blob
from reyn.journal.family import check_open, descendants
from reyn.journal.lifecycle import ENDED, RunRow
from reyn.journal.messages import Cancel, InboxMessage, InboxPayload, Say
from reyn.journal.outside import record_outside
from reyn.journal.spending import in_full
from reyn.journal.submission import post_message
from reyn.journal.summary import summarize

if TYPE_CHECKING:
    from reyn.journal.registry import Body, Status


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
            post_message(journal, one, Cancel(reason))
    for one in running:
        with suppress(RunBusy):
            record_outside(journal, one.run_id, now(), lambda row: _recorded(journal, row))
    return [one.run_id for one in running]


def _recorded(journal: Journal, row: RunRow | None) -> list[tuple[Body, tuple[Blob, ...]]]:
    """Return the events for the messages to a run that no process executes; none if its last driver recorded them."""
    assert row is not None
    queued = summarize(journal.read(row.run_id)).inbox.queued if row.messages_taken else ()
    return cancellation(journal.drain(row.run_id, row.messages_taken), row.reserved, queued)


def cancellation(
    messages: Sequence[InboxMessage], reserved: kinds.BudgetReserved | None, queued: Sequence[kinds.MessageQueued]
) -> list[tuple[Body, tuple[Blob, ...]]]:
    """Return the events that record messages if one of them cancels the run: all others are refused.

    Args:
        messages: The messages.
        reserved: What the run has reserved for a model call. The process that made the call died.
        queued: The messages that the run has not taken yet.
    """
    cancel = next((message.id for message in messages if isinstance(message.payload, Cancel)), None)
    if cancel is None:
        return []
    events: list[tuple[Body, tuple[Blob, ...]]] = []
    for message in messages:
        payload = message.payload
        if message.id == cancel and isinstance(payload, Cancel):
            events.append((kinds.RunCancelled(payload.reason, cancel), ()))
            events += [(in_full(reserved), ())] if reserved else []
        else:
            events.append(refused(message.id, payload, "the run is cancelled"))
    return events + refused_queue(queued, "cancelled")


def refused(message: int, request: InboxPayload, reason: str) -> tuple[Body, tuple[Blob, ...]]:
    """Return the event that refuses a message, by its id; with its text, if it says something."""
    text = (Blob.of(request.text.encode()),) if isinstance(request, Say) else ()
    return kinds.MessageRefused(message, request.name, reason, text[0].hash if text else None), text


def refused_queue(queued: Sequence[kinds.MessageQueued], status: Status) -> list[tuple[Body, tuple[Blob, ...]]]:
    """Return the events that refuse what was said to a run, and queued, at its end. Reports of other runs are left."""
    reason = f"the run is {status}"
    said = (one for one in queued if not one.run)
    return [(kinds.MessageRefused(one.message, _SAY, reason, one.text), ()) for one in said]


_SAY = Say("").name
