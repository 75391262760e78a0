"""The database file of the SQLite journal: connections, access rights, format, transactions, errors.

A transaction and the translation of errors are objects that serve every call: a generator would cost more.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from reyn.errors import StateFolderUnsafe, StoreDamaged, StoreUnavailable
from reyn.folders import OpenFolder, replace_in
from reyn.journal import log_files
from reyn.journal.claims import open_lock
from reyn.journal.documents import SQLITE_DOCUMENTS
from reyn.journal.log_files import JournalFiles
from reyn.journal.port import DATABASE
from reyn.journal.rows import RowDamaged
from reyn.journal.state_folder import file_status, open_state, private_file
from reyn.journal.tables import SCHEMA, WORDS

if TYPE_CHECKING:
    from pathlib import Path

DATABASE_FORMAT = 1
"""The current format of the tables, stored as `user_version`."""
MIGRATIONS: dict[int, str] = {}
"""The statements that convert a database of an earlier format to the next one, by the earlier format."""
_ADDED = {"run_words": WORDS, "documents": SQLITE_DOCUMENTS}
"""The tables that a database has when they were first needed."""
_BUSY_SECONDS = 30
_CACHE_KIB = 1_000
"""The page cache of a connection. A commit writes the last pages of each table, so that more is not faster."""
_FREE_SHARE = 10
"""A file is compacted when at least one page in so many is free."""
DATABASE_FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm")
"""The files that SQLite opens by path."""
_ROLLBACK = f"{DATABASE}-journal"
_NEW = f".{DATABASE}.new"
_WAL_MODE = b"\x02\x02"
_LOCK = "checkpoint.lock"


class Owner(Protocol):
    """Makes and recognizes the marks of journals."""

    def new_mark(self) -> bytes | None:
        """Return the user's mark for this journal; `None` if the user's key cannot be stored."""

    def recognizes(self, marks: list[bytes]) -> bool:
        """Return whether a journal with these marks is the owner's."""


