"""Helpers to write the JSON Schemas of ops: bounded fields, closed arguments, the result envelope."""

from __future__ import annotations

from typing import Any

PATH_LENGTH = 1_000
STATUSES = ("ok", "error", "denied", "skipped", "timeout")

Fields = dict[str, dict[str, Any]]


def text(most: int, *, least: int = 0, **more: Any) -> dict[str, Any]:
    bounds: dict[str, Any] = {"minLength": least} if least else {}
    return {"type": "string", **bounds, "maxLength": most, **more}


def path(**more: Any) -> dict[str, Any]:
    return text(PATH_LENGTH, least=1, **more)


def whole(least: int, most: int, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def flag(*, default: bool) -> dict[str, Any]:
    return {"type": "boolean", "default": default}


def many(item: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": item, "maxItems": most}


def arguments(
    kind: str, op: str | None, required: Fields, optional: Fields | None = None, one_of: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The closed schema of a whole op object. Of the fields in `one_of`, exactly one must be there."""
    named = _named(kind, op)
    choice = {"oneOf": [{"required": [name]} for name in one_of]} if one_of else {}
    return {
        "type": "object",
        "properties": named | required | (optional or {}),
        "required": [*named, *required],
        "additionalProperties": False,
        **choice,
    }


def result(kind: str, op: str | None, fields: Fields) -> dict[str, Any]:
    """The closed schema of a result: the envelope, what went wrong if something did, and what the form adds."""
    envelope = _named(kind, op) | {"status": {"enum": list(STATUSES)}}
    wrong = {name: {"type": "string"} for name in ("error", "rule", "reason", "note")}
    return {
        "type": "object",
        "properties": envelope | fields | wrong,
        "required": list(envelope),
        "additionalProperties": False,
    }


def _named(kind: str, op: str | None) -> Fields:
    return {"kind": {"const": kind}} | ({"op": {"const": op}} if op else {})
