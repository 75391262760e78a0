"""Random expressions, and data that they can read: mostly well typed, sometimes not."""

from __future__ import annotations

import random
from typing import Any

from reyn.expressions import Scope
from reyn.expressions.types import of_schema

ITEM = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "price": {"type": "number"}},
    "required": ["id", "name"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "m": {"type": "integer", "minimum": 0, "maximum": 5},
        "x": {"type": "number"},
        "y": {"type": "number", "minimum": 0, "maximum": 1},
        "s": {"type": "string"},
        "kind": {"enum": ["a", "b", "ä"]},
        "b": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "items": {"type": "array", "items": ITEM},
        "opt": {"type": "integer"},
        "inner": {
            "type": "object",
            "properties": {"b": {"type": "boolean"}, "s": {"type": "string"}},
            "required": ["b"],
        },
        "open": True,
    },
    "required": ["n", "m", "x", "y", "s", "kind", "b", "note", "tags", "numbers", "items", "inner", "open"],
}
SCOPE = Scope({}, (("thing", of_schema(SCHEMA)),))
WORDS = ("", "a", "b", "ä", "ab", "a😀", "10", "-3", "2.5", "x" * 20)
INTS = (0, 1, -1, 2, 3, 5, 7, 10, 2**62, -(2**63), 2**63 - 1)
DOUBLES = (0.0, 0.5, -0.5, 1.0, 2.5, 1e300, 3.0, 0.1)
PATTERNS = ("a", "^a", "b$", "[ab]+", "^$", "^.{2}$", "a|b", "\\\\d+")


def data(rng: random.Random) -> dict[str, Any]:
    """Return data that fits the schema."""

    def item() -> dict[str, Any]:
        found: dict[str, Any] = {"id": rng.choice(INTS), "name": rng.choice(WORDS)}
        return found | ({"price": rng.choice(DOUBLES)} if rng.random() < 0.5 else {})

    found: dict[str, Any] = {
        "n": rng.choice(INTS),
        "m": rng.randint(0, 5),
        "x": rng.choice(DOUBLES),
        "y": rng.choice((0.0, 0.25, 1.0)),
        "s": rng.choice(WORDS),
        "kind": rng.choice(("a", "b", "ä")),
        "b": rng.random() < 0.5,
        "note": rng.choice((None, *WORDS)),
        "tags": [rng.choice(WORDS) for _ in range(rng.randint(0, 3))],
        "numbers": [rng.choice(INTS) for _ in range(rng.randint(0, 3))],
        "items": [item() for _ in range(rng.randint(0, 3))],
        "inner": {"b": rng.random() < 0.5, **({"s": rng.choice(WORDS)} if rng.random() < 0.5 else {})},
        "open": rng.choice((1, "a", None, 2.5, True, [1, "a"], {"id": 3, "n": None})),
    }
    return found | ({"opt": rng.choice(INTS)} if rng.random() < 0.5 else {})


