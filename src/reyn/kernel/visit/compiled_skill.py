"""Compile a skill for execution. Its phases are compiled when they are first visited.

A compiled skill does not change during a run and is shared by all runs of the same pinned skill and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from reyn.journal import kinds
from reyn.kernel.core.errors_of_nodes import HandleError
from reyn.kernel.core.run_orchestrator import Postprocess, Visit
from reyn.kernel.visit.compiled_phase import CompiledPhase
from reyn.kernel.visit.error_handling import after_wait, hand_to
from reyn.kernel.visit.model_free import visit_fan_out, visit_skill
from reyn.kernel.visit.phase_executor import postprocess, visit
from reyn.kernel.visit.rule_node import visit_rules
from reyn.kernel.visit.run_context import RunContext
from reyn.skills.values import NodeKind, is_skill_node

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.kernel.core.effects import Effect
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.skills import Skill
    from reyn.vocabulary import Vocabulary


_VISITS: dict[NodeKind, Callable[[CompiledPhase, Visit, Tape], Coroutine[Effect[Any], Any, None]]] = {
    "phase": visit,
    "skill": visit_skill,
    "rules": visit_rules,
    "fan_out": visit_fan_out,
}
"""How each kind of node is visited."""


class CompiledSkill(RunContext):
    """A skill whose phases are compiled when they are first visited."""

    def __init__(self, skill: Skill, settings: RunSettings, vocabulary: Vocabulary) -> None:
        super().__init__(skill, settings, vocabulary)
        self._visits = {node: _VISITS[skill.node_kind(node)] for node in skill.graph}
        self._phases: dict[tuple[str, int | None, frozenset[str]], CompiledPhase] = {}

    def begin(self, move: Visit | Postprocess | HandleError, tape: Tape) -> Coroutine[Effect[Any], Any, None]:
        """Begin a visit, and return its coroutine; or that of the postprocessor, or of the way to a handler."""
        if isinstance(move, Postprocess):
            return postprocess(self, move, tape)
        if isinstance(move, HandleError):
            return hand_to(self, move, tape)
        phase = self.phase(move.phase, tape.state, move.left)
        tape.emit(kinds.PhaseStarted(move.phase, move.visit, move.input, phase.transcript))
        visit = self._visits[move.phase](phase, move, tape)
        return after_wait(visit, move, tape) if move.wait_ms else visit

    def phase(self, name: str, state: RunState, left: dict[str, int] | None = None) -> CompiledPhase:
        """Return a compiled phase as it is visited in `state`.

        Its prompt names the cap on visits, which may have been raised. A successor whose visits are used up is not a
        candidate.

        Args:
            name: The phase.
            state: The state of the run.
            left: `visits_left` of the phase in this state, if it is known.
        """
        cap, used_up = self.visit_limits(name, state, left)
        phase = self._phases.get((name, cap, used_up))
        if phase is None:
            phase = CompiledPhase(self.skill, self.settings, self.vocabulary, name, cap, used_up)
            self._phases[name, cap, used_up] = phase
        return phase

    def has_node(self, name: str) -> bool:
        return name in self.skill.phases or (is_skill_node(name) and name in self.skill.graph)
