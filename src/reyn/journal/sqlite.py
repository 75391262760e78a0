"""The journal in one SQLite file.

WAL with `synchronous=FULL`: a commit is durable when it returns and costs one fsync. One connection writes, one reads;
both may be used from any thread, one at a time. Settled by measuring: 8 KB pages; blobs by rowid with a unique index on
the hash (a table clustered by hash scatters large rows); events clustered by run and number; hashes remembered only
after commit; large blobs committed alone first, so that they hold no other run up. Checkpoints are ours, one process at
a time: SQLite before 3.51.3 can damage a WAL that two connections reset at once.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.errors import (
    AppendConflict,
    BlobMissing,
    EventInvalid,
    JournalError,
    StoreDamaged,
    StoreUnavailable,
)
from reyn.journal.canonical import Blob, canonical, digest
from reyn.journal.claims import FileClaims
from reyn.journal.event import GENESIS, Event
from reyn.journal.port import Approval, Batch, Message, Said, check_batch, fork_point, read_message, write_message
from reyn.journal.projections import RunRow, project, rebuild

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from reyn.journal.registry import Body

FORMAT = 3
"""Format 1 had no sub-runs, forks and questions in `runs`, format 2 only the ids of questions. Both are upgraded when
they are opened for writing, and read as they are otherwise."""
_BUSY_SECONDS = 30
_LARGE_BLOB = 256_000
_REMEMBERED = 8_192
_COMMITS_PER_CHECKPOINT = 200
_PAGE_OF_EVENTS = 2_000

_SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, hash BLOB NOT NULL, skill TEXT NOT NULL,
    rules INTEGER NOT NULL,
    status TEXT NOT NULL, phase TEXT NOT NULL, reason TEXT NOT NULL,
    started INTEGER NOT NULL, updated INTEGER NOT NULL, parent TEXT NOT NULL DEFAULT '',
    fork_of TEXT NOT NULL DEFAULT '', fork_seq INTEGER NOT NULL DEFAULT 0,
    wait TEXT NOT NULL DEFAULT '', messages_taken INTEGER NOT NULL DEFAULT 0);
CREATE TABLE events (
    run INTEGER NOT NULL, seq INTEGER NOT NULL, ts INTEGER NOT NULL, kind TEXT NOT NULL, v INTEGER NOT NULL,
    data BLOB NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (run, seq)) WITHOUT ROWID;
CREATE TABLE blobs (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, content BLOB NOT NULL);
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, kind TEXT NOT NULL, payload BLOB NOT NULL);
CREATE INDEX inbox_by_run ON inbox (run_id, id);
"""
_APPROVALS = """
CREATE TABLE approvals (
    id INTEGER PRIMARY KEY AUTOINCREMENT, skill TEXT NOT NULL, skill_hash TEXT NOT NULL, op TEXT NOT NULL,
    rule TEXT NOT NULL, by TEXT NOT NULL, at INTEGER NOT NULL, run_id TEXT NOT NULL, UNIQUE (skill_hash, op, rule));
"""
_FIELDS = (
    "run_id", "seq", "hash", "skill", "rules", "status", "phase", "reason", "started", "updated",
    "parent", "fork_of", "fork_seq", "wait", "messages_taken",
)  # fmt: skip
_ROW = ", ".join(_FIELDS)
_LAST_WAIT = """CASE WHEN wait = '' THEN '' ELSE coalesce((
    SELECT json_extract(CAST(data AS TEXT), '$.wait') FROM events
    WHERE events.run = runs.id AND kind = 'wait_opened' ORDER BY seq DESC LIMIT 1), '') END"""
