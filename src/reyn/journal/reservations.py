"""Open reservations of model calls: those of calls in progress, and those that a process left when it died.

The provider may have billed a call whose process died, so its reservation counts until the run is resumed, cancelled
or deleted, and is then charged in full. A run that no process executes will not release anything by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal.kinds import BudgetReserved

if TYPE_CHECKING:
    from reyn.journal.port import Journal


class OpenReservation(msgspec.Struct, frozen=True):
    """What a run has reserved for a model call. `is_executing` is false if its process died during the call."""

    run_id: str
    skill: str
    reserved: BudgetReserved
    is_executing: bool


def open_reservations(journal: Journal) -> list[OpenReservation]:
    """Return the open reservations of a journal, the largest first."""
    found = []
    for row in journal.reserving():
        is_executing = journal.is_claimed(row.run_id)
        if not is_executing:
            # It may have settled the call and released its claim since the row was read.
            current = journal.find(row.run_id)
            if current is None or current.reserved != row.reserved:
                continue
        assert row.reserved is not None
        found.append(OpenReservation(row.run_id, row.skill, row.reserved, is_executing))
    return sorted(found, key=lambda one: (-one.reserved.tokens, one.run_id))
