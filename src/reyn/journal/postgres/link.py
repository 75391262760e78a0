"""A connection to PostgreSQL that outlives restarts of the server: it connects again, and repeats what it was doing.

Everything it repeats is safe to repeat: an append finds its own events, a message has a token. Errors become
`JournalError`s that name what to do, and never contain the address.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors

from reyn.errors import StoreDamaged, StoreUnavailable

if TYPE_CHECKING:
    from reyn.journal.postgres.address import JournalAddress

    Row = tuple[Any, ...]
    PgConnection = psycopg.Connection[Row]

T = TypeVar("T")

RETRY_SECONDS = 30.0
"""For how long a lost server is tried again before the caller gets an error."""
_PAUSES = (0.02, 0.1, 0.3, 1.0)
_MAX_CONFLICTS = 10
"""How often a transaction is repeated that the server chose to end in favour of another."""
_DEFAULTS = {
    "application_name": "reyn",
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "client_encoding": "UTF8",
}
_SETTINGS = """
SELECT set_config('search_path', %s, false), set_config('TimeZone', 'UTC', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false), set_config('jit', 'off', false)
"""

_ADVICE = ("\t", " ", "DETAIL:", "HINT:")
_USER = re.compile(r' for user "[^"]*"')
_LOST = ("08", "57P")
_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)
_BUSY = (errors.TooManyConnections, errors.ReadOnlySqlTransaction)


class Link:
    """One connection, one caller at a time."""

    def __init__(self, address: JournalAddress) -> None:
        self.address = address
        self.on_loss: Callable[[], None] = lambda: None
        """Called after the connection was replaced, or a transaction failed."""
        self.lock = threading.RLock()
        self._connection: PgConnection | None = None
        self._is_closed = False

    def open(self) -> None:
        """Connect. Raises `StoreUnavailable` at once if that fails."""
        with self.lock:
            try:
                self._connect()
            except psycopg.Error as error:
                raise unavailable(self.address, error) from None

    def run(self, work: Callable[[PgConnection], T], retry_seconds: float = RETRY_SECONDS) -> T:
        """Call a function with the connection; call it again if the connection was lost meanwhile.

        Raises:
            StoreUnavailable: The server could not be reached for `retry_seconds`, or refuses.
            StoreDamaged: The data is damaged.
        """
        with self.lock:
            deadline, attempt, conflicts = time.monotonic() + retry_seconds, 0, 0
            while True:
                try:
                    return work(self._connection or self._connect())
                except psycopg.Error as error:
                    self._reset(error)
                    conflicts += isinstance(error, _AGAIN)
                    is_late = time.monotonic() > deadline or conflicts > _MAX_CONFLICTS
                    if self._is_closed or is_late or not is_transient(error):
                        raise unavailable(self.address, error) from error
                except BaseException:
                    self._reset(None)
                    raise
                time.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1

    def rows(self, query: str, values: Any = ()) -> list[Row]:
        """Return the rows of a query."""
        return self.run(lambda connection: fetch(connection, query, values))

    def _connect(self) -> PgConnection:
        if self._is_closed:
            raise psycopg.OperationalError("the journal is closed")
        settings: dict[str, Any] = {**_DEFAULTS, **self.address.parameters}
        connection = psycopg.connect(autocommit=True, prepare_threshold=2, **settings)
        try:
            connection.execute(_SETTINGS, (f"pg_catalog, {self.address.schema}",))
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _reset(self, error: psycopg.Error | None) -> None:
        """Return to a connection without a transaction, or to none."""
        connection = self._connection
        if connection is None:
            return
        is_lost = connection.closed or connection.broken or isinstance(error, errors.ReadOnlySqlTransaction)
        if not is_lost and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            try:
                connection.rollback()
            except psycopg.Error:
                is_lost = True
        if is_lost:
            self._connection = None
            with suppress(psycopg.Error):
                connection.close()
        self.on_loss()

    def close(self) -> None:
        """Close the connection when its caller is done."""
        with self.lock:
            self._is_closed = True
            if self._connection is not None:
                with suppress(psycopg.Error):
                    self._connection.close()
                self._connection = None


def can_store(text: str) -> bool:
    """Return whether PostgreSQL can store a text, so that it can be searched for."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))


def fetch(connection: PgConnection, query: str, values: Any = ()) -> list[Row]:
    """Return the rows of a query that was asked for before; it is prepared."""
    return connection.execute(query, values, prepare=True, binary=True).fetchall()


def change(connection: PgConnection, query: str, values: Any = ()) -> int:
    """Execute a statement; return the number of rows that it changed."""
    return connection.execute(query, values, prepare=True).rowcount


def is_transient(error: psycopg.Error) -> bool:
    """Return whether the same may succeed later, maybe on another connection."""
    if isinstance(error, _AGAIN + _BUSY):
        return True
    state = error.sqlstate
    if state is None:  # of libpq: the server was not reached, or is gone
        return isinstance(error, psycopg.OperationalError) and not _is_refused(error)
    return state.startswith(_LOST) and not isinstance(error, errors.QueryCanceled)


def _is_refused(error: psycopg.Error) -> bool:
    """Return whether the server refused the connection for a reason that remains."""
    text = str(error)
    return any(word in text for word in ("authentication failed", "does not exist", "no pg_hba.conf entry"))


_READ_ONLY = (
    "The server is a read-only replica. Use the address of the primary, or name all servers with "
    "`target_session_attrs=read-write`."
)
_HINTS: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.DiskFull, "The disk of the server is full. Free space there; then resume. Recorded events are not lost."),
    (errors.ReadOnlySqlTransaction, _READ_ONLY),
    (errors.InsufficientPrivilege, "Grant the user of the address `CREATE` on the database, or let its owner open it."),
    (errors.TooManyConnections, "Raise `max_connections` of the server; a process of Reyn needs three connections."),
    (errors.UndefinedTable, "The tables were removed. Restore the database from a backup."),
)


def unavailable(address: JournalAddress, error: psycopg.Error) -> StoreUnavailable | StoreDamaged:
    """Return the error of a journal that cannot be used."""
    text = _text(address, error)
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
        return StoreDamaged(f"the journal `{address}` is damaged: {text}")
    hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), None)
    hint = hint or "Check that the server is up and that the address is right; then resume. Recorded events are safe."
    return StoreUnavailable(f"the journal `{address}` cannot be used: {text}", hint=hint)


def _text(address: JournalAddress, error: psycopg.Error) -> str:
    """Return the message of an error in one line, without what libpq and the server repeat of the address."""
    # libpq names the server and the user, then the reason; advice is indented.
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(_ADVICE)]
    message = error.diag.message_primary or (lines[-1].rpartition(" failed: ")[2] if lines else "")
    user = address.parameters.get("user")
    return _USER.sub("", message).replace(f'"{user}"', '"…"') or type(error).__name__
