"""Relax a schema for the default mode: nested objects may omit required fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.jsonschema.validation import Schema


def lenient(schema: Schema) -> Schema:
    """Return the schema with `required` kept at the top level only.

    It is dropped along `properties`, `items`, `prefixItems` and `additionalProperties`, never inside a combinator,
    where a missing `required` would change which branch matches.
    """
    return _along(schema, _relaxed)


def _relaxed(schema: Schema) -> Schema:
    if isinstance(schema, bool):
        return schema
    return _along({key: value for key, value in schema.items() if key != "required"}, _relaxed)


def _along(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    if isinstance(schema, bool):
        return schema
    changed = dict(schema)
    if isinstance(schema.get("properties"), dict):
        changed["properties"] = {name: change(child) for name, child in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            changed[key] = change(schema[key])
    for key in ("items", "prefixItems"):
        if isinstance(schema.get(key), list):
            changed[key] = [change(child) for child in schema[key]]
    return changed
