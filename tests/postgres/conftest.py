"""The server that the tests of this folder share, and a database for each test."""

import os
from collections.abc import Iterator

import pytest

from reyn.journal.postgres.address import JournalAddress
from tests.postgres.server import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    started = Server(os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid())))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def address(server: Server) -> Iterator[JournalAddress]:
    with server.database() as address:
        yield address
