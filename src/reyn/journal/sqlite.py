"""The journal in one SQLite database, in WAL mode with `synchronous=FULL`.

A commit is durable when it returns and costs one fsync. One connection writes and one reads, each behind a lock. The
layout was chosen by measurement: 8 KB pages, events clustered by run and sequence number, blobs by rowid with a unique
index on the hash, because clustering by hash scatters large rows.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections import OrderedDict
from contextlib import suppress
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from reyn.errors import (
    AppendConflict,
    BlobMissing,
    EventInvalid,
    HistoryInvalid,
    JournalError,
    RunBusy,
    StoreDamaged,
    StoreUnavailable,
)
from reyn.journal.approvals import add_approval, all_approvals, delete_approval
from reyn.journal.canonical import Blob, digest
from reyn.journal.claims import FileClaims, open_lock
from reyn.journal.connection import Transaction, TranslatedErrors, connect, restrict
from reyn.journal.deletion import compact, count, delete
from reyn.journal.event import GENESIS, Event
from reyn.journal.formats import (
    APPROVALS,
    COLUMNS,
    FORMAT,
    INSERT,
    OWNERS,
    ROW,
    SCHEMA,
    SPENDING,
    UPDATE,
    UPGRADES,
    column_value,
    to_columns,
    to_row,
)
from reyn.journal.port import (
    Approval,
    Batch,
    Deletion,
    InboxMessage,
    InboxPayload,
    check_batch,
    check_deletable,
    decode_payload,
    encode_payload,
    fork_point,
)
from reyn.journal.projections import RunRow, project, rebuild
from reyn.journal.spending import Balance, SpendRow, postings
from reyn.journal.spending_tables import (
    Accounts,
    add_charges,
    balance_of,
    charges_since,
    close_accounts,
    decode_spent,
    encode_spent,
    store_charges,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from reyn.journal.registry import Body

_LARGE_BLOB = 256_000
"""Blobs of this size are committed before their batch, so that they do not delay the batches of other runs."""
_CACHE_ENTRIES = 8_192
_COMMITS_PER_CHECKPOINT = 200
"""Automatic checkpoints are off: SQLite before 3.51.3 can corrupt a WAL that two connections reset at once."""
_EVENTS_PER_PAGE = 2_000
_IDS = "SELECT run_id FROM runs INDEXED BY sqlite_autoindex_runs_1 WHERE run_id >= ''"
"""The ids in the index of runs. A run is found by the index: a damaged name in the table would be another run."""
_MAX_MARKS = 100
"""Maximum number of marks to check, newest first. A journal has one for each user who trusted it."""


class _Head(NamedTuple):
    """A run's key in the database, its row, and the charges in it."""

    key: int
    row: RunRow
    spent: tuple[SpendRow, ...] = ()


class Owner(Protocol):
    """Makes and recognizes the marks of journals."""

    def new_mark(self) -> bytes | None:
        """Return the user's mark for this journal; `None` if the user's key cannot be stored."""
        ...

    def recognizes(self, marks: list[bytes]) -> bool:
        """Return whether a journal with these marks is the owner's."""
        ...


