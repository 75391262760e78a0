"""The author's order of an artifact's fields. Artifacts are stored with sorted keys; the model sees the author's order.

An order maps the name of each field to the order of its own fields, or to nothing. In a list, it applies to each item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from reyn.jsonschema import Schema

Order = dict[str, Any]
"""Names in order, each with an `Order` or `None`."""

_MAX_SCHEMAS = 500
"""The number of schemas that an order is read from. References can make a small schema stand for a large one."""
_POINTERS = ("$defs", "definitions")


def field_order(schema: Schema) -> Order | None:
    """Return the order in which a schema declares its fields; `None` if it is the alphabetical one at every depth."""
    reader = _Reader(schema if isinstance(schema, dict) else {})
    order = reader.read(schema, ())
    return order if order is not None and not _is_sorted(order) else None


class _Reader:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _MAX_SCHEMAS

    def read(self, schema: Any, references: tuple[str, ...]) -> Order | None:
        """Return the order of a schema. A reference that contains itself is followed once."""
        if not isinstance(schema, dict) or not self._left:
            return None
        self._left -= 1
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in references:
            return self.read(self._target(reference), (*references, reference))
        order: Order = {}
        properties = schema.get("properties")
        for name, field in properties.items() if isinstance(properties, dict) else ():
            order[name] = self.read(field, references)
        for part in (schema.get("items"), *schema.get("allOf", ()), *schema.get("anyOf", ()), *schema.get("oneOf", ())):
            for name, inner in (self.read(part, references) or {}).items():
                order.setdefault(name, inner)
        return order or None

    def _target(self, reference: str) -> Any:
        if reference == "#":
            return self._root
        table, _, name = reference.removeprefix("#/").partition("/")
        entries = self._root.get(table) if reference.startswith("#/") and table in _POINTERS else None
        return entries.get(name) if isinstance(entries, dict) else None


def _is_sorted(order: Order) -> bool:
    names = list(order)
    return names == sorted(names) and all(inner is None or _is_sorted(inner) for inner in order.values())


def in_order(value: bytes, order: Order | None) -> bytes:
    """Return JSON with its fields in the author's order; fields without a place in it follow as they are."""
    if not order or value[:1] not in (b"{", b"["):
        return value
    if value.startswith(b"["):
        items = msgspec.json.decode(value, type=list[msgspec.Raw])
        return b"[" + b",".join([in_order(bytes(item), order) for item in items]) + b"]"
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    names = [name for name in order if name in fields]
    names += [name for name in fields if name not in order]
    return b"{" + b",".join([_field(name, bytes(fields[name]), order.get(name)) for name in names]) + b"}"


def _field(name: str, value: bytes, order: Order | None) -> bytes:
    return msgspec.json.encode(name) + b":" + in_order(value, order)
