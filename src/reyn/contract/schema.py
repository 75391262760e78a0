"""Build the JSON Schema that describes every allowed answer, for providers that constrain their output.

In both forms the reason comes before the choice and the choice before the data, because constrained models write the
properties in this order: a model that decides first only justifies its decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.skills.values import ABORT
from reyn.vocabulary.schemas import STRING

if TYPE_CHECKING:
    from reyn.journal.kinds import AnswerForm
    from reyn.jsonschema import Schema
    from reyn.models import Candidate
    from reyn.vocabulary import OpSpec

DECISIONS = {"transition": "continue", "finish": "finish", "abort": "abort"}
"""The decision that belongs to each type of control."""

CONFIDENCE = {"type": "number", "minimum": 0, "maximum": 1}
_TEXTS = {"type": "array", "items": STRING}
_NO_OPS = {"type": "array", "maxItems": 0}


def closed(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the schema of an object that has no other properties."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_HANDOFF_FIELDS = {
    "decisions_made": _TEXTS,
    "open_risks": _TEXTS,
    "artifacts_produced": _TEXTS,
    "verdicts": {"type": "object", "additionalProperties": STRING},
    "goal": STRING,
    "epic_id": STRING,
    "narrative": STRING,
}
HANDOFF_SCHEMA: dict[str, Any] = {"type": "object", "properties": _HANDOFF_FIELDS, "additionalProperties": False}
"""The `handoff` object that a phase may add to its decision, if its `context` asks for one. Every field is optional:
Reyn derives the others."""


def answer_schema(
    candidates: tuple[Candidate, ...],
    ops: tuple[OpSpec, ...],
    form: AnswerForm,
    *,
    asks_handoff: bool = False,
    allows_abort: bool = True,
) -> dict[str, Any]:
    """Return a schema with one branch per candidate, one for abort, and one for an act turn if ops are offered."""
    op_list = {"type": "array", "items": {"anyOf": [schema for spec in ops for schema in spec.alternatives]}}
    some_ops = op_list | {"minItems": 1}
    if form == "full":
        decide = [_branch(candidate, op_list if ops else _NO_OPS) for candidate in candidates]
        properties = {"control": _control("abort", None), "artifact": {}, "control_ir": _NO_OPS}
        abort = closed(properties, optional=("artifact", "control_ir"))
        act = closed({"control_ir": some_ops})
    else:
        decide = [_short_branch(one.label, data=_standalone(one)) for one in candidates]
        abort = _short_branch(ABORT)
        act = closed({"reason": STRING, "ops": some_ops})
    if asks_handoff:
        decide = [branch | {"properties": branch["properties"] | {"handoff": HANDOFF_SCHEMA}} for branch in decide]
    return {"anyOf": [*decide, *([abort] if allows_abort else []), *([act] if ops else [])]}


def _short_branch(label: str, **data: Schema) -> dict[str, Any]:
    return closed({"reason": STRING, "choice": {"const": label}, "confidence": CONFIDENCE, **data})


def _branch(candidate: Candidate, ops: dict[str, Any]) -> dict[str, Any]:
    finishes = candidate.control_type == "finish"
    control = _control(candidate.control_type, None if finishes else candidate.next_phase)
    artifact = closed({"type": {"const": candidate.schema_name}, "data": _standalone(candidate)})
    return closed({"control": control, "artifact": artifact, "control_ir": ops}, optional=("control_ir",))


def _control(kind: str, next_phase: str | None) -> dict[str, Any]:
    return closed(
        {
            "reason": closed({"summary": STRING}),
            "type": {"const": kind},
            "decision": {"const": DECISIONS[kind]},
            "next_phase": {"const": next_phase},
            "confidence": CONFIDENCE,
        }
    )


def _standalone(candidate: Candidate) -> Schema:
    """Give a schema its own `$id`, so that `#/…` references resolve inside it after it is embedded."""
    schema = candidate.artifact_schema
    if isinstance(schema, bool) or "$id" in schema:
        return schema
    standalone = {"$id": f"urn:reyn:artifact:{candidate.schema_name}", **schema}
    if "$ref" in schema:  # draft 7 ignores `$id` beside `$ref`
        standalone["allOf"] = [*schema.get("allOf", []), {"$ref": standalone.pop("$ref")}]
    return standalone
