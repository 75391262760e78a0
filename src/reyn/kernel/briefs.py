"""What a visit of a phase needs and no visit changes: contract, stable text, their names. Made once, used by every run
of the same pinned skill under the same settings."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from reyn import models
from reyn.context import stable_frame, stable_text
from reyn.contract import Contract, candidates_of, offered_ops, with_truncated_reads
from reyn.journal import Blob, canonical, kinds
from reyn.jsonschema import compile_schema, lenient
from reyn.kernel.limits import limit_of
from reyn.skills.values import is_skill_node

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.context import StableFrame
    from reyn.contract import Candidate
    from reyn.jsonschema import Schema, Validator
    from reyn.kernel.run_state import RunState
    from reyn.skills import Skill
    from reyn.skills.values import Phase
    from reyn.vocabulary import OpSpec, Vocabulary


class Offer:
    """What the model is shown and held to in one turn: candidates, and the ops that are still offered."""

    def __init__(
        self,
        surroundings: Surroundings,
        phase: str,
        candidates: tuple[Candidate, ...],
        ops: tuple[OpSpec, ...],
        max_phase_visits: int | None,
    ) -> None:
        settings = surroundings.settings
        self.phase = phase
        self.candidates = tuple(
            models.Candidate(c.next_phase, c.control_type, c.schema_name, c.description, c.artifact_schema)
            for c in candidates
        )
        self.contract = Contract(candidates, ops, strict=settings.strict, sizes=settings.sizes)
        self.frame: StableFrame = stable_frame(
            surroundings.skill,
            phase,
            candidates,
            ops,
            max_phase_visits=max_phase_visits,
            output_language=settings.output_language,
        )
        self.stable = Blob.of(stable_text(self.frame).encode())
        self.schema = Blob.of(canonical(self.contract.schema))
        self.system = kinds.FrameMessage("system", (kinds.Part(blob=self.stable.hash),))


class Surroundings:
    """What surrounds the work of a run: its own copy of the skill, its settings, the words it knows."""

    def __init__(self, skill: Skill, settings: RunSettings, vocabulary: Vocabulary) -> None:
        self.skill = skill
        self.settings = settings
        self.vocabulary = vocabulary

    def sub_skill(self, name: str) -> Skill | None:
        """The run's own copy of a skill that it runs; it finds the ones that it runs itself in the same table."""
        found = self.skill.skills.get(name)
        return msgspec.structs.replace(found, skills=self.skill.skills) if found else None

    def validator(self, schema: Schema) -> Validator:
        return compile_schema(schema if self.settings.strict else lenient(schema))


class PhaseBrief(Surroundings):
    """One phase, or a skill that stands as a node."""

    def __init__(
        self, skill: Skill, settings: RunSettings, vocabulary: Vocabulary, phase: str, max_phase_visits: int | None
    ) -> None:
        super().__init__(skill, settings, vocabulary)
        self.phase = phase
        self.max_retries = settings.max_phase_retries
        self._max_phase_visits = max_phase_visits
        self._offers: dict[tuple[bool, bool], Offer] = {}

    @cached_property
    def described(self) -> Phase:
        return self.skill.phases[self.phase]

    @cached_property
    def _candidates(self) -> tuple[Candidate, ...]:
        return candidates_of(self.skill, self.phase)

    @cached_property
    def is_plain(self) -> bool:
        """Whether its visits neither act nor have caps that could stop them."""
        caps = self.settings.limits
        return not self.ops and caps.tokens is None and caps.run_seconds is None and caps.phase_seconds is None

    @cached_property
    def ops(self) -> tuple[OpSpec, ...]:
        return offered_ops(self.vocabulary, self.described.allowed_ops) if self.described.max_act_turns else ()

    @property
    def model(self) -> str:
        """The model of the phase's class, where the operator has one; empty where the run's is asked."""
        return self.settings.classes.get(self.described.model_class or "", "")

    def offer(self, *, acting: bool, is_truncated: bool) -> Offer:
        """With ops or without; where something is shown in part, with the way to read the rest."""
        key = (acting, is_truncated)
        if key not in self._offers:
            ops = self.ops if acting else ()
            if is_truncated:
                ops = with_truncated_reads(self.vocabulary, ops)
            self._offers[key] = Offer(self, self.phase, self._candidates, ops, self._max_phase_visits)
        return self._offers[key]


class Briefs(Surroundings):
    """The briefs of one skill, each made when its phase is first visited."""

    def __init__(self, skill: Skill, settings: RunSettings, vocabulary: Vocabulary) -> None:
        super().__init__(skill, settings, vocabulary)
        self._made: dict[tuple[str, int | None], PhaseBrief] = {}

    def of(self, phase: str, state: RunState) -> PhaseBrief:
        cap = limit_of(state, self.settings, "max_phase_visits")
        key = (phase, cap)
        if key not in self._made:
            self._made[key] = PhaseBrief(self.skill, self.settings, self.vocabulary, phase, cap)
        return self._made[key]

    def of_post(self) -> Surroundings:
        return self

    def fits(self, phase: str) -> bool:
        """Whether there is such a node."""
        return phase in self.skill.phases or (is_skill_node(phase) and phase in self.skill.graph)
