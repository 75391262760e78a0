"""Deleting runs from a PostgreSQL journal, with the content that no other run refers to.

The lock on `blobs` waits for appends in progress, and lets new ones wait: an append refers to content that it does not
store again if it knows that it is stored. `epoch` is higher afterwards, so that every process stores content again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reyn.errors import RunBusy
from reyn.journal.packing import data_sizes
from reyn.journal.port import Deletion, check_deletable, hashes_in
from reyn.journal.postgres.appends import SELECT_HEAD, add_spending
from reyn.journal.postgres.link import change, fetch
from reyn.journal.rows import Head, decode_head
from reyn.journal.spending import in_full, postings, run_accounts

if TYPE_CHECKING:
    from reyn.journal.postgres.link import PgConnection

_LINKS = """
SELECT run_id, parent, fork_of FROM runs WHERE run_id = ANY(%(ids)s) OR parent = ANY(%(ids)s) OR fork_of = ANY(%(ids)s)
    OR run_id IN (SELECT parent FROM runs WHERE run_id = ANY(%(ids)s))
"""
_ADD = """
INSERT INTO shares AS s (account, owner, tokens, cost, reserved_tokens, reserved_cost) VALUES (%s, '', %s, %s, %s, %s)
ON CONFLICT (account, owner) DO UPDATE SET tokens = s.tokens + excluded.tokens, cost = s.cost + excluded.cost,
    reserved_tokens = s.reserved_tokens + excluded.reserved_tokens,
    reserved_cost = s.reserved_cost + excluded.reserved_cost
"""
_PAGE = 500


def remove_runs(
    connection: PgConnection, run_ids: set[str], is_claimed: Callable[[str], bool], *, dry_run: bool
) -> Deletion:
    """Delete runs, or count what would be deleted; `Journal.delete` documents it."""
    with connection.transaction():
        if not dry_run:
            connection.execute("LOCK TABLE blobs IN SHARE ROW EXCLUSIVE MODE")
        found = fetch(connection, f"{SELECT_HEAD} WHERE run_id = ANY(%s) ORDER BY run_id FOR UPDATE", (list(run_ids),))
        heads = {head.row.run_id: head for head in map(decode_head, found)}
        for run_id in heads:
            if is_claimed(run_id):
                raise RunBusy(f"run `{run_id}` is being executed")
        check_deletable(heads, fetch(connection, _LINKS, {"ids": list(heads)}))
        counted, unused = _count(connection, [head.key for head in heads.values()])
        if dry_run or not heads:
            return counted
        for _, head in sorted(heads.items()):
            _close_accounts(connection, head)
        ids, keys = sorted(heads), sorted(head.key for head in heads.values())
        for table in ("inbox", "inbox_heads", "wakes", "claims"):
            change(connection, f"DELETE FROM {table} WHERE run_id = ANY(%s)", (ids,))  # noqa: S608 - constants
        change(connection, "DELETE FROM commits WHERE run = ANY(%s)", (keys,))
        change(connection, "DELETE FROM run_words WHERE run = ANY(%s)", (keys,))
        change(connection, "DELETE FROM runs WHERE id = ANY(%s)", (keys,))
        change(connection, "INSERT INTO removals SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", (ids,))
        change(connection, "DELETE FROM blobs WHERE hash = ANY(%s::bytea[])", (unused,))
        change(connection, "UPDATE journal SET epoch = epoch + 1")
        return counted


def _close_accounts(connection: PgConnection, head: Head) -> None:
    """Store what a run was charged, charge its open reservation in full, and delete its own accounts."""
    row = head.row
    add_spending(connection, head.spent)
    if row.reserved is not None and not row.imported:
        posted = postings(row.run_id, row.skill, row.reserved, [in_full(row.reserved)])
        assert posted is not None
        for account, one in sorted(posted.accounts.items()):
            change(connection, _ADD, (account, one.tokens, one.cost, one.reserved_tokens, one.reserved_cost))
        add_spending(connection, posted.rows)
    change(connection, "DELETE FROM shares WHERE account = ANY(%s)", (list(run_accounts(row.run_id)),))


def _count(connection: PgConnection, keys: list[int]) -> tuple[Deletion, list[bytes]]:
    """Count what deleting these runs removes; return the count and the hashes of content that no other run uses."""
    events, size, names = 0, 0, set[str]()
    for (text,) in _events(connection, "SELECT events FROM commits WHERE run = ANY(%s)", (keys,)):
        found = data_sizes(text)
        events, size = events + len(found), size + sum(found)
        names |= hashes_in(text)
    if names:
        for (text,) in _events(connection, "SELECT events FROM commits WHERE run <> ALL(%s)", (keys,)):
            names -= hashes_in(text)
    query = "SELECT hash, length(content) FROM blobs WHERE hash = ANY(%s::bytea[])"
    unused = fetch(connection, query, ([bytes.fromhex(name) for name in names],))
    size += sum(length for _, length in unused)
    return Deletion(events, len(unused), size), [bytes(name) for name, _ in unused]


def _events(connection: PgConnection, query: str, values: Any) -> Any:
    """Yield rows without holding all of them in memory."""
    with connection.cursor(name="reyn_events", binary=True) as cursor:
        cursor.itersize = _PAGE
        cursor.execute(query.encode(), values)
        yield from cursor
