"""The contract of an answer becomes a schema that a decoder can be held to.

Narrower than the contract or the same, never wider where it can be helped: every text gets an end (a small model would
talk until its limit), every list too, a number between two bounds becomes one of a few steps (grammars know no bounds),
and what no grammar understands is dropped. Nothing depends on it: the OS checks the answer against the contract itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

TEXT_LENGTH = 4_000
NAME_LENGTH = 1_000
LIST_LENGTH = 6
OPS_LENGTH = 2
STEPS = 10
_UNMARKED = r'[^<"\\\x00-\x1F]'
"""A character of a text that cannot be a placeholder of the contract's example, which small models copy."""

_KEPT = (
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
    "minLength", "maxLength", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions",
    "minimum", "maximum", "pattern",
)  # fmt: skip
"""What the converters of grammars understand, as far as we rely on it."""


class _Way(NamedTuple):
    """How texts are given an end: so many characters, and whether none may look like a placeholder; of an op only what
    is as short as a name, as it may write anything."""

    length: int
    is_unmarked: bool
    is_op: bool = False


def decoding_schema(
    contract: dict[str, Any], *, text_length: int = TEXT_LENGTH, is_unmarked: bool = False
) -> dict[str, Any]:
    """The contract for a decoder that takes `anyOf` at the root. `is_unmarked` keeps placeholders out of texts, for
    grammars that know patterns; such texts hold no quotes and no line ends either."""
    homes: dict[str, Any] = {}
    way = _Way(text_length, is_unmarked)
    schema: dict[str, Any] = _narrowed(_rehomed(contract, "#", homes), way)
    if homes:
        schema["$defs"] = {name: _narrowed(home, way) for name, home in homes.items()}
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


def _narrowed(schema: Any, way: _Way) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    for key in ("properties", "$defs", "definitions"):
        if isinstance(kept.get(key), dict):
            kept[key] = {name: _narrowed(child, _way_of(name, way)) for name, child in kept[key].items()}
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(kept.get(key), list):
            kept[key] = [_narrowed(child, way) for child in kept[key]]
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _narrowed(kept[key], way)
    return _ended(kept, way)


def _way_of(name: str, way: _Way) -> _Way:
    return way._replace(is_op=True) if name == "control_ir" else way


def _ended(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    """What could go on for ever has an end."""
    match schema.get("type"):
        case "string" if not {"enum", "const"} & schema.keys():
            return _text(schema, way)
        case "array":
            schema["maxItems"] = min(schema.get("maxItems", LIST_LENGTH), LIST_LENGTH)
        case "number" if "minimum" in schema and "maximum" in schema:
            low, high = schema["minimum"], schema["maximum"]
            return {"enum": [round(low + (high - low) * step / STEPS, 6) for step in range(STEPS + 1)]}
        case "object" if "properties" in schema:
            return _object(schema)
    return schema


def _text(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    least, most = schema.get("minLength", 0), schema.get("maxLength", way.length)
    longest = max(least, min(most, way.length))
    is_free = way.is_op and most > NAME_LENGTH
    if way.is_unmarked and not is_free and "pattern" not in schema:
        return {"type": "string", "pattern": f"^{_UNMARKED}{{{least},{longest}}}$"}
    return schema | {"maxLength": longest}


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """What is optional and must be empty is left out; of several ways to say the same, the first is taken."""
    required, fields = list(schema.get("required", ())), dict(schema["properties"])
    for name, child in schema["properties"].items():
        if child == {"type": "array", "maxItems": 0} and name not in required:
            del fields[name]
    ops = fields.get("control_ir")
    if isinstance(ops, dict):
        fields["control_ir"] = ops | {"maxItems": min(ops["maxItems"], OPS_LENGTH)}
    choices = schema.get("oneOf")
    if choices and all(choice.keys() == {"required"} for choice in choices):
        first, *others = (choice["required"] for choice in choices)
        schema = {key: value for key, value in schema.items() if key != "oneOf"}
        required += [name for name in first if name not in required]
        fields = {name: child for name, child in fields.items() if not any(name in other for other in others)}
    return schema | {"properties": fields, "required": required}
