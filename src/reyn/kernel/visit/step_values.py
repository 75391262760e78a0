"""The values that steps read and bind: expressions in their texts, paths, and results that reject what is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from reyn.expressions import EvaluationError, has_expressions, place
from reyn.journal import canonical
from reyn.kernel.visit.deciding import fault_text, place_in, values_of, with_readings
from reyn.kernel.visit.step_context import StepContext, StepFault
from reyn.skills.step_types import AnyStep, CheckExpression, LintPlan, PythonCall, RunOp, RunSkill

if TYPE_CHECKING:
    from reyn.skills.step_expressions import StepTemplate

S = TypeVar("S", bound=AnyStep)
_MAX_OBJECTION = 2_000


class Rendered(NamedTuple):
    """A value in the input of a sub-run that is no path, whatever text it is."""

    value: Any


def with_values(step: S, artifact: dict[str, Any], context: StepContext) -> S:
    """Return a step with the values of its expressions.

    Raises:
        StepFault: An expression has no value.
    """
    template = context.templates[id(step)]
    value = _rendered(template, artifact, context)
    if isinstance(step, RunSkill):
        value = _without_paths(template.value, value)
    return replace(step, **{template.key: value})


def check_condition(step: CheckExpression, artifact: dict[str, Any], context: StepContext) -> bool:
    """Return the value of a condition if the step binds it with `into`; otherwise fail if it is not true.

    Raises:
        StepFault: The condition is not true, or it has no value.
    """
    template = context.templates[id(step)]
    condition = template.condition
    assert condition is not None
    _check_problems(template)
    expressions = [one for one in (condition.when, *template.data.expressions) if one is not None]
    values = values_of(expressions, artifact, context.run.skill, context.tape)
    try:
        is_true = condition.when is None or condition.when.is_true(values, context.work)
        message = "" if is_true or step.into is not None else template.data.render(values, context.work)
    except EvaluationError as error:
        text = step.condition
        at = place_in(error, template.key) if error.text else f"`{text}`, {place(text, error.at)}"
        message = f"{at}: {fault_text(error, expressions, values)}"
        raise StepFault(message, is_final=True) from error
    if is_true or step.into is not None:
        return is_true
    raise StepFault(message or f"`{step.condition}` is not true{with_readings(expressions, values)}")


def _check_problems(template: StepTemplate) -> None:
    """Raise `StepFault` for an expression that is not valid, if a skill was started without lint."""
    if template.problems:
        first = template.problems[0]
        message = f"`{first.text}`, {place(first.text, first.problem.at)}: {first.problem.message}"
        raise StepFault(message, is_final=True)


def _rendered(template: StepTemplate, artifact: dict[str, Any], context: StepContext) -> Any:
    _check_problems(template)
    expressions = template.data.expressions
    values = values_of(expressions, artifact, context.run.skill, context.tape)
    try:
        return template.data.render(values, context.work)
    except EvaluationError as error:
        reason = fault_text(error, expressions, values)
        raise StepFault(f"{place_in(error, template.key)}: {reason}", is_final=True) from error


def _without_paths(written: Any, value: Any) -> Any:
    """Mark the values of expressions: a text from an artifact must not be read as a path into it."""
    if isinstance(written, dict):
        return {name: Rendered(value[name]) if has_expressions(one) else one for name, one in written.items()}
    return Rendered(value)


def objection(step: AnyStep, value: Any) -> str:
    """Return why the result of a step in a check rejects the artifact; empty if it does not.

    A function or a judgement may return its verdict instead of failing.
    """
    match step, value:
        case LintPlan(), [_, *_]:
            return "; ".join(value)[:_MAX_OBJECTION]
        case PythonCall(function=name), False:
            return f"`{name}` returned `false`"
        case PythonCall(function=name), {"ok": False}:
            return str(value.get("message") or f"`{name}` returned `{_short(value)}`")[:_MAX_OBJECTION]
        case RunOp(op=args), {"passed": False}:
            return str(value.get("judgement") or f"`{args.get('kind')}` has not passed")[:_MAX_OBJECTION]
    return ""


def _short(value: Any) -> str:
    return canonical(value)[:200].decode(errors="ignore")


# -- paths --------------------------------------------------------------------------------------------


def look_up(value: Any, path: str) -> Any:
    """Return the value at a path of the artifact; the empty path is the artifact."""
    for key in path.split(".") if path else ():
        if not isinstance(value, dict) or key not in value:
            raise StepFault(f"no value at `{path}`")
        value = value[key]
    return value


def bind(value: Any, keys: list[str], result: Any) -> Any:
    """Return a copy with a result at a path. Missing objects on the path are created; other values are an error."""
    if not isinstance(value, dict):
        raise StepFault(f"`{'.'.join(keys)}` cannot be bound: its parent is not an object")
    if len(keys) == 1:
        return value | {keys[0]: result}
    return value | {keys[0]: bind(value.get(keys[0], {}), keys[1:], result)}
