"""The contract of an answer becomes a schema that a decoder can be held to.

Narrower than the contract or the same, never wider where it can be helped: every text gets an end (a model would talk
until its limit), confidence becomes one of a few steps (grammars know no bounds of numbers), alternatives of fields
become alternatives of objects, and what no grammar understands is dropped. A small model is held shorter still. Nothing
depends on it: the OS checks the answer against the contract itself.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

TEXT_LENGTH = 4_000
SMALL_TEXT_LENGTH = 160
SMALL_LIST_LENGTH = 6
SMALL_OPS_LENGTH = 2
NAME_LENGTH = 1_000
STEPS = 10
_UNMARKED = r'[^<"\\\x00-\x1F]'
"""A character of a text that cannot be a placeholder of the contract's example, which small models copy."""
_BOUNDED_PATTERN = re.compile(r"\^[^*+\\()|]*\$")
"""A pattern that every converter of grammars understands and that has an end."""

_KEPT = (
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
    "minLength", "maxLength", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions",
    "minimum", "maximum", "pattern",
)  # fmt: skip
"""What the converters of grammars understand, as far as we rely on it."""
_OF_A_TYPE = {
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties", "oneOf", "anyOf", "allOf"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
}


class _Way(NamedTuple):
    """How far a model is held: the length of texts; if it is small, also that of lists, with numbers in steps and texts
    that no placeholder can be. What an op writes may be anything."""

    length: int = TEXT_LENGTH
    is_small: bool = False
    is_op: bool = False


def decoding_schema(contract: dict[str, Any], *, is_small: bool = False) -> dict[str, Any]:
    """The contract for a decoder that takes `anyOf` at the root."""
    homes: dict[str, Any] = {}
    way = _Way(SMALL_TEXT_LENGTH, is_small=True) if is_small else _Way()
    rehomed = _rehomed(contract, "#", homes)
    if "anyOf" in rehomed and all("properties" in branch for branch in rehomed["anyOf"]):
        schema: dict[str, Any] = {"anyOf": [_branch(branch, way) for branch in rehomed["anyOf"]]}
    else:
        schema = _narrowed(rehomed, way)
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


def _branch(branch: dict[str, Any], way: _Way) -> dict[str, Any]:
    """One way to answer: a candidate, an abort, ops alone."""
    fields: dict[str, Any] = {}
    for name, field in branch["properties"].items():
        if name == "control":
            fields[name] = _control(field, way)
        elif name == "control_ir":
            if field != {"type": "array", "maxItems": 0}:  # what must be empty is left out
                fields[name] = _ops(field, way)
        elif field == {}:
            fields[name] = {"type": "null"}  # an abort has no artifact; anything would do, so let it be nothing
        else:
            fields[name] = _narrowed(field, way)
    required = [name for name in fields if name in branch["required"] or fields[name] == {"type": "null"}]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _control(control: dict[str, Any], way: _Way) -> dict[str, Any]:
    narrowed: dict[str, Any] = _narrowed(control, way)
    if "confidence" in narrowed.get("properties", {}):
        narrowed["properties"]["confidence"] = {"enum": _steps(0, 1)}
    return narrowed


def _ops(ops: dict[str, Any], way: _Way) -> dict[str, Any]:
    narrowed: dict[str, Any] = _narrowed(ops, way._replace(is_op=True))
    if way.is_small:
        narrowed["maxItems"] = max(narrowed.get("minItems", 0), SMALL_OPS_LENGTH)
    return narrowed


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
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        return schema
    if schema.get("items") is False:  # nothing but the entries that are listed; said in a way that grammars know
        listed = len(schema.get("prefixItems", ()))
        schema = {key: value for key, value in schema.items() if key != "items"}
        schema["maxItems"] = min(schema.get("maxItems", listed), listed)
    for key in ("const", "enum"):
        if key in schema:
            return {key: schema[key]}
    kept = _typed({key: value for key, value in schema.items() if key in _KEPT}, way)
    if isinstance(kept.get("type"), list):
        return {"anyOf": [_narrowed(_of_type(kept, kind), way) for kind in kept["type"]]}
    for key in ("properties", "$defs", "definitions"):
        if isinstance(kept.get(key), dict):
            kept[key] = {name: _narrowed(child, way) for name, child in kept[key].items()}
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(kept.get(key), list) and not _is_choice_of_fields(kept[key]):
            kept[key] = [_narrowed(child, way) for child in kept[key]]
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _narrowed(kept[key], way)
    return _ended(kept, way)


