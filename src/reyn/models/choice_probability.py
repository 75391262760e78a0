"""The probability of a choice in an answer of the short form, from the token probabilities of the engine.

At each token of the choice, the probability of the token is divided by that of all tokens that continue one of the
labels on offer: a model that hesitates between two labels is unsure, whatever else it might have written.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHOICE = re.compile(r'(?<!\\)"choice"\s*:\s*"')


class Token(NamedTuple):
    """A generated token: its text, and the log probabilities of the likeliest tokens at its place."""

    text: str
    alternatives: dict[str, float]


def choice_probability(tokens: Sequence[Token], labels: Sequence[str]) -> float | None:
    """Return the probability of the choice among the labels; `None` if the answer has no choice that is a label."""
    text = "".join(token.text for token in tokens)
    found = _CHOICE.search(text)
    if found is None:
        return None
    label = text[found.end() :].partition('"')[0]
    if label not in labels:
        return None
    probability, position, start = 1.0, 0, found.end()
    for token in tokens:
        end = position + len(token.text)
        if end > start and position <= start + len(label):
            probability *= _share(token, max(0, start - position), text[start : max(start, position)], labels)
        position = end
    return probability


def _share(token: Token, skipped: int, prefix: str, labels: Sequence[str]) -> float:
    """Return the share of a token among all tokens that continue a label after `prefix`.

    The first `skipped` characters of the token precede the label.
    """
    before = token.text[:skipped]
    chosen = math.exp(token.alternatives.get(token.text, -math.inf))
    allowed = sum(
        math.exp(logarithm)
        for text, logarithm in token.alternatives.items()
        if text.startswith(before) and _continues(prefix + text[skipped:], labels)
    )
    return min(1.0, chosen / allowed) if allowed > 0 else 1.0


def _continues(text: str, labels: Sequence[str]) -> bool:
    """Whether a text is the beginning of a label, or a label and the quote that ends it."""
    return bool(text) and any(label.startswith(text) or text.startswith(f'{label}"') for label in labels)