_CHANGING = ("seq", "hash", "status", "phase", "reason", "updated", "wait", "messages_taken")
_UPDATE = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _CHANGING)} WHERE id = ? AND seq = ?"  # noqa: S608 - constants
_COLUMNS = {
    1: f"{', '.join(_FIELDS[:10])}, '', '', 0, '', 0",
    2: f"{', '.join(_FIELDS[:13])}, {_LAST_WAIT}, heard",
    3: _ROW,
}
"""How a row is read, by the format of the database."""
_UPGRADES = {
    1: """
        ALTER TABLE runs ADD COLUMN parent TEXT NOT NULL DEFAULT '';
        ALTER TABLE runs ADD COLUMN fork_of TEXT NOT NULL DEFAULT '';
        ALTER TABLE runs ADD COLUMN fork_seq INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE runs ADD COLUMN wait TEXT NOT NULL DEFAULT '';
        ALTER TABLE runs ADD COLUMN messages_taken INTEGER NOT NULL DEFAULT 0;
    """,
    2: f"""
        UPDATE runs SET wait = {_LAST_WAIT};
        ALTER TABLE runs RENAME COLUMN heard TO messages_taken;
        ALTER TABLE runs DROP COLUMN rejoins;
    """,  # noqa: S608 - constants
}


class _Head(NamedTuple):
    """A run's own number in the database, and where it stands."""

    key: int
    row: RunRow


