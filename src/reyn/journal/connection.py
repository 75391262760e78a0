"""Connections to the database of the SQLite journal: opening, access rights, transactions, errors.

A transaction and the translation of errors are objects that serve every call: a generator would cost more.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from reyn.errors import StoreDamaged, StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path

_BUSY_SECONDS = 30
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def connect(path: Path, *, is_read_only: bool) -> sqlite3.Connection:
    """Open the database, in WAL mode with `synchronous=FULL`. Checkpoints are left to the caller."""
    if is_read_only:
        # SQLite cannot read a WAL without writing. A journal that was closed properly has none.
        wal = path.with_name("journal.db-wal")
        if wal.exists() and wal.stat().st_size:
            raise StoreUnavailable(
                f"`{path}` has an unmerged WAL, which cannot be read in read-only mode",
                hint="Copy the folder to a writable place and open it there.",
            )
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def restrict(folder: Path, database: Path) -> None:
    """Create the folder and the database if needed, and keep other users out of both.

    SQLite creates its other files with the mode of the database. Files of another user are left as they are.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for path in (folder, *(database.with_name(f"{database.name}{suffix}") for suffix in ("", "-wal", "-shm"))):
        with suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_IMODE(status.st_mode) & _OTHERS and status.st_uid == os.geteuid():
                path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


class TranslatedErrors:
    """Translates errors of SQLite and the file system into `JournalError`s. One object serves every call."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.OperationalError | OSError):
            raise StoreUnavailable(f"the journal `{self._path}` cannot be used: {error}") from error
        if isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError):
            raise StoreDamaged(f"the journal `{self._path}` is damaged: {error}") from error


class Transaction:
    """A transaction of a connection: committed at the end, rolled back after an error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
