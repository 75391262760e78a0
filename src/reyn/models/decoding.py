"""The contract of an answer becomes a schema that a decoder can be held to.

Narrower than the contract or the same, never wider where it can be helped: every text gets an end (a small model would
talk until its limit), every list too, a number between two bounds becomes one of a few steps (grammars know no bounds),
and what no grammar understands is dropped. Nothing depends on it: the OS checks the answer against the contract itself.
"""

from __future__ import annotations

from typing import Any

TEXT_LENGTH = 160
LIST_LENGTH = 6
OPS_LENGTH = 2
STEPS = 10
NO_PLACEHOLDER = "^([^<]|$)"
"""No text begins like a placeholder of the contract's example, which small models copy."""

_KEPT = (
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
    "minLength", "maxLength", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions",
    "minimum", "maximum", "pattern",
)  # fmt: skip
"""What the converters of grammars understand, as far as we rely on it."""


def decoding_schema(contract: dict[str, Any], *, text_length: int = TEXT_LENGTH) -> dict[str, Any]:
    """The contract for a decoder that takes `anyOf` at the root."""
    homes: dict[str, Any] = {}
    schema: dict[str, Any] = _narrowed(_rehomed(contract, "#", homes), text_length)
    if homes:
        schema["$defs"] = {name: _narrowed(home, text_length) for name, home in homes.items()}
    return schema


def single_object(schema: dict[str, Any]) -> dict[str, Any]:
    """The same for providers that refuse alternatives at the root: one object whose fields have the alternatives. What
    is lost is which field goes with which; the OS checks that."""
    branches = schema.get("anyOf")
    if branches is None:
        return schema
    names = list(dict.fromkeys(name for branch in branches for name in branch["properties"]))
    properties = {name: _either([b["properties"][name] for b in branches if name in b["properties"]]) for name in names}
    required = [name for name in names if all(name in branch["required"] for branch in branches)]
    merged = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return merged | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _either(schemas: list[Any]) -> Any:
    unique = [schema for number, schema in enumerate(schemas) if schema not in schemas[:number]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def _rehomed(schema: Any, home: str, homes: dict[str, Any]) -> Any:
    """References of a schema that has a name of its own point to where it stands now: among the definitions."""
    if isinstance(schema, list):
        return [_rehomed(item, home, homes) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$id" in schema and _refers(schema):
        name = f"home{len(homes)}"
        homes[name] = None
        inner = {key: value for key, value in schema.items() if key not in ("$id", "$schema")}
        homes[name] = _rehomed(inner, f"#/$defs/{name}", homes)
        return {"$ref": f"#/$defs/{name}"}
    rehomed = {key: _rehomed(value, home, homes) for key, value in schema.items() if key != "$id"}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        rehomed["$ref"] = home + reference[1:] if reference != "#" else home
    return rehomed


def _refers(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_refers(item) for item in schema)
    return isinstance(schema, dict) and ("$ref" in schema or any(_refers(value) for value in schema.values()))


def _narrowed(schema: Any, length: int) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    for key in ("properties", "$defs", "definitions"):
        if isinstance(kept.get(key), dict):
            kept[key] = {name: _narrowed(child, length) for name, child in kept[key].items()}
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(kept.get(key), list):
            kept[key] = [_narrowed(child, length) for child in kept[key]]
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _narrowed(kept[key], length)
    return _ended(kept, length)


def _ended(schema: dict[str, Any], length: int) -> dict[str, Any]:
    """What could go on for ever has an end; what is optional and must be empty is left out."""
    kind = schema.get("type")
    if kind == "string" and not {"enum", "const"} & schema.keys():
        schema["maxLength"] = min(schema.get("maxLength", length), length)
        schema.setdefault("pattern", NO_PLACEHOLDER)
    elif kind == "array":
        schema["maxItems"] = min(schema.get("maxItems", LIST_LENGTH), LIST_LENGTH)
    elif kind == "number" and "minimum" in schema and "maximum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        return {"enum": [round(low + (high - low) * step / STEPS, 6) for step in range(STEPS + 1)]}
    elif kind == "object" and "properties" in schema:
        empty = [name for name, child in schema["properties"].items() if child == {"type": "array", "maxItems": 0}]
        for name in empty:
            if name not in schema.get("required", ()):
                schema["properties"] = {key: value for key, value in schema["properties"].items() if key != name}
        ops = schema["properties"].get("control_ir")
        if isinstance(ops, dict):
            schema["properties"]["control_ir"] = ops | {"maxItems": min(ops["maxItems"], OPS_LENGTH)}
    return schema
