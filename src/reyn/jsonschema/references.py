"""Where does a reference lead? A schema whose parts refer to each other, by pointer, by anchor or by name, becomes one
whose references name the entries of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ONE = ("items", "additionalProperties")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_ADDRESSES = ("$id", "$anchor", "$schema", "$defs", "definitions")
_PREFIX = "#/$defs/"


def with_parts(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The schema with each of the schemas that it holds changed."""
    changed = dict(schema)
    for key in _ONE:
        if isinstance(changed.get(key), dict):
            changed[key] = change(changed[key])
    for key in _SEVERAL:
        if isinstance(changed.get(key), list):
            changed[key] = [change(part) for part in changed[key]]
    for key in _NAMED:
        if isinstance(changed.get(key), dict):
            changed[key] = {name: change(part) for name, part in changed[key].items()}
    return changed


def refers(schema: Any) -> bool:
    """Whether there is a reference in it, however deep."""
    return any("$ref" in part for part in _all_parts(schema))


def size_of(schema: Any) -> int:
    """How many schemas it is."""
    return sum(1 for _ in _all_parts(schema))


class Table:
    """`root` is the schema; `entries` what its references, and those of the entries, lead to. A reference that leads
    nowhere is left out."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.entries: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._resources = {part["$id"]: part for part in _all_parts(schema) if _is_resource(part)}
        self.root: dict[str, Any] = self._named(schema, schema)

    def entry(self, reference: str) -> Any:
        return self.entries[reference.removeprefix(_PREFIX)]

    def _named(self, schema: Any, home: dict[str, Any]) -> Any:
        """The schema with its references changed; `home` is the nearest around it with a name of its own."""
        if not isinstance(schema, dict):
            return schema
        home = schema if _is_resource(schema) else home
        bare = {key: value for key, value in schema.items() if key not in _ADDRESSES and key != "$ref"}
        if isinstance(bare.get("items"), list):  # as schemas of earlier drafts say it
            bare |= {"prefixItems": bare["items"], "items": bare.get("additionalItems", {})}
        named = with_parts(bare, lambda part: self._named(part, home))
        found = self._find(schema["$ref"], home) if isinstance(schema.get("$ref"), str) else None
        return named if found is None else {"$ref": self._reference(*found)} | named

    def _reference(self, target: Any, home: dict[str, Any]) -> str:
        key = id(target)
        if key not in self._names:
            name = self._names[key] = f"d{len(self._names)}"
            self.entries[name] = {}  # its place, while it is read
            self.entries[name] = self._named(target, home)
        return _PREFIX + self._names[key]

    def _find(self, reference: str, home: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """What a reference leads to, and the home of that."""
        address, _, words = reference.partition("#")
        words = unquote(words)
        if address:
            own = home["$id"] if _is_resource(home) else ""
            named = self._resources.get(address) or self._resources.get(urljoin(own, address))
            if named is None:
                return None
            home = named
        if not words or words.startswith("/"):
            return _walked(home, words.split("/")[1:])
        anchored = (part for part in _all_parts(home) if part.get("$anchor") == words)
        return next(((part, home) for part in anchored), None)


def _walked(home: dict[str, Any], words: list[str]) -> tuple[Any, dict[str, Any]] | None:
    found: Any = home
    for word in words:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and word.isdigit() and int(word) < len(found):
            found = found[int(word)]
        elif isinstance(found, dict) and word in found:
            found = found[word]
        else:
            return None
        home = found if _is_resource(found) else home
    return found, home


def _is_resource(schema: Any) -> bool:
    return isinstance(schema, dict) and isinstance(schema.get("$id"), str)


def _all_parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every schema in it."""
    if isinstance(schema, dict):
        yield schema
        inner: list[Any] = []
        with_parts(schema, inner.append)
        inner += schema["items"] if isinstance(schema.get("items"), list) else []
        for part in inner:
            yield from _all_parts(part)
