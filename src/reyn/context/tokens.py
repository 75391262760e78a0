"""Count tokens, and truncate a text to a number of them.

`chars` counts as the handoff contract does: one token per four code points, rounded up. Everything that assembles text
takes the counter as an argument, so that an exact one can replace it.
"""

from __future__ import annotations

from typing import Protocol

CHARS_PER_TOKEN = 4
SUFFIX = "..."
"""Follows a truncated text, inside of its budget."""


class TokenCounter(Protocol):
    """Counts the tokens of a text. `count("")` is 0, and a prefix never has more tokens than the whole text."""

    @property
    def name(self) -> str:
        """The name of the counter, as events record it."""
        ...

    def count(self, text: str) -> int: ...


class CharCounter:
    """Estimates tokens from the number of code points."""

    name = "chars"

    def count(self, text: str) -> int:
        return estimate_tokens(text)


CHARS = CharCounter()


def estimate_tokens(text: str) -> int:
    """Return the approximate number of tokens: code points divided by four, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


def truncate_to_token_budget(text: str, budget: int) -> str:
    """Truncate a text to a number of tokens; return it unchanged if it fits, or if `budget` is 0 or less.

    The text ends after its last sentence that fits (`. ` or `.` before a line break), else at the last word boundary,
    else anywhere. `...` follows and is part of the budget.
    """
    return text if budget <= 0 else truncate_to_length(text, budget * CHARS_PER_TOKEN)


def truncate_to_length(text: str, length: int) -> str:
    """Truncate a text to a number of code points, as `truncate_to_token_budget` does; empty if `...` does not fit."""
    if len(text) <= length:
        return text
    end = length - len(SUFFIX)
    if end <= 0:
        return ""
    return _natural_prefix(text, end) + SUFFIX


def _natural_prefix(text: str, end: int) -> str:
    """Return the longest prefix of at most `end` code points that ends with a sentence or a word, if there is one."""
    period = max(text.rfind(". ", 0, end + 1), text.rfind(".\n", 0, end + 1))
    if period >= 0:
        return text[: period + 1]
    window = text[:end]
    if text[end].isspace() or window[-1].isspace():
        words = window.rstrip()
    else:
        head, *rest = window.rsplit(maxsplit=1)
        words = head if rest else ""
    return words or window
