"""The journal in one SQLite database, in WAL mode with `synchronous=FULL`.

A commit is durable when it returns and costs one fsync. One connection writes and one reads, each behind a lock. The
layout was chosen by measurement: 8 KB pages, events clustered by run and sequence number, blobs by rowid with a unique
index on the hash, because clustering by hash scatters large rows.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import AppendConflict, BlobMissing, JournalError, RunBusy, StoreDamaged, StoreUnavailable
from reyn.journal import tables
from reyn.journal.canonical import Blob, digest
from reyn.journal.claims import FileClaims
from reyn.journal.database import Database
from reyn.journal.port import (
    Approval,
    Batch,
    Deletion,
    InboxMessage,
    InboxPayload,
    admit,
    check_batch,
    check_deletable,
    decode_payload,
    encode_payload,
)
from reyn.journal.registry import GENESIS, Event
from reyn.journal.tables import Accounts, Head

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from reyn.journal.database import Owner, Transaction
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.spending import Balance, SpendRow

    Select = Callable[[str, tuple[Any, ...]], list[Any]]

_LARGE_BLOB = 256_000
"""Blobs of this size are committed before their batch, so that they do not delay the batches of other runs."""
_CACHE_ENTRIES = 8_192
_COMMITS_PER_CHECKPOINT = 200
"""Automatic checkpoints are off: SQLite before 3.51.3 can corrupt a WAL that two connections reset at once."""
_EVENTS_PER_PAGE = 2_000
_PAGE = (
    "SELECT seq, ts, CAST(kind AS TEXT), v, CAST(data AS BLOB), CAST(hash AS BLOB) FROM events "
    "WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
)
_IDS = "SELECT run_id FROM runs INDEXED BY sqlite_autoindex_runs_1 WHERE run_id >= ''"
"""The ids in the index of runs. A run is found by the index: a damaged name in the table would be another run."""
_MAX_MARKS = 100
"""Maximum number of marks to check, newest first. A journal has one for each user who trusted it."""


class SqliteJournal:
    """The journal in `folder/journal.db`, which is created if needed. `Journal` documents the methods.

    With `is_read_only`, no file is created or modified, not even the WAL. With an `owner`, nothing is appended to a
    journal that holds none of the owner's marks; a new one is marked.
    """

    def __init__(self, folder: Path, *, is_read_only: bool = False, owner: Owner | None = None) -> None:
        self._owner = owner
        self._is_recognized = owner is None
        self._claims = FileClaims(folder / "locks")
        self._stored_hashes: OrderedDict[str, None] = OrderedDict()
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._data_version = self._known_version = -1
        self._commits = 0
        self._db = Database(folder, is_read_only=is_read_only, owner=owner)
        self.path = self._db.path
        self._writer = self._db.writer
        self._accounts = Accounts(self._writer)

    # -- writing --------------------------------------------------------------------------------------

    def append(self, run_id: str, expected_seq: int, events: Sequence[Event], blobs: Sequence[Blob] = ()) -> int:
        [result] = self.append_many([Batch(run_id, expected_seq, events, blobs)])
        if isinstance(result, JournalError):
            raise result
        return result

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        with self._db.write_lock, self._db.errors:
            if [blob for batch in batches for blob in batch.blobs if len(blob.content) >= _LARGE_BLOB]:
                self._store_large_blobs(batches)
            heads: dict[str, Head] = {}
            try:
                with self._write():
                    self._forget_if_changed()
                    results = [self._store(batch, heads) for batch in batches]
                    accepted = [one for one, result in zip(batches, results, strict=True) if isinstance(result, int)]
                    blobs = self._new_blobs(accepted)
                    self._store_blobs(blobs)
            except BaseException:
                self._accounts.forget()
                raise
            self._update_caches(blobs, heads)
            self._commits += 1
            if self._commits % _COMMITS_PER_CHECKPOINT == 0:
                self._db.checkpoint()
            return results

    def _store_large_blobs(self, batches: Sequence[Batch]) -> None:
        for blob in self._new_blobs(batches):
            if len(blob.content) >= _LARGE_BLOB:
                with self._write():
                    self._store_blobs([blob])

    def import_runs(self, batches: Sequence[Batch], origin: str) -> None:
        heads: dict[str, Head] = {}
        with self._db.write_lock, self._db.errors:
            with self._write():
                self._forget_if_changed()
                for batch in batches:
                    if self._head(batch.run_id, self._db.own_rows) is not None:
                        raise AppendConflict(f"run `{batch.run_id}` exists already")
                    result = self._store(batch, heads, is_imported=True)
                    if isinstance(result, JournalError):
                        raise result
                    self._store_blobs(batch.blobs)
                    self._writer.execute("UPDATE runs SET imported = ? WHERE run_id = ?", (origin, batch.run_id))
            self._commits += 1
            self._db.checkpoint()

    def post(self, run_id: str, payload: InboxPayload) -> int:
        content = encode_payload(payload)
        with self._db.write_lock, self._db.errors, self._write():
            head = self._head(run_id, self._db.own_rows)
            last = self._writer.execute("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'").fetchone()
            number = max(last[0] if last else 0, head.row.messages_taken if head else 0) + 1
            self._writer.execute("INSERT INTO inbox (id, run_id, payload) VALUES (?, ?, ?)", (number, run_id, content))
            return int(number)

    def _store(self, batch: Batch, heads: dict[str, Head], *, is_imported: bool = False) -> int | JournalError:
        """Store one batch inside the transaction, and the run's new head in `heads`.

        Nothing is charged for an imported run: it was paid for elsewhere.
        """
        head = heads.get(batch.run_id) or self._heads.get(batch.run_id)
        is_first = batch.expected_seq == 0 and batch.events and head is None  # `_store_row` finds an existing run
        if not is_first and (head is None or head.row.seq != batch.expected_seq):
            head = self._head(batch.run_id, self._db.own_rows)
        try:
            admitted = admit(batch, head.row if head else None, self._all_events, is_imported=is_imported)
            if admitted is None:
                return batch.expected_seq
            after, found = admitted
            spent: tuple[SpendRow, ...] = head.spent if head else ()
            closed: tuple[SpendRow, ...] = ()
            if found is not None:
                self._accounts.check(found)
                spent, closed = tables.add_charges(spent, found.rows)
            key = self._store_row(head, after, spent, batch)
        except JournalError as error:
            return error
        if found is not None:  # after the last check: other batches share the transaction
            self._accounts.post(found)
            tables.store_charges(self._writer, closed)
        # `bytearray`, because sqlite3 searches for an adapter of every value that is `bytes`.
        self._writer.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(key, e.seq, e.ts, e.kind, e.v, bytearray(e.raw), bytearray.fromhex(e.hash)) for e in batch.events],
        )
        heads[batch.run_id] = Head(key, after, spent)
        return after.seq

    def _store_row(self, head: Head | None, after: RunRow, spent: tuple[SpendRow, ...], batch: Batch) -> int:
        """Insert or update the row of a run; return its key."""
        if head is None:
            try:
                return tables.insert_run(self._writer, after, spent)
            except sqlite3.IntegrityError:
                if self._head(batch.run_id, self._db.own_rows) is None:
                    raise
        elif tables.update_run(self._writer, head, after, spent):
            return head.key
        # The run exists already, or its cached head is out of date: another process appended.
        current = self._head(batch.run_id, self._db.own_rows)
        check_batch(batch, current.row.seq if current else 0, current.row.hash if current else GENESIS)
        raise AppendConflict(f"run `{batch.run_id}` was changed by another process")

    def _all_events(self, run_id: str) -> Iterator[Event]:
        """The events of a run and its origins, as the writing connection sees them inside its transaction."""
        head = self._head(run_id, self._db.own_rows)
        if head is None:
            return
        if head.row.fork_of:
            yield from islice(self._all_events(head.row.fork_of), head.row.fork_seq)
        query = "SELECT seq, ts, kind, v, CAST(data AS BLOB), hash FROM events WHERE run = ? ORDER BY seq"
        for seq, ts, kind, v, raw, hashed in self._db.own_rows(query, (head.key,)):
            yield Event(seq, run_id, ts, kind, v, raw, "", hashed.hex())

    def _new_blobs(self, batches: Sequence[Batch]) -> list[Blob]:
        unique = {blob.hash: blob for batch in batches for blob in batch.blobs if blob.hash not in self._stored_hashes}
        return list(unique.values())

    def _store_blobs(self, blobs: Sequence[Blob]) -> None:
        if blobs:
            self._writer.executemany(
                "INSERT OR IGNORE INTO blobs (hash, content) VALUES (?, ?)",
                [(bytearray.fromhex(blob.hash), bytearray(blob.content)) for blob in blobs],
            )

    def _update_caches(self, blobs: Sequence[Blob], heads: dict[str, Head]) -> None:
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
        return self._db.transaction

    # -- deleting -------------------------------------------------------------------------------------

    def delete(self, run_ids: Collection[str], *, dry_run: bool = False) -> Deletion:
        """Delete runs, then give the space back to the file system if at least a tenth of the file is free."""
        with self._db.write_lock, self._db.errors:
            with self._db.transaction if dry_run else self._write():
                keys = self._deletable(set(run_ids))
                deletion, unused = tables.count(self._writer, keys)
                if not dry_run and keys:
                    heads = filter(None, (self._head(run_id, self._db.own_rows) for run_id in keys))
                    tables.close_accounts(self._writer, heads)
                    tables.delete(self._writer, keys, unused)
                    # Connections that remember hashes and heads compare this number before they rely on them.
                    self._writer.execute(f"PRAGMA schema_version = {self._schema_version() + 1}")
            if not dry_run and keys:
                self._forget()
                self._db.compact()
                self._db.checkpoint()
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
        head = self._find(run_id)
        if head is None:
            return
        if after < head.row.fork_seq:
            yield from islice(self.read(head.row.fork_of, after), head.row.fork_seq - after)
            after = head.row.fork_seq
        prev = self._hash_at(head, after)
        while page := self._db.rows(_PAGE, (head.key, after, _EVENTS_PER_PAGE)):
            valid = _valid_rows(page, after)
            for after, ts, kind, v, raw, stored_hash in page[:valid]:
                event_hash = stored_hash.hex()
                yield Event(after, run_id, ts, kind, v, raw, prev, event_hash)
                prev = event_hash
            if valid < len(page):
                raise StoreDamaged(f"the journal `{self.path}` is damaged at event {page[valid][0]} of run `{run_id}`")

    def _hash_at(self, head: Head | None, seq: int) -> str:
        """Return the hash of an event of a run or of its origins; `GENESIS` if there is none."""
        while head is not None and seq <= head.row.fork_seq:
            head = self._find(head.row.fork_of)
        found = self._db.rows("SELECT hash FROM events WHERE run = ? AND seq = ?", (head.key if head else 0, seq))
        return bytes(found[0][0]).hex() if found else GENESIS

    def blob(self, hash: str) -> bytes:
        try:
            name = bytes.fromhex(hash)
        except ValueError:
            raise BlobMissing(f"`{hash}` is not a blob hash") from None
        found = self._db.rows("SELECT content FROM blobs WHERE hash = ?", (name,))
        if not found:
            raise BlobMissing(f"blob `{hash}` is missing")
        content: Any = found[0][0]
        if not isinstance(content, bytes) or digest(content) != hash:
            raise BlobMissing(f"blob `{hash}` is damaged: its content does not match its hash")
        return content

    def drain(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        query = "SELECT id, payload FROM inbox WHERE run_id = ? AND id > ? ORDER BY id"
        return [
            InboxMessage(number, decode_payload(content)) for number, content in self._db.rows(query, (run_id, after))
        ]

    def approvals(self) -> list[Approval]:
        query = "SELECT skill, skill_hash, op, rule, by, at, run_id, id FROM approvals ORDER BY id"
        return [Approval(*columns) for columns in self._db.rows(query)]

    def approve(self, approval: Approval) -> int:
        values = msgspec.structs.astuple(approval)[:7]
        with self._db.write_lock, self._db.errors, self._write():
            self._writer.execute(
                "INSERT OR IGNORE INTO approvals (skill, skill_hash, op, rule, by, at, run_id) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            query = "SELECT id FROM approvals WHERE skill_hash = ? AND op = ? AND rule = ?"
            return int(self._writer.execute(query, values[1:4]).fetchone()[0])

    def revoke(self, approval_id: int) -> bool:
        with self._db.write_lock, self._db.errors, self._write():
            return self._writer.execute("DELETE FROM approvals WHERE id = ?", (approval_id,)).rowcount == 1

    def balance(self, account: str) -> Balance:
        return tables.to_balance(self._db.rows(tables.BALANCE, (account,)))

    def charges(self, since: str = "") -> list[SpendRow]:
        with self._db.snapshot() as connection:
            return tables.charges_since(connection, since)

    def reserving(self) -> list[RunRow]:
        with self._db.snapshot() as connection:
            found = connection.execute(f"{tables.SELECT} WHERE reserved != '' AND imported = ''")
            return [tables.to_row(columns) for columns in found]

    def find(self, run_id: str) -> RunRow | None:
        head = self._find(run_id)
        return head.row if head else None

    def runs(self, prefix: str = "") -> list[RunRow]:
        # By the range, the index finds the runs with a prefix; the list of all runs is read from the table.
        where = "WHERE run_id >= ?1 AND run_id < ?2" if prefix else ""
        query = f"{tables.SELECT} {where} ORDER BY started DESC, run_id DESC"
        with self._db.snapshot() as connection:
            found = connection.execute(query, (prefix, f"{prefix}\U0010ffff") if prefix else ())
            rows = [tables.to_row(columns) for columns in found]
            listed = {row.run_id for row in rows}
            if not prefix and (known := {name for (name,) in connection.execute(_IDS)}) != listed:
                names = sorted(map(str, known ^ listed))[:3]
                raise sqlite3.DatabaseError(f"the list of runs and its index differ: {', '.join(names)}")
        return rows

    def _find(self, run_id: str) -> Head | None:
        with self._db.errors:
            return self._head(run_id, self._db.rows)

    def _head(self, run_id: str, select: Select) -> Head | None:
        found = select(f"{tables.SELECT} WHERE run_id = ?", (run_id,))
        return tables.to_head(found[0]) if found else None

    # -- the owner ------------------------------------------------------------------------------------

    def is_own(self) -> bool:
        """Return whether the owner created this journal, or vouched for it."""
        if not self._is_recognized:
            assert self._owner is not None
            query = "SELECT CAST(mark AS BLOB) FROM owners ORDER BY rowid DESC LIMIT ?"
            marks = [mark for (mark,) in self._db.rows(query, (_MAX_MARKS,)) if isinstance(mark, bytes)]
            self._is_recognized = self._owner.recognizes(marks)
        return self._is_recognized

    def adopt(self) -> None:
        """Mark the journal as the owner's, with everything that it holds."""
        if self.is_own():
            return
        with self._db.write_lock, self._db.errors, self._db.transaction:
            self._db.mark(self._owner)

    def check_own(self) -> None:
        """Raise `StoreUnavailable` if the journal is not the owner's."""
        if not self._is_recognized and not self.is_own():
            raise StoreUnavailable(
                f"the journal `{self.path}` was not created by you: it came with the project, or from another user",
                hint=StoreUnavailable.foreign_hint,
            )

    # -- claims, closing ------------------------------------------------------------------------------

    def claim(self, run_id: str) -> AbstractContextManager[None]:
        return self._claims.hold(run_id)

    def is_claimed(self, run_id: str) -> bool:
        return self._claims.is_held(run_id)

    def close(self) -> None:
        self._db.close(is_changed=self._commits > 0)


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
