"""What the author of a skill decides with expressions, compiled: the rules of nodes, and conditions on edges.

Lint and the kernel compile the same way, so a run reads the values as they were checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.expressions import (
    DataTemplate,
    Expression,
    ExpressionInvalid,
    Facts,
    PlacedProblem,
    Scope,
    compile_expression,
)
from reyn.expressions.facts import NO_FACTS
from reyn.expressions.types import ANY, SIZE, STRING_TYPE, Type, object_of, of_schema, union
from reyn.skills.artifacts import ANY_OBJECT
from reyn.skills.flow import LOCAL_ROOT, enrich, local_values
from reyn.skills.graph import is_known
from reyn.skills.state import state_type
from reyn.skills.state_fields import STATE_ROOT

if TYPE_CHECKING:
    from reyn.jsonschema import Schema
    from reyn.skills.values import GraphRule, Skill


class CompiledRule(NamedTuple):
    """A rule of a node.

    Attributes:
        rule: The rule.
        when: Its condition; `None` for `else`, or if the condition is not valid.
        data: The data of its artifact, if it makes one.
        problems: What is wrong with its expressions; the paths begin at the rule.
        types: The types that can arrive where the rule matches.
        constant: The result that its condition always has, if there is one, or `None`.
        is_reached: Whether some artifact gets as far as the rule.
    """

    rule: GraphRule
    when: Expression | None
    data: DataTemplate | None
    problems: tuple[PlacedProblem, ...]
    types: tuple[str, ...]
    constant: bool | None
    is_reached: bool

    @property
    def expressions(self) -> tuple[Expression, ...]:
        when = () if self.when is None else (self.when,)
        return (*when, *(self.data.expressions if self.data is not None else ()))


class CompiledCondition(NamedTuple):
    """The condition of an edge or of a step: `problems` and `constant` are as in a rule.

    `missed` is what holds if it is false, and `target` is where the edge leads.
    """

    text: str
    when: Expression | None
    problems: tuple[PlacedProblem, ...]
    constant: bool | None
    missed: Facts
    target: str = ""


def scope_of(skill: Skill, node: str) -> Scope:
    """Return the names that expressions of a node can use, with their types."""
    phase, local = skill.phases[node], local_values_of(skill, node)
    arriving = [(one.name, of_schema(enrich(one, phase.preprocessor, skill.result_of))) for one in phase.inputs]
    variables = variables_of(skill)
    return Scope(variables if local is None else variables | {LOCAL_ROOT: of_schema(local)}, tuple(arriving))


def local_values_of(skill: Skill, node: str) -> Schema | None:
    """Return the schema of the values that the steps of a node bind to `local`; `None` if there are none."""
    phase = skill.phases.get(node)
    return local_values(phase.inputs, phase.preprocessor, skill.result_of) if phase is not None else None


def is_readable(skill: Skill, node: str) -> bool:
    """Return whether a node and the types that arrive at it could be read. Other files may have errors."""
    return is_known(skill, node) and ANY_OBJECT not in skill.inputs_of(node)


def variables_of(skill: Skill) -> dict[str, Type]:
    """Return the names that every expression of a skill can use."""
    is_given = is_readable(skill, skill.entry)
    given = union(of_schema(one.schema) for one in skill.entry_inputs) if is_given else ANY
    found = {
        "visits": object_of(dict.fromkeys(skill.graph, SIZE)),
        "run": object_of({"input": given, "started": STRING_TYPE}),
    }
    return found | {STATE_ROOT: state_type(skill) if is_given else ANY} if skill.state else found


def compile_rules(skill: Skill, node: str) -> tuple[CompiledRule, ...]:
    """Compile the rules of a node. Each knows that the rules before it did not match."""
    scope, facts = scope_of(skill, node), NO_FACTS
    found: list[CompiledRule] = []
    is_reached = True
    for rule in skill.rules[node]:
        when, problems = (None, ()) if rule.when is None else _compiled(rule.when, scope, facts)
        matched, missed = _results(when, problems, facts)
        holds = facts if matched is None else matched
        data = None if rule.artifact is None else DataTemplate(rule.data, scope, holds)
        placed = [one._replace(path=("when",)) for one in problems]
        placed += [one._replace(path=("artifact", "data", *one.path)) for one in (data.problems if data else ())]
        types = tuple(value for kind in holds.types.get(("type",), ()) for value in kind.values or ())
        arriving = tuple(one.name for one in skill.inputs_of(node))
        constant = None if when is None else False if matched is None else True if missed is None else None
        found.append(CompiledRule(rule, when, data, tuple(placed), types or arriving, constant, is_reached))
        is_reached = is_reached and missed is not None
        facts = facts if missed is None else missed
    return tuple(found)


def compile_conditions(skill: Skill, node: str) -> tuple[CompiledCondition, ...]:
    """Compile the conditions on the edges of a phase."""
    scope = scope_of(skill, node)
    return tuple(compile_condition(text, scope, target) for target, text in skill.conditions[node].items())


def compile_condition(text: str, scope: Scope, target: str = "") -> CompiledCondition:
    """Compile a condition of a step, or of the edge to `target`."""
    when, problems = _compiled(text, scope, NO_FACTS)
    matched, missed = _results(when, problems, NO_FACTS)
    constant = None if when is None else False if matched is None else True if missed is None else None
    return CompiledCondition(text, when, problems, constant, missed or NO_FACTS, target)


def _compiled(text: str, scope: Scope, facts: Facts) -> tuple[Expression | None, tuple[PlacedProblem, ...]]:
    try:
        expression = compile_expression(text, scope, facts)
    except ExpressionInvalid as error:
        return None, tuple(PlacedProblem((), text, one) for one in error.problems)
    return expression, tuple(PlacedProblem((), text, one) for one in expression.problems_as_condition)


def _results(
    when: Expression | None, problems: tuple[PlacedProblem, ...], facts: Facts
) -> tuple[Facts | None, Facts | None]:
    """Return what holds if a condition is true, and if it is false. One that is not valid says nothing."""
    if when is None or problems:
        return facts, facts
    return when.checked.if_true, when.checked.if_false
