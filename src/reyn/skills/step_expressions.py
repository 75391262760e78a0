"""Expressions in texts of steps: arguments of an op, the input of a sub-run, a question. Compiled once per step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.expressions import DataTemplate, Scope, has_expressions
from reyn.expressions.types import SIZE, Type, object_of, of_schema, union
from reyn.skills.decisions import variables_of
from reyn.skills.flow import LOCAL_ROOT, binds_local, follow, schema_at
from reyn.skills.step_types import AskUser, Iterate, RunOp, RunSkill

if TYPE_CHECKING:
    from reyn.jsonschema import Schema
    from reyn.skills.step_types import AnyStep
    from reyn.skills.values import ArtifactType, Skill

    StepList = tuple[Sequence[ArtifactType], Sequence[AnyStep]]
    """A list of steps, with the types of the artifacts before the first one."""


class StepTemplate(NamedTuple):
    """The texts of a step with expressions: the key that has them, their value as it is written, and its template."""

    key: str
    value: Any
    data: DataTemplate


def compile_steps(skill: Skill, lists: Iterable[StepList]) -> dict[int, StepTemplate]:
    """Compile the expressions in steps. The keys are the identities of the steps that do the work."""
    return {
        id(step.apply if isinstance(step, Iterate) else step): found
        for inputs, steps in lists
        for index, step in enumerate(steps)
        if (found := compile_step(skill, inputs, steps, index)) is not None
    }


def compile_step(
    skill: Skill, inputs: Sequence[ArtifactType], steps: Sequence[AnyStep], index: int
) -> StepTemplate | None:
    """Compile the expressions of one step of a list; `None` if it has none."""
    step = steps[index]
    match step.apply if isinstance(step, Iterate) else step:
        case RunOp(op=value):
            key: str = "op"
        case RunSkill(input=value):
            key = "input"
        case AskUser(question=value):
            key = "question"
        case _:
            return None
    if not has_expressions(value):
        return None
    scope = _scope(skill, inputs, steps[:index], step)
    return StepTemplate(key, value, DataTemplate(value, scope))


def _scope(skill: Skill, inputs: Sequence[ArtifactType], before: Sequence[AnyStep], step: AnyStep) -> Scope:
    """Return the names that a step can use, with their types."""

    def result_of(name: str) -> ArtifactType | None:
        return skill.skills[name].result if name in skill.skills else None

    whole = [(one.name, follow(one, before, result_of)[0]) for one in inputs]
    variables: dict[str, Type] = variables_of(skill)
    if any(map(binds_local, before)):
        variables[LOCAL_ROOT] = union(of_schema(schema_at(schema, LOCAL_ROOT)) for _, schema in whole)
    if isinstance(step, Iterate):
        items = union(of_schema(_items(schema_at(schema, step.over))) for _, schema in whole)
        variables["_iter"] = object_of({"item": items, "index": SIZE})
    return Scope(variables, tuple((name, of_schema(schema_at(schema, "data"))) for name, schema in whole))


def _items(schema: Schema) -> Schema:
    return schema.get("items", True) if isinstance(schema, dict) else True
