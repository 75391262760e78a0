"""Budget accounts that many processes draw on, without a row that all of them lock.

An account has one row per process, its share, and one for processes that have ended. A process changes only its own
share, in the transaction of its events. A cap is divided into grants: a process may use and reserve what it was
granted. If that is not enough, it is granted more from what is left, and from what others were granted and do not use.
All grants together never exceed the cap, so the cap holds to the token, and all of it can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from reyn.journal.postgres.link import change, fetch
from reyn.journal.spending import Balance, Posting, check_cap

if TYPE_CHECKING:
    from reyn.journal.postgres.link import PgConnection, Row

_SLACK = 4
"""One part in so many of what is left is granted beyond what is needed, so that the next calls need no grant."""
_ENSURE = """
INSERT INTO shares (account, owner) SELECT account, owner FROM unnest(%s::text[]) account, unnest(%s::text[]) owner
ORDER BY 1, 2 ON CONFLICT DO NOTHING
"""
_LOCK = "SELECT 1 FROM shares WHERE account = ANY(%s) AND owner = '' ORDER BY account FOR UPDATE"
_ROWS = """
SELECT owner, tokens, cost, reserved_tokens, reserved_cost, granted_tokens, granted_cost, cap_tokens, cap_cost
FROM shares WHERE account = %s ORDER BY owner FOR UPDATE
"""
_GRANT = """
UPDATE shares SET granted_tokens = %s, granted_cost = %s, cap_tokens = %s, cap_cost = %s
WHERE account = %s AND owner = %s
"""
_FOLD = """
WITH gone AS (DELETE FROM shares WHERE owner = ANY(%(owners)s) AND account = ANY(%(accounts)s) RETURNING *),
total AS (SELECT account, sum(tokens) t, sum(cost) c, sum(reserved_tokens) rt, sum(reserved_cost) rc
    FROM gone GROUP BY account)
UPDATE shares s SET tokens = s.tokens + t, cost = s.cost + c, reserved_tokens = s.reserved_tokens + rt,
    reserved_cost = s.reserved_cost + rc
FROM total WHERE s.account = total.account AND s.owner = ''
"""
_ENDED = """
SELECT DISTINCT s.owner FROM shares s LEFT JOIN owners o ON o.id::text = s.owner
WHERE s.account = %s AND s.owner <> '' AND s.owner <> %s
    AND (o.id IS NULL OR o.lease_until < clock_timestamp() - interval '1 hour')
"""
SHARES_BALANCE = """
SELECT coalesce(sum(tokens), 0)::bigint, coalesce(sum(cost), 0)::bigint, coalesce(sum(reserved_tokens), 0)::bigint,
    coalesce(sum(reserved_cost), 0)::bigint
