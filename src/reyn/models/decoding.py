"""The contract of an answer becomes a schema that a decoder can be held to.

Narrower than the contract or the same, never wider where it can be helped: every text gets an end (a model would talk
until its limit), confidence becomes one of a few steps (grammars know no bounds of numbers), alternatives of fields
become alternatives of objects, and what no grammar understands is dropped. A small model is held shorter still: nothing
that it makes holds itself for long. Nothing depends on it: the OS checks the answer against the contract itself.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from reyn.models.flattening import flattened, is_choice, with_parts
from reyn.skills import compile_schema

TEXT_LENGTH = 4_000
SMALL_TEXT_LENGTH = 160
SMALL_LIST_LENGTH = 6
SMALL_OPS_LENGTH = 2
NAME_LENGTH = 1_000
STEPS = 10
MOST_LISTED = 64
"""Numbers that are listed one by one, if they are no more than that."""
MOST_REPEATED = 2_000
"""How often something must be there, as far as llama.cpp takes it."""
_UNMARKED = r'[^<"\\\x00-\x1F]'
"""A character of a text that cannot be a placeholder of the contract's example, which small models copy."""
_BOUNDED_PATTERN = re.compile(r"\^[^*+\\()|]*\$")
"""A pattern that every converter of grammars understands and that has an end."""

