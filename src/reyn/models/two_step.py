"""Decide in two steps, for models below one billion parameters (`bench/decisions`): first the choice, then the answer.

The first step has two prompts. In one, each choice's text is an example input and its label the answer. The other is
the prompt of the answer, with the input and with the text of each choice: the words with which the model begins its
reason are compared. In a conversation, the prompt of the answer depends on the choice, so the second prompt asks for
the topic of a text in one word. `local_engine` asks; this module writes the prompts and weighs what comes back.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.journal.kinds import Usage
from reyn.models.protocol import ANSWER_HEADING, Message, reply_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.models.protocol import ChatTurn, ModelAnswer, ModelRequest, OfferedTarget

_ABORT = "abort"
_TOPIC = "First say in one word what the message is about."
_CHOICE = re.compile(r'(?<!\\)"choice"\s*:\s*"')


# -- prompts ------------------------------------------------------------------------------------------


class OpChoice(NamedTuple):
    """A choice that stands for an op with a certain target, and the system message for an answer with this op."""

    label: str
    offered: OfferedTarget
    prompt: str


class ChoicePrompt(NamedTuple):
    """The prompts that ask for the choice alone.

    Attributes:
        examples: Messages that show each choice as an example; the input follows them. Empty if there is one choice.
        topic: The system message of the prompt in which the model names the topic of a text: that of the answer, or in
            a conversation one that asks for the topic in one word.
        topic_texts: Texts whose topic can be compared with that of the input, in the order of the choices.
        text: The input.
        ops: The choices that are ops. They come after the candidates.
        replies: In a conversation, example messages for each candidate. `topic_texts` then has the ops alone.
        is_conversation: Whether the input is the last message of a conversation.
        system: In a conversation, the system message of a reply.
        field: In a conversation whose reply is a single text, the field of the text; `system` then asks for text.
    """

    examples: tuple[Message, ...]
    topic: str
    topic_texts: tuple[str, ...]
    text: str
    ops: tuple[OpChoice, ...] = ()
    replies: tuple[tuple[str, ...], ...] = ()
    is_conversation: bool = False
    system: str = ""
    field: str = ""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The examples and the input."""
        return (*self.examples, Message("user", self.text))

    def op(self, label: str) -> OpChoice | None:
        """Return the op that a choice stands for; `None` if it is a decision."""
        return next((op for op in self.ops if op.label == label), None)

    def answer_messages(self, request: ModelRequest, op: OpChoice | None = None) -> Sequence[Message]:
        """Return the prompt for an answer whose choice is made, without the choices and the ops on offer.

        Args:
            request: The request.
            op: The op that the choice stands for; `None` for a decision.
        """
        if op is not None:
            return (Message("system", op.prompt), Message("user", self.text))
        if self.is_conversation:
            return (Message("system", self.system), *request.messages[1:])
        return (request.messages[0], Message("user", self.text), *request.messages[2:])


def choice_prompt(request: ModelRequest) -> ChoicePrompt | None:
    """Return the prompts that ask for the choice alone.

    There are none if the phase has one candidate, if two candidates have the same text, or if ops are offered outside
    of a conversation: the model may then act instead. Where it has to act, there is no candidate.
    """
    if request.answer_form != "short" or not request.candidates:
        return None
    choices = [(candidate.label, _one_line(candidate.description)) for candidate in request.candidates]
    if request.turn is not None:
        return _conversation_prompt(request, request.turn, choices)
    texts, branches = {text.casefold() for _, text in choices}, _branches(request)
    if len(choices) < 2 or len(texts) < len(choices) or not branches or any("ops" in b["properties"] for b in branches):
        return None
    system, turn = (message.text for message in request.messages[:2])
    before, heading, _ = turn.rpartition(ANSWER_HEADING)
    return ChoicePrompt(_examples(request.task, choices), system, _named(choices), before if heading else turn)


