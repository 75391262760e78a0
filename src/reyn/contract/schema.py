"""The exits that the graph allows from a phase, and the JSON Schema of every allowed answer, for constrained output.

In both forms the reason comes before the choice and the choice before the data, because constrained models write the
properties in this order: a model that decides first only justifies its decision.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.models import Candidate
from reyn.models.protocol import UnionCandidate
from reyn.skills import Skill, may_finish, successors
from reyn.skills.error_settings import NODE_ERROR
from reyn.skills.values import ABORT, END
from reyn.vocabulary.schemas import STRING

if TYPE_CHECKING:
    from reyn.journal.kinds import AnswerForm
    from reyn.jsonschema import Schema
    from reyn.vocabulary import OpSpec


def candidates_of(skill: Skill, phase: str) -> tuple[Candidate, ...]:
    """Return one candidate per next phase and member of its input union, in the author's order; then the finish."""
    texts = skill.edge_texts.get(phase, {})
    transitions = [
        candidate
        for name in successors(skill, phase)
        for candidate in (
            [_reply(skill, name, texts.get(name, ""))]
            if name == phase and skill.phases[phase].conversation is not None
            else _into(skill, name, texts.get(name, ""))
        )
    ]
    if not may_finish(skill, phase):
        return tuple(transitions)
    final = skill.final_output
    description = texts.get(END) or skill.final_output_description or final.description or _FINISH
    return (*transitions, Candidate(END, "finish", final.name, final.schema, description.strip()))


_FINISH = "Finish with the final output."


def _reply(skill: Skill, phase: str, text: str) -> Candidate:
    """Return the candidate that continues a conversation: the user receives the artifact as the reply."""
    final = skill.final_output
    return Candidate(phase, "transition", final.name, final.schema, text or _REPLY)


_REPLY = "Reply, and wait for what the user says next."


def _into(skill: Skill, name: str, text: str) -> list[Candidate]:
    """Return the candidates that lead to a phase. The text of the edge applies to each member of an input union."""
    members = [one for one in skill.inputs_of(name) if one.name != NODE_ERROR]  # only Reyn makes one
    if len(members) == 1:
        [only] = members
        description = text or only.description.strip() or f"Go on to {name}."
        return [Candidate(name, "transition", only.name, only.schema, description)]
    return [
        UnionCandidate(
            name, "transition", member.name, member.schema, _union_text(text, member.description.strip(), name)
        )
        for member in members
    ]


def _union_text(text: str, description: str, name: str) -> str:
    """Return when to choose a member of a union: the text of the edge, then what distinguishes the member."""
    if text and description:
        return f"{text.rstrip('.')}: {description}"
    return text or description or f"Go on to {name}."


def without_fields(candidate: Candidate, hidden: Collection[str]) -> Candidate:
    """Return a candidate whose artifact lacks some fields: those that Reyn fills, and the model does not see."""
    schema = candidate.artifact_schema
    if not hidden or isinstance(schema, bool):
        return candidate
    properties = {name: field for name, field in schema.get("properties", {}).items() if name not in hidden}
    required = [name for name in schema.get("required", ()) if name not in hidden]
    shown = schema | {"properties": properties, "required": required}
    return msgspec.structs.replace(candidate, artifact_schema=shown)


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
        decide = [
            _short_branch(one.label, data=_standalone(one.schema_name, one.artifact_schema)) for one in candidates
        ]
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
    artifact = artifact_branch(candidate.schema_name, candidate.artifact_schema)
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


def artifact_branch(name: str, schema: Schema) -> dict[str, Any]:
    """Return the schema of an artifact of one type."""
    return closed({"type": {"const": name}, "data": _standalone(name, schema)})


def _standalone(name: str, schema: Schema) -> Schema:
    """Give a schema its own `$id`, so that `#/…` references resolve inside it after it is embedded."""
    if isinstance(schema, bool) or "$id" in schema:
        return schema
    standalone = {"$id": f"urn:reyn:artifact:{name}", **schema}
    if "$ref" in schema:  # draft 7 ignores `$id` beside `$ref`
        standalone["allOf"] = [*schema.get("allOf", []), {"$ref": standalone.pop("$ref")}]
    return standalone
