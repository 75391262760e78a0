"""The content of an artifact in words. Headings of a prompt begin with `# `; no line of a user's text does."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.context.field_order import FieldOrder
from reyn.jsonschema.words import escape_line_ends, quoted_name, quoted_value


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
