"""The form `tools`: ops as native tools of the model, and tool calls as ops.

Each form of an op is one tool, such as `file_read`. An answer with tool calls is an act turn. Without calls, its text
is the decision: the short form as JSON, or the reply itself if the only candidate is an artifact of one text field.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.contract.parsing import Parsed, parse
from reyn.contract.verdicts import Rejected, short
from reyn.models import ToolDefinition
from reyn.models.native_reply import NativeReply, decode_reply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.config import Sizes
    from reyn.contract.candidates import Candidate
    from reyn.models import ToolCall
    from reyn.vocabulary import OpForm, OpSpec

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_NAME_LENGTH = 64
"""The longest name of a tool that providers accept."""
_OP_PATH = re.compile(r"^\$\.control_ir\[(\d+)\]")
_TEXT_KEYWORDS = {"type", "description", "title", "minLength", "maxLength", "examples", "default"}


class _Tool(NamedTuple):
    definition: ToolDefinition
    fixed: dict[str, Any]
    """The fields of the op that the name of the tool stands for."""


class ToolsForm:
    """The tools of one turn, and the rules that turn an answer into the object of the contract.

    Attributes:
        reply_field: The field that the text of an answer fills, if the only candidate is a plain text reply.
    """

    def __init__(
        self, candidates: tuple[Candidate, ...], ops: Iterable[OpSpec], sizes: Sizes, *, asks_handoff: bool
    ) -> None:
        self._candidates = candidates
        self._sizes = sizes
        self._tools = _tools(ops)
        self.reply_field = None if asks_handoff else reply_field(candidates)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools to offer."""
        return tuple(tool.definition for tool in self._tools.values())

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

    def to_ops(self, calls: tuple[ToolCall, ...]) -> list[dict[str, Any]] | Rejected:
        """Return the ops that tool calls stand for, in their order. Their arguments are not validated yet."""
        if len(calls) > self._sizes.answer_ops:
            message = f"{len(calls)} tool calls are more than the {self._sizes.answer_ops} allowed"
            return Rejected("size", "$.tool_calls", message)
        ops: list[dict[str, Any]] = []
        seen: set[str] = set()
        for index, call in enumerate(calls):
            op = self._to_op(call, f"$.tool_calls[{index}]", seen)
            if isinstance(op, Rejected):
                return op
            seen.add(call.id)
            ops.append(op)
        return ops

    def _to_op(self, call: ToolCall, path: str, seen: set[str]) -> dict[str, Any] | Rejected:
        if not call.id:
            return Rejected("ops", f"{path}.id", "the tool call has no id")
        if call.id in seen:
            return Rejected("ops", f"{path}.id", short(f"the id {call.id!r} is there twice; each call needs its own"))
        tool = self._tools.get(call.name)
        if tool is None:
            names = " or ".join(repr(name) for name in self._tools)
            instead = f"use {names}" if names else "no tools are offered here; decide instead"
            return Rejected("ops", f"{path}.name", short(f"{call.name!r} is not a tool; {instead}"))
        # Models send an empty text for a tool without arguments.
        parsed = parse(call.arguments, self._sizes) if call.arguments.strip() else Parsed({})
        if isinstance(parsed, Rejected):
            message = parsed.message.replace("the answer", "the value", 1)
            return Rejected(parsed.rule, short(parsed.path.replace("$", f"{path}.arguments", 1)), message)
        arguments = parsed.value
        if parsed.dropped:
            return Rejected("not_json", f"{path}.arguments", "the value is not one JSON object")
        for name, value in tool.fixed.items():  # the same value is no contradiction: results quote ops with it
            if arguments.get(name, value) != value:
                return Rejected("ops", f"{path}.arguments.{name}", f"the tool has no argument {name!r}")
        return tool.fixed | arguments

    def reply(self, content: str, probability: float | None) -> dict[str, Any] | Rejected:
        """Return the object of the contract for a plain text reply."""
        assert self.reply_field is not None
        if not content.strip():
            return Rejected("empty", "$.content", "the answer is empty")
        [candidate] = self._candidates
        is_finish = candidate.control_type == "finish"
        control = {
            "type": candidate.control_type,
            "decision": "finish" if is_finish else "continue",
            "next_phase": None if is_finish else candidate.next_phase,
            "confidence": 1.0 if probability is None else probability,  # there is no other choice
            "reason": {"summary": ""},
        }
        return {"control": control, "artifact": {"type": candidate.schema_name, "data": {self.reply_field: content}}}


def to_tool_path(path: str) -> str:
    """Return the path in the tool calls for a path in the ops of the contract's object."""
    return _OP_PATH.sub(r"$.tool_calls[\1].arguments", path)


def to_content_path(path: str) -> str:
    """Return the path in a plain text reply for a path in the contract's object."""
    return "$.content" if path.startswith("$.artifact.data") else path


def reply_field(candidates: tuple[Candidate, ...]) -> str | None:
    """Return the only field of the only candidate, if it is a required text that the model may write freely."""
    if len(candidates) != 1:
        return None
    schema = candidates[0].artifact_schema
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return None
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(properties) != 1:
        return None
    [(name, field)] = properties.items()
    is_text = isinstance(field, dict) and field.get("type") == "string" and field.keys() <= _TEXT_KEYWORDS
    return name if is_text and schema.get("required") == [name] else None


def _tools(ops: Iterable[OpSpec]) -> dict[str, _Tool]:
    tools: dict[str, _Tool] = {}
    for spec in ops:
        for form in spec.forms:
            name = _unique_name(f"{spec.kind}_{form.op}" if form.op else spec.kind, tools)
            fixed = {"kind": spec.kind} | ({"op": form.op} if form.op else {})
            definition = ToolDefinition(name, _description(spec, form), form.parameters)
            tools[name] = _Tool(definition, fixed)
    return tools


def _unique_name(name: str, taken: dict[str, _Tool]) -> str:
    """Return a name that providers accept and that no other tool has."""
    name = _NOT_IN_NAMES.sub("_", name)[:_NAME_LENGTH]
    number, unique = 2, name
    while unique in taken:
        suffix = f"_{number}"
        unique, number = name[: _NAME_LENGTH - len(suffix)] + suffix, number + 1
    return unique


def _description(spec: OpSpec, form: OpForm) -> str:
    return " ".join(part for part in (form.summary or spec.summary, spec.advice) if part)
