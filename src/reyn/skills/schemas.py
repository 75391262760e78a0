"""A JSON Schema becomes a validator that never opens a file or a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import jsonschema_rs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.skills.values import Schema


class SchemaInvalid(ValueError):
    """Not a schema, or one that refers to something outside itself."""


class SchemaError(Protocol):
    """One way in which a value fails a schema."""

    message: str
    instance_path: list[str | int]


class Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...
    def iter_errors(self, instance: Any) -> Iterator[SchemaError]: ...


def compile_schema(schema: Schema) -> Validator:
    """Draft 7 or 2020-12, as `$schema` says; 2020-12 where it says nothing."""
    try:
        validator: Validator = jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaInvalid(str(getattr(error, "message", error)).splitlines()[0]) from error
    return validator


def _refuse(uri: str) -> Any:
    raise ValueError(f"`{uri}` is outside the schema; references must stay inside it")


def path_of(error: SchemaError, root: str = "$") -> str:
    """Where in a value the error is: `$.items[2].name`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    return root + "".join(steps)
