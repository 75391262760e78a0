"""Execute deterministic steps, before the model or after the finish. A step reads the artifact and binds a result.

Steps execute ops and sub-runs through the same dispatch as a model's turn, with the same permissions, events and
recovery. Results are JSON, and an artifact is never modified in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.contract.ops import OpRules, offered_ops
from reyn.errors import InternalError
from reyn.expressions import EvaluationError
from reyn.journal import Blob, canonical, kinds
from reyn.jsonschema import compile_schema
from reyn.kernel.core.child_effects import CancelChild, PlanChild, StartChildren
from reyn.kernel.core.errors_of_nodes import NodeFailed
from reyn.kernel.core.limits import within_limits
from reyn.kernel.core.snapshot import POSTPROCESSOR
from reyn.kernel.visit.child_calls import await_child, finish_child, plan_child
from reyn.kernel.visit.op_dispatch import run_op
from reyn.kernel.visit.run_context import RunContext, credentials_of
from reyn.kernel.visit.skill_state import read_state
from reyn.kernel.visit.step_context import CollectedResults, StepContext, StepFault
from reyn.kernel.visit.step_values import Rendered, bind, check_condition, look_up, objection, with_values
from reyn.kernel.visit.waits import ask_operator, ask_person, beginning, printable, question_id, refusal_of
from reyn.lint.plans import plan_issues
from reyn.skills.flow import LOCAL_ROOT, binds_local, is_data_path, paths_read
from reyn.skills.modules import python_entry
from reyn.skills.state import state_names
from reyn.skills.state_fields import STATE_ROOT
from reyn.skills.step_types import (
    AnyStep,
    AskUser,
    CheckExpression,
    Iterate,
    LintPlan,
    PythonCall,
    RunOp,
    RunSkill,
    Validate,
)
from reyn.vocabulary.error_names import name_of_result

if TYPE_CHECKING:
    from reyn.expressions import SharedWork
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.completed_steps import CompletedSteps
    from reyn.kernel.visit.op_log import OpLog

_MAX_FINDINGS = 20
NOTHING: Mapping[str, Any] = MappingProxyType({})
_FATAL = ("fail", "result")
"""Values of `on_error` with which a failure of the step itself fails the visit."""


class StepsResult(NamedTuple):
    """The artifact after a list of steps, and the values that they have bound to `local`."""

    artifact: dict[str, Any]
    local: Mapping[str, Any]


async def run_steps(
    steps: Sequence[AnyStep],
    artifact: dict[str, Any],
    prefix: str,
    run: RunContext,
    log: OpLog,
    tape: Tape,
    phase: str = POSTPROCESSOR,
    local: Mapping[str, Any] = NOTHING,
    *,
    is_check: bool = False,
) -> StepsResult:
    """Return the artifact after the steps, and what is bound to `local`. What an attempt before did is not done again.

    Args:
        steps: The steps.
        artifact: The artifact before the first one.
        prefix: Begins the ids of their calls.
        run: The phase, or the run.
        log: The ops of the visit.
        tape: The history.
        phase: The node, or the postprocessor.
        local: What steps before the list have bound to `local`.
        is_check: Whether a step fails whose result is that the artifact is wrong.

    Raises:
        StepFault: A step failed, and its `on_error` is `fail`.
    """
    context = StepContext(run, log, tape, phase, is_check=is_check)
    read = state_names((path for step in steps for path in paths_read(step)), run.skill) if run.skill.state else ()
    if read:
        artifact = artifact | {STATE_ROOT: read_state(run.skill, read, tape)}
    if has_local := bool(local) or any(map(binds_local, steps)):
        artifact = artifact | {LOCAL_ROOT: {**local}}
    for number, step in enumerate(steps, start=1):
        await within_limits(tape, run.settings)
        artifact = await _run(step, artifact, f"{prefix}.{number}", context)
    if not read and not has_local:
        return StepsResult(artifact, local)
    hidden = (STATE_ROOT, LOCAL_ROOT)
    visible = {name: value for name, value in artifact.items() if name not in hidden}
    return StepsResult(visible, artifact.get(LOCAL_ROOT, local))


async def run_node(
    plan: PlanChild, args: dict[str, Any], run: RunContext, log: OpLog, tape: Tape, phase: str
) -> tuple[dict[str, Any], CompletedSteps]:
    """Return the artifact of a node, which is a skill: a step with the same arguments does the same. And what it did.

    Raises:
        StepFault: The sub-run is not permitted, or has no artifact.
    """
    context = StepContext(run, log, tape, phase)
    if isinstance(taken := context.taken_over(args, plan.key), str):
        await permit(args, plan.key, context)
        taken = (context.add_child(args, await await_child(plan, args, tape, taken)),)
    return taken[0], context.completed


async def _run(step: AnyStep, artifact: dict[str, Any], call: str, context: StepContext) -> dict[str, Any]:
    kind = step_kind(step)
    context.tape.emit(kinds.StepStarted(call, kind))
    try:
        value = await _value(step, artifact, call, context)
        if context.is_check and step.into is None and (wrong := objection(step, value)):
            raise StepFault(wrong)
        bound = artifact if step.into is None else bind(artifact, step.into.split("."), value)
    except StepFault as fault:
        failed = StepFault(fault.message, call, kind, fault.error_name, is_final=fault.is_final)
        return _failed(step, artifact, failed, context.tape)
    if step.into is None:
        context.end_step(call, kind)
        return bound
    result = Blob.of(canonical(value))
    name = context.end_step(call, kind, step.into, result)
    if name in (None, result.hash):
        return bound
    # Findings are derived texts: those of an earlier wording are bound as they were recorded.
    recorded = msgspec.json.decode(context.tape.content(str(name)))
    return bind(artifact, step.into.split("."), recorded)  # type: ignore[no-any-return]  # an object stays one


def _failed(step: AnyStep, artifact: dict[str, Any], fault: StepFault, tape: Tape) -> dict[str, Any]:
    """Record a failure and apply `on_error`."""
    if step.on_error in _FATAL or fault.is_final:
        tape.emit(kinds.StepCompleted(fault.call, fault.step, "failed", reason=fault.message))
        raise fault
    status: Any = "skipped" if step.on_error == "skip" else "empty"
    tape.emit(kinds.StepCompleted(fault.call, fault.step, status, step.into, reason=fault.message))
    if step.on_error == "skip" or step.into is None:
        return artifact
    bound: dict[str, Any] = bind(artifact, step.into.split("."), None)
    return bound


async def _value(step: AnyStep, artifact: dict[str, Any], call: str, context: StepContext) -> Any:
    if context.templates and id(step) in context.templates and not isinstance(step, CheckExpression):
        step = with_values(step, artifact, context)
    match step:
        case RunOp():
            return await _op(step, artifact, call, context)
        case RunSkill():
            return await _skill(step, artifact, call, context)
        case Iterate():
            return await _iterate(step, artifact, call, context)
        case PythonCall():
            return await _python(step, artifact, call, context)
        case AskUser():
            return await _question(step, artifact, call, context)
        case Validate():
            return _validate(step, artifact, context.work)
        case CheckExpression():
            return check_condition(step, artifact, context)
        case LintPlan():
            return plan_issues(look_up(artifact, step.over))
    raise InternalError(f"step kind `{step_kind(step)}` has no implementation")


async def _python(step: PythonCall, artifact: dict[str, Any], call: str, context: StepContext) -> Any:
    """Call a function of the skill. The time that it sees is that of the step's start, also when it is repeated."""
    skill = context.run.skill
    if STATE_ROOT in artifact:
        artifact = {name: value for name, value in artifact.items() if name != STATE_ROOT}
    if step.reads:
        artifact = artifact | {STATE_ROOT: read_state(skill, state_names(step.reads, skill), context.tape)}
    entry = python_entry(skill.permissions, step.module, step.function)
    args: dict[str, Any] = {
        "kind": "python",
        "op": step.mode,
        "module": step.module,
        "function": step.function,
        "artifact": artifact,
        "clock": context.tape.ts,
    }
    seconds = entry.get("timeout")
    if isinstance(seconds, int) and seconds > 0:
        args["seconds"] = min(seconds, 86_400)
    if step.mode == "unsafe" and skill.required_credentials:
        args["credentials"] = list(credentials_of(skill, context.tape.state.started.credentials))[:100]
    repeated = args | {"clock": 0}  # a later attempt has another time
    if isinstance(taken := context.taken_over(repeated, call), tuple):
        return taken[0]["value"]
    await _confirmed(repeated, call, taken, context)
    outcome = await run_op(args, call, context.run, context.tape)
    result = msgspec.json.decode(context.tape.content(outcome.result))
    if outcome.status != "ok":
        context.add_done(repeated, call, outcome)
        message = f"{outcome.status}: {result.get('error') or result.get('reason') or ''}"
        raise StepFault(message, error_name=name_of_result(result))
    value = result["value"]
    error = compile_schema(step.output_schema).first_error(value)
    if error is not None:
        context.add_done(repeated, call, outcome, is_usable=False)
        raise StepFault(
            f"the result of `{step.function}` does not match `output_schema`: {error.path('result')}: {error.message}"
        )
    context.add_done(repeated, call, outcome)
    return value


