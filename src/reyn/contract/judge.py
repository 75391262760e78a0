"""Judge an answer of the model: accept it, or reject it with the class of the violated rule and a JSON path.

The checks run in stages: size, JSON, shape, consistency, candidate, artifact type, schema, ops. A single check against
the combined schema would be shorter, but a failing `oneOf` names no path. A short answer is expanded first. Answers are
never repaired; reasoning, a code fence or prose around one object is dropped and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from reyn.config import Sizes
from reyn.contract.forms import ShortForm, to_short_path
from reyn.contract.handoff import HANDOFF_SCHEMA
from reyn.contract.ops import OpRules
from reyn.contract.parsing import parse
from reyn.contract.schema import answer_schema, short_schema
from reyn.contract.tools import ToolsForm, reply_field, to_content_path, to_tool_path
from reyn.contract.verdicts import Accepted, Acting, Rejected, short
from reyn.jsonschema import Validator, compile_schema, lenient
from reyn.models.protocol import PLAIN_TEXT

if TYPE_CHECKING:
    from reyn.contract.candidates import Candidate
    from reyn.contract.verdicts import Verdict
    from reyn.journal.kinds import AnswerForm
    from reyn.models import ToolCall
    from reyn.vocabulary import OpSpec


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
_TEXT = {"type": "string"}


def _closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required or properties),
        "additionalProperties": False,
    }


_DECISION = compile_schema(
    _closed(
        {
            "control": _closed(
                {
                    "type": {"enum": ["transition", "finish", "abort"]},
                    "decision": {"enum": ["continue", "finish", "abort"]},
                    "next_phase": {"type": ["string", "null"]},
                    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                    "reason": _closed({"summary": _TEXT}),
                }
            ),
            "artifact": {},
            "control_ir": {"type": "array"},
        },
        "control",
    )
)
_ACT = compile_schema(_closed({"control_ir": {"type": "array"}}))
_ARTIFACT = compile_schema(_closed({"type": _TEXT, "data": {}}))


_HANDOFF = compile_schema(HANDOFF_SCHEMA)

_TRUNCATED = (
    "the answer was cut off at the longest that the model may give (`max_tokens`, or its context); answer with less"
)


class Contract:
    """The contract of one phase, compiled once.

    Attributes:
        candidates: The allowed transitions and finish.
        form: The form in which the model is asked to answer.
        schema: The JSON Schema of every allowed answer, for providers that can constrain their output.
        tools: In the form `tools`, the offered ops as native tools.
        is_plain_text: Whether the answer is the text of a reply instead of JSON.
        ops: The rules for the offered ops.
        reply_field: The only field of the only candidate, if it is a text that the model may write freely.
    """

    def __init__(
        self,
        candidates: tuple[Candidate, ...],
        ops: tuple[OpSpec, ...] = (),
        *,
        strict: bool = False,
        sizes: Sizes | None = None,
        form: AnswerForm = "full",
        asks_handoff: bool = False,
        allows_abort: bool = True,
    ) -> None:
        self.candidates = candidates
        self.form = form
        self._asks_handoff = asks_handoff
        self._allows_abort = allows_abort
        self._short = None if form == "full" else ShortForm(candidates, allows_abort=allows_abort)
        self.ops = OpRules(ops)
        self._sizes = sizes or Sizes()
        self._tools = ToolsForm(candidates, ops, self._sizes, asks_handoff=asks_handoff) if form == "tools" else None
        self.tools = self._tools.definitions if self._tools else ()
        self.reply_field = reply_field(candidates)
        self.is_plain_text = self._tools is not None and self._tools.reply_field is not None
        self.schema: dict[str, Any] = PLAIN_TEXT
        if not self.is_plain_text:
            build_schema = answer_schema if form == "full" else short_schema
            self.schema = build_schema(
                candidates,
                () if form == "tools" else ops,
                asks_handoff=asks_handoff,
                allows_abort=allows_abort,
            )
        self._branches: dict[str | None, dict[str, Validator]] = {}
        for candidate in candidates:
            target = None if candidate.control_type == "finish" else candidate.next_phase
            schema = candidate.artifact_schema if strict else lenient(candidate.artifact_schema)
            self._branches.setdefault(target, {})[candidate.schema_name] = compile_schema(schema)

    def judge(self, text: str, *, is_truncated: bool = False, probability: float | None = None) -> Verdict:
        """Return the verdict on an answer.

        Args:
            text: The answer; in the form `tools`, the recorded content and tool calls.
            is_truncated: Whether it ended at a length limit of the model.
            probability: The probability of the choice, if the engine measured it; the confidence of a short answer.
        """
        if self._tools is not None:
            reply = self._tools.decode(text)
            if isinstance(reply, Rejected):
                return reply
            if reply.tool_calls:
                verdict = self._judge_calls(self._tools, reply.tool_calls)
                if isinstance(verdict, Rejected) and is_truncated:
                    return Rejected("size", verdict.path, _TRUNCATED)
                return verdict
            if self.is_plain_text:
                return self._judge_reply(self._tools, reply.content, is_truncated, probability)
            text = reply.content
        return self._judge_text(text, is_truncated, probability)

    def _judge_text(self, text: str, is_truncated: bool, probability: float | None) -> Verdict:
        parsed = parse(text, self._sizes)
        if isinstance(parsed, Rejected):
            return Rejected("size", "$", _TRUNCATED) if is_truncated else parsed
        dropped = parsed.dropped
        value, handoff = self._split_handoff(parsed.value)
        if isinstance(handoff, Rejected):
            return handoff
        if self._short is None:
            verdict = self._judge_object(value, parsed.artifact_json)
        else:
            verdict = self._judge_short(value, probability, parsed.artifact_json)
        if handoff is not None and isinstance(verdict, Accepted):
            verdict = msgspec.structs.replace(verdict, handoff=handoff)
        return msgspec.structs.replace(verdict, dropped=dropped) if dropped else verdict

    def reject_output(self, path: str, message: str) -> Rejected:
        """Return the rejection of a final output that fits its schema; `path` leads to the error in its data."""
        full = f"$.artifact.data{path.removeprefix('$')}"
        return Rejected("value", short(full if self._short is None else to_short_path(full)), short(message))

    def _split_handoff(self, value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | Rejected | None]:
        """Separate the handoff from a decision, if the model was asked for one; elsewhere it is an unknown key."""
        is_decision = "control" in value or (self._short is not None and "choice" in value)
        if not self._asks_handoff or not is_decision or "handoff" not in value:
            return value, None
        handoff, rest = value["handoff"], {key: part for key, part in value.items() if key != "handoff"}
        error = _HANDOFF.first_error(handoff) if handoff is not None else None
        return rest, Rejected("shape", short(error.path("$.handoff")), short(error.message)) if error else handoff

    def _judge_short(self, value: dict[str, Any], probability: float | None, artifact_json: bytes | None) -> Verdict:
        assert self._short is not None
        expanded = self._short.expand(value, probability)
        if isinstance(expanded, Rejected):
            return expanded
        if self._tools is not None and expanded.get("control_ir"):
            path = "$.control_ir" if "control_ir" in value else "$.ops"
            return Rejected("ops", path, "call the tools instead of writing ops into the text")
        verdict = self._judge_object(expanded, artifact_json if expanded is value else None)
        if isinstance(verdict, Rejected) and expanded is not value:
            return msgspec.structs.replace(verdict, path=to_short_path(verdict.path))
        return verdict

    def _judge_calls(self, tools: ToolsForm, calls: tuple[ToolCall, ...]) -> Verdict:
        ops = tools.to_ops(calls)
        if isinstance(ops, Rejected):
            return ops
        rejected = self._op_error(ops, "decide instead")
        if rejected is not None:
            return msgspec.structs.replace(rejected, path=to_tool_path(rejected.path))
        return Acting(tuple(ops))

    def _judge_reply(self, tools: ToolsForm, content: str, is_truncated: bool, probability: float | None) -> Verdict:
        """Judge the text of a reply. A truncated one is rejected, because nothing in a text shows that it is whole."""
        if is_truncated:
            return Rejected("size", "$.content", _TRUNCATED)
        answer = tools.reply(content, probability)
        verdict = answer if isinstance(answer, Rejected) else self._judge_object(answer)
        if isinstance(verdict, Rejected):
            return msgspec.structs.replace(verdict, path=to_content_path(verdict.path))
        return verdict

    def _judge_object(self, value: dict[str, Any], artifact_json: bytes | None = None) -> Verdict:
        if value.get("control_ir") and "control" not in value and "artifact" not in value:
            return self._act(value)
        try:
            answer = msgspec.convert(value, _Answer)
        except msgspec.ValidationError:
            return _shape_error(value, _DECISION)
        return self._too_many(answer.control_ir) or self._inconsistency(answer) or self._decide(answer, artifact_json)

    def _act(self, value: dict[str, Any]) -> Verdict:
        try:
            turn = msgspec.convert(value, _ActTurn)
        except msgspec.ValidationError:
            return _shape_error(value, _ACT)
        rejected = self._too_many(turn.control_ir) or self._op_error(turn.control_ir, "decide instead")
        return rejected or Acting(tuple(turn.control_ir))

    def _too_many(self, ops: list[Any]) -> Rejected | None:
        if len(ops) <= self._sizes.answer_ops:
            return None
        return Rejected("size", "$.control_ir", f"{len(ops)} ops are more than the {self._sizes.answer_ops} allowed")

    def _op_error(self, ops: list[Any], instead: str) -> Rejected | None:
        error = self.ops.first_error(ops, instead)
        return Rejected("ops", short(error[0]), short(error[1])) if error else None

    def _inconsistency(self, answer: _Answer) -> Rejected | None:
        control = answer.control
        if control.decision != _DECISION_OF[control.type]:
            required = _DECISION_OF[control.type]
            return Rejected("consistency", "$.control.decision", f"type {control.type!r} needs decision {required!r}")
        if (control.type == "transition") != (control.next_phase is not None):
            required = "the name of a phase" if control.type == "transition" else "null"
            return Rejected("consistency", "$.control.next_phase", f"type {control.type!r} needs next_phase {required}")
        if control.type == "abort" and not self._allows_abort:
            return Rejected(
                "candidate", "$.control.type", "a conversation is not aborted; reply, and say what is wrong"
            )
        if control.type == "abort" and answer.control_ir:
            return Rejected("ops", "$.control_ir", "an abort performs no ops; leave control_ir empty")
        return None

    def _decide(self, answer: _Answer, artifact_json: bytes | None) -> Verdict:
        control = answer.control
        artifact = None
        if control.type != "abort":
            result = self._check_artifact(answer)
            if isinstance(result, Rejected):
                return result
            artifact = {"type": result.type, "data": result.data}
        rejected = self._op_error(answer.control_ir, "leave control_ir empty")
        return rejected or Accepted(
            control.type,
            control.decision,
            control.next_phase,
            control.confidence,
            control.reason.summary,
            artifact,
            tuple(answer.control_ir),
            artifact_json=None if artifact is None else artifact_json,
        )

    def _check_artifact(self, answer: _Answer) -> _Artifact | Rejected:
        target = answer.control.next_phase
        branches = self._branches.get(target)
        if branches is None:
            return Rejected("candidate", "$.control.next_phase", self._not_offered(target))
        try:
            artifact = msgspec.convert(answer.artifact, _Artifact)
        except msgspec.ValidationError:
            return _shape_error(answer.artifact, _ARTIFACT, "$.artifact")
        validator = branches.get(artifact.type)
        if validator is None:
            names = " or ".join(repr(name) for name in branches)
            return Rejected("artifact_type", "$.artifact.type", f"{artifact.type!r} does not fit here; use {names}")
        if validator.is_valid(artifact.data):
            return artifact
        error = validator.first_error(artifact.data)
        assert error is not None
        return Rejected("schema", short(error.path("$.artifact.data")), short(error.message))

    def _not_offered(self, target: str | None) -> str:
        names = [repr(name) for name in self._branches if name is not None]
        allowed = f"next_phase must be {' or '.join(names)}" if names else "no other phase is offered"
        finish = "; or finish with next_phase null" if None in self._branches else ""
        what = "finishing is not offered here" if target is None else f"{target!r} is not offered here"
        return short(f"{what}; {allowed}{finish}")


def _shape_error(value: Any, shape: Validator, path: str = "$") -> Rejected:
    """Reject an answer of the wrong shape. The message does not depend on a library, so that replays agree."""
    error = shape.first_error(value)
    if error is None:
        return Rejected("shape", path, "it does not have the shape that was asked for")
    return Rejected("shape", short(error.path(path)), short(error.message))
