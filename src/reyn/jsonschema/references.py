"""Walk schemas and follow their references.

`map_subschemas` is the one list of the places where a schema has subschemas. `Definitions` turns references by JSON
pointer, anchor or `$id` into references to one table. `expand` counts what references expand to: definitions
that refer to the next one twice are a few lines, and 26 of them expand to 67 million schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urljoin

if TYPE_CHECKING:
    Place = tuple[str | int, ...]

Schema = dict[str, Any] | bool

_VALUES = ("properties", "items", "prefixItems", "additionalProperties")
"""Keywords whose subschemas describe parts of the value."""
_SUBSCHEMAS = (*_VALUES, "anyOf", "oneOf", "allOf", "patternProperties", "$defs", "definitions")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_DEFINITIONS = ("$defs", "definitions")
_IDENTIFIERS = ("$id", "$anchor", "$schema", *_DEFINITIONS)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_PREFIX = "#/$defs/"
_DEMANDS = ("required", "dependentRequired")


def map_subschemas(
    schema: dict[str, Any], change: Callable[[Any], Any], keywords: Collection[str] = _SUBSCHEMAS
) -> dict[str, Any]:
    """Return the schema with a function applied to each of its direct subschemas, under some keywords."""
    changed = dict(schema)
    for key in keywords:
        part = changed.get(key)
        if isinstance(part, list):
            changed[key] = [change(one) for one in part]
        elif isinstance(part, dict):
            changed[key] = {name: change(one) for name, one in part.items()} if key in _MAPS else change(part)
    return changed


def lenient(schema: Schema) -> Schema:
    """Return the schema with `required` and `dependentRequired` kept at the top level only, for the default mode.

    So are lists of fields in `dependencies`, their older form. They are dropped in the schemas of all parts of the
    value, also behind a `$ref` by JSON pointer, but never inside a combinator, where a missing `required` would change
    which branch matches.
    """
    return schema if isinstance(schema, bool) else _Relaxed(schema).root


class _Relaxed:
    """A schema whose parts require nothing. What it refers to is copied: a combinator may refer to it, too."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._copies: dict[tuple[str, bool], str] = {}
        self._definitions: dict[str, Any] = {}
        # The pointers in a resource of its own begin there.
        self._follows = not any(_is_resource(part) for part in _subschemas(schema) if part is not schema)
        self.root: dict[str, Any] = self._relax(schema, is_top=True)
        if self._definitions:
            self.root["$defs"] = {**self.root.get("$defs", {}), **self._definitions}

    def _relax(self, schema: Any, *, is_top: bool = False) -> Any:
        if not isinstance(schema, dict):
            return schema
        kept = schema if is_top else _without_demands(schema)
        relaxed = map_subschemas(kept, self._relax, (*_VALUES, "patternProperties"))
        reference = relaxed.get("$ref")
        if self._follows and isinstance(reference, str) and reference.startswith("#"):
            relaxed["$ref"] = self._copy(reference, is_top=is_top) or reference
        return relaxed

    def _copy(self, reference: str, *, is_top: bool) -> str | None:
        """Return a reference to a relaxed copy of a definition; `None` if it is not found by its pointer."""
        pointer = unquote(reference[1:])
        steps = _follow(self._schema, pointer) if not pointer or pointer.startswith("/") else None
        if steps is None:
            return None
        key = (pointer, is_top)
        if key not in self._copies:
            name = self._copies[key] = f"lenient-{len(self._copies)}"
            self._definitions[name] = self._relax(steps[-1][1] if steps else self._schema, is_top=is_top)
        return _PREFIX + self._copies[key]


def _without_demands(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in _DEMANDS}
    if isinstance(older := kept.get("dependencies"), dict):
        kept["dependencies"] = {name: part for name, part in older.items() if not isinstance(part, list)}
    return kept


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
            steps = _follow(resource, fragment)
            if steps is None:
                return None
            enclosing = [value for _, value in steps if _is_resource(value)]
            return (steps[-1][1] if steps else resource), (enclosing[-1] if enclosing else resource)
        anchored = (part for part in _subschemas(resource) if part.get("$anchor") == fragment)
        return next(((part, resource) for part in anchored), None)


def _follow(value: Any, pointer: str) -> list[tuple[str | int, Any]] | None:
    """Return the keys and values that a JSON pointer leads through; `None` if it leads nowhere."""
    steps: list[tuple[str | int, Any]] = []
    for word in pointer.split("/")[1:]:
        key: str | int = word.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and word.isascii() and word.isdigit() and len(word) < 10:
            key = int(word)  # which refuses longer texts
        try:
            value = value[key]
        except (IndexError, KeyError, TypeError):
            return None
        steps.append((key, value))
    return steps


