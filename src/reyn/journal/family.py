"""Families of runs: a root run and its descendants, the sub-runs that it and they started.

The id of a sub-run starts with the id of its parent, but a user may give such an id to any run; `parent` decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import NextAction, RunImported, RunNotFound, RunNotResumable
from reyn.journal.lifecycle import ENDED

if TYPE_CHECKING:
    from reyn.journal import Journal, RunRow

_MAX_LISTED = 5


def lineage(journal: Journal, row: RunRow) -> list[RunRow]:
    """Return a run, its parent, and so on up to the root run."""
    rows = [row]
    seen = {row.run_id}
    while row.parent and row.parent not in seen and (parent := journal.find(row.parent)) is not None:
        row = parent
        seen.add(row.run_id)
        rows.append(row)
    return rows


def root_run(journal: Journal, row: RunRow) -> RunRow:
    """Return the root run, which has to be resumed to continue any run of its family."""
    return lineage(journal, row)[-1]


def descendants(journal: Journal, run_id: str) -> list[RunRow]:
    """Return the sub-runs of a run and theirs, each after its parent."""
    rows: dict[str, RunRow] = {}
    for row in sorted(journal.runs(f"{run_id}."), key=lambda row: (len(row.run_id), row.started)):
        if row.parent == run_id or row.parent in rows:
            rows[row.run_id] = row
    return list(rows.values())


def find_run(journal: Journal, run: str) -> RunRow:
    """Return a run by its id, or by a unique prefix of it.

    Raises:
        RunNotFound: There is no such run, or the prefix is ambiguous.
    """
    row = journal.find(run)
    if row is not None:
        return row
    rows = [row for row in journal.runs(run) if not row.parent.startswith(run)] if run else []
    if len(rows) == 1:
        return rows[0]
    if not rows:
        raise RunNotFound(f"no run `{run}`")
    ids = [f"`{row.run_id}`" for row in rows[:_MAX_LISTED]]
    more = [f"{len(rows) - _MAX_LISTED} more"] if len(rows) > _MAX_LISTED else []
    raise RunNotFound(f"`{run}` is the beginning of {len(rows)} run ids: {', '.join([*ids, *more])}")


def check_open(row: RunRow, what: str, hint: str) -> RunRow:
    """Return a run that has not ended and was not imported.

    Raises:
        RunImported: It was imported.
        RunNotResumable: It has ended.
    """
    check_not_imported(row, f"{what}: it is never executed here")
    if row.status in ENDED:
        raise RunNotResumable(f"run `{row.run_id}` is already {row.status}", hint=hint)
    return row


def check_not_imported(row: RunRow, what: str) -> None:
    """Refuse an operation that would execute an imported run, append to it, or apply its changes.

    Raises:
        RunImported: The run was imported.
    """
    if row.imported:
        raise RunImported(
            f"run `{row.run_id}` was imported from {row.imported} and cannot be {what}",
            action=NextAction("fork", row.run_id),
        )
