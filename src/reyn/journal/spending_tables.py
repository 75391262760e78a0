"""Budget accounts and spending in the SQLite journal, inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal.spending import Balance, Postings, SpendRow, check_cap, in_full, postings, run_accounts

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from reyn.journal.projections import RunRow

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


def check_caps(connection: sqlite3.Connection, found: Postings) -> None:
    """Check the caps of the accounts that a batch draws on. Raises `BudgetExceeded`; nothing is changed."""
    for account in found.capped:
        posting = found.accounts[account]
        check_cap(posting, posting.added_to(balance_of(connection, account)))


def post(connection: sqlite3.Connection, found: Postings) -> None:
    """Apply the effects of a batch."""
    if found.accounts:
        connection.executemany(
            _POST,
            [
                (account, one.tokens, one.cost, one.reserved_tokens, one.reserved_cost)
                for account, one in found.accounts.items()
            ],
        )
    for row in found.rows:
        connection.execute(_CHARGE, msgspec.structs.astuple(row))


def balance_of(connection: sqlite3.Connection, account: str) -> Balance:
    """Return the balance of an account; zero if nothing drew on it."""
    found = connection.execute(_BALANCE, (account,)).fetchone()
    return Balance(*found) if found else Balance()


def charges_since(connection: sqlite3.Connection, day: str) -> list[SpendRow]:
    """Return what was charged from a day on, oldest first."""
    found = connection.execute("SELECT * FROM spending WHERE day >= ? ORDER BY day, run_id, model, currency", (day,))
    return [SpendRow(*columns) for columns in found.fetchall()]


def close_accounts(connection: sqlite3.Connection, rows: Iterable[RunRow]) -> None:
    """Charge the open reservations of runs that are about to be deleted, and delete the runs' own accounts."""
    for row in rows:
        if row.reserved is not None and not row.imported:
            found = postings(row.run_id, row.skill, row.reserved, [in_full(row.reserved)])
            assert found is not None
            post(connection, found)
        connection.execute("DELETE FROM budget_accounts WHERE account IN (?, ?)", run_accounts(row.run_id))
