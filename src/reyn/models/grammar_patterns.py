"""Rewrite regular expressions into the subset that grammars of constrained decoders support."""

from __future__ import annotations

import re

_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " "}
_LITERAL_ESCAPES = frozenset("-./:;,_ #@!%&=~'")
"""Characters that may be escaped and mean themselves."""
_JSON_ESCAPED = '"\\'
_UNSUPPORTED = frozenset('*+."^$')
"""Unbounded repetition, characters that JSON escapes, and anchors inside the pattern."""


def to_grammar_regex(pattern: str, max_repetitions: int) -> str | None:
    """Return an equivalent pattern in the supported subset, or `None` if there is none.

    Args:
        pattern: A regular expression; it must be anchored at both ends.
        max_repetitions: Maximum repetition count.
    """
    if not (pattern.startswith("^") and pattern.endswith("$")):
        return None
    rewritten = _PatternReader(pattern[1:-1]).rewrite()
    if rewritten is None or re.search(r"\{\d*,\}", rewritten):
        return None
    if any(int(number) > max_repetitions for number in re.findall(r"\d+(?=[,}])", rewritten)):
        return None
    return f"^{rewritten}$"


class _PatternReader:
    """Reads a pattern from left to right; expands shorthand classes and rejects unsupported syntax."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._is_in_class = False
        self._previous = ""
        self._depth = 0

    def rewrite(self) -> str | None:
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

    def _read(self, symbol: str, following: str) -> str | None:
        if symbol.startswith("\\"):
            return self._escaped(symbol[1:])
        if self._is_in_class:
            previous, self._previous = self._previous, symbol
            self._is_in_class = symbol != "]"
            if symbol == "-" and any(previous <= escaped <= following for escaped in _JSON_ESCAPED):
                return None
            return None if symbol in '["' else symbol
        match symbol:
            case "[":
                self._is_in_class, self._previous = True, "]"
                return None if following == "^" else symbol
            case "(":
                self._depth += 1
                return None if following == "?" else symbol
            case ")":
                self._depth -= 1
                return None if following == "{" else symbol  # nested repetitions make grammars explode
            case "|" if self._depth == 0:
                return None
        return None if symbol in _UNSUPPORTED else symbol

    def _escaped(self, symbol: str) -> str | None:
        if symbol in _CLASSES:
            return _CLASSES[symbol] if self._is_in_class else f"[{_CLASSES[symbol]}]"
        if not symbol or symbol not in _LITERAL_ESCAPES or self._is_in_class:
            return None
        return f"[{symbol}]" if symbol == "." else symbol
