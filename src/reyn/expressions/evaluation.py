"""Compile a checked expression to closures, and evaluate it: total, bounded and without side effects.

Values are JSON. The work of one evaluation is counted in units, and one that exceeds the limit fails: an expression
never decides by how fast a machine is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from reyn.expressions.facts import holds
from reyn.expressions.tree import (
    Binary,
    Conditional,
    FieldOf,
    FunctionCall,
    Has,
    Index,
    ListOf,
    Literal,
    Macro,
    Name,
    Node,
    Unary,
    label_of,
    size_of,
)
from reyn.expressions.values import (
    CHARS_PER_UNIT,
    EvaluationError,
    Frame,
    ShownValue,
    arithmetic,
    as_double,
    contains,
    equals,
    integers,
    no_field,
    size_of_value,
    to_double,
    to_int,
    to_string,
)
from reyn.jsonschema import compile_schema
from reyn.texts import counted

Run = Callable[[Frame], Any]


def compile_node(node: Node, doubles: frozenset[int]) -> Run:
    """Return a function that evaluates a node.

    Args:
        node: A checked expression.
        doubles: The offsets of values that are numbers even where JSON writes an integer.
    """
    match node:
        case Literal(value=value):
            return lambda _: value
        case Name(name=name, at=at):
            return _name(name, at)
        case FieldOf(operand=operand, field=field, at=at):
            run = _select(compile_node(operand, doubles), field, at, label_of(operand))
            return _as_double(run, at) if at in doubles else run
        case Has(operand=operand, field=field, at=at):
            return _has(compile_node(operand, doubles), field, at, label_of(operand))
        case Index(operand=operand, key=key, at=at):
            run = _index(compile_node(operand, doubles), compile_node(key, doubles), at)
            return _as_double(run, at) if at in doubles else run
        case Unary(operator=operator, operand=operand, at=at):
            return (_not if operator == "!" else _minus)(compile_node(operand, doubles), at)
        case Binary(operator=operator, left=left, right=right, at=at):
            return _binary(operator, compile_node(left, doubles), compile_node(right, doubles), at)
        case Conditional(test=test, yes=yes, no=no, at=at):
            return _conditional(compile_node(test, doubles), compile_node(yes, doubles), compile_node(no, doubles), at)
        case ListOf(items=items):
            runs = [compile_node(one, doubles) for one in items]
            return lambda frame: [run(frame) for run in runs]
        case FunctionCall():
            return _call(node, doubles)
        case Macro():
            return _MacroLoop(node, doubles).run


# -- paths --------------------------------------------------------------------------------------------


def _name(name: str, at: int) -> Run:
    def run(frame: Frame) -> Any:
        try:
            return frame.values[name]
        except KeyError:
            raise EvaluationError(at, f"`{name}` has no value") from None

    return run


def _select(operand: Run, field: str, at: int, label: str) -> Run:
    def run(frame: Frame) -> Any:
        value = operand(frame)
        if type(value) is dict and field in value:
            return value[field]
        raise no_field(value, field, label, at)

    return run


def _has(operand: Run, field: str, at: int, label: str) -> Run:
    def run(frame: Frame) -> bool:
        value = operand(frame)
        if type(value) is dict:
            return field in value
        raise no_field(value, field, label, at)

    return run


def _as_double(operand: Run, at: int) -> Run:
    def run(frame: Frame) -> Any:
        value = operand(frame)
        return as_double(value, at) if type(value) is int else value

    return run


def _index(operand: Run, key: Run, at: int) -> Run:
    def run(frame: Frame) -> Any:
        value, name = operand(frame), key(frame)
        if type(value) is list and type(name) is float and name.is_integer():
            name = int(name)
        if type(value) is list and type(name) is int:
            if 0 <= name < len(value):
                return value[name]
            raise EvaluationError(at, f"the list has {counted(len(value), 'item')}, and none at ", ShownValue(name))
        if type(value) is dict:
            if type(name) is str and name in value:
                return value[name]
            raise EvaluationError(at, "the object has no field ", ShownValue(name))
        raise EvaluationError(at, ShownValue(value), " has no item at ", ShownValue(name))

    return run


# -- logic --------------------------------------------------------------------------------------------


def no_condition(value: Any, at: int) -> NoReturn:
    raise EvaluationError(at, ShownValue(value), " is not a condition")


def _not(operand: Run, at: int) -> Run:
    def run(frame: Frame) -> bool:
        value = operand(frame)
        return not value if type(value) is bool else no_condition(value, at)

    return run


def _decides(condition: Run, frame: Frame, decisive: bool) -> bool:
    """Return whether a condition has a result."""
    try:
        found = condition(frame)
    except EvaluationError:
        return False
    return type(found) is bool and found == decisive


def _logic(left: Run, right: Run, decisive: bool, at: int) -> Run:
    """Return `&&` or `||`: the result of one side can decide, also if the other side is an error."""

    def run(frame: Frame) -> bool:
        first: Any = None
        try:
            first = left(frame)
            if type(first) is not bool:
                no_condition(first, at)
        except EvaluationError as error:
            if _decides(right, frame, decisive):
                return decisive
            raise error from None
        if first == decisive:
            return decisive
        second = right(frame)
        if type(second) is not bool:
            no_condition(second, at)
        return second is True

    return run


def _conditional(test: Run, yes: Run, no: Run, at: int) -> Run:
    def run(frame: Frame) -> Any:
        value = test(frame)
        if type(value) is not bool:
            no_condition(value, at)
        return yes(frame) if value else no(frame)

    return run


# -- operators ----------------------------------------------------------------------------------------


def _binary(operator: str, left: Run, right: Run, at: int) -> Run:
    if operator in ("&&", "||"):
        return _logic(left, right, operator == "||", at)
    if operator in ("==", "!="):
        return _equality(left, right, operator == "==", at)
    if operator in ("<", "<=", ">", ">="):
        return _order(operator, left, right, at)
    if operator == "in":
        return lambda frame: contains(left(frame), right(frame), frame, at)
    return lambda frame: arithmetic(operator, left(frame), right(frame), frame, at)


def _equality(left: Run, right: Run, equal: bool, at: int) -> Run:
    return lambda frame: equals(left(frame), right(frame), frame, at) is equal


def _order(operator: str, left: Run, right: Run, at: int) -> Run:
    def run(frame: Frame) -> bool:
        one, other = left(frame), right(frame)
        kind, with_kind = type(one), type(other)
        if kind is with_kind if kind in (str, bool) else (kind in (int, float) and with_kind in (int, float)):
            if kind is str:
                frame.charge(min(len(one), len(other)) // CHARS_PER_UNIT, at)
            return holds(operator, one, other)
        raise EvaluationError(at, f"`{operator}` cannot compare ", ShownValue(one), " with ", ShownValue(other))

    return run


def _minus(operand: Run, at: int) -> Run:
    def run(frame: Frame) -> Any:
        value = operand(frame)
        if type(value) is float:
            return -value
        if type(value) is int:
            return integers("-", 0, value, at)
        raise EvaluationError(at, "`-` needs a number, not ", ShownValue(value))

    return run


# -- functions ----------------------------------------------------------------------------------------


def _call(node: FunctionCall, doubles: frozenset[int]) -> Run:
    runs, at, name = [compile_node(one, doubles) for one in node.args], node.at, node.function
    first = runs[0]
    if name == "size":
        return lambda frame: size_of_value(first(frame), at)
    if name in ("int", "double", "string"):
        convert = {"int": to_int, "double": to_double, "string": to_string}[name]
        return lambda frame: convert(first(frame), at)
    if name == "matches":
        return _matches(node, first)
    second = runs[1]

    def run(frame: Frame) -> bool:
        text, part = first(frame), second(frame)
        if type(text) is not str or type(part) is not str:
            wrong = part if type(text) is str else text
            raise EvaluationError(at, f"`{name}` takes texts, not ", ShownValue(wrong))
        frame.charge(len(text) // CHARS_PER_UNIT + 1, at)
        return (
            part in text
            if name == "contains"
            else text.startswith(part)
            if name == "startsWith"
            else text.endswith(part)
        )

    return run


def _matches(node: FunctionCall, first: Run) -> Run:
    """Return `matches`: patterns are those of JSON Schema, whose engine never backtracks."""
    pattern = node.args[1]
    schema = compile_schema({"pattern": pattern.value if isinstance(pattern, Literal) else ""})

    def run(frame: Frame) -> bool:
        text = first(frame)
        if type(text) is not str:
            raise EvaluationError(node.at, "`matches` takes a text, not ", ShownValue(text))
        frame.charge(10 + len(text), node.at)
        return schema.is_valid(text)

    return run


class _MacroLoop:
    """A macro: its parts are evaluated for each item of a list, or for each key of an object."""

    def __init__(self, node: Macro, doubles: frozenset[int]) -> None:
        self._at = node.at
        self._name = node.function
        self._variable = node.variable
        self._source = compile_node(node.source, doubles)
        self._condition = None if node.condition is None else compile_node(node.condition, doubles)
        self._result = None if node.result is None else compile_node(node.result, doubles)
        self._units = sum(size_of(one) for one in (node.condition, node.result) if one is not None)
        self._is_double = node.at in doubles
        self.run: Run = {"all": self._all, "exists": self._exists, "exists_one": self._one}.get(self._name, self._list)

    def _items(self, frame: Frame) -> list[Any]:
        found = self._source(frame)
        if type(found) not in (list, dict):
            raise EvaluationError(self._at, f"`{self._name}` needs a list or an object, not ", ShownValue(found))
        frame.charge(len(found) * self._units, self._at)
        items = sorted(found) if type(found) is dict else found
        return [as_double(one, self._at) if type(one) is int else one for one in items] if self._is_double else items

    def _inner(self, frame: Frame) -> Frame:
        """Return a frame with the same work in which the variable can be set."""
        return Frame(dict(frame.values), frame.meter)

    def _test(self, inner: Frame) -> bool:
        assert self._condition is not None
        value = self._condition(inner)
        return value if type(value) is bool else no_condition(value, self._at)

    def _quantified(self, frame: Frame, decisive: bool) -> bool:
        """Return whether an item has a result; an error counts only if no other item decides."""
        error: EvaluationError | None = None
        items, inner = self._items(frame), self._inner(frame)
        for item in items:
            inner.values[self._variable] = item
            try:
                if self._test(inner) is decisive:
                    return decisive
            except EvaluationError as found:
                error = error or found
                inner.charge(0, self._at)
        if error is not None:
            raise error
        return not decisive

    def _all(self, frame: Frame) -> bool:
        return self._quantified(frame, decisive=False)

    def _exists(self, frame: Frame) -> bool:
        return self._quantified(frame, decisive=True)

    def _one(self, frame: Frame) -> bool:
        items, inner = self._items(frame), self._inner(frame)
        count = 0
        for item in items:
            inner.values[self._variable] = item
            count += self._test(inner)
        return count == 1

    def _list(self, frame: Frame) -> list[Any]:
        items, inner = self._items(frame), self._inner(frame)
        found: list[Any] = []
        for item in items:
            inner.values[self._variable] = item
            if self._condition is None or self._test(inner):
                found.append(item if self._result is None else self._result(inner))
        return found
