"""A schema says the same in fewer ways: what is said in several parts is said in one, what is said beside alternatives
in each of them, and, where that is wanted, what holds itself comes to an end.

Converters of grammars know objects, lists, texts and alternatives well, and little else.
"""

from __future__ import annotations

from math import lcm
from typing import Any

import msgspec

from reyn.jsonschema.references import Table, refers, size_of, with_parts

_LARGER = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_SMALLER = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
UNDERSTOOD = (
    "type", "properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems", "minItems",
    "maxItems", "minLength", "maxLength", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern",
)  # fmt: skip
"""What the converters of grammars understand, as far as we rely on it, or can be said in such words. Nothing else is a
reason to take a schema apart."""
_ALTERNATIVES = ("anyOf", "oneOf")
_DEEPEST = 2
"""Of what holds itself and has to come to an end, so many are in each other."""
_MOST_PARTS = 2_000
"""What would become larger without references keeps them."""


def flattened(schema: dict[str, Any], *, is_ended: bool) -> dict[str, Any]:
    """The same schema; what its references lead to stands in `$defs`. If it is to be `is_ended`, there are none, but
    for what has no end."""
    table = Table(schema)
    joining = _Joining(table)
    flat: dict[str, Any] = joining.join(table.root, frozenset())
    entries = {name: joining.join(entry, frozenset({f"#/$defs/{name}"})) for name, entry in table.entries.items()}
    table.entries = entries
    if is_ended and refers(flat):
        flat = _end(flat, table)
    return flat | {"$defs": entries} if refers(flat) else flat


def is_choice(schema: Any) -> bool:
    """Whether it says no more than which fields of an object must be there."""
    return isinstance(schema, dict) and "required" in schema and schema.keys() <= {"required", "type"}


class _Joining:
    """Without `allOf`, references that something is added to, alternatives that something is said beside. Once that has
    made too much of it, the rest stays as it is."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._left = _MOST_PARTS + 4 * (size_of(table.root) + sum(map(size_of, table.entries.values())))

    def join(self, schema: Any, inside: frozenset[str]) -> Any:
        """`inside` are the references whose targets this is a part of: to them it only refers."""
        if not isinstance(schema, dict):
            return schema
        if (reference := _only_refers(schema)) is not None:
            return {"$ref": reference}
        followed: set[str] = set()
        whole = self._whole(schema, inside, (), followed)
        if self._left > 0:
            whole = _spread(whole)
        return with_parts(whole, lambda part: self.join(part, inside | followed))

    def _whole(
        self, schema: dict[str, Any], inside: frozenset[str], chain: tuple[str, ...], followed: set[str]
    ) -> dict[str, Any]:
        """The schema in one part. `chain` leads here without a field in between: what is in it says nothing new."""
        self._left -= 1
        own = {key: value for key, value in schema.items() if key in UNDERSTOOD and key not in ("allOf", "$ref")}
        parts = [{"$ref": schema["$ref"]}] if "$ref" in schema else []
        parts += [part for part in schema.get("allOf", ()) if isinstance(part, dict)]
        for part in parts:
            target, way, reference = part, chain, _only_refers(part)
            if reference in chain:
                continue
            self._left -= 1
            if reference in inside or (reference is not None and self._left <= 0):
                return {"$ref": reference}  # it holds itself, or too much: what is added to it is left to the OS
            if reference is not None:
                followed.add(reference)
                target, way = self._table.entry(reference), (*chain, reference)
            if isinstance(target, dict):
                inner = self._whole(target, inside, way, followed)
                if inner.keys() == {"$ref"}:
                    return inner
                if self._left <= 0:  # alternatives of alternatives are what grows
                    inner = {key: value for key, value in inner.items() if key not in own or key not in _ALTERNATIVES}
                own = _joined(own, inner)
        return own


def _only_refers(schema: dict[str, Any]) -> str | None:
    """The reference that is all there is to a schema."""
    own = {key: value for key, value in schema.items() if key in UNDERSTOOD}
    if own.keys() == {"allOf"} and len(own["allOf"]) == 1 and isinstance(own["allOf"][0], dict):
        return _only_refers(own["allOf"][0])
    return own["$ref"] if own.keys() == {"$ref"} else None


def _spread(schema: dict[str, Any]) -> dict[str, Any]:
    """What is said beside alternatives is said in each of them."""
    for key in _ALTERNATIVES:
        beside = {name: value for name, value in schema.items() if name != key}
        if key in schema and beside and not all(is_choice(part) for part in schema[key]):
            fitting = [part for part in schema[key] if _can_be(part, beside)]
            return {key: [{"allOf": [part, beside]} for part in fitting or schema[key]]}
    return schema


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What satisfies both, as far as one schema can say it; what they hold is joined in its turn. Of what cannot be
    said, the first is kept: the OS checks it."""
    joined = one | {key: value for key, value in other.items() if key not in one}
    for key in one.keys() & other.keys():
        joined[key] = _both_of(key, one[key], other[key])
    return joined


