"""Judge an answer of the model: accept it, or reject it with the class of the violated rule and a JSON path.

The checks run in stages: size, JSON, shape, consistency, candidate, artifact type, schema, ops. A single check against
the combined schema would be shorter, but a failing `oneOf` names no path. A short answer is expanded first. Answers are
never repaired; reasoning, a code fence or prose around one object is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import Sizes
from reyn.contract.forms import ROLLBACK, ShortForm, ToolsForm, expand_text, no_rollback, to_short_path
from reyn.contract.ops import Duty, OpRules
from reyn.contract.parsing import objects, parse
from reyn.contract.schema import CONFIDENCE, DECISIONS, HANDOFF_SCHEMA, answer_schema, closed
from reyn.contract.verdicts import Accepted, Acting, Judgement, Rejected, bounded
from reyn.jsonschema import Validator, compile_schema, lenient
from reyn.models.protocol import PLAIN_TEXT, reply_field
from reyn.skills.values import ABORT
from reyn.vocabulary.schemas import STRING

if TYPE_CHECKING:
    from reyn.journal.kinds import AnswerForm
    from reyn.models import Candidate, ToolCall
    from reyn.vocabulary import OpSpec

_CONTROL = closed(
    {
        "type": {"enum": list(DECISIONS)},
        "decision": {"enum": list(DECISIONS.values())},
        "next_phase": {"type": ["string", "null"]},
        "confidence": CONFIDENCE,
        "reason": closed({"summary": STRING}),
    }
)
_OF_CONTROL = {"type", "decision", "next_phase", "confidence"}
_OPS = {"type": "array"}
_DECISION = compile_schema(
    closed({"control": _CONTROL, "artifact": {}, "control_ir": _OPS}, optional=("artifact", "control_ir"))
)
_ACT = compile_schema(closed({"control_ir": _OPS}))
_ARTIFACT = compile_schema(closed({"type": STRING, "data": {}}))
_HANDOFF = compile_schema(HANDOFF_SCHEMA)

_TRUNCATED = (
    "the answer was cut off at the longest that the model may give (`max_tokens`, or its context); answer with less"
)


class Contract:
    """The contract of one phase, compiled once.

    Attributes:
        candidates: The allowed transitions and finish; none while work is left that the visit must do.
        form: The form in which the model is asked to answer.
        asks_handoff: Whether a decision hands something over to later phases.
        allows_abort: Whether the model can abort.
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
        left: tuple[Duty, ...] = (),
    ) -> None:
        self.candidates = () if left else candidates
        self.form = form
        self.asks_handoff = asks_handoff
        self.allows_abort = allows_abort
        self._left = left
        first = f"{_names(left)} has to be done first" if left else ""
        self._short = None if form == "full" else ShortForm(self.candidates, allows_abort=allows_abort, first=first)
        self.ops = OpRules(ops)
        self._sizes = sizes or Sizes()
        self._tools = ToolsForm(ops, self._sizes) if form == "tools" else None
        self.tools = self._tools.definitions if self._tools else ()
        self.reply_field = reply_field(self.candidates)
        self.is_plain_text = self._tools is not None and self.reply_field is not None and not asks_handoff
        self.schema: dict[str, Any] = PLAIN_TEXT
        in_schema = () if form == "tools" else ops
        if not self.is_plain_text and (self.candidates or in_schema or allows_abort):
            self.schema = answer_schema(
                self.candidates, in_schema, form, asks_handoff=asks_handoff, allows_abort=allows_abort
            )
        self._branches: dict[str | None, dict[str, Validator]] = {}
        for candidate in candidates:
            target = None if candidate.control_type == "finish" else candidate.next_phase
            schema = candidate.artifact_schema if strict else lenient(candidate.artifact_schema)
            self._branches.setdefault(target, {})[candidate.schema_name] = compile_schema(schema)

    def reading(self, names: Collection[str]) -> Contract:
        """Return the contract of a turn whose frame shows truncated content under these names, which ops can read."""
        contract = copy(self)
        contract.ops = self.ops.reading(names)
        return contract

    def judge(self, text: str, *, is_truncated: bool = False, probability: float | None = None) -> Judgement:
        """Return the verdict on an answer.

        Args:
            text: The answer; in the form `tools`, the recorded content and tool calls.
            is_truncated: Whether it ended at a length limit of the model.
            probability: The probability of the choice, if the engine measured it; the confidence of a short answer.
        """
        if self._tools is not None:
            native = self._judge_native(self._tools, text, is_truncated, probability)
            if not isinstance(native, str):
                return native
            text = native
        parsed = parse(text, self._sizes)
        if isinstance(parsed, Rejected):
            return Rejected("size", "$", _TRUNCATED) if is_truncated else parsed
        value, dropped, handoff = parsed.value, parsed.dropped, None
        if self.asks_handoff:
            value, handoff = self._split_handoff(value)
            if isinstance(handoff, Rejected):
                return handoff
        if self._short is None:
            verdict = self._judge_object(value, parsed.artifact_json)
        else:
            verdict = self._judge_short(value, probability, parsed.artifact_json)
        if handoff is not None and isinstance(verdict, Accepted):
            verdict = msgspec.structs.replace(verdict, handoff=handoff)
        return msgspec.structs.replace(verdict, dropped=dropped) if dropped else verdict

    def _judge_native(
        self, tools: ToolsForm, text: str, is_truncated: bool, probability: float | None
    ) -> Judgement | str:
        """Judge native tool calls or a plain reply; return the content of an answer in JSON, to be judged as such.

        Where a reply is asked for as text, an object of the contract is still a decision, and no text of a reply: an
        invalid one is rejected. An abort performs no ops, so the tool calls beside one are not executed.
        """
        reply = tools.decode(text)
        if isinstance(reply, Rejected):
            return reply
        if reply.tool_calls and not any(map(self._is_abort, objects(reply.content, self._sizes))):
            return self._judge_calls(tools, reply.tool_calls, is_truncated=is_truncated)
        if (
            reply.tool_calls
            or not self.is_plain_text
            or any(map(self._is_decision, objects(reply.content, self._sizes)))
        ):
            return reply.content
        return self._judge_reply(reply.content, is_truncated, probability)

    def _is_decision(self, value: dict[str, Any]) -> bool:
        """Return whether an object is meant as one of the contract, in the full form or in the short one."""
        assert self._short is not None
        control = value.get("control")
        if isinstance(control, dict) and (
            control.get("type") in list(DECISIONS) or len(_OF_CONTROL & control.keys()) > 1
        ):
            return True
        return _DECISION.is_valid(value) or _ACT.is_valid(value) or self._short.is_decision(value)

    def _is_abort(self, value: dict[str, Any]) -> bool:
        if not self._is_decision(value):
            return False
        control = value.get("control")
        return ABORT in (
            (control.get("type"), control.get("decision")) if isinstance(control, dict) else (value.get("choice"),)
        )

    def reject_output(self, path: str, message: str) -> Rejected:
        """Return the rejection of a final output that fits its schema; `path` leads to the error in its data."""
        full = f"$.artifact.data{path.removeprefix('$')}"
        return Rejected("value", bounded(full if self._short is None else to_short_path(full)), bounded(message))

    def _split_handoff(self, value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | Rejected | None]:
        """Separate the handoff from a decision; elsewhere it is an unknown key."""
        is_decision = "control" in value or (self._short is not None and "choice" in value)
        if not is_decision or "handoff" not in value:
            return value, None
        handoff, rest = value["handoff"], {key: part for key, part in value.items() if key != "handoff"}
        error = _HANDOFF.first_error(handoff) if handoff is not None else None
        return rest, Rejected.by("shape", error, "$.handoff") if error else handoff

    def _judge_short(self, value: dict[str, Any], probability: float | None, artifact_json: bytes | None) -> Judgement:
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

    def _judge_calls(self, tools: ToolsForm, calls: tuple[ToolCall, ...], *, is_truncated: bool) -> Judgement:
        """Judge native tool calls, each on its own. If none is valid, the answer is rejected."""
        found = tools.to_ops(calls)
        if isinstance(found, Rejected):
            return Rejected("size", found.path, _TRUNCATED) if is_truncated else found
        ops: list[dict[str, Any]] = []
        errors: dict[int, Rejected] = {}
        for index, op in enumerate(found):
            rejected = op if isinstance(op, Rejected) else self._call_error(op, index)
            if rejected is not None:
                errors[index] = Rejected("size", rejected.path, _TRUNCATED) if is_truncated else rejected
            ops.append(tools.named(calls[index]) if isinstance(op, Rejected) else op)
        return Acting(tuple(ops), is_native=True, errors=errors) if len(errors) < len(ops) else errors[0]

    def _call_error(self, op: dict[str, Any], index: int) -> Rejected | None:
        error = self.ops.error(op, f"$.tool_calls[{index}].arguments", "decide instead")
        return Rejected("ops", bounded(error[0]), bounded(error[1])) if error else None

    def _judge_reply(self, content: str, is_truncated: bool, probability: float | None) -> Judgement:
        """Judge the text of a reply. A truncated one is rejected, because nothing in a text shows that it is whole."""
        if is_truncated:
            return Rejected("size", "$.content", _TRUNCATED)
        assert self.reply_field is not None
        answer = expand_text(self.candidates[0], self.reply_field, content, probability)
        verdict = answer if isinstance(answer, Rejected) else self._judge_object(answer)
        if isinstance(verdict, Rejected) and verdict.path.startswith("$.artifact.data"):
            return msgspec.structs.replace(verdict, path="$.content")
        return verdict

    def _judge_object(self, value: dict[str, Any], artifact_json: bytes | None = None) -> Judgement:
        ops = value.get("control_ir")
        acts = bool(ops) and "control" not in value and "artifact" not in value
        if error := (_ACT if acts else _DECISION).first_error(value):
            control = value.get("control") if ROLLBACK not in self._branches else None
            if isinstance(control, dict) and ROLLBACK in (control.get("type"), control.get("decision")):
                return Rejected("candidate", "$.control.type", self._not_offered(ROLLBACK))
            return Rejected.by("shape", error, "$")
        ops = ops or []
        if len(ops) > self._sizes.answer_ops:
            message = f"{len(ops)} ops are more than the {self._sizes.answer_ops} allowed"
            return Rejected("size", "$.control_ir", message)
        if acts:
            return self._op_error(ops, "decide instead") or Acting(tuple(ops))
        return self._inconsistency(value["control"], ops) or self._decide(value, ops, artifact_json)

    def _op_error(self, ops: list[Any], instead: str) -> Rejected | None:
        error = self.ops.first_error(ops, instead) if ops else None
        return Rejected("ops", bounded(error[0]), bounded(error[1])) if error else None

    def _inconsistency(self, control: dict[str, Any], ops: list[Any]) -> Rejected | None:
        kind, required = control["type"], DECISIONS[control["type"]]
        if control["decision"] != required:
            return Rejected("consistency", "$.control.decision", f"type {kind!r} needs decision {required!r}")
        if (kind == "transition") != (control["next_phase"] is not None):
            required = "the name of a phase" if kind == "transition" else "null"
            return Rejected("consistency", "$.control.next_phase", f"type {kind!r} needs next_phase {required}")
        if kind == "abort" and not self.allows_abort:
            return Rejected(
                "candidate", "$.control.type", "a conversation is not aborted; reply, and say what is wrong"
            )
        if kind == "abort" and ops:
            return Rejected("ops", "$.control_ir", "an abort performs no ops; leave control_ir empty")
        return None

    def _decide(self, value: dict[str, Any], ops: list[Any], artifact_json: bytes | None) -> Judgement:
        control = value["control"]
        artifact: Any = None if control["type"] == "abort" else value.get("artifact")
        if control["type"] != "abort":
            # A decision that does the work itself holds only if its ops succeed.
            if not_done := self.ops.not_done(self._left, ops) if self._left else ():
                message = f"{_names(not_done)} has to be done first; nothing else is offered before that"
                return Rejected("candidate", "$.control.type", bounded(message))
            branches = self._branches.get(control["next_phase"])
            if branches is None:
                return Rejected("candidate", "$.control.next_phase", self._not_offered(control["next_phase"]))
            if error := _ARTIFACT.first_error(artifact):
                return Rejected.by("shape", error, "$.artifact")
            validator = branches.get(artifact["type"])
            if validator is None:
                names = " or ".join(repr(name) for name in branches)
                message = f"{artifact['type']!r} does not fit here; use {names}"
                return Rejected("artifact_type", "$.artifact.type", message)
            if error := validator.first_error(artifact["data"]):
                return Rejected.by("schema", error, "$.artifact.data")
        return self._op_error(ops, "leave control_ir empty") or Accepted(
            control["type"],
            control["decision"],
            control["next_phase"],
            float(control["confidence"]),
            control["reason"]["summary"],
            artifact,
            tuple(ops),
            artifact_json=None if artifact is None else artifact_json,
        )

    def _not_offered(self, target: str | None) -> str:
        names = [repr(name) for name in self._branches if name is not None]
        allowed = f"next_phase must be {' or '.join(names)}" if names else "no other phase is offered"
        finish = "; or finish with next_phase null" if None in self._branches else ""
        what = "finishing is not offered here" if target is None else f"{target!r} is not offered here"
        back = f"; {no_rollback(self.allows_abort)}" if target == ROLLBACK else ""
        return bounded(f"{what}; {allowed}{finish}{back}")


def _names(duties: tuple[Duty, ...]) -> str:
    return " and ".join(duty.name for duty in duties)
