"""Tables and rows of the SQLite journal: runs, spending, and what a deletion removes. Callers hold the transaction.

Every call changes its accounts, which share a page or two. What a run was charged today is a column of its row, which
each commit writes anyway; it moves to the table `spending` when the day or the model changes, and when the run is
deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import AppendConflict
from reyn.journal import run_list
from reyn.journal.lifecycle import is_listed_alike
from reyn.journal.packing import data_sizes
from reyn.journal.port import Bookkeeping, Deletion, hashes_in
from reyn.journal.rows import (
    ACTIVITY,
    COLUMNS,
    FIXED,
    Head,
    Spent,
    decode_spent,
    encode_state,
    state_of,
    total_charges,
)
from reyn.journal.spending import Balance, Postings, SpendRow, check_cap, in_full, postings, run_accounts

if TYPE_CHECKING:
    from reyn.journal.lifecycle import RunRow

SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, skill TEXT NOT NULL, rules INTEGER NOT NULL,
    started INTEGER NOT NULL, parent TEXT NOT NULL, fork_of TEXT NOT NULL, fork_seq INTEGER NOT NULL,
    imported TEXT NOT NULL, seq INTEGER NOT NULL, updated INTEGER NOT NULL, hash BLOB NOT NULL, state TEXT NOT NULL,
    status TEXT NOT NULL, active INTEGER NOT NULL, unindexed INTEGER NOT NULL DEFAULT 1);
CREATE INDEX IF NOT EXISTS runs_by_start ON runs (started, run_id);
CREATE INDEX IF NOT EXISTS runs_by_status ON runs (status, started, run_id);
CREATE INDEX IF NOT EXISTS runs_by_skill ON runs (skill, status, started, run_id);
CREATE INDEX IF NOT EXISTS runs_by_activity ON runs (status, active) WHERE active > started / 60000000;
CREATE INDEX IF NOT EXISTS runs_unindexed ON runs (id) WHERE unindexed > 0;
CREATE TABLE IF NOT EXISTS commits (id INTEGER PRIMARY KEY, hashes BLOB NOT NULL, events BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS blobs (id INTEGER PRIMARY KEY, hash BLOB NOT NULL, content BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS names (name BLOB NOT NULL PRIMARY KEY, blob INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, payload BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS inbox_by_run ON inbox (run_id, id);
CREATE TABLE IF NOT EXISTS wakes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, due INTEGER NOT NULL, queue TEXT NOT NULL,
    priority INTEGER NOT NULL, held_until INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rates (name TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS workers (id TEXT NOT NULL PRIMARY KEY, report TEXT NOT NULL, seen INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS approvals (
    id INTEGER PRIMARY KEY AUTOINCREMENT, skill TEXT NOT NULL, skill_hash TEXT NOT NULL, op TEXT NOT NULL,
    rule TEXT NOT NULL, by TEXT NOT NULL, at INTEGER NOT NULL, run_id TEXT NOT NULL, project TEXT NOT NULL,
    UNIQUE (skill_hash, op, rule, project));
CREATE TABLE IF NOT EXISTS access_tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS removals (run_id TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owners (mark BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS budget_accounts (
    account TEXT NOT NULL PRIMARY KEY, tokens INTEGER NOT NULL, cost INTEGER NOT NULL,
    reserved_tokens INTEGER NOT NULL, reserved_cost INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spending (
    day TEXT NOT NULL, run_id TEXT NOT NULL, model TEXT NOT NULL, currency TEXT NOT NULL, skill TEXT NOT NULL,
    calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, thinking_tokens INTEGER NOT NULL, cost INTEGER NOT NULL, assumed INTEGER NOT NULL,
    PRIMARY KEY (day, run_id, model, currency)) WITHOUT ROWID;
"""
"""The statements that make a new database. A database with any other definition, even in wording, is refused."""
WORDS = """
CREATE VIRTUAL TABLE IF NOT EXISTS run_words USING fts5(words, detail = none,
    tokenize = "unicode61 remove_diacritics 0 tokenchars '_'");
"""
"""The table that runs are searched by, which the first search makes. Everything else works without FTS5."""

# -- runs -------------------------------------------------------------------------------------------------

SELECT = f"SELECT id, {', '.join(COLUMNS)}, CAST(hash AS BLOB), state FROM runs"  # noqa: S608 - constants
_INSERT = (
    f"INSERT INTO runs (seq, updated, hash, state, status, active, {', '.join(FIXED)}) "  # noqa: S608 - constants
    f"VALUES (?, ?, ?, ?, ?, ?{', ?' * len(FIXED)})"
)
_UPDATE = "UPDATE runs SET seq = ?, updated = ?, hash = ?, state = ? WHERE id = ?"
# Indexes are written only if they change: SQLite writes those of every column that a statement names.
_UPDATE_ACTIVE = "UPDATE runs SET active = ? WHERE id = ?"
_UPDATE_LISTED = "UPDATE runs SET status = ?, unindexed = ? WHERE id = ?"


