"""What holds where an expression is evaluated, because conditions before it were true or false."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from reyn.expressions.tree import Binary, Has, ListOf, Literal, Node, Path, Unary, path_of
from reyn.expressions.types import INF, Interval, Kind, Type, kind_name, merge

NUMBERS = ("int", "double")
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""Each comparison with its sides exchanged."""
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


class Facts(NamedTuple):
    """What is known about paths: the fields that are there, and what their values can still be."""

    present: frozenset[Path] = frozenset()
    types: Mapping[Path, Type] = {}

    def with_type(self, path: Path, found: Type) -> Facts:
        return Facts(self.present, {**self.types, path: found})

    def with_field(self, path: Path) -> Facts:
        return Facts(self.present | {path}, self.types)


NO_FACTS = Facts()


class Comparison(NamedTuple):
    """A comparison of a path with constants: `operator` is `in`, or a comparison with the only value."""

    path: Path
    operator: str
    values: tuple[Any, ...]


def comparison_of(node: Node) -> Comparison | None:
    """Return the comparison of a path with constants that a node is."""
    if not isinstance(node, Binary):
        return None
    left, right = path_of(node.left), path_of(node.right)
    if node.operator == "in" and left is not None and isinstance(node.right, ListOf):
        items = [one.value for one in node.right.items if isinstance(one, Literal)]
        return Comparison(left, "in", tuple(items)) if len(items) == len(node.right.items) else None
    if node.operator in FLIPPED and left is not None and isinstance(node.right, Literal):
        return Comparison(left, node.operator, (node.right.value,))
    if node.operator in FLIPPED and right is not None and isinstance(node.left, Literal):
        return Comparison(right, FLIPPED[node.operator], (node.left.value,))
    return None


def field_of(node: Node) -> Path | None:
    """Return the path whose presence a node tests: `has(data.x)`, or `'x' in data`."""
    if isinstance(node, Has):
        path = path_of(node.operand)
        return None if path is None else (*path, node.field)
    if isinstance(node, Binary) and node.operator == "in" and isinstance(node.left, Literal):
        path = path_of(node.right)
        return (*path, node.left.value) if path is not None and isinstance(node.left.value, str) else None
    return None


def assume(node: Node, facts: Facts, type_of: Mapping[Path, Type], *, truth: bool) -> Facts | None:
    """Return the facts if a condition is true, or false; `None` if it cannot be.

    Args:
        node: The condition.
        facts: What held before.
        type_of: The types of the paths in the condition, as they were checked.
        truth: Its result.
    """
    match node:
        case Literal(value=value):
            return facts if value is truth else None
        case Unary(operator="!", operand=inner):
            return assume(inner, facts, type_of, truth=not truth)
        case Binary(operator="&&" | "||" as operator, left=left, right=right):
            if (operator == "&&") is not truth:
                return _either(left, right, facts, type_of, truth=truth)
            first = assume(left, facts, type_of, truth=truth)
            return None if first is None else assume(right, first, type_of, truth=truth)
    if (field := field_of(node)) is not None:
        return facts.with_field(field) if truth else facts
    if (compared := comparison_of(node)) is not None:
        return _narrowed(compared, facts, type_of, truth=truth)
    path = path_of(node)
    return facts if path is None else _narrowed(Comparison(path, "==", (True,)), facts, type_of, truth=truth)


def _either(left: Node, right: Node, facts: Facts, type_of: Mapping[Path, Type], *, truth: bool) -> Facts | None:
    """Return the facts if at least one of two conditions has a result."""
    first, second = assume(left, facts, type_of, truth=truth), assume(right, facts, type_of, truth=truth)
    if first is None or second is None:
        return second if first is None else first
    return facts


def _narrowed(compared: Comparison, facts: Facts, type_of: Mapping[Path, Type], *, truth: bool) -> Facts | None:
    path, operator, values = compared
    before = facts.types.get(path, type_of.get(path))
    if before is None:
        return facts
    if operator == "in":
        after = _narrow_to(before, values, truth=truth)
    else:
        after = narrow(before, operator if truth else _NEGATED[operator], values[0])
    return facts.with_type(path, after) if after or not before else None