async def _op(step: RunOp, artifact: dict[str, Any], call: str, context: StepContext) -> Any:
    args = step.op | {name: look_up(artifact, path) for name, path in step.args_from.items()}
    known = offered_ops(context.run.vocabulary, tuple(spec.kind for spec in context.run.vocabulary.ops))
    error = OpRules(known).first_error([args], "")
    if error is not None:
        raise StepFault(f"invalid op: {error[0].removeprefix('$.control_ir[0]')} {error[1]}".replace(":  ", ": "))
    if isinstance(taken := context.taken_over(args, call), tuple):
        return taken[0]
    await _confirmed(args, call, taken, context)
    outcome = await run_op(args, call, context.run, context.tape)
    context.add_done(args, call, outcome)
    context.log.add_changes(outcome.changes, context.tape)
    if outcome.kind in context.run.vocabulary.gates:
        context.log.add_verdict(args, outcome, context.tape)
    result = msgspec.json.decode(context.tape.content(outcome.result))
    if outcome.status != "ok" and step.on_error != "result":
        message = f"op status `{outcome.status}`: {result.get('error') or result.get('reason') or ''}"
        raise StepFault(message, error_name=name_of_result(result))
    return result


async def _confirmed(args: dict[str, Any], call: str, taken: str, context: StepContext) -> None:
    """Let a person decide about an op that an earlier attempt performed, and that has no result to take over.

    Raises:
        StepFault: It is not repeated.
    """
    if taken and await ask_operator(call, 1, args, context.tape, taken, is_child=True) == "failed":
        raise StepFault(f"it was not repeated, as an operator decided. {taken}", error_name="denied")


