"""Flatten a schema for grammar converters, which support fewer keywords than a validator.

Merges `allOf`, pushes sibling keywords into every branch of `anyOf` and `oneOf`, and optionally unrolls recursive
`$ref`s to a fixed depth. The result may accept more than the original, which the contract validates answers against.
"""

from __future__ import annotations

from math import lcm
from typing import Any

import msgspec

from reyn.jsonschema.cost import encoded
from reyn.jsonschema.growth import Growth
from reyn.jsonschema.references import Definitions, count_subschemas, has_references, map_subschemas

_LOWER_BOUNDS = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_UPPER_BOUNDS = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
SUPPORTED_KEYWORDS = (
    "type", "properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems", "minItems",
    "maxItems", "minLength", "maxLength", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern",
)  # fmt: skip
"""Keywords that grammar converters support, or that can be rewritten into such. All others are dropped."""
_BRANCHES = ("anyOf", "oneOf")
_MAX_UNROLL_DEPTH = 2
_MAX_SUBSCHEMAS = 2_000
"""A schema that would exceed this without references keeps them."""


def flatten(schema: dict[str, Any], *, unroll: bool, growth: Growth | None = None) -> dict[str, Any]:
    """Return a flat schema with the targets of its references in `$defs`.

    Args:
        schema: The schema.
        unroll: Whether to replace references by their targets, to a fixed depth. Branches that need more keep theirs.
        growth: Counts what is produced; by default, a count of its own.

    Raises:
        SchemaTooLarge: The flat schema would be too large.
    """
    growth = growth or Growth(len(encoded(schema)))
    table = Definitions(schema)
    merger = _Merger(table, growth)
    flat: dict[str, Any] = merger.merge(table.root, frozenset())
    entries = {name: merger.merge(entry, frozenset({f"#/$defs/{name}"})) for name, entry in table.entries.items()}
    table.entries = entries
    if unroll and has_references(flat):
        flat = _unroll(flat, table, growth)
    return flat | {"$defs": entries} if has_references(flat) else flat


def is_required_only(schema: Any) -> bool:
    """Return whether a schema only lists required fields of an object."""
    return isinstance(schema, dict) and "required" in schema and schema.keys() <= {"required", "type"}


class _Merger:
    """Merges `allOf`, references with siblings, and branches with siblings, within a budget of subschemas."""

    def __init__(self, table: Definitions, growth: Growth) -> None:
        self._table = table
        self._growth = growth
        self._budget = _MAX_SUBSCHEMAS + 4 * (
            count_subschemas(table.root) + sum(map(count_subschemas, table.entries.values()))
        )

    def merge(self, schema: Any, enclosing: frozenset[str]) -> Any:
        """Merge a schema and its subschemas; references to `enclosing` definitions are recursive and stay."""
        if not isinstance(schema, dict):
            return schema
        if (reference := _sole_reference(schema)) is not None:
            return {"$ref": reference}
        followed: set[str] = set()
        merged = self._merge_level(schema, enclosing, (), followed)
        if self._budget > 0:
            merged = _distribute(merged)
        return map_subschemas(merged, lambda part: self.merge(part, enclosing | followed))

    def _merge_level(
        self, schema: dict[str, Any], enclosing: frozenset[str], chain: tuple[str, ...], followed: set[str]
    ) -> dict[str, Any]:
        """Merge `$ref` and `allOf` into one level; a reference that is already in `chain` adds nothing."""
        self._budget -= 1
        self._growth.add(schema)
        own = {
            key: value for key, value in schema.items() if key in SUPPORTED_KEYWORDS and key not in ("allOf", "$ref")
        }
        parts = [{"$ref": schema["$ref"]}] if "$ref" in schema else []
        parts += [part for part in schema.get("allOf", ()) if isinstance(part, dict)]
        for part in parts:
            target, target_chain, reference = part, chain, _sole_reference(part)
            if reference in chain:
                continue
            self._budget -= 1
            if reference in enclosing or (reference is not None and self._budget <= 0):
                return {"$ref": reference}  # recursive, or over budget: its siblings are dropped
            if reference is not None:
                followed.add(reference)
                target, target_chain = self._table.entry(reference), (*chain, reference)
            if isinstance(target, dict):
                inner = self._merge_level(target, enclosing, target_chain, followed)
                if inner.keys() == {"$ref"}:
                    return inner
                if self._budget <= 0:  # products of branches are what grows
                    inner = {key: value for key, value in inner.items() if key not in own or key not in _BRANCHES}
                own = _intersection(own, inner)
                self._growth.add(own)
        return own


def _sole_reference(schema: dict[str, Any]) -> str | None:
    """Return the reference of a schema that has nothing else, or `None`."""
    own = {key: value for key, value in schema.items() if key in SUPPORTED_KEYWORDS}
    if own.keys() == {"allOf"} and len(own["allOf"]) == 1 and isinstance(own["allOf"][0], dict):
        return _sole_reference(own["allOf"][0])
    return own["$ref"] if own.keys() == {"$ref"} else None


def _distribute(schema: dict[str, Any]) -> dict[str, Any]:
    """Push the siblings of `anyOf` or `oneOf` into every branch; drop branches whose type they exclude."""
    for key in _BRANCHES:
        siblings = {name: value for name, value in schema.items() if name != key}
        if key in schema and siblings and not all(is_required_only(part) for part in schema[key]):
            possible = [part for part in schema[key] if _types_overlap(part, siblings)]
            return {key: [{"allOf": [part, siblings]} for part in possible or schema[key]]}
    return schema


