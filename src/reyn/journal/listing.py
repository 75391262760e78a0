"""The list of runs: which runs a page has, and the words that they are searched by.

A search compares words, without accents and case: a run matches if each word of the search begins one of its words.
Every journal stores the words that are made here, so that all of them find the same runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.documents.unicode_forms import to_normal_form
from reyn.journal.lifecycle import RunRow
from reyn.journal.registry import Status

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_WORDS = 2_000
"""The words of a run that it is found by. Those of its names come first, then its reason, result and input."""
MAX_SEARCHED = 100_000
"""The characters of an input or a result that are searched."""
_MAX_WORD = 40
_WORD = re.compile(r"[^\W_]+")
_IDEOGRAPHS = re.compile("[぀-ヿ㐀-䶿一-鿿豈-﫿\U00020000-\U0003ffff]")
"""Scripts without spaces: each of their characters is a word."""


ShownStatus = Literal["queued", "interrupted", "blocked"]
"""A status that is not recorded: it depends on which processes execute runs, and on the rules that these know."""

RECORDED_AS: dict[str, tuple[Status, ...]] = {
    "queued": ("running",),
    "interrupted": ("running",),
    "blocked": ("running", "waiting", "limited", "failed", "blocked"),
}
"""The recorded statuses of runs that are shown with another one."""


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, newest first.

    Attributes:
        statuses: Only runs with one of these statuses, recorded or shown; empty for any. A journal reads recorded ones.
        skill: Only runs of this skill.
        since: Only runs with events since then, in microseconds since 1970.
        prefix: Only runs whose id begins like this.
        top: Omit sub-runs of runs that are recorded.
        search: Only runs that have these words in their names, input, result or reason.
    """

    statuses: tuple[Status | ShownStatus, ...] = ()
    skill: str | None = None
    since: int | None = None
    prefix: str = ""
    top: bool = False
    search: str = ""

    @property
    def has_filter(self) -> bool:
        """Whether it selects runs by more than their level."""
        return self != RunQuery(top=self.top)


class UnindexedRun(msgspec.Struct, frozen=True):
    """A run whose words are not stored yet. `mark` is another one if its words have changed meanwhile."""

    row: RunRow
    mark: int


class IndexedRun(msgspec.Struct, frozen=True):
    """The words of a run."""

    run_id: str
    mark: int
    words: tuple[str, ...]


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text in the form in which they are compared."""
    if not text.isascii():
        text = to_normal_form("NFKD", _IDEOGRAPHS.sub(r" \g<0> ", text))
        text = "".join(char for char in text if not unicodedata.combining(char))
    for word in _WORD.findall(text.casefold()):
        yield word[:_MAX_WORD]


def search_words(search: str) -> tuple[str, ...]:
    """Return the words of a search, each once."""
    return tuple(dict.fromkeys(words_of(search)))


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a JSON value; the names of fields are not searched."""
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from texts_of(one)
        case list():
            for one in value:
                yield from texts_of(one)
        case int() | float() if not isinstance(value, bool):
            yield str(value)


def some_words(texts: Iterable[str]) -> tuple[str, ...]:
    """Return up to `MAX_WORDS` different words of texts."""
    found: dict[str, None] = {}
    for text in texts:
        for word in words_of(text):
            found[word] = None
            if len(found) == MAX_WORDS:
                return tuple(found)
    return tuple(found)


def is_match(search: Collection[str], words: Collection[str]) -> bool:
    """Return whether each word of a search begins one of these words; a search without words finds nothing."""
    return bool(search) and all(any(word.startswith(start) for word in words) for start in search)


def matching_runs(
    query: RunQuery, rows: Iterable[RunRow], words: Callable[[str], Collection[str] | None], known: Collection[str]
) -> Iterator[RunRow]:
    """Yield the rows that a query selects.

    Args:
        query: The query.
        rows: The rows to select from.
        words: Returns the words of a run; `None` if they are not stored.
        known: The ids of all runs.
    """
    search = search_words(query.search)
    for row in rows:
        if (
            (not query.statuses or row.status in query.statuses)
            and (query.skill is None or row.skill == query.skill)
            and (query.since is None or row.updated >= query.since)
            and row.run_id.startswith(query.prefix)
            and not (query.top and row.parent in known)
            and (not query.search or ((found := words(row.run_id)) is not None and is_match(search, found)))
        ):
            yield row
