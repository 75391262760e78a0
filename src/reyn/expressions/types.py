"""What a value can be, as far as JSON Schemas say: a few alternatives, each of one kind.

A type never excludes a value that a schema allows; keywords that are not understood leave more open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

INF = float("inf")
_OPEN = {"anyOf", "oneOf", "allOf", "if", "$ref", "patternProperties", "dependentSchemas"}
_WORDS = {
    "any": "any value",
    "null": "null",
    "bool": "a boolean",
    "int": "an integer",
    "double": "a number",
    "string": "a text",
    "list": "a list",
    "map": "an object",
}
_JSON_KINDS = {
    "null": "null",
    "boolean": "bool",
    "integer": "int",
    "number": "double",
    "string": "string",
    "array": "list",
    "object": "map",
}
_MAX_VALUES = 200
_MAX_DEPTH = 20


class Interval(NamedTuple):
    """The numbers from `low` to `high`; a bound may be excluded."""

    low: float = -INF
    high: float = INF
    low_open: bool = False
    high_open: bool = False

    @property
    def is_empty(self) -> bool:
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def contains(self, value: float) -> bool:
        above = value > self.low or (value == self.low and not self.low_open)
        return above and (value < self.high or (value == self.high and not self.high_open))


class Kind(NamedTuple):
    """One alternative of a type.

    Attributes:
        name: `any`, or a kind of value.
        values: All values of a scalar, if they are few.
        interval: The range of a number.
        items: The type of the items of a list.
        fields: The fields of an object that are known, each with a function that returns its type.
        required: The fields that are always there.
        extra: The type of other fields; `None` if there are none.
    """

    name: str
    values: tuple[Any, ...] | None = None
    interval: Interval = Interval()
    items: Callable[[], Type] | None = None
    fields: Mapping[str, Callable[[], Type]] = {}
    required: frozenset[str] = frozenset()
    extra: Callable[[], Type] | None = None

    def possible(self) -> tuple[Any, ...] | None:
        """Return all values, if they are few."""
        if self.values is not None:
            return self.values
        return {"null": (None,), "bool": (False, True)}.get(self.name)


Type = tuple[Kind, ...]
ANY: Type = (Kind("any"),)
BOOL: Type = (Kind("bool"),)
INT: Type = (Kind("int"),)
SIZE: Type = (Kind("int", interval=Interval(0)),)
DOUBLE: Type = (Kind("double"),)
STRING_TYPE: Type = (Kind("string"),)
TRUE: Type = (Kind("bool", (True,)),)


def list_of(items: Type) -> Type:
    return (Kind("list", items=lambda: items),)


def object_of(fields: Mapping[str, Type], required: Iterable[str] | None = None) -> Type:
    """Return the type of an object. By default, all of its fields are required."""
    known = {name: _constant(found) for name, found in fields.items()}
    needed = frozenset(fields if required is None else required)
    return (Kind("map", fields=known, required=needed),)


def _constant(found: Type) -> Callable[[], Type]:
    return lambda: found


def constant(value: Any) -> Type:
    """Return the type of one value."""
    if isinstance(value, list):
        return list_of(union(constant(one) for one in value[:_MAX_VALUES]) if len(value) <= _MAX_VALUES else ANY)
    if isinstance(value, dict):
        return object_of({name: constant(one) for name, one in value.items()})
    return (Kind(kind_name(value), (value,)),)


def kind_name(value: Any) -> str:
    """Return the kind of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    for kind, name in ((int, "int"), (float, "double"), (str, "string"), (list, "list")):
        if isinstance(value, kind):
            return name
    return "map"


def union(types: Iterable[Type]) -> Type:
    """Return the type of values of any of several types. A number beside an integer is a number."""
    found = [kind for one in types for kind in one]
    if any(kind.name == "any" for kind in found):
        return ANY
    kind_names = merge(found)
    is_number = any(kind.name == "double" for kind in kind_names)
    return tuple(kind._replace(name="double") if is_number and kind.name == "int" else kind for kind in kind_names)


def merge(kinds: Iterable[Kind]) -> Type:
    """Merge alternatives of the same scalar kind: their values, or everything if one is not limited to values."""
    found: dict[str, list[Kind]] = {}
    others: list[Kind] = []
    for kind in kinds:
        (others if kind.name in ("list", "map") else found.setdefault(kind.name, [])).append(kind)
    return (*(_merged(name, same) for name, same in found.items()), *others)


