"""Appends to a PostgreSQL journal: one round trip for a batch, and one transaction for the batches of several runs.

Each batch is one statement. It stores nothing unless the row of its run has the expected last event and the fence of
the claim. Rows of runs are locked in the order of their ids, content in the order of its hashes, so that transactions
never wait for each other in a circle.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from psycopg import errors
from psycopg.pq import TransactionStatus

from reyn.errors import AppendConflict, EventInvalid, JournalError
from reyn.journal.lifecycle import RunRow, is_listed_alike
from reyn.journal.packing import pack
from reyn.journal.port import Batch, admit
from reyn.journal.postgres import shares
from reyn.journal.postgres.link import can_store, change, fetch
from reyn.journal.postgres.shares import POSTED, Shares
from reyn.journal.rows import ACTIVITY, COLUMNS, FIXED, Head, Spent, add_charges, decode_head, encode_state, state_of
from reyn.journal.spending import Posting

if TYPE_CHECKING:
    import psycopg

    from reyn.journal.canonical import Blob
    from reyn.journal.postgres.leases import Leases
    from reyn.journal.postgres.link import Link, PgConnection
    from reyn.journal.spending import SpendRow
    from reyn.journal.wakes import Wake

    Cursor = psycopg.Cursor[tuple[Any, ...]]
    EventsOf = Callable[[str], Any]

_LARGE_BLOB = 256_000
"""Blobs of this size are stored before their batch, so that they do not delay the batches of other runs."""
_MAX_HEADS = 8_192
_MAX_STORED = 65_536

SELECT_HEAD = f"SELECT id, {', '.join(COLUMNS)}, hash, state FROM runs"  # noqa: S608 - constants
_CHANGING = ("seq", "updated", "hash", "state", "status", "taken", "charged", "reserving", "active")
_UPDATE = f"""
WITH run AS (
    UPDATE runs SET {", ".join(f"{name} = %({name})s" for name in _CHANGING)},
        unindexed = CASE WHEN %(alike)s THEN unindexed ELSE %(seq)s END
    WHERE id = %(id)s AND seq = %(expected)s AND hash = %(prev)s AND (%(fence)s::bigint IS NULL OR fence = %(fence)s)
        AND (SELECT epoch FROM journal) = %(epoch)s
    RETURNING id),
"""  # noqa: S608 - constants
_INSERT = f"""
WITH claim AS (SELECT fence FROM claims WHERE run_id = %(run_id)s AND fence = %(fence)s FOR SHARE),
run AS (
    INSERT INTO runs ({", ".join((*FIXED, *_CHANGING, "fence"))})
    SELECT {", ".join(f"%({name})s" for name in (*FIXED, *_CHANGING))}, coalesce(%(fence)s,
        (SELECT fence FROM claims WHERE run_id = %(run_id)s), 0)
    WHERE (%(fence)s::bigint IS NULL OR EXISTS (SELECT FROM claim)) AND (SELECT epoch FROM journal) = %(epoch)s
    ON CONFLICT (run_id) DO NOTHING RETURNING id),
"""  # noqa: S608 - constants
_STORED = """
stored AS (
    INSERT INTO blobs SELECT * FROM unnest(%(names)s::bytea[], %(contents)s::bytea[]) WHERE EXISTS (SELECT FROM run)
    ON CONFLICT DO NOTHING)
"""
_WOKEN = """
woken AS (
    INSERT INTO wakes (run_id, due, queue, priority, held_until)
    SELECT *, 0 FROM unnest(%(woken)s::text[], %(dues)s::bigint[], %(queues)s::text[], %(priorities)s::bigint[])
    WHERE EXISTS (SELECT FROM run))
"""
_COMMIT = """
INSERT INTO commits (run, seq, hashes, events) SELECT id, %(seq)s, %(hashes)s, %(events)s FROM run
"""
_KEY = " RETURNING run"
# The only conflict that is an error: another process took a grant in this very moment. The whole commit is repeated.
_GUARD = """
WHERE 1 / (CASE WHEN (SELECT count(*) FROM posted) = %(posted)s OR NOT EXISTS (SELECT FROM run) THEN 1 ELSE 0 END) = 1
"""
_BLOBS = "INSERT INTO blobs SELECT * FROM unnest(%s::bytea[], %s::bytea[]) ON CONFLICT DO NOTHING"
_CHARGE = """
INSERT INTO spending AS s VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (day, run_id, model, currency) DO UPDATE SET
    calls = s.calls + excluded.calls, input_tokens = s.input_tokens + excluded.input_tokens,
    output_tokens = s.output_tokens + excluded.output_tokens, cached_tokens = s.cached_tokens + excluded.cached_tokens,
    thinking_tokens = s.thinking_tokens + excluded.thinking_tokens, cost = s.cost + excluded.cost,
    assumed = s.assumed + excluded.assumed
