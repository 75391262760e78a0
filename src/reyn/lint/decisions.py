"""Rules on what the author decides with expressions: the rules of nodes, and conditions on edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.documents import nearest
from reyn.errors import codes
from reyn.expressions import PlacedProblem, place
from reyn.expressions.facts import scalar_key
from reyn.expressions.types import Type, kind_names, of_schema, possible_values, words_for
from reyn.skills.arrivals import accepted_by
from reyn.skills.artifacts import ANY_OBJECT
from reyn.skills.decisions import CompiledCondition, CompiledRule, compile_conditions, compile_rules, is_readable
from reyn.skills.graph import may_finish, predecessors, successors
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.documents import Document, KeyPath, Severity
    from reyn.errors import Finding
    from reyn.jsonschema import Schema
    from reyn.skills import LoadResult, Skill
    from reyn.vocabulary import Vocabulary

_MAX_NAMED = 8


def rules_of_nodes(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report rules whose expressions are not valid, that never match, or whose artifact their target does not take."""
    document = loaded.document()
    for node, rules in skill.rules.items():
        if len(rules) < len(document.value["graph"][node]):
            continue  # the loader has reported a rule
        # Without a file, the types that arrive follow from the nodes before it.
        before = () if loaded.folder.exists(f"phases/{node}.md") else predecessors(skill, node)
        if not all(is_readable(skill, one) for one in (node, *before, *successors(skill, node))):
            continue
        for index, compiled in enumerate(compile_rules(skill, node)):
            path: KeyPath = ("graph", node, index)
            yield from expression_findings(document, path, compiled.problems)
            if not compiled.problems:
                yield from _constant_rule(document, path, compiled, rules[index].when)
                yield from _unaccepted(document, path, compiled, skill)


