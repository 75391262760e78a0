"""A schema says the same in fewer ways: a reference leads to one table of definitions, what is said in several parts is
said in one, and, where that is wanted, what holds itself comes to an end.

Converters of grammars know objects, lists, texts and alternatives well, and little else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_ONE = ("items", "additionalProperties")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions")
_LARGER = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_SMALLER = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_REMARKS = ("title", "description", "default", "examples", "deprecated", "$comment")
_DEEPEST = 3
"""Of what holds itself and has to come to an end, so many are in each other."""
_MOST_PARTS = 2_000
"""What would become larger without references keeps them."""


def flattened(schema: dict[str, Any], *, is_ended: bool) -> dict[str, Any]:
    """The same schema, with all definitions in `$defs`; if it is to be `is_ended`, without any, as far as can be."""
    homes: dict[str, Any] = {}
    moved = _rehomed(schema, "#", homes)
    root = {"$defs": homes}
    homes.update({name: _joined_parts(home, root) for name, home in homes.items()})
    flat: dict[str, Any] = _joined_parts(moved, root)
    if homes and is_ended:
        try:
            ended = _Ending(root).end(flat, ())
        except _TooLargeError:
            ended = None
        if isinstance(ended, dict):
            return ended
    return flat | ({"$defs": homes} if homes else {})


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


def _rehomed(schema: Any, home: str, homes: dict[str, Any]) -> Any:
    """References of a schema that has a name of its own point to where it stands now: among the definitions."""
    if not isinstance(schema, dict):
        return schema
    if "$id" in schema and _refers(schema):
        name = f"home{len(homes)}"
        homes[name] = None
        inner = {key: value for key, value in schema.items() if key not in ("$id", "$schema")}
        homes[name] = _rehomed(inner, f"#/$defs/{name}", homes)
        return {"$ref": f"#/$defs/{name}"}
    rehomed = with_parts(schema, lambda part: _rehomed(part, home, homes))
    rehomed.pop("$id", None)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        rehomed["$ref"] = home + reference[1:]
    return rehomed


def _refers(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_refers(item) for item in schema)
    return isinstance(schema, dict) and ("$ref" in schema or any(_refers(value) for value in schema.values()))


def _joined_parts(schema: Any, root: dict[str, Any], inside: tuple[str, ...] = ()) -> Any:
    """Without `allOf`, a reference that something is added to, alternatives that something is said beside. `inside` are
    the references whose targets this is a part of: they are not followed again."""
    if not isinstance(schema, dict):
        return schema
    whole, followed = _whole(schema, root, inside)
    return with_parts(_spread(whole), lambda part: _joined_parts(part, root, followed))


def _whole(
    schema: dict[str, Any], root: dict[str, Any], inside: tuple[str, ...]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The schema in one part, and the references that were followed for it."""
    own = {key: value for key, value in schema.items() if key not in ("allOf", "$ref", *_REMARKS)}
    parts = [{"$ref": schema["$ref"]}] if "$ref" in schema else []
    parts += [part for part in schema.get("allOf", ()) if isinstance(part, dict)]
    if len(parts) == 1 and not own:
        return _whole(parts[0], root, inside) if "allOf" in schema else (schema, inside)
    for part in parts:
        target: Any = part
        if "$ref" in part:
            if part["$ref"] in inside:
                return {"$ref": part["$ref"]}, inside  # it holds itself: what is added to it is left to the OS
            target, inside = _at(root, part["$ref"]), (*inside, part["$ref"])
            if isinstance(target, dict):
                target = _joined({key: value for key, value in part.items() if key != "$ref"}, target)
        if isinstance(target, dict):
            inner, inside = _whole(target, root, inside)
            own = _joined(own, inner)
    return own, inside


def _spread(schema: dict[str, Any]) -> dict[str, Any]:
    """What is said beside alternatives is said in each of them."""
    for key in ("anyOf", "oneOf"):
        beside = {name: value for name, value in schema.items() if name != key}
        if key in schema and beside and not all(is_choice(part) for part in schema[key]):
            fitting = [part for part in schema[key] if _can_be(part, beside)]
            return {key: [{"allOf": [part, beside]} for part in fitting or schema[key]]}
    return schema


def is_choice(schema: Any) -> bool:
    """Whether it says no more than which fields of an object must be there."""
    return isinstance(schema, dict) and "required" in schema and schema.keys() <= {"required", "type"}


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What satisfies both, as far as one schema can say it; what they hold is joined in its turn. Of what cannot be
    said, the first is kept: the OS checks it."""
    joined = one | {key: value for key, value in other.items() if key not in one}
    for key in one.keys() & other.keys():
        mine, theirs = one[key], other[key]
        if key in _LARGER:
            joined[key] = max(mine, theirs)
        elif key in _SMALLER:
            joined[key] = min(mine, theirs)
        elif key in _NAMED:
            both = {name: _both(mine[name], theirs[name]) for name in mine.keys() & theirs.keys()}
            joined[key] = mine | theirs | both
        elif key == "required":
            joined[key] = list(dict.fromkeys([*mine, *theirs]))
        elif key == "enum":
            joined[key] = [value for value in mine if value in theirs]
        elif key == "items":
            joined[key] = _both(mine, theirs)
        elif key == "type":
            common = _common(mine, theirs)
            joined[key] = mine if not common else common[0] if len(common) == 1 else common
    return joined


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


def _at(root: dict[str, Any], reference: str) -> Any:
    """What a reference leads to; nothing if it leads nowhere."""
    found: Any = root
    for word in reference.removeprefix("#").split("/")[1:]:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and word.isdigit() and int(word) < len(found):
            found = found[int(word)]
        elif isinstance(found, dict) and word in found:
            found = found[word]
        else:
            return None
    return found


class _TooLargeError(Exception):
    pass


class _Ending:
    """Definitions are put where they are referred to, so deep and no deeper."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._parts = 0

    def end(self, schema: Any, inside: tuple[str, ...]) -> Any:
        """The schema without references; `None` where it cannot be had without going deeper."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise _TooLargeError
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if inside.count(reference) >= _DEEPEST:
                return None
            return self.end(_at(self._root, reference), (*inside, reference))
        ended = with_parts(schema, lambda part: self.end(part, inside))
        for key in ("$defs", "definitions"):
            ended.pop(key, None)
        return ended if self._can_end(ended) else _nothing(schema)

    def _can_end(self, ended: dict[str, Any]) -> bool:
        """Take out what cannot be had; false if what is left is not what was meant."""
        if "properties" in ended:
            fields = {name: field for name, field in ended["properties"].items() if field is not None}
            if not fields.keys() >= set(ended.get("required", ())) & ended["properties"].keys():
                return False
            ended["properties"] = fields
        for key in ("anyOf", "oneOf"):
            if key in ended:
                ended[key] = [part for part in ended[key] if part is not None]
                if not ended[key]:
                    return False
        if "items" in ended and ended["items"] is None:
            del ended["items"]
            ended["maxItems"] = len(ended.get("prefixItems", ()))
            if ended.get("minItems", 0) > ended["maxItems"]:
                return False
        if "additionalProperties" in ended and ended["additionalProperties"] is None:
            ended["additionalProperties"] = False
        return None not in ended.get("prefixItems", ())


def _nothing(schema: dict[str, Any]) -> dict[str, Any] | None:
    """What may be left empty ends so."""
    kinds = schema.get("type")
    return {"type": "null"} if isinstance(kinds, list) and "null" in kinds else None