FROM shares WHERE account = %s
"""


class _Share(msgspec.Struct):
    """One row of an account."""

    owner: str
    balance: Balance
    granted: tuple[int, int]
    caps: tuple[int | None, int | None]

    @classmethod
    def of(cls, row: Row) -> _Share:
        owner, tokens, cost, reserved_tokens, reserved_cost, granted_tokens, granted_cost, *caps = row
        balance = Balance(tokens, cost, reserved_tokens, reserved_cost)
        return cls(owner, balance, (granted_tokens, granted_cost), (caps[0], caps[1]))


def _in_use(balance: Balance) -> tuple[int, int]:
    return balance.tokens + balance.reserved_tokens, balance.cost + balance.reserved_cost


class Shares:
    """The shares of one process. What it remembers of them may be out of date; the database decides."""

    def __init__(self, owner: str, register: Callable[[PgConnection], None]) -> None:
        """`register` records the process, so that others can see when it has ended."""
        self._owner = owner
        self._register = register
        self._known: dict[str, _Share] = {}
        self._pending: dict[str, Balance] = {}
        """What batches of the commit in progress change."""

    def forget(self) -> None:
        """Read shares again: a transaction failed."""
        self._known.clear()
        self._pending.clear()

    def committed(self) -> None:
        """Note that what was posted is stored."""
        self._pending.clear()

    def prepare(self, connection: PgConnection, accounts: dict[str, Posting]) -> None:
        """Make the rows of accounts, and get the grants that a batch needs.

        Raises:
            BudgetExceeded: A cap does not allow it.
        """
        if new := sorted(accounts.keys() - self._known.keys()):
            if not self._known:
                self._register(connection)
            change(connection, _ENSURE, (new, ["", self._owner]))
            for account in new:
                self._known[account] = _Share(self._owner, Balance(), (0, 0), (None, None))
        for account, posting in sorted(accounts.items()):
            if posting.draw is not None and not self._fits(self._known[account], posting):
                with connection.transaction():
                    self._known[account] = self._grant(connection, account, posting)

    @staticmethod
    def _fits(share: _Share, posting: Posting) -> bool:
        """Return whether the grants of a share allow a posting, as far as is known."""
        draw = posting.draw
        assert draw is not None
        wanted = _in_use(posting.added_to(share.balance))
        return all(
            cap is None or (known is not None and known <= cap and used <= granted)
            for cap, known, used, granted in zip(
                (draw.tokens, draw.cost), share.caps, wanted, share.granted, strict=True
            )
        )

    def _grant(self, connection: PgConnection, account: str, posting: Posting) -> _Share:
        """Divide the caps of an account anew. The lock on its first row admits one process at a time."""
        assert posting.draw is not None
        fetch(connection, _LOCK, ([account],))
        ended = [owner for (owner,) in fetch(connection, _ENDED, (account, self._owner))]
        if ended:
            _fold(connection, ended, [account])
        change(connection, _ENSURE, ([account], [self._owner]))  # others may have taken this process for ended
        shares = [_Share.of(row) for row in fetch(connection, _ROWS, (account,))]
        own = next(share for share in shares if share.owner == self._owner)
        own.balance = _sum(own.balance, self._pending.get(account, Balance()))
        total = Balance()
        for share in shares:
            total = _sum(total, share.balance)
        check_cap(posting, posting.added_to(total))
        caps = posting.draw.tokens, posting.draw.cost
        wanted = _in_use(posting.added_to(own.balance))
        for at in (0, 1):
            _divide(shares, own, at, caps[at], wanted[at])
        for share in shares:
            change(connection, _GRANT, (*share.granted, *share.caps, account, share.owner))
        return own

    def post(self, accounts: dict[str, Posting]) -> None:
        """Note what a batch of the commit in progress changes."""
        for account, posting in accounts.items():
            self._pending[account] = posting.added_to(self._pending.get(account, Balance()))
            self._known[account].balance = posting.added_to(self._known[account].balance)

    def give_back(self, connection: PgConnection) -> None:
        """Add the shares of this process to those of ended ones."""
        accounts = [
            account for (account,) in fetch(connection, "SELECT account FROM shares WHERE owner = %s", (self._owner,))
        ]
        if accounts:
            with connection.transaction():
                fetch(connection, _LOCK, (accounts,))
                _fold(connection, [self._owner], accounts)


def _fold(connection: PgConnection, owners: list[str], accounts: list[str]) -> None:
    change(connection, _FOLD, {"owners": owners, "accounts": accounts})


def _divide(shares: Collection[_Share], own: _Share, at: int, cap: int | None, wanted: int) -> None:
    """Grant a share what it wants of tokens (0) or money (1), with some slack; revoke grants if there is not enough.

    A share that was granted under another cap keeps only what it uses.
    """
    if cap is None:
        _set(own, at, _in_use(own.balance)[at], None)
        return
    others = [share for share in shares if share is not own]
    for share in others:
        if share.caps[at] != cap:
            _set(share, at, _in_use(share.balance)[at], share.caps[at])
    left = cap - wanted - sum(max(share.granted[at], _in_use(share.balance)[at]) for share in others)
    if left < 0:
        for share in others:
            _set(share, at, _in_use(share.balance)[at], share.caps[at])
        left = cap - wanted - sum(_in_use(share.balance)[at] for share in others)
    _set(own, at, wanted + max(left, 0) // _SLACK, cap)


def _set(share: _Share, at: int, granted: int, cap: int | None) -> None:
    share.granted = (granted, share.granted[1]) if at == 0 else (share.granted[0], granted)
    share.caps = (cap, share.caps[1]) if at == 0 else (share.caps[0], cap)


def _sum(one: Balance, other: Balance) -> Balance:
    return Balance(*map(int.__add__, astuple(one), astuple(other)))


POSTED = """
posted AS (
    UPDATE shares s SET tokens = s.tokens + v.tokens, cost = s.cost + v.cost,
        reserved_tokens = s.reserved_tokens + v.reserved_tokens, reserved_cost = s.reserved_cost + v.reserved_cost
    FROM unnest(%(accounts)s::text[], %(tokens)s::bigint[], %(costs)s::bigint[], %(reserved_tokens)s::bigint[],
        %(reserved_costs)s::bigint[], %(cap_tokens)s::bigint[], %(cap_costs)s::bigint[])
        AS v (account, tokens, cost, reserved_tokens, reserved_cost, cap_tokens, cap_cost)
    WHERE s.account = v.account AND s.owner = %(owner)s AND EXISTS (SELECT FROM run)
        AND (v.cap_tokens IS NULL OR (s.cap_tokens <= v.cap_tokens
            AND s.tokens + s.reserved_tokens + v.tokens + v.reserved_tokens <= s.granted_tokens))
        AND (v.cap_cost IS NULL OR (s.cap_cost <= v.cap_cost
            AND s.cost + s.reserved_cost + v.cost + v.reserved_cost <= s.granted_cost))
    RETURNING 1)
"""
"""The part of an append that changes shares. A share that is not changed was granted less meanwhile."""


def values(accounts: dict[str, Posting], owner: str) -> dict[str, Any]:
    """Return the values of `POSTED`."""
    found = sorted(accounts.items())
    draws = [posting.draw for _, posting in found]
    return {
        "owner": owner,
        "accounts": [account for account, _ in found],
        "tokens": [posting.tokens for _, posting in found],
        "costs": [posting.cost for _, posting in found],
        "reserved_tokens": [posting.reserved_tokens for _, posting in found],
        "reserved_costs": [posting.reserved_cost for _, posting in found],
        "cap_tokens": [draw.tokens if draw else None for draw in draws],
        "cap_costs": [draw.cost if draw else None for draw in draws],
    }