def _typed(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    """A schema that names no type but means one gets it; of one that takes anything, a small model gives something
    plain."""
    if {"type", "$ref", "anyOf", "oneOf", "allOf"} & schema.keys():
        return schema
    for kind in ("object", "array", "string", "number"):
        if schema.keys() & set(_OF_A_TYPE[kind]):
            return schema | {"type": kind}
    return schema | {"type": ["string", "number", "boolean", "null"]} if way.is_small else schema


def _of_type(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """What a schema of several types says about one of them."""
    others = {key for name, keys in _OF_A_TYPE.items() for key in keys} - set(_OF_A_TYPE.get(kind, ()))
    return {key: value for key, value in schema.items() if key not in others} | {"type": kind}


def _is_choice_of_fields(choices: list[Any]) -> bool:
    return all(isinstance(choice, dict) and choice.keys() == {"required"} for choice in choices)


def _ended(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    """What could go on for ever has an end."""
    match schema.get("type"):
        case "string":
            return _text(schema, way)
        case "array" if way.is_small:
            least, most = schema.get("minItems", 0), schema.get("maxItems", SMALL_LIST_LENGTH)
            schema["maxItems"] = max(least, min(most, SMALL_LIST_LENGTH))
        case "number" if way.is_small and "minimum" in schema and "maximum" in schema:
            return {"enum": _steps(schema["minimum"], schema["maximum"])}
        case "object" if "properties" in schema:
            return _object(schema, way)
    return schema


def _steps(low: float, high: float) -> list[float]:
    return list(dict.fromkeys(float(f"{low + (high - low) * step / STEPS:.6g}") for step in range(STEPS + 1)))


def _text(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    least, most = schema.get("minLength", 0), schema.get("maxLength", way.length)
    longest = max(least, min(most, way.length))
    pattern = schema.get("pattern")
    if pattern is not None and _is_bounded(pattern):
        return schema
    if way.is_small and not (way.is_op and most > NAME_LENGTH) and pattern is None:
        return {"type": "string", "pattern": f"^{_UNMARKED}{{{least},{longest}}}$"}
    return {key: value for key, value in schema.items() if key != "pattern"} | {"maxLength": longest}


def _is_bounded(pattern: str) -> bool:
    return bool(_BOUNDED_PATTERN.fullmatch(pattern)) and not re.search(r"\{\d*,\}", pattern)


def _object(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    """Of fields of which one must be there, each makes an object of its own. A small model's op has only the fields
    that it needs: the others it would fill at random."""
    for key in ("oneOf", "anyOf"):
        choices = schema.get(key)
        if choices and _is_choice_of_fields(choices):
            rest = {name: value for name, value in schema.items() if name != key}
            others = choices if key == "oneOf" else []
            return {"anyOf": [_object(_chosen(rest, choice, others), way) for choice in choices]}
    if way.is_small and way.is_op:
        needed = {name: field for name, field in schema["properties"].items() if name in schema.get("required", ())}
        return schema | {"properties": needed}
    return schema


def _chosen(schema: dict[str, Any], choice: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """The object that has the fields of a choice, and none that only the others have."""
    barred = {name for other in others for name in other["required"]} - set(choice["required"])
    fields = {name: field for name, field in schema["properties"].items() if name not in barred}
    required = [*schema.get("required", ()), *(name for name in choice["required"] if name in fields)]
    return schema | {"properties": fields, "required": list(dict.fromkeys(required))}
