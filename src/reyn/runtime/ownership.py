"""The owner of a project's journal: whether the user created it or vouched for it, and how to vouch for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from reyn.config import journal_key
from reyn.journal.sqlite import SqliteJournal
from reyn.runtime.services import DATABASE, STATE

if TYPE_CHECKING:
    from pathlib import Path


class JournalReport(msgspec.Struct, frozen=True):
    """The contents of a journal. `is_own` is true if there is no journal."""

    is_own: bool = True
    runs: int = 0
    approvals: int = 0

    @property
    def text(self) -> str:
        """Describes the effect of trusting the journal."""
        return f"{STATE}/{DATABASE}: continue {_count(self.runs, 'run')}, honour {_count(self.approvals, 'approval')}"


def inspect_journal(root: Path, *, adopt: bool = False) -> JournalReport:
    """Report on the journal of a project.

    Args:
        root: The project's folder.
        adopt: Whether to mark a journal that is not the user's own as such, with everything that it holds.
    """
    path = root / STATE / DATABASE
    if not path.is_file() or not path.stat().st_size or not os.access(path.parent, os.W_OK):
        return JournalReport()
    journal = SqliteJournal(path.parent, owner=journal_key())
    try:
        if adopt:
            journal.adopt()
        return JournalReport(journal.is_own(), len(journal.runs()), len(journal.approvals()))
    finally:
        journal.close()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
