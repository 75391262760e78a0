"""Walk schemas and follow their references.

`map_subschemas` is the one list of the places where a schema has subschemas. `Definitions` turns references by JSON
pointer, anchor or `$id` into references to one table. `expand` counts what references expand to: definitions
that refer to the next one twice are a few lines, and 26 of them expand to 67 million schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urljoin

if TYPE_CHECKING:
    Place = tuple[str | int, ...]

Schema = dict[str, Any] | bool

_VALUES = ("properties", "items", "prefixItems", "additionalProperties")
"""Keywords whose subschemas describe parts of the value."""
_SUBSCHEMAS = (*_VALUES, "anyOf", "oneOf", "allOf", "patternProperties", "$defs", "definitions")
_PARTS = (*_VALUES, "patternProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_DEFINITIONS = ("$defs", "definitions")
_IDENTIFIERS = ("$id", "$anchor", "$dynamicAnchor", "$schema", *_DEFINITIONS)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_PREFIX = "#/$defs/"
_BASE = "http://schema.invalid/"
"""The base of relative identifiers in a schema without one. It is in no result."""
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
    value, also behind a reference, but never inside a combinator, where a missing `required` would change which branch
    matches.
    """
    return schema if isinstance(schema, bool) else _Relaxed(schema).root


class _Relaxed:
    """A schema whose parts require nothing.

    What it refers to is copied, because a combinator may refer to it, too. A copy is a definition of the resource, the
    nearest schema with an `$id`, that contains the original, so that the references in both lead to the same places.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        document: dict[str, Any] = deepcopy(schema)
        self._resources = _Resources(document)
        self._copies: dict[tuple[int, bool], str] = {}
        self._added: dict[int, dict[str, Any]] = {}
        self._pending: list[tuple[str, Any, dict[str, Any], bool]] = []
        relaxed = self._relax_parts(document, document, is_top=True)
        while self._pending:  # a chain of definitions may be longer than the recursion limit
            name, target, home, is_top = self._pending.pop()
            self._definitions(home)[name] = self._relax(target, home, is_top=is_top)
        for home in self._resources.all:
            if added := self._added.get(id(home)):
                holder = relaxed if home is document else home
                holder["$defs"] = {**holder.get("$defs", {}), **added}
        self.root = relaxed

    def _relax(self, schema: Any, home: dict[str, Any], *, is_top: bool = False) -> Any:
        if not isinstance(schema, dict):
            return schema
        if self._resources.is_resource(schema):  # it stays, for what refers to it by its `$id`
            self._definitions(self._resources.root)[f"original-{len(self._copies)}"] = schema
            return {"$ref": self._copy(schema, schema, home, is_top=is_top)}
        return self._relax_parts(schema, home, is_top=is_top)

    def _relax_parts(self, schema: dict[str, Any], home: dict[str, Any], *, is_top: bool = False) -> dict[str, Any]:
        kept = schema if is_top else _without_demands(schema)
        relaxed = map_subschemas(kept, lambda part: self._relax(part, home), _PARTS)
        for name in self._resources.references:
            found = self._resources.find(relaxed[name], home) if isinstance(relaxed.get(name), str) else None
            if found is not None:
                del relaxed[name]
                relaxed["$ref"] = self._copy(*found, home, is_top=is_top)
                break
        return relaxed

    def _copy(self, target: Any, home: dict[str, Any], source: dict[str, Any], *, is_top: bool) -> str:
        """Return a reference from a resource to a relaxed copy of a target in another one, or in the same."""
        key = (id(target), is_top)
        if key not in self._copies:
            name = self._copies[key] = f"lenient-{len(self._copies)}"
            self._definitions(home)[name] = {}
            bare = target
            if isinstance(target, dict):
                bare = {word: part for word, part in target.items() if word not in _IDENTIFIERS}
            self._pending.append((name, bare, home, is_top))
        return f"{'' if home is source else self._resources.uri(home)}{_PREFIX}{self._copies[key]}"

    def _definitions(self, home: dict[str, Any]) -> dict[str, Any]:
        return self._added.setdefault(id(home), {})


class _Resources:
    """The resources of a schema: itself, and the schemas in it with an `$id`.

    Attributes:
        root: The schema.
        all: The resources.
        references: The keywords that refer to a schema. Where the dynamic scope decides, `$ref` alone is followed.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self.root = schema
        self._uris: dict[int, str] = {}
        self._named: dict[str, dict[str, Any]] = {}
        self._anchors: dict[tuple[int, str], Any] = {}
        self.all: list[dict[str, Any]] = []
        self._read(schema, schema, _BASE)
        self.references = _REFERENCES if len(self.all) == 1 else ("$ref",)

    def is_resource(self, schema: dict[str, Any]) -> bool:
        identifier = schema.get("$id")
        return isinstance(identifier, str) and not identifier.startswith("#")

    def uri(self, home: dict[str, Any]) -> str:
        """Return the URI of a resource, which is valid in every other one."""
        return self._uris[id(home)].removeprefix(_BASE.rstrip("/"))

    def find(self, reference: str, home: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """Return the target of a reference in a resource, and the resource that contains the target."""
        uri, _, fragment = reference.partition("#")
        found = self._named.get(urljoin(self._uris[id(home)], uri)) if uri else home
        fragment = unquote(fragment)
        if found is None or not fragment:
            return None if found is None else (found, found)
        if not fragment.startswith("/"):
            target = self._anchors.get((id(found), fragment))
            return None if target is None else (target, found)
        steps = _follow(found, fragment)
        if steps is None:
            return None
        inner = [part for _, part in steps if isinstance(part, dict) and self.is_resource(part)]
        return steps[-1][1], inner[-1] if inner else found

    def _read(self, value: Any, home: dict[str, Any], base: str) -> None:
        if isinstance(value, dict):
            if value is self.root or self.is_resource(value):
                home, base = value, urljoin(base, value.get("$id", "")).partition("#")[0]
                self.all.append(home)
                self._uris[id(home)] = base
                self._named.setdefault(base, home)
            for name in ("$anchor", "$dynamicAnchor", "$id"):  # an anchor of draft 7 is an `$id`
                if isinstance(anchor := value.get(name), str) and (name != "$id" or anchor.startswith("#")):
                    self._anchors.setdefault((id(home), anchor.removeprefix("#")), value)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            self._read(inner, home, base)


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
        self._resources = _Resources(schema)
        self._pending: list[tuple[str, Any, dict[str, Any]]] = []
        self.root: dict[str, Any] = self._resolve(schema, schema)
        while self._pending:  # a chain of definitions may be longer than the recursion limit
            name, target, resource = self._pending.pop()
            self.entries[name] = self._resolve(target, resource)

    def entry(self, reference: str) -> Any:
        """Return the definition that a reference of the form `#/$defs/<name>` names."""
        return self.entries[reference.removeprefix(_PREFIX)]

    def _resolve(self, schema: Any, resource: dict[str, Any]) -> Any:
        """Return the schema with resolved references; `resource` is the nearest enclosing schema with an `$id`."""
        if not isinstance(schema, dict):
            return schema
        resource = schema if self._resources.is_resource(schema) else resource
        bare = {key: value for key, value in schema.items() if key not in _IDENTIFIERS and key != "$ref"}
        if isinstance(bare.get("items"), list):  # draft 7 and earlier
            bare |= {"prefixItems": bare["items"], "items": bare.get("additionalItems", {})}
        resolved = map_subschemas(bare, lambda part: self._resolve(part, resource))
        target = self._resources.find(schema["$ref"], resource) if isinstance(schema.get("$ref"), str) else None
        return resolved if target is None else {"$ref": self._reference(*target)} | resolved

    def _reference(self, target: Any, resource: dict[str, Any]) -> str:
        """Return a reference to a target, which becomes a definition."""
        key = id(target)
        if key not in self._names:
            name = self._names[key] = f"d{len(self._names)}"
            self.entries[name] = {}
            self._pending.append((name, target, resource))
        return _PREFIX + self._names[key]


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
