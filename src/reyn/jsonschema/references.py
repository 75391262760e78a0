"""Resolve the references of a schema.

References by JSON pointer, anchor or `$id` become references to the entries of one table of definitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SUBSCHEMA = ("items", "additionalProperties", "propertyNames")
_SUBSCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SUBSCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_IDENTIFIERS = ("$id", "$anchor", "$schema", "$defs", "definitions")
_PREFIX = "#/$defs/"


def map_subschemas(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the schema with a function applied to each of its direct subschemas."""
    changed = dict(schema)
    for key in _SUBSCHEMA:
        if isinstance(changed.get(key), dict):
            changed[key] = change(changed[key])
    for key in _SUBSCHEMA_LISTS:
        if isinstance(changed.get(key), list):
            changed[key] = [change(part) for part in changed[key]]
    for key in _SUBSCHEMA_MAPS:
        if isinstance(changed.get(key), dict):
            changed[key] = {name: change(part) for name, part in changed[key].items()}
    return changed


def has_references(schema: Any) -> bool:
    """Return whether a schema or a subschema has a `$ref`."""
    return any("$ref" in part for part in _subschemas(schema))


def count_subschemas(schema: Any) -> int:
    """Return the number of schemas in a schema, itself included."""
    return sum(1 for _ in _subschemas(schema))


class Definitions:
    """The targets of a schema's references. References without a target are dropped.

    Attributes:
        root: The schema, with references of the form `#/$defs/<name>`.
        entries: The definitions by name.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self.entries: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._resources = {part["$id"]: part for part in _subschemas(schema) if _is_resource(part)}
        self.root: dict[str, Any] = self._resolve(schema, schema)

    def entry(self, reference: str) -> Any:
        """Return the definition that a reference of the form `#/$defs/<name>` names."""
        return self.entries[reference.removeprefix(_PREFIX)]

    def _resolve(self, schema: Any, resource: dict[str, Any]) -> Any:
        """Return the schema with resolved references; `resource` is the nearest enclosing schema with an `$id`."""
        if not isinstance(schema, dict):
            return schema
        resource = schema if _is_resource(schema) else resource
        bare = {key: value for key, value in schema.items() if key not in _IDENTIFIERS and key != "$ref"}
        if isinstance(bare.get("items"), list):  # draft 7 and earlier
            bare |= {"prefixItems": bare["items"], "items": bare.get("additionalItems", {})}
        resolved = map_subschemas(bare, lambda part: self._resolve(part, resource))
        target = self._find(schema["$ref"], resource) if isinstance(schema.get("$ref"), str) else None
        return resolved if target is None else {"$ref": self._reference(*target)} | resolved

    def _reference(self, target: Any, resource: dict[str, Any]) -> str:
        """Return a reference to a target, which becomes a definition."""
        key = id(target)
        if key not in self._names:
            name = self._names[key] = f"d{len(self._names)}"
            self.entries[name] = {}  # a placeholder, because the target may refer to itself
            self.entries[name] = self._resolve(target, resource)
        return _PREFIX + self._names[key]

    def _find(self, reference: str, resource: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """Return the target of a reference and the resource that contains it."""
        uri, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if uri:
            base = resource["$id"] if _is_resource(resource) else ""
            named = self._resources.get(uri) or self._resources.get(urljoin(base, uri))
            if named is None:
                return None
            resource = named
        if not fragment or fragment.startswith("/"):
            return _follow_pointer(resource, fragment.split("/")[1:])
        anchored = (part for part in _subschemas(resource) if part.get("$anchor") == fragment)
        return next(((part, resource) for part in anchored), None)


def is_index(word: str) -> bool:
    """Return whether a part of a JSON pointer can be the index of an array; `int` refuses some texts of digits."""
    return word.isascii() and word.isdigit() and len(word) < 10


def _follow_pointer(resource: dict[str, Any], words: list[str]) -> tuple[Any, dict[str, Any]] | None:
    value: Any = resource
    for word in words:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and is_index(word) and int(word) < len(value):
            value = value[int(word)]
        elif isinstance(value, dict) and word in value:
            value = value[word]
        else:
            return None
        resource = value if _is_resource(value) else resource
    return value, resource


def _is_resource(schema: Any) -> bool:
    return isinstance(schema, dict) and isinstance(schema.get("$id"), str)


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all of its subschemas."""
    if isinstance(schema, dict):
        yield schema
        inner: list[Any] = []
        map_subschemas(schema, inner.append)
        inner += schema["items"] if isinstance(schema.get("items"), list) else []
        for part in inner:
            yield from _subschemas(part)
