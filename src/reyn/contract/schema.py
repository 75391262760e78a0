"""Build the JSON Schema that describes every allowed answer, for providers that constrain their output.

In both forms the reason comes before the choice and the choice before the data, because constrained models write the
properties in this order: a model that decides first only justifies its decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.contract.forms import ABORT
from reyn.contract.handoff import HANDOFF_SCHEMA

if TYPE_CHECKING:
    from reyn.contract.candidates import Candidate
    from reyn.jsonschema import Schema
    from reyn.vocabulary import OpSpec


def answer_schema(
    candidates: tuple[Candidate, ...],
    ops: tuple[OpSpec, ...] = (),
    *,
    asks_handoff: bool = False,
    allows_abort: bool = True,
) -> dict[str, Any]:
    """Return a schema with one branch per candidate, one for abort, and one for an act turn if ops are offered."""
    op_list = {"type": "array", "items": {"anyOf": [schema for spec in ops for schema in spec.alternatives]}}
    act = [_closed({"control_ir": op_list | {"minItems": 1}})] if ops else []
    decide = [_branch(candidate, op_list if ops else _NO_OPS) for candidate in candidates]
    abort = [_abort_branch()] if allows_abort else []
    return {"anyOf": [*_with_handoff(decide, asks_handoff), *abort, *act]}


def short_schema(
    candidates: tuple[Candidate, ...],
    ops: tuple[OpSpec, ...] = (),
    *,
    asks_handoff: bool = False,
    allows_abort: bool = True,
) -> dict[str, Any]:
    """Return the schema of the short form: one branch per candidate, one for abort, and one to act."""
    decide = [
        _short_branch(candidate.label, _standalone(candidate.artifact_schema, candidate.schema_name))
        for candidate in candidates
    ]
    op_list = {"type": "array", "items": {"anyOf": [schema for spec in ops for schema in spec.alternatives]}}
    act = [_closed({"reason": _TEXT, "ops": op_list | {"minItems": 1}})] if ops else []
    abort = [_short_branch(ABORT, None)] if allows_abort else []
    return {"anyOf": [*_with_handoff(decide, asks_handoff), *abort, *act]}


def _with_handoff(branches: list[dict[str, Any]], asks_handoff: bool) -> list[dict[str, Any]]:
    """Add the optional handoff at the end of each branch, if the model is asked for one."""
    if not asks_handoff:
        return branches
    return [branch | {"properties": branch["properties"] | {"handoff": HANDOFF_SCHEMA}} for branch in branches]


def _short_branch(label: str, data: Schema | None) -> dict[str, Any]:
    properties: dict[str, Any] = {"reason": _TEXT, "choice": {"const": label}, "confidence": _CONFIDENCE}
    return _closed(properties if data is None else properties | {"data": data})


def _branch(candidate: Candidate, ops: dict[str, Any]) -> dict[str, Any]:
    finish = candidate.control_type == "finish"
    control = _control(
        "finish" if finish else "transition",
        "finish" if finish else "continue",
        None if finish else candidate.next_phase,
    )
    data = _standalone(candidate.artifact_schema, candidate.schema_name)
    artifact = _closed({"type": {"const": candidate.schema_name}, "data": data})
    return _closed({"control": control, "artifact": artifact, "control_ir": ops}, optional=("control_ir",))


def _abort_branch() -> dict[str, Any]:
    properties = {"control": _control("abort", "abort", None), "artifact": {}, "control_ir": _NO_OPS}
    return _closed(properties, optional=("artifact", "control_ir"))


_TEXT = {"type": "string"}
_CONFIDENCE = {"type": "number", "minimum": 0, "maximum": 1}
_NO_OPS = {"type": "array", "maxItems": 0}


def _control(kind: str, decision: str, next_phase: str | None) -> dict[str, Any]:
    return _closed(
        {
            "reason": _closed({"summary": _TEXT}),
            "type": {"const": kind},
            "decision": {"const": decision},
            "next_phase": {"const": next_phase},
            "confidence": _CONFIDENCE,
        }
    )


def _closed(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _standalone(schema: Schema, name: str) -> Schema:
    """Give a schema its own `$id`, so that `#/…` references resolve inside it after it is embedded."""
    if isinstance(schema, bool) or "$id" in schema:
        return schema
    standalone = {"$id": f"urn:reyn:artifact:{name}", **schema}
    if "$ref" in schema:  # draft 7 ignores `$id` beside `$ref`
        standalone["allOf"] = [*schema.get("allOf", []), {"$ref": standalone.pop("$ref")}]
    return standalone
