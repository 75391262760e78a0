"""Pages of the list of runs of a PostgreSQL journal, and the words that runs are searched by (`tsvector`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reyn.journal.postgres.link import change
from reyn.journal.rows import COLUMNS
from reyn.journal.run_list import PageSource

if TYPE_CHECKING:
    from reyn.journal.listing import IndexedRun
    from reyn.journal.postgres.link import Link, PgConnection

_SELECT = f"SELECT r.id, {', '.join(f'r.{name}' for name in COLUMNS)}, r.hash, r.state"
_STORE = """
WITH run AS (UPDATE runs SET unindexed = 0 WHERE run_id = %s AND unindexed = %s RETURNING id)
INSERT INTO run_words SELECT id, array_to_tsvector(%s::text[]) FROM run
ON CONFLICT (run) DO UPDATE SET words = excluded.words
"""
_IS_FREQUENT = """
SELECT count(*) >= 100 FROM (SELECT FROM (SELECT words FROM run_words ORDER BY run DESC LIMIT 10000) AS latest
WHERE words @@ %s::tsquery LIMIT 100) AS found
"""


def postgres_source(link: Link) -> PageSource:
    """Return how PostgreSQL is asked.

    It expects a fiftieth of the runs to have any beginning of a word, and would read all runs in order for one that few
    have. So words that are rare in the latest runs are ordered by an expression, which no index has.
    """

    def rows(text: str, values: tuple[Any, ...]) -> list[Any]:
        return link.rows(text.replace("?", "%s"), values)

    def key(match: str) -> str:
        [(is_frequent,)] = link.rows(_IS_FREQUENT, (match,))
        return "w.run" if is_frequent else "(w.run + 0)"

    words = "run_words w JOIN runs r ON r.id = w.run"
    return PageSource(rows, _SELECT, words, key, "w.words @@ ?::tsquery", _match)


def _match(words: Sequence[str]) -> str:
    return " & ".join(f"'{word}':*" for word in words)


def replace_words(connection: PgConnection, found: Sequence[IndexedRun]) -> None:
    """Store the words of runs. Rows are locked in the order of their ids, as appends lock them."""
    with connection.pipeline(), connection.transaction():
        for one in sorted(found, key=lambda one: one.run_id):
            change(connection, _STORE, (one.run_id, one.mark, list(one.words)))
