"""Which runs belong together: the run that nobody asked for, and those that it and its sub-runs asked for.

The id of a sub-run begins with that of the run above, but a user may give such an id to any run: only `parent` tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reyn.journal import Journal, RunRow


def topmost(journal: Journal, row: RunRow) -> RunRow:
    """The run that has to be driven for this one to go on."""
    passed = {row.run_id}
    while row.parent and row.parent not in passed and (above := journal.find(row.parent)) is not None:
        row = above
        passed.add(row.run_id)
    return row


def below(journal: Journal, run_id: str) -> list[RunRow]:
    """The sub-runs of a run and theirs, each after the one that asked for it."""
    found: dict[str, RunRow] = {}
    for row in sorted(journal.runs(f"{run_id}."), key=lambda row: (len(row.run_id), row.started)):
        if row.parent == run_id or row.parent in found:
            found[row.run_id] = row
    return list(found.values())