def conditions_of_edges(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report conditions that are not valid, are never true, may leave a phase without an edge, or have no reader."""
    document = loaded.document()
    for node in skill.conditions:
        if skill.node_kind(node) != "phase":
            message = f"`{node}` has no model that chooses an edge, so that nothing reads the condition"
            fix = "let it lead to a node with rules"
            yield document.finding(codes.BAD_RULE, message, "graph", node, fix=fix)
            continue
        if not all(is_readable(skill, one) for one in (node, *successors(skill, node))):
            continue
        for one in compile_conditions(skill, node):
            path: KeyPath = ("graph", node, one.target, "when")
            yield from expression_findings(document, path, one.problems)
            yield from constant_condition(document, path, one)
        exits = {*successors(skill, node), *([END] if may_finish(skill, node) else [])}
        if exits <= skill.conditions[node].keys():
            message = f"every edge of `{node}` has a condition; if none holds, the visit fails"
            fix = "leave one edge without a condition"
            yield document.finding(codes.CONSTANT_CONDITION, message, "graph", node, fix=fix, severity="warning")


def constant_condition(document: Document, path: KeyPath, condition: CompiledCondition) -> Iterator[Finding]:
    """Report a condition that is always or never true."""
    if condition.constant is not None and not condition.problems:
        always = "always" if condition.constant else "never"
        message = f"`{condition.text}` is {always} true"
        yield document.finding(codes.CONSTANT_CONDITION, message, *path, severity="warning")


def expression_findings(document: Document, path: KeyPath, problems: Iterable[PlacedProblem]) -> Iterator[Finding]:
    """Report what is wrong with expressions, each at its text, with the position in it."""
    for one in problems:
        code = codes.UNGUARDED if one.problem.kind == "optional" else codes.BAD_EXPRESSION
        message = f"{place(one.text, one.problem.at)}: {one.problem.message}"
        yield document.finding(code, message, *path, *one.path, fix=one.problem.fix)


def _constant_rule(document: Document, path: KeyPath, compiled: CompiledRule, when: str | None) -> Iterator[Finding]:
    """Report a rule that never matches, and one after which no other is tried."""
    if not compiled.is_reached:
        message, fix = "no artifact gets as far as this rule: one before it always matches", "remove it"
        if when is not None:  # `else` is required
            yield document.finding(codes.CONSTANT_CONDITION, message, *path, fix=fix, severity="warning")
    elif compiled.constant is not None:
        always = "always" if compiled.constant else "never"
        message = f"`{when}` is {always} true here"
        yield document.finding(codes.CONSTANT_CONDITION, message, *path, "when", severity="warning")


def _unaccepted(document: Document, path: KeyPath, compiled: CompiledRule, skill: Skill) -> Iterator[Finding]:
    """Report what a rule sends to a node that does not take it."""
    rule = compiled.rule
    accepted = {one.name: one.schema for one in accepted_by(skill, rule.to)}
    names = " | ".join(accepted)
    leaving = compiled.types if rule.artifact is None else (rule.artifact.name,)
    key = "to" if rule.when is not None else "else"
    for name in leaving:
        if (
            name not in accepted
            and rule.artifact is not ANY_OBJECT
            and compiled.is_reached
            and compiled.constant is not False
        ):
            takes = f"the run finishes with `{names}`" if rule.to == END else f"`{rule.to}` takes `{names}`"
            message, fix = f"the rule sends `{name}`, but {takes}", "add `artifact: {type: ..., data: ...}` to the rule"
            fix = (
                fix
                if rule.artifact is None
                else f"make an artifact of type {' or '.join(f'`{one}`' for one in accepted)}"
            )
            yield document.finding(codes.TYPE_MISMATCH, message, *path, key, fix=fix)
    if rule.artifact is not None and compiled.data is not None:
        for one in misfits(rule.data, compiled.data.type, rule.artifact.schema):
            yield misfit_finding(document, one, one.message, *path, "artifact", "data")


class ValueMisfit(NamedTuple):
    """A value that does not fit a schema: its path, why, and whether that is certain. Else only some values do not."""

    path: KeyPath
    message: str
    is_certain: bool = True


def misfit_finding(document: Document, found: ValueMisfit, message: str, *path: str | int, fix: str = "") -> Finding:
    """Return the finding about a value below a path: a warning if only some values do not fit."""
    code = codes.BAD_EXPRESSION if found.is_certain else codes.UNGUARDED
    severity: Severity = "error" if found.is_certain else "warning"
    return document.finding(code, message, *path, *found.path, fix=fix, severity=severity)


def misfits(
    value: Any, found: Type, schema: Schema, path: KeyPath = (), *, is_lenient: bool = False
) -> Iterator[ValueMisfit]:
    """Yield what does not fit a schema: missing or unknown fields of a written object, and values of other kinds.

    Args:
        value: What the author has written; only an object is compared by its fields.
        found: The type of its value.
        schema: The schema that it should fit.
        path: Where it is written.
        is_lenient: Whether fields that the schema does not name, and those that nested objects lack, are accepted.
    """
    expected = of_schema(schema)
    if not found or not expected or "any" in kind_names(found) | kind_names(expected):
        return
    fitting = kind_names(expected) | ({"int", "double"} if "double" in kind_names(expected) else set())
    others = tuple(kind for kind in found if kind.name not in fitting)
    if len(others) == len(found):
        is_number = kind_names(found) == {"double"} and "int" in kind_names(expected)  # `3.0` is an integer
        message = f"the value is {words_for(found)}, but the schema needs {words_for(expected)}"
        yield ValueMisfit(path, message, is_certain=not is_number)
        return
    if others:
        message = f"the value can be {words_for(others)}, but the schema needs {words_for(expected)}"
        yield ValueMisfit(path, message, is_certain=False)
    values, possible = possible_values(found), possible_values(expected)
    if values and possible and not {scalar_key(one) for one in values} & {scalar_key(one) for one in possible}:
        named = " or ".join(map(repr, values[:_MAX_NAMED])), ", ".join(map(repr, possible[:_MAX_NAMED]))
        yield ValueMisfit(path, f"the value is {named[0]}, but the schema has {named[1]}")
    if not isinstance(value, dict) or not isinstance(schema, dict) or len(expected) > 1:
        return
    [shape], [made] = expected, found
    is_closed = shape.extra is None and (not is_lenient or schema.get("additionalProperties") is False)
    unknown = value.keys() - shape.fields.keys() if is_closed else ()
    misspelt = {guess for name in unknown if (guess := nearest(str(name), shape.fields))}
    for name in sorted(shape.required - value.keys()) if not is_lenient or not path else ():
        if f"did you mean `{name}`?" not in misspelt:
            yield ValueMisfit(path, f"the field `{name}` is missing")
    for name, one in value.items():
        if name in shape.fields:
            inner = schema.get("properties", {}).get(name, True)
            yield from misfits(one, made.fields[name](), inner, (*path, name), is_lenient=is_lenient)
        elif is_closed:
            guess = nearest(str(name), shape.fields)
            yield ValueMisfit((*path, name), f"there is no field `{name}`{f'; {guess}' if guess else ''}")
