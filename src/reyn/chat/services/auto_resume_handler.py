"""Find what an earlier process left: conversations and runs that were interrupted, and continue them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.chat.services.snapshot_journal import all_conversations
from reyn.errors import ReynError, RunBusy
from reyn.journal.lifecycle import UNENDED
from reyn.journal.listing import RunQuery

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.journal.results import RunResult
    from reyn.runtime import OSRuntime, SyncRuntime


def interrupted_runs(runtime: OSRuntime | SyncRuntime) -> list[RunRow]:
    """Return the runs without a parent that stopped in the middle, the oldest first. No process executes them.

    Submitted runs are left to workers.
    """
    is_claimed = runtime.services.journal.is_claimed
    rows = [row for row in runtime.runs.select(RunQuery(("running",))) if not (row.parent or row.imported)]
    return [row for row in reversed(rows) if not row.queue and not is_claimed(row.run_id)]


def open_conversations(runtime: OSRuntime) -> list[RunRow]:
    """Return the conversations that can be continued, the latest first."""
    rows = (one.row for one in all_conversations(runtime.runs, RunQuery(UNENDED)))
    return [row for row in rows if not row.imported]


async def resume_interrupted(runtime: OSRuntime, row: RunRow) -> RunResult | ReynError | None:
    """Continue a run; return its result, why it cannot continue, or `None` if another process continues it."""
    try:
        return await runtime.resume(row.run_id)
    except RunBusy:
        return None
    except ReynError as error:
        return error