class SqliteJournal:
    """The journal in `folder/journal.db`, which is created if needed. `Journal` documents the methods.

    With `is_read_only`, no file is created or modified, not even the WAL. With an `owner`, nothing is appended to a
    journal that holds none of the owner's marks; a new one is marked.
    """

    def __init__(self, folder: Path, *, is_read_only: bool = False, owner: Owner | None = None) -> None:
        self._is_read_only = is_read_only
        self._owner = owner
        self._is_recognized = owner is None
        self.path = folder / "journal.db"
        self._errors = TranslatedErrors(self.path)
        self._claims = FileClaims(folder / "locks")
        self._checkpoint_lock = folder / "checkpoint.lock"
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._stored_hashes: OrderedDict[str, None] = OrderedDict()
        self._heads: OrderedDict[str, _Head] = OrderedDict()
        self._data_version = self._known_version = -1
        self._commits = 0
        self._is_open = True
        with self._errors:
            if not is_read_only:
                restrict(folder, self.path)
            self._writer = connect(self.path, is_read_only=is_read_only)
            self._transaction = Transaction(self._writer)
            self._accounts = Accounts(self._writer)
            self._prepare()
            self._reader = connect(self.path, is_read_only=is_read_only)

    # -- writing --------------------------------------------------------------------------------------

    def append(self, run_id: str, expected_seq: int, events: Sequence[Event], blobs: Sequence[Blob] = ()) -> int:
        [result] = self.append_many([Batch(run_id, expected_seq, events, blobs)])
        if isinstance(result, JournalError):
            raise result
        return result

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        with self._write_lock, self._errors:
            if [blob for batch in batches for blob in batch.blobs if len(blob.content) >= _LARGE_BLOB]:
                self._store_large_blobs(batches)
            heads: dict[str, _Head] = {}
            with self._write():
                self._forget_if_changed()
                results = [self._store(batch, heads) for batch in batches]
                accepted = [batch for batch, result in zip(batches, results, strict=True) if isinstance(result, int)]
                blobs = self._new_blobs(accepted)
                self._store_blobs(blobs)
            self._update_caches(blobs, heads)
            self._accounts.commit()
            self._commits += 1
            if self._commits % _COMMITS_PER_CHECKPOINT == 0:
                self._checkpoint()
            return results

    def _store_large_blobs(self, batches: Sequence[Batch]) -> None:
        for blob in self._new_blobs(batches):
            if len(blob.content) >= _LARGE_BLOB:
                with self._write():
                    self._store_blobs([blob])

    def import_runs(self, batches: Sequence[Batch], origin: str) -> None:
        heads: dict[str, _Head] = {}
        with self._write_lock, self._errors:
            with self._write():
                self._forget_if_changed()
                for batch in batches:
                    if self._head(self._writer, batch.run_id) is not None:
                        raise AppendConflict(f"run `{batch.run_id}` exists already")
                    result = self._store(batch, heads, is_imported=True)
                    if isinstance(result, JournalError):
                        raise result
                    self._store_blobs(batch.blobs)
                    self._writer.execute("UPDATE runs SET imported = ? WHERE run_id = ?", (origin, batch.run_id))
            self._commits += 1
            self._checkpoint()

    def post(self, run_id: str, payload: InboxPayload) -> int:
        kind, content = encode_payload(payload)
        with self._write_lock, self._errors, self._write():
            head = self._head(self._writer, run_id)
            last = self._writer.execute("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'").fetchone()
            number = max(last[0] if last else 0, head.row.messages_taken if head else 0) + 1
            self._writer.execute(
                "INSERT INTO inbox (id, run_id, kind, payload) VALUES (?, ?, ?, ?)", (number, run_id, kind, content)
            )
            return int(number)

    def _store(self, batch: Batch, heads: dict[str, _Head], *, is_imported: bool = False) -> int | JournalError:
        """Store one batch inside the transaction, and the run's new head in `heads`.

        Nothing is charged for an imported run: it was paid for elsewhere.
        """
        head = heads.get(batch.run_id) or self._heads.get(batch.run_id)
        is_first = batch.expected_seq == 0 and batch.events and head is None  # `_store_row` finds an existing run
        if not is_first and (head is None or head.row.seq != batch.expected_seq):
            head = self._head(self._writer, batch.run_id)
        try:
            point = fork_point(batch) if head is None else None
            if point is not None:
                point_hash = self._hash_at(self._writer, point.run, point.seq)
                bodies = check_batch(batch, point.seq, point_hash, opens_fork=True)
                origin = rebuild(islice(self._all_events(point.run), point.seq))  # perhaps not committed yet
            else:
                bodies, origin = _check(batch, head), None
            if not batch.events:
                return batch.expected_seq
            after = project(head.row if head else None, batch.events, bodies, origin)
            reserved = head.row.reserved if head else None
            found = None if is_imported else postings(batch.run_id, after.skill, reserved, bodies)
            checked = self._accounts.check(found) if found is not None else {}
            spent: tuple[SpendRow, ...] = head.spent if head else ()
            closed: tuple[SpendRow, ...] = ()
            if found is not None and found.rows:
                spent, closed = add_charges(spent, found.rows)
            key = self._store_row(head, after, spent, batch)
        except JournalError as error:
            return error
        if found is not None:  # after the last check: other batches share the transaction
            self._accounts.post(found, checked)
            store_charges(self._writer, closed)
        # `bytearray`, because sqlite3 searches for an adapter of every value that is `bytes`.
        self._writer.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(key, e.seq, e.ts, e.kind, e.v, bytearray(e.raw), bytearray.fromhex(e.hash)) for e in batch.events],
        )
        heads[batch.run_id] = _Head(key, after, spent)
        return after.seq

    def _store_row(self, head: _Head | None, after: RunRow, spent: tuple[SpendRow, ...], batch: Batch) -> int:
        """Insert or update the row of a run; return its key."""
        if head is None:
            try:
                return self._insert_row(after, spent)
            except sqlite3.IntegrityError:
                if self._head(self._writer, batch.run_id) is None:
                    raise
        elif self._update_row(head, after, spent):
            return head.key
        # The run exists already, or its cached head is out of date: another process appended.
        _check(batch, self._head(self._writer, batch.run_id))
        raise AppendConflict(f"run `{batch.run_id}` was changed by another process")

    def _insert_row(self, row: RunRow, spent: tuple[SpendRow, ...]) -> int:
        cursor = self._writer.execute(INSERT, [*to_columns(row), encode_spent(spent)])
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _update_row(self, head: _Head, row: RunRow, spent: tuple[SpendRow, ...]) -> bool:
        """Update a run's row. Returns false if the row is not at `head`."""
        wait, charge, reserved = (column_value(row, name) for name in ("wait", "charge", "reserved"))
        values = (row.seq, bytearray.fromhex(row.hash), row.status, row.phase, row.reason, row.updated, wait)
        changed = (*values, row.messages_taken, charge, reserved, encode_spent(spent))
        cursor = self._writer.execute(UPDATE, (*changed, head.key, head.row.seq))
        return cursor.rowcount == 1

    def _new_blobs(self, batches: Sequence[Batch]) -> list[Blob]:
        unique = {blob.hash: blob for batch in batches for blob in batch.blobs if blob.hash not in self._stored_hashes}
        return list(unique.values())

    def _store_blobs(self, blobs: Sequence[Blob]) -> None:
        if blobs:
            self._writer.executemany(
                "INSERT OR IGNORE INTO blobs (hash, content) VALUES (?, ?)",
                [(bytearray.fromhex(blob.hash), bytearray(blob.content)) for blob in blobs],
            )

    def _update_caches(self, blobs: Sequence[Blob], heads: dict[str, _Head]) -> None:
        """Cache hashes and heads. Only after the commit: the retry of a failed commit must store its blobs again."""
        for blob in blobs:
            self._stored_hashes[blob.hash] = None
        while len(self._stored_hashes) > _CACHE_ENTRIES:
            self._stored_hashes.popitem(last=False)
        for run_id, head in heads.items():
            self._heads[run_id] = head
        while len(self._heads) > _CACHE_ENTRIES:
            self._heads.popitem(last=False)

    def _write(self) -> Transaction:
        """Return a transaction in a journal of the owner."""
        self.check_own()
        return self._transaction

    # -- deleting -------------------------------------------------------------------------------------

    def delete(self, run_ids: Collection[str], *, dry_run: bool = False) -> Deletion:
        """Delete runs, then give the space back to the file system if at least a tenth of the file is free."""
        with self._write_lock, self._errors:
            with self._transaction if dry_run else self._write():
                keys = self._deletable(set(run_ids))
                deletion, unused = count(self._writer, keys)
                if not dry_run and keys:
                    heads = filter(None, (self._head(self._writer, run_id) for run_id in keys))
                    close_accounts(self._writer, [(head.row, head.spent) for head in heads])
                    delete(self._writer, keys, unused)
                    # Connections that remember hashes and heads compare this number before they rely on them.
                    self._writer.execute(f"PRAGMA schema_version = {self._schema_version() + 1}")
            if not dry_run and keys:
                self._forget()
                compact(self._writer)
                self._checkpoint()
        return deletion

    def _deletable(self, run_ids: set[str]) -> dict[str, int]:
        """Return the keys of the runs to delete, by id, after checking that they can be deleted."""
        rows = self._writer.execute("SELECT run_id, parent, fork_of, id FROM runs").fetchall()
        keys = {run_id: key for run_id, _, _, key in rows if run_id in run_ids}
        for run_id in keys:
            if self._claims.is_held(run_id):
                raise RunBusy(f"run `{run_id}` is being executed")
        check_deletable(keys, ((run_id, parent, origin) for run_id, parent, origin, _ in rows))
        return keys

    def _schema_version(self) -> int:
        (version,) = self._writer.execute("PRAGMA schema_version").fetchone()
        return int(version)

    def _forget_if_changed(self) -> None:
        """Forget balances if another connection wrote since, and remembered hashes and heads if it deleted runs.

        Deleting in this process forgets them at once.
        """
        (data_version,) = self._writer.execute("PRAGMA data_version").fetchone()
        self._accounts.begin()
        if data_version == self._data_version:
            return
        self._accounts.forget()
        self._data_version = data_version
        version = self._schema_version()
        if version != self._known_version:
            self._forget()
            self._known_version = version

    def _forget(self) -> None:
        self._accounts.forget()
        self._stored_hashes.clear()
        self._heads.clear()

    # -- reading --------------------------------------------------------------------------------------

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Read in pages of one short transaction each, so that a slow reader does not delay checkpoints."""
        with self._read_lock, self._errors:
            head = self._head(self._reader, run_id)
        if head is None:
            return
        if after < head.row.fork_seq:
            yield from islice(self.read(head.row.fork_of, after), head.row.fork_seq - after)
            after = head.row.fork_seq
        with self._read_lock, self._errors:
            prev = self._hash_at(self._reader, run_id, after)
        key = head.key
        while page := self._page(key, after):
            valid = _valid_rows(page, after)
            for after, ts, kind, v, raw, stored_hash in page[:valid]:
                event_hash = stored_hash.hex()
                yield Event(after, run_id, ts, kind, v, raw, prev, event_hash)
                prev = event_hash
            if valid < len(page):
                raise StoreDamaged(f"the journal `{self.path}` is damaged at event {page[valid][0]} of run `{run_id}`")

    def _page(self, key: int, after: int) -> list[Any]:
        with self._read_lock, self._errors:
            return self._reader.execute(
                "SELECT seq, ts, CAST(kind AS TEXT), v, CAST(data AS BLOB), CAST(hash AS BLOB) FROM events "
                "WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                (key, after, _EVENTS_PER_PAGE),
            ).fetchall()

    def _hash_at(self, connection: sqlite3.Connection, run_id: str, seq: int) -> str:
        """Return the hash of an event of a run or of its origins; `GENESIS` if there is none."""
        head = self._head(connection, run_id)
        while head is not None and seq <= head.row.fork_seq:
            head = self._head(connection, head.row.fork_of)
        key = head.key if head else 0
        row = connection.execute("SELECT hash FROM events WHERE run = ? AND seq = ?", (key, seq)).fetchone()
        return bytes(row[0]).hex() if row else GENESIS

    def blob(self, hash: str) -> bytes:
        try:
            name = bytes.fromhex(hash)
        except ValueError:
            raise BlobMissing(f"`{hash}` is not a blob hash") from None
        with self._read_lock, self._errors:
            row = self._reader.execute("SELECT content FROM blobs WHERE hash = ?", (name,)).fetchone()
        if row is None:
            raise BlobMissing(f"blob `{hash}` is missing")
        content: Any = row[0]
        if not isinstance(content, bytes) or digest(content) != hash:
            raise BlobMissing(f"blob `{hash}` is damaged: its content does not match its hash")
        return content

    def drain(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        with self._read_lock, self._errors:
            rows = self._reader.execute(
                "SELECT id, kind, payload FROM inbox WHERE run_id = ? AND id > ? ORDER BY id", (run_id, after)
            ).fetchall()
        return [InboxMessage(number, decode_payload(kind, content)) for number, kind, content in rows]

    def approvals(self) -> list[Approval]:
        if self._columns in (COLUMNS[1], COLUMNS[2]):  # an earlier format that is open for reading has none
            return []
        with self._read_lock, self._errors:
            return all_approvals(self._reader)

    def approve(self, approval: Approval) -> int:
        with self._write_lock, self._errors, self._write():
            return add_approval(self._writer, approval)

    def revoke(self, approval_id: int) -> bool:
        with self._write_lock, self._errors, self._write():
            return delete_approval(self._writer, approval_id)

    def balance(self, account: str) -> Balance:
        if self._columns != ROW:  # an earlier format that is open for reading has none
            return Balance()
        with self._read_lock, self._errors:
            return balance_of(self._reader, account)

    def charges(self, since: str = "") -> list[SpendRow]:
        if self._columns != ROW:
            return []
        with self._read_lock, self._errors:
            return charges_since(self._reader, since, has_spent=self._has_spent)

    def reserving(self) -> list[RunRow]:
        if self._columns != ROW:
            return []
        with self._read_lock, self._errors:
            query = f"SELECT {ROW} FROM runs WHERE reserved != '' AND imported = ''"  # noqa: S608 - a constant
            return [to_row(columns) for columns in self._reader.execute(query).fetchall()]

    def find(self, run_id: str) -> RunRow | None:
        with self._read_lock, self._errors:
            head = self._head(self._reader, run_id)
        return self._current(head.row) if head else None

    def runs(self, prefix: str = "") -> list[RunRow]:
        # By the range, the index finds the runs with a prefix; the list of all runs is read from the table.
        where = "WHERE run_id >= ?1 AND run_id < ?2" if prefix else ""
        query = f"SELECT {self._columns} FROM runs {where} ORDER BY started DESC, run_id DESC"  # noqa: S608 - constants
        with self._read_lock, self._errors:
            rows = self._reader.execute(query, (prefix, f"{prefix}\U0010ffff") if prefix else ()).fetchall()
            current = [to_row(columns) for columns in rows]
            known = {name for (name,) in self._reader.execute(_IDS)} if not prefix else None
            if known is not None and known != (listed := {row.run_id for row in current}):
                names = sorted(map(str, known ^ listed))[:3]
                raise sqlite3.DatabaseError(f"the list of runs and its index differ: {', '.join(names)}")
        return [self._current(row) for row in current]

    def _current(self, row: RunRow) -> RunRow:
        """Return the row that the current fold derives. A read-only database may store an older one."""
        if self._columns == ROW:
            return row
        return rebuild(self.read(row.run_id)) or row

    def _head(self, connection: sqlite3.Connection, run_id: str) -> _Head | None:
        spent = "spent" if self._has_spent else "''"
        query = f"SELECT id, {spent}, {self._columns} FROM runs WHERE run_id = ?"  # noqa: S608 - a constant
        columns = connection.execute(query, (run_id,)).fetchone()
        return _Head(columns[0], to_row(columns[2:]), decode_spent(columns[1])) if columns else None

    # -- the owner ------------------------------------------------------------------------------------

    def is_own(self) -> bool:
        """Return whether the owner created this journal, or vouched for it."""
        if not self._is_recognized:
            assert self._owner is not None
            with self._read_lock, self._errors:
                found = self._reader.execute(
                    "SELECT CAST(mark AS BLOB) FROM owners ORDER BY rowid DESC LIMIT ?", (_MAX_MARKS,)
                ).fetchall()
            self._is_recognized = self._owner.recognizes([mark for (mark,) in found if isinstance(mark, bytes)])
        return self._is_recognized

    def adopt(self) -> None:
        """Mark the journal as the owner's, with everything that it holds."""
        if self.is_own():
            return
        with self._write_lock, self._errors, self._transaction:
            self._mark()

    def _mark(self) -> None:
        mark = self._owner.new_mark() if self._owner else None
        if mark is not None:
            self._writer.execute("INSERT INTO owners VALUES (?)", (mark,))

    def check_own(self) -> None:
        """Raise `StoreUnavailable` if the journal is not the owner's."""
        if not self._is_recognized and not self.is_own():
            raise StoreUnavailable(
                f"the journal `{self.path}` was not created by you: it came with the project, or from another user",
                hint=StoreUnavailable.foreign_hint,
            )

    # -- claims, opening, closing ---------------------------------------------------------------------

    def claim(self, run_id: str) -> AbstractContextManager[None]:
        return self._claims.hold(run_id)

    def is_claimed(self, run_id: str) -> bool:
        return self._claims.is_held(run_id)

    def close(self) -> None:
        """Wait for a commit in progress, then close. Checkpoint first, or short-lived processes would grow the WAL."""
        with self._write_lock, self._read_lock:
            if self._is_open and self._commits:
                self._checkpoint()
            self._is_open = False
            self._reader.close()
            self._writer.close()

    def _prepare(self) -> None:
        if self._format() == 0 and not self._is_read_only:
            with self._transaction:
                if self._format() == 0:  # no other process created the tables meanwhile
                    is_new = not self._writer.execute("SELECT 1 FROM sqlite_master").fetchone()
                    for statement in (SCHEMA + APPROVALS + OWNERS + SPENDING).split(";")[:-1]:
                        self._writer.execute(statement)
                    if is_new:  # an existing database may contain planted approvals
                        self._mark()
                    self._writer.execute(f"PRAGMA user_version = {FORMAT}")
        while not self._is_read_only and (version := self._format()) in UPGRADES:
            with self._transaction:
                if self._format() == version:  # no other process upgraded it meanwhile
                    for statement in (UPGRADES[version] + APPROVALS + OWNERS + SPENDING).split(";")[:-1]:
                        self._writer.execute(statement)
                    self._rebuild_rows()
                    self._writer.execute(f"PRAGMA user_version = {FORMAT}")
        if self._format() not in COLUMNS:
            raise StoreUnavailable(
                f"`{self.path}` has format {self._format()}; this release reads formats up to {FORMAT}",
                hint="Use the release of Reyn that wrote it, or a newer one.",
            )
        self._columns = COLUMNS[self._format()]
        self._has_spent = self._format() == FORMAT

    def _rebuild_rows(self) -> None:
        """Derive the list of runs again: an earlier release folded some events differently."""
        self._columns, self._has_spent = ROW, True
        for (run_id,) in self._writer.execute("SELECT run_id FROM runs ORDER BY id").fetchall():
            head = self._head(self._writer, run_id)
            assert head is not None
            with suppress(EventInvalid, HistoryInvalid):  # `verify` reports a damaged run
                row = rebuild(self._all_events(run_id))
                if row is not None:
                    self._update_row(head, row, head.spent)

    def _all_events(self, run_id: str) -> Iterator[Event]:
        """The events of a run and its origins, as the writing connection sees them inside its transaction."""
        head = self._head(self._writer, run_id)
        if head is None:
            return
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
        """Checkpoint the WAL. Errors are ignored: another process may be faster."""
        with suppress(OSError, sqlite3.Error):
            if self._checkpoint_lock.is_symlink():  # planted: without a lock there would be no checkpoint
                self._checkpoint_lock.unlink()
            handle = open_lock(self._checkpoint_lock)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                os.close(handle)


def _valid_rows(page: list[Any], after: int) -> int:
    """Return how many rows come before a damaged one: their columns can have any type, and numbers can repeat."""
    if _are_valid(page, after):
        return len(page)
    count = 0
    while _are_valid(page[count : count + 1], after):
        after, count = page[count][0], count + 1
    return count


def _are_valid(page: list[Any], after: int) -> bool:
    numbers, times, _, versions, raws, hashes = zip(*page, strict=True)
    are_integers = {*map(type, numbers), *map(type, times), *map(type, versions)} == {int}
    return are_integers and all(raws) and all(hashes) and all(map(lt, (after, *numbers), numbers))


def _check(batch: Batch, head: _Head | None) -> list[Body]:
    return check_batch(batch, head.row.seq if head else 0, head.row.hash if head else GENESIS)
