"""The contract of an answer becomes a schema that a decoder can be held to.

Narrower than the contract or the same, never wider where it can be helped: every text gets an end (a model would talk
until its limit), confidence becomes one of a few steps (grammars know no bounds of numbers), alternatives of fields
become alternatives of objects, and what no grammar understands is dropped. A small model is held shorter still: nothing
that it makes holds itself for long. Nothing depends on it: the OS checks the answer against the contract itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from reyn.jsonschema.flattening import flatten
from reyn.models.decoding.narrowing import SMALL_TEXT_LENGTH, Way, narrowed, steps

SMALL_OPS_LENGTH = 2


def decoding_schema(contract: dict[str, Any], *, is_small: bool = False, is_one_object: bool = False) -> dict[str, Any]:
    """The contract for a decoder that takes `anyOf` at the root, or wants one object. Made once a contract, for a phase
    asks with the same one again and again: not to be changed."""
    return _made(msgspec.json.encode(contract), is_small, is_one_object)


@lru_cache(maxsize=64)
def _made(contract: bytes, is_small: bool, is_one_object: bool) -> dict[str, Any]:
    schema = _branches(msgspec.json.decode(contract), Way(SMALL_TEXT_LENGTH, is_small=True) if is_small else Way())
    return _single_object(schema) if is_one_object else schema


def _branches(contract: dict[str, Any], way: Way) -> dict[str, Any]:
    flat = flatten(contract, unroll=way.is_small)
    if "anyOf" not in flat or not all("properties" in branch for branch in flat["anyOf"]):
        return narrowed(flat, way)
    schema: dict[str, Any] = {"anyOf": [_branch(branch, way) for branch in flat["anyOf"]]}
    if "$defs" in flat:
        schema["$defs"] = {name: narrowed(entry, way) for name, entry in flat["$defs"].items()}
    return schema


def _single_object(schema: dict[str, Any]) -> dict[str, Any]:
    """The same for providers that refuse alternatives at the root: one object whose fields have the alternatives. What
    is lost is which field goes with which; the OS checks that."""
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


def _branch(branch: dict[str, Any], way: Way) -> dict[str, Any]:
    """One way to answer: a candidate, an abort, ops alone."""
    fields: dict[str, Any] = {}
    for name, field in branch["properties"].items():
        if name == "control":
            fields[name] = _control(field, way)
        elif name == "control_ir":
            if field != {"type": "array", "maxItems": 0}:  # what must be empty is left out
                fields[name] = _ops(field, way)
        elif field == {}:
            fields[name] = {"type": "null"}  # an abort has no artifact; anything would do, so let it be nothing
        else:
            fields[name] = narrowed(field, way)
    required = [name for name in fields if name in branch["required"] or fields[name] == {"type": "null"}]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _control(control: dict[str, Any], way: Way) -> dict[str, Any]:
    held = narrowed(control, way)
    if "confidence" in held.get("properties", {}):
        held["properties"]["confidence"] = {"enum": steps(0, 1)}
    return held


def _ops(ops: dict[str, Any], way: Way) -> dict[str, Any]:
    held = narrowed(ops, way._replace(is_op=True))
    if way.is_small:
        held["maxItems"] = max(held.get("minItems", 0), SMALL_OPS_LENGTH)
    return held
