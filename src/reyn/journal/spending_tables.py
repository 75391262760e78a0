"""Budget accounts and spending in the SQLite journal, inside the caller's transaction.

Every call changes its accounts, which share a page or two. What a run was charged today is a column of its row, which
each commit writes anyway; it moves to the table `spending` when the day or the model changes, and when the run is
deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal.spending import Balance, Postings, SpendRow, check_cap, in_full, postings, run_accounts

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from reyn.journal.projections import RunRow

    Spent = tuple[SpendRow, ...]

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
_BALANCE = "SELECT tokens, cost, reserved_tokens, reserved_cost FROM budget_accounts WHERE account = ?"
_MAX_SPENT = 4
"""The models whose charges a run's row holds; more would make every commit of the run larger."""
_decode_spent = msgspec.json.Decoder(tuple[SpendRow, ...]).decode


class Accounts:
    """The budget accounts of a journal that this connection changes.

    Balances are cached until another connection writes. A new one is cached only after its commit.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._balances: dict[str, Balance] = {}
        self._new: dict[str, Balance] = {}

    def forget(self) -> None:
        """Read balances again."""
        self._balances.clear()
        self._new.clear()

    def begin(self) -> None:
        """Begin a transaction: balances of one that failed are dropped."""
        if self._new:
            self._new.clear()

    def commit(self) -> None:
        """Remember the balances of a transaction that was committed."""
        self._balances.update(self._new)
        self._new.clear()

    def check(self, found: Postings) -> dict[str, Balance]:
        """Check the caps of the accounts that a batch draws on; return their balances after it.

        Raises:
            BudgetExceeded: A cap is exceeded. Nothing is changed.
        """
        after: dict[str, Balance] = {}
        for account, posting in found.accounts.items():
            if posting.draw is not None:
                before = self._new.get(account) or self._balances.get(account)
                after[account] = posting.added_to(before or balance_of(self._connection, account))
                check_cap(posting, after[account])
        return after

    def post(self, found: Postings, checked: dict[str, Balance]) -> None:
        """Apply the effects of a batch on accounts."""
        rows = []
        for account, one in found.accounts.items():
            rows.append((account, one.tokens, one.cost, one.reserved_tokens, one.reserved_cost))
            if account not in checked:  # settled without a new reservation
                known = self._new.get(account) or self._balances.get(account)
                if known is not None:
                    self._new[account] = one.added_to(known)
        self._new.update(checked)
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


def encode_spent(spent: Spent) -> str:
    """Return charges as they are stored in a run's row."""
    return msgspec.json.encode(spent).decode() if spent else ""


def decode_spent(column: Any) -> Spent:
    """Return the charges in a run's row."""
    return _decode_spent(column) if column else ()


def balance_of(connection: sqlite3.Connection, account: str) -> Balance:
    """Return the balance of an account; zero if nothing drew on it."""
    found = connection.execute(_BALANCE, (account,)).fetchone()
    return Balance(*found) if found else Balance()


def charges_since(connection: sqlite3.Connection, day: str, *, has_spent: bool) -> list[SpendRow]:
    """Return what was charged from a day on, oldest first. Format 6 has no charges in the rows of runs."""
    rows: dict[tuple[str, str, str, str], SpendRow] = {}
    found = [SpendRow(*columns) for columns in connection.execute("SELECT * FROM spending WHERE day >= ?", (day,))]
    if has_spent:
        for (column,) in connection.execute("SELECT spent FROM runs WHERE spent != ''"):
            found += [row for row in decode_spent(column) if row.day >= day]
    for row in found:
        known = rows.get(row.key)
        rows[row.key] = row if known is None else known.plus(row)
    return [rows[key] for key in sorted(rows)]


def close_accounts(connection: sqlite3.Connection, runs: Iterable[tuple[RunRow, Spent]]) -> None:
    """Store the charges of runs that are about to be deleted, charge their open reservations in full, and delete the
    runs' own accounts."""
    accounts = Accounts(connection)
    for row, spent in runs:
        store_charges(connection, spent)
        if row.reserved is not None and not row.imported:
            found = postings(row.run_id, row.skill, row.reserved, [in_full(row.reserved)])
            assert found is not None
            accounts.post(found, {})
            store_charges(connection, tuple(found.rows))
        connection.execute("DELETE FROM budget_accounts WHERE account IN (?, ?)", run_accounts(row.run_id))
