"""Text that may quote a secret becomes text that names it.

Knows the values it was given, and no store. A text without a secret costs a few searches for plain substrings.
"""

from __future__ import annotations

import re
from functools import cached_property
from threading import Lock
from typing import TypeVar

from reyn.secrets.handles import handle_of
from reyn.secrets.spellings import anchor_of, pattern_of, spellings, without_needless_escapes

T = TypeVar("T", str, bytes)
_BLANK = re.compile(r"\s")
_LONGEST_SPELLING = 8
"""Characters that one of a value may take: `\\\\u0061`."""


class Scrubber:
    """Puts `secret://NAME` where the value of NAME stands, however it is written."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._search = _Search(())

    def __repr__(self) -> str:
        return f"Scrubber({sorted({name for name, _ in self._search.known})})"

    def add(self, name: str, value: str) -> None:
        """Know a value from now on, along with those that the name had before."""
        with self._lock:
            if (name, value) not in self._search.known:
                self._search = _Search((*self._search.known, (name, value)))

    def scrub(self, text: T) -> T:
        search = self._search
        if isinstance(text, bytes):
            if b"\\u00" not in text and not any(anchor in text for anchor in search.anchors_of_bytes):
                return text
            return self.scrub(text.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        if search.known and "\\u00" in text:
            plain = without_needless_escapes(text)
            if plain != text and search.replace(plain) != plain:
                text = plain
        return search.replace(text) if any(anchor in text for anchor in search.anchors) else text

    def split(self, text: str) -> tuple[str, str]:
        """Of a text that goes on: what can be told, scrubbed, and the end, in which a value may have begun."""
        scrubbed = self.scrub(text)
        values = [value for _, value in self._search.known]
        kept = min(len(scrubbed), _LONGEST_SPELLING * max(map(len, values), default=0))
        if not any(_BLANK.search(value) for value in values):
            kept = min(kept, len(scrubbed) - max((match.end() for match in _BLANK.finditer(scrubbed)), default=0))
        at = len(scrubbed) - kept
        return scrubbed[:at], scrubbed[at:]


class _Search:
    """What is looked for: the values, longest first, so that one which begins with another is found whole."""

    def __init__(self, known: tuple[tuple[str, str], ...]) -> None:
        self.known = tuple(sorted(known, key=lambda pair: -len(pair[1])))
        self.spelled = [spellings(value) for _, value in self.known]
        self.anchors = tuple({anchor_of(text) for texts in self.spelled for text in texts})
        self.anchors_of_bytes = tuple(anchor.encode() for anchor in self.anchors)
        self.handles = [handle_of(name) for name, _ in self.known]

    def __repr__(self) -> str:
        return f"_Search({self.handles})"

    def replace(self, text: str) -> str:
        return self._pattern.sub(lambda match: self.handles[(match.lastindex or 1) - 1], text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """One group a value: the number of the group that matched is the number of the handle."""
        return re.compile("|".join(f"({'|'.join(map(pattern_of, texts))})" for texts in self.spelled))
