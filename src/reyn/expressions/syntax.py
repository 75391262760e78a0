"""The syntax of expressions, a subset of CEL: tokens and the parser.

Everything is bounded: the length of the text, the depth of the tree and the number of its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from reyn.expressions.tree import (
    CEL_KEYWORDS,
    MAX_INT,
    MIN_INT,
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
    Problem,
    SyntaxProblem,
    Unary,
    measure,
)

MAX_LENGTH = 4_000
MAX_LEVELS = 64
EXPRESSION_PARTS = 1_000
_MAX_NESTED = 32
"""Parentheses and the like in one another: the parser is recursive."""

METHODS = {"size": 0, "startsWith": 1, "endsWith": 1, "contains": 1, "matches": 1}
"""The functions that are called on a value, with the number of their arguments."""
FUNCTIONS = {"size": 1, "matches": 2, "int": 1, "double": 1, "string": 1}
MACROS = ("all", "exists", "exists_one", "filter", "map")
"""The functions that bind a name to each item of a list, or to each key of an object."""


class Lexeme(NamedTuple):
    """A token: `kind` is `name`, `int`, `double`, `text`, `end`, or the sign itself."""

    kind: str
    text: str
    at: int


_TOKEN = re.compile(
    r"(?P<blank>[ \t\r\n]+)"
    r"|(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<int>0[xX][0-9a-fA-F]+|[0-9]+)"
    r"|(?P<text>[rR]?(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])"
)
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "namespace"}
    | {"package", "return", "var", "void", "while"}
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_SIMPLE_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {
    sign: sign for sign in "\\\"'`?"
}
_INSTEAD = {
    "=": "compare with `==`",
    "&": "write `&&`",
    "|": "write `||`",
    "and": "write `&&`",
    "or": "write `||`",
    "not": "write `!`",
    "is": "write `==`",
}
_BINARY = (("||",), ("&&",), ("<", "<=", ">=", ">", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
"""The binary operators, from the weakest to the strongest."""


def parse_expression(text: str, start: int = 0, closing: str = "") -> tuple[Node, int]:
    """Return the tree of an expression, and the offset after it.

    Args:
        text: The text.
        start: The offset of the expression.
        closing: The sign that ends it; by default, it ends with the text.

    Raises:
        SyntaxProblem: There is no expression.
    """
    parser = _Parser(text, start)
    node = parser.expression()
    if parser.token.kind != (closing or "end"):
        parser.unexpected(f"expected `{closing}`" if closing else "")
    size, depth = measure(node)
    if size > EXPRESSION_PARTS or depth > MAX_LEVELS:
        limit = f"more than {EXPRESSION_PARTS} parts" if size > EXPRESSION_PARTS else f"more than {MAX_LEVELS} levels"
        raise SyntaxProblem(Problem(start, f"the expression has {limit}", "write several rules, or `x in [...]`"))
    return node, parser.token.at + len(closing)


class _Parser:
    """A recursive-descent parser. `token` is the next token."""

    def __init__(self, text: str, start: int) -> None:
        if len(text) - start > MAX_LENGTH:
            raise SyntaxProblem(Problem(start, f"the expression is longer than {MAX_LENGTH} characters"))
        self._text = text
        self._depth = 0
        self.token = self._read(start)

    # -- tokens ---------------------------------------------------------------------------------------

    def _read(self, at: int) -> Lexeme:
        """Return the token at an offset, or after the blanks there."""
        if at >= len(self._text):
            return Lexeme("end", "", len(self._text))
        found = _TOKEN.match(self._text, at)
        if found is None:
            sign = self._text[at]
            if sign in "\"'":
                raise SyntaxProblem(Problem(at, "the text has no closing quotation mark"))
            raise SyntaxProblem(Problem(at, f"unexpected `{sign}`", _INSTEAD.get(sign, "")))
        kind, text = str(found.lastgroup), found.group()
        if kind == "blank":
            return self._read(found.end())
        if kind in ("int", "double") and self._text[found.end() : found.end() + 1].isidentifier():
            raise SyntaxProblem(Problem(at, "a number cannot be followed by a letter"))
        return Lexeme(text if kind == "sign" else kind, text, at)

    def _next(self) -> Lexeme:
        token = self.token
        self.token = self._read(token.at + len(token.text))
        return token

    def _take(self, sign: str) -> bool:
        """Take a sign if it is next."""
        if self.token.kind == sign:
            self._next()
            return True
        return False

    def _expect(self, kind: str, label: str = "") -> Lexeme:
        if self.token.kind != kind:
            self.unexpected(f"expected {label or f'`{kind}`'}")
        return self._next()

    def unexpected(self, expected: str = "") -> NoReturn:
        token = self.token
        found = "the expression ends too early" if token.kind == "end" else f"unexpected `{token.text}`"
        fix = _INSTEAD.get(token.text, "") or expected
        raise SyntaxProblem(Problem(token.at, found, fix))

    def _nested(self, parse_expression: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > _MAX_NESTED:
            raise SyntaxProblem(Problem(self.token.at, f"the expression is nested deeper than {_MAX_NESTED} levels"))
        node = parse_expression()
        self._depth -= 1
        return node

    # -- grammar --------------------------------------------------------------------------------------

    def expression(self) -> Node:
        return self._nested(self._conditional)

    def _conditional(self) -> Node:
        test = self._binary(0)
        if self.token.kind != "?":
            return test
        at = self._next().at
        yes = self._nested(lambda: self._binary(0))
        self._expect(":")
        return Conditional(test, yes, self.expression(), at)

    def _binary(self, level: int) -> Node:
        if level == len(_BINARY):
            return self._unary()
        node = self._binary(level + 1)
        while (operator := self._operator()) in _BINARY[level]:
            at = self._next().at
            node = Binary(operator, node, self._binary(level + 1), at)
        return node

    def _operator(self) -> str:
        return self.token.text if self.token.kind != "name" or self.token.text == "in" else ""

    def _unary(self) -> Node:
        if self.token.kind not in ("!", "-"):
            return self._member()
        sign = self._next()
        if sign.kind == "-" and self.token.kind in ("int", "double"):
            return self._member(self._number(self._next(), -1, sign.at))
        return self._nested(lambda: Unary(sign.kind, self._unary(), sign.at))

    def _member(self, node: Node | None = None) -> Node:
        node = self._primary() if node is None else node
        while self.token.kind in (".", "["):
            if self._take("["):
                key = self.expression()
                at = self._expect("]").at
                is_field = isinstance(key, Literal) and isinstance(key.value, str)
                node = FieldOf(node, str(key[0]), key.at) if is_field else Index(node, key, at)
                continue
            self._next()
            name = self._expect("name", "the name of a field")
            if name.text in CEL_KEYWORDS:
                fix = f"write `['{name.text}']`"
                raise SyntaxProblem(Problem(name.at, f"`{name.text}` cannot follow a dot", fix))
            node = self._method(node, name) if self._take("(") else FieldOf(node, name.text, name.at)
        return node

    def _method(self, target: Node, name: Lexeme) -> Node:
        if name.text in MACROS:
            return self._macro(target, name)
        args = self._arguments(")")
        _check_call(name, len(args), METHODS)
        return FunctionCall(name.text, (target, *args), name.at)

    def _macro(self, source: Node, name: Lexeme) -> Node:
        variable = self._expect("name", "a name for the item")
        if variable.text in (*CEL_KEYWORDS, *_RESERVED):
            raise SyntaxProblem(Problem(variable.at, f"`{variable.text}` is a keyword", "use another name"))
        self._expect(",")
        args = self._arguments(")")
        if len(args) not in ((1, 2) if name.text == "map" else (1,)):
            message = (
                f"`{name.text}` takes a name and {'one or two expressions' if name.text == 'map' else 'a condition'}"
            )
            raise SyntaxProblem(Problem(name.at, message))
        if name.text != "map":
            return Macro(name.text, source, variable.text, args[0], None, name.at)
        return Macro("map", source, variable.text, args[0] if len(args) > 1 else None, args[-1], name.at)

    def _arguments(self, closing: str) -> tuple[Node, ...]:
        args: list[Node] = []
        while not self._take(closing):
            if args:
                self._expect(",")
                if self._take(closing):
                    break
            args.append(self.expression())
        return tuple(args)

    def _primary(self) -> Node:
        token = self.token
        if token.kind in ("int", "double"):
            return self._number(self._next(), 1, token.at)
        if token.kind == "text":
            return Literal(_unquoted(self._next()), token.at)
        if self._take("("):
            node = self.expression()
            self._expect(")")
            return node
        if self._take("["):
            return ListOf(self._arguments("]"), token.at)
        if token.kind == "{":
            fix = "write objects as YAML, with an expression for each value"
            raise SyntaxProblem(Problem(token.at, "expressions have no objects", fix))
        if token.kind != "name" or token.text == "in":
            self.unexpected("expected a value")
        return self._named(self._next())

    def _named(self, token: Lexeme) -> Node:
        if token.text in _CONSTANTS:
            return Literal(_CONSTANTS[token.text], token.at)
        if token.text in _RESERVED:
            raise SyntaxProblem(Problem(token.at, f"`{token.text}` is a reserved word"))
        if not self._take("("):
            return Name(token.text, token.at)
        args = self._arguments(")")
        if token.text != "has":
            _check_call(token, len(args), FUNCTIONS)
            return FunctionCall(token.text, args, token.at)
        if len(args) != 1 or not isinstance(args[0], FieldOf):
            fix = "write `has(data.score)`, or `'score' in data`"
            raise SyntaxProblem(Problem(token.at, "`has` takes a field", fix))
        return Has(args[0].operand, args[0].field, token.at)

    def _number(self, token: Lexeme, sign: int, at: int) -> Literal:
        if token.kind == "double":
            number = sign * float(token.text)
            if number in (float("inf"), -float("inf")):
                raise SyntaxProblem(Problem(at, f"`{token.text}` is too large"))
            return Literal(number, at)
        value = sign * int(token.text, 16 if token.text[:2] in ("0x", "0X") else 10)
        if not MIN_INT <= value <= MAX_INT:
            raise SyntaxProblem(Problem(at, f"`{token.text}` has more than 64 bits"))
        return Literal(value, at)


def _check_call(name: Lexeme, count: int, known: dict[str, int]) -> None:
    is_method = known is METHODS
    if name.text not in known:
        other = (*METHODS, *MACROS) if not is_method else tuple(FUNCTIONS)
        fix = f"write `value.{name.text}(...)`" if not is_method else f"write `{name.text}(value)`"
        if name.text not in other:
            names = (*known, *(MACROS if is_method else ("has",)))
            fix = f"the functions are {', '.join(f'`{one}`' for one in names)}"
        raise SyntaxProblem(Problem(name.at, f"unknown function `{name.text}`", fix))
    if count != known[name.text]:
        number = {0: "no argument", 1: "one argument", 2: "two arguments"}[known[name.text]]
        raise SyntaxProblem(Problem(name.at, f"`{name.text}` takes {number}"))


def _unquoted(token: Lexeme) -> str:
    """Return the value of a text in quotation marks."""
    if token.text[0] in "rR":
        return token.text[2:-1]

    def unescaped(found: re.Match[str]) -> str:
        code = next((group for group in found.groups()[:3] if group), "")
        value = int(code, 16) if code else int(found[4], 8) if found[4] else -1
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF or (value < 0 and found[5] not in _SIMPLE_ESCAPES):
            raise SyntaxProblem(Problem(token.at, f"unknown escape `{found[0]}`", "write `\\\\` for a backslash"))
        return chr(value) if value >= 0 else _SIMPLE_ESCAPES[found[5]]

    return _ESCAPE.sub(unescaped, token.text[1:-1])
