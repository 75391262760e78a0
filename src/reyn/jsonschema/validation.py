"""Validate values against JSON Schemas, without access to files or the network.

Journals record validation messages, and a replay must produce the same ones. So the messages are Reyn's own, and errors
are sorted by path and keyword: neither depends on the version of the validation library.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar, NamedTuple

import jsonschema_rs
import msgspec

from reyn.errors import codes
from reyn.jsonschema.references import Schema, oversized_part

_MAX_ERRORS = 200
MAX_EXPANDED = 10_000
"""Schemas that references may expand to. The time and memory of validation grow with it."""
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
        _check_references(schema)
        try:
            self._compiled = jsonschema_rs.validator_for(schema, retriever=_refuse)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise _explain_invalid(schema, error) from error

    def is_valid(self, instance: Any) -> bool:
        """Return whether a value is valid."""
        return self._compiled.is_valid(instance)

    def first_error(self, instance: Any) -> SchemaError | None:
        """Return the first error by path and keyword, or `None`."""
        if self._compiled.is_valid(instance):
            return None
        return next(iter(self.errors(instance, 1)), None)

    def errors(self, instance: Any, limit: int) -> list[SchemaError]:
        """Return up to `limit` errors, sorted by path and keyword."""
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
            SchemaError(tuple(error.instance_path), self._explain(keyword, error))
            for _, keyword, _, error in sorted(errors)[:limit]
        ]

    def _explain(self, keyword: str, error: Any) -> str:
        value = _at(self._schema, error.schema_path)
        parent = _at(self._schema, error.schema_path[:-1])
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
                extra = [name for name in error.instance if name not in parent.get("properties", {})]
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


def _check_references(schema: Schema) -> None:
    """Raise `ReferencesExpand` if following the references would never end in practice."""
    if not isinstance(schema, dict) or not _mentions_reference(schema):
        return
    place = oversized_part(schema, MAX_EXPANDED)
    if place is not None:
        message = f"its references expand to more than {MAX_EXPANDED} schemas; refer to each definition less often"
        raise ReferencesExpand(message, place)


def _mentions_reference(schema: dict[str, Any]) -> bool:
    try:
        text = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):  # not JSON; the compiler says what is wrong
        return False
    return b'Ref"' in text or b'$ref"' in text


def _explain_invalid(schema: Schema, error: Exception) -> SchemaInvalid:
    """Name the keyword whose value is invalid, or the reference that leads nowhere."""
    message = str(getattr(error, "message", error)).partition("\n")[0]
    if not isinstance(error, jsonschema_rs.ValidationError) or error.kind.name == "$ref":
        return SchemaInvalid(f"{message}. Use references inside the schema, such as `#/$defs/NAME`")
    place = tuple(error.instance_path)
    keyword = place[-1] if place and (len(place) < 2 or place[-2] != "properties") else None
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
    listed = ", ".join(repr(name) for name in names[:5]) + (" and others" if len(names) > 5 else "")
    return f"{listed} {'is' if len(names) == 1 else 'are'}"


def _type_of(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return "number"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 1] + "…"
