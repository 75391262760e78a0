"""One example of an answer, built from the candidates themselves, and the placeholders in it that must not come back.

A small model follows an example better than a rule, and copies from it; so its texts are marked, and an answer that
still holds one of the marks is rejected.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.contract.candidates import Candidate
    from reyn.jsonschema import Schema

WHY = "<why, in one sentence>"
_DEEPEST = 4
_MOST_SHOWN = 3
"""Entries of a list that must have more."""
_MOST_VALUES = 200
"""What is larger is shown less deep."""


def example_answer(candidates: tuple[Candidate, ...]) -> dict[str, Any]:
    """The answer that chooses a candidate: the finish where there is one. A model too small to choose takes what it is
    shown, and a loop then ends instead of going round until its limit."""
    candidate = next((one for one in candidates if one.control_type == "finish"), candidates[0])
    finish = candidate.control_type == "finish"
    shown = _Showing(candidate.artifact_schema).value(candidate.artifact_schema, "value", _DEEPEST)
    return {
        "control": {
            "type": candidate.control_type,
            "decision": "finish" if finish else "continue",
            "next_phase": None if finish else candidate.next_phase,
            "confidence": 0.8,
            "reason": {"summary": WHY},
        },
        "artifact": {"type": candidate.schema_name, "data": shown},
    }


def copied_placeholder(value: Any, path: str) -> tuple[str, str] | None:
    """Where a placeholder of an example stands in a value, and which."""
    return next(_copied(value, path, ""), None)


def _copied(value: Any, path: str, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if value.strip() in (f"<{name}>", WHY):
            yield path, value.strip()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _copied(item, f"{path}.{key}", key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _copied(item, f"{path}[{index}]", name)


class _Showing:
    """A value that shows the shape of a schema, and satisfies it as far as its marks can. What a schema refers to is
    looked up in itself."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_VALUES

    def value(self, schema: Any, name: str, depth: int) -> Any:
        if not isinstance(schema, dict):
            return f"<{name}>"
        self._left -= 1
        depth = depth if self._left > 0 else 0
        schema = self._whole(schema, ())
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        match _kind_of(schema):
            case "object":
                return self._object(schema, depth) if depth else f"<{name}>"
            case "array":
                return self._array(schema, name, depth) if depth else []
            case "integer":
                return _number(schema, 1)
            case "number":
                return _number(schema, schema.get("multipleOf"))
            case "boolean":
                return True
            case "null":
                return None
        return f"<{name}>"

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        fields = {name: field for name, field in schema.get("properties", {}).items() if field is not False}
        required = schema.get("required") or list(fields)
        return {name: self.value(fields[name], name, depth - 1) for name in fields if name in required}

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", _MOST_VALUES))
        listed = [part for part in schema.get("prefixItems", ()) if part is not False][:most]
        shown = [self.value(part, name, depth - 1) for part in listed]
        items = schema.get("items", {})
        if items is False or (depth == 1 and self._is_object(items)):
            return shown
        more = min(max(0 if shown else 1, min(least, _MOST_SHOWN) - len(shown)), most - len(shown))
        return shown + [self.value(items, name, depth - 1)] * more

    def _is_object(self, schema: Any) -> bool:
        return isinstance(schema, dict) and _kind_of(self._whole(schema, ())) == "object"

    def _whole(self, schema: dict[str, Any], seen: tuple[str, ...]) -> dict[str, Any]:
        """What a schema says in parts and by reference, and the first of its alternatives that is not nothing."""
        whole = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
        reference = schema.get("$ref")
        parts = list(schema.get("allOf", ()))
        if isinstance(reference, str) and reference not in seen:
            parts.append(_at(self._root, reference))
            seen = (*seen, reference)
        for key in ("anyOf", "oneOf"):
            choices = [part for part in schema.get(key, ()) if isinstance(part, dict)]
            parts += [part for part in choices if part.get("type") != "null"][:1] or choices[:1]
        for part in parts:
            if isinstance(part, dict):
                whole = _joined(whole, self._whole(part, seen))
        return whole


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    joined = one | {key: value for key, value in other.items() if key not in one}
    if "properties" in one and "properties" in other:
        added = {name: field for name, field in other["properties"].items() if name not in one["properties"]}
        joined["properties"] = one["properties"] | added
    if "required" in one and "required" in other:
        joined["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return joined


def _at(root: Schema, reference: str) -> Any:
    found: Any = root if reference == "#" or reference.startswith("#/") else None
    for word in reference.split("/")[1:]:
        found = found.get(word.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _kind_of(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return str(kind[0]) if isinstance(kind, list) and kind else str(kind)


def _number(schema: dict[str, Any], measure: float | None) -> float:
    """The least that is allowed, or 1, or the nearest to them that fits."""
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    measure = schema.get("multipleOf", measure)
    step = measure or 1
    tried: list[float] = [schema.get("minimum", 1), step, *highs]
    for bound in (*lows, *highs, 0):
        if measure and math.isfinite(bound / step):
            tried += [_plain(count * step) for count in range(math.ceil(bound / step) - 1, math.ceil(bound / step) + 2)]
        elif not measure:
            tried += [bound + 1, bound - 1]
    if lows and highs:
        tried.append(max(lows) / 2 + min(highs) / 2)
    return next((number for number in tried if _fits(number, schema, measure)), tried[0])


def _plain(number: float) -> float:
    """Without the noise of its last digits."""
    return number if isinstance(number, int) else float(f"{number:.12g}")


def _fits(number: float, schema: dict[str, Any], measure: float | None) -> bool:
    low, high = schema.get("minimum", number), schema.get("maximum", number)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    if not (low <= number <= high and above < number < below):
        return False
    counted = number / measure if measure else 0
    return math.isfinite(counted) and math.isclose(counted, round(counted), abs_tol=1e-9)
