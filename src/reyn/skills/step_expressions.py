"""Expressions in steps: arguments of an op, the input of a sub-run, a question, a condition. Compiled once per step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.expressions import DataTemplate, Scope, has_expressions
from reyn.expressions.types import SIZE, Type, object_of, of_schema, union
from reyn.skills.decisions import compile_condition, local_values_of, variables_of
from reyn.skills.fan_out import produced_types
from reyn.skills.flow import LOCAL_ROOT, follow, item_schema, schema_at, with_property
from reyn.skills.state import state_schema
from reyn.skills.step_types import AskUser, CheckExpression, Iterate, RunOp, RunSkill

if TYPE_CHECKING:
    from reyn.expressions import PlacedProblem
    from reyn.jsonschema import Schema
    from reyn.skills.decisions import CompiledCondition
    from reyn.skills.step_types import AnyStep
    from reyn.skills.values import ArtifactType, Skill


class StepList(NamedTuple):
    """A list of steps.

    Attributes:
        inputs: The types of the artifacts before the first one.
        steps: The steps.
        local: The schema of the values that steps before the list bind to `local`, if there are any.
    """

    inputs: Sequence[ArtifactType]
    steps: Sequence[AnyStep]
    local: Schema | None = None


class StepTemplate(NamedTuple):
    """The texts of a step with expressions: the key that has them, their value as it is written, and its template.

    A step that is a condition also has that.
    """

    key: str
    value: Any
    data: DataTemplate
    condition: CompiledCondition | None = None

    @property
    def problems(self) -> list[PlacedProblem]:
        """What is wrong with the expressions; the paths begin at the step."""
        found = () if self.condition is None else self.condition.problems
        placed = [one._replace(path=("condition",)) for one in found]
        return placed + [one._replace(path=(self.key, *one.path)) for one in self.data.problems]


def checks_of_node(skill: Skill, node: str) -> StepList:
    """Return the check of a node. It also sees what the preprocessor binds to `local`."""
    return StepList(produced_types(skill, node), skill.nodes[node].check, local_values_of(skill, node))


def compile_steps(skill: Skill, lists: Iterable[StepList]) -> dict[int, StepTemplate]:
    """Compile the expressions in steps. The keys are the identities of the steps that do the work."""
    return {
        id(step.apply if isinstance(step, Iterate) else step): found
        for one in lists
        for index, step in enumerate(one.steps)
        if (found := compile_step(skill, one, index)) is not None
    }


def compile_step(skill: Skill, steps: StepList, index: int) -> StepTemplate | None:
    """Compile the expressions of one step of a list; `None` if it has none."""
    step = steps.steps[index]
    match step.apply if isinstance(step, Iterate) else step:
        case RunOp(op=value):
            key: str = "op"
        case RunSkill(input=value):
            key = "input"
        case AskUser(question=value):
            key = "question"
        case CheckExpression(condition=text, message=value):
            scope = _scope(skill, steps, index)
            condition = compile_condition(text, scope)
            return StepTemplate("message", value, DataTemplate(value, scope, condition.missed), condition)
        case _:
            return None
    if not has_expressions(value):
        return None
    return StepTemplate(key, value, DataTemplate(value, _scope(skill, steps, index)))


def schemas_before(skill: Skill, steps: StepList, index: int) -> list[tuple[str, Schema]]:
    """Return the types that can arrive at a step of a list, each with the schema of all values that the step reads."""
    before, step = steps.steps[:index], steps.steps[index]
    state = state_schema(skill.state, skill.types) if skill.state else None
    found = [(one.name, follow(one, before, skill.result_of, state, steps.local)[0]) for one in steps.inputs]
    if not isinstance(step, Iterate):
        return found
    return [
        (name, with_property(schema, "_iter", item_schema(_items(schema_at(schema, step.over)))))
        for name, schema in found
    ]


def _scope(skill: Skill, steps: StepList, index: int) -> Scope:
    """Return the names that a step can use, with their types."""
    whole = schemas_before(skill, steps, index)
    variables: dict[str, Type] = variables_of(skill)
    found = [schema_at(schema, LOCAL_ROOT) for _, schema in whole]
    if any(one is not False for one in found):
        variables[LOCAL_ROOT] = union(map(of_schema, found))
    if isinstance(steps.steps[index], Iterate):
        items = union(of_schema(schema_at(schema, "_iter.item")) for _, schema in whole)
        variables["_iter"] = object_of({"item": items, "index": SIZE})
    return Scope(variables, tuple((name, of_schema(schema_at(schema, "data"))) for name, schema in whole))


def _items(schema: Schema) -> Schema:
    return schema.get("items", True) if isinstance(schema, dict) else True