def _conversation_prompt(request: ModelRequest, turn: ChatTurn, choices: list[tuple[str, str]]) -> ChoicePrompt:
    """Return the prompts of a turn in a conversation: reply, or an op with one of its targets.

    The text of a candidate lists messages to which the model replies, separated by semicolons. A small model is not
    offered ops without targets, because it calls them at random.
    """
    replies, found = list(choices), []
    taken = {label for label, _ in choices} | {_ABORT}
    texts = {text.casefold() for _, text in choices}
    for target in turn.targets:
        label = f"{target.kind}:{target.name}" if target.name in taken else target.name
        text = target.text if target.text.casefold() not in texts else f"{label}: {target.text}"
        taken.add(label)
        texts.add(text.casefold())
        choices.append((label, text))
        prompt = f"{text}.\n\nTake the input of {label} from the message.\n{target.fields}"
        found.append(OpChoice(label, target, prompt))
    replies = replies if found else []
    is_choice = len(choices) > 1
    return ChoicePrompt(
        _examples(request.task, choices) if is_choice else (),
        f"{request.task}\n\n{_TOPIC}" if is_choice else request.messages[0].text,
        _named(choices[len(replies) :]) if is_choice else (),
        turn.text,
        tuple(found),
        tuple(tuple(part.strip() for part in text.split(";") if part.strip()) or (text,) for _, text in replies),
        is_conversation=True,
        system=turn.system,
        field=reply_field(request.candidates) or "",
    )


def _examples(task: str, choices: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    """Return an example for each choice: the text that says when to choose it, and its label."""
    examples = [Message("system", task)]
    for label, text in choices:
        answer = json.dumps({"choice": label}, ensure_ascii=False)
        examples += [Message("user", text), Message("assistant", answer)]
    return tuple(examples)


def _named(choices: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{label}: {text}" for label, text in choices)


def _one_line(text: str) -> str:
    return " ".join(text.split())


# -- the answer ---------------------------------------------------------------------------------------


def _branches(request: ModelRequest) -> list[dict[str, Any]]:
    return list(request.contract.get("anyOf", ()))


def decided_contract(request: ModelRequest, label: str, op: OpChoice | None) -> dict[str, Any]:
    """Return the contract of an answer whose choice is made.

    Args:
        request: The request.
        label: The only choice that the answer may make.
        op: The only op that it may have, if the choice stands for an op.
    """
    if op is not None:
        return {"anyOf": [_one_op(one, op.offered) for one in _branches(request) if "ops" in one["properties"]]}
    return {"anyOf": [one for one in _branches(request) if one["properties"].get("choice") == {"const": label}]}


def act_contract(request: ModelRequest) -> dict[str, Any]:
    """Return the contract of an answer to a request that has no candidate: one op, of those that are left to do.

    If there is one form of one op, the model fills in its arguments.
    """
    branches = [one for one in _branches(request) if "ops" in one["properties"]]
    return {"anyOf": [_with_ops(one, one["properties"]["ops"]["items"]["anyOf"]) for one in branches]}


def _one_op(branch: dict[str, Any], offered: OfferedTarget) -> dict[str, Any]:
    """Return the branch of an act turn with one op that has a certain target."""
    calls: list[dict[str, Any]] = []
    for call in branch["properties"]["ops"]["items"]["anyOf"]:
        fields = call["properties"]
        named = fields.get(offered.field, {})
        is_target = named.get("const") == offered.name or offered.name in named.get("enum", ())
        if fields["kind"] == {"const": offered.kind} and is_target:
            calls.append(call | {"properties": fields | {offered.field: {"const": offered.name}}})
    return _with_ops(branch, calls)


def _with_ops(branch: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the branch of an act turn with one of some calls."""
    ops = {"type": "array", "items": {"anyOf": calls}, "minItems": 1, "maxItems": 1}
    return branch | {"properties": branch["properties"] | {"ops": ops}}


# -- the choice ---------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """The result of the first step.

    Attributes:
        labels: The choices on offer.
        by_examples: The probability of each label after the examples.
        similarities: The similarity of the input with the text of each choice; empty if it was not measured.
        usage: What the step used.
        replies: In a conversation with ops to choose from, the number of labels that are replies.
        shared: What the call used whose prompt is that of the answer, too. It is a part of `usage`.
    """

    labels: tuple[str, ...]
    by_examples: list[float]
    similarities: list[float]
    usage: Usage
    replies: int = 0
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
        if self.replies:
            return weighed_acts(self.by_examples, self.similarities, self.replies)
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

    Labels that begin with the same token are distinguished where they differ from the generated one; those that differ
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