def _intersection(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a schema for values that satisfy both; subschemas are merged later.

    If two keywords cannot be combined, the first one stays.
    """
    combined = one | {key: value for key, value in other.items() if key not in one}
    for key in one.keys() & other.keys():
        combined[key] = _combine(key, one[key], other[key])
    return combined


def _combine(key: str, mine: Any, theirs: Any) -> Any:
    """Combine two values of the same keyword."""
    match key:
        case _ if key in _LOWER_BOUNDS:
            return max(mine, theirs)
        case _ if key in _UPPER_BOUNDS:
            return min(mine, theirs)
        case "properties" | "patternProperties":
            return mine | theirs | {name: _both(mine[name], theirs[name]) for name in mine if name in theirs}
        case "required":
            return list(dict.fromkeys([*mine, *theirs]))
        case "items" | "additionalProperties":
            return _both(mine, theirs)
        case "prefixItems":
            longer, shorter = sorted((mine, theirs), key=len, reverse=True)
            return [_both(*pair) for pair in zip(mine, theirs, strict=False)] + longer[len(shorter) :]
        case "anyOf" | "oneOf":
            return [{"allOf": [part, {key: theirs}]} for part in mine]
        case "enum":
            known = {msgspec.json.encode(value) for value in theirs}
            return [value for value in mine if msgspec.json.encode(value) in known] or mine
        case "multipleOf" if isinstance(mine, int) and isinstance(theirs, int):
            return lcm(mine, theirs)
        case "type":
            common = _common_types(mine, theirs)
            return mine if not common else common[0] if len(common) == 1 else common
    return mine


def _both(one: Any, other: Any) -> Any:
    return False if one is False or other is False else {"allOf": [one, other]}


def _common_types(one: str | list[str], other: str | list[str]) -> list[str]:
    mine, theirs = ([kind] if isinstance(kind, str) else kind for kind in (one, other))
    common = [kind for kind in mine if kind in theirs or (kind == "integer" and "number" in theirs)]
    if "number" in mine and "integer" in theirs and "integer" not in common:
        common.append("integer")
    return common


def _types_overlap(part: Any, siblings: dict[str, Any]) -> bool:
    if not isinstance(part, dict) or "type" not in part or "type" not in siblings:
        return part is not False
    return bool(_common_types(part["type"], siblings["type"]))


def _unroll(flat: dict[str, Any], table: Definitions, growth: Growth) -> dict[str, Any]:
    """Unroll every top-level branch on its own; one that becomes too large stays as it is."""
    if "anyOf" not in flat:
        return _unroll_branch(flat, table, growth)
    return flat | {"anyOf": [_unroll_branch(branch, table, growth) for branch in flat["anyOf"]]}


def _unroll_branch(schema: dict[str, Any], table: Definitions, growth: Growth) -> dict[str, Any]:
    try:
        unrolled = _Unroller(table, growth).unroll(schema, ())
    except _TooManyError:
        return schema
    return unrolled if isinstance(unrolled, dict) else schema


class _TooManyError(Exception):
    pass


class _Unroller:
    """Replaces references by their targets, up to a depth and a number of subschemas."""

    def __init__(self, table: Definitions, growth: Growth) -> None:
        self._table = table
        self._growth = growth
        self._count = 0

    def unroll(self, schema: Any, enclosing: tuple[str, ...]) -> Any:
        """Return the schema without references; `None` if it needs a deeper level."""
        self._count += 1
        if self._count > _MAX_SUBSCHEMAS:
            raise _TooManyError
        self._growth.add(schema)
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        if reference is not None:
            if enclosing.count(reference) >= _MAX_UNROLL_DEPTH:
                return None
            return self.unroll(self._table.entry(reference), (*enclosing, reference))
        unrolled = map_subschemas(schema, lambda part: self.unroll(part, enclosing))
        return unrolled if _prune(unrolled) else _null_if_allowed(schema)


def _prune(unrolled: dict[str, Any]) -> bool:
    """Remove subschemas that are `None`, in place; return whether the rest still satisfies the schema."""
    if "properties" in unrolled:
        fields = {name: field for name, field in unrolled["properties"].items() if field is not None}
        if not fields.keys() >= set(unrolled.get("required", ())) & unrolled["properties"].keys():
            return False
        unrolled["properties"] = fields
    if "patternProperties" in unrolled:
        patterns = unrolled["patternProperties"]
        unrolled["patternProperties"] = {name: part for name, part in patterns.items() if part is not None}
    for key in _BRANCHES:
        if key in unrolled:
            unrolled[key] = [part for part in unrolled[key] if part is not None]
            if not unrolled[key]:
                return False
    if "items" in unrolled and unrolled["items"] is None:
        del unrolled["items"]
        unrolled["maxItems"] = min(len(unrolled.get("prefixItems", ())), unrolled.get("maxItems", _MAX_SUBSCHEMAS))
        if unrolled.get("minItems", 0) > unrolled["maxItems"]:
            return False
    if "additionalProperties" in unrolled and unrolled["additionalProperties"] is None:
        if not unrolled.get("properties", {}).keys() >= set(unrolled.get("required", ())):
            return False
        unrolled["additionalProperties"] = False
    return None not in unrolled.get("prefixItems", ())


def _null_if_allowed(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of `null` if the schema accepts it, otherwise `None`."""
    types = schema.get("type")
    return {"type": "null"} if isinstance(types, list) and "null" in types else None
