"""Validate values against JSON Schemas, without access to files or the network.

Journals record validation messages, and a replay must produce the same ones. So the messages are Reyn's own, and errors
are sorted by path and keyword: neither depends on the version of the validation library.
"""

from __future__ import annotations

from functools import reduce
from itertools import accumulate, islice
from operator import getitem
from typing import Any, ClassVar, NamedTuple

import jsonschema_rs
import msgspec

from reyn.errors import codes
from reyn.jsonschema.cost import encoded, schema_cost
from reyn.jsonschema.patterns import (
    SPLIT,
    VerbosePattern,
    pattern_units,
    split_lookaheads,
    unsupported,
)
from reyn.jsonschema.references import Expansion, Schema, all_schemas, expand
from reyn.texts import truncated

_MAX_ERRORS = 200
MAX_EXPANDED = 10_000
"""Schemas that references may expand to. The time and memory of validation grow with it."""
MAX_UNITS = 20_000
"""Units of the patterns of a schema, what references expand to included. The time to compile them grows with it."""
MAX_PATTERN_WORK = 150_000_000
"""Units of the patterns times bytes of the value; 100 million take at most about three seconds."""
MAX_WORK = 3_000_000
"""Schemas that apply to the same value times values; each takes at most about a microsecond."""
_FREE_SCHEMAS = 20
"""So many schemas for each value are checked without measuring the value."""
MAX_EXPLAINED = 30_000
"""Errors that may be collected to explain some: the library keeps all of them, about 2 kB each."""
_BYTES_PER_UNIT = 4_000
"""The engine refuses patterns whose compiled form is larger, in case it counts what `units` does not."""
_MAX_PATHS = 20_000
"""Paths through a recursive schema for which errors are explained: the library follows each of them."""
_LARGE_BYTES, _LARGE_SHARE = 2_000_000, 0.5
"""What reading a large value takes, at most, in the same measure."""
_ERROR_SHARE = 0.1
"""What finding as many errors as may be explained takes, as a part of the longest check."""
_MAX_VALUE_LENGTH = 200
_TYPES = "string, number, integer, boolean, array, object and null"


DRAFT_7 = "http://json-schema.org/draft-07/schema"
_DRAFTS = (DRAFT_7, "https://json-schema.org/draft/2020-12/schema")


class SchemaInvalid(ValueError):
    """The schema is invalid or refers to another document; `place` is the path of the error in the schema."""

    code: ClassVar[str] = codes.BAD_SCHEMA

    def __init__(self, message: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.place = place


class ReferencesExpand(SchemaInvalid):
    """The references of the schema expand to too many schemas."""

    code = codes.TOO_MANY_REFERENCES


class PatternUnsupported(SchemaInvalid):
    """A pattern needs backtracking, or the patterns are too large."""

    code = codes.PATTERN_UNSUPPORTED


class SchemaError(NamedTuple):
    """A validation error: the path in the value, and a message."""

    place: tuple[str | int, ...]
    message: str

    def path(self, root: str = "$") -> str:
        """Return the path as text: `$.items[2].name`."""
        return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.place)


