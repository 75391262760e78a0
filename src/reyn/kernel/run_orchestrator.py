"""Given where a run stands, what happens next? Phase sequence, transitions, limits, lifecycle; never asks a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.context.frame import PATH_LENGTH
from reyn.errors import AnswersRejected
from reyn.journal import kinds

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.journal import Body
    from reyn.kernel.run_state import RunState
    from reyn.skills import Skill

RULES_VERSION = 1
"""The version of the rules by which events are derived. A change that derives other bytes needs a new one."""

CARRIED = frozenset({1})
"""The versions whose runs can still be driven and replayed."""


class Visit(msgspec.Struct, frozen=True):
    """Visit this phase with this input. `step` and `path` count the visits of the whole run, this one included."""

    phase: str
    input: kinds.ArtifactRef
    visit: int
    step: int
    path: tuple[str, ...]


Move = Visit | kinds.SkillCompleted | kinds.SkillAborted | kinds.RunFailed | kinds.LimitReached


def next_move(state: RunState, skill: Skill, settings: RunSettings) -> Move:
    """A phase to visit, or the event that ends or stops the run."""
    ending = _ending(state)
    if ending is not None:
        return ending
    phase = state.phase or skill.entry
    visit = state.visits_of(phase) + 1
    cap = limit_of(state, settings, "max_phase_visits")
    if cap is not None and visit > cap:
        reason = f"phase `{phase}` was visited {cap} times, the most that `max_phase_visits` allows"
        return kinds.LimitReached("max_phase_visits", cap, phase, reason)
    assert state.input is not None
    return Visit(phase, state.input, visit, state.total_steps + 1, (*state.path, phase)[-PATH_LENGTH:])


def _ending(state: RunState) -> kinds.SkillCompleted | kinds.SkillAborted | kinds.RunFailed | None:
    if state.ending == "finish":
        assert state.artifact is not None
        return kinds.SkillCompleted(state.artifact)
    if state.ending == "abort":
        return kinds.SkillAborted(state.phase, state.ending_reason)
    if state.ending == "failure":
        return kinds.RunFailed(AnswersRejected.code, state.ending_reason)
    return None


def failure_of(outcome: Body) -> kinds.RunFailed:
    """What an effect without an outcome means for the run."""
    assert isinstance(outcome, kinds.LlmFailed)
    return kinds.RunFailed(outcome.code, outcome.message)


def limit_of(state: RunState, settings: RunSettings, name: str) -> int | None:
    """A cap as it was set or last raised."""
    if name in state.raised:
        return state.raised[name]
    value: int | None = getattr(settings.limits, name)
    return value
