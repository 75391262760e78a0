"""The journal in a PostgreSQL database, which processes of many machines share.

A process has three connections: one commits, one reads and claims, and one keeps the lease (`keeper`). Events are
stored as in SQLite: one row for the events of a commit, the same bytes and the same hash chain.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from reyn.errors import BlobMissing, JournalError, StoreDamaged
from reyn.journal.canonical import digest
from reyn.journal.documents import POSTGRES_DOCUMENTS
from reyn.journal.messages import InboxMessage, InboxPayload, decode_payload, encode_payload
from reyn.journal.postgres import deletion, ledger
from reyn.journal.postgres.appends import SELECT_HEAD, STORE_WAKES, Appender, check_names, wake_values
from reyn.journal.postgres.inspection import Inspection, inspect
from reyn.journal.postgres.keeper import Keeper
from reyn.journal.postgres.leases import ALL_CLAIMS, HeldClaim, Leases
from reyn.journal.postgres.link import Link, can_store, change, fetch
from reyn.journal.postgres.run_list import postgres_source, replace_words
from reyn.journal.postgres.schema import add_tables, prepare
from reyn.journal.postgres.shares import SHARES_BALANCE
from reyn.journal.rates import decode_rates, encode_rates, lease
from reyn.journal.rows import Head, RowDamaged, decode_head, decode_spent, total_charges
from reyn.journal.run_list import read_count, read_counts, read_page, read_unindexed
from reyn.journal.spending import Balance, SpendRow
from reyn.journal.stored import StoredJournal
from reyn.journal.wakes import PendingWake, Wake, microseconds, to_wake
from reyn.journal.workers import FORGOTTEN_AFTER, WorkerReport, to_report

if TYPE_CHECKING:
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.listing import IndexedRun, RunQuery, UnindexedRun
    from reyn.journal.port import Batch, Bookkeeping, Deletion
    from reyn.journal.postgres.address import JournalAddress
    from reyn.journal.postgres.link import PgConnection
    from reyn.journal.rates import RateNeed, RateRefusal, RateSlice
    from reyn.journal.registry import Event, Status

T = TypeVar("T")

_COMMITS_PER_PAGE = 300
_COMMITS = "SELECT seq, hashes, events FROM commits WHERE run = %s AND seq > %s ORDER BY seq LIMIT %s"
_LAST = "SELECT seq, hashes FROM commits WHERE run = %s AND seq <= %s ORDER BY seq DESC LIMIT 1"
# The lock on the head numbers the messages of a run in the order in which they become visible.
_POST = """
WITH head AS (
    INSERT INTO inbox_heads AS h VALUES (%(run)s, 1 + coalesce((SELECT taken FROM runs WHERE run_id = %(run)s), 0))
    ON CONFLICT (run_id) DO UPDATE SET last = greatest(h.last + 1, excluded.last) RETURNING last)
