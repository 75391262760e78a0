"""Restrict a JSON Schema to what constrained decoders support.

Strings and lists get a maximum length, small ranges of numbers become enums, regular expressions are rewritten, and
keywords that grammars do not support are rewritten or dropped. The converter of llama.cpp is the reference, because it
has the least support. Contracts as a whole belong to `decoding`.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

from reyn.jsonschema import compile_schema
from reyn.jsonschema.flattening import SUPPORTED_KEYWORDS, is_required_only
from reyn.jsonschema.growth import Growth
from reyn.jsonschema.references import map_subschemas
from reyn.models.grammar_patterns import to_grammar_regex

MAX_TEXT_LENGTH = 2_000
SMALL_TEXT_LENGTH = 160
SMALL_LIST_LENGTH = 6
MAX_NAME_LENGTH = 1_000
"""Strings of ops with a higher limit are contents rather than names or paths."""
STEPS = 10
MAX_ENUM_LENGTH = 64
"""Maximum number of multiples that become an enum."""
MAX_REPETITIONS = 2_000
"""Maximum repetition count that llama.cpp accepts."""
MAX_NARROW_INTEGER = 10**15
"""Maximum bound of an integer: llama.cpp expands bounds digit by digit."""
SMALL_NUMBER = 10**9
"""A small model that may write any number sometimes repeats a digit until its answer is cut off."""
SMALL_FRACTION = 0.0001
"""The precision of numbers for small models, so that they cannot repeat digits after the point either."""
_PLAIN = r'[^"\\\x00-\x1F]'
"""Excludes escapes, with which small models fill their texts."""
_SINGLE_CLASS = re.compile(r"\^(\[[^\]]+\])(?:\{(\d+)(?:,(\d+))?\})?\$")

_COUNT_KEYWORDS = ("minLength", "maxLength", "minItems", "maxItems")
_KEYWORDS_OF_TYPE = {
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties", "patternProperties", "oneOf", "anyOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_SCALAR_KEYWORDS = ("type", *_KEYWORDS_OF_TYPE["string"], *_KEYWORDS_OF_TYPE["number"])


_MATCH_CHARACTERS = 100
_FIELD_CHARACTERS = 8
"""What a comparison of a name with a pattern, and a field that is copied, count as."""
_UNCOUNTED = Growth(1 << 60)


class DecodingLimits(NamedTuple):
    """How much a schema is restricted.

    Attributes:
        is_small: Whether the model is small: short texts and lists, numbers in steps, no escapes, no abort.
        bounds_numbers: Whether numbers without bounds get some: a decoder could write digits without end.
        allows_abort: Whether the model may abort the run; a small model never may.
        asks_confidence: Whether a short answer states its confidence; not needed where the engine measures it.
        reason_length: Maximum length of the reason of an answer; 0 for an empty one.
        line_length: Maximum length of texts, which then are one line without escapes; 0 for no such limit.
        is_op: Whether the schema belongs to an op, whose long strings are not restricted.
        growth: Counts what is produced.
    """

    is_small: bool = False
    bounds_numbers: bool = False
    allows_abort: bool = True
    asks_confidence: bool = True
    reason_length: int = 300
    line_length: int = 0
    is_op: bool = False
    growth: Growth = _UNCOUNTED

    @property
    def text_length(self) -> int:
        """Maximum length of strings without a limit of their own."""
        return SMALL_TEXT_LENGTH if self.is_small else MAX_TEXT_LENGTH

    @property
    def max_number(self) -> int | None:
        """Maximum absolute value of numbers without a limit of their own; `None` if there is none."""
        return SMALL_NUMBER if self.is_small else MAX_NARROW_INTEGER if self.bounds_numbers else None


DEFAULT_LIMITS = DecodingLimits()


def restrict(schema: Any, limits: DecodingLimits) -> dict[str, Any]:
    """Return a schema that decoders support. It accepts a subset of the values where that can be expressed.

    A schema that accepts nothing (`false`) becomes one that accepts anything; callers omit such parts where they can.

    Raises:
        SchemaTooLarge: The schema would be too large.
    """
    if not isinstance(schema, dict):
        schema = {}
    limits.growth.add(schema)
    if "const" in schema:
        return {"const": schema["const"]}
    if "enum" in schema:
        return {"enum": _valid_choices(schema)}
    supported = _add_type(
        {key: value for key, value in schema.items() if key in SUPPORTED_KEYWORDS and key != "allOf"}, limits
    )
    supported |= {key: int(supported[key]) for key in _COUNT_KEYWORDS if key in supported}
    if isinstance(supported.get("type"), list):
        return {"anyOf": [restrict(_of_type(supported, kind), limits) for kind in supported["type"]]}
    choices = {
        key: supported.pop(key) for key in ("anyOf", "oneOf") if all(map(is_required_only, supported.get(key, (None,))))
    }
    return _bound(
        map_subschemas(_drop_impossible(supported, limits), lambda part: restrict(part, limits)) | choices, limits
    )


def steps(low: float, high: float) -> list[float]:
    """Return evenly spaced numbers from `low` to `high`."""
    return list(dict.fromkeys(float(f"{low + (high - low) * step / STEPS:.6g}") for step in range(STEPS + 1)))


def unique(schemas: list[Any]) -> list[Any]:
    """Return schemas without those that are equal to an earlier one."""
    found: dict[bytes, Any] = {}
    for schema in schemas:
        found.setdefault(msgspec.json.encode(schema, order="deterministic"), schema)
    return list(found.values())


def _valid_choices(schema: dict[str, Any]) -> list[Any]:
    """Return the enum values that satisfy the keywords beside the enum."""
    scalar = {key: value for key, value in schema.items() if key in _SCALAR_KEYWORDS}
    if not scalar:
        return list(schema["enum"])
    validator = compile_schema(scalar)
    return [value for value in schema["enum"] if validator.is_valid(value)] or schema["enum"]


def _add_type(schema: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    """Add the type that a schema implies. For small models, an unrestricted schema becomes a scalar."""
    if {"type", "$ref"} & schema.keys() or ({"anyOf", "oneOf"} & schema.keys() and "properties" not in schema):
        return schema
    for kind in ("object", "array", "string", "number"):
        if schema.keys() & set(_KEYWORDS_OF_TYPE[kind]):
            return schema | {"type": kind}
    return schema | {"type": ["string", "number", "boolean", "null"]} if limits.is_small else schema


def _of_type(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the part of a schema with several types that applies to one of them."""
    other_keywords = {key for name, keys in _KEYWORDS_OF_TYPE.items() for key in keys} - set(
        _KEYWORDS_OF_TYPE.get(kind, ())
    )
    return {key: value for key, value in schema.items() if key not in other_keywords} | {"type": kind}


