"""What stays the same for a whole run: its pinned skill, settings and vocabulary, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context.field_order import field_order
from reyn.context.handoff import choose_context
from reyn.journal import Blob, ordered
from reyn.journal.summary import limit_of
from reyn.jsonschema import Schema, Validator, compile_schema, lenient
from reyn.kernel.core.limits import visits_left
from reyn.skills.fan_out import branch_skill
from reyn.skills.front_matter import ALL_CREDENTIALS
from reyn.skills.state import fields_of_type
from reyn.skills.step_expressions import StepList, StepTemplate, compile_steps

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.kernel.core.snapshot import RunState
    from reyn.skills import Skill
    from reyn.skills.state_fields import StateField
    from reyn.skills.values import Branch
    from reyn.vocabulary import Vocabulary


_NONE: frozenset[str] = frozenset()
_LATER = 2
"""A rank of a phase that earlier phases can hand something to."""


def credentials_of(skill: Skill, above: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names of the secrets that a run may use: those that its skill and the skills of its parents
    require. `*` stands for those of the run above; in a run without one, for none."""
    own = skill.required_credentials
    if ALL_CREDENTIALS in own and above is not None:
        return above
    return tuple(name for name in own if name != ALL_CREDENTIALS and (above is None or name in above))


class RunContext:
    """The inputs of execution that stay the same for a whole run: pinned skill, settings, vocabulary."""

    def __init__(self, skill: Skill, settings: RunSettings, vocabulary: Vocabulary) -> None:
        self.skill = skill
        self.settings = settings
        self.vocabulary = vocabulary
        self._sub_skills: dict[str, Skill] = {}
        self._branch_skills: dict[Branch, Skill] = {}
        self._field_orders: dict[str, Blob | None] = {}

    def sub_skill(self, name: str) -> Skill | None:
        """Return the run's own copy of a skill that it runs.

        All pinned skills are in one table, so the copy gets the table for the skills that it runs in turn.
        """
        found = self.skill.skills.get(name)
        if found is None:
            return None
        if name not in self._sub_skills:
            self._sub_skills[name] = msgspec.structs.replace(found, skills=self.skill.skills)
        return self._sub_skills[name]

    def branch_skill(self, branch: Branch) -> Skill:
        """Return the skill that a branch of a node runs."""
        if branch not in self._branch_skills:
            self._branch_skills[branch] = branch_skill(self.skill, branch)
        return self._branch_skills[branch]

    @property
    def step_lists(self) -> list[StepList]:
        """The lists of steps that are executed here."""
        post = self.skill.postprocessor
        return [StepList((self.skill.final_output,), post.steps)] if post is not None else []

    @cached_property
    def step_templates(self) -> dict[int, StepTemplate]:
        """The texts of steps with expressions, by the identity of the step."""
        return compile_steps(self.skill, self.step_lists)

    @cached_property
    def state_fields(self) -> dict[str, dict[str, StateField]]:
        """The lists and sums of the state, by the artifact type that they follow."""
        return fields_of_type(self.skill)

    @property
    def conversation(self) -> str | None:
        """The name of the phase whose conversation ops may change, if there is one."""
        return None

    def memory_tokens(self, state: RunState) -> int:
        """Return how many tokens the memory of the conversation may have; 0 if there is none."""
        return 0

    def artifact_error(self, accepted: Mapping[str, Schema], artifact: dict[str, Any]) -> str:
        """Return why an artifact is not one of the accepted types; empty if it is."""
        if artifact["type"] not in accepted:
            names = " or ".join(f"`{name}`" for name in accepted)
            return f"the result has type `{artifact['type']}`; expected {names}"
        error = self.validator(accepted[artifact["type"]]).first_error(artifact["data"])
        return f"the result is not a valid `{artifact['type']}`: {error.path('data')}: {error.message}" if error else ""

    @cached_property
    def uses_handoffs(self) -> bool:
        """Whether a phase of the skill receives handoffs of earlier phases."""
        return uses_handoffs(self.skill, self.settings)

    @cached_property
    def has_budgets(self) -> bool:
        """Whether the settings cap the tokens or the cost of a run, or of the runs of a skill."""
        limits = self.settings.limits
        return bool(self.settings.skill_budgets) or limits.run_tokens is not None or limits.run_cost is not None

    def field_order(self, name: str) -> Blob | None:
        """Return the author's order of the fields of an artifact type; `None` if it is the alphabetical one."""
        if name not in self._field_orders:
            inputs = (artifact for phase in self.skill.phases.values() for artifact in phase.inputs)
            found = next((artifact for artifact in inputs if artifact.name == name), None)
            order = field_order(found.schema) if found is not None else None
            self._field_orders[name] = Blob.of(ordered(order)) if order is not None else None
        return self._field_orders[name]

    def visit_limits(self, phase: str, state: RunState) -> tuple[int | None, frozenset[str]]:
        """Return the cap on visits, which may have been raised, and the successors of a phase without a visit left."""
        cap = limit_of(state, self.settings, "max_phase_visits")
        return cap, without_visits(visits_left(state, self.skill, cap, phase))

    def validator(self, schema: Schema) -> Validator:
        return compile_schema(schema if self.settings.strict else lenient(schema))


def without_visits(left: dict[str, int]) -> frozenset[str]:
    """Return the successors that have no visit left."""
    if not left or min(left.values()) > 0:
        return _NONE
    return frozenset([successor for successor, count in left.items() if count <= 0])


def uses_handoffs(skill: Skill, settings: RunSettings) -> bool:
    """Return whether a phase of a skill receives handoffs of earlier phases."""
    levels = (skill.context, settings.context)
    return any(choose_context(_LATER, phase.context, *levels).manifest for phase in skill.phases.values())