def store_run(connection: sqlite3.Connection, head: Head | None, row: RunRow, spent: Spent) -> int:
    """Update the row of a run; insert it if it has no head yet. Return its key.

    Raises:
        AppendConflict: A run to insert exists already.
    """
    state = state_of(row, spent)
    # A `bytearray`, because sqlite3 searches for an adapter of every value that is `bytes`.
    active = row.updated // ACTIVITY
    changing = row.seq, row.updated, bytearray.fromhex(row.hash), encode_state(state).decode()
    if head is not None:
        connection.execute(_UPDATE, (*changing, head.key))
        if active != head.row.updated // ACTIVITY:
            connection.execute(_UPDATE_ACTIVE, (active, head.key))
        if not is_listed_alike(head.row, row):
            connection.execute(_UPDATE_LISTED, (row.status, row.seq, head.key))
        return head.key
    try:
        cursor = connection.execute(_INSERT, (*changing, row.status, active, *[getattr(row, name) for name in FIXED]))
    except sqlite3.IntegrityError:
        raise AppendConflict(f"run `{row.run_id}` exists already: another driver appended first") from None
    assert cursor.lastrowid is not None
    return cursor.lastrowid


# -- commits ----------------------------------------------------------------------------------------------

_SEQ_BITS = 32
"""The key of a commit is the key of its run, shifted by so many bits, plus the sequence number of its last event."""
_HASHES, _TEXT = "CAST(ifnull(hashes, '') AS BLOB)", "CAST(ifnull(events, '') AS BLOB)"
"""The columns of a commit, which can have any type if they are damaged."""
STORE_COMMIT = "INSERT INTO commits (id, events, hashes) VALUES (?, ?, ?)"
COMMITS = f"SELECT id, {_HASHES}, {_TEXT} FROM commits WHERE id > ? AND id < ? ORDER BY id LIMIT ?"  # noqa: S608 - constants
LAST_COMMIT = f"SELECT id, {_HASHES} FROM commits WHERE id > ? AND id <= ? ORDER BY id DESC LIMIT 1"  # noqa: S608 - constants


SPENT = "instr(state, '\"spent\":') > 0"
HAS_RESERVATION = "instr(state, '\"reserved\":') > 0"
"""Conditions that select the rows of runs with charges, and with an open reservation. They may select others, too."""


def commit_key(run: int, seq: int) -> int:
    """Return the key of the commit of a run that ends with an event. The commits of a run follow each other."""
    return (run << _SEQ_BITS) + seq


# -- spending ---------------------------------------------------------------------------------------------

_POST = """
INSERT INTO budget_accounts VALUES (?, ?, ?, ?, ?) ON CONFLICT (account) DO UPDATE SET
    tokens = tokens + excluded.tokens, cost = cost + excluded.cost,
    reserved_tokens = reserved_tokens + excluded.reserved_tokens, reserved_cost = reserved_cost + excluded.reserved_cost
"""
_CHARGE = """
INSERT INTO spending VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, run_id, model, currency) DO UPDATE SET
    calls = calls + excluded.calls, input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens, cached_tokens = cached_tokens + excluded.cached_tokens,
    thinking_tokens = thinking_tokens + excluded.thinking_tokens, cost = cost + excluded.cost,
    assumed = assumed + excluded.assumed
"""
BALANCE = "SELECT tokens, cost, reserved_tokens, reserved_cost FROM budget_accounts WHERE account = ?"


