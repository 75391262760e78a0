"""Find out whether values of one schema can fit another, without a value. Reports only what is certain.

As in expressions, a schema without `additionalProperties` has only the properties that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from reyn.jsonschema.references import Schema

_INDIRECT = {"$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "if", "not"}
"""Keywords at which the comparison ends."""
_MAX_DEPTH = 16


class Misfit(NamedTuple):
    """A part that does not fit: its path, and why."""

    path: str
    message: str


def misfit(produced: Schema, accepted: Schema, path: str = "data", depth: int = 0) -> Misfit | None:
    """Return the first part of the values of one schema that another schema does not accept; `None` if none is known.

    Args:
        produced: The schema of the values.
        accepted: The schema that they should fit.
        path: The path of the values, for messages.
        depth: The nesting so far.
    """
    if isinstance(produced, bool) or isinstance(accepted, bool) or depth > _MAX_DEPTH:
        return None
    if _INDIRECT & produced.keys() or _INDIRECT & accepted.keys():
        return None
    mine, theirs = _types(produced), _types(accepted)
    if mine and theirs and not mine & theirs:
        return Misfit(path, f"is of type {' or '.join(sorted(mine))}, not {' or '.join(sorted(theirs))}")
    if "object" in mine:
        return _object_misfit(produced, accepted, path, depth)
    if "array" in mine:
        items = (produced.get("items", True), accepted.get("items", True))
        return misfit(*items, f"{path}[]", depth + 1) if all(isinstance(one, dict | bool) for one in items) else None
    return None


def _object_misfit(produced: dict[str, Any], accepted: dict[str, Any], path: str, depth: int) -> Misfit | None:
    mine, theirs = produced.get("properties", {}), accepted.get("properties", {})
    required = produced.get("required", ())
    for name in accepted.get("required", ()):
        if name in mine and name not in required:
            return Misfit(path, f"may lack `{name}`, which is required")
        if name not in mine and _is_closed(produced):
            return Misfit(path, f"has no `{name}`, which is required")
    for name, schema in mine.items():
        if name in theirs:
            found = misfit(schema, theirs[name], f"{path}.{name}", depth + 1)
            if found is not None:
                return found
        elif accepted.get("additionalProperties") is False and "patternProperties" not in accepted:
            return Misfit(path, f"has `{name}`, which is not allowed")
    return None


def _is_closed(schema: dict[str, Any]) -> bool:
    open_ended = {"patternProperties", "dependentSchemas"} & schema.keys() or not schema.get("properties")
    return schema.get("additionalProperties", None if open_ended else False) is False


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """Return the types of a schema's values; empty if any is possible."""
    found = schema.get("type", ())
    types = frozenset([found] if isinstance(found, str) else found)
    return types | {"integer"} if "number" in types else types