def _is_resource(schema: Any) -> bool:
    return isinstance(schema, dict) and isinstance(schema.get("$id"), str)


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all of its subschemas."""
    if isinstance(schema, dict):
        yield schema
        inner: list[Any] = []
        map_subschemas(schema, inner.append)
        for part in inner:
            yield from _subschemas(part)


# -- expansion ----------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A schema that is referred to: its place, its weight without definitions, and what it refers to."""

    place: Place
    weight: int
    targets: tuple[int, ...]


class Expansion(NamedTuple):
    """What the references of a schema expand to.

    Attributes:
        weight: The weight of all schemas.
        place: A part that is too heavy; `None` if there is none.
        is_recursive: Whether a part refers to itself.
    """

    weight: int
    place: Place | None
    is_recursive: bool


def count_one(schema: dict[str, Any]) -> int:
    """Weigh every schema the same."""
    return 1


def expand(schema: dict[str, Any], most: int, weigh: Callable[[dict[str, Any]], int] = count_one) -> Expansion:
    """Weigh what a schema expands to, up to the first part that weighs more than `most`.

    A reference to a part that is being expanded is recursive and counts once.
    """
    parts = _Parts(schema, weigh)
    totals: dict[int, int] = {}
    pending, open_parts, is_recursive = [(id(schema), False)], set(), False
    while pending:
        key, is_expanded = pending.pop()
        if is_expanded:
            open_parts.discard(key)
            part = parts.get(key)
            totals[key] = part.weight + sum(totals.get(target, 1) for target in part.targets)
            if totals[key] > most:
                return Expansion(totals[key], part.place, is_recursive)
        elif key in open_parts:
            is_recursive = True
        elif key not in totals:
            open_parts.add(key)
            pending.append((key, True))
            pending.extend((target, False) for target in parts.get(key).targets)
    return Expansion(totals[id(schema)], None, is_recursive)


class ReferenceTargets:
    """Finds what the references of a schema lead to. An `$id` or anchor is looked up wherever it stands."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._named: dict[str, tuple[Place, Any]] | None = None

    def of(self, schema: dict[str, Any]) -> list[tuple[Place, Any]]:
        """Return the place and the target of each reference of a schema, without those of its subschemas."""
        found = (self._find(schema[name]) for name in _REFERENCES if isinstance(schema.get(name), str))
        return [target for target in found if target is not None]

    def _find(self, reference: str) -> tuple[Place, Any] | None:
        uri, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        base: tuple[Place, Any] | None = ((), self._root)
        if uri:
            base = self._names().get(uri.rpartition("/")[2])
        if base is not None and fragment.startswith("/"):
            steps = _follow(base[1], fragment)
            place = (*base[0], *(key for key, _ in steps or ()))
            return None if steps is None else (place, steps[-1][1])
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


class _Parts:
    """The parts of a schema by identity, read when they are first needed."""

    def __init__(self, schema: dict[str, Any], weigh: Callable[[dict[str, Any]], int]) -> None:
        self._weigh = weigh
        self._targets = ReferenceTargets(schema)
        self._found: dict[int, tuple[Place, Any]] = {id(schema): ((), schema)}
        self._parts: dict[int, _Part] = {}

    def get(self, key: int) -> _Part:
        if key not in self._parts:
            self._parts[key] = self._read(*self._found[key])
        return self._parts[key]

    def _read(self, place: Place, schema: Any) -> _Part:
        weight, targets = 0, []
        for _, part in _walk(place, schema, with_definitions=False):
            weight += self._weigh(part)
            for target in self._targets.of(part):
                targets.append(id(target[1]))
                self._found.setdefault(id(target[1]), target)
        return _Part(place, weight, tuple(targets))


def all_schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping in a schema, definitions included."""
    return (part for _, part in _walk((), schema, with_definitions=True))


def _walk(place: Place, value: Any, *, with_definitions: bool) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield every mapping in a value, under any keyword."""
    pending: list[tuple[Place, Any]] = [(place, value)]
    while pending:
        here, found = pending.pop()
        if isinstance(found, dict):
            yield here, found
            for key, inner in found.items():
                # In `properties`, `$defs` is the name of a property.
                if with_definitions or key not in _DEFINITIONS or (here and here[-1] in _MAPS):
                    pending.append(((*here, key), inner))
        elif isinstance(found, list):
            pending.extend(((*here, number), inner) for number, inner in enumerate(found))
