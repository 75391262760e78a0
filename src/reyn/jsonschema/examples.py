"""Make up an example for a JSON Schema: a tool call for the model, or a reply to a question."""

from __future__ import annotations

from typing import Any

from reyn.jsonschema.validation import compile_schema

_MAX_DEPTH = 12


def example_of(schema: dict[str, Any], name: str = "") -> Any:
    """Return a value that is valid, or `None` if none could be made up (a pattern, for instance).

    Args:
        schema: The schema, with its own `$defs`.
        name: The name of the value; texts are called like it.
    """
    value = _example(schema, name, schema.get("$defs", {}), 0)
    return value if compile_schema(schema).first_error(value) is None else None


def _example(schema: Any, name: str, definitions: dict[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return name or "text"
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if "$ref" in schema:
        return _example(definitions.get(schema["$ref"].rpartition("/")[2]), name, definitions, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], name, definitions, depth + 1)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            fields = schema.get("properties", {})
            required = schema.get("required", ())
            return {key: _example(fields.get(key, {}), key, definitions, depth + 1) for key in required}
        case "array":
            first = schema.get("prefixItems")
            if first:
                return [_example(item, name, definitions, depth + 1) for item in first]
            count = max(1, schema.get("minItems", 0))
            return [_example(schema.get("items", {}), name, definitions, depth + 1) for _ in range(count)]
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
    text = name or "text"
    return (text + "." * max(0, schema.get("minLength", 0) - len(text)))[: schema.get("maxLength")]


def _number(schema: dict[str, Any]) -> Any:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    if low is not None:
        value = low + 1 if "exclusiveMinimum" in schema else low
    else:
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        value = 1 if high is None or high > 1 else high - 1 if "exclusiveMaximum" in schema else high
    step = schema.get("multipleOf")
    return value if not step else -(-value // step) * step
