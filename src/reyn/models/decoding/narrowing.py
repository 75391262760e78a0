"""One schema becomes one that a decoder keeps to: every text ends, numbers are listed where they are few, and what no
grammar understands is said in another way or dropped.

What llama.cpp does with a schema is what counts here; its converter is the one that is not asked twice.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from reyn.jsonschema import compile_schema
from reyn.jsonschema.flattening import SUPPORTED_KEYWORDS, is_required_only
from reyn.jsonschema.references import map_subschemas
from reyn.models.decoding.patterns import said_plainly

TEXT_LENGTH = 4_000
SMALL_TEXT_LENGTH = 160
SMALL_LIST_LENGTH = 6
NAME_LENGTH = 1_000
STEPS = 10
MOST_LISTED = 64
"""Numbers that are listed one by one, if they are no more than that."""
MOST_REPEATED = 2_000
"""How often something must be there, as far as llama.cpp takes it."""
LARGEST = 10**15
"""A bound of whole numbers, as far as llama.cpp takes it: it spells out every digit."""
_UNMARKED = r'[^<"\\\x00-\x1F]'
"""A character of a text that cannot be a placeholder of the contract's example, which small models copy."""
_ONE_CLASS = re.compile(r"\^(\[[^\]]+\])(?:\{(\d+)(?:,(\d+))?\})?\$")

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_OF_A_TYPE = {
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties", "patternProperties", "oneOf", "anyOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_PLAIN = ("type", *_OF_A_TYPE["string"], *_OF_A_TYPE["number"])


class Way(NamedTuple):
    """How far a model is held: the length of texts; if it is small, also that of lists, with numbers in steps and texts
    that no placeholder can be. What an op writes may be anything."""

    length: int = TEXT_LENGTH
    is_small: bool = False
    is_op: bool = False


def narrowed(schema: Any, way: Way) -> dict[str, Any]:
    """Of one that takes nothing, nothing can be said; whoever holds it leaves it out, where that can be."""
    if not isinstance(schema, dict):
        schema = {}
    if "const" in schema:
        return {"const": schema["const"]}
    if "enum" in schema:
        return {"enum": _fitting(schema)}
    kept = _typed({key: value for key, value in schema.items() if key in SUPPORTED_KEYWORDS and key != "allOf"}, way)
    kept |= {key: int(kept[key]) for key in _COUNTS if key in kept}
    if isinstance(kept.get("type"), list):
        return {"anyOf": [narrowed(_of_type(kept, kind), way) for kind in kept["type"]]}
    choices = {key: kept.pop(key) for key in ("anyOf", "oneOf") if all(map(is_required_only, kept.get(key, (None,))))}
    return _ended(map_subschemas(_possible(kept), lambda part: narrowed(part, way)) | choices, way)


def steps(low: float, high: float) -> list[float]:
    return list(dict.fromkeys(float(f"{low + (high - low) * step / STEPS:.6g}") for step in range(STEPS + 1)))


def _fitting(schema: dict[str, Any]) -> list[Any]:
    """Of what is listed, that which fits what is said beside the list."""
    plain = {key: value for key, value in schema.items() if key in _PLAIN}
    if not plain:
        return list(schema["enum"])
    beside = compile_schema(plain)
    return [value for value in schema["enum"] if beside.is_valid(value)] or schema["enum"]


def _typed(schema: dict[str, Any], way: Way) -> dict[str, Any]:
    """A schema that names no type but means one gets it; of one that takes anything, a small model gives something
    plain."""
    if {"type", "$ref"} & schema.keys() or ({"anyOf", "oneOf"} & schema.keys() and "properties" not in schema):
        return schema
    for kind in ("object", "array", "string", "number"):
        if schema.keys() & set(_OF_A_TYPE[kind]):
            return schema | {"type": kind}
    return schema | {"type": ["string", "number", "boolean", "null"]} if way.is_small else schema


def _of_type(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """What a schema of several types says about one of them."""
    others = {key for name, keys in _OF_A_TYPE.items() for key in keys} - set(_OF_A_TYPE.get(kind, ()))
    return {key: value for key, value in schema.items() if key not in others} | {"type": kind}


def _possible(schema: dict[str, Any]) -> dict[str, Any]:
    """Without fields, alternatives and entries that nothing can be; with every field that must be there."""
    possible = {key: value for key, value in schema.items() if key != "patternProperties"}
    others = schema.get("additionalProperties", {})
    patterns = schema.get("patternProperties", {})
    if patterns:
        named = [part for part in (*patterns.values(), others) if part is not False]
        possible["additionalProperties"] = False if not named else named[0] if len(named) == 1 else {"anyOf": named}
    if "properties" in schema or (schema.get("required") and schema.get("type") == "object"):
        fields = schema.get("properties", {})
        unsaid = {
            name: next((part for pattern, part in patterns.items() if _matches(pattern, name)), others)
            for name in schema.get("required", ())
            if name not in fields
        }
        possible["properties"] = {name: field for name, field in (fields | unsaid).items() if field is not False}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            possible[key] = [part for part in schema[key] if part is not False] or [{}]
    listed = schema.get("prefixItems", [])
    if False in listed:
        listed = possible["prefixItems"] = listed[: listed.index(False)]
        possible["items"] = False
    if possible.get("items") is False:  # nothing but the entries that are listed
        possible["maxItems"] = min(schema.get("maxItems", len(listed)), len(listed))
    if isinstance(possible.get("items"), bool):
        del possible["items"]
    return possible


def _matches(pattern: str, name: str) -> bool:
    """As whoever checks the answer reads the pattern: that is not Python's way."""
    return compile_schema({"pattern": pattern}).is_valid(name)


def _ended(schema: dict[str, Any], way: Way) -> dict[str, Any]:
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


# -- texts and lists ----------------------------------------------------------------------------------


def _text(schema: dict[str, Any], way: Way) -> dict[str, Any]:
    least, most = min(schema.get("minLength", 0), MOST_REPEATED), schema.get("maxLength", way.length)
    longest = max(schema.get("minLength", 0), min(most, way.length))
    pattern = said_plainly(schema["pattern"], MOST_REPEATED) if "pattern" in schema else None
    if pattern is not None:
        return {"type": "string", "pattern": _counted(pattern, schema)}
    if way.is_small and not (way.is_op and most > NAME_LENGTH):
        return {"type": "string", "pattern": f"^{_UNMARKED}{{{least},{longest}}}$"}
    return {"type": "string"} | ({"minLength": least} if least else {}) | {"maxLength": longest}


def _counted(pattern: str, schema: dict[str, Any]) -> str:
    """A pattern of one class of characters can say how many there are; beside any, a length is not heeded."""
    simple = _ONE_CLASS.fullmatch(pattern)
    if simple is None or not {"minLength", "maxLength"} & schema.keys():
        return pattern
    characters, low, high = simple.groups()
    low = int(low or 1)
    least, most = max(low, schema.get("minLength", 0)), min(int(high or low), schema.get("maxLength", MOST_REPEATED))
    return f"^{characters}{{{least},{most}}}$" if least <= most else pattern


def _list(schema: dict[str, Any], way: Way) -> dict[str, Any]:
    least = min(schema.get("minItems", 0), MOST_REPEATED)
    if least:
        schema["minItems"] = least
    if "maxItems" in schema and "prefixItems" in schema:
        schema["prefixItems"] = schema["prefixItems"][: schema["maxItems"]]
    if "prefixItems" in schema and way.is_small:
        return _tuple(schema, least)
    if "prefixItems" in schema and "items" in schema:  # llama.cpp heeds `items` alone; the OS checks which is which
        every = [*schema.pop("prefixItems"), schema["items"]]
        schema["items"] = {"anyOf": [part for number, part in enumerate(every) if part not in every[:number]]}
    if way.is_small:
        schema["items"] = schema.get("items", narrowed({}, way))
        schema["maxItems"] = max(least, min(schema.get("maxItems", SMALL_LIST_LENGTH), SMALL_LIST_LENGTH))
    return schema


def _tuple(schema: dict[str, Any], least: int) -> dict[str, Any]:
    """The entries that are listed, and of the others as many as there must be: llama.cpp knows no such list with an
    open end."""
    listed = schema["prefixItems"]
    listed = listed + [schema.get("items", {"type": "null"})] * (least - len(listed))
    return {"type": "array", "prefixItems": listed} if listed else {"type": "array", "maxItems": 0}


# -- numbers ------------------------------------------------------------------------------------------


def _number(schema: dict[str, Any], way: Way) -> dict[str, Any]:
    """Listed where they are few; else with bounds in the one form that all know."""
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    if way.is_small and "multipleOf" in schema and not (lows and highs):
        near = STEPS * schema["multipleOf"]
        lows, highs = lows or [min(highs, default=near) - near], highs or [max(lows, default=0) + near]
    few = _few(schema, max(lows), min(highs), way) if lows and highs else []
    if few:
        return {"enum": few}
    bounded: dict[str, Any] = {"type": schema["type"]}
    if lows:
        bounded["minimum"] = max(lows)
    if highs:
        bounded["maximum"] = min(highs)
    if schema["type"] == "number" and not (way.is_small and len(bounded) > 1):
        return bounded
    return _whole_bounds(bounded | {"type": "integer"}, schema)  # of others, llama.cpp heeds no bounds


def _whole_bounds(bounded: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    whole = {key: value for key, value in bounded.items() if key == "type" or abs(value) <= LARGEST}
    if "minimum" in whole:
        low = math.ceil(whole["minimum"])
        whole["minimum"] = low if _is_within(low, schema, "Minimum") else low + 1
    if "maximum" in whole:
        high = math.floor(whole["maximum"])
        whole["maximum"] = high if _is_within(high, schema, "Maximum") else high - 1
    return whole


def _few(schema: dict[str, Any], low: float, high: float, way: Way) -> list[float]:
    """The numbers that a schema means, if they are few; of many, a small model has some to choose from."""
    measure = schema.get("multipleOf")
    numbers: list[float] = []
    if not all(math.isfinite(number / (measure or 1)) for number in (low, high, high - low)):
        return []
    if measure is not None and 0 <= (high - low) / measure <= MOST_LISTED:
        numbers = _multiples(measure, range(math.ceil(low / measure), math.floor(high / measure) + 1))
    elif way.is_small and measure is not None:
        numbers = _multiples(measure, [round(number / measure) for number in steps(low, high)])
    elif way.is_small and schema["type"] == "number":
        numbers = steps(low, high)
    fitting = [number for number in numbers if _is_within(number, schema, "Minimum", "Maximum")]
    if schema["type"] == "integer":
        fitting = [int(number) for number in fitting if number == int(number)]
    return list(dict.fromkeys(fitting))


def _multiples(measure: float, counts: range | list[int]) -> list[float]:
    numbers = [count * measure for count in counts]
    return [number if isinstance(number, int) else float(f"{number:.12g}") for number in numbers]


def _is_within(number: float, schema: dict[str, Any], *ends: str) -> bool:
    """Whether a number is on the right side of the bounds at these ends."""
    for end in ends:
        sign = 1 if end == "Minimum" else -1
        if f"exclusive{end}" in schema and (number - schema[f"exclusive{end}"]) * sign <= 0:
            return False
        if end.lower() in schema and (number - schema[end.lower()]) * sign < 0:
            return False
    return True


# -- objects ------------------------------------------------------------------------------------------


def _object(schema: dict[str, Any], way: Way) -> dict[str, Any]:
    """Of fields of which one must be there, each makes an object of its own. A small model's op has only the fields
    that it needs: the others it would fill at random."""
    for key in ("oneOf", "anyOf"):
        choices = schema.get(key)
        if choices and all(map(is_required_only, choices)):
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
    kept = {*choice["required"], *schema.get("required", ())}
    barred = {name for other in others for name in other["required"]} - kept
    fields = {name: field for name, field in schema["properties"].items() if name not in barred}
    required = [*schema.get("required", ()), *(name for name in choice["required"] if name in fields)]
    return schema | {"properties": fields, "required": list(dict.fromkeys(required))}
