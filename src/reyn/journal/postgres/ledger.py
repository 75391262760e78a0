"""What a PostgreSQL journal stores beside its runs: charges, accounts and removals, for a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from reyn.journal.port import Bookkeeping
from reyn.journal.postgres.appends import add_spending
from reyn.journal.postgres.link import change, fetch
from reyn.journal.spending import Balance

if TYPE_CHECKING:
    from reyn.journal.postgres.link import PgConnection
    from reyn.journal.spending import SpendRow

_ACCOUNTS = """
SELECT account, sum(tokens)::bigint, sum(cost)::bigint, sum(reserved_tokens)::bigint, sum(reserved_cost)::bigint
FROM shares GROUP BY account
"""
_STORE = """
INSERT INTO shares (account, owner, tokens, cost, reserved_tokens, reserved_cost) VALUES (%s, '', %s, %s, %s, %s)
"""


def fetch_ledger(connection: PgConnection, charges: Sequence[SpendRow]) -> Bookkeeping:
    """Return what is stored beside the runs."""
    accounts = {name: Balance(*amounts) for name, *amounts in fetch(connection, _ACCOUNTS)}
    removals = [run_id for (run_id,) in fetch(connection, "SELECT run_id FROM removals ORDER BY run_id")]
    return Bookkeeping(charges, accounts, removals)


def replace_ledger(connection: PgConnection, ledger: Bookkeeping) -> None:
    """Store what is beside the runs, in place of what is there."""
    with connection.transaction():
        for table in ("spending", "shares", "removals"):
            change(connection, f"DELETE FROM {table}")  # noqa: S608 - constants
        add_spending(connection, ledger.charges)
        for name, one in sorted(ledger.accounts.items()):
            change(connection, _STORE, (name, *astuple(one)))
        change(connection, "INSERT INTO removals SELECT unnest(%s::text[])", (list(ledger.removals),))
