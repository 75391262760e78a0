"""A JSON Schema becomes a validator that never opens a file or a socket, and that says in our own words what is wrong.

What a validator says goes into the journal and is derived again by a replay, so neither the words nor the choice of the
error that is told may depend on the library's version: of all errors the first by place and keyword is told.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

Schema = dict[str, Any] | bool

_MOST_ERRORS = 200
_LONGEST_VALUE = 200


DRAFT_7 = "http://json-schema.org/draft-07/schema"
_DRAFTS = (DRAFT_7, "https://json-schema.org/draft/2020-12/schema")


class SchemaInvalid(ValueError):
    """Not a schema, or one that refers to something outside itself; `place` is where in the schema it is wrong."""

    def __init__(self, message: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.place = place


class SchemaError(NamedTuple):
    """One way in which a value fails a schema."""

    place: tuple[str | int, ...]
    message: str

    def path(self, root: str = "$") -> str:
        """Where in the value it is: `$.items[2].name`."""
        return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.place)


class Validator:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        draft = schema.get("$schema") if isinstance(schema, dict) else None
        if draft is not None and (not isinstance(draft, str) or draft.rstrip("#") not in _DRAFTS):
            raise SchemaInvalid(f"`$schema` {draft!r} is neither draft 7 nor 2020-12", ("$schema",))
        try:
            self._compiled = jsonschema_rs.validator_for(schema, retriever=_refuse)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            place = tuple(getattr(error, "instance_path", ()))
            raise SchemaInvalid(str(getattr(error, "message", error)).splitlines()[0], place) from error

    def is_valid(self, instance: Any) -> bool:
        return self._compiled.is_valid(instance)

    def first_error(self, instance: Any) -> SchemaError | None:
        return next(iter(self.errors(instance, 1)), None)

    def errors(self, instance: Any, limit: int) -> list[SchemaError]:
        """What is wrong with a value, sorted by place, in our own words."""
        errors = [
            (
                tuple(map(str, error.instance_path)),
                str(error.schema_path[-1]) if error.schema_path else "",
                number,
                error,
            )
            for number, error in enumerate(islice(self._compiled.iter_errors(instance), _MOST_ERRORS))
        ]
        return [
            SchemaError(tuple(error.instance_path), self._explain(keyword, error))
            for _, keyword, _, error in sorted(errors)[:limit]
        ]

    def _explain(self, keyword: str, error: Any) -> str:
        value = _at(self._schema, error.schema_path)
        around = _at(self._schema, error.schema_path[:-1])
        match keyword:
            case "":
                return "is not allowed here"
            case "required" if isinstance(value, list):
                missing = [name for name in value if name not in error.instance]
                return f"{_named(missing)} missing"
            case "type":
                wanted = [value] if isinstance(value, str) else value or []
                return f"is {_type_of(error.instance)}, not {' or '.join(wanted)}"
            case "additionalProperties" | "unevaluatedProperties" if isinstance(around, dict):
                extra = [name for name in error.instance if name not in around.get("properties", {})]
                return f"{_named(extra)} not allowed here"
            case "enum" | "const":
                return f"is {_short(error.instance)}, not {'one of ' if keyword == 'enum' else ''}{_short(value)}"
            case "minimum" | "maximum":
                return f"is {_short(error.instance)}, {'less' if keyword == 'minimum' else 'more'} than {_short(value)}"
            case "anyOf" | "oneOf":
                return f"does not fit the alternatives of `{keyword}`"
        return f"violates `{keyword}` {_short(value)}" if value is not None else f"violates `{keyword}`"


def compile_schema(schema: Schema) -> Validator:
    """Draft 7 or 2020-12, as `$schema` says; 2020-12 where it says nothing."""
    return Validator(schema)


def _refuse(uri: str) -> Any:
    raise ValueError(f"`{uri}` is outside the schema; references must stay inside it")


def _at(schema: Any, path: list[str | int]) -> Any:
    """The part of a schema that a path leads to, through references if it passes some; `None` if it leads nowhere."""
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


def _named(names: list[str]) -> str:
    told = ", ".join(repr(name) for name in names[:5]) + (" and others" if len(names) > 5 else "")
    return f"{told} {'is' if len(names) == 1 else 'are'}"


def _type_of(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return "number"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
