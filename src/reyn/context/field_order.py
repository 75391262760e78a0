"""The content of an artifact as text, in the author's order of fields: the order in which a schema declares them.

Artifacts are stored with sorted keys. A model reads them in the order that their author chose.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import HistoryInvalid
from reyn.jsonschema.words import escape_line_ends, quoted_name, quoted_value

if TYPE_CHECKING:
    from reyn.jsonschema import Schema

Order = dict[str, Any]
"""Names in order, each with an `Order` or `None`."""

_MAX_SCHEMAS = 500
"""The number of schemas that an order is read from. References can make a small schema stand for a large one."""
_POINTERS = ("$defs", "definitions")


def field_order(schema: Schema) -> Order | None:
    """Return the order in which a schema declares its fields; `None` if nothing depends on it.

    That is so if the order is the alphabetical one at every depth, and no value has just one of several fields, which
    is then rendered with its name.
    """
    root = schema if isinstance(schema, dict) else {}
    order = _Reader(root).read(schema, ())
    if order is None or not _is_sorted(order):
        return order
    return order if len(order) > 1 and len(root.get("required", ())) <= 1 else None


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


def _is_order(value: Any) -> bool:
    return isinstance(value, dict) and all(inner is None or _is_order(inner) for inner in value.values())


def _is_sorted(order: Order) -> bool:
    names = list(order)
    return names == sorted(names) and all(inner is None or _is_sorted(inner) for inner in order.values())


class FieldOrder:
    """The order of the fields of an artifact, compiled once. Fields without a place in it follow as they are."""

    def __init__(self, order: Order) -> None:
        self._inner = {name: FieldOrder(inner) if inner else None for name, inner in order.items()}

    @staticmethod
    @lru_cache(maxsize=256)
    def of(order: bytes) -> FieldOrder:
        """Return the order that is recorded as JSON. An imported run can hold anything.

        Raises:
            HistoryInvalid: It is no order.
        """
        try:
            recorded = msgspec.json.decode(order)
            if not _is_order(recorded):
                raise HistoryInvalid("the recorded order of an artifact's fields is malformed")
            return FieldOrder(recorded)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HistoryInvalid(f"the recorded order of an artifact's fields cannot be read: {error}") from error

    def has_others(self, name: str) -> bool:
        """Return whether there are fields besides one."""
        return bool(self._inner.keys() - {name})

    def sort(self, fields: dict[str, bytes]) -> dict[str, bytes]:
        """Return the fields of an object in order, at every depth; values are JSON."""
        inner = self._inner
        names = [name for name in inner if name in fields]
        if len(names) < len(fields):
            names += [name for name in fields if name not in inner]
        return {name: field.apply(fields[name]) if (field := inner.get(name)) else fields[name] for name in names}

    def apply(self, value: bytes) -> bytes:
        """Return JSON with its fields in order. What has other fields or other types is sorted piece by piece."""
        try:
            return msgspec.json.encode(self._decoder.decode(value))
        except msgspec.ValidationError:
            return self._apply_slowly(value)

    def _apply_slowly(self, value: bytes) -> bytes:
        if value.startswith(b"["):
            items = msgspec.json.decode(value, type=list[msgspec.Raw])
            return b"[" + b",".join([self.apply(bytes(item)) for item in items]) + b"]"
        if not value.startswith(b"{"):
            return value
        fields = {name: bytes(raw) for name, raw in msgspec.json.decode(value, type=dict[str, msgspec.Raw]).items()}
        sorted_fields = self.sort(fields).items()
        return b"{" + b",".join([msgspec.json.encode(name) + b":" + field for name, field in sorted_fields]) + b"}"

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.shapes)

    @cached_property
    def shapes(self) -> Any:
        """The types of an object with these fields, and of a list of them. Encoding writes them in their order."""
        names = [name for name in self._inner if not _ESCAPED.search(name)]
        fields = [
            (f"field_{number}", inner.shapes if (inner := self._inner[name]) else msgspec.Raw, _ABSENT)
            for number, name in enumerate(names)
        ]
        renamed = {field[0]: name for field, name in zip(fields, names, strict=True)}
        shape: Any = msgspec.defstruct(
            "Fields", fields, omit_defaults=True, forbid_unknown_fields=True, rename=renamed, gc=False
        )
        return shape | list[shape]


_ESCAPED = re.compile(r'["\\\x00-\x1f]')
"""Characters that no field of a struct may contain; an object with such a field is sorted piece by piece."""
_ABSENT: Any = msgspec.Raw(b"")
"""Stands for a field that a value does not have; it is not written."""


# -- artifacts in words -----------------------------------------------------------------------------


class _Artifact(msgspec.Struct):
    """An artifact whose fields are not decoded: they are rendered as they are stored."""

    data: dict[str, msgspec.Raw] | list[Any] | str | int | float | bool | None


_ARTIFACT = msgspec.json.Decoder(_Artifact)


def plain_text(artifact: bytes, order: bytes = b"null") -> str:
    """Return the content of an artifact: the text itself if that is all of it, otherwise one line per field.

    If the type has other fields, too, the text has the name of its field. A text of several lines is indented, so that
    none of its lines can pass for a field or a heading. Truncated content is not JSON any more and is returned as it
    is.

    Args:
        artifact: The artifact as it is stored, with sorted keys.
        order: The author's order of the fields of its type, as JSON; `null` leaves them sorted.
    """
    text = artifact.decode()
    try:
        data = _ARTIFACT.decode(artifact).data
    except msgspec.DecodeError:
        return escape_line_ends(text)
    if not isinstance(data, dict) or not data:
        return quoted_value(data)
    fields = {name: bytes(value) for name, value in data.items()}
    of_type = FieldOrder.of(order) if order != b"null" else None
    if len(fields) == 1:
        [(name, only)] = fields.items()
        if only.startswith(b'"') and (of_type is None or not of_type.has_others(name)):
            return _field_value(only)
    if of_type is not None:
        fields = of_type.sort(fields)
    return "\n".join([f"{quoted_name(name)}: {_field_value(value)}" for name, value in fields.items()])


def _field_value(value: bytes) -> str:
    if not value.startswith(b'"'):
        return escape_line_ends(msgspec.json.format(value, indent=0).decode())
    text: str = msgspec.json.decode(value)
    return _indented(text) if text.strip() else "(empty)"


def _indented(text: str) -> str:
    first, *rest = text.strip().splitlines()
    return "\n  ".join((f" {first}" if first.startswith("#") else first, *rest))