_KEPT = (
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
    "minLength", "maxLength", "enum", "const", "anyOf", "oneOf", "$ref", "$defs", "definitions",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern",
)  # fmt: skip
"""What the converters of grammars understand, as far as we rely on it, or can be said in such words."""
_OF_A_TYPE = {
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties", "oneOf", "anyOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_PLAIN = ("type", *(key for kind in ("string", "number") for key in _OF_A_TYPE[kind]))


class _Way(NamedTuple):
    """How far a model is held: the length of texts; if it is small, also that of lists, with numbers in steps and texts
    that no placeholder can be. What an op writes may be anything."""

    length: int = TEXT_LENGTH
    is_small: bool = False
    is_op: bool = False


def decoding_schema(contract: dict[str, Any], *, is_small: bool = False) -> dict[str, Any]:
    """The contract for a decoder that takes `anyOf` at the root."""
    way = _Way(SMALL_TEXT_LENGTH, is_small=True) if is_small else _Way()
    flat = flattened(contract, is_ended=is_small)
    if "anyOf" not in flat or not all("properties" in branch for branch in flat["anyOf"]):
        narrowed: dict[str, Any] = _narrowed(flat, way)
        return narrowed
    schema: dict[str, Any] = {"anyOf": [_branch(branch, way) for branch in flat["anyOf"]]}
    if "$defs" in flat:
        schema["$defs"] = {name: _narrowed(home, way) for name, home in flat["$defs"].items()}
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


def _narrowed(schema: Any, way: _Way) -> Any:
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        return schema
    if schema.get("items") is False:  # nothing but the entries that are listed; said in a way that grammars know
        listed = len(schema.get("prefixItems", ()))
        schema = {key: value for key, value in schema.items() if key != "items"}
        schema["maxItems"] = min(schema.get("maxItems", listed), listed)
    if "const" in schema:
        return {"const": schema["const"]}
    if "enum" in schema:
        return {"enum": _fitting(schema)}
    kept = _typed({key: value for key, value in schema.items() if key in _KEPT}, way)
    if isinstance(kept.get("type"), list):
        return {"anyOf": [_narrowed(_of_type(kept, kind), way) for kind in kept["type"]]}
    return _ended(with_parts(kept, lambda part: _narrowed(part, way)), way)


def _fitting(schema: dict[str, Any]) -> list[Any]:
    """Of what is listed, that which fits what is said beside the list."""
    beside = compile_schema({key: value for key, value in schema.items() if key in _PLAIN})
    return [value for value in schema["enum"] if beside.is_valid(value)] or schema["enum"]


def _typed(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    """A schema that names no type but means one gets it; of one that takes anything, a small model gives something
    plain."""
    if {"type", "$ref", "anyOf", "oneOf"} & schema.keys():
        return schema
    for kind in ("object", "array", "string", "number"):
        if schema.keys() & set(_OF_A_TYPE[kind]):
            return schema | {"type": kind}
    return schema | {"type": ["string", "number", "boolean", "null"]} if way.is_small else schema


def _of_type(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """What a schema of several types says about one of them."""
    others = {key for name, keys in _OF_A_TYPE.items() for key in keys} - set(_OF_A_TYPE.get(kind, ()))
    return {key: value for key, value in schema.items() if key not in others} | {"type": kind}


def _ended(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    """What could go on for ever has an end."""
    match schema.get("type"):
        case "string":
            return _text(schema, way)
        case "array":
            return _list(schema, way)
        case "number" | "integer":
            return _number(schema, way)
        case "object" if "properties" in schema:
            return _object(schema, way)
    return schema


def _list(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    least = min(schema.get("minItems", 0), MOST_REPEATED)
    if least:
        schema["minItems"] = least
    if way.is_small:
        schema["maxItems"] = max(least, min(schema.get("maxItems", SMALL_LIST_LENGTH), SMALL_LIST_LENGTH))
    return schema


def _number(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    """Listed where they are few; else with bounds in the one form that all know."""
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    few: list[float] = []
    if lows and highs and "multipleOf" in schema:
        few = _multiples(schema["multipleOf"], max(lows), min(highs))
    elif lows and highs and way.is_small and schema["type"] == "number":
        few = _steps(max(lows), min(highs))
    few = [number for number in few if _is_within(number, schema)]
    if few:
        return {"enum": few}
    bounded: dict[str, Any] = {"type": schema["type"]}
    for key, values, nearest, onwards in (("minimum", lows, max, 1), ("maximum", highs, min, -1)):
        if values:
            bounded[key] = nearest(values)
            if schema["type"] == "integer":
                whole = math.ceil(bounded[key]) if onwards == 1 else math.floor(bounded[key])
                bounded[key] = whole if _is_within(whole, schema) else whole + onwards
    return bounded


def _is_within(number: float, schema: dict[str, Any]) -> bool:
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    return bool(least <= number <= most and above < number < below)


def _multiples(measure: float, low: float, high: float) -> list[float]:
    """The multiples of a measure, where they are few."""
    if not 0 <= (high - low) / measure <= MOST_LISTED:
        return []
    numbers = [count * measure for count in range(math.ceil(low / measure), math.floor(high / measure) + 1)]
    return [number if isinstance(number, int) else float(f"{number:.12g}") for number in numbers]


def _steps(low: float, high: float) -> list[float]:
    return list(dict.fromkeys(float(f"{low + (high - low) * step / STEPS:.6g}") for step in range(STEPS + 1)))


def _text(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    least, most = min(schema.get("minLength", 0), MOST_REPEATED), schema.get("maxLength", way.length)
    longest = max(least, min(most, way.length))
    pattern = schema.get("pattern")
    if pattern is not None and _is_bounded(pattern):
        return schema
    if way.is_small and not (way.is_op and most > NAME_LENGTH) and pattern is None:
        return {"type": "string", "pattern": f"^{_UNMARKED}{{{least},{longest}}}$"}
    return {"type": "string"} | ({"minLength": least} if least else {}) | {"maxLength": longest}


def _is_bounded(pattern: str) -> bool:
    if not _BOUNDED_PATTERN.fullmatch(pattern) or re.search(r"\{\d*,\}", pattern):
        return False
    return all(int(number) <= MOST_REPEATED for number in re.findall(r"\d+(?=[,}])", pattern))


def _object(schema: dict[str, Any], way: _Way) -> dict[str, Any]:
    """Of fields of which one must be there, each makes an object of its own. A small model's op has only the fields
    that it needs: the others it would fill at random."""
    for key in ("oneOf", "anyOf"):
        choices = schema.get(key)
        if choices and all(is_choice(choice) for choice in choices):
            rest = {name: value for name, value in schema.items() if name != key}
            others = choices if key == "oneOf" else []
            return {"anyOf": [_object(_chosen(rest, choice, others), way) for choice in choices]}
    if way.is_small and way.is_op:
        needed = {name: field for name, field in schema["properties"].items() if name in schema.get("required", ())}
        return schema | {"properties": needed}
    if way.is_small and schema["properties"].keys() >= set(schema.get("required", ())):
        return schema | {"additionalProperties": False}
    return schema


def _chosen(schema: dict[str, Any], choice: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """The object that has the fields of a choice, and none that only the others have."""
    barred = {name for other in others for name in other["required"]} - set(choice["required"])
    fields = {name: field for name, field in schema["properties"].items() if name not in barred}
    required = [*schema.get("required", ()), *(name for name in choice["required"] if name in fields)]
    return schema | {"properties": fields, "required": list(dict.fromkeys(required))}
