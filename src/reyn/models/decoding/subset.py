"""Reduce a decoding schema to the keywords that a provider's structured output supports.

Keywords that the provider rejects are removed. The result may accept more than the contract, or fewer properties; the
OS validates every answer against the contract itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_ANNOTATIONS = ("title", "description")


class Subset(NamedTuple):
    """What a provider supports.

    Attributes:
        has_const: Whether `const` is supported, and `enum` for values other than texts and numbers.
        closes_objects: Whether objects must be closed.
        bounds: The supported keywords of each type.
        min_items: The largest supported `minItems`.
        formats: The supported formats of texts.
    """

    has_const: bool
    closes_objects: bool
    bounds: dict[str, tuple[str, ...]]
    formats: frozenset[str]
    min_items: int | None = None


ANTHROPIC = Subset(
    has_const=True,
    closes_objects=True,
    bounds={},
    formats=frozenset(("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")),
    min_items=1,
)
GEMINI = Subset(
    has_const=False,
    closes_objects=False,
    bounds={"array": ("maxItems",), "integer": ("minimum", "maximum"), "number": ("minimum", "maximum")},
    formats=frozenset(("date-time", "date", "time")),
)


class Inexpressible(ValueError):
    """The schema accepts values that the provider cannot be asked for: any JSON value, or an object with any names."""


def to_subset(schema: Any, subset: Subset) -> dict[str, Any]:
    """Return a schema that has only supported keywords.

    Raises:
        Inexpressible: A part of the schema would have to be removed altogether.
    """
    if not isinstance(schema, dict) or not schema:
        raise Inexpressible("any value is accepted")
    result: dict[str, Any] = {key: schema[key] for key in _ANNOTATIONS if key in schema}
    if "$defs" in schema:
        result["$defs"] = {name: to_subset(one, subset) for name, one in schema["$defs"].items()}
    if "$ref" in schema:
        return result | {"$ref": schema["$ref"]}
    for key in ("const", "enum"):
        if key in schema:
            return result | _literals([schema[key]] if key == "const" else schema[key], subset)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return result | {"anyOf": [to_subset(branch, subset) for branch in branches]}
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = {key: value for key, value in schema.items() if key not in ("type", "$defs", *_ANNOTATIONS)}
        return result | {"anyOf": [to_subset({**rest, "type": one}, subset) for one in kind]}
    return result | _typed(kind, schema, subset)


def _literals(values: list[Any], subset: Subset) -> dict[str, Any]:
    if subset.has_const:
        return {"const": values[0]} if len(values) == 1 else {"enum": values}
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    branches: list[dict[str, Any]] = [{"type": "string", "enum": texts}] if texts else []
    branches += [{"type": "number", "enum": numbers}] if numbers else []
    branches += [{"type": "boolean"}] if any(isinstance(value, bool) for value in values) else []
    branches += [{"type": "null"}] if None in values else []
    if not branches:
        raise Inexpressible("only lists or objects are accepted")
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _typed(kind: Any, schema: dict[str, Any], subset: Subset) -> dict[str, Any]:
    bounds = {key: schema[key] for key in subset.bounds.get(str(kind), ()) if key in schema}
    match kind:
        case "object":
            return _object(schema, subset)
        case "array":
            least = schema.get("minItems", 0)
            least = least if subset.min_items is None else min(least, subset.min_items)
            items = {"items": to_subset(schema.get("items"), subset)}
            return {"type": "array"} | items | bounds | ({"minItems": least} if least else {})
        case "string":
            return {"type": "string"} | ({"format": schema["format"]} if schema.get("format") in subset.formats else {})
        case "integer" | "number" | "boolean" | "null":
            return {"type": kind} | bounds
    raise Inexpressible("any value is accepted")


def _object(schema: dict[str, Any], subset: Subset) -> dict[str, Any]:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    if subset.closes_objects and not properties and more is not False:
        raise Inexpressible("an object with any names is accepted")
    result = {
        "type": "object",
        "properties": {name: to_subset(one, subset) for name, one in properties.items()},
        "required": [name for name in schema.get("required", ()) if name in properties],
    }
    if subset.closes_objects or more is False:
        return result | {"additionalProperties": False}
    return result | ({"additionalProperties": to_subset(more, subset)} if isinstance(more, dict) and more else {})
