"""Parts of an expression that have no value whatever is read: a division by zero, an overflow, an item out of range."""

from __future__ import annotations

from typing import Any, NamedTuple

from reyn.expressions.evaluation import compile_node
from reyn.expressions.tree import (
    Binary,
    Conditional,
    FunctionCall,
    Index,
    ListOf,
    Literal,
    Node,
    Problem,
    Unary,
    children,
)
from reyn.expressions.values import EvaluationError, Frame

_FIX = "correct it: this part never has a value"
_DIVISIONS = ("/", "%")


class _Constant(NamedTuple):
    value: Any


def constant_problems(node: Node) -> tuple[Problem, ...]:
    """Return the innermost parts without a value. The expression has passed the check of its types."""
    problems: list[Problem] = []
    _value_of(node, problems)
    return tuple(problems)


def _value_of(node: Node, problems: list[Problem]) -> _Constant | None:
    """Return the value of a node that reads nothing; `None` if it reads something, or has no value."""
    if isinstance(node, Literal):
        return _Constant(node.value)
    found = [_value_of(part, problems) for part in children(node)]
    known = [Literal(one.value, node.at) for one in found if one is not None]
    if isinstance(node, Binary) and node.operator in _DIVISIONS and found[0] is None and found[1] == _Constant(0):
        problems.append(Problem(node.at, "division by zero", _FIX))
    if len(known) < len(found):
        return None
    match node:
        case Unary():
            node = node._replace(operand=known[0])
        case Binary():
            node = node._replace(left=known[0], right=known[1])
        case Index():
            node = node._replace(operand=known[0], key=known[1])
        case Conditional():
            node = node._replace(test=known[0], yes=known[1], no=known[2])
        case FunctionCall():
            node = node._replace(args=tuple(known))
        case ListOf():
            node = node._replace(items=tuple(known))
        case _:
            return None  # a name, or a macro, whose items are no constants
    try:
        return _Constant(compile_node(node, frozenset())(Frame({})))
    except EvaluationError as error:
        problems.append(Problem(node.at, error.message, _FIX))
        return None
