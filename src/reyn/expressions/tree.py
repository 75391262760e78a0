"""The tree of an expression, and questions about its nodes. Nodes have the offset of their sign or name in the text."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

MAX_INT, MIN_INT = 2**63 - 1, -(2**63)
CEL_KEYWORDS = ("true", "false", "null", "in")


class Problem(NamedTuple):
    """A problem of an expression, at an offset of its text.

    `kind` is `optional` for a value that may be missing or null where it is needed, and `invalid` for everything else.
    """

    at: int
    message: str
    fix: str = ""
    kind: str = "invalid"


class SyntaxProblem(Exception):
    """The text is not an expression."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Literal(NamedTuple):
    value: Any
    at: int


class Name(NamedTuple):
    name: str
    at: int


class FieldOf(NamedTuple):
    """`operand.field`, or `operand['field']`."""

    operand: Node
    field: str
    at: int


class Has(NamedTuple):
    operand: Node
    field: str
    at: int


class Index(NamedTuple):
    operand: Node
    key: Node
    at: int


class Unary(NamedTuple):
    operator: str
    operand: Node
    at: int


class Binary(NamedTuple):
    operator: str
    left: Node
    right: Node
    at: int


class Conditional(NamedTuple):
    test: Node
    yes: Node
    no: Node
    at: int


class FunctionCall(NamedTuple):
    function: str
    args: tuple[Node, ...]
    at: int


class ListOf(NamedTuple):
    items: tuple[Node, ...]
    at: int


class Macro(NamedTuple):
    """`source.function(variable, condition, result)`; `map` alone has a `result`, and may have no `condition`."""

    function: str
    source: Node
    variable: str
    condition: Node | None
    result: Node | None
    at: int


Path = tuple[str | int, ...]
Node = Literal | Name | FieldOf | Has | Index | Unary | Binary | Conditional | FunctionCall | ListOf | Macro


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct parts of a node."""
    match node:
        case FieldOf(operand=inner) | Has(operand=inner) | Unary(operand=inner):
            return (inner,)
        case Index(operand=left, key=right) | Binary(left=left, right=right):
            return (left, right)
        case Conditional(test=test, yes=yes, no=no):
            return (test, yes, no)
        case FunctionCall(args=items) | ListOf(items=items):
            return items
        case Macro(source=source, condition=condition, result=result):
            return tuple(one for one in (source, condition, result) if one is not None)
    return ()


def size_of(node: Node) -> int:
    """Return the number of nodes of a tree."""
    return measure(node)[0]


def measure(node: Node) -> tuple[int, int]:
    """Return the number of nodes of a tree, and its depth."""
    size, depth, level = 0, 0, [node]
    while level:
        size, depth = size + len(level), depth + 1
        level = [part for one in level for part in children(one)]
    return size, depth


def path_of(node: Node) -> Path | None:
    """Return the path of names and constant indexes that a node reads, such as `data.score`; `None` if it is none."""
    steps: list[str | int] = []
    while not isinstance(node, Name):
        if isinstance(node, FieldOf):
            steps.append(node.field)
        elif isinstance(node, Index) and isinstance(node.key, Literal) and type(node.key.value) is int:
            steps.append(node.key.value)
        else:
            return None
        node = node.operand
    return (node.name, *reversed(steps))


def write_path(path: Path) -> str:
    """Write a path as an expression."""
    return "".join(f".{one}" if isinstance(one, str) and is_field_name(one) else f"[{one!r}]" for one in path)[1:]


def is_field_name(text: str) -> bool:
    """Return whether a text can be written as the name of a field."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) is not None and text not in CEL_KEYWORDS


def source_text(node: Node) -> str:
    """Write a path as an expression; another node has no short form."""
    path = path_of(node)
    return write_path(path) if path is not None else "value"


def label_of(node: Node) -> str:
    """Return a name for the value of a node, for messages."""
    path = path_of(node)
    return f"`{write_path(path)}`" if path is not None else "the value"


def start_of(node: Node) -> int:
    """Return the offset of the first part of a node."""
    while isinstance(node, FieldOf | Index | Binary | Conditional | Macro):
        match node:
            case FieldOf(operand=first) | Index(operand=first) | Binary(left=first):
                node = first
            case Conditional(test=first) | Macro(source=first):
                node = first
    return node.at