class Database:
    """The file `folder/journal.db`. One connection writes and one reads, each behind a lock.

    Args:
        folder: The folder, which is created if needed.
        is_read_only: Create and modify no file, not even the WAL.
        owner: The user who creates the file, if marks are used.
    """

    def __init__(self, folder: Path, *, is_read_only: bool, owner: Owner | None) -> None:
        self.path = folder / DATABASE
        self.errors = TranslatedErrors(self.path)
        self._read_lock = threading.Lock()
        self._is_open = True
        with self.errors, ExitStack() as on_failure:
            self.folder = _opened(folder, is_read_only=is_read_only)
            before = self._identity = _check_files(self.folder, is_read_only=is_read_only)
            if before is not None:
                log_files.enter(before, self.folder, DATABASE_FILES)
                on_failure.callback(log_files.leave, before)
            self.writer = on_failure.enter_context(closing(_connect(self.path, is_read_only=is_read_only)))
            self.transaction = Transaction(self.writer, self.errors)
            if not is_read_only:
                self._prepare(owner)
            if self._format() != DATABASE_FORMAT:
                raise StoreUnavailable(
                    f"`{self.path}` has format {self._format()}; this release reads formats up to {DATABASE_FORMAT}",
                    hint="Use the release of Reyn that wrote it, or a newer one.",
                )
            self._check_tables()
            self.reader = on_failure.enter_context(closing(_connect(self.path, is_read_only=is_read_only)))
            # SQLite opens files by path, so what the path leads to must be the same before and afterwards.
            if _check_files(self.folder, is_read_only=True) != before or not self.folder.is_at(self.folder.path):
                on_failure.pop_all()
                self._abandon()
                raise StateFolderUnsafe(f"`{self.path}` was replaced while it was opened", hint="Try again.")
            if not is_read_only:
                paths = [os.fspath(self.path.with_name(name)) for name in DATABASE_FILES]
                self.errors.files = JournalFiles((paths[0], paths[1], paths[2]), self._copy_log)
            on_failure.pop_all()

    def _prepare(self, owner: Owner | None) -> None:
        """Create the tables, or convert those of an earlier format."""
        while (version := self._format()) == 0 or version in MIGRATIONS:
            with self.transaction:
                if self._format() != version:  # another process prepared it meanwhile
                    continue
                is_new = not self.writer.execute("SELECT 1 FROM sqlite_master").fetchone()
                if not (is_new or version):
                    self._check_tables()
                for statement in MIGRATIONS.get(version, SCHEMA).split(";")[:-1]:
                    self.writer.execute(statement)
                if is_new:  # an existing database may contain planted approvals
                    self.mark(owner)
                self.writer.execute(f"PRAGMA user_version = {version + 1 if version else DATABASE_FORMAT}")

    def _format(self) -> int:
        (version,) = self.writer.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _check_tables(self) -> None:
        """Refuse a database whose definitions are not exactly those of this format.

        One written by a version between releases lacks columns. A planted trigger, view or index would execute inside
        the statements of this program.
        """
        found = _definitions(self.writer)
        names = {name for _, name, *_ in found}
        schema = SCHEMA + "".join(added for name, added in _ADDED.items() if name in names)
        if differing := found ^ _expected_definitions(schema):
            kind, name, *_ = min(
                differing, key=lambda one: (one[3] is None, one[0] != "table", one not in found, repr(one))
            )
            raise StoreUnavailable(
                f"`{self.path}` is not a journal of format {DATABASE_FORMAT}: "
                f"its {kind} `{name}` is missing or not Reyn's",
                hint=f"Reyn cannot convert it. Move `{self.path}` elsewhere; the next run creates a new journal.",
            )

    def check_pages(self) -> None:
        """Check every page, and every index against its table.

        Raises:
            StoreDamaged: Something is not consistent.
        """
        # `quick_check` would not compare indexes: rows that only an index has, or lacks, depend on the query.
        (found,) = self.writer.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise StoreDamaged(f"the journal `{self.path}` is damaged: {found}")

    def mark(self, owner: Owner | None) -> None:
        """Store the mark of a user who vouches for the journal."""
        mark = owner.new_mark() if owner else None
        if mark is not None:
            self.writer.execute("INSERT INTO owners VALUES (?)", (mark,))

    def rows(self, query: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> list[Any]:
        """Return the rows of a query, in a short read transaction."""
        with self._read_lock, self.errors:
            try:
                return self.reader.execute(query, values).fetchall()
            except UnicodeEncodeError:  # nothing that is stored has a lone surrogate
                return []

    def own_rows(self, query: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> list[Any]:
        """Return the rows of a query as the writing connection sees them inside its transaction."""
        return self.writer.execute(query, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Execute several queries of a block on one state of the database."""
        with self._read_lock, self.errors:
            self.reader.execute("BEGIN")
            try:
                yield self.reader
            finally:
                if self.reader.in_transaction:  # an error may have ended it
                    self.reader.execute("COMMIT")

    def _copy_log(self) -> bool:
        """Copy the whole WAL into the database, in place of a transaction; return whether that was possible."""
        if self.writer.in_transaction:  # an error may have ended it
            self.writer.execute("ROLLBACK")
        try:
            is_busy, frames, copied = self.writer.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        except sqlite3.Error:
            return False
        return not is_busy and frames == copied

    def checkpoint(self) -> None:
        """Checkpoint the WAL."""
        with self.transaction.lock:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Checkpoint the WAL. Errors are ignored: another process may be faster."""
        with suppress(OSError, sqlite3.Error):
            try:
                handle = open_lock(_LOCK, self.folder.handle)
            except OSError:  # planted: without a lock there would be no checkpoint
                os.unlink(_LOCK, dir_fd=self.folder.handle)
                handle = open_lock(_LOCK, self.folder.handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                os.close(handle)

    def compact(self) -> None:
        """Return free pages to the file system if there are many. If that fails, later runs use them."""
        with self.transaction.lock, self.errors:
            (free,) = self.writer.execute("PRAGMA freelist_count").fetchone()
            (pages,) = self.writer.execute("PRAGMA page_count").fetchone()
            if free * _FREE_SHARE >= pages:
                with suppress(sqlite3.Error):
                    self.writer.execute("VACUUM")
            self._checkpoint()

    def close(self, *, is_changed: bool) -> None:
        """Wait for a commit in progress, then close. Checkpoint first, or short-lived processes would grow the WAL."""
        with self.transaction.lock, self._read_lock:
            files = self.errors.files
            is_current = self.folder.is_at(self.folder.path) and (files is None or files.are_current())
            if self._is_open and not is_current:
                self._abandon()
            if not self._is_open:
                return
            if is_changed:
                self._checkpoint()
            self._is_open = False
            self.reader.close()
            self.writer.close()
            self.folder.close()
            if self._identity is not None:
                log_files.leave(self._identity)

    def _abandon(self) -> None:
        """Leave the connections open, because a file was replaced: SQLite would remove a WAL by its path."""
        import ctypes

        self._is_open = False
        for connection in (self.writer, self.reader):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _definitions(connection: sqlite3.Connection) -> set[tuple[str, str, str, str | None]]:
    """Return the tables, indexes, triggers and views of a database, each as SQLite stores it."""
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@cache
def _expected_definitions(schema: str) -> set[tuple[str, str, str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema)
        return _definitions(connection)


def _connect(path: Path, *, is_read_only: bool) -> sqlite3.Connection:
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
    try:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(folder: Path, *, is_read_only: bool) -> OpenFolder:
    """Open the state folder; if it may be modified, create it and the database if needed, for this user alone."""
    opened = open_state(folder, create=not is_read_only)
    if opened is None:
        raise FileNotFoundError(f"there is no folder `{folder}`")
    if not is_read_only and file_status(opened.handle, DATABASE, opened.path) is None:
        with suppress(OSError):  # some network file systems do not lock folders
            fcntl.flock(opened.handle, fcntl.LOCK_EX)
        try:
            if file_status(opened.handle, DATABASE, opened.path) is None:
                _create(opened.handle)
        finally:
            with suppress(OSError):
                fcntl.flock(opened.handle, fcntl.LOCK_UN)
    return opened


def _create(folder: int) -> None:
    """Create an empty database that is in WAL mode from the beginning, so that it never has a rollback journal.

    A rollback journal that is found is planted: it can name a file that SQLite deletes. The caller holds the lock on
    the folder, so a temporary file that is found is one of a process that was killed.
    """
    with suppress(FileNotFoundError):
        os.unlink(_NEW, dir_fd=folder)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("VACUUM")
        content = connection.serialize()
    # Bytes 18 and 19 of a database are the versions of its format for writing and reading: 2 is a WAL.
    replace_in(folder, DATABASE, [content[:18], _WAL_MODE, content[20:]], mode=0o600, temporary=_NEW)


def _check_files(folder: OpenFolder, *, is_read_only: bool) -> tuple[int, int] | None:
    """Check the files that SQLite opens by path; return the identity of the database.

    Raises:
        StateFolderUnsafe: One of them is a link, not a regular file, or belongs to another user.
    """
    for name in DATABASE_FILES:
        (file_status if is_read_only else private_file)(folder.handle, name, folder.path)
    if file_status(folder.handle, _ROLLBACK, folder.path) is not None:
        message = f"`{folder.path}/{_ROLLBACK}` was not made by Reyn"
        raise StateFolderUnsafe(message, hint="Move it away; it may have been planted.")
    status = file_status(folder.handle, DATABASE, folder.path)
    return None if status is None else (status.st_dev, status.st_ino)


class TranslatedErrors:
    """Translates errors of SQLite and the file system into `JournalError`s. One object serves every call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files: JournalFiles | None = None
        """The files that were opened, when they are."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.translate(error)

    def translate(self, error: BaseException) -> None:
        """Raise the `JournalError` of an error, if there is one."""
        self.translate_cause(error, may_copy=False)
        if isinstance(error, sqlite3.OperationalError | OSError):
            raise StoreUnavailable(f"the journal `{self._path}` cannot be used: {error}") from error
        if isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError | RowDamaged):
            raise StoreDamaged(f"the journal `{self._path}` is damaged: {error}") from error

    def translate_cause(self, error: BaseException, *, may_copy: bool) -> None:
        """Raise a `JournalError` if files that were replaced or truncated may be the cause of an error."""
        if self.files is not None and (cause := self.files.cause_of(error, may_copy=may_copy)) is not error:
            raise cause from error


class Transaction:
    """The transactions of a connection, one at a time: committed at the end, rolled back after an error.

    After a failure, `on_failure` is called before another transaction can begin. Nothing is committed to a file that
    is no longer at the path, where no reader would find it.
    """

    def __init__(self, connection: sqlite3.Connection, errors: TranslatedErrors) -> None:
        self.lock = threading.Lock()
        self.on_failure: Callable[[], None] = lambda: None
        self._connection = connection
        self._errors = errors

    def __enter__(self) -> None:
        self.lock.acquire()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._fail(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._fail(error)
            return
        try:
            if (files := self._errors.files) is not None:  # without a call: every commit comes here
                try:
                    file, log, index = map(os.stat, files.paths)
                except FileNotFoundError:
                    raise files.error() from None
                found = (file.st_dev, file.st_ino, log.st_dev, log.st_ino, index.st_dev, index.st_ino)
                if found != files.identities or log.st_size < files.log_size:
                    raise files.error()
                files.log_size = log.st_size
            self._connection.execute("COMMIT")
        except BaseException as failure:
            self._fail(failure)
            raise
        self.lock.release()

    def _fail(self, error: BaseException) -> None:
        """End a transaction that failed, and raise the `JournalError` of the error, if there is one."""
        try:
            self._errors.translate_cause(error, may_copy=True)
        finally:
            self._end()
        self._errors.translate(error)

    def _end(self) -> None:
        """End a transaction that failed."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        finally:
            self.on_failure()
            self.lock.release()