class SqliteJournal:
    """`SqliteJournal(folder)` opens or makes `folder/journal.db`; read-only, it changes nothing, not even a log."""

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        self._is_read_only = is_read_only
        self.path = folder / "journal.db"
        self._claims = FileClaims(folder / "locks")
        self._checkpoint_lock = folder / "checkpoint.lock"
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._heads: OrderedDict[str, _Head] = OrderedDict()
        self._commits = 0
        self._is_open = True
        with _translated(self.path):
            if not is_read_only:
                folder.mkdir(parents=True, exist_ok=True)
            self._writer = self._connect()
            self._prepare()
            self._reader = self._connect()

    # -- writing --------------------------------------------------------------------------------------

    def append(self, run_id: str, expected_seq: int, events: Sequence[Event], blobs: Sequence[Blob] = ()) -> int:
        [result] = self.append_many([Batch(run_id, expected_seq, events, blobs)])
        if isinstance(result, JournalError):
            raise result
        return result

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        with self._write_lock, _translated(self.path):
            for blob in self._new_blobs(batches):
                if len(blob.content) >= _LARGE_BLOB:
                    with self._transaction():
                        self._store_blobs([blob])
            heads: dict[str, _Head] = {}
            with self._transaction():
                results = [self._store(batch, heads) for batch in batches]
                kept = [batch for batch, result in zip(batches, results, strict=True) if isinstance(result, int)]
                blobs = self._new_blobs(kept)
                self._store_blobs(blobs)
            self._remember(blobs, heads)
            self._commits += 1
            if self._commits % _COMMITS_PER_CHECKPOINT == 0:
                self._checkpoint()
            return results

    def post(self, run_id: str, said: Said) -> int:
        kind, content = write_message(said)
        with self._write_lock, _translated(self.path), self._transaction():
            head = self._head(self._writer, run_id)
            last = self._writer.execute("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'").fetchone()
            number = max(last[0] if last else 0, head.row.messages_taken if head else 0) + 1
            self._writer.execute(
                "INSERT INTO inbox (id, run_id, kind, payload) VALUES (?, ?, ?, ?)", (number, run_id, kind, content)
            )
            return int(number)

    def _store(self, batch: Batch, heads: dict[str, _Head]) -> int | JournalError:
        """Store one batch inside the transaction; the run's new head goes into `heads`."""
        head = heads.get(batch.run_id) or self._heads.get(batch.run_id)
        if head is None or head.row.seq != batch.expected_seq:
            head = self._head(self._writer, batch.run_id)
        try:
            point = fork_point(batch) if head is None else None
            if point is not None:
                hashed = self._hash_at(self._writer, point.run, point.seq)
                bodies = check_batch(batch, point.seq, hashed, opens_fork=True)
                origin = rebuild(islice(self.read(point.run), point.seq))
            else:
                bodies, origin = _check(batch, head), None
            if not batch.events:
                return batch.expected_seq
            after = project(head.row if head else None, batch.events, bodies, origin)
            if head is None:
                key = self._insert_row(after)
            elif self._update_row(head, after):
                key = head.key
            else:  # the remembered head is out of date: another process appended
                _check(batch, self._head(self._writer, batch.run_id))
                raise AppendConflict(f"run `{batch.run_id}` was changed by another process")
        except JournalError as error:
            return error
        self._writer.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(key, e.seq, e.ts, e.kind, e.v, e.raw, bytes.fromhex(e.hash)) for e in batch.events],
        )
        heads[batch.run_id] = _Head(key, after)
        return after.seq

    def _insert_row(self, row: RunRow) -> int:
        cursor = self._writer.execute(
            f"INSERT INTO runs ({_ROW}) VALUES (?{', ?' * (len(_FIELDS) - 1)})",  # noqa: S608 - a constant
            [_stored(row, name) for name in _FIELDS],
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _update_row(self, head: _Head, row: RunRow) -> bool:
        """Move a run's head on, if it is where it is believed to be."""
        wait, hashed = _stored(row, "wait"), bytes.fromhex(row.hash)
        changing = (row.seq, hashed, row.status, row.phase, row.reason, row.updated, wait, row.messages_taken)
        cursor = self._writer.execute(_UPDATE, (*changing, head.key, head.row.seq))
        return cursor.rowcount == 1

    def _new_blobs(self, batches: Sequence[Batch]) -> list[Blob]:
        unique = {blob.hash: blob for batch in batches for blob in batch.blobs if blob.hash not in self._known}
        return list(unique.values())

    def _store_blobs(self, blobs: Sequence[Blob]) -> None:
        if blobs:
            self._writer.executemany(
                "INSERT OR IGNORE INTO blobs (hash, content) VALUES (?, ?)",
                [(bytes.fromhex(blob.hash), blob.content) for blob in blobs],
            )

    def _remember(self, blobs: Sequence[Blob], heads: dict[str, _Head]) -> None:
        """Only after the commit: a hash remembered earlier would be skipped by the retry of a failed one."""
        self._known.update(dict.fromkeys(blob.hash for blob in blobs))
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        self._heads.update(heads)
        while len(self._heads) > _REMEMBERED:
            self._heads.popitem(last=False)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    # -- reading --------------------------------------------------------------------------------------

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """In pages, each its own short read, so that a slow reader never holds a checkpoint up."""
        with self._read_lock, _translated(self.path):
            head = self._head(self._reader, run_id)
        if head is None:
            return
        if after < head.row.fork_seq:
            yield from islice(self.read(head.row.fork_of, after), head.row.fork_seq - after)
            after = head.row.fork_seq
        with self._read_lock, _translated(self.path):
            prev = self._hash_at(self._reader, run_id, after)
        key = head.key
        while page := self._page(key, after):
            is_sound = _is_sound(page)
            for seq, ts, kind, v, raw, hashed in page:
                if not is_sound and not _is_sound([(seq, ts, kind, v, raw, hashed)]):
                    raise StoreDamaged(f"the journal `{self.path}` is damaged at event {seq} of run `{run_id}`")
                if seq <= after:
                    raise StoreDamaged(f"the journal `{self.path}` is damaged at event {seq} of run `{run_id}`")
                name = hashed.hex()
                yield Event(seq, run_id, ts, kind, v, raw, prev, name)
                prev, after = name, seq

    def _page(self, key: int, after: int) -> list[Any]:
        with self._read_lock, _translated(self.path):
            return self._reader.execute(
                "SELECT seq, ts, CAST(kind AS TEXT), v, CAST(data AS BLOB), CAST(hash AS BLOB) FROM events "
                "WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                (key, after, _PAGE_OF_EVENTS),
            ).fetchall()

    def _hash_at(self, connection: sqlite3.Connection, run_id: str, seq: int) -> str:
        """The hash of an event of a run, or of the run that it goes on from."""
        head = self._head(connection, run_id)
        while head is not None and seq <= head.row.fork_seq:
            head = self._head(connection, head.row.fork_of)
        key = head.key if head else 0
        found = connection.execute("SELECT hash FROM events WHERE run = ? AND seq = ?", (key, seq)).fetchone()
        return bytes(found[0]).hex() if found else GENESIS

    def blob(self, hash: str) -> bytes:
        try:
            name = bytes.fromhex(hash)
        except ValueError:
            raise BlobMissing(f"`{hash}` is no name of content") from None
        with self._read_lock, _translated(self.path):
            found = self._reader.execute("SELECT content FROM blobs WHERE hash = ?", (name,)).fetchone()
        if found is None:
            raise BlobMissing(f"blob `{hash}` is absent")
        content: Any = found[0]
        if not isinstance(content, bytes) or digest(content) != hash:
            raise BlobMissing(f"blob `{hash}` is damaged: its bytes do not give its name")
        return content

    def drain(self, run_id: str, after: int = 0) -> list[Message]:
        with self._read_lock, _translated(self.path):
            rows = self._reader.execute(
                "SELECT id, kind, payload FROM inbox WHERE run_id = ? AND id > ? ORDER BY id", (run_id, after)
            ).fetchall()
        return [Message(number, read_message(kind, content)) for number, kind, content in rows]

    def approvals(self) -> list[Approval]:
        if self._columns != _ROW:  # an earlier format that is open for reading has none
            return []
        with self._read_lock, _translated(self.path):
            found = self._reader.execute(
                "SELECT skill, skill_hash, op, rule, by, at, run_id, id FROM approvals ORDER BY id"
            ).fetchall()
        return [Approval(*columns) for columns in found]

    def approve(self, approval: Approval) -> int:
        values = msgspec.structs.astuple(approval)[:7]
        with self._write_lock, _translated(self.path), self._transaction():
            self._writer.execute(
                "INSERT OR IGNORE INTO approvals (skill, skill_hash, op, rule, by, at, run_id) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            found = self._writer.execute(
                "SELECT id FROM approvals WHERE skill_hash = ? AND op = ? AND rule = ?", values[1:4]
            ).fetchone()
        return int(found[0])

    def revoke(self, approval_id: int) -> bool:
        with self._write_lock, _translated(self.path), self._transaction():
            return self._writer.execute("DELETE FROM approvals WHERE id = ?", (approval_id,)).rowcount == 1

    def find(self, run_id: str) -> RunRow | None:
        with self._read_lock, _translated(self.path):
            head = self._head(self._reader, run_id)
        return self._current(head.row) if head else None

    def runs(self, prefix: str = "") -> list[RunRow]:
        with self._read_lock, _translated(self.path):
            found = self._reader.execute(
                f"SELECT {self._columns} FROM runs WHERE substr(run_id, 1, ?) = ? ORDER BY started DESC, run_id DESC",  # noqa: S608 - our own words
                (len(prefix), prefix),
            ).fetchall()
            rows = [_to_row(columns) for columns in found]
        return [self._current(row) for row in rows]

    def _current(self, row: RunRow) -> RunRow:
        """The row as today's fold derives it; a database of an earlier format that is only read holds another."""
        if self._columns == _ROW:
            return row
        return rebuild(self.read(row.run_id)) or row

    def _head(self, connection: sqlite3.Connection, run_id: str) -> _Head | None:
        query = f"SELECT id, {self._columns} FROM runs WHERE run_id = ?"  # noqa: S608 - a constant
        found = connection.execute(query, (run_id,)).fetchone()
        return _Head(found[0], _to_row(found[1:])) if found else None

    # -- claims, opening, closing ---------------------------------------------------------------------

    def claim(self, run_id: str) -> AbstractContextManager[None]:
        return self._claims.hold(run_id)

    def is_claimed(self, run_id: str) -> bool:
        return self._claims.is_held(run_id)

    def close(self) -> None:
        """Waits for a commit under way. Short-lived processes checkpoint here, or the log would only ever grow."""
        with self._write_lock, self._read_lock:
            if self._is_open and self._commits:
                self._checkpoint()
            self._is_open = False
            self._reader.close()
            self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        if self._is_read_only:
            # A log that another process left behind cannot be read without writing; a closed journal has none.
            log = self.path.with_name("journal.db-wal")
            if log.exists() and log.stat().st_size:
                raise StoreUnavailable(
                    f"`{self.path}` has a log that was not merged, and cannot be merged here: the folder is read-only",
                    hint="Copy the folder to where it can be written, and look there.",
                )
            uri = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
            return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        connection = sqlite3.connect(
            self.path,
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

    def _prepare(self) -> None:
        if self._format() == 0 and not self._is_read_only:
            with self._transaction():
                if self._format() == 0:  # nobody else made the tables meanwhile
                    for statement in (_SCHEMA + _APPROVALS).split(";")[:-1]:
                        self._writer.execute(statement)
                    self._writer.execute(f"PRAGMA user_version = {FORMAT}")
        while not self._is_read_only and (found := self._format()) in _UPGRADES:
            with self._transaction():
                if self._format() == found:  # no other process upgraded it meanwhile
                    for statement in (_UPGRADES[found] + _APPROVALS).split(";")[:-1]:
                        self._writer.execute(statement)
                    self._rebuild_rows()
                    self._writer.execute(f"PRAGMA user_version = {FORMAT}")
        if self._format() not in _COLUMNS:
            raise StoreUnavailable(
                f"`{self.path}` has format {self._format()}; this version reads format {FORMAT}",
                hint="Use the version of Reyn that wrote it.",
            )
        self._columns = _COLUMNS[self._format()]

    def _rebuild_rows(self) -> None:
        """Derive the list of runs again: an earlier release folded some events differently."""
        self._columns = _ROW
        for (run_id,) in self._writer.execute("SELECT run_id FROM runs ORDER BY id").fetchall():
            head = self._head(self._writer, run_id)
            assert head is not None
            with suppress(EventInvalid):  # `verify` reports a damaged run
                row = rebuild(self._all_events(run_id))
                if row is not None:
                    self._update_row(head, row)

    def _all_events(self, run_id: str) -> Iterator[Event]:
        """The events of a run and its origins, inside the transaction of an upgrade."""
        head = self._head(self._writer, run_id)
        assert head is not None
        if head.row.fork_of:
            yield from islice(self._all_events(head.row.fork_of), head.row.fork_seq)
        found = self._writer.execute(
            "SELECT seq, ts, kind, v, CAST(data AS BLOB), hash FROM events WHERE run = ? ORDER BY seq", (head.key,)
        )
        for seq, ts, kind, v, raw, hashed in found.fetchall():
            yield Event(seq, run_id, ts, kind, v, raw, "", hashed.hex())

    def _format(self) -> int:
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _checkpoint(self) -> None:
        """Housekeeping: if it cannot be done now, or another process is at it, it is done another time."""
        with suppress(OSError, sqlite3.Error):
            handle = os.open(self._checkpoint_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                os.close(handle)


def _is_sound(page: list[Any]) -> bool:
    """Whether rows hold what their columns say; a damaged page may hold anything, and even lead around in circles."""
    numbers, times, _, versions, raws, hashes = zip(*page, strict=True)
    are_integers = {*map(type, numbers), *map(type, times), *map(type, versions)} == {int}
    return are_integers and all(raws) and all(hashes)


def _check(batch: Batch, head: _Head | None) -> list[Body]:
    return check_batch(batch, head.row.seq if head else 0, head.row.hash if head else GENESIS)


def _stored(row: RunRow, name: str) -> Any:
    """The value of a field as its column holds it."""
    value = getattr(row, name)
    if name == "hash":
        return bytes.fromhex(value)
    if name == "wait":
        return "" if value is None else canonical(value).decode()
    return value


def _to_row(columns: tuple[Any, ...]) -> RunRow:
    fields = dict(zip(_FIELDS, columns, strict=True))
    if not isinstance(fields["hash"], bytes):
        raise sqlite3.DatabaseError(f"the row of run {fields['run_id']!r} has no hash")
    fields["hash"] = fields["hash"].hex()
    try:
        fields["wait"] = msgspec.json.decode(fields["wait"]) if fields["wait"] else None
        return msgspec.convert(fields, RunRow)
    except (msgspec.MsgspecError, TypeError) as error:
        raise sqlite3.DatabaseError(f"the row of run {fields['run_id']!r} is invalid: {error}") from error


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's and the file system's errors as ours."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise StoreUnavailable(f"the journal `{path}` cannot be used: {error}") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise StoreDamaged(f"the journal `{path}` is damaged: {error}") from error