def _merged(name: str, same: list[Kind]) -> Kind:
    if len(same) == 1:
        return same[0]
    values = [kind.values for kind in same if kind.values is not None]
    every = tuple(dict.fromkeys(value for one in values for value in one))
    return Kind(name, every) if len(values) == len(same) else Kind(name)


def words_for(found: Type) -> str:
    """Say what a value of a type is."""
    words = list(dict.fromkeys(_WORDS[kind.name] for kind in found))
    return " or ".join(words) if words else "no value"


def kind_names(found: Type) -> frozenset[str]:
    return frozenset(kind.name for kind in found)


def possible_values(found: Type) -> tuple[Any, ...]:
    """Return all values of a type, if they are few; empty if they are not known."""
    possible = [kind.possible() for kind in found]
    return tuple(value for one in possible for value in one or ()) if None not in possible else ()


def is_double(found: Type) -> bool:
    """Return whether every number of a type is a double, also one that JSON writes as an integer."""
    names = kind_names(found)
    return "double" in names and names <= {"double", "null"}


def of_schema(schema: Any, root: Any = None, depth: int = 0) -> Type:
    """Return the type of the values that a JSON Schema allows."""
    root = schema if root is None else root
    if schema is False:
        return ()
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return ANY
    if isinstance(schema.get("$ref"), str):
        target = _resolve(schema["$ref"], root)
        return ANY if target is None else of_schema(target, root, depth + 1)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    names = _kind_names(schema)
    if isinstance(values, list) and len(values) <= _MAX_VALUES:
        return _of_values(values, names)
    if names is not None:
        return union([(_kind(name, schema, root),) for name in names])
    for combinator in ("anyOf", "oneOf"):
        if isinstance(schema.get(combinator), list):
            return union([of_schema(one, root, depth + 1) for one in schema[combinator]])
    parts = schema.get("allOf")
    if isinstance(parts, list) and len(parts) == 1:
        return of_schema(parts[0], root, depth + 1)
    return ANY


def _kind_names(schema: dict[str, Any]) -> list[str] | None:
    """Return the kinds that a schema names, or that its keywords imply; `None` if it names none."""
    named = schema.get("type")
    names = [named] if isinstance(named, str) else named
    if isinstance(names, list):
        return [_JSON_KINDS[name] for name in names if isinstance(name, str) and name in _JSON_KINDS]
    return ["map"] if "properties" in schema else ["list"] if isinstance(schema.get("items"), dict) else None


def _of_values(values: list[Any], names: list[str] | None) -> Type:
    is_number = names is not None and "double" in names
    converted = [float(one) if is_number and kind_name(one) == "int" else one for one in values]
    return union(constant(one) for one in converted if names is None or kind_name(one) in names)


def _kind(name: str, schema: dict[str, Any], root: Any) -> Kind:
    if name in ("int", "double"):
        return Kind(name, interval=_interval(schema))
    if name == "list":
        items = True if "prefixItems" in schema else schema.get("items", True)
        return Kind("list", items=_Lazy(True if isinstance(items, list) else items, root))
    if name != "map":
        return Kind(name)
    properties = schema.get("properties")
    fields = {key: _Lazy(one, root) for key, one in properties.items()} if isinstance(properties, dict) else {}
    required = schema.get("required")
    extra = schema.get("additionalProperties", None if fields and not _OPEN & schema.keys() else True)
    return Kind(
        "map",
        fields=fields,
        required=frozenset(required if isinstance(required, list) else ()),
        extra=None if extra is None or extra is False else _Lazy(extra, root),
    )


def _interval(schema: dict[str, Any]) -> Interval:
    def bound(key: str, default: float) -> float:
        value = schema.get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else default

    low, high = bound("minimum", -INF), bound("maximum", INF)
    above, below = bound("exclusiveMinimum", -INF), bound("exclusiveMaximum", INF)
    return Interval(max(low, above), min(high, below), -INF < above >= low, INF > below <= high)


def _resolve(reference: str, root: Any) -> Any:
    """Return the schema that a JSON pointer in the same document names; `None` for other references."""
    if not reference.startswith("#/"):
        return root if reference == "#" else None
    found = root
    for word in reference[2:].split("/"):
        key = word.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


class _Lazy:
    """The type of a part of a schema, which may refer to itself."""

    def __init__(self, schema: Any, root: Any) -> None:
        self._schema = schema
        self._root = root
        self._found: Type | None = None

    def __call__(self) -> Type:
        if self._found is None:
            self._found = of_schema(self._schema, self._root)
        return self._found
