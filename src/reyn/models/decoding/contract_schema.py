"""Convert the contract of an answer to a schema for constrained decoding.

The schema accepts a subset of the contract where decoders can express it: bounded strings, `confidence` as an enum (no
grammar supports bounds of numbers), one object per alternative. It is an optimization only, because the OS validates
every answer against the contract itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from reyn.jsonschema.flattening import flattened
from reyn.models.decoding.narrowing import SMALL_TEXT_LENGTH, DecodingLimits, restrict, steps

MAX_SMALL_OPS = 2
"""Maximum number of ops in one answer of a small model."""


def decoding_schema(contract: dict[str, Any], *, is_small: bool = False, is_one_object: bool = False) -> dict[str, Any]:
    """Return the decoding schema of a contract. The result is cached and must not be modified.

    Args:
        contract: The contract of an answer.
        is_small: Restrict the schema further, for a small model.
        is_one_object: Avoid `anyOf` at the root, which some providers reject.
    """
    return _convert(msgspec.json.encode(contract), is_small, is_one_object)


@lru_cache(maxsize=64)
def _convert(contract: bytes, is_small: bool, is_one_object: bool) -> dict[str, Any]:
    schema = _branches(
        msgspec.json.decode(contract),
        DecodingLimits(SMALL_TEXT_LENGTH, is_small=True) if is_small else DecodingLimits(),
    )
    return _single_object(schema) if is_one_object else schema


def _branches(contract: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    flat = flattened(contract, is_ended=limits.is_small)
    if "anyOf" not in flat or not all("properties" in branch for branch in flat["anyOf"]):
        return restrict(flat, limits)
    schema: dict[str, Any] = {"anyOf": [_branch(branch, limits) for branch in flat["anyOf"]]}
    if "$defs" in flat:
        schema["$defs"] = {name: restrict(entry, limits) for name, entry in flat["$defs"].items()}
    return schema


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
        elif name == "control_ir":
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
    return restricted


def _ops(ops: dict[str, Any], limits: DecodingLimits) -> dict[str, Any]:
    restricted = restrict(ops, limits._replace(is_op=True))
    if limits.is_small:
        restricted["maxItems"] = max(restricted.get("minItems", 0), MAX_SMALL_OPS)
    return restricted
