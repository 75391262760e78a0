"""Expressions as authors write them: compiled once, evaluated for each decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from reyn.expressions.checking import Checked, Scope, check_expression
from reyn.expressions.constants import constant_problems
from reyn.expressions.evaluation import Run, compile_node
from reyn.expressions.facts import NO_FACTS, Facts
from reyn.expressions.syntax import parse_expression
from reyn.expressions.tree import Has, Macro, Node, Path, Problem, SyntaxProblem, children, path_of, write_path
from reyn.expressions.types import Type, kind_names, words_for
from reyn.expressions.values import EvaluationError, Frame, SharedWork, ShownValue, describe_value, value_of_path

_MAX_READ = 200
"""Characters of a text that are recorded as a value that an expression has read."""


class ExpressionInvalid(ValueError):
    """A text is no valid expression; `problems` has every reason."""

    def __init__(self, text: str, problems: tuple[Problem, ...]) -> None:
        first = problems[0]
        super().__init__(f"{place(text, first.at)}: {first.message}")
        self.problems = problems


class Expression:
    """A compiled expression.

    Attributes:
        text: The text.
        checked: The result of the check: type, problems, and what holds if it is true.
        paths: The paths that it can read.
    """

    def __init__(self, text: str, node: Node, scope: Scope, facts: Facts = NO_FACTS) -> None:
        self.text = text
        checked = check_expression(node, scope, facts)
        self.checked: Checked = checked if checked.problems else checked._replace(problems=constant_problems(node))
        self.paths: tuple[Path, ...] = tuple(dict.fromkeys(_paths(node, frozenset())))
        self._node = node

    @cached_property
    def _run(self) -> Run:
        return compile_node(self._node, self.checked.doubles)

    @property
    def type(self) -> Type:
        return self.checked.type

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the expression, in the order of the text."""
        return self.checked.problems

    @property
    def problems_as_condition(self) -> tuple[Problem, ...]:
        """What is wrong with the expression where a condition is needed."""
        names = kind_names(self.type)
        if self.problems or not self.type or names & {"bool", "any"} == names:
            return self.problems
        return (Problem(0, f"the condition is {words_for(self.type)}", "compare it, such as `> 0`, or `== true`"),)

    def evaluate(self, values: dict[str, Any], work: SharedWork | None = None) -> Any:
        """Return the value of the expression. `work` is what it and others may do together.

        Raises:
            EvaluationError: It has none.
        """
        return self._run(Frame(values)) if work is None else work.evaluate(self._run, values)

    def is_true(self, values: dict[str, Any], work: SharedWork | None = None) -> bool:
        """Return whether a condition holds. `work` is what it and others may do together.

        Raises:
            EvaluationError: Its value is not a boolean, or it has none.
        """
        found = self.evaluate(values, work)
        if type(found) is not bool:
            raise EvaluationError(0, "the condition is ", ShownValue(found))
        return found


def compile_expression(text: str, scope: Scope, facts: Facts = NO_FACTS) -> Expression:
    """Compile an expression. Its `problems` may make it useless, but never unsafe.

    Raises:
        ExpressionInvalid: The text has no meaning.
    """
    try:
        node, _ = parse_expression(text)
        return Expression(text, node, scope, facts)
    except SyntaxProblem as error:
        raise ExpressionInvalid(text, (error.problem,)) from error


def place(text: str, at: int) -> str:
    """Return a position in an expression as text: its column, after the line if there are several."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"line {line}, column {column}" if "\n" in text.strip() else f"column {column}"


def readings(expressions: Iterable[Expression], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that expressions can read, by path: scalars as they are, other values as a summary."""
    found: dict[str, Any] = {}
    for expression in expressions:
        for path in expression.paths:
            name = write_path(path)
            if name not in found and (value := value_of_path(path, values)) is not None:
                found[name] = _summary(value[0])
    return found


def _summary(value: Any) -> Any:
    if isinstance(value, list | dict):
        return describe_value(value)
    return f"{value[:_MAX_READ]}…" if isinstance(value, str) and len(value) > _MAX_READ else value


def _paths(node: Node, items: frozenset[str]) -> Iterable[Path]:
    """Yield the paths that a node reads; those of the items of a macro are part of its source."""
    path = path_of(node)
    if isinstance(node, Has) and (operand := path_of(node.operand)) is not None:
        path = (*operand, node.field)
    if path is not None:
        if path[0] not in items:
            yield path
        return
    for part in children(node):
        is_inner = isinstance(node, Macro) and part is not node.source
        yield from _paths(part, items | {node.variable} if is_inner and isinstance(node, Macro) else items)
