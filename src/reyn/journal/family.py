"""Families of runs: a root run and its descendants, the sub-runs that it and they started.

The id of a sub-run starts with the id of its parent, but a user may give such an id to any run; `parent` decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reyn.journal import Journal, RunRow


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
