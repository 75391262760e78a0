"""A pattern becomes one that every converter of grammars understands, that has an end, and whose texts need no escapes
in JSON; or nothing, where that cannot be."""

from __future__ import annotations

import re

_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " "}
_LITERAL = frozenset("-./:;,_ #@!%&=~'")
"""What may stand behind a backslash and means itself."""
_ESCAPED = '"\\'
_TOO_MUCH = frozenset('*+."^$')
"""Has no end, is a character that JSON escapes, or an anchor in the middle."""


def said_plainly(pattern: str, most: int) -> str | None:
    """The pattern in plain words; what it repeats, it repeats at most so often."""
    if not (pattern.startswith("^") and pattern.endswith("$")):
        return None
    said = _Plain(pattern[1:-1]).said()
    if said is None or re.search(r"\{\d*,\}", said):
        return None
    if any(int(number) > most for number in re.findall(r"\d+(?=[,}])", said)):
        return None
    return f"^{said}$"


class _Plain:
    """Reads a pattern from left to right. Characters of a class are listed, groups are only groups."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._is_in_class = False
        self._before = ""
        self._depth = 0

    def said(self) -> str | None:
        parts: list[str] = []
        at = 0
        while at < len(self._pattern):
            length = 2 if self._pattern[at] == "\\" else 1
            part = self._read(self._pattern[at : at + length], self._pattern[at + length : at + length + 1])
            if part is None:
                return None
            parts.append(part)
            at += length
        return None if self._is_in_class or self._depth else "".join(parts)

    def _read(self, word: str, following: str) -> str | None:
        if word.startswith("\\"):
            return self._escaped(word[1:])
        if self._is_in_class:
            before, self._before = self._before, word
            self._is_in_class = word != "]"
            if word == "-" and any(before <= escaped <= following for escaped in _ESCAPED):
                return None
            return None if word in '["' else word
        match word:
            case "[":
                self._is_in_class, self._before = True, "]"
                return None if following == "^" else word
            case "(":
                self._depth += 1
                return None if following == "?" else word
            case ")":
                self._depth -= 1
                return None if following == "{" else word  # repeats in repeats grow without end
            case "|" if self._depth == 0:
                return None
        return None if word in _TOO_MUCH else word

    def _escaped(self, word: str) -> str | None:
        if word in _CLASSES:
            return _CLASSES[word] if self._is_in_class else f"[{_CLASSES[word]}]"
        if not word or word not in _LITERAL or self._is_in_class:
            return None
        return f"[{word}]" if word == "." else word
