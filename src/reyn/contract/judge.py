"""A model's text becomes a verdict: accepted, or rejected by a named class of rule at a JSON path.

In stages, cheapest first and each naming what it refused: sizes, JSON, shape, consistency, candidate, artifact type,
schema, ops. A single check against the combined schema would be shorter but could not say which part is wrong.
Nothing is repaired; a code fence or prose around one object is left aside and counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from reyn.config import Sizes
from reyn.contract.ops import OpRules
from reyn.contract.schema import answer_schema, lenient
from reyn.skills import Validator, compile_schema

if TYPE_CHECKING:
    from reyn.contract.candidates import Candidate
    from reyn.vocabulary import OpSpec

_LONGEST_MESSAGE = 500


class Accepted(msgspec.Struct, frozen=True):
    """A decision the OS may carry out. `artifact` is `None` only for an abort; `dropped` counts the characters around
    the object that were left aside."""

    type: Literal["transition", "finish", "abort"]
    decision: Literal["continue", "finish", "abort"]
    next_phase: str | None
    confidence: float
    reason: str
    artifact: dict[str, Any] | None
    ops: tuple[dict[str, Any], ...] = ()
    dropped: int = 0


class Acting(msgspec.Struct, frozen=True):
    """Ops to perform before the model is asked again; no decision yet."""

    ops: tuple[dict[str, Any], ...]
    dropped: int = 0


class Rejected(msgspec.Struct, frozen=True):
    """Why not, where, and in words that the model can act on."""

    rule: str
    path: str
    message: str
    dropped: int = 0


Verdict = Accepted | Acting | Rejected

CLASSES = (
    "empty",
    "size",
    "depth",
    "not_json",
    "not_object",
    "shape",
    "consistency",
    "candidate",
    "artifact_type",
    "schema",
    "ops",
)
"""The classes of rules by which an answer can be rejected."""


class _Reason(msgspec.Struct, forbid_unknown_fields=True):
    summary: str


class _Control(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["transition", "finish", "abort"]
    decision: Literal["continue", "finish", "abort"]
    next_phase: str | None
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reason: _Reason


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    control: _Control
    artifact: Any = None
    control_ir: list[Any] = []


class _ActTurn(msgspec.Struct, forbid_unknown_fields=True):
    control_ir: list[Any]


class _Artifact(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    data: Any


_DECISION_OF = {"transition": "continue", "finish": "finish", "abort": "abort"}
_PLACE = re.compile(r" - at `(.+)`$")
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.S)
_FENCE = re.compile(r"^```[a-zA-Z]*[ \t]*\n(.*?)\n?```[ \t]*$", re.M | re.S)
_JOINTS = ("[", "]", ",", '"', "{", "}", '":')


class Contract:
    """The rules for one phase, compiled once."""

    def __init__(
        self,
        candidates: tuple[Candidate, ...],
        ops: tuple[OpSpec, ...] = (),
        *,
        strict: bool = False,
        sizes: Sizes | None = None,
    ) -> None:
        self.candidates = candidates
        self.schema = answer_schema(candidates, ops)
        self._ops = OpRules(ops)
        self._sizes = sizes or Sizes()
        self._branches: dict[str | None, dict[str, Validator]] = {}
        for candidate in candidates:
            target = None if candidate.control_type == "finish" else candidate.next_phase
            schema = candidate.artifact_schema if strict else lenient(candidate.artifact_schema)
            self._branches.setdefault(target, {})[candidate.schema_name] = compile_schema(schema)

    def judge(self, text: str) -> Verdict:
        parsed = self._parse(text)
        if isinstance(parsed, Rejected):
            return parsed
        value, dropped = parsed
        verdict = self._judge_object(value)
        return msgspec.structs.replace(verdict, dropped=dropped) if dropped else verdict

    def _judge_object(self, value: dict[str, Any]) -> Verdict:
        if value.get("control_ir") and "control" not in value and "artifact" not in value:
            return self._act(value)
        try:
            answer = msgspec.convert(value, _Answer)
        except msgspec.ValidationError as error:
            return _shape_error(error)
        return self._too_many(answer.control_ir) or self._inconsistency(answer) or self._decide(answer)

    def _act(self, value: dict[str, Any]) -> Verdict:
        try:
            turn = msgspec.convert(value, _ActTurn)
        except msgspec.ValidationError as error:
            return _shape_error(error)
        wrong = self._too_many(turn.control_ir) or self._wrong_op(turn.control_ir, "decide instead")
        return wrong or Acting(tuple(turn.control_ir))

    def _too_many(self, ops: list[Any]) -> Rejected | None:
        if len(ops) <= self._sizes.answer_ops:
            return None
        return Rejected("size", "$.control_ir", f"{len(ops)} ops are more than the {self._sizes.answer_ops} allowed")

    def _wrong_op(self, ops: list[Any], instead: str) -> Rejected | None:
        wrong = self._ops.first_error(ops, instead)
        return Rejected("ops", _short(wrong[0]), _short(wrong[1])) if wrong else None

    def _parse(self, text: str) -> tuple[dict[str, Any], int] | Rejected:
        if not text or text.isspace():
            return Rejected("empty", "$", "the answer is empty")
        if len(text) > self._sizes.answer_bytes or len(text.encode()) > self._sizes.answer_bytes:
            return Rejected("size", "$", f"the answer is larger than {self._sizes.answer_bytes} bytes")
        value, dropped = _load(text, self._sizes.answer_depth)
        if isinstance(value, Rejected):
            return value
        if not isinstance(value, dict):
            return Rejected("not_object", "$", f"the answer is a JSON {_json_name(value)}, not an object", dropped)
        return value, dropped

    def _inconsistency(self, answer: _Answer) -> Rejected | None:
        control = answer.control
        if control.decision != _DECISION_OF[control.type]:
            wanted = _DECISION_OF[control.type]
            return Rejected("consistency", "$.control.decision", f"type {control.type!r} needs decision {wanted!r}")
        if (control.type == "transition") != (control.next_phase is not None):
            wanted = "the name of a phase" if control.type == "transition" else "null"
            return Rejected("consistency", "$.control.next_phase", f"type {control.type!r} needs next_phase {wanted}")
        if control.type == "abort" and answer.control_ir:
            return Rejected("ops", "$.control_ir", "an abort performs no ops; leave control_ir empty")
        return None

    def _decide(self, answer: _Answer) -> Verdict:
        control = answer.control
        artifact = None
        if control.type != "abort":
            checked = self._check_artifact(answer)
            if isinstance(checked, Rejected):
                return checked
            artifact = {"type": checked.type, "data": checked.data}
        wrong = self._wrong_op(answer.control_ir, "leave control_ir empty")
        return wrong or Accepted(
            control.type,
            control.decision,
            control.next_phase,
            control.confidence,
            control.reason.summary,
            artifact,
            tuple(answer.control_ir),
        )

    def _check_artifact(self, answer: _Answer) -> _Artifact | Rejected:
        target = answer.control.next_phase
        branches = self._branches.get(target)
        if branches is None:
            return Rejected("candidate", "$.control.next_phase", self._not_offered(target))
        try:
            artifact = msgspec.convert(answer.artifact, _Artifact)
        except msgspec.ValidationError as error:
            return _shape_error(error, "$.artifact")
        validator = branches.get(artifact.type)
        if validator is None:
            names = " or ".join(repr(name) for name in branches)
            return Rejected("artifact_type", "$.artifact.type", f"{artifact.type!r} does not fit here; use {names}")
        if validator.is_valid(artifact.data):
            return artifact
        wrong = validator.first_error(artifact.data)
        assert wrong is not None
        return Rejected("schema", _short(wrong.path("$.artifact.data")), _short(wrong.message))

    def _not_offered(self, target: str | None) -> str:
        names = [repr(name) for name in self._branches if name is not None]
        allowed = f"next_phase must be {' or '.join(names)}" if names else "no other phase is offered"
        finish = "; or finish with next_phase null" if None in self._branches else ""
        what = "finishing is not offered here" if target is None else f"{target!r} is not offered here"
        return _short(f"{what}; {allowed}{finish}")


def _load(text: str, depth: int) -> tuple[Any, int]:
    """The JSON in a text, and how many characters around it were left aside."""
    value = _decode(text, depth)
    if not isinstance(value, Rejected) or value.rule == "depth":
        return value, 0
    inner = _unwrap(text)
    if inner is not None:
        found = _decode(inner, depth)
        if not isinstance(found, Rejected) or found.rule == "depth":
            return found, len(text) - len(inner)
    return value, 0


def _decode(text: str, depth: int) -> Any:
    """The depth is counted before the parser sees the text: how deep a parser goes depends on the stack it runs on."""
    if _depth(text, depth) > depth:
        return Rejected("depth", "$", f"the answer is nested more than {depth} deep")
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        return Rejected("not_json", "$", _short(f"the answer is not one JSON object: {error}"))


def _depth(text: str, enough: int) -> int:
    """How deep the brackets outside strings nest; counted only where there are enough of them to matter."""
    if text.count("{") + text.count("[") <= enough:
        return 0
    level = deepest = 0
    for token in _BRACKETS.finditer(text):
        if token[0] in "{[":
            level += 1
            deepest = max(deepest, level)
            if deepest > enough:
                break
        elif token[0] in "}]":
            level -= 1
    return deepest


def _unwrap(text: str) -> str | None:
    """The inside of the one code fence, or the one object that prose stands around; `None` if there is neither."""
    fences = _FENCE.findall(text)
    if fences:
        return fences[0] if len(fences) == 1 else None
    start, end = text.find("{"), text.rfind("}") + 1
    before, after = text[:start].rstrip(), text[end:].lstrip()
    if start < 0 or end <= start or not (before or after):
        return None
    if before.endswith(_JOINTS) or after.startswith(_JOINTS):
        return None  # a part of other JSON, not an object in prose
    return text[start:end]


def _shape_error(error: msgspec.ValidationError, prefix: str = "$") -> Rejected:
    message = str(error)
    place = _PLACE.search(message)
    path = prefix + place.group(1)[1:] if place else prefix
    return Rejected("shape", path, _short(_PLACE.sub("", message)))


def _json_name(value: Any) -> str:
    return {list: "list", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"
