"""Kills a run with SIGKILL at every port call and at every step of a file's change, and proves, from outside, that
nothing was lost or done twice.

    points       where a process can die: before and after every call of what is wrapped
    ledger       what happened in the world: a file that outlives the kill, written by the world and not by the run
    violations   what a ledger holds against a run

`Failpoints` numbers the points as they are passed, so one undisturbed drive enumerates them. After a kill and a resume,
`violations` reads the ledger, and nothing of the run's own record but what the run claims at its end.
"""

from reyn.testing.crash.ledger import (
    Entry,
    Ledger,
    LedgerJournal,
    LedgerModel,
    LedgerPeople,
    LedgerSystem,
    file_changes_through,
)
from reyn.testing.crash.points import FILE_CALLS, KILLED, Failpoints, in_child
from reyn.testing.crash.violations import Claims, changes_in, file_violations, violations

__all__ = [
    "FILE_CALLS",
    "KILLED",
    "Claims",
    "Entry",
    "Failpoints",
    "Ledger",
    "LedgerJournal",
    "LedgerModel",
    "LedgerPeople",
    "LedgerSystem",
    "changes_in",
    "file_changes_through",
    "file_violations",
    "in_child",
    "violations",
]
