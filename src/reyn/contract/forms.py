"""Answer forms: the full form is the contract's object; the other forms are expanded into it before the verdict.

The short form says each thing once: `{"reason", "choice", "confidence", "data"}` to decide, `{"reason", "ops"}` to act.
A choice is the label of a candidate, or `abort`. A model that is asked for the short form may also answer in full.

In the form `tools`, ops are native tools of the model: each form of an op is one tool, such as `file_read`. An answer
with tool calls is an act turn. Without calls, its text is the decision: the short form as JSON, or the reply itself if
the only candidate is an artifact of one text field. A reply that is an object of the contract is that decision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.contract.parsing import Parsed, parse
from reyn.contract.schema import CONFIDENCE, DECISIONS, closed
from reyn.contract.verdicts import Rejected, bounded
from reyn.jsonschema import compile_schema
from reyn.models import Candidate, ToolCall, ToolDefinition
from reyn.models.protocol import NativeReply, decode_reply
from reyn.skills.values import ABORT
from reyn.vocabulary.schemas import STRING

if TYPE_CHECKING:
    from reyn.config import Sizes
    from reyn.vocabulary import OpSpec

_SHORT_DECISION = compile_schema(
    closed({"reason": STRING, "choice": STRING, "confidence": CONFIDENCE, "data": {}}, optional=("confidence", "data"))
)
_SHORT_ACT = compile_schema(closed({"reason": STRING, "ops": {"type": "array", "minItems": 1}}, optional=("reason",)))
_SHORT_KEYS = {"reason", "choice", "confidence", "data"}
_FULL_KEYS = {"control", "control_ir", "artifact"}
_SHORT_PATHS = (
    (re.compile(r"^\$\.artifact\.data"), "$.data"),
    (re.compile(r"^\$\.control_ir"), "$.ops"),
    (re.compile(r"^\$\.control\.reason\.summary"), "$.reason"),
    (re.compile(r"^\$\.control\.confidence"), "$.confidence"),
)
ROLLBACK = "rollback"
"""A type of control and a `next_phase` in the older form of the contract, which models still write."""
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_NAME_LENGTH = 64
"""The longest name of a tool that providers accept."""


class ShortForm:
    """Expands short answers of one turn by its candidates."""

    def __init__(self, candidates: Iterable[Candidate], *, allows_abort: bool = True, first: str = "") -> None:
        """Collect the choices. `first` says what has to be done before there are any."""
        self._first = first
        self._candidates: dict[str, Candidate | None] = {candidate.label: candidate for candidate in candidates}
        if allows_abort:
            self._candidates[ABORT] = None

    def is_decision(self, value: dict[str, Any]) -> bool:
        """Return whether a value is meant as a short decision: it names a choice, or has no keys but those of one."""
        if not isinstance(choice := value.get("choice"), str) or value.keys().isdisjoint(("reason", "confidence")):
            return False
        return choice in self._candidates or ("confidence" in value and value.keys() <= _SHORT_KEYS)

    def expand(self, value: dict[str, Any], probability: float | None) -> dict[str, Any] | Rejected:
        """Return the contract's object for a short answer; an answer in the full form is returned as it is.

        Args:
            value: The answer.
            probability: The probability that the engine measured for the choice; it replaces the stated confidence.
        """
        if not _FULL_KEYS.isdisjoint(value):
            return value
        if "ops" in value and "choice" in value:
            return Rejected("shape", "$.ops", "an answer has either `choice` or `ops`, not both")
        if (error := (_SHORT_ACT if "ops" in value else _SHORT_DECISION).first_error(value)) is not None:
            return Rejected.by("shape", error, "$")
        return {"control_ir": value["ops"]} if "ops" in value else self._expand_decision(value, probability)

    def _expand_decision(self, value: dict[str, Any], probability: float | None) -> dict[str, Any] | Rejected:
        choice = value["choice"]
        if choice not in self._candidates:
            instead = self._first or f"use {' or '.join(map(repr, self._candidates))}"
            back = f"; {no_rollback(ABORT in self._candidates)}" if choice == ROLLBACK else ""
            return Rejected("candidate", "$.choice", bounded(f"{choice!r} is not a choice; {instead}{back}"))
        confidence = value.get("confidence") if probability is None else probability
        if confidence is None:
            return Rejected("shape", "$.confidence", "it is missing; state a number from 0 to 1")
        candidate = self._candidates[choice]
        if candidate is not None and "data" not in value:
            return Rejected("shape", "$.data", f"it is missing; {choice!r} needs its fields")
        return _decision(candidate, confidence, value["reason"], value.get("data"))


def no_rollback(allows_abort: bool) -> str:
    """Return what a model does instead of a rollback."""
    instead = (
        "abort and say in the reason what is wrong with the input" if allows_abort else "reply and say what is wrong"
    )
    return f"a model cannot roll back: go to a phase that is offered, or {instead}"


def _decision(candidate: Candidate | None, confidence: float, reason: str, data: Any) -> dict[str, Any]:
    """Return the contract's object for a candidate; for an abort without one."""
    kind = candidate.control_type if candidate else ABORT
    control = {
        "type": kind,
        "decision": DECISIONS[kind],
        "next_phase": candidate.next_phase if candidate and kind == "transition" else None,
        "confidence": confidence,
        "reason": {"summary": reason},
    }
    return {"control": control, "artifact": {"type": candidate.schema_name, "data": data} if candidate else None}