def _drop_impossible(schema: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    """Remove properties, alternatives and items that no value satisfies; declare every required property."""
    possible = {key: value for key, value in schema.items() if key != "patternProperties"}
    others = schema.get("additionalProperties", {})
    patterns = schema.get("patternProperties", {})
    if patterns:
        named = [part for part in (*patterns.values(), others) if part is not False]
        possible["additionalProperties"] = False if not named else named[0] if len(named) == 1 else {"anyOf": named}
    if "properties" in schema or (schema.get("required") and schema.get("type") == "object"):
        fields = schema.get("properties", {})
        names = [name for name in schema.get("required", ()) if name not in fields]
        limits.growth.add_characters(_MATCH_CHARACTERS * len(names) * len(patterns))
        undeclared = {
            name: next((part for pattern, part in patterns.items() if _matches(pattern, name)), others)
            for name in names
        }
        possible["properties"] = {name: field for name, field in (fields | undeclared).items() if field is not False}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            possible[key] = [part for part in schema[key] if part is not False] or [{}]
    listed = schema.get("prefixItems", [])
    if False in listed:
        listed = possible["prefixItems"] = listed[: listed.index(False)]
        possible["items"] = False
    if possible.get("items") is False:  # only the listed items
        possible["maxItems"] = min(schema.get("maxItems", len(listed)), len(listed))
    if isinstance(possible.get("items"), bool):
        del possible["items"]
    return possible


def _matches(pattern: str, name: str) -> bool:
    """Match as the validator does, whose regular expressions differ from Python's."""
    return compile_schema({"pattern": pattern}).is_valid(name)


def _bound(schema: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    """Bound everything that could be generated without end."""
    match schema.get("type"):
        case "string":
            return _text(schema, limits)
        case "array":
            return _list(schema, limits)
        case "number" | "integer":
            return _number(schema, limits)
        case "object" if "properties" in schema:
            return _object(schema, limits)
    return schema


# -- strings and lists ---------------------------------------------------------------------------------


def _text(schema: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    least, most = min(schema.get("minLength", 0), MAX_REPETITIONS), schema.get("maxLength", limits.text_length)
    longest = max(schema.get("minLength", 0), min(most, limits.text_length))
    pattern = to_grammar_regex(schema["pattern"], MAX_REPETITIONS) if "pattern" in schema else None
    if pattern is not None:
        return {"type": "string", "pattern": _merge_length(pattern, schema)}
    if limits.line_length:
        return {"type": "string", "pattern": f"^{_PLAIN}{{{least},{max(least, min(longest, limits.line_length))}}}$"}
    if limits.is_small and not (limits.is_op and most > MAX_NAME_LENGTH):
        return {"type": "string", "pattern": f"^{_PLAIN}{{{least},{longest}}}$"}
    return {"type": "string"} | ({"minLength": least} if least else {}) | {"maxLength": longest}


def _merge_length(pattern: str, schema: dict[str, Any]) -> str:
    """Merge length limits into a pattern of one character class: decoders ignore lengths beside a pattern."""
    match = _SINGLE_CLASS.fullmatch(pattern)
    if match is None or not {"minLength", "maxLength"} & schema.keys():
        return pattern
    characters, low, high = match.groups()
    low = int(low or 1)
    least, most = max(low, schema.get("minLength", 0)), min(int(high or low), schema.get("maxLength", MAX_REPETITIONS))
    return f"^{characters}{{{least},{most}}}$" if least <= most else pattern


def _list(schema: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    least = min(schema.get("minItems", 0), MAX_REPETITIONS)
    if least:
        schema["minItems"] = least
    if "maxItems" in schema and "prefixItems" in schema:
        schema["prefixItems"] = schema["prefixItems"][: schema["maxItems"]]
    if "prefixItems" in schema and limits.is_small:
        return _tuple(schema, least)
    if "prefixItems" in schema and "items" in schema:  # llama.cpp ignores `prefixItems` then
        parts = [*schema.pop("prefixItems"), schema["items"]]
        schema["items"] = {"anyOf": unique(parts)}
    if limits.is_small:
        schema["items"] = schema.get("items", restrict({}, limits))
        schema["maxItems"] = max(least, min(schema.get("maxItems", SMALL_LIST_LENGTH), SMALL_LIST_LENGTH))
    return schema


def _tuple(schema: dict[str, Any], least: int) -> dict[str, Any]:
    """Return a tuple of fixed length, because llama.cpp does not support `prefixItems` with further items."""
    listed = schema["prefixItems"]
    listed = listed + [schema.get("items", {"type": "null"})] * (least - len(listed))
    return {"type": "array", "prefixItems": listed} if listed else {"type": "array", "maxItems": 0}


# -- numbers ------------------------------------------------------------------------------------------


def _number(schema: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    """Return an enum if there are few values, otherwise inclusive bounds, which all decoders support."""
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    if limits.is_small and "multipleOf" in schema and not (lows and highs):
        span = STEPS * schema["multipleOf"]
        lows, highs = lows or [min(highs, default=span) - span], highs or [max(lows, default=0) + span]
    values = _enumerate(schema, max(lows), min(highs), limits) if lows and highs else []
    if values:
        return {"enum": values}
    is_integer = schema["type"] == "integer" or (limits.is_small and bool(lows or highs))
    bounded: dict[str, Any] = {"type": schema["type"]}
    if limits.is_small and not is_integer:
        bounded["multipleOf"] = SMALL_FRACTION
    if limits.max_number is not None:
        far = limits.max_number
        least = min([-far, *(high - far for high in highs if high <= -far)])
        most = max([far, *(low + far for low in lows if low >= far)])
        lows, highs = lows or [least], highs or [most]
    if lows:
        bounded["minimum"] = max(lows)
    if highs:
        bounded["maximum"] = min(highs)
    if not is_integer:
        return bounded
    return _integer_bounds(bounded | {"type": "integer"}, schema)  # llama.cpp ignores the bounds of numbers


def _integer_bounds(bounded: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    integer = {key: value for key, value in bounded.items() if key == "type" or abs(value) <= MAX_NARROW_INTEGER}
    if "minimum" in integer:
        low = math.ceil(integer["minimum"])
        integer["minimum"] = low if _is_within(low, schema, "Minimum") else low + 1
    if "maximum" in integer:
        high = math.floor(integer["maximum"])
        integer["maximum"] = high if _is_within(high, schema, "Maximum") else high - 1
    return integer


def _enumerate(schema: dict[str, Any], low: float, high: float, limits: DecodingLimits) -> list[float]:
    """Return all numbers that satisfy a schema if they are few; for small models, a sample of many."""
    unit = schema.get("multipleOf")
    numbers: list[float] = []
    if not all(math.isfinite(number / (unit or 1)) for number in (low, high, high - low)):
        return []
    if unit is not None and 0 <= (high - low) / unit <= MAX_ENUM_LENGTH:
        numbers = _multiples(unit, range(math.ceil(low / unit), math.floor(high / unit) + 1))
    elif limits.is_small and unit is not None:
        numbers = _multiples(unit, [round(number / unit) for number in steps(low, high)])
    elif limits.is_small and schema["type"] == "number":
        numbers = steps(low, high)
    valid = [number for number in numbers if _is_within(number, schema, "Minimum", "Maximum")]
    if schema["type"] == "integer":
        valid = [int(number) for number in valid if number == int(number)]
    return list(dict.fromkeys(valid))


def _multiples(unit: float, counts: range | list[int]) -> list[float]:
    numbers = [count * unit for count in counts]
    return [number if isinstance(number, int) else float(f"{number:.12g}") for number in numbers]


def _is_within(number: float, schema: dict[str, Any], *ends: str) -> bool:
    """Return whether a number satisfies the bounds at the given ends, `Minimum` or `Maximum`."""
    for end in ends:
        sign = 1 if end == "Minimum" else -1
        if f"exclusive{end}" in schema and (number - schema[f"exclusive{end}"]) * sign <= 0:
            return False
        if end.lower() in schema and (number - schema[end.lower()]) * sign < 0:
            return False
    return True


# -- objects ------------------------------------------------------------------------------------------


def _object(schema: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    """Turn alternatives of required fields into alternatives of objects.

    For a small model, an op has only its required fields, because the model would fill optional ones at random.
    """
    for key in ("oneOf", "anyOf"):
        choices = schema.get(key)
        if choices and all(map(is_required_only, choices)):
            rest = {name: value for name, value in schema.items() if name != key}
            others = choices if key == "oneOf" else []
            named = sum(len(choice["required"]) for choice in others)
            limits.growth.add_characters(_FIELD_CHARACTERS * len(choices) * (len(schema["properties"]) + named))
            return {"anyOf": [_object(_apply_choice(rest, choice, others), limits) for choice in choices]}
    if limits.is_small and limits.is_op:
        required = set(schema.get("required", ()))
        needed = {name: field for name, field in schema["properties"].items() if name in required}
        return schema | {"properties": needed, "additionalProperties": False}
    if limits.is_small and schema["properties"].keys() >= set(schema.get("required", ())):
        return schema | {"additionalProperties": False}
    return schema


def _apply_choice(schema: dict[str, Any], choice: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the object with the fields of one choice, without fields that only other choices have."""
    required_names = {*choice["required"], *schema.get("required", ())}
    excluded = {name for other in others for name in other["required"]} - required_names
    fields = {name: field for name, field in schema["properties"].items() if name not in excluded}
    required = [*schema.get("required", ()), *(name for name in choice["required"] if name in fields)]
    return schema | {"properties": fields, "required": list(dict.fromkeys(required))}
