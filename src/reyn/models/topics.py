"""Compare texts by the word with which a model names their topic.

The vector of a text has the log probabilities of the likeliest first words of its topic. Two texts are similar if the
same words are likely for both. Unlike a direct question for a label, this does not depend on the order of the labels,
nor on how often the model has seen them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WEIGHT = 40.0
"""The weight of a similarity beside the logarithm of a probability, measured on small models (`bench/decisions`)."""

REPLY_MARGIN = 0.02
"""How much more similar than a reply an op has to be, measured on small models (`bench/routing`)."""

Topic = dict[str, float]
"""The likeliest words, with their log probabilities above that of the least likely of them."""


def topic(alternatives: dict[str, float]) -> Topic:
    """Return the vector of a text from the log probabilities of the words that may name its topic."""
    least = min(alternatives.values(), default=0.0)
    return {word: value - least for word, value in alternatives.items() if value > least}


def similarity(first: Topic, second: Topic) -> float:
    """Return the cosine similarity of two vectors, from 0 to 1."""
    product = sum(value * second[word] for word, value in first.items() if word in second)
    length = math.sqrt(sum(value * value for value in first.values()) * sum(value * value for value in second.values()))
    return product / length if length else 0.0


def weighed(probabilities: Sequence[float], similarities: Sequence[float]) -> list[float]:
    """Return the probabilities of choices, given how similar the text of each is to the input.

    Choices at the end that have no text, and so no similarity, count as similar as the others on average.
    """
    mean = sum(similarities) / len(similarities)
    weights = [WEIGHT * (one - mean) for one in similarities]
    weights += [0.0] * (len(probabilities) - len(similarities))
    products = [one * math.exp(weight) for one, weight in zip(probabilities, weights, strict=True)]
    total = sum(products)
    return [product / total for product in products]


def weighed_acts(probabilities: Sequence[float], similarities: Sequence[float], replies: int) -> list[float]:
    """Return the probabilities of the choices in a conversation: to reply, or one of several ops.

    A model prefers the label of an op to that of a reply, or the reverse, whatever the input is. So replies and ops are
    compared by their similarity alone; the probabilities help to choose among the ops.

    Args:
        probabilities: The probability of each choice after the examples.
        similarities: The similarity of each choice with the input.
        replies: The number of choices, at the beginning, that are replies.
    """
    similarities = [one + REPLY_MARGIN for one in similarities[:replies]] + [*similarities[replies:]]
    highest = max(similarities)
    scores = [one * math.exp(WEIGHT * (own - highest)) for one, own in zip(probabilities, similarities, strict=True)]
    best = max(range(replies, len(scores)), key=scores.__getitem__)
    for number in range(replies):
        scores[number] = probabilities[best] * math.exp(WEIGHT * (similarities[number] - highest))
    total = sum(scores)
    return [score / total for score in scores]
