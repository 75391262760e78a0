"""Build the JSON Schemas of ops: bounded fields, closed arguments, the result envelope."""

from __future__ import annotations

from typing import Any

from reyn.vocabulary.specs import EffectClass, OpForm, OpSpec

MAX_PATH_LENGTH = 1_000
OP_STATUSES = ("ok", "error", "denied", "skipped", "timeout")

Fields = dict[str, dict[str, Any]]

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}


def text(max_length: int, *, min_length: int = 0, **keywords: Any) -> dict[str, Any]:
    """Return the schema of a string with a length limit."""
    bounds: dict[str, Any] = {"minLength": min_length} if min_length else {}
    return {"type": "string", **bounds, "maxLength": max_length, **keywords}


def path(**keywords: Any) -> dict[str, Any]:
    """Return the schema of a file path."""
    return text(MAX_PATH_LENGTH, min_length=1, **keywords)


def integer(minimum: int, maximum: int, **keywords: Any) -> dict[str, Any]:
    """Return the schema of an integer in a range."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **keywords}


def boolean(*, default: bool) -> dict[str, Any]:
    """Return the schema of a boolean."""
    return {"type": "boolean", "default": default}


def array(items: dict[str, Any], max_items: int) -> dict[str, Any]:
    """Return the schema of an array with a length limit."""
    return {"type": "array", "items": items, "maxItems": max_items}


def arguments(
    kind: str, op: str | None, required: Fields, optional: Fields | None = None, any_of: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the closed schema of an op object. At least one of the fields in `any_of` is required."""
    constants = _constants(kind, op)
    choice = {"anyOf": [{"required": [name]} for name in any_of]} if any_of else {}
    return {
        "type": "object",
        "properties": constants | required | (optional or {}),
        "required": [*constants, *required],
        "additionalProperties": False,
        **choice,
    }


def result(kind: str, op: str | None, fields: Fields) -> dict[str, Any]:
    """Return the closed schema of a result: the envelope, the error fields and the fields of the form."""
    envelope = _constants(kind, op) | {"status": {"enum": list(OP_STATUSES)}}
    error_fields = {name: {"type": "string"} for name in ("error", "error_name", "rule", "reason", "note")}
    return {
        "type": "object",
        "properties": envelope | fields | error_fields,
        "required": list(envelope),
        "additionalProperties": False,
    }


def _constants(kind: str, op: str | None) -> Fields:
    return {"kind": {"const": kind}} | ({"op": {"const": op}} if op else {})


def single_form(
    kind: str,
    summary: str,
    effect: EffectClass,
    required: Fields,
    optional: Fields | None = None,
    *,
    results: Fields,
    example: dict[str, Any],
    unsafe_fields: tuple[str, ...] = (),
    **options: Any,
) -> OpSpec:
    """Return the specification of a kind with a single form.

    Args:
        kind: The op kind.
        summary: What it does.
        effect: Its effect class.
        required: The schemas of its required arguments.
        optional: The schemas of its optional arguments.
        results: The schemas of the fields of its result.
        example: The arguments of an example.
        unsafe_fields: Arguments that make it unsafe.
        **options: Further attributes of `OpSpec`.
    """
    form = OpForm(
        op=None,
        summary=summary,
        arguments=arguments(kind, None, required, optional),
        effect=effect,
        result=result(kind, None, results),
        example={"kind": kind, **example},
        unsafe_fields=unsafe_fields,
    )
    return OpSpec(kind, summary, effect, forms=(form,), **options)
