"""Answers that a program writes: the value that a model in Python returns, and answers that tests write.

A text is the reply where the only exit takes one text. A `WrittenAnswer` leaves out what the request says: the type of
the artifact, the field of a text, the names of tools.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import AdapterInvalid, ScriptInvalid
from reyn.models.messages import ToolCall
from reyn.models.protocol import Candidate, Completion, Model, ModelAnswer, ModelRequest, call_id, reply_field

if TYPE_CHECKING:
    from reyn.journal.kinds import AnswerForm

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_VALUE = "value"
"""The field of a function's result that holds a value that is no object."""


class WrittenAnswer(dict[str, Any]):
    """An answer in the full form, without what a request says. `reyn.testing` makes them: `finish`, `goto`, `reply`."""

    def completed(self, request: ModelRequest) -> dict[str, Any]:
        """Return the whole answer.

        Raises:
            ScriptInvalid: The phase has no such exit, or several.
        """
        control, artifact = self.get("control"), self.get("artifact")
        if control is None or artifact is None or control.get("type") == "abort":
            return dict(self)
        candidate = self._candidate(control, artifact, request)
        data = _fitting(artifact["data"], candidate)
        return {**self, **_decision(candidate, data, control)}

    def _candidate(self, control: dict[str, Any], artifact: dict[str, Any], request: ModelRequest) -> Candidate:
        kind, target = control.get("type"), control.get("next_phase")
        if kind is None:
            found = [one for one in request.candidates if reply_field((one,)) is not None]
            found = [one for one in found if one.next_phase == request.phase] or found
        else:
            found = [one for one in request.candidates if one.control_type == kind]
            found = [one for one in found if kind == "finish" or one.next_phase == target]
        if "type" in artifact:
            found = [one for one in found if one.schema_name == artifact["type"]]
        if len(found) == 1:
            return found[0]
        name = "reply(…)" if kind is None else "finish(…)" if kind == "finish" else f"goto({target!r}, …)"
        if found:
            types = " and ".join(f"`{one.schema_name}`" for one in found)
            raise ScriptInvalid(
                f"`{name}` in phase `{request.phase}` fits artifacts of the types {types}", hint="Pass `type`."
            )
        exits = ", ".join(_exit(one) for one in request.candidates) or "none before its ops are done"
        what = "no exit that takes one text" if kind is None else "no such exit"
        hint = "Use one of these exits. To test how an answer is rejected, write it as a dict."
        raise ScriptInvalid(f"`{name}`: phase `{request.phase}` has {what}; it has {exits}", hint=hint)


def _exit(candidate: Candidate) -> str:
    to = "finish" if candidate.control_type == "finish" else f"goto {candidate.next_phase!r}"
    return f"{to} with `{candidate.schema_name}`"


def _fitting(data: Any, candidate: Candidate) -> Any:
    """Return the data of an artifact. A value goes into the only field of its type."""
    schema = candidate.artifact_schema
    fields = schema.get("properties", {}) if isinstance(schema, dict) else {}
    if len(fields) != 1:
        return data
    [field] = fields
    is_value = not isinstance(data, dict) or (field == _VALUE and field not in data)
    return {field: data} if is_value else data


def _decision(candidate: Candidate, data: Any, control: dict[str, Any]) -> dict[str, Any]:
    is_finish = candidate.control_type == "finish"
    decided = {
        "type": candidate.control_type,
        "decision": "finish" if is_finish else "continue",
        "next_phase": None if is_finish else candidate.next_phase,
    }
    return {"control": control | decided, "artifact": {"type": candidate.schema_name, "data": data}}


REPLY_CONTROL: dict[str, Any] = {"confidence": 1, "reason": {"summary": "replied"}}
"""What a text says about control, where it is the reply."""


def to_answer(answer: object, request: ModelRequest) -> ModelAnswer:
    """Return what a model returned as the answer to a request: text and dicts, too.

    Raises:
        ScriptInvalid: An answer of `reyn.testing` does not fit the request.
        TypeError: It is something else.
    """
    match answer:
        case ModelAnswer():
            return answer
        case str():
            if len(request.candidates) != 1 or reply_field(request.candidates) is None or _is_object(answer):
                return ModelAnswer(answer)
            if request.contract == {"type": "string"}:
                return ModelAnswer(answer)
            written = WrittenAnswer(control=REPLY_CONTROL, artifact={"data": answer})
            return to_reply(written.completed(request), None, request.answer_form, request.run_id, request.call)
        case WrittenAnswer():
            answer = answer.completed(request)
            if request.answer_form == "tools" and "control" not in answer:
                answer = {"tool_calls": [_native(op) for op in answer["control_ir"]]}
            return to_reply(answer, None, request.answer_form, request.run_id, request.call)
        case dict():
            return to_reply(answer, None, request.answer_form, request.run_id, request.call)
    raise TypeError(f"`complete` must return a `ModelAnswer`, a text or a dict, not {type(answer).__name__}")


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.MsgspecError:
        return False


def _native(op: dict[str, Any]) -> dict[str, Any]:
    """Return an op as a native tool call."""
    name = f"{op['kind']}_{op['op']}" if op.get("op") else op["kind"]
    arguments = {key: value for key, value in op.items() if key not in ("kind", "op")}
    return {"name": _NOT_IN_NAMES.sub("_", name), "arguments": arguments}


def to_reply(answer: dict[str, Any] | str, text: str | None, form: AnswerForm, run_id: str, call: str) -> ModelAnswer:
    """Return an answer that a person wrote as the reply of a model; in the form `tools` with its tool calls.

    Args:
        answer: The answer.
        text: Its text, if it is known.
        form: The form in which the model was asked.
        run_id: The run.
        call: The model call, which the ids of tool calls derive from.
    """
    calls = answer.get("tool_calls") if isinstance(answer, dict) else None
    if form != "tools" or not isinstance(answer, dict) or not isinstance(calls, list):
        return ModelAnswer(answer_text(answer) if text is None else text)
    tool_calls = tuple(
        ToolCall(
            str(one.get("id") or call_id(run_id, call, number)),
            str(one.get("name", "")),
            answer_text(one.get("arguments", {})),
        )
        for number, one in enumerate((one for one in calls if isinstance(one, dict)), 1)
    )
    return ModelAnswer(str(answer.get("content") or ""), tool_calls=tool_calls)


def answer_text(value: Any) -> str:
    """Return an answer as text: JSON, unless it is a text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class FunctionModel:
    """A function of a program as a model: it takes the request and returns the answer. It may be `async`."""

    def __init__(self, function: Callable[[ModelRequest], object]) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.takes_time = inspect.iscoroutinefunction(function)

    async def complete(self, request: ModelRequest) -> Completion:
        """Return what the function returns."""
        answer = self._function(request)
        return await answer if inspect.isawaitable(answer) else answer  # type: ignore[return-value]  # checked when it is used


def as_model(model: object) -> Model:
    """Return the model that a program passes: an object with `name` and `complete`, or a function.

    Raises:
        AdapterInvalid: It is neither.
    """
    if isinstance(model, type):
        raise AdapterInvalid(
            f"the model is the class `{model.__name__}`", hint=f"Pass an object: `{model.__name__}()`."
        )
    if isinstance(model, Model):
        return model
    if callable(model):
        return FunctionModel(model)
    raise AdapterInvalid(f"the model is a {type(model).__name__}, which is no model", hint=MODEL_HINT)


MODEL_HINT = (
    "Pass the name of a model, an `OpenAICompatible`, an object with `name` and `complete`, or a function that takes "
    "the request and returns the answer."
)
"""What can be passed as a model."""
