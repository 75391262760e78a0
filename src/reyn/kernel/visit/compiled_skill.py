"""Compile a skill for execution. Its phases are compiled when they are first visited.

A compiled skill does not change during a run and is shared by all runs of the same pinned skill and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from reyn.journal import kinds
from reyn.kernel.core.errors_of_nodes import HandleError
from reyn.kernel.core.run_orchestrator import Postprocess, Visit
from reyn.kernel.visit.compiled_phase import CompiledPhase
from reyn.kernel.visit.error_handling import after_wait, hand_to
from reyn.kernel.visit.model_free import postprocess, visit_fan_out, visit_rules, visit_skill
from reyn.kernel.visit.phase_executor import stages_of, visit
from reyn.kernel.visit.run_context import RunContext, without_visits
from reyn.skills.values import NodeKind, is_skill_node

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.kernel.core.effects import Effect
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.skills import Skill
    from reyn.vocabulary import Vocabulary

    BeginVisit = Callable[[CompiledPhase, Visit, Tape], Coroutine[Effect[Any], Any, None]]

_WITHOUT_MODEL: dict[NodeKind, BeginVisit] = {"skill": visit_skill, "rules": visit_rules, "fan_out": visit_fan_out}


class CompiledSkill(RunContext):
    """A skill whose phases are compiled when they are first visited."""

    def __init__(self, skill: Skill, settings: RunSettings, vocabulary: Vocabulary) -> None:
        super().__init__(skill, settings, vocabulary)
        self._visits: dict[str, BeginVisit] = {}
        self._phases: dict[tuple[str, int | None, frozenset[str]], CompiledPhase] = {}

    def begin(self, move: Visit | Postprocess | HandleError, tape: Tape) -> Coroutine[Effect[Any], Any, None]:
        """Begin a visit, and return its coroutine; or that of the postprocessor, or of the way to a handler."""
        if isinstance(move, Postprocess):
            return postprocess(self, move, tape)
        if isinstance(move, HandleError):
            return hand_to(self, move, tape)
        phase = self._compile_phase(move.phase, move.cap, without_visits(move.left))
        tape.emit(kinds.PhaseStarted(move.phase, move.visit, move.input, phase.transcript))
        begin = self._visits.get(move.phase) or self._compile_visit(phase)
        visit = begin(phase, move, tape)
        return after_wait(visit, move, tape) if move.wait_ms else visit

    def _compile_visit(self, phase: CompiledPhase) -> BeginVisit:
        """Return how a node is visited: a phase by the stages that it uses."""
        begin = partial(visit, stages_of(phase)) if phase.kind == "phase" else _WITHOUT_MODEL[phase.kind]
        self._visits[phase.name] = begin
        return begin

    def phase(self, name: str, state: RunState) -> CompiledPhase:
        """Return a compiled phase as it is visited in `state`."""
        return self._compile_phase(name, *self.visit_limits(name, state))

    def _compile_phase(self, name: str, cap: int | None, used_up: frozenset[str]) -> CompiledPhase:
        """Return a compiled phase. Its prompt names the cap on visits; a successor without a visit is no candidate."""
        phase = self._phases.get((name, cap, used_up))
        if phase is None:
            phase = CompiledPhase(self.skill, self.settings, self.vocabulary, name, cap, used_up)
            self._phases[name, cap, used_up] = phase
        return phase

    def has_node(self, name: str) -> bool:
        return name in self.skill.phases or (is_skill_node(name) and name in self.skill.graph)
