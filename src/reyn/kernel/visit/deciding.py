"""Evaluate what the author of a skill decides with expressions: the rules of a node, and conditions on edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import key_path
from reyn.errors import ConditionFailed
from reyn.expressions import EvaluationError, SharedWork, place, readings
from reyn.journal import kinds
from reyn.journal.summary import SECOND
from reyn.kernel.core.errors_of_nodes import VisitFault
from reyn.kernel.visit.skill_state import read_state
from reyn.skills.flow import LOCAL_ROOT
from reyn.skills.state_fields import STATE_ROOT
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.expressions import Expression, PlacedProblem
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.turn import PreparedInput
    from reyn.skills import Skill
    from reyn.skills.decisions import CompiledRule

_MAX_VALUES = 8
"""Values that the message of an error names."""


class ConditionFault(VisitFault):
    """An expression has no value, or no edge is left. The visit fails; a condition is never false because of it."""

    def __init__(self, reason: str) -> None:
        super().__init__(ConditionFailed.code, reason)


def values_of(expressions: Iterable[Expression], artifact: dict[str, Any], skill: Skill, tape: Tape) -> dict[str, Any]:
    """Return the values of the names that expressions use. All of them are recorded: there is no clock among them."""
    paths = [path for expression in expressions for path in expression.paths]
    state, names = tape.state, {path[0] for path in paths}
    values = dict(artifact)
    if STATE_ROOT in names and skill.state:
        read = {str(path[1]) for path in paths if path[0] == STATE_ROOT and len(path) > 1}
        values[STATE_ROOT] = read_state(skill, [name for name in skill.state if name in read], tape)
    if "visits" in names:
        values["visits"] = dict.fromkeys(skill.graph, 0) | state.history.visits
    if "run" in names:
        given = msgspec.json.decode(tape.content(state.started.input.hash))
        started = datetime.fromtimestamp(state.started_at // SECOND, UTC)
        values["run"] = {"input": given["data"], "started": started.isoformat().replace("+00:00", "Z")}
    return values


def first_match(
    rules: Sequence[CompiledRule], entry: Visit, values: dict[str, Any], tape: Tape
) -> tuple[CompiledRule, dict[str, Any] | None]:
    """Return the first rule that matches, and the data of the artifact that it makes, if it makes one.

    Raises:
        ConditionFault: An expression has no value.
    """
    tried, work = list["Expression"](), SharedWork()
    for number, compiled in enumerate(rules, start=1):
        where = f"node `{entry.phase}`, rule {number}"
        tried += [compiled.when] if compiled.when is not None else []
        _check(compiled.problems, where)
        if compiled.when is not None and not _is_true(compiled.when, values, where, work):
            continue
        try:
            data = None if compiled.data is None else compiled.data.render(values, work)
        except EvaluationError as error:
            at = place_in(error, "artifact", "data")
            raise ConditionFault(f"{where}, {at}: {fault_text(error, compiled.expressions, values)}") from error
        made = compiled.data.expressions if compiled.data is not None else []
        rule, read = compiled.rule, readings([*tried, *made], values)
        tape.emit(kinds.RuleMatched(entry.phase, entry.visit, number, rule.when or "", rule.to, read))
        return compiled, data
    raise ConditionFault(f"node `{entry.phase}`: no rule matches, and there is no `else`")


def without_forbidden(phase: CompiledPhase, entry: Visit, prepared: PreparedInput, tape: Tape) -> CompiledPhase:
    """Return a phase without the candidates that the conditions on its edges forbid.

    Raises:
        ConditionFault: A condition has no value, or no candidate is left.
    """
    new = {blob.hash: blob.content for blob in prepared.blobs}
    artifact = msgspec.json.decode(new.get(prepared.input) or tape.content(prepared.input))
    artifact = artifact | {LOCAL_ROOT: prepared.local} if prepared.local else artifact
    conditions = phase.conditions
    expressions = [one.when for one in conditions if one.when is not None]
    values, removed, work = values_of(expressions, artifact, phase.skill, tape), [], SharedWork()
    for one in conditions:
        where = f"phase `{entry.phase}`, edge `{one.target}`"
        _check(one.problems, where)
        if one.when is not None and not _is_true(one.when, values, where, work):
            removed.append(one.target)
    tape.emit(kinds.ConditionsChecked(entry.phase, entry.visit, tuple(removed), readings(expressions, values)))
    if not removed:
        return phase
    allowed = phase.without(frozenset(removed))
    if not allowed.candidates:
        names = ", ".join(f"`{one.target}` needs `{one.text}`" for one in conditions)
        raise ConditionFault(f"phase `{entry.phase}` has no edge left: {names}{with_readings(expressions, values)}")
    return allowed


def _check(problems: Sequence[PlacedProblem], where: str) -> None:
    """Raise `ConditionFault` for an expression that is not valid, if a skill was started without lint."""
    if problems:
        first = problems[0]
        column = place(first.text, first.problem.at)
        raise ConditionFault(f"{where}, `{first.text}`, {column}: {first.problem.message}")


def _is_true(when: Expression, values: dict[str, Any], where: str, work: SharedWork) -> bool:
    try:
        return when.is_true(values, work)
    except EvaluationError as error:
        column = place(when.text, error.at)
        raise ConditionFault(f"{where}, `{when.text}`, {column}: {fault_text(error, [when], values)}") from error


def place_in(error: EvaluationError, *path: str | int) -> str:
    """Return where an expression in a JSON value has no value: the path of the text, the text and the column."""
    return f"`{key_path((*path, *error.path))}`, `{error.text}`, {place(error.text, error.at)}"


def fault_text(error: EvaluationError, expressions: Iterable[Expression], values: dict[str, Any]) -> str:
    """Return why one of these expressions has no value, with the values that they have read.

    A model may see it: if they read `local`, no value is quoted that may come from there.
    """
    read_expressions = tuple(expressions)
    reads_local = any(path[0] == LOCAL_ROOT for one in read_expressions for path in one.paths)
    return f"{error.outline if reads_local else error.message}{with_readings(read_expressions, values)}"


def with_readings(expressions: Iterable[Expression], values: dict[str, Any]) -> str:
    """Return the values that expressions have read, for a message. A model may see it, so that `local` is left out."""
    visible = {name: value for name, value in values.items() if name != LOCAL_ROOT}
    found = [f"`{path}` is {_written(value)}" for path, value in readings(expressions, visible).items()]
    return f" ({', '.join(found[:_MAX_VALUES])})" if found else ""


def _written(value: Any) -> str:
    return (
        value
        if isinstance(value, str) and value.startswith(("a list", "an object"))
        else msgspec.json.encode(value).decode()
    )


def target_of(compiled: CompiledRule) -> str | None:
    """Return the node that a rule leads to; `None` for the end of the run."""
    return None if compiled.rule.to == END else compiled.rule.to
