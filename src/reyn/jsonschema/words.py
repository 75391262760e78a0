"""A JSON Schema for readers: in words, for prompts, and as an example.

Small models read words better than JSON, so a schema is quoted only where words are not enough: nested objects,
alternatives, patterns. An example is a tool call for the model, or a reply to a question.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from reyn.jsonschema.validation import compile_schema
from reyn.texts import one_line

if TYPE_CHECKING:
    from reyn.jsonschema.references import Schema

_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}
_PLAIN_NAME = re.compile(r"[^\W\d][\w.-]{0,63}")
_KNOWN = {
    "type", "enum", "const", "description", "title", "default", "examples", "$comment", "format",
    "minLength", "maxLength", "minimum", "maximum", "items", "minItems", "maxItems", "uniqueItems",
}  # fmt: skip
_MAX_ENUM = 20


def describe_fields(schema: Schema) -> str | None:
    """Return the fields of an object on one line, in the author's order; `None` if words are not enough."""
    if not isinstance(schema, dict) or not schema.keys() <= _OBJECT_KEYS or schema.get("type", "object") != "object":
        return None
    required = schema.get("required", ())
    fields: list[str] = []
    for name, field in schema.get("properties", {}).items():
        words = _describe(field)
        if words is None:
            return None
        fields.append(f"{quoted_name(name)} ({words}{'' if name in required else ', optional'}){_note(field)}")
    known = schema.get("properties", {})
    if any(name not in known for name in required) or isinstance(schema.get("additionalProperties"), dict):
        return None
    return ", ".join(fields)


_OBJECT_KEYS = {
    "type", "properties", "required", "additionalProperties", "description", "title", "$schema", "$id", "$defs",
    "definitions", "$comment", "examples",
}  # fmt: skip


def either(names: list[str]) -> str:
    """Join names: `a, b or c`."""
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def quote_schema(schema: Schema) -> str:
    """Return a schema as JSON on one line, in the author's order."""
    return escape_line_ends(json.dumps(schema, ensure_ascii=False))


_LINE_ENDS = {end: f"\\u{ord(end):04x}" for end in "\u000b\u000c\u001c\u001d\u001e\u0085\u2028\u2029"}


def escape_line_ends(text: str) -> str:
    """Escape the line separators that JSON leaves as they are; in JSON text they occur inside strings only."""
    for end, escaped in _LINE_ENDS.items():  # a search for each is much cheaper than translating every character
        if end in text:
            text = text.replace(end, escaped)
    return text


def _describe(field: Any) -> str | None:
    if not isinstance(field, dict) or not field.keys() <= _KNOWN:
        return "any value" if field is True else None
    if "const" in field:
        return f"always {quoted_value(field['const'])}"
    if "enum" in field:
        values = field["enum"]
        return " or ".join(map(quoted_value, values)) if 0 < len(values) <= _MAX_ENUM else None
    kind = field.get("type")
    if isinstance(kind, list):
        words = [_describe(field | {"type": one}) for one in kind]
        return None if None in words else " or ".join(map(str, words))
    if kind == "array":
        items = _describe(field.get("items", {}))
        return None if items is None else f"list of {items}{_range(field, 'minItems', 'maxItems', 'items')}"
    if kind is None:
        return "any value" if not field.keys() - {"description", "title", "default", "examples"} else None
    if kind not in _TYPES:
        return None
    if kind == "string":
        form = f", {one_line(str(field['format']))}" if "format" in field else ""
        return f"text{form}{_range(field, 'minLength', 'maxLength', 'characters')}"
    return _TYPES[kind] + _range(field, "minimum", "maximum", "")


def _range(field: dict[str, Any], low: str, high: str, unit: str) -> str:
    least, most = field.get(low) or None, field.get(high)
    if low == "minimum":
        least = field.get(low)
    if low == "minLength" and least == 1:
        least = None  # a text is not empty unless the author says so
    words = {
        (True, True): f"{least} to {most}",
        (True, False): f"at least {least}",
        (False, True): f"at most {most}",
    }.get((least is not None, most is not None))
    return f", {words}{' ' + unit if unit else ''}" if words else ""


def quoted_name(name: str) -> str:
    """Return a name as it is if it is plain, otherwise as JSON."""
    return name if _PLAIN_NAME.fullmatch(name) else escape_line_ends(json.dumps(name, ensure_ascii=False))


def quoted_value(value: Any) -> str:
    """Return a value as JSON on one line."""
    return escape_line_ends(json.dumps(value, ensure_ascii=False))


def _note(field: Any) -> str:
    description = field.get("description") if isinstance(field, dict) else None
    return f": {one_line(description)}" if isinstance(description, str) and description.strip() else ""


# -- examples ---------------------------------------------------------------------------------------


_MAX_DEPTH = 12
_MAX_PARTS = 200
_MAX_EXAMPLE = 2_000
"""The parts and the bytes of a value that is made up: a person reads it. Without them, a schema decides."""


def example_of(schema: dict[str, Any], name: str = "") -> Any:
    """Return a value that is valid, or `None` if none could be made up: of a pattern, for instance, or a large size.

    Args:
        schema: The schema, with its own `$defs`.
        name: The name of the value; texts are called like it.
    """
    validator = compile_schema(schema)
    value = _Examples(schema.get("$defs", {})).of(schema, name)
    return value if len(json.dumps(value)) <= _MAX_EXAMPLE and validator.is_valid(value) else None


class _Examples:
    """Makes up values for schemas with the same definitions, of a bounded size."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._left = _MAX_PARTS

    def of(self, schema: Any, name: str, depth: int = 0) -> Any:
        self._left -= 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._left < 0:
            return name or "text"
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        if "$ref" in schema:
            return self.of(self._definitions.get(schema["$ref"].rpartition("/")[2]), name, depth + 1)
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return self.of(schema[key][0], name, depth + 1)
        kind = schema.get("type")
        match kind[0] if isinstance(kind, list) else kind:
            case "object":
                fields, required = schema.get("properties", {}), schema.get("required", ())[:_MAX_PARTS]
                return {key: self.of(fields.get(key, {}), key, depth + 1) for key in required}
            case "array":
                items = schema.get("items", {})
                parts = schema.get("prefixItems") or [items] * int(min(max(1, schema.get("minItems", 0)), _MAX_PARTS))
                return [self.of(item, name, depth + 1) for item in parts[:_MAX_PARTS]]
            case "integer" | "number":
                return _number(schema)
            case "boolean":
                return True
            case "null":
                return None
        text = name or "text"
        length = int(min(schema.get("minLength", 0), _MAX_EXAMPLE))
        return text.ljust(length, ".")[: int(min(schema.get("maxLength", _MAX_EXAMPLE), _MAX_EXAMPLE))]


def _number(schema: dict[str, Any]) -> Any:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    if low is not None:
        value = low + 1 if "exclusiveMinimum" in schema else low
    else:
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        value = 1 if high is None or high > 1 else high - 1 if "exclusiveMaximum" in schema else high
    step = schema.get("multipleOf")
    return value if not step else -(-value // step) * step