class Generator:
    """Writes expressions of a kind. One of `wrong` is replaced by one of another kind."""

    def __init__(self, rng: random.Random, wrong: float = 0.03) -> None:
        self._rng = rng
        self._wrong = wrong
        self._items: list[tuple[str, str]] = []

    def condition(self) -> str:
        return self.of("bool", self._rng.randint(1, 4))

    def of(self, kind: str, depth: int) -> str:
        rng = self._rng
        if rng.random() < self._wrong:
            kind = rng.choice(("bool", "int", "double", "string", "any"))
        if depth <= 0 or rng.random() < 0.15:
            return self._leaf(kind)
        choose = {"bool": self._bool, "int": self._int, "double": self._double, "string": self._string}.get(kind)
        return self._leaf(kind) if choose is None else choose(depth - 1)

    def _leaf(self, kind: str) -> str:
        rng = self._rng
        names = [name for name, of in self._items if of == kind]
        if names and rng.random() < 0.6:
            return rng.choice(names)
        leaves = {
            "bool": (
                "true",
                "false",
                "data.b",
                "data.inner.b",
                "has(data.opt)",
                "has(data.inner.s)",
                "'id' in data.open",
            ),
            "int": (*map(str, INTS), "data.n", "data.m", "data.opt", "data['n']", "0x1F", "data.numbers[0]"),
            "double": (*map(str, DOUBLES), "data.x", "data.y", "data.items[0].price"),
            "string": (
                *map(repr, WORDS),
                "data.s",
                "data.kind",
                "data.note",
                "data.inner.s",
                "data.tags[0]",
                r"'\x41\n'",
            ),
            "any": ("data.open", "null", "data.open.id", "data.items", "data.tags", "[]", "[1, 'a']", "data.missing"),
        }
        return rng.choice(leaves[kind])

    def _bool(self, depth: int) -> str:
        rng = self._rng
        match rng.randint(0, 12):
            case 0 | 1 | 2:
                return f"({self.of('bool', depth)} {rng.choice(('&&', '||'))} {self.of('bool', depth)})"
            case 3:
                return f"!{self._wrapped('bool', depth)}"
            case 4 | 5:
                kind = rng.choice(("int", "double", "string", "bool", "any"))
                sign = (
                    rng.choice(("==", "!="))
                    if kind in ("bool", "any")
                    else rng.choice(("==", "!=", "<", "<=", ">", ">="))
                )
                return f"{self._wrapped(kind, depth)} {sign} {self._wrapped(kind, depth)}"
            case 6:
                return f"data.kind in ['{rng.choice(WORDS)}', {self.of('string', depth)}]"
            case 7:
                return f"{self._wrapped('int', depth)} in {rng.choice(('data.numbers', '[1, 2]', '[]', 'data.open'))}"
            case 8:
                method = rng.choice(("startsWith", "endsWith", "contains"))
                return f"{self._wrapped('string', depth)}.{method}({self.of('string', depth)})"
            case 9:
                return f"{self._wrapped('string', depth)}.matches('{rng.choice(PATTERNS)}')"
            case 10:
                return f"({self.of('bool', depth)} ? {self.of('bool', depth)} : {self.of('bool', depth)})"
            case 11:
                return f"has(data.opt) && data.opt {rng.choice('<>')} {self.of('int', depth)}"
        return self._macro(rng.choice(("all", "exists", "exists_one")), depth)

    def _macro(self, name: str, depth: int) -> str:
        rng = self._rng
        variable = f"i{len(self._items)}"
        source, kinds = rng.choice(
            (
                ("data.tags", [(variable, "string")]),
                ("data.numbers", [(variable, "int")]),
                (
                    "data.items",
                    [(f"{variable}.id", "int"), (f"{variable}.name", "string"), (f"{variable}.price", "double")],
                ),
                ("data.inner", [(variable, "string")]),
                ("data.numbers.filter(z, z > 1)", [(variable, "int")]),
                ("data.items.map(z, z.name)", [(variable, "string")]),
                ("data.open", [(variable, "any")]),
            )
        )
        before = list(self._items)
        self._items += kinds
        inner = self.of("bool", depth)
        self._items = before
        return f"{source}.{name}({variable}, {inner})"

    def _int(self, depth: int) -> str:
        rng = self._rng
        match rng.randint(0, 6):
            case 0 | 1 | 2:
                return f"({self.of('int', depth)} {rng.choice('+-*/%')} {self.of('int', depth)})"
            case 3:
                return f"-{self._wrapped('int', depth)}"
            case 4:
                sized = (
                    "data.tags",
                    "data.items",
                    "data.inner",
                    self.of("string", depth),
                    "data.open",
                    "[1] + data.numbers",
                )
                return f"size({rng.choice(sized)})"
            case 5:
                return f"int({self.of(rng.choice(('double', 'string', 'int')), depth)})"
        return f"({self.of('bool', depth)} ? {self.of('int', depth)} : {self.of('int', depth)})"

    def _double(self, depth: int) -> str:
        rng = self._rng
        match rng.randint(0, 3):
            case 0 | 1:
                return f"({self.of('double', depth)} {rng.choice('+-*/')} {self.of('double', depth)})"
            case 2:
                return f"double({self.of(rng.choice(('int', 'double')), depth)})"
        return f"-{self._wrapped('double', depth)}"

    def _string(self, depth: int) -> str:
        rng = self._rng
        match rng.randint(0, 2):
            case 0 | 1:
                return f"({self.of('string', depth)} + {self.of('string', depth)})"
        return f"string({self.of(rng.choice(('int', 'bool', 'string')), depth)})"

    def _wrapped(self, kind: str, depth: int) -> str:
        text = self.of(kind, depth)
        return text if text.replace(".", "").isalnum() else f"({text})"