INSERT INTO inbox SELECT %(run)s, last, %(payload)s, %(token)s FROM head RETURNING id
"""
_POSTED = "SELECT id FROM inbox WHERE run_id = %s AND token = %s"
_DRAIN = "SELECT id, payload FROM inbox WHERE run_id = %s AND id > %s ORDER BY id"
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_WAKE = "run_id, due, queue, priority, seq, held_until"
_TAKE = f"""
UPDATE wakes SET held_until = {_NOW} + %(hold)s WHERE seq IN (
    SELECT seq FROM wakes WHERE queue = ANY(%(queues)s) AND due <= {_NOW} AND held_until <= {_NOW}
    ORDER BY priority DESC, seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING {_WAKE}
"""  # noqa: S608 - constants
# The caller compares with its own clock, which may differ from the server's.
_HELD = f"CASE WHEN held_until > 0 THEN greatest(held_until - {_NOW} + %(now)s, 1) ELSE 0 END"
_WAKES = f"SELECT run_id, due, queue, priority, seq, {_HELD} FROM wakes"  # noqa: S608 - constants
_HOLD = f"UPDATE wakes SET held_until = {_NOW} + %s WHERE seq = ANY(%s)"  # noqa: S608 - constants

_REPORT = f"""
WITH removed AS (DELETE FROM workers WHERE seen < {_NOW} - %(old)s AND id <> %(id)s)
INSERT INTO workers VALUES (%(id)s, %(report)s, {_NOW})
ON CONFLICT (id) DO UPDATE SET report = excluded.report, seen = excluded.seen
"""  # noqa: S608 - constants


class PostgresJournal(StoredJournal[Link]):
    """The journal at an address, which is prepared if needed. `Journal` documents the methods."""

    is_remote: ClassVar[bool] = True

    def __init__(self, address: JournalAddress) -> None:
        self.address = address
        self._writer = Link(address)
        self._reader = Link(address)
        self._writer.open()
        try:
            self._writer.run(lambda connection: prepare(connection, address))
        except BaseException:
            self._writer.close()
            raise
        self._leases = Leases(self._reader, address.lease)
        self._run_list = postgres_source(self._reader)
        self._keeper = Keeper(address, self._leases)
        self._leases.on_claim = self._keeper.start
        self._appender = Appender(self._writer, self._leases, self._all_events)
        self._close_lock = threading.Lock()
        self._is_open = True

    # -- writing --------------------------------------------------------------------------------------

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        results = self._appender.append_many(batches)
        if woken := [one.run_id for batch in batches for one in batch.wakes]:
            self._keeper.hint(woken)
        return results

    def restore(self, batch: Batch, imported: str) -> int:
        return self._appender.restore(batch, imported)

    def import_runs(self, batches: Sequence[Batch], origin: str) -> None:
        self._appender.import_runs(batches, origin)

    def _select(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        if not all(can_store(value) for value in values if isinstance(value, str)):
            return []
        return self._reader.rows(query.replace("?", "%s"), values)

    def _change(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        check_names(*(value for value in values if isinstance(value, str)))
        return self._writer.rows(query.replace("?", "%s"), values)

    def _has_documents(self) -> bool:
        return self._reader.rows("SELECT to_regclass('documents') IS NOT NULL")[0][0] is True

    def _make_documents(self) -> None:
        self._writer.run(lambda connection: add_tables(connection, self.address, POSTGRES_DOCUMENTS))

    def _all_events(self, run_id: str) -> Iterator[Event]:
        """The events of a run and its origins, as the writing connection sees them inside its transaction."""
        return self._read(run_id, 0, self._writer)

    # -- reading --------------------------------------------------------------------------------------

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Read in pages of one short transaction each."""
        return self._read(run_id, after, self._reader)

    def _last_commit(self, head: Head, seq: int, source: Link) -> tuple[int, bytes] | None:
        found = source.rows(_LAST, (head.key, seq))
        return found[0] if found else None

    def _next_commits(self, head: Head, after: int, source: Link) -> list[Any]:
        return source.rows(_COMMITS, (head.key, after, _COMMITS_PER_PAGE))

    def blob(self, hash: str) -> bytes:
        try:
            name = bytes.fromhex(hash)
        except ValueError:
            raise BlobMissing(f"`{hash}` is not a blob hash") from None
        found = self._reader.rows("SELECT content FROM blobs WHERE hash = %s", (name,))
        if not found:
            raise BlobMissing(f"blob `{hash}` is missing")
        content = bytes(found[0][0])
        if digest(content) != hash:
            raise BlobMissing(f"blob `{hash}` is damaged: its content does not match its hash")
        return content

    def find(self, run_id: str) -> RunRow | None:
        head = self._head(run_id, self._reader)
        return head.row if head else None

    def _head(self, run_id: str, link: Link) -> Head | None:
        if not can_store(run_id):
            return None
        found = link.rows(f"{SELECT_HEAD} WHERE run_id = %s", (run_id,))
        return self._to_head(found[0]) if found else None

    def _to_head(self, columns: Any) -> Head:
        try:
            return decode_head(columns)
        except RowDamaged as error:
            raise StoreDamaged(f"the journal `{self.address}` is damaged: {error}") from error

    def runs(self, prefix: str = "") -> list[RunRow]:
        if not can_store(prefix):
            return []
        where, values = ("WHERE run_id >= %s AND run_id < %s", (prefix, f"{prefix}\U0010ffff")) if prefix else ("", ())
        found = self._reader.rows(f"{SELECT_HEAD} {where} ORDER BY started DESC, run_id DESC", values)
        return [self._to_head(columns).row for columns in found]

    def page(self, query: RunQuery, limit: int, after: str = "") -> list[RunRow]:
        if not all(map(can_store, (query.skill or "", query.prefix, after))):
            return []
        return self._listed(lambda: read_page(self._run_list, query, limit, after))

    def count_by_status(self) -> dict[Status, int]:
        return self._listed(lambda: read_counts(self._run_list))

    def unindexed(self, limit: int) -> list[UnindexedRun]:
        return self._listed(lambda: read_unindexed(self._run_list, limit))

    def count_unindexed(self) -> int:
        return read_count(self._run_list)

    def store_words(self, found: Sequence[IndexedRun]) -> None:
        self._reader.run(lambda connection: replace_words(connection, found))

    def _listed(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except RowDamaged as error:
            raise StoreDamaged(f"the journal `{self.address}` is damaged: {error}") from error

    def reserving(self) -> list[RunRow]:
        return [
            self._to_head(columns).row for columns in self._reader.rows(f"{SELECT_HEAD} WHERE reserving ORDER BY id")
        ]

    # -- the inbox ------------------------------------------------------------------------------------

    def post(self, run_id: str, payload: InboxPayload, wakes: Sequence[Wake] = ()) -> int:
        values = {"run": run_id, "payload": encode_payload(payload), "token": uuid.uuid4()}
        check_names(run_id)
        is_repeated = False

        def store(connection: PgConnection) -> int:
            nonlocal is_repeated
            if is_repeated and (found := fetch(connection, _POSTED, (run_id, values["token"]))):
                return int(found[0][0])
            is_repeated = True
            with connection.transaction():
                [(number,)] = fetch(connection, _POST, values)
                if wakes:
                    change(connection, STORE_WAKES, wake_values(wakes))
            return int(number)

        number = self._writer.run(store)
        self._keeper.hint([run_id, *(one.run_id for one in wakes)])
        return number

    def drain(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        found = self._reader.rows(_DRAIN, (run_id, after)) if can_store(run_id) else []
        return [InboxMessage(number, decode_payload(bytes(payload))) for number, payload in found]

    def peek(self, run_id: str, after: int = 0) -> list[InboxMessage]:
        found = self._keeper.messages(run_id, after)
        if found is None:
            found = self.drain(run_id, after)
            if self._leases.fence_of(run_id) is not None:
                self._keeper.watch(run_id, after, found)
        return found

    # -- claims ---------------------------------------------------------------------------------------

    @contextmanager
    def claim(self, run_id: str) -> Iterator[None]:
        check_names(run_id)
        with self._leases.hold(run_id):
            try:
                yield
            finally:
                self._keeper.forget(run_id)

    def is_claimed(self, run_id: str) -> bool:
        return self._leases.is_held(run_id)

    def claimed(self, names: Collection[str]) -> set[str]:
        return self._leases.held_of(names)

    def check_claim(self, run_id: str) -> None:
        self._leases.check(run_id)

    def claims(self) -> list[HeldClaim]:
        """Return the claims of all processes, by run."""
        return [HeldClaim(*columns) for columns in self._reader.rows(ALL_CLAIMS)]

    # -- rates ----------------------------------------------------------------------------------------

    def take_rate(self, name: str, need: RateNeed) -> RateSlice | RateRefusal:
        attempts = iter((need,))

        def take(connection: PgConnection) -> RateSlice | RateRefusal:
            current = next(attempts, None) or need.repeated()
            with connection.transaction():
                change(connection, "INSERT INTO rates VALUES (%s, '') ON CONFLICT DO NOTHING", (name,))
                [(stored,)] = fetch(connection, "SELECT state FROM rates WHERE name = %s FOR UPDATE", (name,))
                [(now,)] = fetch(connection, f"SELECT {_NOW}")  # after the lock, so that time does not go back
                state, found = lease(decode_rates(bytes(stored) or None), current, now)
                change(connection, "UPDATE rates SET state = %s WHERE name = %s", (encode_rates(state), name))
            return found

        return self._reader.run(take)

    # -- wakes ----------------------------------------------------------------------------------------

    def take_wakes(self, queues: Collection[str], limit: int, hold: float) -> list[PendingWake]:
        values = {"queues": list(queues), "limit": limit, "hold": round(hold * 1_000_000)}
        taken = [to_wake(columns) for columns in self._reader.rows(_TAKE, values)]
        return sorted(taken, key=lambda one: (-one.priority, one.seq))

    def hold_wakes(self, seqs: Collection[int], hold: float) -> None:
        self._reader.run(lambda connection: change(connection, _HOLD, (round(hold * 1_000_000), list(seqs))))

    def finish_wakes(self, seqs: Collection[int]) -> None:
        self._reader.run(
            lambda connection: change(connection, "DELETE FROM wakes WHERE seq = ANY(%s::bigint[])", (list(seqs),))
        )

    def wakes(self, run_id: str | None = None) -> list[PendingWake]:
        where = "" if run_id is None else " WHERE run_id = %(run)s"
        return self._wakes(f"{_WAKES}{where} ORDER BY seq", run=run_id)

    def first_wakes(self, queue: str, limit: int) -> list[PendingWake]:
        query = f"{_WAKES} WHERE queue = %(queue)s ORDER BY priority DESC, seq LIMIT %(limit)s"
        return self._wakes(query, queue=queue, limit=limit)

    def _wakes(self, query: str, **values: Any) -> list[PendingWake]:
        return [to_wake(columns) for columns in self._reader.rows(query, values | {"now": microseconds()})]

    def subscribe(self, callback: Callable[[Collection[str]], None]) -> Callable[[], None]:
        """Call a function, in another thread, when runs get messages or wakes: with their ids, or none if unknown.

        A hint can be lost, so it replaces no query. Returns a function that ends the subscription.
        """
        return self._keeper.subscribe(callback)

    # -- workers --------------------------------------------------------------------------------------

    def report_worker(self, report: WorkerReport) -> None:
        values = {"id": report.id, "report": msgspec.json.encode(report), "old": FORGOTTEN_AFTER}
        self._reader.run(lambda connection: change(connection, _REPORT, values))

    def forget_worker(self, worker_id: str) -> None:
        self._reader.run(lambda connection: change(connection, "DELETE FROM workers WHERE id = %s", (worker_id,)))

    def workers(self) -> list[WorkerReport]:
        found = self._reader.rows(f"SELECT report, {_NOW} - seen FROM workers ORDER BY id")  # noqa: S608 - constants
        now = microseconds()  # the caller compares with its own clock, which may differ from the server's
        return [msgspec.structs.replace(to_report(report), seen=now - age) for report, age in found]

    # -- spending ------------------------------------------------------------------------------------

    def balance(self, account: str) -> Balance:
        return Balance(*self._reader.rows(SHARES_BALANCE, (account,))[0])

    def charges(self, since: str = "") -> list[SpendRow]:
        def select(connection: PgConnection) -> list[SpendRow]:
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                query = "SELECT * FROM spending WHERE day >= %s"
                found = [SpendRow(*columns) for columns in fetch(connection, query, (since,))]
                query = "SELECT state FROM runs WHERE charged <> '' AND charged >= %s"
                for (state,) in fetch(connection, query, (since,)):
                    found += [row for row in decode_spent(bytes(state)) if row.day >= since]
            return total_charges(found)

        return self._reader.run(select)

    def ledger(self) -> Bookkeeping:
        return self._reader.run(lambda connection: ledger.fetch_ledger(connection, self.charges()))

    def restore_ledger(self, found: Bookkeeping) -> None:
        self._writer.run(lambda connection: ledger.replace_ledger(connection, found))
        self._appender.forget()

    # -- deleting -------------------------------------------------------------------------------------

    def delete(self, run_ids: Collection[str], *, dry_run: bool = False) -> Deletion:
        wanted = {run_id for run_id in run_ids if "\0" not in run_id}
        return self._writer.run(
            lambda connection: deletion.remove_runs(connection, wanted, self.is_claimed, dry_run=dry_run)
        )

    def inspect(self) -> Inspection:
        """Return the state of the database."""
        return self._reader.run(inspect)

    def forget_removals(self, run_ids: Collection[str]) -> None:
        query = "DELETE FROM removals WHERE run_id = ANY(%s::text[])"
        self._writer.run(lambda connection: change(connection, query, (list(run_ids),)))

    def close(self) -> None:
        with self._close_lock:
            if not self._is_open:
                return
            self._is_open = False
        self._keeper.close()
        with suppress(JournalError):  # the shares count in any case, and the lease ends by itself
            self._writer.run(self._appender.close, retry_seconds=0)
            self._reader.run(self._leases.give_back, retry_seconds=0)
        self._writer.close()
        self._reader.close()
