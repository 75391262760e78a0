"""Answers of a model, for scripts and models in tests: `finish(data)`, `goto(phase, data)`, `act(op)`, `reply(text)`.

Each is a dict in the shape of the output contract. It leaves out what the request says, such as the type of the
artifact; `ScriptedModel`, and Reyn for the answer of a model in Python, complete it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reyn.errors import ScriptInvalid
from reyn.functions.types import to_json
from reyn.models.answers import REPLY_CONTROL, WrittenAnswer


def finish(
    data: Any, *, type: str = "", reason: str = "done", confidence: float = 1, ops: Sequence[dict[str, Any]] = ()
) -> WrittenAnswer:
    """Return the answer that ends the run with its result.

    Args:
        data: The result: a dict, a dataclass or a model. A value that is no object goes into the only field, such as
            that of a function that returns `str` or `int`.
        type: The type of the artifact; by default, the one that the exit takes.
        reason: The model's reason.
        confidence: The model's confidence.
        ops: Ops that are performed with the decision.

    Raises:
        ScriptInvalid: An argument has no JSON form, or is of another type.
    """
    control = {"type": "finish", "decision": "finish", "next_phase": None}
    return _decision("finish", control, data, type, reason, confidence, ops)


def goto(
    phase: str,
    data: Any = None,
    *,
    type: str = "",
    reason: str = "done",
    confidence: float = 1,
    ops: Sequence[dict[str, Any]] = (),
) -> WrittenAnswer:
    """Return the answer that goes on to another phase with its input; `finish` documents the other arguments.

    Raises:
        ScriptInvalid: An argument has no JSON form, or is of another type.
    """
    _text("goto", "phase", phase)
    control = {"type": "transition", "decision": "continue", "next_phase": phase}
    return _decision("goto", control, {} if data is None else data, type, reason, confidence, ops)


def reply(text: str) -> WrittenAnswer:
    """Return the answer that replies with a text: in a chat, or as the result of a function that returns `str`.

    Raises:
        ScriptInvalid: The text is no text, or blank.
    """
    _text("reply", "text", text)
    return WrittenAnswer(control=REPLY_CONTROL, artifact={"data": text})


def give_up(reason: str) -> WrittenAnswer:
    """Return the answer that gives the task up.

    Raises:
        ScriptInvalid: The reason is no text, or blank.
    """
    _text("give_up", "reason", reason)
    control = {"type": "abort", "decision": "abort", "next_phase": None}
    return WrittenAnswer(control=control | {"confidence": 1, "reason": {"summary": reason}}, artifact={})


def act(*ops: dict[str, Any]) -> WrittenAnswer:
    """Return the answer that requests ops: `act({"kind": "file", "op": "read", "path": "notes.md"})`.

    A tool of a function is an op of its name: `act({"kind": "look_up", "item": "noodles"})`.

    Raises:
        ScriptInvalid: There is no op, or one is no dict with a `kind`.
    """
    if not ops:
        raise ScriptInvalid("`act` has no op", hint='Pass ops: `act({"kind": "look_up", "item": "noodles"})`.')
    return WrittenAnswer(control_ir=_ops("act", ops))


def _decision(
    name: str, control: dict[str, Any], data: Any, type: str, reason: str, confidence: object, ops: object
) -> WrittenAnswer:
    _text(name, "reason", reason)
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise ScriptInvalid(f"`{name}`: `confidence` is {confidence!r:.100}", hint="Use a number from 0 to 1.")
    artifact: dict[str, Any] = {"data": _json(name, "data", data)}
    if type != "":
        _text(name, "type", type)
        artifact = {"type": type} | artifact
    answer = WrittenAnswer(
        control=control | {"confidence": confidence, "reason": {"summary": reason}}, artifact=artifact
    )
    if ops != ():
        answer["control_ir"] = _ops(name, ops)
    return answer


def _ops(name: str, ops: object) -> list[dict[str, Any]]:
    if not isinstance(ops, list | tuple):
        raise ScriptInvalid(f"`{name}`: `ops` is {ops!r:.100}", hint="Pass a list of dicts with a `kind`.")
    listed: list[Any] = list(ops)
    for number, op in enumerate(listed, 1):
        if not isinstance(op, dict) or not isinstance(op.get("kind"), str):
            message = f"`{name}`: op {number} is {op!r:.100}, which is no dict with a `kind`"
            raise ScriptInvalid(message, hint='Write `{"kind": "file", "op": "read", "path": "notes.md"}`.')
    return [_json(name, "ops", op) for op in listed]


def _json(name: str, argument: str, value: Any) -> Any:
    try:
        return to_json(value)
    except TypeError as error:
        hint = "Pass JSON values, dataclasses or models."
        raise ScriptInvalid(f"`{name}`: `{argument}` has no JSON form: {error}", hint=hint) from error


def _text(name: str, argument: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ScriptInvalid(f"`{name}`: `{argument}` is {value!r:.100}", hint="Pass a text that is not blank.")