def to_short_path(path: str) -> str:
    """Return the path in the short answer for a path in the contract's object."""
    for pattern, replacement in _SHORT_PATHS:
        path = pattern.sub(replacement, path)
    return path


class _Tool(NamedTuple):
    definition: ToolDefinition
    fixed: dict[str, Any]
    """The fields of the op that the name of the tool stands for."""


class ToolsForm:
    """The tools of one turn, and the rules that turn an answer into the object of the contract."""

    def __init__(self, ops: Iterable[OpSpec], sizes: Sizes) -> None:
        self._sizes = sizes
        self._tools = _tools(ops)
        self.definitions = tuple(tool.definition for tool in self._tools.values())

    def decode(self, text: str) -> NativeReply | Rejected:
        """Return a recorded answer, or why it cannot be judged."""
        try:
            reply = decode_reply(text)
        except (msgspec.MsgspecError, RecursionError):
            return Rejected("shape", "$", "the recorded answer is not one with content and tool calls")
        length = len(reply.content.encode()) + sum(len(call.arguments.encode()) for call in reply.tool_calls)
        if length > self._sizes.answer_bytes:
            return Rejected("size", "$", f"the answer is larger than {self._sizes.answer_bytes} bytes")
        return reply

    def to_ops(self, calls: tuple[ToolCall, ...]) -> list[dict[str, Any] | Rejected] | Rejected:
        """Return the op that each tool call stands for, or its error. Their arguments are not validated yet.

        Calls that cannot be told apart have no results of their own, so they are rejected as a whole.
        """
        if len(calls) > self._sizes.answer_ops:
            message = f"{len(calls)} tool calls are more than the {self._sizes.answer_ops} allowed"
            return Rejected("size", "$.tool_calls", message)
        seen: set[str] = set()
        for index, call in enumerate(calls):
            path = f"$.tool_calls[{index}].id"
            if not call.id:
                return Rejected("ops", path, "the tool call has no id")
            if call.id in seen:
                return Rejected("ops", path, bounded(f"the id {call.id!r} is there twice; each call needs its own"))
            seen.add(call.id)
        return [self._to_op(call, f"$.tool_calls[{index}]") for index, call in enumerate(calls)]

    def named(self, call: ToolCall) -> dict[str, Any]:
        """Return what an invalid call names: the kind and form of its tool, or the name that is none."""
        tool = self._tools.get(call.name)
        return ({"kind": bounded(call.name)} if tool is None else tool.fixed) | {"arguments": call.arguments}

    def _to_op(self, call: ToolCall, path: str) -> dict[str, Any] | Rejected:
        tool = self._tools.get(call.name)
        if tool is None:
            names = " or ".join(repr(name) for name in self._tools)
            instead = f"use {names}" if names else "no tools are offered here; decide instead"
            return Rejected("ops", f"{path}.name", bounded(f"{call.name!r} is not a tool; {instead}"))
        # Models send an empty text for a tool without arguments.
        parsed = parse(call.arguments, self._sizes) if call.arguments.strip() else Parsed({})
        if isinstance(parsed, Rejected):
            message = parsed.message.replace("the answer", "the value", 1)
            return Rejected(parsed.rule, bounded(parsed.path.replace("$", f"{path}.arguments", 1)), message)
        if parsed.dropped:
            return Rejected("not_json", f"{path}.arguments", "the value is not one JSON object")
        for name, value in tool.fixed.items():  # the same value is no contradiction: results quote ops with it
            if parsed.value.get(name, value) != value:
                return Rejected("ops", f"{path}.arguments.{name}", f"the tool has no argument {name!r}")
        return tool.fixed | parsed.value


def expand_text(candidate: Candidate, field: str, text: str, probability: float | None) -> dict[str, Any] | Rejected:
    """Return the object of the contract for a plain text reply."""
    if not text.strip():
        return Rejected("empty", "$.content", "the answer is empty")
    confidence = 1.0 if probability is None else probability  # there is no other choice
    return _decision(candidate, confidence, "", {field: text})


def _tools(ops: Iterable[OpSpec]) -> dict[str, _Tool]:
    tools: dict[str, _Tool] = {}
    for spec in ops:
        for form in spec.forms:
            name = _unique_name(f"{spec.kind}_{form.op}" if form.op else spec.kind, tools)
            fixed = {"kind": spec.kind} | ({"op": form.op} if form.op else {})
            description = " ".join(part for part in (form.summary or spec.summary, spec.advice) if part)
            tools[name] = _Tool(ToolDefinition(name, description, form.parameters), fixed)
    return tools


def _unique_name(name: str, taken: dict[str, _Tool]) -> str:
    """Return a name that providers accept and that no other tool has."""
    name = _NOT_IN_NAMES.sub("_", name)[:_NAME_LENGTH]
    number, unique = 2, name
    while unique in taken:
        suffix = f"_{number}"
        unique, number = name[: _NAME_LENGTH - len(suffix)] + suffix, number + 1
    return unique