class Validator:
    """A compiled schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        draft = schema.get("$schema") if isinstance(schema, dict) else None
        if draft is not None and (not isinstance(draft, str) or draft.rstrip("#") not in _DRAFTS):
            raise SchemaInvalid(f"`$schema` {draft!r} is neither draft 7 nor 2020-12", ("$schema",))
        text = encoded(schema)
        self._units = _check_patterns(schema) if b'"pattern' in text else 0
        references = _check_references(schema) if b'Ref"' in text or b'$ref"' in text else None
        is_recursive = references is not None and references.is_recursive
        self._branches = text.count(b'ef":') if is_recursive else 0
        self._cost = schema_cost(schema if isinstance(schema, dict) else {}, is_recursive=is_recursive)
        self._is_measured = self._units > 0 or self._cost.time > _FREE_SCHEMAS or self._cost.unique > 0
        try:
            self._compiled = _compile(schema, self._units)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            if b"(?" not in text:
                raise _explain_invalid(schema, error) from error
            self._schema = schema = split_lookaheads(schema)
            try:
                self._compiled = _compile(schema, self._units)
            except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as again:
                raise _explain_invalid(schema, again) from again

    def is_valid(self, instance: Any) -> bool:
        """Return whether a value is valid. A value that is too large for the schema is not."""
        return not (self._is_measured and self._excess(instance)) and self._compiled.is_valid(instance)

    def _excess(self, instance: Any) -> str:
        """Say why a value is too large to be checked; empty if it is not."""
        text = encoded(instance)
        if self._units * len(text) > MAX_PATTERN_WORK:
            return "is too large to be checked against the patterns of its schema"
        if self._cost.time > _FREE_SCHEMAS and self._cost.of_check(text) > MAX_WORK:
            return "is too large to be checked against the alternatives of its schema"
        if self._cost.of_pairs(text) > MAX_WORK:
            return "has too many large integers that are nearly the same to be checked for `uniqueItems`"
        return ""

    def share(self, instance: Any, errors: int = 0) -> float:
        """Return what a check of a value takes, as a part of what one check may take at most.

        `errors` is how many were found: to find them takes longer than to decide.
        """
        text = encoded(instance)
        parts = [self._units * len(text) / MAX_PATTERN_WORK, self._cost.of_check(text) / MAX_WORK]
        parts.append(min(len(text) / _LARGE_BYTES, _LARGE_SHARE))
        found = self._cost.of_errors(text, _depth(instance)) / MAX_EXPLAINED * _ERROR_SHARE if errors else 0.0
        return max(*parts, self._cost.of_pairs(text) / MAX_WORK) + found

    def first_error(self, instance: Any) -> SchemaError | None:
        """Return the first error by path and keyword, or `None`."""
        if not (self._is_measured and self._excess(instance)) and self._compiled.is_valid(instance):
            return None
        return next(iter(self.errors(instance, 1)), None)

    def errors(self, instance: Any, limit: int) -> list[SchemaError]:
        """Return up to `limit` errors, sorted by path and keyword."""
        if self._is_measured and (excess := self._excess(instance)):
            return [SchemaError((), excess)]
        if reason := self._unexplained(instance):
            return [] if self._compiled.is_valid(instance) else [SchemaError((), reason)]
        errors = [
            (
                tuple(map(str, error.instance_path)),
                str(error.schema_path[-1]) if error.schema_path else "",
                number,
                error,
            )
            for number, error in enumerate(islice(self._compiled.iter_errors(instance), _MAX_ERRORS))
        ]
        return [
            SchemaError(tuple(error.instance_path), self._explain(keyword, error, instance))
            for _, keyword, _, error in sorted(errors)[:limit]
        ]

    def _unexplained(self, instance: Any) -> str:
        """Say why the errors of a value cannot be found one by one; empty if they can. The library decides quickly
        whether a value is valid, but keeps an error for every path, alternative and value."""
        depth = _depth(instance)
        if self._branches > 1 and self._branches**depth > _MAX_PATHS:
            return "does not fit its recursive schema; it is too deep to find the place"
        if self._cost.of_errors(encoded(instance), depth) > MAX_EXPLAINED:
            return "does not fit its schema; it is too large to find the place"
        return ""

    def _explain(self, keyword: str, error: Any, instance: Any) -> str:
        value = _at(self._schema, error.schema_path)
        parent = _at(self._schema, error.schema_path[:-1])
        if isinstance(parent, dict) and str(parent.get("$comment")).startswith(SPLIT):
            return f"violates `pattern` {_short(parent['$comment'].removeprefix(SPLIT))}"
        match keyword:
            case "":
                return "is not allowed here"
            case "required" if isinstance(value, list):
                missing = [name for name in value if name not in error.instance]
                return f"{_list_names(missing)} missing"
            case "type":
                expected = [value] if isinstance(value, str) else value or []
                return f"is {_type_of(error.instance)}, not {' or '.join(expected)}"
            case "additionalProperties" | "unevaluatedProperties" if isinstance(parent, dict):
                whole = reduce(getitem, error.instance_path, instance)  # `error.instance` may be the value of the name
                extra = [name for name in whole if name not in parent.get("properties", {})]
                return f"{_list_names(extra)} not allowed here"
            case "enum" | "const":
                return f"is {_short(error.instance)}, not {'one of ' if keyword == 'enum' else ''}{_short(value)}"
            case "minimum" | "maximum":
                return f"is {_short(error.instance)}, {'less' if keyword == 'minimum' else 'more'} than {_short(value)}"
            case "anyOf" | "oneOf":
                return f"does not fit the alternatives of `{keyword}`"
        return f"violates `{keyword}` {_short(value)}" if value is not None else f"violates `{keyword}`"


def compile_schema(schema: Schema) -> Validator:
    """Compile a schema of draft 7 or 2020-12; without `$schema`, 2020-12. Recent results are cached.

    Raises:
        SchemaInvalid: the schema is invalid, of another draft, or refers to another document.
    """
    try:
        text = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):  # not JSON; the compiler says what is wrong
        return Validator(schema)
    validator = _compiled.get(text)
    if validator is None:
        validator = Validator(schema)
        if len(text) <= _MAX_CACHED_BYTES:
            while len(_compiled) >= _MAX_CACHED:
                _compiled.pop(next(iter(_compiled)), None)
            _compiled[text] = validator
    return validator


_compiled: dict[bytes, Validator] = {}
_MAX_CACHED = 256
_MAX_CACHED_BYTES = 20_000


def _compile(schema: Schema, units_of_patterns: int) -> Any:
    linear = jsonschema_rs.RegexOptions(size_limit=_BYTES_PER_UNIT * (1 + units_of_patterns))
    return jsonschema_rs.validator_for(schema, retriever=_refuse, pattern_options=linear)


def _check_references(schema: Schema) -> Expansion | None:
    """Raise `ReferencesExpand` if following the references would never end in practice."""
    if not isinstance(schema, dict):
        return None
    found = expand(schema, MAX_EXPANDED)
    if found.place is not None:
        message = f"its references expand to more than {MAX_EXPANDED} schemas; refer to each definition less often"
        raise ReferencesExpand(message, found.place)
    return found


def _check_patterns(schema: Schema) -> int:
    """Return the units of the patterns; raise `PatternUnsupported` if there are too many."""
    if not isinstance(schema, dict):
        return 0
    try:
        totals = accumulate(map(pattern_units, all_schemas(schema)))
        is_large = any(total > MAX_UNITS for total in totals)
        found = None if is_large else expand(schema, MAX_UNITS, pattern_units)
    except VerbosePattern as error:
        message = f"the pattern {_short(error.args[0])} has the flag `x`; write it without blanks and comments"
        raise PatternUnsupported(message) from None
    if found is not None and found.place is None:
        return found.weight
    message = f"its patterns are too large or too many ({MAX_UNITS} characters with repeated ones)"
    raise PatternUnsupported(
        f"{message}; give smaller counts of `{{…}}`, or fewer patterns", (found and found.place) or ()
    )


def _depth(value: Any) -> int:
    """Return how deep lists and objects of a value are nested."""
    depth, level = 0, [value]
    while level := [
        inner
        for one in level
        if isinstance(one, list | dict)
        for inner in (one.values() if isinstance(one, dict) else one)
    ]:
        depth += 1
    return depth


def _explain_invalid(schema: Schema, error: Exception) -> SchemaInvalid:
    """Name the keyword whose value is invalid, or the reference that leads nowhere."""
    message = str(getattr(error, "message", error)).partition("\n")[0]
    if not isinstance(error, jsonschema_rs.ValidationError) or error.kind.name == "$ref":
        return SchemaInvalid(f"{message}. Use references inside the schema, such as `#/$defs/NAME`")
    place = tuple(error.instance_path)
    keyword = place[-1] if place and (len(place) < 2 or place[-2] != "properties") else None
    if error.kind.name == "format" and (construct := unsupported(str(error.instance))):
        return PatternUnsupported(
            f"the pattern {_short(error.instance)} has {construct}, which needs backtracking", place
        )
    if keyword == "type":
        return SchemaInvalid(f"`type` is {_short(_at(schema, list(place)))}; the types are {_TYPES}", place)
    return SchemaInvalid(f"`{keyword}`: {message}" if isinstance(keyword, str) else message, place)


def _refuse(uri: str) -> Any:
    raise ValueError(f"`{uri}` is outside the schema; references must stay inside it")


def _at(schema: Any, path: list[str | int]) -> Any:
    """Return the part of a schema at a path, following references; `None` if there is none."""
    part = schema
    for step in path:
        if step == "$ref" and isinstance(part, dict) and isinstance(part.get("$ref"), str):
            pointer = part["$ref"].removeprefix("#").strip("/")
            part = _at(schema, [_unescape(word) for word in pointer.split("/")] if pointer else [])
            continue
        try:
            part = part[step]
        except (KeyError, IndexError, TypeError):
            return None
    return part


def _unescape(word: str) -> str:
    return word.replace("~1", "/").replace("~0", "~")


def _list_names(names: list[str]) -> str:
    listed = ", ".join(repr(_beginning(name)) for name in names[:5]) + (" and others" if len(names) > 5 else "")
    return f"{listed} {'is' if len(names) == 1 else 'are'}"


def _type_of(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return "number"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _short(value: Any) -> str:
    return _beginning(msgspec.json.encode(value).decode())


def _beginning(text: str) -> str:
    return truncated(text, _MAX_VALUE_LENGTH)
