"""Acts of local models: whether to act next, which act it is, and its arguments (`bench/acts`).

A small model that is asked whether to act gives the same answer whatever the input is. So it continues a conversation
in which the text of each act was answered with its name, and messages that need no act with `answer`. What it answers
to messages without content is its bias, and is subtracted. A text that the input hands over, such as one to translate,
does not take part. A larger model reads all options, the decision first with its condition, and gives its reason before
it chooses.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.jsonschema.words import describe_fields
from reyn.models.message_parts import all_words, argument_values, content_words, parts_left, says_which, wish
from reyn.models.messages import Message
from reyn.models.two_step import WEIGHT, example_messages
from reyn.ranking import best_matches
from reyn.texts import one_line

if TYPE_CHECKING:
    from reyn.journal.kinds import Usage
    from reyn.models.protocol import ModelRequest, PerformedOp
    from reyn.vocabulary import OpForm, OpSpec, OpTarget

WITHOUT_ACTS = ("Hello.", "How are you?", "Thank you.", "A general question.", "I have some news for you.")
"""Messages that need no act: examples beside the text of each act."""
CONTENT_FREE = ("What is the capital of Japan?", "I am happy today.", "Tell me a joke.")
"""Messages that have nothing to do with any act. The model's answer to them is its bias."""
_THRESHOLD = 5.0
"""How much likelier than after messages without content an act has to be, as a logarithm (`bench/acts`)."""
_LEAST = 1e-9
"""The least probability that is told apart from none."""
DECIDE = "answer"
"""The label of a decision among the acts."""
MAX_OPTIONS = 8
"""The number of options above which the forms of an op are one option."""
MAX_TARGETS = 12
"""The number of targets of an op among which a model chooses. A small one has examples of fewer acts only."""
_ENOUGH = "the input is enough, nothing has to be looked up, changed or stored"
_DONE = "\n\n# Done so far\n"
_REFUSED = "\n\n# Not possible; use other arguments"
_NAME = re.compile(r"\S*[\d/_.:]\S*")
"""A name rather than a text: a path, an address, a number."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_UNITS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS = {word: number for number, word in enumerate(_UNITS.split())}
_NUMBER_WORDS |= {word: 10 * number for number, word in enumerate(_TENS.split(), 2)}
_NUMBER_WORDS |= {"dozen": 12, "hundred": 100, "thousand": 1000}


class Act(NamedTuple):
    """An act that the model may request next: one form of an op, or an op with a certain target.

    Attributes:
        label: Its name, unique among the acts of a turn.
        fixed: The fields of the op that it stands for: the kind, and the form or the target.
        text: When to choose it, on one line.
        fields: The further arguments, in words; empty if it needs none.
        group: What all forms of the op are for, if it has several.
        advice: What else there is to know about the arguments.
    """

    label: str
    fixed: dict[str, Any]
    text: str
    fields: str = ""
    group: str = ""
    advice: str = ""


def acts_of(ops: Sequence[OpSpec], text: str) -> tuple[Act, ...]:
    """Return the acts that the ops on offer allow, in their order; of many targets, those that match a text best."""
    return tuple(act for spec in ops for act in _acts(spec, text))


def _acts(spec: OpSpec, text: str) -> list[Act]:
    kind = {"kind": spec.kind}
    if spec.target_field is not None and spec.targets:
        field, targets = spec.target_field, () if spec.targets_of else _best_targets(spec.targets, text)
        return [
            Act(f"{spec.kind} {one.name}", kind | {field: one.name}, one_line(one.text), _target_fields(one))
            for one in targets
        ]
    return [
        Act(
            f"{spec.kind} {form.op}" if form.op else spec.kind,
            kind | ({"op": form.op} if form.op else {}),
            spec.summary_of(form),
            _form_fields(form),
            one_line(spec.summary) if len(spec.forms) > 1 else "",
            _form_advice(spec, form),
        )
        for form in spec.forms
    ]


def _best_targets(targets: tuple[OpTarget, ...], text: str) -> Sequence[OpTarget]:
    """Return the targets, in their order, if there are few; else those that match a text best, then the first ones."""
    if len(targets) <= MAX_TARGETS:
        return targets
    found = best_matches(text, [_searched(one) for one in targets], MAX_TARGETS)
    chosen = list(dict.fromkeys([*(number for number, _ in found), *range(len(targets))]))[:MAX_TARGETS]
    return [targets[number] for number in sorted(chosen)]


def _searched(target: OpTarget) -> str:
    """Return what a search for a target looks at."""
    return f"{target.name.replace('_', ' ').replace('-', ' ')} {target.text} {' '.join(target.hints)}"


def _form_fields(form: OpForm) -> str:
    """Return the required arguments of a form in words; those of an MCP tool are one level below."""
    parameters = form.parameters
    properties, required = parameters["properties"], parameters["required"]
    if required == ["args"]:
        return _object_fields("args", properties["args"])
    needed = {"type": "object", "properties": {name: properties[name] for name in required}, "required": required}
    fields = describe_fields(needed)
    return f"{fields}.\n" if fields else ""


def _form_advice(spec: OpSpec, form: OpForm) -> str:
    """Return what the op says about the arguments of its forms; that of an MCP tool lists them once more."""
    return f"{one_line(spec.advice)}\n" if form.parameters["required"] not in ([], ["args"]) else ""


def _target_fields(target: OpTarget) -> str:
    return "".join(_object_fields(name, schema) for name, schema in target.arguments.items())


def _object_fields(name: str, schema: Any) -> str:
    fields = describe_fields(schema)
    return f"{name}: {fields}.\n" if fields else ""


class ActPrompt(NamedTuple):
    """The prompts that compare acts.

    Attributes:
        task: The instructions.
        text: The part of the input that is left to do.
        acts: The acts on offer.
        may_decide: Whether the model may decide instead.
        groups: The forms of each op whose forms are one of `acts`, because there are many.
        done: What is done so far, as a section.
        parts: The parts of `text`, after an act.
    """

    task: str
    text: str
    acts: tuple[Act, ...]
    may_decide: bool
    groups: dict[str, tuple[Act, ...]]
    done: str
    parts: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(act.label for act in self.acts)

    @property
    def names(self) -> tuple[str, ...]:
        """What the model calls each option: a decision, if it may decide, then the acts."""
        names = [_name(act) for act in self.acts]
        unique = {name for name, count in Counter([DECIDE, *names]).items() if count == 1}
        shown = (name if name in unique else f"use {act.label}" for name, act in zip(names, self.acts, strict=True))
        return (*([DECIDE] if self.may_decide else []), *shown)

    @property
    def examples(self) -> tuple[Message, ...]:
        """The messages before the input: for each option, messages that it fits, in turn, each with its name."""
        acts = [(name, act.text) for name, act in zip(self.names[self.may_decide :], self.acts, strict=True)]
        replies = [(DECIDE, text) for text in WITHOUT_ACTS] if self.may_decide else []
        pairs = [one for pair in zip_longest(replies, acts) for one in pair if one is not None]
        return example_messages(self.task, pairs)

    @property
    def wishes(self) -> tuple[str, ...]:
        """The texts to compare, in turn: what is left to do, then each part of it."""
        texts = (self.text, *self.parts) if len(self.parts) > 1 else (self.text,)
        return tuple(map(wish, texts))

    def within(self, group: Act) -> ActPrompt:
        """Return the prompts that choose among the forms of an op."""
        return self._replace(acts=self.groups[group.label], may_decide=False, groups={})

    def options(self) -> tuple[Message, ...]:
        """Return the prompt that lists all options after the input: a decision first, then the acts."""
        listed = "".join(f"- {act.label}: {act.text}\n" for act in self.acts)
        step = f"# Next step\n- {DECIDE}: {_ENOUGH}\n{listed}\nAnswer in JSON: reason, next.\n"
        return (
            Message("system", self.task),
            Message("user", f"{self.text}{self.done}\n\n# Task\n{self.task}\n\n{step}"),
        )


def act_prompt(request: ModelRequest) -> ActPrompt | None:
    """Return the prompts that compare the acts on offer; `None` if there are none, or if nothing is left to do."""
    turn = request.turn
    if turn is None or not request.ops:
        return None
    parts = parts_left(turn.text, turn.done) if request.candidates else (turn.text,)
    if not parts:
        return None
    acts = acts_of(request.ops, turn.text)
    # A model calls an op that needs no arguments at random.
    acts = tuple(act for act in acts if act.fields) or acts
    if not request.candidates:  # one of them has to be done, and the others may be possible
        acts = tuple(act for act in acts if not any(_is_refused(act, done) for done in turn.done)) or acts
    shown, groups = _grouped(acts)
    return ActPrompt(
        request.task, " ".join(parts), shown, bool(request.candidates), groups, _done_text(turn.done), parts
    )


def _is_refused(act: Act, done: PerformedOp) -> bool:
    return not done.is_ok and act.fixed.items() <= done.args.items()


def _grouped(acts: tuple[Act, ...]) -> tuple[tuple[Act, ...], dict[str, tuple[Act, ...]]]:
    """Return the acts, with the forms of an op as one act if there are many acts, and the forms of these."""
    if len(acts) < MAX_OPTIONS:
        return acts, {}
    groups: dict[str, list[Act]] = {}
    for act in acts:
        groups.setdefault(str(act.fixed["kind"]) if act.group else act.label, []).append(act)
    several = {kind: tuple(forms) for kind, forms in groups.items() if len(forms) > 1}
    first = {kind: Act(kind, {"kind": kind}, forms[0].group) for kind, forms in several.items()}
    return tuple(first.get(kind) or forms[0] for kind, forms in groups.items()), several


def _name(act: Act) -> str:
    """Return what an act is called, without the op that takes it as its target or the server that offers it."""
    names = [str(value) for field, value in act.fixed.items() if field not in ("kind", "op")]
    return names[0] if names else act.label.rpartition("/")[2]


# -- the choice ---------------------------------------------------------------------------------------


class ActChoice(NamedTuple):
    """The result of comparing acts.

    Attributes:
        act: The act; `None` for a decision.
        probability: The probability of the choice.
        usage: What comparing used.
        reason: Why, in the words of the model.
    """

    act: Act | None
    probability: float
    usage: Usage
    reason: str = ""


def gains(own: Sequence[float], biases: Sequence[Sequence[float]]) -> list[float]:
    """Return how much likelier each option is after the input than after messages without content, as a logarithm.

    Args:
        own: The probability of each option after the input.
        biases: The same after each message of `CONTENT_FREE`.
    """
    means = (sum(map(_log, column)) / len(column) for column in zip(*biases, strict=True))
    return [_log(one) - mean for one, mean in zip(own, means, strict=True)]


def _log(probability: float) -> float:
    return math.log(max(probability, _LEAST))


def act_probability(prompt: ActPrompt, found: Sequence[float]) -> float:
    """Return the probability that an act is next, given the gain of each name of the options."""
    if not prompt.may_decide:
        return 1.0
    decision, *acts = found
    return 1 / (1 + math.exp(decision + _THRESHOLD - max(acts)))


def best_act(prompt: ActPrompt, found: Sequence[float], similarities: Sequence[float]) -> Act:
    """Return the act whose gain and whose similarity with the input are highest, weighted as for a choice."""
    scores = [gain + WEIGHT * one for gain, one in zip(found[prompt.may_decide :], similarities, strict=True)]
    return prompt.acts[max(range(len(scores)), key=scores.__getitem__)]


# -- arguments ----------------------------------------------------------------------------------------


def argument_prompts(request: ModelRequest, prompt: ActPrompt) -> Iterator[ActPrompt]:
    """Yield the prompts for the arguments of an act, until they are new: with what is done, then with what is left.

    A small model copies the arguments that it sees. Without them, it takes those that the message names. The second
    prompt says why an act was not possible.
    """
    yield prompt
    done = request.turn.done if request.turn is not None else ()
    refused = "".join(f"\n{_result(act)}" for act in done if not act.is_ok)
    if refused or (done and says_which(prompt.text)):
        yield prompt._replace(done=f"{_REFUSED}{refused}" if refused else "")


def act_messages(request: ModelRequest, prompt: ActPrompt, act: Act) -> tuple[Message, ...]:
    """Return the prompt for the arguments of an act. In a conversation, the text of the act says what to do."""
    turn = request.turn
    assert turn is not None
    task = "" if turn.is_conversation else f"{request.task.rstrip()}\n\n"
    step = f"{act.text.rstrip('.')}.\n\nTake the input of {_name(act)} from the message.\n{act.fields}{act.advice}"
    return (Message("system", f"{task}{step}"), Message("user", prompt.text + prompt.done))


def act_contract(request: ModelRequest, act: Act) -> dict[str, Any]:
    """Return the contract of an answer with one act."""
    branches = [one for one in request.contract.get("anyOf", ()) if "ops" in one["properties"]]
    return {"anyOf": [_with_act(branch, act) for branch in branches]}


def _with_act(branch: dict[str, Any], act: Act) -> dict[str, Any]:
    """Return the branch of an act turn with one act. A model would fill optional arguments at random."""
    calls: list[dict[str, Any]] = []
    for call in branch["properties"]["ops"]["items"]["anyOf"]:
        fields = call["properties"]
        if all(_accepts(fields.get(name, {}), value) for name, value in act.fixed.items()):
            first, *_ = call.get("anyOf", [{"required": []}])
            required = list(dict.fromkeys((*call["required"], *first["required"])))
            needed = {name: fields[name] for name in required} | {k: {"const": v} for k, v in act.fixed.items()}
            rest = {key: value for key, value in call.items() if key != "anyOf"}
            calls.append(rest | {"properties": needed, "required": required})
    ops = {"type": "array", "items": {"anyOf": calls}, "minItems": 1, "maxItems": 1}
    return branch | {"properties": branch["properties"] | {"ops": ops}}


def _accepts(schema: dict[str, Any], value: Any) -> bool:
    if "const" in schema:
        return bool(schema["const"] == value)
    return "enum" not in schema or value in schema["enum"]


def is_new(text: str, request: ModelRequest, act: Act, left: str) -> bool:
    """Return whether the op of an answer is one to perform: not one of this visit once more, with names that are known.

    A path, address or number that neither the instructions nor the input nor a result contains is invented: nothing
    asked for the op. An op that succeeded before has to take something else from what is left of the input. Work that
    must be done is performed with any names.

    Args:
        text: The answer.
        request: The request.
        act: The act that was chosen. Its own fields are no names that the model invents.
        left: The part of the input that no act has dealt with.
    """
    turn = request.turn
    assert turn is not None
    try:
        [call] = msgspec.json.decode(text)["ops"]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return True  # the OS rejects it and says why
    if any(call == done.args for done in turn.done):
        return False
    if not request.candidates:
        return True
    before = [done for done in turn.done if done.is_ok and act.fixed.items() <= done.args.items()]
    if before and set(content_words(left)).isdisjoint(all_words(" ".join(argument_values(call)))):
        return False
    told = f"{request.task} {turn.text} {' '.join(done.result for done in turn.done)}"
    known, numbers = set(all_words(told)), _numbers(told)
    chosen = argument_values({field: value for field, value in call.items() if field not in act.fixed})
    names = [value for value in chosen if _NAME.fullmatch(value)]
    return all(set(all_words(name)) <= known or _number(name) in numbers for name in names)


def _number(name: str) -> float | None:
    try:
        return abs(float(name))
    except ValueError:
        return None


def _numbers(text: str) -> set[float]:
    """Return the numbers in a text: in digits, with a point or a comma for fractions or thousands, and in words."""
    found: set[float] = set()
    for number in _NUMBER.findall(text):
        whole, _, rest = number.replace(",", ".").rpartition(".")
        found |= {float(re.sub("[.,]", "", number)), float(f"{whole.replace('.', '')}.{rest}" if whole else rest)}
    words = [_NUMBER_WORDS.get(word) for word in all_words(text)]
    found |= {float(number) for number in words if number is not None}
    return found | {float(tens + unit) for tens, unit in pairwise(words) if tens and unit and unit < 10 < tens < 100}


# -- the decision -------------------------------------------------------------------------------------


def without_acts(request: ModelRequest) -> ModelRequest:
    """Return the request of a decision: it offers no acts, and shows what is done."""
    turn = request.turn
    if turn is None:
        return request
    system, rest = Message("system", turn.system), request.messages[1:]
    if not turn.is_conversation:
        rest = (Message("user", turn.text + _done_text(turn.done)), *request.messages[2:])
    branches = [one for one in request.contract.get("anyOf", ()) if "ops" not in one["properties"]]
    return msgspec.structs.replace(request, messages=(system, *rest), contract=request.contract | {"anyOf": branches})


def _done_text(done: Sequence[PerformedOp]) -> str:
    """Return what is done so far, one line for each act: its arguments and its result."""
    lines = [f"{_line(act.args)}: {_result(act)}" for act in done]
    return _DONE + "\n".join(lines) if lines else ""


def _line(args: dict[str, Any]) -> str:
    name = " ".join(str(args[field]) for field in ("kind", "op") if field in args)
    return f"{name} {_json({field: value for field, value in args.items() if field not in ('kind', 'op')})}"


def _result(act: PerformedOp) -> str:
    """Return a result without what its arguments say; one that is truncated stays as it is."""
    try:
        result = msgspec.json.decode(act.result)
    except msgspec.DecodeError:
        return act.result
    if not isinstance(result, dict):
        return act.result
    known = act.args | ({"status": "ok"} if act.is_ok else {})
    told = {field: value for field, value in result.items() if known.get(field) != value}
    return _json(told) if told else "done"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