class Accounts:
    """The budget accounts of a journal. `write` writes all changes together; balances are cached until `forget`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._balances: dict[str, Balance] = {}
        self._changes: dict[str, Balance] = {}

    def forget(self) -> None:
        """Read balances again: another connection wrote, or a transaction failed."""
        self._balances.clear()
        self._changes.clear()

    def check(self, found: Postings) -> None:
        """Check the caps of the accounts that a batch draws on. Raises `BudgetExceeded`; nothing is changed."""
        for account, posting in found.accounts.items():
            if posting.draw is not None:
                check_cap(posting, posting.added_to(self._balance(account)))

    def _balance(self, account: str) -> Balance:
        balance = self._balances.get(account)
        if balance is None:
            self.write()  # the table has everything that was posted before
            balance = to_balance(self._connection.execute(BALANCE, (account,)).fetchall())
            self._balances[account] = balance
        return balance

    def post(self, found: Postings) -> None:
        """Add the effects of a batch on accounts."""
        for account, posting in found.accounts.items():
            self._changes[account] = posting.added_to(self._changes.get(account) or Balance())
            if account in self._balances:
                self._balances[account] = posting.added_to(self._balances[account])

    def write(self) -> None:
        """Write the changes."""
        if self._changes:
            rows = [(account, *msgspec.structs.astuple(change)) for account, change in self._changes.items()]
            self._connection.executemany(_POST, rows)
            self._changes.clear()


def store_charges(connection: sqlite3.Connection, spent: Spent) -> None:
    """Add charges to the table, where they outlive their run."""
    if spent:
        connection.executemany(_CHARGE, [msgspec.structs.astuple(row) for row in spent])


def to_balance(found: list[Any]) -> Balance:
    """Return the balance of an account from the rows of `BALANCE`; zero if nothing drew on it."""
    return Balance(*found[0]) if found else Balance()


def charges_since(connection: sqlite3.Connection, day: str) -> list[SpendRow]:
    """Return what was charged from a day on, oldest first."""
    found = [SpendRow(*columns) for columns in connection.execute("SELECT * FROM spending WHERE day >= ?", (day,))]
    for (state,) in connection.execute(f"SELECT state FROM runs WHERE {SPENT}"):  # noqa: S608 - constants
        found += [row for row in decode_spent(state) if row.day >= day]
    return total_charges(found)


def read_ledger(connection: sqlite3.Connection) -> Bookkeeping:
    """Return what is stored beside the runs."""
    query = "SELECT account, tokens, cost, reserved_tokens, reserved_cost FROM budget_accounts"
    accounts = {name: Balance(*amounts) for name, *amounts in connection.execute(query)}
    removals = [run_id for (run_id,) in connection.execute("SELECT run_id FROM removals ORDER BY run_id")]
    return Bookkeeping(charges_since(connection, ""), accounts, removals)


def write_ledger(connection: sqlite3.Connection, ledger: Bookkeeping) -> None:
    """Store what is beside the runs, in place of what is there."""
    for table in ("spending", "budget_accounts", "removals"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - constants
    store_charges(connection, tuple(ledger.charges))
    rows = [(name, *msgspec.structs.astuple(one)) for name, one in ledger.accounts.items()]
    connection.executemany("INSERT INTO budget_accounts VALUES (?, ?, ?, ?, ?)", rows)
    connection.executemany("INSERT INTO removals VALUES (?)", [(run_id,) for run_id in ledger.removals])


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
            accounts.write()
            store_charges(connection, tuple(posted.rows))
        connection.execute("DELETE FROM budget_accounts WHERE account IN (?, ?)", run_accounts(row.run_id))


# -- deletion ---------------------------------------------------------------------------------------------


def count(
    connection: sqlite3.Connection, keys: dict[str, int], content_size: Callable[[bytes], int | None]
) -> tuple[Deletion, list[bytes]]:
    """Count what deleting these runs removes; return the count and the hashes of content that no other run uses."""
    events, size, names = 0, 0, set[str]()
    for key in keys.values():
        for _, _, text in connection.execute(COMMITS, (commit_key(key, 0), commit_key(key + 1, 0), -1)):
            found = data_sizes(text)
            events, size = events + len(found), size + sum(found)
            names |= hashes_in(text)
    if not names:
        return Deletion(events, 0, size), []
    deleted = set(keys.values())
    for key, text in connection.execute(f"SELECT id >> {_SEQ_BITS}, {_TEXT} FROM commits"):  # noqa: S608 - constants
        if key not in deleted:
            names -= hashes_in(text)
    unused = []
    for name in map(bytes.fromhex, names):
        found_size = content_size(name)
        if found_size is not None:
            unused.append(name)
            size += found_size
    return Deletion(events, len(unused), size), unused


def delete_rows(connection: sqlite3.Connection, keys: dict[str, int]) -> None:
    connection.executemany("DELETE FROM inbox WHERE run_id = ?", [(run_id,) for run_id in keys])
    connection.executemany("DELETE FROM wakes WHERE run_id = ?", [(run_id,) for run_id in keys])
    ranges = [(commit_key(key, 0), commit_key(key + 1, 0)) for key in keys.values()]
    connection.executemany("DELETE FROM commits WHERE id > ? AND id < ?", ranges)
    connection.executemany("DELETE FROM runs WHERE id = ?", [(key,) for key in keys.values()])
    run_list.forget_words(connection, keys.values())
    connection.executemany("INSERT OR IGNORE INTO removals VALUES (?)", [(run_id,) for run_id in keys])
