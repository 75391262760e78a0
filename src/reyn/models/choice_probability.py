"""The probability of a choice in an answer of the short form, from the token probabilities of the engine.

At each token of the choice, the probability of the tokens that continue the chosen label is divided by that of all
tokens that continue some label: a model that hesitates between two labels is unsure, whatever else it might write.
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
    match_ = _CHOICE.search(text)
    return _probability(tokens, match_.end(), labels) if match_ is not None else None


def label_probabilities(tokens: Sequence[Token], labels: Sequence[str]) -> list[float]:
    """Return the probability of each label, given the tokens of a text that consists of one of them.

    Labels that begin with the same token are told apart where they differ from the generated one; those that differ
    from it in the same token share the probability of that token equally.
    """
    probabilities = dict.fromkeys(labels, 1.0)
    rivals, prefix = tuple(labels), ""
    for token in tokens:
        if len(rivals) < 2:
            break
        groups: dict[frozenset[str], list[str]] = {}
        for rival in rivals:
            fitting = frozenset(text for text in token.alternatives if _continues(prefix + text, rival))
            groups.setdefault(fitting, []).append(rival)
        masses = {fitting: _mass(token, fitting) for fitting in groups}
        prefix += token.text
        going_on = tuple(rival for rival in rivals if _continues(prefix, rival))
        for fitting, members in groups.items():
            shared = 1 if members[0] in going_on else len(members)
            for rival in members:
                probabilities[rival] *= masses[fitting] / shared
        rivals = going_on
    total = sum(probabilities.values())
    return [probabilities[label] / total for label in labels]


def _mass(token: Token, fitting: frozenset[str]) -> float:
    """Return the probability of some of the alternatives; without any, that of the least likely one."""
    if not fitting:
        return math.exp(min(token.alternatives.values()))
    return sum(math.exp(token.alternatives[text]) for text in fitting)


def _probability(tokens: Sequence[Token], start: int, labels: Sequence[str]) -> float | None:
    text = "".join(token.text for token in tokens)
    label = text[start:].partition('"')[0]
    if label not in labels:
        return None
    probability, position = 1.0, 0
    for token in tokens:
        end = position + len(token.text)
        if end > start and position <= start + len(label):
            probability *= _share(token, max(0, start - position), text[start : max(start, position)], label, labels)
        position = end
    return probability


def _share(token: Token, skipped: int, prefix: str, label: str, labels: Sequence[str]) -> float:
    """Return the share of the label among all labels that tokens at this place continue after `prefix`.

    The first `skipped` characters of the token precede the label.
    """
    chosen = allowed = 0.0
    for text, logarithm in token.alternatives.items():
        if not text.startswith(token.text[:skipped]):
            continue
        continued = prefix + text[skipped:]
        if any(_continues(continued, one) for one in labels):
            allowed += math.exp(logarithm)
            chosen += math.exp(logarithm) if _continues(continued, label) else 0.0
    return chosen / allowed if allowed > 0 else 1.0


def _continues(text: str, label: str) -> bool:
    """Return whether a text is the beginning of a label, or the label and the quote that ends it."""
    return bool(text) and (label.startswith(text) or text.startswith(f'{label}"'))
