"""Convert the contract of an answer to a schema for constrained decoding.

The schema accepts a subset of the contract where decoders can express it: bounded strings, `confidence` as an enum (no
grammar supports bounds of numbers), one object per alternative. It is an optimization only, because the OS validates
every answer against the contract itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.jsonschema.flattening import flatten
from reyn.models.decoding.narrowing import MAX_INTEGER, SMALL_NUMBER, SMALL_TEXT_LENGTH, DecodingLimits, restrict, steps

if TYPE_CHECKING:
    from reyn.models.protocol import OpChoice

MAX_REASON_LENGTH = 160
"""A reason that comes first grows, and every character of it is paid for; one sentence suffices to decide by."""
DECIDED_REASON_LENGTH = 30
"""A reason for a choice that is already made need not be long."""
MAX_SMALL_OPS = 2
"""Maximum number of ops in one answer of a small model."""


def decoding_schema(
    contract: dict[str, Any],
    *,
    is_small: bool = False,
    is_one_object: bool = False,
    allows_abort: bool = True,
    bounds_numbers: bool = False,
    asks_confidence: bool = True,
    reason_begins: str = "",
    choice: str | None = None,
    op: OpChoice | None = None,
) -> dict[str, Any]:
    """Return the decoding schema of a contract. The result is cached and must not be modified.

    Args:
        contract: The contract of an answer.
        is_small: Restrict the schema further, for a small model.
        is_one_object: Avoid `anyOf` at the root, which some providers reject.
        allows_abort: Whether the model may abort the run; a small model never may.
        bounds_numbers: Bound numbers whose schema has no bounds: a decoder could write digits without end.
        reason_begins: Words with which the reason has to begin.
        choice: The only choice that a short answer may make.
        op: The only op that a short answer may have, if the choice stands for an op.
        asks_confidence: Whether a short answer states its confidence; not needed where the engine measures it.
    """
    if op is not None:
        contract = {"anyOf": [_one_op(one, op) for one in contract["anyOf"] if "ops" in one["properties"]]}
    elif choice is not None:
        made = {"const": choice}
        contract = {"anyOf": [one for one in contract["anyOf"] if one["properties"].get("choice") == made]}
    length = DecodingLimits().reason_length if choice is None else DECIDED_REASON_LENGTH
    max_number = SMALL_NUMBER if is_small else MAX_INTEGER if bounds_numbers else None
    limits = DecodingLimits(SMALL_TEXT_LENGTH, is_small=True) if is_small else DecodingLimits()
    limits = limits._replace(
        reason_begins=reason_begins,
        reason_length=length,
        max_number=max_number,
        allows_abort=allows_abort and not is_small,
    )
    return _convert(msgspec.json.encode(contract), limits, is_one_object, asks_confidence)


def _one_op(branch: dict[str, Any], op: OpChoice) -> dict[str, Any]:
    """Return the branch of an act turn with one op that has a certain target."""
    calls: list[dict[str, Any]] = []
    for call in branch["properties"]["ops"]["items"]["anyOf"]:
        fields = call["properties"]
        named = fields.get(op.field, {})
        if fields["kind"] == {"const": op.kind} and (
            named.get("const") == op.target or op.target in named.get("enum", ())
        ):
            calls.append(call | {"properties": fields | {op.field: {"const": op.target}}})
    ops = {"type": "array", "items": {"anyOf": calls}, "minItems": 1, "maxItems": 1}
    return branch | {"properties": branch["properties"] | {"ops": ops}}


@lru_cache(maxsize=64)
def _convert(contract: bytes, limits: DecodingLimits, is_one_object: bool, asks_confidence: bool) -> dict[str, Any]:
    schema = _branches(msgspec.json.decode(contract), limits)
    if not asks_confidence:
        for branch in schema.get("anyOf", ()):
            branch["properties"].pop("confidence", None)
            branch["required"] = [name for name in branch["required"] if name != "confidence"]
    return _single_object(schema) if is_one_object else schema


def _branches(contract: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    flat = flatten(contract, unroll=limits.is_small)
    if "anyOf" not in flat or not all("properties" in branch for branch in flat["anyOf"]):
        return restrict(flat, limits)
    branches = [branch for branch in flat["anyOf"] if limits.allows_abort or not _is_abort(branch)]
    schema: dict[str, Any] = {"anyOf": [_branch(branch, limits) for branch in branches]}
    if "$defs" in flat:
        schema["$defs"] = {name: restrict(entry, limits) for name, entry in flat["$defs"].items()}
    return schema


def _is_abort(branch: dict[str, Any]) -> bool:
    """Return whether a branch aborts the run."""
    fields = branch["properties"]
    choice = fields.get("choice") or fields.get("control", {}).get("properties", {}).get("type")
    return bool(choice == {"const": "abort"})


def _single_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Merge the alternatives at the root into one object whose fields have alternatives.

    The schema no longer expresses which fields belong together; the OS checks that.
    """
    branches = schema.get("anyOf")
    if branches is None:
        return schema
    names = list(dict.fromkeys(name for branch in branches for name in branch["properties"]))
    properties = {name: _either([b["properties"][name] for b in branches if name in b["properties"]]) for name in names}
    required = [name for name in names if all(name in branch["required"] for branch in branches)]
    merged = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return merged | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _either(schemas: list[Any]) -> Any:
    unique = [schema for number, schema in enumerate(schemas) if schema not in schemas[:number]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def _branch(branch: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    """Restrict one alternative of the contract: a candidate, an abort, or ops only."""
    fields: dict[str, Any] = {}
    for name, field in branch["properties"].items():
        if name == "control":
            fields[name] = _control(field, limits)
        elif name == "reason":
            fields[name] = _reason(limits)
        elif name == "confidence":
            fields[name] = {"enum": steps(0, 1)}
        elif name in ("control_ir", "ops"):
            if field != {"type": "array", "maxItems": 0}:  # omit a list that must be empty
                fields[name] = _ops(field, limits)
        elif field == {}:
            fields[name] = {"type": "null"}  # the artifact of an abort is ignored
        else:
            fields[name] = restrict(field, limits)
    required = [name for name in fields if name in branch["required"] or fields[name] == {"type": "null"}]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _control(control: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    restricted = restrict(control, limits)
    if "confidence" in restricted.get("properties", {}):
        restricted["properties"]["confidence"] = {"enum": steps(0, 1)}
        restricted["properties"]["reason"] = _object({"summary": _reason(limits)})
    return restricted


def _reason(limits: DecodingLimits) -> dict[str, Any]:
    if limits.reason_begins:
        return {
            "type": "string",
            "pattern": f'^{limits.reason_begins}[^."\\\\\\x00-\\x1F]{{5,{limits.reason_length}}}[.]$',
        }
    return restrict({"type": "string", "minLength": 1, "maxLength": MAX_REASON_LENGTH}, limits)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _ops(ops: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    restricted = restrict(ops, limits._replace(is_op=True))
    if limits.is_small:
        restricted["maxItems"] = max(
            restricted.get("minItems", 0), min(restricted.get("maxItems", MAX_SMALL_OPS), MAX_SMALL_OPS)
        )
    return restricted
