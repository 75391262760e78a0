"""The journal in one SQLite database, in WAL mode with `synchronous=FULL`.

A commit is durable when it returns and costs one fsync. One connection writes and one reads, each behind a lock. The
layout was chosen by measurement: 8 KB pages, one row for the events of a commit, clustered by run, and blobs in the
order of their commits.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from reyn.errors import JournalError, RunBusy, StoreUnavailable
from reyn.journal import run_list, tables
from reyn.journal.blobs import BlobStore
from reyn.journal.claims import FileClaims
from reyn.journal.database import Database, Owner, Transaction
from reyn.journal.documents import SQLITE_DOCUMENTS
from reyn.journal.messages import InboxMessage, InboxPayload, decode_payload, encode_payload
from reyn.journal.packing import pack
from reyn.journal.port import Batch, Bookkeeping, Deletion, admit, check_deletable
from reyn.journal.rates import decode_rates, encode_rates, lease
from reyn.journal.rows import Head, add_charges, decode_head
from reyn.journal.stored import StoredJournal
from reyn.journal.tables import WORDS, Accounts
from reyn.journal.wakes import ALL_WAKES, FIRST_WAKES, PendingWake, Wake, WakeTable, microseconds, to_wake
from reyn.journal.workers import ALL_WORKERS, WorkerReport, WorkerTable, to_report

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from reyn.journal.canonical import Blob
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.listing import IndexedRun, RunQuery, UnindexedRun
    from reyn.journal.rates import RateNeed, RateRefusal, RateSlice
    from reyn.journal.registry import Event, Status
    from reyn.journal.spending import Balance, SpendRow

    Select = Callable[[str, tuple[Any, ...]], list[Any]]

_LARGE_BLOB = 256_000
"""Blobs of this size are committed before their batch, so that they do not delay the batches of other runs."""
_MAX_HEADS = 8_192
_COMMITS_PER_CHECKPOINT = 200
"""Automatic checkpoints are off: SQLite before 3.51.3 can corrupt a WAL that two connections reset at once."""
_COMMITS_PER_PAGE = 300
_IDS = "SELECT run_id FROM runs INDEXED BY sqlite_autoindex_runs_1 WHERE run_id >= ''"
"""The ids in the index of runs. A run is found by the index: a damaged name in the table would be another run."""
_MAX_MARKS = 100
"""Maximum number of marks to check, newest first. A journal has one for each user who trusted it."""


class SqliteJournal(StoredJournal["Select"]):
    """The journal in `folder/journal.db`, which is created if needed. `Journal` documents the methods.

    With `is_read_only`, no file is created or modified, not even the WAL. With an `owner`, nothing is appended to a
    journal that holds none of the owner's marks; a new one is marked.
    """

    is_remote: ClassVar[bool] = False

    def __init__(self, folder: Path, *, is_read_only: bool = False, owner: Owner | None = None) -> None:
        self._owner = owner
        self._is_recognized = owner is None
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._data_version = self._known_version = -1
        self._commits = 0
        self._db = Database(folder, is_read_only=is_read_only, owner=owner)
        self._claims = FileClaims(self._db.folder)
        self.path = self._db.path
        self._writer = self._db.writer
        self._db.transaction.on_failure = self._forget
        self._accounts = Accounts(self._writer)
        self._blobs = BlobStore(self._db)
        self._wakes = WakeTable(self._writer)
        self._workers = WorkerTable(self._writer)
        self._run_list = run_list.sqlite_source(self._db.rows)

    # -- writing --------------------------------------------------------------------------------------

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        for blob in [one for batch in batches for one in batch.blobs if len(one.content) >= _LARGE_BLOB]:
            if not self._blobs.is_known(blob.hash):
                self._commit((), blob)
        results = self._commit(batches)
        if self._commits % _COMMITS_PER_CHECKPOINT == 0:
            self._db.checkpoint()
        return results

    def _commit(
        self, batches: Sequence[Batch], *blobs: Blob, origin: str = "", restored: str | None = None
    ) -> list[int | JournalError]:
        """Store batches, and the blobs of those that are not rejected, in one transaction.

        With an `origin`, they are runs of an archive, and all of them are stored or none.
        """
        heads: dict[str, Head] = {}
        results: list[int | JournalError] = []
        with self._write():
            self._forget_if_changed()
            for batch in batches:
                result = self._store(batch, heads, origin, restored)
                results.append(result)
                if type(result) is int:
                    blobs += (*batch.blobs,)
                    if batch.wakes:
                        self._wakes.store(batch.wakes)
            self._blobs.store(blobs)
            self._accounts.write()
            self._heads.update(heads)
            while len(self._heads) > _MAX_HEADS:
                self._heads.popitem(last=False)
        self._commits += 1
        return results

    def import_runs(self, batches: Sequence[Batch], origin: str) -> None:
        self._commit(batches, origin=origin)
        self._db.checkpoint()

    def restore(self, batch: Batch, imported: str) -> int:
        [result] = self._commit([batch], restored=imported)
        if isinstance(result, JournalError):
            raise result
        if self._commits % _COMMITS_PER_CHECKPOINT == 0:
            self._db.checkpoint()
        return result

    def post(self, run_id: str, payload: InboxPayload, wakes: Sequence[Wake] = ()) -> int:
        content = encode_payload(payload)
        with self._write():
            self._forget_if_changed()
            head = self._heads.get(run_id) or self._head(run_id, self._db.own_rows)
            last = self._writer.execute("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'").fetchone()
            number = max(last[0] if last else 0, head.row.messages_taken if head else 0) + 1
            self._writer.execute("INSERT INTO inbox (id, run_id, payload) VALUES (?, ?, ?)", (number, run_id, content))
            if wakes:
                self._wakes.store(wakes)
            return int(number)

    def _store(self, batch: Batch, heads: dict[str, Head], origin: str, restored: str | None) -> int | JournalError:
        """Store one batch inside the transaction, and the run's new head in `heads`."""
        run_id = batch.run_id
        head = heads.get(run_id) or self._heads.get(run_id)
        if head is None and (batch.expected_seq or origin):  # inserting the row of another run fails if it exists
            head = self._head(run_id, self._db.own_rows)
        spent: tuple[SpendRow, ...] = head.spent if head else ()
        closed: tuple[SpendRow, ...] = ()
        try:
            admitted = admit(batch, head.row if head else None, self._all_events, origin, restored)
            if admitted is None:
                return batch.expected_seq
            row, found = admitted
            if found is not None:
                self._accounts.check(found)
                spent, closed = add_charges(spent, found.rows)
            key = tables.store_run(self._writer, head, row, spent)
        except JournalError as error:
            if origin:
                raise
            return error
        if found is not None:  # after the last check: other batches share the transaction
            self._accounts.post(found)
            tables.store_charges(self._writer, closed)
        self._writer.execute(tables.STORE_COMMIT, (tables.commit_key(key, row.seq), *pack(batch.events)))
        heads[run_id] = Head(key, row, spent)
        return row.seq

    def _select(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._db.rows(query, values)

    def _change(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        with self._write():
            return self._writer.execute(query, values).fetchall()

    def _has_documents(self) -> bool:
        return bool(self._db.rows("SELECT 1 FROM sqlite_master WHERE name = 'documents'"))

    def _make_documents(self) -> None:
        self._change(SQLITE_DOCUMENTS, ())

    def _all_events(self, run_id: str) -> Iterator[Event]:
        """The events of a run and its origins, as the writing connection sees them inside its transaction."""
        return self._read(run_id, 0, self._db.own_rows)

    def _write(self) -> Transaction:
        """Return a transaction in a journal of the owner."""
        self.check_own()
        return self._db.transaction

    # -- deleting -------------------------------------------------------------------------------------

    def delete(self, run_ids: Collection[str], *, dry_run: bool = False) -> Deletion:
        """Delete runs, then give the space back to the file system if at least a tenth of the file is free."""
        with self._db.transaction if dry_run else self._write():
            keys = self._deletable(set(run_ids))
            deletion, unused = tables.count(self._writer, keys, self._blobs.size)
            if dry_run or not keys:
                return deletion
            heads = filter(None, (self._head(run_id, self._db.own_rows) for run_id in keys))
            tables.close_accounts(self._writer, heads)
            tables.delete_rows(self._writer, keys)
            self._blobs.remove(unused)
            # Connections that remember which content is stored compare this number before they rely on it.
            self._writer.execute(f"PRAGMA schema_version = {self._schema_version() + 1}")
            self._forget()
        self._db.compact()
        return deletion

    def forget_removals(self, run_ids: Collection[str]) -> None:
        if run_ids:
            with self._write():
                self._writer.executemany("DELETE FROM removals WHERE run_id = ?", [(run_id,) for run_id in run_ids])

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
        """Forget balances and heads if another connection wrote since, and what is stored if it deleted runs."""
        (data_version,) = self._writer.execute("PRAGMA data_version").fetchone()
        if data_version == self._data_version:
            return
        self._accounts.forget()
        self._heads.clear()
        version = self._schema_version()
        if version != self._known_version:
            self._blobs.forget()
        self._blobs.refresh()
        self._data_version, self._known_version = data_version, version

    def _forget(self) -> None:
        """Forget everything at the next transaction: one failed, or runs were deleted."""
        self._data_version = self._known_version = -1

    # -- reading --------------------------------------------------------------------------------------

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Read in pages of one short transaction each, so that a slow reader does not delay checkpoints."""
        return self._read(run_id, after, self._db.rows)

    def _last_commit(self, head: Head, seq: int, source: Select) -> tuple[int, bytes] | None:
        first = tables.commit_key(head.key, 0)
        found = source(tables.LAST_COMMIT, (first, first + seq))
        return (found[0][0] - first, found[0][1]) if found else None

    def _next_commits(self, head: Head, after: int, source: Select) -> list[tuple[int, bytes, bytes]]:
        first, end = tables.commit_key(head.key, 0), tables.commit_key(head.key + 1, 0)
        page = source(tables.COMMITS, (first + after, end, _COMMITS_PER_PAGE))
        return [(key - first, hashes, text) for key, hashes, text in page]

    def blob(self, hash: str) -> bytes:
        return self._blobs.read(hash)

    def drain(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        query = "SELECT id, payload FROM inbox WHERE run_id = ? AND id > ? ORDER BY id"
        return [
            InboxMessage(number, decode_payload(content)) for number, content in self._db.rows(query, (run_id, after))
        ]

    peek = drain

    def balance(self, account: str) -> Balance:
        return tables.to_balance(self._db.rows(tables.BALANCE, (account,)))

    def charges(self, since: str = "") -> list[SpendRow]:
        with self._db.snapshot() as connection:
            return tables.charges_since(connection, since)

    def ledger(self) -> Bookkeeping:
        with self._db.snapshot() as connection:
            return tables.read_ledger(connection)

    def restore_ledger(self, ledger: Bookkeeping) -> None:
        with self._write():
            tables.write_ledger(self._writer, ledger)
            self._forget()

    def reserving(self) -> list[RunRow]:
        with self._db.snapshot() as connection:
            found = connection.execute(f"{tables.SELECT} WHERE {tables.HAS_RESERVATION}")
            rows = [decode_head(columns).row for columns in found]
        return [row for row in rows if row.reserved is not None and not row.imported]

    def find(self, run_id: str) -> RunRow | None:
        head = self._head(run_id, self._db.rows)
        return head.row if head else None

    def runs(self, prefix: str = "") -> list[RunRow]:
        # By the range, the index finds the runs with a prefix; the list of all runs is read from the table.
        order = "ORDER BY started DESC, run_id DESC"
        if prefix:
            query = f"{tables.SELECT} WHERE run_id >= ? AND run_id < ? {order}"
            with self._db.errors:
                return [decode_head(one).row for one in self._db.rows(query, (prefix, f"{prefix}\U0010ffff"))]
        with self._db.snapshot() as connection:
            rows = [decode_head(one).row for one in connection.execute(f"{tables.SELECT} NOT INDEXED {order}")]
            listed = {row.run_id for row in rows}
            if (known := {name for (name,) in connection.execute(_IDS)}) != listed:
                names = sorted(map(str, known ^ listed))[:3]
                raise sqlite3.DatabaseError(f"the list of runs and its index differ: {', '.join(names)}")
        return rows

    def page(self, query: RunQuery, limit: int, after: str = "") -> list[RunRow]:
        with self._db.errors:
            if query.search and not run_list.has_words(self._db.rows):
                return []
            return run_list.read_page(self._run_list, query, limit, after)

    def count_by_status(self) -> dict[Status, int]:
        with self._db.errors:
            return run_list.read_counts(self._run_list)

    def unindexed(self, limit: int) -> list[UnindexedRun]:
        with self._db.errors:
            return run_list.read_unindexed(self._run_list, limit)

    def count_unindexed(self) -> int:
        return run_list.read_count(self._run_list)

    def store_words(self, found: Sequence[IndexedRun]) -> None:
        with self._write():
            run_list.write_words(self._writer, WORDS, found)

    def _head(self, run_id: str, source: Select) -> Head | None:
        found = source(f"{tables.SELECT} WHERE run_id = ?", (run_id,))
        with self._db.errors:
            return decode_head(found[0]) if found else None

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
        """Mark the journal as the owner's, with everything that it holds.

        Raises:
            StoreDamaged: Its pages or indexes are not consistent, so that it may hold more than it lists.
        """
        if self.is_own():
            return
        with self._db.transaction:
            self._db.check_pages()
            self._db.mark(self._owner)

    def check_own(self) -> None:
        """Raise `StoreUnavailable` if the journal is not the owner's."""
        if not self._is_recognized and not self.is_own():
            raise StoreUnavailable(
                f"the journal `{self.path}` was not created by you: it came with the project, or from another user",
                hint=StoreUnavailable.foreign_hint,
            )

    # -- wakes ----------------------------------------------------------------------------------------

    def take_wakes(self, queues: Collection[str], limit: int, hold: float) -> list[PendingWake]:
        if not self._db.rows("SELECT 1 FROM wakes LIMIT 1"):  # no transaction for a worker that has nothing to do
            return []
        with self._write():
            return self._wakes.take(queues, limit, hold)

    def hold_wakes(self, seqs: Collection[int], hold: float) -> None:
        with self._write():
            self._wakes.hold(seqs, hold)

    def finish_wakes(self, seqs: Collection[int]) -> None:
        with self._write():
            self._wakes.finish(seqs)

    def wakes(self, run_id: str | None = None) -> list[PendingWake]:
        return [to_wake(columns) for columns in self._db.rows(ALL_WAKES, (run_id, run_id))]

    def first_wakes(self, queue: str, limit: int) -> list[PendingWake]:
        return [to_wake(columns) for columns in self._db.rows(FIRST_WAKES, (queue, limit))]

    # -- workers --------------------------------------------------------------------------------------

    def take_rate(self, name: str, need: RateNeed) -> RateSlice | RateRefusal:
        with self._write():
            stored = self._writer.execute("SELECT state FROM rates WHERE name = ?", (name,)).fetchone()
            state, found = lease(decode_rates(stored and stored[0]), need, microseconds())
            self._writer.execute("REPLACE INTO rates VALUES (?, ?)", (name, encode_rates(state).decode()))
        return found

    def report_worker(self, report: WorkerReport) -> None:
        with self._write():
            self._workers.store(report)

    def forget_worker(self, worker_id: str) -> None:
        with self._write():
            self._workers.remove(worker_id)

    def workers(self) -> list[WorkerReport]:
        return [to_report(content) for (content,) in self._db.rows(ALL_WORKERS)]

    # -- claims, closing ------------------------------------------------------------------------------

    def claim(self, run_id: str) -> AbstractContextManager[None]:
        return self._claims.hold(run_id)

    def is_claimed(self, run_id: str) -> bool:
        return self._claims.is_held(run_id)

    def claimed(self, names: Collection[str]) -> set[str]:
        return set(filter(self._claims.is_held, names))

    def check_claim(self, run_id: str) -> None:
        pass  # a file lock is only lost with its process

    def close(self) -> None:
        self._db.close(is_changed=self._commits > 0)
        self._claims.close()
