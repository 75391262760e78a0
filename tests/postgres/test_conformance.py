from collections.abc import Iterator
from pathlib import Path

import pytest

from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.testing import JournalConformance
from tests.postgres.server import Server

pytestmark = pytest.mark.sockets


class TestPostgresJournal(JournalConformance):
    @pytest.fixture(autouse=True)
    def _addresses(self, server: Server) -> Iterator[None]:
        self._server = server
        self._known: dict[Path, tuple[str, JournalAddress]] = {}
        yield
        for name, _ in self._known.values():
            server.drop(name)

    def make_journal(self, folder: Path) -> PostgresJournal:
        if folder not in self._known:
            name = self._server.create()
            self._known[folder] = name, self._server._address(name)
        return PostgresJournal(self._known[folder][1])
