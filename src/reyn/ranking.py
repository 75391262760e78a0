"""Rank texts by how well they match a query: BM25, computed by SQLite's full-text search (FTS5) in memory."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_MAX_WORDS = 64
"""The words of a query that count."""
_OPEN = "CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='porter unicode61 remove_diacritics 2')"


def best_matches(query: str, texts: Sequence[str], limit: int) -> list[tuple[int, float]]:
    """Return the positions of the texts that match a query best, each with its score, best first.

    A text matches if it has at least one word of the query; words are compared by their stems. Ties keep the order of
    the texts.

    Args:
        query: Plain text; it has no syntax.
        texts: The texts to rank.
        limit: How many to return at most.
    """
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(query)))[:_MAX_WORDS]
    if not words or not texts or limit < 1:
        return []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.execute(_OPEN)
        database.executemany(
            "INSERT INTO texts(rowid, text) VALUES (?, ?)",
            ((number, text.encode(errors="replace").decode()) for number, text in enumerate(texts)),
        )
        match = " OR ".join(f'"{word}"' for word in words)
        found = database.execute(
            "SELECT rowid, -bm25(texts) AS score FROM texts WHERE texts MATCH ? ORDER BY score DESC, rowid LIMIT ?",
            (match.encode(errors="replace").decode(), limit),
        )
        return [(int(number), float(score)) for number, score in found]