def _both_of(key: str, mine: Any, theirs: Any) -> Any:
    match key:
        case _ if key in _LARGER:
            return max(mine, theirs)
        case _ if key in _SMALLER:
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
            common = _common(mine, theirs)
            return mine if not common else common[0] if len(common) == 1 else common
    return mine


def _both(one: Any, other: Any) -> Any:
    return False if one is False or other is False else {"allOf": [one, other]}


def _common(one: str | list[str], other: str | list[str]) -> list[str]:
    mine, theirs = ([kind] if isinstance(kind, str) else kind for kind in (one, other))
    common = [kind for kind in mine if kind in theirs or (kind == "integer" and "number" in theirs)]
    if "number" in mine and "integer" in theirs and "integer" not in common:
        common.append("integer")
    return common


def _can_be(part: Any, beside: dict[str, Any]) -> bool:
    """Whether the types of both leave anything."""
    if not isinstance(part, dict) or "type" not in part or "type" not in beside:
        return part is not False
    return bool(_common(part["type"], beside["type"]))


class _TooLargeError(Exception):
    pass


def _end(flat: dict[str, Any], table: Table) -> dict[str, Any]:
    """Each way to answer comes to an end, or stays as it is."""
    if "anyOf" not in flat:
        return _ended_or_same(flat, table)
    return flat | {"anyOf": [_ended_or_same(way, table) for way in flat["anyOf"]]}


def _ended_or_same(schema: dict[str, Any], table: Table) -> dict[str, Any]:
    try:
        ended = _Ending(table).end(schema, ())
    except _TooLargeError:
        return schema
    return ended if isinstance(ended, dict) else schema


class _Ending:
    """Entries of the table are put where they are referred to, so deep and no deeper."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._parts = 0

    def end(self, schema: Any, inside: tuple[str, ...]) -> Any:
        """The schema without references; `None` where it cannot be had without going deeper."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise _TooLargeError
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        if reference is not None:
            if inside.count(reference) >= _DEEPEST:
                return None
            return self.end(self._table.entry(reference), (*inside, reference))
        ended = with_parts(schema, lambda part: self.end(part, inside))
        return ended if _can_end(ended) else _nothing(schema)


def _can_end(ended: dict[str, Any]) -> bool:
    """Take out what cannot be had; false if what is left is not what was meant."""
    if "properties" in ended:
        fields = {name: field for name, field in ended["properties"].items() if field is not None}
        if not fields.keys() >= set(ended.get("required", ())) & ended["properties"].keys():
            return False
        ended["properties"] = fields
    if "patternProperties" in ended:
        named = ended["patternProperties"]
        ended["patternProperties"] = {name: part for name, part in named.items() if part is not None}
    for key in _ALTERNATIVES:
        if key in ended:
            ended[key] = [part for part in ended[key] if part is not None]
            if not ended[key]:
                return False
    if "items" in ended and ended["items"] is None:
        del ended["items"]
        ended["maxItems"] = min(len(ended.get("prefixItems", ())), ended.get("maxItems", _MOST_PARTS))
        if ended.get("minItems", 0) > ended["maxItems"]:
            return False
    if "additionalProperties" in ended and ended["additionalProperties"] is None:
        if not ended.get("properties", {}).keys() >= set(ended.get("required", ())):
            return False
        ended["additionalProperties"] = False
    return None not in ended.get("prefixItems", ())


def _nothing(schema: dict[str, Any]) -> dict[str, Any] | None:
    """What may be left empty ends so."""
    kinds = schema.get("type")
    return {"type": "null"} if isinstance(kinds, list) and "null" in kinds else None
