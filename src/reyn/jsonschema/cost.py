"""What a check of a value can cost, from the sizes of schema and value.

The time of a check grows with the schemas that apply to the same value: the alternatives of `anyOf`, for instance. The
fields of an object apply to different values, so an object with many fields costs no more than one with few.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.jsonschema.references import ReferenceTargets, all_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Own = Callable[[dict[str, Any]], int]
    """Returns the schemas that the data of a schema counts as."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_BY_NAME = ("dependentSchemas", "dependencies")
_FIELDS = ("properties", "items", "prefixItems", "additionalProperties", "additionalItems")
"""Keywords whose schemas apply to different parts of a value."""
_OVERLAPPING = ("patternProperties", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
_NESTED_BYTES = 8
_SCALAR_BYTES = 640
_NEGATED_BYTES = 64
"""Bytes of an `enum` or `const` with objects, of one without, and of a negated schema that count as one schema: objects
are compared one by one, and an error has a copy of what it violates."""
_TEXT_BYTES = 200
_DIGIT_BYTES = 2
"""Bytes of a value that count as one more value, and those of one with numbers that take long to compare."""
_LONG_NUMBER = re.compile(rb"[0-9]{500}")
_EXACT, _EXACT_TINY, _TINY = 30, 80, 1e-20
"""Schemas that a `multipleOf` counts as, and one that is tiny: the division is exact, also of numbers far apart."""
_LONG_INTEGER = re.compile(rb"(?<=[\[,:])-?[0-9]{16,}(?=[,\]}])")
"""Integers that `uniqueItems` compares one by one if their floating-point numbers are the same."""
_PAIR_DIGITS = 40
"""Digits of such integers that take about a microsecond to compare with another one."""
_ERROR_BYTES = 1_000
"""Bytes of an invalid value that take as much memory as an error."""


class _Reach(NamedTuple):
    """How many schemas apply to a value itself, and at most to one part of it."""

    here: int
    below: int


class SchemaCost(NamedTuple):
    """How the cost of a check grows with the value.

    Attributes:
        schemas: How many schemas apply to one value or part of it, at most.
        time: The same, where those that take long count several times.
        required: The names in one `required`, at most: each that is missing is an error.
        unique: How many schemas have `uniqueItems`.
    """

    schemas: int
    time: int
    required: int
    unique: int

    def of_check(self, text: bytes) -> int:
        """Return the cost of a check of a value, from its JSON."""
        is_slow = _LONG_NUMBER.search(text) is not None
        return self.time * (_values(text) + len(text) // (_DIGIT_BYTES if is_slow else _TEXT_BYTES))

    def of_pairs(self, text: bytes) -> int:
        """Return the cost of finding equal numbers in lists."""
        found = _LONG_INTEGER.findall(text) if self.unique else ()
        same = Counter(map(float, found))
        digits = Counter[float]()
        for number in found:
            digits[float(number)] += len(number)
        return self.unique * sum(count * digits[number] // _PAIR_DIGITS for number, count in same.items())

    def of_errors(self, text: bytes, depth: int) -> int:
        """Return at most about how many errors a value has, in units of their memory: an error has a copy of what is
        invalid."""
        copies = len(text) // _ERROR_BYTES * (depth + 1)
        return self.schemas * (_values(text) + text.count(b"{") * self.required + copies)


def schema_cost(schema: dict[str, Any], *, is_recursive: bool) -> SchemaCost:
    """Return how the cost of a check grows with the value."""
    required = [names for part in all_schemas(schema) for names in _names(part)]
    longest = max(map(len, required), default=0)
    unique = sum(part.get("uniqueItems") is True for part in all_schemas(schema))
    schemas, time = (_applying(schema, own, is_recursive=is_recursive) for own in (_own, _own_time))
    return SchemaCost(schemas, time, longest, unique)


def _applying(schema: dict[str, Any], own: _Own, *, is_recursive: bool) -> int:
    """Return how many schemas apply to one value or part of it, at most."""
    if not is_recursive:
        try:
            return max(_Reaches(schema, own).of(schema))
        except RecursionError:
            pass  # every part counts, as in a recursive schema
    return sum(1 + own(part) for part in all_schemas(schema))


def _names(part: dict[str, Any]) -> Iterator[list[Any]]:
    dependent = part.get("dependentRequired")
    lists = dependent.values() if isinstance(dependent, dict) else ()
    return (names for names in (part.get("required"), *lists) if isinstance(names, list))


class _Reaches:
    """The reach of each part of a schema that is not recursive."""

    def __init__(self, schema: dict[str, Any], own: _Own) -> None:
        self._own = own
        self._targets = ReferenceTargets(schema)
        self._known: dict[int, _Reach] = {}

    def of(self, schema: Any) -> _Reach:
        if not isinstance(schema, dict):
            return _Reach(1, 0)
        if id(schema) not in self._known:
            self._known[id(schema)] = self._count(schema)
        return self._known[id(schema)]

    def _count(self, schema: dict[str, Any]) -> _Reach:
        here = list(_parts(schema, (*_LISTS, *_SINGLE, *_BY_NAME))) + [part for _, part in self._targets.of(schema)]
        reaches = [self.of(part) for part in here]
        fields = max((max(self.of(part)) for part in _parts(schema, _FIELDS)), default=0)
        below = fields + sum(max(self.of(part)) for part in _parts(schema, _OVERLAPPING))
        own = 1 + self._own(schema)
        return _Reach(own + sum(one.here for one in reaches), below + sum(one.below for one in reaches))


def _parts(schema: dict[str, Any], keywords: tuple[str, ...]) -> Iterator[Any]:
    """Yield the schemas below some keywords."""
    for key in keywords:
        part = schema.get(key)
        if isinstance(part, list):
            yield from part
        elif isinstance(part, dict):
            yield from part.values() if key in ("properties", "patternProperties", *_BY_NAME) else [part]


def _own(schema: dict[str, Any]) -> int:
    """Return the schemas that the data of a schema counts as."""
    dependent = schema.get("dependentRequired")
    total = len(dependent) if isinstance(dependent, dict) else 0
    for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
        if isinstance(values, list):
            is_nested = any(isinstance(value, list | dict) for value in values)
            total += len(encoded(values)) // (_NESTED_BYTES if is_nested else _SCALAR_BYTES)
    return total + (len(encoded(schema["not"])) // _NEGATED_BYTES if "not" in schema else 0)


def _own_time(schema: dict[str, Any]) -> int:
    """Return the schemas that the data of a schema counts as, by the time of a check."""
    multiple = schema.get("multipleOf")
    exact = (_EXACT if multiple >= _TINY else _EXACT_TINY) if isinstance(multiple, int | float) else 0
    return exact + _own(schema)


def _values(text: bytes) -> int:
    """Return at most about how many values a JSON text has."""
    return text.count(b",") + text.count(b"[") + text.count(b"{") + 1


def encoded(value: Any) -> bytes:
    """Return a value as JSON; empty if it is none: the compiler says what is wrong."""
    for encode in (msgspec.json.encode, _encode_any_text):
        try:
            return encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            continue
    return b""


def _encode_any_text(value: Any) -> bytes:
    """Return a value as JSON, also one whose texts are not Unicode, which the library accepts."""
    return json.dumps(value, separators=(",", ":")).encode()
