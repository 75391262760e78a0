"""Kill a run with SIGKILL at every port call and file system call, and check that nothing was lost or done twice.

`points` wraps ports with failpoints and numbers them; an undisturbed execution enumerates all. `ledger` durably records
every external effect, outside of the run. `violations` compares the ledger with the journal of the finished run.
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
