"""The example answer in a prompt, and the detection of placeholders that were copied from it.

Small models follow an example better than a rule, but copy its values. So the example's strings are placeholders such
as `<title>`, and an answer that contains one is rejected.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.contract.candidates import Candidate
    from reyn.jsonschema import Schema

WHY = "<why, in one sentence>"
_MAX_DEPTH = 4
_MAX_ITEMS = 3
"""Maximum number of items in a list with a larger `minItems`."""
_MAX_VALUES = 200
"""After this many values, nested objects and lists are no longer expanded."""


def example_answer(candidates: tuple[Candidate, ...]) -> dict[str, Any]:
    """Return an example answer: the finish if the phase may finish, otherwise the first candidate.

    A model too small to choose copies the example's choice. With the finish, a loop ends instead of reaching its limit.
    """
    finishes = (candidate for candidate in candidates if candidate.control_type == "finish")
    candidate = next(finishes, candidates[0])
    finish = candidate.control_type == "finish"
    data = _ExampleBuilder(candidate.artifact_schema).value(candidate.artifact_schema, "value", _MAX_DEPTH)
    return {
        "control": {
            "type": candidate.control_type,
            "decision": "finish" if finish else "continue",
            "next_phase": None if finish else candidate.next_phase,
            "confidence": 0.8,
            "reason": {"summary": WHY},
        },
        "artifact": {"type": candidate.schema_name, "data": data},
    }


def copied_placeholder(value: Any, path: str) -> tuple[str, str] | None:
    """Return the path and the text of the first placeholder in a value, or `None`."""
    return next(_placeholders(value, path, ""), None)


def _placeholders(value: Any, path: str, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if value.strip() in (f"<{name}>", WHY):
            yield path, value.strip()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _placeholders(item, f"{path}.{key}", key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _placeholders(item, f"{path}[{index}]", name)


class _ExampleBuilder:
    """Builds an example of a schema. It satisfies the schema, except for constraints on strings."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._remaining = _MAX_VALUES

    def value(self, schema: Any, name: str, depth: int) -> Any:
        if not isinstance(schema, dict):
            return f"<{name}>"
        self._remaining -= 1
        depth = depth if self._remaining > 0 else 0
        schema = self._merged(schema, ())
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
        min_items, max_items = int(schema.get("minItems", 0)), int(schema.get("maxItems", _MAX_VALUES))
        prefix = [part for part in schema.get("prefixItems", ()) if part is not False][:max_items]
        values = [self.value(part, name, depth - 1) for part in prefix]
        items = schema.get("items", {})
        if items is False or (depth == 1 and self._is_object(items)):
            return values
        more = min(max(0 if values else 1, min(min_items, _MAX_ITEMS) - len(values)), max_items - len(values))
        return values + [self.value(items, name, depth - 1)] * more

    def _is_object(self, schema: Any) -> bool:
        return isinstance(schema, dict) and _kind_of(self._merged(schema, ())) == "object"

    def _merged(self, schema: dict[str, Any], visited: tuple[str, ...]) -> dict[str, Any]:
        """Merge `$ref`, `allOf` and the first non-null alternative of `anyOf` and `oneOf` into one schema."""
        merged = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
        reference = schema.get("$ref")
        parts = list(schema.get("allOf", ()))
        if isinstance(reference, str) and reference not in visited:
            parts.append(_resolve_pointer(self._root, reference))
            visited = (*visited, reference)
        for key in ("anyOf", "oneOf"):
            choices = [part for part in schema.get(key, ()) if isinstance(part, dict)]
            parts += [part for part in choices if part.get("type") != "null"][:1] or choices[:1]
        for part in parts:
            if isinstance(part, dict):
                merged = _merge(merged, self._merged(part, visited))
        return merged


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    merged = one | {key: value for key, value in other.items() if key not in one}
    if "properties" in one and "properties" in other:
        added = {name: field for name, field in other["properties"].items() if name not in one["properties"]}
        merged["properties"] = one["properties"] | added
    if "required" in one and "required" in other:
        merged["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return merged


def _resolve_pointer(root: Schema, reference: str) -> Any:
    target: Any = root if reference == "#" or reference.startswith("#/") else None
    for word in reference.split("/")[1:]:
        target = target.get(word.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


def _kind_of(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return str(kind[0]) if isinstance(kind, list) and kind else str(kind)


def _number(schema: dict[str, Any], multiple: float | None) -> float:
    """Return the minimum, or 1, or a nearby number that satisfies the bounds."""
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    multiple = schema.get("multipleOf", multiple)
    step = multiple or 1
    options: list[float] = [schema.get("minimum", 1), step, *highs]
    for bound in (*lows, *highs, 0):
        if multiple and math.isfinite(bound / step):
            first = math.ceil(bound / step) - 1
            options += [_rounded(count * step) for count in range(first, first + 3)]
        elif not multiple:
            options += [bound + 1, bound - 1]
    if lows and highs:
        options.append(max(lows) / 2 + min(highs) / 2)
    return next((number for number in options if _fits(number, schema, multiple)), options[0])


def _rounded(number: float) -> float:
    """Return a number without floating-point noise."""
    return number if isinstance(number, int) else float(f"{number:.12g}")


def _fits(number: float, schema: dict[str, Any], multiple: float | None) -> bool:
    low, high = schema.get("minimum", number), schema.get("maximum", number)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    if not (low <= number <= high and above < number < below):
        return False
    ratio = number / multiple if multiple else 0
    return math.isfinite(ratio) and math.isclose(ratio, round(ratio), abs_tol=1e-9)
