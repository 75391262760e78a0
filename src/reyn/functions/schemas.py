"""Shape the JSON Schemas of Python types: collect definitions, inline those used once, drop generated titles.

A model reads these schemas, so they hold what constrains or explains a value and nothing else.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX = "#/$defs/"
_MAPS = ("properties", "patternProperties", "$defs", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")


class Definitions:
    """The named schemas of one document. Each gets a name of its own, also if two types have the same name."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}

    def reserve(self, name: str) -> str:
        """Return a free name and reserve it."""
        number, free = 1, name
        while free in self.schemas:
            number += 1
            free = f"{name}_{number}"
        self.schemas[free] = True
        return free

    def take(self, schema: dict[str, Any]) -> Any:
        """Move the definitions of a schema here; return the schema with its references adapted."""
        own = schema.get("$defs", {})
        names = {name: self.reserve(name) for name in own}
        renamed = {_PREFIX + old: _PREFIX + new for old, new in names.items()}
        for old, new in names.items():
            self.schemas[new] = _with_references(own[old], renamed)
        return _with_references({key: part for key, part in schema.items() if key != "$defs"}, renamed)


def reference(name: str) -> dict[str, Any]:
    """Return a reference to a definition."""
    return {"$ref": _PREFIX + name}


def tidy(schema: Any, definitions: dict[str, Any] | None = None) -> Any:
    """Return a schema without titles, whose definitions are inlined unless they are recursive or used several times."""
    schema = _without_titles(schema)
    if not isinstance(schema, dict):
        return schema
    found = {name: _without_titles(part) for name, part in (definitions or schema.get("$defs") or {}).items()}
    schema = {key: part for key, part in schema.items() if key != "$defs"}
    uses = Counter(_names(schema))
    for part in found.values():
        uses.update(_names(part))
    recursive = {name for name in found if _reaches(name, found)}
    inlined = {name for name in found if name not in recursive and (uses[name] == 1 or _is_small(found[name]))}

    def inline(part: Any) -> Any:
        if isinstance(part, dict) and (name := _name(part)) in inlined:
            # What stands beside a reference (a description, a default) is more specific than the definition.
            return inline(found[name]) | {key: value for key, value in part.items() if key != "$ref"}
        return _mapped(part, inline)

    result: dict[str, Any] = inline(schema)
    left = {name: inline(part) for name, part in found.items() if name not in inlined and uses[name]}
    if len(left) == 1 and (name := _name(result)) in left and len(result) == 1:
        return {**left[name], "$defs": left}
    return result | ({"$defs": left} if left else {})


def _is_small(schema: Any) -> bool:
    """Return whether a definition is shorter than a reference would be clear: an enumeration or a simple type."""
    return isinstance(schema, dict) and "properties" not in schema and not list(_names(schema))


def _reaches(name: str, found: dict[str, Any]) -> bool:
    seen: set[str] = set()
    rest = list(_names(found[name]))
    while rest:
        other = rest.pop()
        if other == name:
            return True
        if other not in seen and other in found:
            seen.add(other)
            rest += _names(found[other])
    return False


def _name(part: Any) -> str:
    target = part.get("$ref") if isinstance(part, dict) else None
    return target.removeprefix(_PREFIX) if isinstance(target, str) and target.startswith(_PREFIX) else ""


def _names(schema: Any) -> list[str]:
    """Return the names of all definitions that a schema refers to, once per reference."""
    names: list[str] = []

    def visit(part: Any) -> Any:
        if name := _name(part):
            names.append(name)
        if isinstance(part, dict) and isinstance(mapping := part.get("discriminator"), dict):
            names.extend(str(one).removeprefix(_PREFIX) for one in mapping.get("mapping", {}).values())
        return _mapped(part, visit)

    visit(schema)
    return names


def _with_references(schema: Any, renamed: dict[str, str]) -> Any:
    def visit(part: Any) -> Any:
        if isinstance(part, dict) and part.get("$ref") in renamed:
            part = part | {"$ref": renamed[part["$ref"]]}
        return _mapped(part, visit)

    return visit(schema)


def _without_titles(schema: Any) -> Any:
    def visit(part: Any) -> Any:
        if isinstance(part, dict):
            # `discriminator` is an OpenAPI keyword whose references would have to follow every renaming.
            part = {key: value for key, value in part.items() if key not in ("title", "discriminator")}
        return _mapped(part, visit)

    return visit(schema)


def _mapped(schema: Any, change: Callable[[Any], Any]) -> Any:
    """Return a schema with `change` applied to its direct sub-schemas; values such as `default` are left alone."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    for key in _MAPS:
        if isinstance(schema.get(key), dict):
            changed[key] = {name: change(part) for name, part in schema[key].items()}
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            changed[key] = [change(part) for part in schema[key]]
    for key in _SINGLE:
        if isinstance(schema.get(key), dict):
            changed[key] = change(schema[key])
    return changed
