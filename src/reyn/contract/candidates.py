"""Candidate outputs: the transitions and the finish that the graph allows from a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.models import Candidate
from reyn.models.protocol import UnionCandidate
from reyn.skills import may_finish, successors
from reyn.skills.values import END

if TYPE_CHECKING:
    from collections.abc import Collection

    from reyn.skills import Skill


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
    members = skill.inputs_of(name)
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
