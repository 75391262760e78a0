"""Unicode normalization of texts that others wrote, in time that grows with their length.

A letter may carry any number of marks, and normalization sorts them one by one: 300 KB of marks take ten minutes. Every
text from outside is normalized here. No name of a file or of a language has a letter with so many marks.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Literal

_MAX_MARKS = 256
_JOINER = "\u034f"
"""The combining grapheme joiner, which is invisible. Marks are not sorted across it."""
_CANDIDATE = re.compile(rf"[^\x00-\x7f]{{{_MAX_MARKS + 1},}}")


def to_normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Return a text in a normalization form. In a text with more than 256 marks in a row, joiners separate them."""
    return text if text.isascii() else unicodedata.normalize(form, _CANDIDATE.sub(_separated, text))


def has_many_marks(text: str) -> bool:
    """Return whether a text has so many marks in a row that a library must not normalize it."""
    return not text.isascii() and any(_separated(found) != found[0] for found in _CANDIDATE.finditer(text))


def _separated(found: re.Match[str]) -> str:
    parts: list[str] = []
    marks = start = 0
    for position, char in enumerate(found[0]):
        marks = marks + 1 if _is_mark(char) else 0
        if marks > _MAX_MARKS:
            parts.append(found[0][start:position])
            start, marks = position, 1
    return _JOINER.join([*parts, found[0][start:]])


@lru_cache(10_000)
def _is_mark(char: str) -> bool:
    """Return whether a character, or what it is decomposed to, is sorted behind the one before."""
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) != 0
