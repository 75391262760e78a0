"""Count the schemas that the references of a schema expand to.

Definitions that refer to the next one twice are a few lines; 26 of them expand to 67 million schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from reyn.jsonschema.references import is_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    Place = tuple[str | int, ...]

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DEFINITIONS = ("$defs", "definitions")


class _Part(NamedTuple):
    """A schema that is referred to: its place, the schemas in it without definitions, and what it refers to."""

    place: Place
    schemas: int
    targets: tuple[int, ...]


def oversized_part(schema: dict[str, Any], most: int) -> Place | None:
    """Return the place of a part that expands to more than `most` schemas, or `None`.

    A reference to a part that is being expanded is recursive and counts once.
    """
    parts = _Parts(schema)
    totals: dict[int, int] = {}
    pending, open_parts = [(id(schema), False)], set()
    while pending:
        key, is_expanded = pending.pop()
        if is_expanded:
            open_parts.discard(key)
            part = parts.get(key)
            totals[key] = part.schemas + sum(totals.get(target, 1) for target in part.targets)
            if totals[key] > most:
                return part.place
        elif key not in totals and key not in open_parts:
            open_parts.add(key)
            pending.append((key, True))
            pending.extend((target, False) for target in parts.get(key).targets)
    return None


class _Parts:
    """The parts of a schema by identity, read when they are first needed."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._found: dict[int, tuple[Place, Any]] = {id(schema): ((), schema)}
        self._parts: dict[int, _Part] = {}
        self._named: dict[str, tuple[Place, Any]] | None = None

    def get(self, key: int) -> _Part:
        if key not in self._parts:
            self._parts[key] = self._read(*self._found[key])
        return self._parts[key]

    def _read(self, place: Place, schema: Any) -> _Part:
        count, targets = 0, []
        for _, part in _walk(place, schema, with_definitions=False):
            count += 1
            for name in _REFERENCES:
                target = self._find(part[name]) if isinstance(part.get(name), str) else None
                if target is not None:
                    targets.append(id(target[1]))
                    self._found.setdefault(id(target[1]), target)
        return _Part(place, count, tuple(targets))

    def _find(self, reference: str) -> tuple[Place, Any] | None:
        """Return the target of a reference. An `$id` or anchor is looked up wherever it stands."""
        uri, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        base: tuple[Place, Any] | None = ((), self._root)
        if uri:
            base = self._names().get(uri.rpartition("/")[2])
        if base is not None and fragment.startswith("/"):
            return _follow(*base, fragment[1:].split("/"))
        return self._names().get(f"#{fragment}") if fragment else base

    def _names(self) -> dict[str, tuple[Place, Any]]:
        if self._named is None:
            self._named = {}
            for place, part in _walk((), self._root, with_definitions=True):
                for name in ("$anchor", "$dynamicAnchor"):
                    if isinstance(part.get(name), str):
                        self._named[f"#{part[name]}"] = (place, part)
                for name in ("$id", "id"):
                    if isinstance(part.get(name), str):
                        identifier, _, anchor = part[name].partition("#")
                        key = identifier.rpartition("/")[2] if identifier else f"#{anchor}"
                        self._named.setdefault(key, (place, part))
        return self._named


def _walk(place: Place, value: Any, *, with_definitions: bool) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield every mapping in a value, under any keyword."""
    pending: list[tuple[Place, Any]] = [(place, value)]
    while pending:
        here, found = pending.pop()
        if isinstance(found, dict):
            yield here, found
            for key, inner in found.items():
                if with_definitions or key not in _DEFINITIONS:
                    pending.append(((*here, key), inner))
        elif isinstance(found, list):
            pending.extend(((*here, number), inner) for number, inner in enumerate(found))


def _follow(place: Place, value: Any, words: list[str]) -> tuple[Place, Any] | None:
    for word in words:
        key = word.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            place, value = (*place, key), value[key]
        elif isinstance(value, list) and is_index(key) and int(key) < len(value):
            place, value = (*place, int(key)), value[int(key)]
        else:
            return None
    return place, value
