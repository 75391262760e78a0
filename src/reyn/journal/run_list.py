"""Pages of the list of runs of a SQLite journal, and the words that runs are searched by (FTS5)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.errors import StoreUnavailable
from reyn.journal.lifecycle import ENDED, UNENDED
from reyn.journal.listing import IndexedRun, RunQuery, UnindexedRun, search_words
from reyn.journal.rows import ACTIVITY, COLUMNS, Head, RowDamaged, decode_head

if TYPE_CHECKING:
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.registry import Status

Rows = Callable[[str, tuple[Any, ...]], list[Any]]

_SELECT = f"SELECT r.id, {', '.join(f'r.{name}' for name in COLUMNS)}, CAST(r.hash AS BLOB), r.state"
_HAS_WORDS = "SELECT 1 FROM sqlite_master WHERE name = 'run_words'"
# A subquery for each row, not a join: a page has few rows, and a plan may not read the whole table for them.
_IS_TOP = "(r.parent = '' OR (SELECT 1 FROM runs p WHERE p.run_id = r.parent) IS NULL)"
_EVERY_STATUS = (*UNENDED, *ENDED)
_MAX_COUNT = 100_000
"""How far runs that are not indexed are counted."""


class PageSource(NamedTuple):
    """How a database is asked for pages.

    Attributes:
        rows: Returns the rows of a query with `?` for each value.
        columns: The beginning of a query that selects heads of `runs r`.
        words: The table of words, joined to `runs r`.
        key: Returns its key, which is that of the run, as an expression to order by for a value of the condition.
        match: The condition that it has words.
        to_match: Returns the value of this condition.
    """

    rows: Rows
    columns: str
    words: str
    key: Callable[[str], str]
    match: str
    to_match: Callable[[Sequence[str]], str]


def sqlite_source(rows: Rows) -> PageSource:
    """Return how SQLite is asked."""
    words = "run_words w CROSS JOIN runs r ON r.id = w.rowid"  # a cross join reads the words first
    return PageSource(rows, _SELECT, words, lambda _: "w.rowid", "w.run_words MATCH ?", _match)


def has_words(rows: Rows) -> bool:
    """Return whether a SQLite journal has stored words of any run."""
    return bool(rows(_HAS_WORDS, ()))


def read_page(source: PageSource, query: RunQuery, limit: int, after: str) -> list[RunRow]:
    """Return the first runs that a query selects, after another one, from any database."""
    if query.search and not search_words(query.search):
        return []
    cursor = source.rows("SELECT started, run_id, id FROM runs WHERE run_id = ?", (after,)) if after else []
    # One query for each status, because an index has the runs of one status, or of a skill and a status, in order.
    is_any = query.search or (query.skill is None and not query.statuses)
    statuses: Iterable[str | None] = query.statuses or ((None,) if is_any else _EVERY_STATUS)
    last = cursor[0] if cursor else None
    found = [head for status in dict.fromkeys(statuses) for head in _read(source, query, limit, status, last)]
    if query.since is not None and not query.search and len(found) < limit:
        for status in dict.fromkeys(query.statuses or _EVERY_STATUS):
            found += _read(source, query, limit, status, last, is_older=True)
    found.sort(key=lambda head: head.key if query.search else (head.row.started, head.row.run_id), reverse=True)
    return [head.row for head in found[:limit]]


def _read(
    source: PageSource,
    query: RunQuery,
    limit: int,
    status: str | None,
    cursor: tuple[Any, ...] | None,
    *,
    is_older: bool = False,
) -> list[Head]:
    """Return the first runs with a status, or with any.

    Of runs with events since a time, those that started since are found by the index of starts, and those that are
    older by the index of activity, which has few of them.
    """
    started = "r.started + 0" if is_older else "r.started"  # an expression keeps a plan from the indexes of starts
    conditions: list[tuple[str, tuple[Any, ...]]] = []
    if status is not None:
        conditions.append(("r.status = ?", (status,)))
    if query.skill is not None:
        conditions.append(("r.skill = ?", (query.skill,)))
    if query.since is not None:
        conditions.append(("r.updated >= ?", (query.since,)))
        if not query.search:
            minute = query.since // ACTIVITY
            conditions.append((f"{started} {'<' if is_older else '>='} ?", (minute * ACTIVITY,)))
            if is_older:
                conditions.append((f"r.active >= ? AND r.active > r.started / {ACTIVITY}", (minute,)))
    if query.prefix:
        conditions.append(("r.run_id >= ? AND r.run_id < ?", (query.prefix, f"{query.prefix}\U0010ffff")))
    if query.top:
        conditions.append((_IS_TOP, ()))
    if query.search:
        match = source.to_match(search_words(query.search))
        key = source.key(match)
        tables, order = source.words, f"{key} DESC"
        conditions.append((source.match, (match,)))
        if cursor is not None:
            conditions.append((f"{key} < ?", (cursor[2],)))
    else:
        tables, order = "runs r", f"{started} DESC, r.run_id DESC"
        if cursor is not None:
            conditions.append((f"({started}, r.run_id) < (?, ?)", cursor[:2]))
    where = f" WHERE {' AND '.join(text for text, _ in conditions)}" if conditions else ""
    values = [value for _, found in conditions for value in found]
    found = source.rows(f"{source.columns} FROM {tables}{where} ORDER BY {order} LIMIT ?", (*values, limit))
    heads = [decode_head(columns) for columns in found]
    if any(head.row.status != (status or head.row.status) for head in heads):
        raise RowDamaged(f"the list of runs that are {status} differs from their rows")
    return heads


def _match(words: Sequence[str]) -> str:
    return " ".join(f'"{_stored(word)}"*' for word in words)


def _stored(word: str) -> str:
    """Return a word in characters that SQLite takes as one word; the beginning of a word stays its beginning."""
    return word if word.isascii() else f"_{word.encode().hex()}"


def read_counts(source: PageSource) -> dict[Status, int]:
    """Count the runs by status; an index has the statuses of all of them."""
    return dict(source.rows("SELECT status, count(*) FROM runs GROUP BY status", ()))


def read_unindexed(source: PageSource, limit: int) -> list[UnindexedRun]:
    """Return runs whose words are not stored, the newest first."""
    query = f"{source.columns}, r.unindexed FROM runs r WHERE r.unindexed > 0 ORDER BY r.id DESC LIMIT ?"
    return [UnindexedRun(decode_head(tuple(columns)).row, mark) for *columns, mark in source.rows(query, (limit,))]


def read_count(source: PageSource) -> int:
    """Count the runs whose words are not stored."""
    query = "SELECT count(*) FROM (SELECT 1 FROM runs WHERE unindexed > 0 LIMIT ?) AS found"
    [(count,)] = source.rows(query, (_MAX_COUNT,))
    return int(count)


def write_words(connection: sqlite3.Connection, schema: str, found: Sequence[IndexedRun]) -> None:
    """Store the words of runs. Callers hold the transaction."""
    try:
        connection.execute(schema)
    except sqlite3.OperationalError as error:
        if "no such module" not in str(error):
            raise
        raise StoreUnavailable(
            "runs cannot be searched: the SQLite of this Python has no FTS5", hint="Use a Python whose SQLite has it."
        ) from None
    for one in found:
        query = "SELECT id FROM runs WHERE run_id = ? AND unindexed = ?"
        for (key,) in connection.execute(query, (one.run_id, one.mark)).fetchall():
            connection.execute("UPDATE runs SET unindexed = 0 WHERE id = ?", (key,))
            connection.execute("DELETE FROM run_words WHERE rowid = ?", (key,))
            words = " ".join(map(_stored, one.words))
            connection.execute("INSERT INTO run_words (rowid, words) VALUES (?, ?)", (key, words))


def forget_words(connection: sqlite3.Connection, keys: Iterable[int]) -> None:
    """Remove the words of runs. Callers hold the transaction."""
    if connection.execute(_HAS_WORDS).fetchone():
        connection.executemany("DELETE FROM run_words WHERE rowid = ?", [(key,) for key in keys])
        # Until its segments are merged, the index keeps the words of what was removed.
        connection.execute("INSERT INTO run_words (run_words) VALUES ('optimize')")