def _narrow_to(found: Type, values: tuple[Any, ...], *, truth: bool) -> Type:
    """Return what a value of a type can be if it is one of some constants, or none of them."""
    keys, kept = {scalar_key(value) for value in values}, list[Kind]()
    for kind in found:
        if (possible := kind.possible()) is not None:
            left = tuple(one for one in possible if (scalar_key(one) in keys) is truth)
            kept += [kind._replace(values=left)] if left else []
        elif truth:
            kept += [one for value in values for one in narrow((kind,), "==", value)]
        else:
            kept.append(kind)
    return merge(kept)


def narrow(found: Type, operator: str, value: Any) -> Type:
    """Return what a value of a type can be if its comparison with a constant is true."""
    kept = (_narrow(kind, operator, value) for kind in found)
    return tuple(kind for kind in kept if kind is not None)


def _narrow(kind: Kind, operator: str, value: Any) -> Kind | None:
    name = kind_name(value)
    fits = kind.name == name or (kind.name in NUMBERS and name in NUMBERS)
    if operator == "!=":
        possible = kind.possible()
        if not fits or possible is None:
            return kind
        left = tuple(one for one in possible if one != value)
        return kind._replace(values=left) if left else None
    if kind.name == "any":
        return Kind(name, (value,)) if operator == "==" else kind
    if not fits:
        return None
    possible = kind.possible()
    if possible is not None:
        left = tuple(one for one in possible if holds(operator, one, value))
        return kind._replace(values=left) if left else None
    if kind.name not in NUMBERS:
        return kind._replace(values=(value,)) if operator == "==" else kind
    interval = _meet(kind.interval, operator, value)
    if interval.is_empty:
        return None
    return kind._replace(interval=interval, values=(value,) if operator == "==" else None)


def holds(operator: str, left: Any, right: Any) -> bool:
    """Return the result of a comparison of two scalars of the same kind, or of two numbers."""
    if operator in ("==", "!="):
        return bool(left == right) is (operator == "==")
    if operator in ("<", ">="):
        return bool(left < right) is (operator == "<")
    return bool(left > right) is (operator == ">")


def _meet(before: Interval, operator: str, value: float) -> Interval:
    other = {
        "==": Interval(value, value),
        "<": Interval(-INF, value, high_open=True),
        "<=": Interval(-INF, value),
        ">": Interval(value, INF, low_open=True),
        ">=": Interval(value, INF),
    }[operator]
    low, high = max(before.low, other.low), min(before.high, other.high)
    low_open = any(one.low_open for one in (before, other) if one.low == low)
    high_open = any(one.high_open for one in (before, other) if one.high == high)
    return Interval(low, high, low_open, high_open)


def outcomes(operator: str, left: Kind, right: Kind) -> tuple[bool, ...]:
    """Return the possible results of a comparison of two values that fit."""
    first, second = left.possible(), right.possible()
    if first is not None and second is not None and len(first) * len(second) <= 400:
        return tuple({holds(operator, one, other) for one in first for other in second})
    if left.name not in NUMBERS or right.name not in NUMBERS:
        return (False, True)
    one, other = range_of(left), range_of(right)
    return tuple(result for result in (False, True) if _may_be(operator if result else _NEGATED[operator], one, other))


def range_of(kind: Kind) -> Interval:
    """Return the range of a number."""
    return kind.interval if kind.values is None else Interval(min(kind.values), max(kind.values))


def _may_be(operator: str, one: Interval, other: Interval) -> bool:
    """Return whether a comparison of numbers of two ranges can be true."""
    match operator:
        case "==":
            low, high = max(one.low, other.low), min(one.high, other.high)
            return low < high or (low == high and one.contains(low) and other.contains(low))
        case "!=":
            return not (one.low == one.high == other.low == other.high)
        case "<" | "<=":
            if one.low != other.high:
                return one.low < other.high
            return operator == "<=" and not one.low_open and not other.high_open
    return _may_be(FLIPPED[operator], other, one)


def fits(one: Kind, other: Kind, *, is_equality: bool) -> bool:
    """Return whether two values can be compared."""
    names = {one.name, other.name}
    if "any" in names:
        return is_equality or not names & {"null", "list", "map"}
    if one.name == other.name:
        return is_equality or one.name not in ("null", "list", "map")
    return names <= {*NUMBERS}


def scalar_key(value: Any) -> tuple[str, Any]:
    """Return what is the same for two scalars if they are equal."""
    name = kind_name(value)
    return ("number" if name in NUMBERS else name, value)
