"""Rows of the SQLite journal: runs, spending, and what a deletion removes. Callers hold the transaction.

Every call changes its accounts, which share a page or two. What a run was charged today is a column of its row, which
each commit writes anyway; it moves to the table `spending` when the day or the model changes, and when the run is
deleted.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.journal.canonical import canonical
from reyn.journal.kinds import Charge
from reyn.journal.lifecycle import RunRow
from reyn.journal.port import Deletion, hashes_in
from reyn.journal.spending import Balance, Postings, SpendRow, check_cap, in_full, postings, run_accounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    Spent = tuple[SpendRow, ...]

# -- runs -------------------------------------------------------------------------------------------------

_FIXED = ("run_id", "skill", "rules", "started", "parent", "fork_of", "fork_seq", "imported")
_CHANGING = ("seq", "hash", "status", "phase", "reason", "updated", "wait", "messages_taken", "charge", "reserved")
_FIELDS = (*_FIXED, *_CHANGING)
SELECT = f"SELECT id, spent, {', '.join(_FIELDS)} FROM runs"  # noqa: S608 - constants
_INSERT = f"INSERT INTO runs ({', '.join(_FIELDS)}, spent) VALUES (?{', ?' * len(_FIELDS)})"  # noqa: S608 - constants
_UPDATE = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in (*_CHANGING, 'spent'))} WHERE id = ? AND seq = ?"  # noqa: S608 - constants
_NO_CHARGE = Charge()
_decode_spent = msgspec.json.Decoder(tuple[SpendRow, ...]).decode
_JSON: dict[str, Any] = {"wait": None, "charge": _NO_CHARGE, "reserved": None}
"""The columns that hold JSON, and the value of an empty one."""


class Head(NamedTuple):
    """A run's key in the database, its row, and the charges in it."""

    key: int
    row: RunRow
    spent: Spent = ()


def to_head(columns: tuple[Any, ...]) -> Head:
    """Return a run from the columns of `SELECT`. Raises `sqlite3.DatabaseError` if they are damaged."""
    return Head(columns[0], to_row(columns), _decode_spent(columns[1]) if columns[1] else ())


def to_row(columns: tuple[Any, ...]) -> RunRow:
    """Return the row of a run from the columns of `SELECT`. Raises `sqlite3.DatabaseError` if they are damaged."""
    fields = dict(zip(_FIELDS, columns[2:], strict=True))
    if not isinstance(fields["hash"], bytes):
        raise sqlite3.DatabaseError(f"the row of run {fields['run_id']!r} has no hash")
    fields["hash"] = fields["hash"].hex()
    try:
        for name, empty in _JSON.items():
            fields[name] = msgspec.json.decode(fields[name]) if fields[name] else empty
        return msgspec.convert(fields, RunRow)
    except (msgspec.MsgspecError, TypeError) as error:
        raise sqlite3.DatabaseError(f"the row of run {fields['run_id']!r} is invalid: {error}") from error


def insert_run(connection: sqlite3.Connection, row: RunRow, spent: Spent) -> int:
    """Insert the row of a new run; return its key."""
    fixed = [getattr(row, name) for name in _FIXED]
    cursor = connection.execute(_INSERT, (*fixed, *_changing(row, spent)))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def update_run(connection: sqlite3.Connection, head: Head, row: RunRow, spent: Spent) -> bool:
    """Update a run's row. Returns false if the row is not at `head`."""
    cursor = connection.execute(_UPDATE, (*_changing(row, spent), head.key, head.row.seq))
    return cursor.rowcount == 1


def _changing(row: RunRow, spent: Spent) -> tuple[Any, ...]:
    return (
        row.seq,
        bytearray.fromhex(row.hash),  # sqlite3 searches for an adapter of every value that is `bytes`
        row.status,
        row.phase,
        row.reason,
        row.updated,
        _to_json(row.wait),
        row.messages_taken,
        "" if row.charge == _NO_CHARGE else _to_json(row.charge),
        _to_json(row.reserved),
        msgspec.json.encode(spent).decode() if spent else "",
    )


def _to_json(value: msgspec.Struct | None) -> str:
    return "" if value is None else canonical(value).decode()


# -- spending ---------------------------------------------------------------------------------------------

_POST = """
INSERT INTO budget_accounts VALUES (?, ?, ?, ?, ?) ON CONFLICT (account) DO UPDATE SET
    tokens = tokens + excluded.tokens, cost = cost + excluded.cost,
    reserved_tokens = reserved_tokens + excluded.reserved_tokens, reserved_cost = reserved_cost + excluded.reserved_cost
"""
_CHARGE = """
INSERT INTO spending VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (day, run_id, model, currency) DO UPDATE SET
    calls = calls + excluded.calls, input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens, cached_tokens = cached_tokens + excluded.cached_tokens,
    cost = cost + excluded.cost, assumed = assumed + excluded.assumed
"""
BALANCE = "SELECT tokens, cost, reserved_tokens, reserved_cost FROM budget_accounts WHERE account = ?"
_MAX_SPENT = 4
"""The models whose charges a run's row holds; more would make every commit of the run larger."""


