"""Deterministic steps, before the model or after the finish: each reads the artifact and binds what it makes.

Steps perform ops and sub-runs through the same dispatch as a model's turn: one gate, one journal, one way to resume.
What a step binds is always JSON; the artifact that comes out is a new value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.contract.ops import OpRules, offered_ops
from reyn.errors import InternalError
from reyn.journal import Blob, canonical, kinds
from reyn.jsonschema import compile_schema
from reyn.kernel.limits import within_limits
from reyn.kernel.op_dispatch import run_op, run_sub_skill
from reyn.lint.plans import plan_issues
from reyn.skills.flow import is_path
from reyn.skills.values import Iterate, LintPlan, RunOp, RunSkill, Validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.kernel.briefs import Surroundings
    from reyn.kernel.op_dispatch import OpLog
    from reyn.kernel.tape import Tape
    from reyn.skills.values import AnyStep

_FINDINGS = 20


class StepFault(Exception):
    """A step did not succeed. `on_error` says what that means."""

    def __init__(self, message: str, call: str = "", step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.call = call
        self.step = step

    def words(self, place: str) -> str:
        return f"`{place}`: step {self.call} `{self.step}`: {self.message}"


class _Work:
    """One list of steps being carried out."""

    def __init__(self, around: Surroundings, log: OpLog, tape: Tape) -> None:
        self.around = around
        self.log = log
        self.tape = tape


async def run_steps(
    steps: Sequence[AnyStep], artifact: dict[str, Any], prefix: str, around: Surroundings, log: OpLog, tape: Tape
) -> dict[str, Any]:
    """The artifact after the steps; a `StepFault` if one fails and nothing else was said for that."""
    work = _Work(around, log, tape)
    for number, step in enumerate(steps, start=1):
        await within_limits(tape, around.settings)
        artifact = await _run(step, artifact, f"{prefix}.{number}", work)
    return artifact


async def _run(step: AnyStep, artifact: dict[str, Any], call: str, work: _Work) -> dict[str, Any]:
    kind = kind_of(step)
    work.tape.emit(kinds.StepStarted(call, kind))
    try:
        value = await _value(step, artifact, call, work)
        bound = artifact if step.into is None else bind(artifact, step.into.split("."), value)
    except StepFault as fault:
        return _failed(step, artifact, StepFault(fault.message, call, kind), work.tape)
    if step.into is None:
        work.tape.emit(kinds.StepCompleted(call, kind, "ok"))
        return bound
    result = Blob.of(canonical(value))
    completed = work.tape.emit(kinds.StepCompleted(call, kind, "ok", step.into, result.hash), result)
    if completed.result in (None, result.hash):
        return bound
    # Findings are derived texts: those of an earlier wording are bound as they were recorded.
    recorded = msgspec.json.decode(work.tape.content(str(completed.result)))
    return bind(artifact, step.into.split("."), recorded)  # type: ignore[no-any-return]  # an object stays one


def _failed(step: AnyStep, artifact: dict[str, Any], fault: StepFault, tape: Tape) -> dict[str, Any]:
    """What `on_error` makes of a failure; whatever it is, it is recorded."""
    if step.on_error == "fail":
        tape.emit(kinds.StepCompleted(fault.call, fault.step, "failed", reason=fault.message))
        raise fault
    status: Any = "skipped" if step.on_error == "skip" else "empty"
    tape.emit(kinds.StepCompleted(fault.call, fault.step, status, step.into, reason=fault.message))
    if step.on_error == "skip" or step.into is None:
        return artifact
    bound: dict[str, Any] = bind(artifact, step.into.split("."), None)
    return bound


async def _value(step: AnyStep, artifact: dict[str, Any], call: str, work: _Work) -> Any:
    match step:
        case RunOp():
            return await _op(step, artifact, call, work)
        case RunSkill():
            return await _skill(step, artifact, call, work)
        case Iterate():
            return await _iterate(step, artifact, call, work)
        case Validate():
            return _validate(step, artifact)
        case LintPlan():
            return plan_issues(look_up(artifact, step.over))
    raise InternalError(f"nobody performs a `{kind_of(step)}` step")


async def _op(step: RunOp, artifact: dict[str, Any], call: str, work: _Work) -> Any:
    args = step.op | {name: look_up(artifact, path) for name, path in step.args_from.items()}
    known = offered_ops(work.around.vocabulary, tuple(spec.kind for spec in work.around.vocabulary.ops))
    wrong = OpRules(known).first_error([args], "")
    if wrong is not None:
        raise StepFault(f"the op is not well-formed: {wrong[0].removeprefix('$.control_ir[0]')} {wrong[1]}".strip())
    done = await run_op(args, call, work.around, work.tape)
    work.log.add(done.changes, work.tape)
    result = msgspec.json.decode(work.tape.content(done.result))
    if done.status != "ok":
        raise StepFault(f"the op ended with `{done.status}`: {result.get('error') or result.get('reason') or ''}")
    return result


async def _skill(step: RunSkill, artifact: dict[str, Any], call: str, work: _Work) -> Any:
    """Without `input`, a sub-run takes the item that is iterated over, or the artifact's data. A text in `input` that
    is a path stands for what is there, on its own or as a value of a mapping."""
    given = step.input
    if given is None:
        given = artifact["_iter"]["item"] if "_iter" in artifact else artifact["data"]
    elif isinstance(given, dict):
        given = {name: _resolved(value, artifact) for name, value in given.items()}
    else:
        given = _resolved(given, artifact)
    done = await run_sub_skill(step.skill, given, call, work.around.sub_skill(step.skill), work.tape)
    work.log.add(done.changes, work.tape)
    if done.artifact is None:
        raise StepFault(f"skill `{step.skill}`: {done.error}")
    return msgspec.json.decode(work.tape.content(done.artifact.hash))


def _resolved(value: Any, artifact: dict[str, Any]) -> Any:
    return look_up(artifact, value) if is_path(value) else value


async def _iterate(step: Iterate, artifact: dict[str, Any], call: str, work: _Work) -> list[Any]:
    """One result an item. A skipped item is left out of the list, an empty one stands in it as null."""
    items = look_up(artifact, step.over)
    if not isinstance(items, list):
        raise StepFault(f"`{step.over}` is not a list")
    gathered: list[Any] = []
    for index, item in enumerate(items):
        await within_limits(work.tape, work.around.settings)
        inner = artifact | {"_iter": {"item": item, "index": index}}
        name, kind = f"{call}.{index + 1}", kind_of(step.apply)
        work.tape.emit(kinds.StepStarted(name, kind))
        try:
            gathered.append(await _value(step.apply, inner, name, work))
            work.tape.emit(kinds.StepCompleted(name, kind, "ok"))
        except StepFault as fault:
            on_error = step.apply.on_error if step.apply.on_error != "fail" else step.on_error
            if on_error == "fail":
                work.tape.emit(kinds.StepCompleted(name, kind, "failed", reason=fault.message))
                raise StepFault(f"item {index}: {fault.message}") from fault
            status: Any = "skipped" if on_error == "skip" else "empty"
            work.tape.emit(kinds.StepCompleted(name, kind, status, reason=fault.message))
            gathered += [None] if on_error == "empty" else []
    return gathered


def _validate(step: Validate, artifact: dict[str, Any]) -> list[dict[str, str]]:
    """With `into`, what is wrong becomes findings; without, it stops."""
    wrong = compile_schema(step.schema).errors(look_up(artifact, step.target), _FINDINGS)
    findings = [{"path": error.path(step.target), "message": error.message} for error in wrong]
    if findings and step.into is None:
        raise StepFault(f"{findings[0]['path']}: {findings[0]['message']}")
    return findings


# -- paths --------------------------------------------------------------------------------------------


def look_up(value: Any, path: str) -> Any:
    """What stands at a path of the artifact; the empty path is the whole."""
    for word in path.split(".") if path else ():
        if not isinstance(value, dict) or word not in value:
            raise StepFault(f"there is nothing at `{path}`")
        value = value[word]
    return value


def bind(value: Any, words: list[str], result: Any) -> Any:
    """The same value with a result at a path; folders on the way are made, other things are not replaced by them."""
    if not isinstance(value, dict):
        raise StepFault(f"`{'.'.join(words)}` cannot be bound: what holds it is not an object")
    if len(words) == 1:
        return value | {words[0]: result}
    return value | {words[0]: bind(value.get(words[0], {}), words[1:], result)}


def kind_of(step: AnyStep) -> str:
    return str(step.__struct_config__.tag)
