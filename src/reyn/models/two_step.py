"""Decide in two steps, for models below one billion parameters (`bench/decisions`): first the choice, then the answer.

The first step has two prompts. In one, each choice's text is an example input and its label the answer. The other is
the prompt of the answer, with the input and with the text of each choice: the words with which the model would begin to
say what it is about are compared. `local_engine` asks; this module writes the prompts and weighs what comes back.
Whether to act instead is decided before (`acting`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from reyn.journal.kinds import Usage
from reyn.models.messages import Message
from reyn.models.protocol import ANSWER_HEADING, ModelAnswer, ModelRequest
from reyn.texts import one_line

_CHOICE = re.compile(r'(?<!\\)"choice"\s*:\s*"')


# -- prompts ------------------------------------------------------------------------------------------


class ChoicePrompt(NamedTuple):
    """The prompts that ask for the choice alone.

    Attributes:
        examples: Messages that show each choice as an example; the input follows them.
        topic: The system message of the prompt in which the model names the topic of a text: that of the answer.
        topic_texts: Texts whose topic can be compared with that of the input, in the order of the choices.
        text: The input.
    """

    examples: tuple[Message, ...]
    topic: str
    topic_texts: tuple[str, ...]
    text: str

    @property
    def messages(self) -> tuple[Message, ...]:
        """The examples and the input."""
        return (*self.examples, Message("user", self.text))


def choice_prompt(request: ModelRequest) -> ChoicePrompt | None:
    """Return the prompts that ask for the choice alone.

    There are none if there is one candidate, if two candidates have the same text, or if acts are on offer, too.
    """
    if request.answer_form != "short":
        return None
    choices = [(candidate.label, one_line(candidate.description)) for candidate in request.candidates]
    texts, branches = {text.casefold() for _, text in choices}, _branches(request)
    if len(choices) < 2 or len(texts) < len(choices) or not branches or any("ops" in b["properties"] for b in branches):
        return None
    text = request.turn.text if request.turn is not None else without_closing(request.messages[1].text)
    return ChoicePrompt(example_messages(request.task, choices), request.messages[0].text, _named(choices), text)


def without_closing(text: str) -> str:
    """Return the last message without its end, which says what to answer."""
    before, heading, _ = text.rpartition(ANSWER_HEADING)
    return before if heading else text


def example_messages(task: str, choices: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    """Return examples of choices: for each label, a text for which it is right."""
    examples = [Message("system", task)]
    for label, text in choices:
        answer = json.dumps({"choice": label}, ensure_ascii=False)
        examples += [Message("user", text), Message("assistant", answer)]
    return tuple(examples)


def _named(choices: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{label}: {text}" for label, text in choices)


# -- the answer ---------------------------------------------------------------------------------------


def _branches(request: ModelRequest) -> list[dict[str, Any]]:
    return list(request.contract.get("anyOf", ()))


def decided_contract(request: ModelRequest, label: str) -> dict[str, Any]:
    """Return the contract of an answer that makes this choice."""
    return {"anyOf": [one for one in _branches(request) if one["properties"].get("choice") == {"const": label}]}


def decided_messages(request: ModelRequest) -> Sequence[Message]:
    """Return the prompt of an answer whose choice is made: without the choices after the input."""
    if request.turn is not None:
        return request.messages
    system, said, *rest = request.messages
    return (system, Message("user", without_closing(said.text)), *rest)


# -- the choice ---------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """The result of the first step.

    Attributes:
        labels: The choices on offer.
        by_examples: The probability of each label after the examples.
        similarities: The similarity of the input with the text of each choice; empty if it was not measured.
        usage: What the step used.
        shared: What the call used whose prompt is that of the answer, too. It is a part of `usage`.
    """

    labels: tuple[str, ...]
    by_examples: list[float]
    similarities: list[float]
    usage: Usage
    shared: Usage = Usage()

    @property
    def label(self) -> str:
        """The choice."""
        return self.labels[max(range(len(self.labels)), key=self._probabilities.__getitem__)]

    @property
    def probability(self) -> float:
        """The probability of the choice among those on offer."""
        return max(self._probabilities)

    @property
    def _probabilities(self) -> list[float]:
        if not self.similarities:
            return self.by_examples
        return weighed(self.by_examples, self.similarities)

    def added_to(self, reply: ModelAnswer) -> ModelAnswer:
        """Return the reply of the second step with the probability of the choice and the usage of both steps.

        A prompt that both steps share counts once, and what the first step read of it does not count as cached.
        """
        usage = reply.usage
        if usage is not None:
            read = self.shared.input_tokens - self.shared.cached_tokens
            own = Usage(usage.input_tokens, usage.output_tokens, max(0, usage.cached_tokens - read))
            prompts = Usage(self.shared.input_tokens, 0, self.shared.cached_tokens)
            usage = own + (self.usage - prompts)
        return msgspec.structs.replace(reply, usage=usage, choice_probability=self.probability)


# -- topics: the word with which a model names what a text is about ------------------------------------

WEIGHT = 40.0
"""The weight of a similarity beside the logarithm of a probability, measured on small models (`bench/decisions`)."""

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


# -- probabilities of labels --------------------------------------------------------------------------


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
