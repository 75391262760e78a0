"""What is shown of a tool that an MCP server defines: to the person who accepts it, and to the model.

Texts are short and on one line, and below the arguments there are none. The schema has the structure only; a large one
loses its inner parts. A call is validated against the whole schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.jsonschema.references import Definitions
from reyn.texts import one_line, truncated

if TYPE_CHECKING:
    from reyn.ops.mcp.connections import McpToolDefinition

_MAX_SUMMARY = 500
_MAX_ARGUMENTS = 1_500
_MAX_ABOUT = 120
_MAX_VALUES = 20
_MAX_SCHEMA = 4_000
"""The characters of a schema that is shown."""
_MAX_NAME = 64
_MAX_VALUE = 200
_DEPTHS = (6, 4, 3, 2, 1)
_PLAIN = (
    "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip
_DEFINITIONS = "#/properties/args/$defs/"
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


class ShownTool(NamedTuple):
    """A tool as it is shown.

    Attributes:
        summary: Its description.
        arguments: Its arguments in words; empty if it has none.
        schema: The structure of its arguments.
        is_whole: Whether the words name every argument and every value.
    """

    summary: str
    arguments: str
    schema: dict[str, Any]
    is_whole: bool

    @property
    def inner(self) -> str:
        """The schema as JSON on one line, if it has more than the words say; empty if it has not."""
        parts = self.schema.get("properties", {}).values()
        is_plain = self.is_whole and all(part.keys() <= {"type", "enum", "const", "description"} for part in parts)
        return "" if is_plain and "$defs" not in self.schema else msgspec.json.encode(self.schema).decode()


def shown_to_model(server: str, tool: McpToolDefinition) -> ShownTool:
    """Return what a person and a model see of a tool, each text on one line."""
    summary = _line(tool.description, _MAX_SUMMARY) or f"The tool `{tool.name}` of `{server}`."
    root = Definitions({"type": "object"} | tool.input_schema)
    required = root.root.get("required", ())
    parts = root.root.get("properties", {}).items()
    words = ", ".join(_argument(name, part, root, is_required=name in required) for name, part in parts)
    line = _line(words, _MAX_ARGUMENTS)
    schema = _shown_schema(self_contained(tool.input_schema))
    is_whole = line == " ".join(words.split()) and not any(
        len(part.get("enum", ())) > _MAX_VALUES for part in schema.get("properties", {}).values()
    )
    return ShownTool(summary, f"args: {{{line}}}." if words else "", schema, is_whole)


def _argument(name: str, schema: Any, table: Definitions, *, is_required: bool) -> str:
    """Return an argument with its type or values, and the beginning of its description: `path: string (Where)`."""
    named = name if is_required else f"{name}?"
    if not isinstance(schema, dict):
        return named
    target = table.entry(schema["$ref"]) if "$ref" in schema else {}
    schema = (target if isinstance(target, dict) else {}) | schema
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind] if kind else []
    type_text = " | ".join([msgspec.json.encode(value).decode() for value in values[:_MAX_VALUES]] or kinds)
    about = _line(str(schema.get("description") or ""), _MAX_ABOUT)
    return named + (f": {type_text}" if type_text else "") + (f" ({about})" if about else "")


def _line(text: str, most: int) -> str:
    """Return a text on one line; a longer one ends with `…`."""
    return truncated(one_line(text), most)


def _shown_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the structure of a schema, as deep as there is room for it."""
    for depth in _DEPTHS:
        shown = _structure(schema, depth)
        for name, part in schema.get("properties", {}).items():
            about = _line(str(part.get("description") or ""), _MAX_ABOUT) if isinstance(part, dict) else ""
            if about and name in shown.get("properties", {}):
                shown["properties"][name]["description"] = about
        if definitions := _named(schema.get("$defs"), depth):
            shown["$defs"] = definitions
        if len(msgspec.json.encode(shown).decode()) <= _MAX_SCHEMA:
            return shown
    return {"type": "object"}


def _structure(schema: Any, depth: int) -> dict[str, Any]:
    """Return a schema without its texts, up to a depth."""
    if not isinstance(schema, dict):
        return {}
    shown = {key: schema[key] for key in _PLAIN if _is_plain(schema.get(key))}
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values and all(map(_is_value, values)):
        shown |= {"const": values[0]} if "const" in schema else {"enum": values}
    if depth == 0:
        return shown
    if str(schema.get("$ref", "")).startswith(_DEFINITIONS):
        shown["$ref"] = schema["$ref"]
    if properties := _named(schema.get("properties"), depth - 1):
        shown["properties"] = properties
        names = schema.get("required")
        shown["required"] = [name for name in properties if isinstance(names, list) and name in names]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            shown[key] = _structure(schema[key], depth - 1)
    for key in ("anyOf", "oneOf", "prefixItems"):
        if isinstance(schema.get(key), list):
            shown[key] = [_structure(part, depth - 1) for part in schema[key]]
    return shown


def _named(parts: Any, depth: int) -> dict[str, Any]:
    found = parts.items() if isinstance(parts, dict) else ()
    return {name: _structure(part, depth) for name, part in found if len(name) <= _MAX_NAME and name.isprintable()}


def _is_plain(value: Any) -> bool:
    """Return whether a value of a keyword is a number, or the name of a type or several."""
    if isinstance(value, list):
        return all(one in _TYPES for one in value)
    return isinstance(value, int | float) or value in _TYPES


def _is_value(value: Any) -> bool:
    """Return whether a value that an argument can have is shown: a short text on one line, or no text."""
    if isinstance(value, str):
        return len(value) <= _MAX_VALUE and value.isprintable()
    return value is None or isinstance(value, int | float)


def self_contained(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that can be part of another: references lead to definitions at `#/properties/args/$defs`."""
    table = Definitions({"type": "object"} | schema)
    root: dict[str, Any] = _moved(table.root)
    entries = {name: _moved(entry) for name, entry in table.entries.items()}
    return root | ({"$defs": entries} if entries else {})


def _moved(value: Any) -> Any:
    match value:
        case {"$ref": str(reference)} if reference.startswith("#/$defs/"):
            rest = {key: _moved(part) for key, part in value.items() if key != "$ref"}
            return {"$ref": _DEFINITIONS + reference.removeprefix("#/$defs/")} | rest
        case dict():
            return {key: _moved(part) for key, part in value.items()}
        case list():
            return [_moved(part) for part in value]
    return value