"""
STORE_WAKES = """
INSERT INTO wakes (run_id, due, queue, priority, held_until)
SELECT *, 0 FROM unnest(%(woken)s::text[], %(dues)s::bigint[], %(queues)s::text[], %(priorities)s::bigint[])
"""


class _Plan(msgspec.Struct):
    """One admitted batch: its statement, and what the process knows afterwards."""

    index: int
    batch: Batch
    row: RunRow
    spent: Spent
    closed: Spent
    accounts: dict[str, Posting]
    query: str
    values: dict[str, Any]


class Appender:
    """The commits of one process, one at a time."""

    def __init__(self, link: Link, leases: Leases, history: EventsOf) -> None:
        self._link = link
        self._leases = leases
        self._history = history
        self._shares = Shares(str(leases.id), leases.register)
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._stored: OrderedDict[str, None] = OrderedDict()
        """The hashes of content that is stored, unless a run was deleted since."""
        self._epoch = -1
        self._is_uncertain = False
        """Whether a connection was lost, so that a commit may have succeeded."""
        link.on_loss = self.forget

    def forget(self) -> None:
        """Forget what is stored: the connection was lost, or a transaction failed."""
        self._heads.clear()
        self._stored.clear()
        self._shares.forget()
        self._epoch = -1
        self._is_uncertain = True

    # -- appending ------------------------------------------------------------------------------------

    def append_many(self, batches: Sequence[Batch]) -> list[int | JournalError]:
        """Store batches of different runs in one transaction. A rejected batch does not affect the others."""
        with self._link.lock:
            for blob in [one for batch in batches for one in batch.blobs if len(one.content) >= _LARGE_BLOB]:
                self._link.run(partial(self._store_blobs, blobs=[blob]))
            self._is_uncertain = False
            results = self._link.run(lambda connection: self._commit(connection, batches))
            return [
                self._link.run(partial(self._alone, batch=batch)) if result is None else result
                for batch, result in zip(batches, results, strict=True)
            ]

    def _commit(
        self,
        connection: PgConnection,
        batches: Sequence[Batch],
        *,
        is_current: bool = False,
        restored: str | None = None,
    ) -> list[int | JournalError | None]:
        """Store batches in one transaction. The result of a batch that has to be tried alone is `None`.

        Args:
            connection: The connection.
            batches: The batches.
            is_current: Whether the heads of their runs were read just now.
            restored: `RunRow.imported` of a run that is restored.
        """
        self._refresh(connection)
        results: list[int | JournalError | None] = [None] * len(batches)
        plans, heads = [], dict[str, Head]()
        for index, batch in enumerate(batches):
            try:
                plan = self._plan(connection, index, batch, heads, restored=restored)
            except JournalError as error:
                # What this process knows of the run may be out of date, or the batch may be stored already.
                is_stale = isinstance(error, AppendConflict) and not is_current
                results[index] = None if is_stale else error
                self._heads.pop(batch.run_id, None)
                continue
            if plan is None:
                results[index] = batch.expected_seq
            else:
                plans.append(plan)
        plans.sort(key=lambda plan: plan.batch.run_id)
        try:
            keys = self._execute(connection, plans)
        except errors.DivisionByZero:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.rollback()
            self._shares.forget()
            return results
        for plan, key in zip(plans, keys, strict=True):
            if key is not None:
                self._remember(plan, key)
                results[plan.index] = plan.row.seq
            else:
                self._heads.pop(plan.batch.run_id, None)
        if None in keys:
            self._shares.forget()
            self._epoch = -1
        self._shares.committed()
        return results

    def _alone(self, connection: PgConnection, batch: Batch) -> int | JournalError:
        """Store one batch after it was found that this process knew too little, or explain why it is rejected."""
        while True:
            self._heads.pop(batch.run_id, None)
            head = self._head(connection, batch.run_id)
            if head is not None and self._is_uncertain and _ends_with(head.row, batch):
                return head.row.seq  # the commit succeeded before the connection was lost
            fence = self._leases.fence_of(batch.run_id)
            if fence is not None and not self._has_fence(connection, batch.run_id, fence):
                return self._leases.lost(batch.run_id)
            [result] = self._commit(connection, [batch], is_current=True)
            if result is not None:
                return result

    def _has_fence(self, connection: PgConnection, run_id: str, fence: int) -> bool:
        return bool(fetch(connection, "SELECT 1 FROM claims WHERE run_id = %s AND fence = %s", (run_id, fence)))

    def restore(self, batch: Batch, imported: str) -> int:
        """Store events that another journal has recorded."""
        with self._link.lock:
            self._is_uncertain = False
            result = self._link.run(partial(self._restore, batch=batch, imported=imported))
        if isinstance(result, JournalError):
            raise result
        return result

    def _restore(self, connection: PgConnection, batch: Batch, imported: str) -> int | JournalError:
        for blob in batch.blobs:
            self._store_blobs(connection, [blob])
        while True:
            head = self._head(connection, batch.run_id)
            if head is not None and self._is_uncertain and _ends_with(head.row, batch):
                return head.row.seq  # the commit succeeded before the connection was lost
            [result] = self._commit(connection, [batch], is_current=True, restored=imported)
            if result is not None:
                return result

    def import_runs(self, batches: Sequence[Batch], origin: str) -> None:
        """Store whole runs in one transaction, all of them or none."""
        self._is_uncertain = False
        self._link.run(lambda connection: self._import(connection, batches, origin))

    def _import(self, connection: PgConnection, batches: Sequence[Batch], origin: str) -> None:
        if self._is_uncertain and all(
            (head := self._head(connection, batch.run_id)) is not None and _ends_with(head.row, batch)
            for batch in batches
        ):
            return
        self._refresh(connection)
        with connection.transaction():
            heads: dict[str, Head] = {}
            for index, batch in enumerate(batches):
                plan = self._plan(connection, index, batch, heads, origin)
                if plan is None:
                    continue
                key = _key(connection.execute(plan.query.encode(), plan.values))
                if key is None:
                    raise AppendConflict(f"run `{batch.run_id}` exists already: another process stored it")
                heads[batch.run_id] = Head(key, plan.row, plan.spent)
        self.forget()

    # -- one batch ------------------------------------------------------------------------------------

    def _plan(
        self,
        connection: PgConnection,
        index: int,
        batch: Batch,
        heads: dict[str, Head],
        origin: str = "",
        restored: str | None = None,
    ) -> _Plan | None:
        """Check a batch, and prepare its statement; `None` if it has no events. Raises a `JournalError`."""
        run_id = batch.run_id
        head = heads.get(run_id) or self._heads.get(run_id)
        if head is None and (batch.expected_seq or origin):
            head = self._head(connection, run_id)
        admitted = admit(batch, head.row if head else None, self._history, origin, restored)
        if admitted is None:
            if batch.blobs:
                self._store_blobs(connection, batch.blobs)
            if batch.wakes:
                change(connection, STORE_WAKES, wake_values(batch.wakes))
            return None
        row, found = admitted
        check_names(row.run_id, row.skill, row.parent, row.fork_of)
        spent: Spent = head.spent if head else ()
        closed: Spent = ()
        accounts: dict[str, Posting] = {}
        if found is not None:
            accounts = found.accounts
            self._shares.prepare(connection, accounts)
            self._shares.post(accounts)
            spent, closed = add_charges(spent, found.rows)
        query, values = self._statement(batch, head, row, spent, accounts)
        heads[run_id] = Head(head.key if head else 0, row, spent)
        return _Plan(index, batch, row, spent, closed, accounts, query, values)

    def _statement(
        self, batch: Batch, head: Head | None, row: RunRow, spent: Spent, accounts: dict[str, Posting]
    ) -> tuple[str, dict[str, Any]]:
        text, hashes = pack(batch.events)
        state = state_of(row, spent)
        values: dict[str, Any] = {
            "seq": row.seq,
            "updated": row.updated,
            "hash": bytes.fromhex(row.hash),
            "state": encode_state(state),
            "status": row.status,
            "taken": row.messages_taken,
            "charged": spent[-1].day if spent else "",
            "reserving": row.reserved is not None and not row.imported,
            "active": row.updated // ACTIVITY,
            "fence": self._leases.fence_of(batch.run_id),
            "epoch": self._epoch,
            "hashes": bytes(hashes),
            "events": bytes(text),
        }
        if head is None:
            query = _INSERT
            values |= {name: getattr(row, name) for name in FIXED}
            values["imported"] = row.imported.encode(errors="backslashreplace").decode().replace("\0", "\\0")
        else:
            query = _UPDATE
            values |= {"run_id": batch.run_id, "expected": head.row.seq, "prev": bytes.fromhex(head.row.hash)}
            # A run that an earlier batch of the same commit began has no key yet.
            values |= {"id": head.key, "alike": is_listed_alike(head.row, row)}
        new = [one for one in batch.blobs if one.hash not in self._stored]
        contents = {one.hash: one.content for one in sorted(new, key=lambda one: one.hash)}
        values |= {"names": [bytes.fromhex(name) for name in contents], "contents": list(contents.values())}
        parts = [_STORED]
        if accounts:
            parts.append(POSTED)
            values |= shares.values(accounts, str(self._leases.id)) | {"posted": len(accounts)}
        if batch.wakes:
            parts.append(_WOKEN)
            values |= wake_values(batch.wakes)
        return f"{query}{','.join(parts)}{_COMMIT}{_GUARD if accounts else ''}{_KEY}", values

    def _execute(self, connection: PgConnection, plans: list[_Plan]) -> list[int | None]:
        """Execute statements in one transaction and one round trip.

        Returns the key of the run of each; `None` where nothing was stored.
        """
        if not plans:
            return []
        charges = [row for plan in plans for row in plan.closed]
        if len(plans) == 1 and not charges:
            return [_key(connection.execute(plans[0].query.encode(), plans[0].values, prepare=True))]
        names: dict[bytes, bytes] = {}
        for plan in plans:
            names |= dict(zip(plan.values["names"], plan.values["contents"], strict=True))
            plan.values |= {"names": [], "contents": []}
        ordered = dict(sorted(names.items()))
        with connection.pipeline(), connection.transaction():
            if ordered:
                change(connection, _BLOBS, (list(ordered), list(ordered.values())))
            cursors = [connection.execute(plan.query.encode(), plan.values, prepare=True) for plan in plans]
            add_spending(connection, charges)
        return [_key(cursor) for cursor in cursors]

    def _remember(self, plan: _Plan, key: int) -> None:
        """Remember the head of a run, and which content is stored."""
        self._set_head(plan.batch.run_id, Head(key, plan.row, plan.spent))
        self._stored.update((one.hash, None) for one in plan.batch.blobs)
        while len(self._stored) > _MAX_STORED:
            self._stored.popitem(last=False)

    # -- what is stored -------------------------------------------------------------------------------

    def _refresh(self, connection: PgConnection) -> None:
        """Forget which content is stored if a run was deleted since."""
        if self._epoch < 0:
            [(epoch,)] = fetch(connection, "SELECT epoch FROM journal")
            self._stored.clear()
            self._epoch = epoch

    def _store_blobs(self, connection: PgConnection, blobs: Iterable[Blob]) -> None:
        self._refresh(connection)
        contents = {bytes.fromhex(one.hash): one.content for one in blobs if one.hash not in self._stored}
        if contents:
            ordered = dict(sorted(contents.items()))
            change(connection, _BLOBS, (list(ordered), list(ordered.values())))
            self._stored.update((name.hex(), None) for name in ordered)

    def _head(self, connection: PgConnection, run_id: str) -> Head | None:
        """Read the head of a run, and remember it."""
        found = fetch(connection, f"{SELECT_HEAD} WHERE run_id = %s", (run_id,))
        if not found:
            return None
        head = decode_head(found[0])
        self._set_head(run_id, head)
        return head

    def _set_head(self, run_id: str, head: Head) -> None:
        self._heads[run_id] = head
        self._heads.move_to_end(run_id)
        while len(self._heads) > _MAX_HEADS:
            self._heads.popitem(last=False)

    def close(self, connection: PgConnection) -> None:
        """Give back the shares of budget accounts."""
        self._shares.give_back(connection)


def _key(cursor: Cursor) -> int | None:
    found = cursor.fetchone()
    return int(found[0]) if found else None


def _ends_with(row: RunRow, batch: Batch) -> bool:
    """Return whether the last event of a run is that of a batch."""
    return bool(batch.events) and (row.seq, row.hash) == (batch.events[-1].seq, batch.events[-1].hash)


def check_names(*names: str) -> None:
    """Raise `EventInvalid` for a name that PostgreSQL cannot store as text."""
    for name in names:
        if not can_store(name):
            raise EventInvalid(f"{name!r} contains a NUL character, or a lone surrogate")


def add_spending(connection: PgConnection, rows: Sequence[SpendRow]) -> None:
    """Add charges to the table, where they outlive their run."""
    for row in sorted(rows, key=lambda row: row.key):
        connection.execute(_CHARGE, msgspec.structs.astuple(row))


def wake_values(wakes: Sequence[Wake]) -> dict[str, Any]:
    """Return the values of `STORE_WAKES`."""
    check_names(*(one.run_id for one in wakes), *(one.queue for one in wakes))
    return {
        "woken": [one.run_id for one in wakes],
        "dues": [one.due for one in wakes],
        "queues": [one.queue for one in wakes],
        "priorities": [one.priority for one in wakes],
    }
