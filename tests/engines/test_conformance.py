from pathlib import Path

from reyn.engines import Dispatcher, Outbox
from reyn.journal import Journal
from reyn.journal.sqlite import SqliteJournal
from reyn.testing import DispatcherConformance, MemoryJournal


class TestOutboxInMemory(DispatcherConformance):
    def make_journal(self, folder: Path) -> Journal:
        return MemoryJournal()

    def make_dispatcher(self, journal: Journal) -> Dispatcher:
        return Outbox(journal, lease=0.5)


class TestOutboxOfSqlite(TestOutboxInMemory):
    def make_journal(self, folder: Path) -> Journal:
        return SqliteJournal(folder)
