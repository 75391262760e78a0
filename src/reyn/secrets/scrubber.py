"""Replace the values of secrets in text by their handles.

The scrubber knows only the values that were added to it, and no store. Text without a secret costs a few substring
searches.
"""

from __future__ import annotations

import re
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

from reyn.secrets.spellings import anchor_of, pattern_of, spellings, without_needless_escapes

T = TypeVar("T", str, bytes)
_WHITESPACE = re.compile(r"\s")
_MAX_SPELLING_LENGTH = 8
"""Length of the longest spelling of one character: `\\\\u0061`."""


class Scrubber:
    """Replaces each known value by its handle, in every spelling that `spellings` covers."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._search = _Search(())

    def __repr__(self) -> str:
        return f"Scrubber({sorted(set(self._search.handles))})"

    def add(self, handle: str, value: str) -> None:
        """Scrub a value from now on. Earlier values of the same handle stay known."""
        with self._lock:
            if (handle, value) not in self._search.known:
                self._search = _Search((*self._search.known, (handle, value)))

    @property
    def count(self) -> int:
        """The number of values that are replaced."""
        return len(self._search.known)

    def scrub(self, text: T) -> T:
        """Return the text with every known value replaced by its handle."""
        search = self._search
        if not search.known:
            return text
        if isinstance(text, bytes):
            if b"\\u00" not in text and not any(anchor in text for anchor in search.byte_anchors):
                return text
            return self.scrub(text.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        if "\\u00" in text:
            plain = without_needless_escapes(text)
            if plain != text and search.replace(plain) != plain:
                text = plain
        return search.replace(text) if any(anchor in text for anchor in search.anchors) else text

    def scrub_value(self, value: Any) -> Any:
        """Return a JSON value with every known value replaced in its texts and keys."""
        if not self._search.known:
            return value
        match value:
            case str():
                return self.scrub(value)
            case dict():
                return {self.scrub_value(key): self.scrub_value(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self.scrub_value(inner) for inner in value]
        return value

    @property
    def is_empty(self) -> bool:
        """Return whether no value is known."""
        return not self._search.known

    def find(self, content: bytes) -> str:
        """Return the handle of a known value that the content holds in any spelling; empty if there is none."""
        search = self._search
        if not search.known or (
            b"\\u00" not in content and not any(anchor in content for anchor in search.byte_anchors)
        ):
            return ""
        text = content.decode(errors="surrogateescape")
        return search.find(text) or search.find(without_needless_escapes(text))

    def split(self, text: str) -> tuple[str, str]:
        """Split streamed text into a scrubbed part and a rest that may be the beginning of a value."""
        scrubbed = self.scrub(text)
        values = [value for _, value in self._search.known]
        rest = min(len(scrubbed), _MAX_SPELLING_LENGTH * max(map(len, values), default=0))
        if not any(_WHITESPACE.search(value) for value in values):
            rest = min(rest, len(scrubbed) - max((match.end() for match in _WHITESPACE.finditer(scrubbed)), default=0))
        at = len(scrubbed) - rest
        return scrubbed[:at], scrubbed[at:]


class _Search:
    """The compiled search for a set of values, longest first, so that a value is found before its own prefixes."""

    def __init__(self, known: tuple[tuple[str, str], ...]) -> None:
        self.known = tuple(sorted(known, key=lambda pair: -len(pair[1])))
        self.handles = [handle for handle, _ in self.known]
        self._spellings = [spellings(value) for _, value in self.known]
        self.anchors = tuple({anchor_of(text) for texts in self._spellings for text in texts})
        self.byte_anchors = tuple(anchor.encode() for anchor in self.anchors)

    def __repr__(self) -> str:
        return f"_Search({self.handles})"

    def replace(self, text: str) -> str:
        return self._pattern.sub(lambda match: self.handles[(match.lastindex or 1) - 1], text)

    def find(self, text: str) -> str:
        match = self._pattern.search(text) if any(anchor in text for anchor in self.anchors) else None
        return self.handles[(match.lastindex or 1) - 1] if match else ""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """One group per value, so that the number of the matching group is the index of its handle."""
        return re.compile("|".join(f"({'|'.join(map(pattern_of, texts))})" for texts in self._spellings))
