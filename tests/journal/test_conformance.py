from pathlib import Path

from reyn.journal.sqlite import SqliteJournal
from reyn.testing import JournalConformance, MemoryJournal


class TestMemoryJournal(JournalConformance):
    is_durable = False

    def make_journal(self, folder: Path) -> MemoryJournal:
        return MemoryJournal()


class TestSqliteJournal(JournalConformance):
    def make_journal(self, folder: Path) -> SqliteJournal:
        return SqliteJournal(folder)
