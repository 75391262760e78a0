"""Rank texts by how well they match a query: BM25, computed by SQLite's full-text search (FTS5) in memory."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

_WORD = re.compile(r"\w+")
_UNSPACED = (
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""A character of a script that does not part its words by spaces, or joins particles to them, such as Japanese."""
_ONE = re.compile(_UNSPACED)
_PARTS = re.compile(rf"{_UNSPACED}+|(?:(?!{_UNSPACED})\w)+")
_MAX_WORDS = 64
"""The words of a query that count."""
_MANY = 100
"""From so many texts on, a word that most of them have does not count: BM25 gives it no weight."""
_MAX_COUNTED = 10_000
_MAX_BRIEF = 1_500
"""How many items a brief ranking looks at, if its rarest words have so many."""
_MIN_BRIEF = 2
"""The words of a brief ranking at least, however often they occur."""
_JOINING = frozenset(
    _WORD.findall(
        "a about an and any are as at be been by can could did do does for from get got had has have he her here his "
        "how i if in into is it its long many may me might much must my need no not now of often on or our shall she "
        "should so some than that the their them then there these they this those to was we were what when where which "
        "who whom whose why will with would you your"
    )
)
_OPEN = "CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='porter unicode61 remove_diacritics 2')"
_COUNT = "SELECT count(*) FROM texts WHERE texts MATCH ?"
_FIND = "SELECT rowid, -bm25(texts) AS score FROM texts WHERE texts MATCH ? ORDER BY score DESC, rowid LIMIT ?"


def best_matches(
    query: str, texts: Sequence[str], limit: int, check_time: Callable[[], object] | None = None
) -> list[tuple[int, float]]:
    """Return the positions of the texts that match a query best, each with its score, best first.

    A text matches if it has at least one word of the query; words are compared by their stems. Of scripts without
    spaces between words, it has to have two characters that follow each other in the query. Ties keep the order of the
    texts.

    Args:
        query: Plain text; it has no syntax.
        texts: The texts to rank.
        limit: How many to return at most.
        check_time: Is called before each text is indexed; what it raises ends the ranking.
    """

    def text_of(text: str) -> str:
        if check_time is not None:
            check_time()
        return text

    return Ranking[str](text_of).best_matches(query, texts, limit)


class Ranking(Generic[T]):
    """Ranks items by their texts. As long as the items are the same, they are indexed once."""

    def __init__(self, text: Callable[[T], str]) -> None:
        """Open a ranking. `text` returns the text of an item."""
        self._text = text
        self._items: tuple[T, ...] = ()
        self._database: sqlite3.Connection | None = None
        self._counts: dict[str, int] = {}
        """How many texts have a word, for the words of queries."""
        self._lock = Lock()

    def __del__(self) -> None:
        if self._database is not None:
            self._database.close()

    def best_matches(
        self, query: str, items: Sequence[T], limit: int, *, only_telling: bool = False, is_brief: bool = False
    ) -> list[tuple[int, float]]:
        """Return the positions of the items that match a query best; see the function `best_matches`.

        With `only_telling`, an item does not match by words alone that most of many items have. With `is_brief`, words
        that only join others do not count, and of the rest the rarest: to rank thousands of items takes long.
        """
        words = list(dict.fromkeys(chain.from_iterable(map(_parts, _WORD.findall(query.lower())))))[:_MAX_WORDS]
        if not words or not items or limit < 1:
            return []
        with self._lock:
            database = self._index(items if isinstance(items, tuple) else tuple(items))
            telling = self._telling(database, words, only_telling=only_telling)
            if is_brief and len(self._items) >= _MANY:
                telling = self._rarest(telling)
            match = " OR ".join(f'"{word}"' for word in telling)
            rows = database.execute(_FIND, (_encodable(match), limit)).fetchall() if match else ()
        return [(int(number), float(score)) for number, score in rows]

    def _telling(self, database: sqlite3.Connection, words: list[str], *, only_telling: bool) -> list[str]:
        """Return the words that some texts have and most do not; if there is none, those that some have."""
        if len(self._items) < _MANY:
            return words
        if len(self._counts) > _MAX_COUNTED:
            self._counts.clear()
        for word in words:
            if word not in self._counts:
                [self._counts[word]] = database.execute(_COUNT, (_encodable(f'"{word}"'),)).fetchone()
        found = [word for word in words if self._counts[word]]
        telling = [word for word in found if self._counts[word] <= len(self._items) / 2]
        return telling if telling or only_telling else found

    def _rarest(self, words: list[str]) -> list[str]:
        """Return the rarest words that tell something, at least two, as far as few items have them together."""
        ordered = sorted((word for word in words if self._counts[word]), key=self._counts.__getitem__)
        ordered = [word for word in ordered if word not in _JOINING] or ordered
        left, found = _MAX_BRIEF, list[str]()
        for word in ordered:
            left -= self._counts[word]
            if left < 0 and len(found) >= _MIN_BRIEF:
                break
            found.append(word)
        return found

    def _index(self, items: tuple[T, ...]) -> sqlite3.Connection:
        if self._database is not None and (items is self._items or items == self._items):
            return self._database
        if self._database is not None:
            self._database.close()
        self._items, self._counts = items, {}
        self._database = database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        database.execute(_OPEN)
        texts = ((number, _spaced(_encodable(self._text(item)))) for number, item in enumerate(items))
        # FTS5 gives no weight to a word that half of the texts have. Beside as many empty ones, every word has one.
        empty = ((number, "") for number in range(len(items), 2 * len(items) + 1))
        database.executemany("INSERT INTO texts(rowid, text) VALUES (?, ?)", chain(texts, empty))
        return database


def _spaced(text: str) -> str:
    """Return a text in which each character of a script without spaces is a word."""
    return text if text.isascii() else _ONE.sub(r" \g<0> ", text)


def _parts(word: str) -> list[str]:
    """Return what to search for a word of a query: pairs of characters of a script without spaces, as phrases."""
    if word.isascii():
        return [word]
    found: list[str] = []
    for part in _PARTS.findall(word):
        is_unspaced = len(part) > 1 and _ONE.match(part)
        found += [f"{one} {next_one}" for one, next_one in pairwise(part)] if is_unspaced else [part]
    return found


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()