class Accounts:
    """The budget accounts of a journal that this connection changes. Balances are cached until `forget`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._balances: dict[str, Balance] = {}

    def forget(self) -> None:
        """Read balances again: another connection wrote, or a transaction failed."""
        self._balances.clear()

    def check(self, found: Postings) -> None:
        """Check the caps of the accounts that a batch draws on. Raises `BudgetExceeded`; nothing is changed."""
        for account, posting in found.accounts.items():
            if posting.draw is not None:
                before = self._balances.get(account)
                if before is None:
                    before = to_balance(self._connection.execute(BALANCE, (account,)).fetchall())
                    self._balances[account] = before
                check_cap(posting, posting.added_to(before))

    def post(self, found: Postings) -> None:
        """Apply the effects of a batch on accounts."""
        rows = []
        for account, one in found.accounts.items():
            rows.append((account, one.tokens, one.cost, one.reserved_tokens, one.reserved_cost))
            if account in self._balances:
                self._balances[account] = one.added_to(self._balances[account])
        self._connection.executemany(_POST, rows)


def add_charges(spent: Spent, charges: list[SpendRow]) -> tuple[Spent, Spent]:
    """Add charges to those that a run's row holds.

    Returns:
        The charges for the row, and those to store: they are of an earlier day, or there are too many models.
    """
    closed: Spent = ()
    for charge in charges:
        for index, known in enumerate(spent):
            if known.key == charge.key:
                spent = (*spent[:index], known.plus(charge), *spent[index + 1 :])
                break
        else:
            if spent and (len(spent) == _MAX_SPENT or spent[0].day != charge.day):
                closed, spent = closed + spent, ()
            spent = (*spent, charge)
    return spent, closed


def store_charges(connection: sqlite3.Connection, spent: Spent) -> None:
    """Add charges to the table, where they outlive their run."""
    if spent:
        connection.executemany(_CHARGE, [msgspec.structs.astuple(row) for row in spent])


def to_balance(found: list[Any]) -> Balance:
    """Return the balance of an account from the rows of `BALANCE`; zero if nothing drew on it."""
    return Balance(*found[0]) if found else Balance()


def charges_since(connection: sqlite3.Connection, day: str) -> list[SpendRow]:
    """Return what was charged from a day on, oldest first."""
    rows: dict[tuple[str, str, str, str], SpendRow] = {}
    found = [SpendRow(*columns) for columns in connection.execute("SELECT * FROM spending WHERE day >= ?", (day,))]
    for (column,) in connection.execute("SELECT spent FROM runs WHERE spent != ''"):
        found += [row for row in _decode_spent(column) if row.day >= day]
    for row in found:
        known = rows.get(row.key)
        rows[row.key] = row if known is None else known.plus(row)
    return [rows[key] for key in sorted(rows)]


def close_accounts(connection: sqlite3.Connection, heads: Iterable[Head]) -> None:
    """Store the charges of runs that are about to be deleted, charge their open reservations in full, and delete the
    runs' own accounts."""
    accounts = Accounts(connection)
    for _, row, spent in heads:
        store_charges(connection, spent)
        if row.reserved is not None and not row.imported:
            posted = postings(row.run_id, row.skill, row.reserved, [in_full(row.reserved)])
            assert posted is not None
            accounts.post(posted)
            store_charges(connection, tuple(posted.rows))
        connection.execute("DELETE FROM budget_accounts WHERE account IN (?, ?)", run_accounts(row.run_id))


# -- deletion ---------------------------------------------------------------------------------------------


def count(connection: sqlite3.Connection, keys: dict[str, int]) -> tuple[Deletion, list[bytes]]:
    """Count what deleting these runs removes; return the count and the hashes of content that no other run uses."""
    events, size, names = 0, 0, set[str]()
    for key in keys.values():
        for (raw,) in connection.execute("SELECT CAST(data AS BLOB) FROM events WHERE run = ?", (key,)):
            events, size = events + 1, size + len(raw)
            names |= hashes_in(raw)
    if not names:
        return Deletion(events, 0, size), []
    deleted = set(keys.values())
    for key, raw in connection.execute("SELECT run, CAST(data AS BLOB) FROM events"):
        if key not in deleted:
            names -= hashes_in(raw)
    unused = []
    for name in map(bytes.fromhex, names):
        size_row = connection.execute("SELECT length(content) FROM blobs WHERE hash = ?", (name,)).fetchone()
        if size_row is not None:
            unused.append(name)
            size += size_row[0]
    return Deletion(events, len(unused), size), unused


def delete(connection: sqlite3.Connection, keys: dict[str, int], unused: list[bytes]) -> None:
    connection.executemany("DELETE FROM inbox WHERE run_id = ?", [(run_id,) for run_id in keys])
    connection.executemany("DELETE FROM events WHERE run = ?", [(key,) for key in keys.values()])
    connection.executemany("DELETE FROM runs WHERE id = ?", [(key,) for key in keys.values()])
    connection.executemany("DELETE FROM blobs WHERE hash = ?", [(name,) for name in unused])
