"""Candidate outputs: the transitions and the finish that the graph allows from a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.jsonschema import Schema
from reyn.skills import may_finish, successors
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.skills import Skill


class Candidate(msgspec.Struct, frozen=True):
    """One entry of `candidate_outputs`. `artifact_schema` is the schema of the artifact's `data`."""

    next_phase: str
    control_type: Literal["transition", "finish"]
    schema_name: str
    artifact_schema: Schema
    description: str

    @property
    def label(self) -> str:
        """The name by which the model chooses it, unique among the candidates of a phase."""
        return self.next_phase


def candidates_of(skill: Skill, phase: str) -> tuple[Candidate, ...]:
    """Return one candidate per next phase and member of its input union, in the author's order; then the finish."""
    transitions = [
        Candidate(name, "transition", artifact.name, artifact.schema, artifact.description or f"Go on to {name}.")
        for name in successors(skill, phase)
        for artifact in skill.inputs_of(name)
    ]
    if not may_finish(skill, phase):
        return tuple(transitions)
    final = skill.final_output
    description = skill.final_output_description or final.description or "Finish with the final output."
    return (*transitions, Candidate(END, "finish", final.name, final.schema, description.strip()))