async def _skill(step: RunSkill, artifact: dict[str, Any], call: str, context: StepContext) -> Any:
    """Run a skill as a sub-run."""
    args = _skill_args(step, artifact)
    if isinstance(taken := context.taken_over(args, call), tuple):
        return taken[0]
    plan = await _permitted_skill(args, call, context)
    return _skill_value(args, await await_child(plan, args, context.tape, taken), context)


def _skill_args(step: RunSkill, artifact: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the op that does the same."""
    return {"kind": "run_skill", "skill": step.skill, "input": _skill_input(step, artifact)}


async def _permitted_skill(args: dict[str, Any], call: str, context: StepContext) -> PlanChild:
    """Return the plan of a sub-run that the gate permits."""
    await permit(args, call, context)
    return PlanChild(call, "skill", args["skill"], args["input"], context.run.sub_skill(args["skill"]))


async def permit(args: dict[str, Any], call: str, context: StepContext) -> None:
    """Let the gate decide about a step that does what an op does.

    Raises:
        StepFault: A rule or a person does not permit it.
    """
    if reason := await refusal_of(args, call, context.run, context.tape):
        raise StepFault(reason, error_name="denied")


def _skill_input(step: RunSkill, artifact: dict[str, Any]) -> Any:
    """Return the input of a sub-run.

    Without `input`, it is the current item of an iteration, or the artifact's data. Paths in `input`, alone or as
    values of a mapping, are replaced by the values that they lead to.
    """
    value = step.input
    if value is None:
        return artifact["_iter"]["item"] if "_iter" in artifact else artifact["data"]
    if isinstance(value, dict):
        return {name: _resolve(member, artifact) for name, member in value.items()}
    return _resolve(value, artifact)


def _skill_value(args: dict[str, Any], sub_run: kinds.ChildEnded, context: StepContext) -> Any:
    try:
        return context.add_child(args, sub_run)
    except StepFault as fault:
        raise StepFault(f"skill `{args['skill']}`: {fault.message}", error_name=fault.error_name) from fault


async def _question(step: AskUser, artifact: dict[str, Any], call: str, context: StepContext) -> Any:
    """Ask a person. The value that is shown is JSON, so that no text of a model can look like another line."""
    message = step.question
    if step.show is not None:
        message = f"{message}\n{beginning(printable(look_up(artifact, step.show), indent=2))}"
    await permit({"kind": "ask_user", "question": message}, call, context)
    tape, schema = context.tape, step.response_schema
    return await ask_person(question_id(call, tape), message, schema, tape, suggestions=step.suggestions)


def _resolve(value: Any, artifact: dict[str, Any]) -> Any:
    if isinstance(value, Rendered):
        return value.value
    return look_up(artifact, value) if is_data_path(value) else value


async def _iterate(step: Iterate, artifact: dict[str, Any], call: str, context: StepContext) -> list[Any]:
    """Return one result per item. A skipped item is left out; an empty one is null."""
    items = look_up(artifact, step.over)
    if not isinstance(items, list):
        raise StepFault(f"`{step.over}` is not a list")
    results: list[Any] = []
    collected = CollectedResults()
    window = _Window(step, artifact, items, call, context) if step.concurrency > 1 else None
    try:
        for index, item in enumerate(items):
            await within_limits(context.tape, context.run.settings)
            inner = artifact | {"_iter": {"item": item, "index": index}}
            name, kind = f"{call}.{index + 1}", step_kind(step.apply)
            try:
                if window is not None:
                    results.append(await window.result(index))
                else:
                    context.tape.emit(kinds.StepStarted(name, kind))
                    results.append(await _value(step.apply, inner, name, context))
                collected.add(len(canonical(results[-1])))
                context.end_step(name, kind)
            except StepFault as fault:
                on_error = step.apply.on_error if step.apply.on_error != "fail" else step.on_error
                if on_error in _FATAL or fault.is_final:
                    context.tape.emit(kinds.StepCompleted(name, kind, "failed", reason=fault.message))
                    message, name = f"item {index}: {fault.message}", fault.error_name
                    raise StepFault(message, error_name=name, is_final=fault.is_final) from fault
                status: Any = "skipped" if on_error == "skip" else "empty"
                context.tape.emit(kinds.StepCompleted(name, kind, status, reason=fault.message))
                results += [None] if on_error == "empty" else []
    except (StepFault, NodeFailed) as failed:
        if window is not None:
            await window.cancel(failed.reason if isinstance(failed, NodeFailed) else _ITEM_FAILED)
        raise
    return results


_ITEM_FAILED = "another item of its iteration failed"
_WINDOW = 4
"""Sub-runs that are planned ahead, as a multiple of those that execute: a slow one should not make the others wait."""


class _Window:
    """Sub-runs of an iteration: some are planned ahead and execute together; results are taken in order."""

    def __init__(
        self, step: Iterate, artifact: dict[str, Any], items: list[Any], call: str, context: StepContext
    ) -> None:
        assert isinstance(step.apply, RunSkill)
        self._step, self._apply = step, step.apply
        self._artifact, self._items, self._call, self._context = artifact, items, call, context
        self._planned: dict[int, kinds.ChildStarted | kinds.ChildEnded] = {}
        self._plans: dict[int, PlanChild] = {}
        self._args: dict[int, dict[str, Any]] = {}
        self._taken_over: dict[int, Any] = {}
        self._faults: dict[int, StepFault] = {}
        self._next = 0

    async def result(self, index: int) -> Any:
        """Return the result of an item. Raises `StepFault`."""
        concurrency = self._step.concurrency
        while self._next < min(len(self._items), index + _WINDOW * concurrency):
            await self._plan(self._next)
            self._next += 1
            if self._next == concurrency == len(self._ahead):  # they execute while the others are planned
                await StartChildren(f"{self._call}.start", self._ahead, concurrency)
        if index in self._faults:
            raise self._faults.pop(index)
        if index in self._taken_over:
            return self._taken_over.pop(index)
        planned, plan, args = self._planned.pop(index), self._plans.pop(index), self._args.pop(index)
        ended = await finish_child(planned, plan, args, self._context.tape, self._ahead, concurrency)
        return _skill_value(args, ended, self._context)

    @property
    def _ahead(self) -> tuple[kinds.ChildStarted, ...]:
        """The sub-runs that are planned and not awaited yet."""
        return tuple(one for one in self._planned.values() if isinstance(one, kinds.ChildStarted))

    async def cancel(self, reason: str) -> None:
        """Cancel the sub-runs that were started and are not awaited any more; add what they have done."""
        running = [(index, one) for index, one in self._planned.items() if isinstance(one, kinds.ChildStarted)]
        for position, (index, started) in enumerate(running):
            others = tuple(other for _, other in running[position + 1 :])
            ended = await CancelChild(started.call, started, reason, others)
            self._context.add_end(self._args[index], ended)

    async def _plan(self, index: int) -> None:
        context, name = self._context, f"{self._call}.{index + 1}"
        context.tape.emit(kinds.StepStarted(name, step_kind(self._apply)))
        inner = self._artifact | {"_iter": {"item": self._items[index], "index": index}}
        try:
            apply = with_values(self._apply, inner, context) if id(self._apply) in context.templates else self._apply
            args = self._args[index] = _skill_args(apply, inner)
            if isinstance(taken := context.taken_over(args, name), tuple):
                self._taken_over[index] = taken[0]
            else:
                plan = self._plans[index] = await _permitted_skill(args, name, context)
                self._planned[index] = await plan_child(plan, args, context.tape, taken)
        except StepFault as fault:
            self._faults[index] = fault


def _validate(step: Validate, artifact: dict[str, Any], work: SharedWork) -> list[dict[str, str]]:
    """Return the findings if the step binds them with `into`; otherwise fail at the first one."""
    schema, value = compile_schema(step.schema), look_up(artifact, step.target)
    errors = schema.errors(value, _MAX_FINDINGS)
    try:
        work.spend(schema.share(value, len(errors)))
    except EvaluationError as error:
        raise StepFault(error.message, is_final=True) from error
    findings = [{"path": error.path(step.target), "message": error.message} for error in errors]
    if findings and step.into is None:
        raise StepFault(f"{findings[0]['path']}: {findings[0]['message']}")
    return findings


def step_kind(step: AnyStep) -> str:
    return str(step.__struct_config__.tag)
