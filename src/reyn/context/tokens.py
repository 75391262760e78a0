"""Count tokens, and truncate a text to a number of them.

`chars` counts as the handoff contract does: one token per four code points, rounded up. Everything that assembles text
takes the counter as an argument. `reyn.context.token_counting` has an exact one, and a model may have its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from reyn.journal import digest

CHARS_PER_TOKEN = 4
SUFFIX = "..."
"""Follows a truncated text, inside of its budget."""
NEUTRAL = 1000
"""The calibration factor, per mille, that changes nothing."""


class TokenCounter(Protocol):
    """Counts the tokens of a text. `count("")` is 0. A prefix may have more tokens than the whole text."""

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


class ByteCounter:
    """Estimates tokens from the size in UTF-8, at four bytes a token: for other scripts better than `chars`."""

    name = "bytes"

    def count(self, text: str) -> int:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return -(-size // CHARS_PER_TOKEN)


BYTES = ByteCounter()
ESTIMATING = (CHARS.name, BYTES.name)
"""The names of the counters that estimate: they need nothing but the text, so that a replay counts again."""


class FunctionCounter:
    """Counts with a function, such as the tokenizer of a model. The function receives valid Unicode only."""

    def __init__(self, name: str, function: Callable[[str], int]) -> None:
        self.name = name
        self._function = function

    def count(self, text: str) -> int:
        return self._function(valid_text(text)) if text else 0


class CalibratedCounter:
    """Scales the counts of another counter by a factor, which the usage that a provider reports determines.

    Args:
        counter: The counter.
        factor: The factor, per mille.
    """

    def __init__(self, counter: TokenCounter, factor: int) -> None:
        self.name = counter.name
        self._counter = counter
        self._factor = factor

    def count(self, text: str) -> int:
        return -(-self._counter.count(text) * self._factor // NEUTRAL)


class CachingCounter:
    """Remembers the counts of another counter by the hash of the text, so that static text is counted once.

    Args:
        counter: The counter.
        size: How many counts to remember.
        counts: Counts that are known, by hash; new ones are added.
    """

    def __init__(self, counter: TokenCounter, *, size: int = 4096, counts: dict[str, int] | None = None) -> None:
        self.name = counter.name
        self._counter = counter
        self._size = size
        self._counts: dict[str, int] = {} if counts is None else counts

    def count(self, text: str) -> int:
        key = digest(text.encode("utf-8", "surrogatepass"))
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = self._counter.count(text)
            if len(self._counts) > self._size:
                del self._counts[next(iter(self._counts))]
        return count


_SURROGATES = re.compile("[\ud800-\udfff]")


def valid_text(text: str) -> str:
    """Return a text with U+FFFD for every lone surrogate, which no tokenizer accepts."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def estimate_tokens(text: str) -> int:
    """Return the approximate number of tokens: code points divided by four, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


def truncate_to_token_budget(text: str, budget: int, counter: TokenCounter = CHARS) -> str:
    """Truncate a text to a number of tokens; return it unchanged if it fits, or if `budget` is 0 or less.

    The text ends after its last sentence that fits (`. ` or `.` before a line break), else at the last word boundary,
    else anywhere. `...` follows and is part of the budget; the result is empty if even `...` exceeds it.
    """
    if budget <= 0:
        return text
    if counter is CHARS:
        return truncate_to_length(text, budget * CHARS_PER_TOKEN)
    if counter.count(text) <= budget:
        return text
    return truncate_to_length(
        text, longest_fitting(len(text), lambda length: counter.count(truncate_to_length(text, length)), budget)
    )


def longest_fitting(size: int, count: Callable[[int], int], budget: int) -> int:
    """Return a number below `size` whose count does not exceed the budget; 0 if none is found.

    It is the largest one if counts grow with the number, as they do but for a few tokens. Interpolates first, because
    they grow almost evenly and counting is expensive.

    Args:
        size: A number that exceeds the budget.
        count: Returns the tokens of a number from 1 to `size`.
        budget: The number of tokens.
    """
    low, low_tokens, high, high_tokens = 0, 0, size, count(size) if size else 0
    attempts = 0
    while high - low > 1:
        attempts += 1
        if attempts % 3:
            guess = low + (high - low) * max(0, budget - low_tokens) // max(1, high_tokens - low_tokens)
            guess = min(max(guess, low + 1), high - 1)
        else:
            guess = (low + high) // 2
        tokens = count(guess)
        if tokens <= budget:
            low, low_tokens = guess, tokens
        else:
            high, high_tokens = guess, tokens
    return low


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
