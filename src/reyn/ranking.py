"""Rank texts by how well they match a query: BM25, computed by SQLite's full-text search (FTS5) in memory."""

from __future__ import annotations

import re
import sqlite3
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_WORD = re.compile(r"\w+")
_MAX_WORDS = 64
"""The words of a query that count."""
_OPEN = "CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='porter unicode61 remove_diacritics 2')"
_FIND = "SELECT rowid, -bm25(texts) AS score FROM texts WHERE texts MATCH ? ORDER BY score DESC, rowid LIMIT ?"


def best_matches(query: str, texts: Sequence[str], limit: int) -> list[tuple[int, float]]:
    """Return the positions of the texts that match a query best, each with its score, best first.

    A text matches if it has at least one word of the query; words are compared by their stems. Ties keep the order of
    the texts.

    Args:
        query: Plain text; it has no syntax.
        texts: The texts to rank.
        limit: How many to return at most.
    """
    return Ranking[str](str).best_matches(query, texts, limit)


class Ranking(Generic[T]):
    """Ranks items by their texts. As long as the items are the same, they are indexed once."""

    def __init__(self, text: Callable[[T], str]) -> None:
        """Open a ranking. `text` returns the text of an item."""
        self._text = text
        self._items: tuple[T, ...] = ()
        self._database: sqlite3.Connection | None = None
        self._lock = Lock()

    def best_matches(self, query: str, items: Sequence[T], limit: int) -> list[tuple[int, float]]:
        """Return the positions of the items that match a query best; see the function `best_matches`."""
        words = list(dict.fromkeys(word.lower() for word in _WORD.findall(query)))[:_MAX_WORDS]
        if not words or not items or limit < 1:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        with self._lock:
            rows = self._index(tuple(items)).execute(_FIND, (_encodable(match), limit)).fetchall()
        return [(int(number), float(score)) for number, score in rows]

    def _index(self, items: tuple[T, ...]) -> sqlite3.Connection:
        if self._database is not None and items == self._items:
            return self._database
        if self._database is not None:
            self._database.close()
        self._items = items
        self._database = database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        database.execute(_OPEN)
        texts = ((number, _encodable(self._text(item))) for number, item in enumerate(items))
        database.executemany("INSERT INTO texts(rowid, text) VALUES (?, ?)", texts)
        return database


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()
