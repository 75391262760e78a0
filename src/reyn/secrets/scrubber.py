"""Replace the values of secrets in text by their handles.

The scrubber knows only the values that were added to it, and no store. Text without a secret costs a few substring
searches. A value is found in every encoding in which it may occur: plain text, JSON escapes, percent-encoding and
Python's `repr`, also nested in each other (the JSON of a tool call inside the JSON of a request), and Base64 at any
offset, as in `Basic` credentials of `user:value`.
"""

from __future__ import annotations

import base64
import re
from functools import cached_property
from string import ascii_letters, digits
from threading import Lock
from typing import Any, TypeVar

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
            if not _may_be_escaped(text) and not any(anchor in text for anchor in search.byte_anchors):
                return text
            return self.scrub(text.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        if any(anchor in text for anchor in search.anchors):
            text = search.replace(text)
        if "\\u00" not in text and "%" not in text:
            return text
        plain = without_needless_escapes(text)
        replaced = plain if plain == text else search.replace(plain)
        return text if replaced == plain else replaced

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
            not _may_be_escaped(content) and not any(anchor in content for anchor in search.byte_anchors)
        ):
            return ""
        text = content.decode(errors="surrogateescape")
        return search.find(text) or search.find(without_needless_escapes(text))

    def split(self, text: str) -> tuple[str, str]:
        """Split streamed text into a scrubbed part and a rest that may be the beginning of a value."""
        search = self._search
        if not search.known:
            return text, ""
        scrubbed = self.scrub(text)
        at = max(0, len(scrubbed) - search.longest)
        if not search.has_whitespace:  # no value goes on after the last white space
            words = scrubbed[at:].rsplit(None, 1)
            at = len(scrubbed) - (len(words[-1]) if words and not scrubbed[-1].isspace() else 0)
        return scrubbed[:at], scrubbed[at:]


class _Search:
    """The compiled search for a set of values, longest first, so that a value is found before its own prefixes."""

    def __init__(self, known: tuple[tuple[str, str], ...]) -> None:
        self.known = tuple(sorted(known, key=lambda pair: -len(pair[1])))
        self.handles = [handle for handle, _ in self.known]
        self._spellings = [spellings(value) for _, value in self.known]
        self.anchors = tuple({anchor_of(text) for texts in self._spellings for text in texts})
        self.byte_anchors = tuple(anchor.encode() for anchor in self.anchors)
        self.longest = _MAX_SPELLING_LENGTH * max((len(value) for _, value in known), default=0)
        self.has_whitespace = any(_WHITESPACE.search(value) for _, value in known)

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


_PLAIN = frozenset(ascii_letters + digits + "_-.")
"""Characters that no encoding escapes."""
_SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}
_NEEDLESS = re.compile(r"(?:\\{1,16}+u00|%(?:25){0,8}+)([2-7][0-9a-fA-F])")
_URL_SAFE = str.maketrans("+/", "-_")

# Quantifiers are bounded, so that text with long runs of escapes cannot cause catastrophic backtracking. In JSON that
# is nested four times, 15 backslashes precede a quote. Possessive quantifiers of alternatives do not match reliably
# before Python 3.11.5, so only those of fixed texts are possessive.
_PERCENT = r"%(?:25){0,8}+"
_BACKSLASH = rf"(?:\\|{_PERCENT}5[cC])"
_BACKSLASHES = _BACKSLASH + "{1,16}"


def spellings(value: str) -> list[str]:
    """Return the value and its Base64 encodings, longest encoding first."""
    raw = value.encode()
    whole = base64.b64encode(raw).decode()
    encoded = {whole, whole.rstrip("="), *(_base64_core(raw, shift) for shift in range(3))}
    encoded |= {text.translate(_URL_SAFE) for text in encoded}
    return [value, *sorted(encoded, key=lambda text: (-len(text), text))]


def pattern_of(spelling: str) -> str:
    """Return a regular expression that matches every escaped form of a spelling."""
    return "".join(map(_character_pattern, re.findall(r"\\+|.", spelling, re.DOTALL)))


def without_needless_escapes(text: str) -> str:
    """Return the text with escapes of plain characters, such as `\\u0061` and `%61`, decoded."""
    return _NEEDLESS.sub(lambda match: char if (char := chr(int(match[1], 16))) in _PLAIN else match[0], text)


def _may_be_escaped(content: bytes) -> bool:
    return b"\\u00" in content or b"%" in content


def anchor_of(spelling: str) -> str:
    """Return the longest substring that every escaped form of a spelling contains."""
    return max("".join(char if char in _PLAIN else " " for char in spelling).split(" "), key=len)


def _base64_core(raw: bytes, shift: int) -> str:
    """Return the Base64 characters that depend on the value alone if it starts at byte `shift` of a group of three."""
    encoded = base64.b64encode(bytes(shift) + raw).decode()
    return encoded[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]


def _character_pattern(char: str) -> str:
    """Return a pattern for every form of one character, or of a run of backslashes."""
    if char in _PLAIN:
        return re.escape(char)
    escapes = f"{_BACKSLASHES}(?i:{'|'.join(_escapes(char[0]))})"
    if char[0] == "\\":
        return f"(?:(?:{escapes}){{{len(char)}}}|{_BACKSLASH}{{{len(char)},{16 * len(char)}}})"
    unescaped = [re.escape(char), f"(?i:{''.join(map(_percent, char.encode()))})"]
    if char == " ":
        unescaped.append(r"\+")
    prefix = "" if char == "%" else f"{_BACKSLASH}{{0,16}}"  # the value itself may contain `%5c`
    return f"(?:{prefix}(?:{'|'.join(unescaped)})|{escapes})"


def _escapes(char: str) -> list[str]:
    """Return the escapes that JSON and Python write after a backslash."""
    units = char.encode("utf-16-be")
    found = [
        _BACKSLASHES.join(f"u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)),
        _BACKSLASHES.join(f"x{byte:02x}" for byte in char.encode()),
    ]
    if 0x80 <= ord(char) <= 0xFF:
        found.append(f"x{ord(char):02x}")
    if ord(char) > 0xFFFF:
        found.append(f"U{ord(char):08x}")
    if char in _SHORT:
        found.append(_SHORT[char])
    return found


def _percent(byte: int) -> str:
    return "%(?:25){1,9}" if byte == ord("%") else f"{_PERCENT}{byte:02x}"
