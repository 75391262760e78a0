"""Texts and JSON values with expressions in `${…}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.expressions.expression import Expression, ExpressionInvalid
from reyn.expressions.facts import NO_FACTS, Facts
from reyn.expressions.syntax import parse_expression
from reyn.expressions.tree import Problem, SyntaxProblem
from reyn.expressions.types import (
    STRING_TYPE,
    Type,
    constant,
    kind_name,
    kind_names,
    list_of,
    object_of,
    union,
    words_for,
)
from reyn.expressions.values import (
    TEXT_CHARS,
    EvaluationError,
    Meter,
    SharedWork,
    ShownValue,
    result_meter,
    write_value,
)

if TYPE_CHECKING:
    from reyn.expressions.checking import Scope

BEGIN_EXPRESSION = "${"
_ESCAPED = "$${"
_WRITABLE = frozenset({"string", "int", "double", "bool"})


class Template:
    """A text with expressions in `${…}`. One that is a single expression has its value, any other is a text."""

    def __init__(self, text: str, parts: tuple[str | Expression, ...]) -> None:
        self.text = text
        self.parts = parts

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return tuple(part for part in self.parts if isinstance(part, Expression))

    @property
    def type(self) -> Type:
        first = self.parts[0] if len(self.parts) == 1 else ""
        return first.type if isinstance(first, Expression) else STRING_TYPE

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the expressions: also a value in the middle of a text that is no scalar."""
        found = [problem for part in self.expressions for problem in part.problems]
        offset = 0
        for part in self.parts:
            if isinstance(part, str):
                offset += len(part)
                continue
            if len(self.parts) > 1 and part.type and not kind_names(part.type) <= _WRITABLE | {"any"}:
                message = f"`{part.text.strip()}` is {words_for(part.type)}, which is not part of a text"
                is_test_missing = kind_names(part.type) - _WRITABLE == {"null"}
                fix = (
                    "test it: `x != null ? x : '-'`" if is_test_missing else "write a text, a number or a boolean of it"
                )
                found.append(Problem(offset, message, fix))
        return tuple(found)

    def evaluate(self, values: dict[str, Any], work: SharedWork | None = None) -> Any:
        """Return the value, or the text. `work` is what its expressions and others may do together.

        Raises:
            EvaluationError: An expression has no value, or one that is not part of a text.
        """
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return self.parts[0].evaluate(values, work)
        words, work = list[str](), work or SharedWork()
        for part in self.parts:
            value = part if isinstance(part, str) else part.evaluate(values, work)
            if kind_name(value) not in _WRITABLE:
                raise EvaluationError(0, ShownValue(value), " is not part of a text")
            words.append(write_value(value))
        text = "".join(words)
        if len(text) > TEXT_CHARS:
            raise EvaluationError(0, f"the text has more than {TEXT_CHARS:,} characters")
        return text


def compile_template(text: str, scope: Scope, facts: Facts = NO_FACTS) -> Template:
    """Compile a text with expressions.

    Raises:
        ExpressionInvalid: An expression has no meaning.
    """
    parts: list[str | Expression] = []
    words, at = "", 0
    while (start := text.find(BEGIN_EXPRESSION, at)) >= 0:
        if text[max(0, start - 1) : start] == "$":
            words, at = words + text[at : start - 1] + BEGIN_EXPRESSION, start + len(BEGIN_EXPRESSION)
            continue
        words += text[at:start]
        try:
            node, at = parse_expression(text, start + len(BEGIN_EXPRESSION), "}")
            parts += [words] if words else []
            parts.append(Expression(text[start + len(BEGIN_EXPRESSION) : at - 1], node, scope, facts))
        except SyntaxProblem as error:
            fix = error.problem.fix or f"write `{_ESCAPED}` for a text that begins with `{BEGIN_EXPRESSION}`"
            raise ExpressionInvalid(text, (error.problem._replace(fix=fix),)) from error
        words = ""
    words += text[at:]
    return Template(text, (*parts, words) if words or not parts else tuple(parts))


def has_expressions(value: Any) -> bool:
    """Return whether a text, or a text in a list or object, has expressions."""
    if isinstance(value, str):
        return BEGIN_EXPRESSION in value
    if isinstance(value, dict):
        return any(map(has_expressions, value.values()))
    return isinstance(value, list) and any(map(has_expressions, value))


class PlacedProblem(NamedTuple):
    """A problem of an expression in a JSON value: the path of the text, the text, and the problem."""

    path: tuple[str | int, ...]
    text: str
    problem: Problem


class DataTemplate:
    """A JSON value whose texts may have expressions.

    Attributes:
        problems: What is wrong with the expressions.
        expressions: All expressions.
        type: The type of the value.
    """

    def __init__(self, value: Any, scope: Scope, facts: Facts = NO_FACTS) -> None:
        self.problems: list[PlacedProblem] = []
        self.expressions: list[Expression] = []
        self._value, self.type = self._compiled(value, (), scope, facts)

    def _compiled(self, value: Any, path: tuple[str | int, ...], scope: Scope, facts: Facts) -> tuple[Any, Type]:
        """Return a value with templates in the place of texts that have expressions, and its type."""
        if isinstance(value, dict):
            fields = {name: self._compiled(one, (*path, name), scope, facts) for name, one in value.items()}
            return {name: one for name, (one, _) in fields.items()}, object_of(
                {key: of for key, (_, of) in fields.items()}
            )
        if isinstance(value, list):
            items = [self._compiled(one, (*path, index), scope, facts) for index, one in enumerate(value)]
            return [one for one, _ in items], list_of(union(of for _, of in items))
        if not isinstance(value, str) or BEGIN_EXPRESSION not in value:
            return value, constant(value)
        try:
            template = compile_template(value, scope, facts)
        except ExpressionInvalid as error:
            self.problems += [PlacedProblem(path, value, problem) for problem in error.problems]
            return value, STRING_TYPE
        self.problems += [PlacedProblem(path, value, problem) for problem in template.problems]
        self.expressions += template.expressions
        return template, template.type

    def render(self, values: dict[str, Any], work: SharedWork | None = None) -> Any:
        """Return the value with the values of its expressions. `work` is what they and others may do together.

        Raises:
            EvaluationError: An expression has no value, or all of them together are too large. It names the text.
        """
        return _rendered(self._value, values, (result_meter(), work or SharedWork()), ())


def _rendered(value: Any, values: dict[str, Any], bounds: tuple[Meter, SharedWork], path: tuple[str | int, ...]) -> Any:
    if isinstance(value, Template):
        meter, work = bounds
        try:
            found = value.evaluate(values, work)
            meter.charge_value(found)
        except EvaluationError as error:
            error.text, error.path = value.text, path
            raise
        return found
    if isinstance(value, dict):
        return {name: _rendered(one, values, bounds, (*path, name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_rendered(one, values, bounds, (*path, index)) for index, one in enumerate(value)]
    return value
