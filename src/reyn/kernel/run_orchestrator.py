"""Given where a run stands, what happens next? Phase sequence, transitions, rollback, limits, lifecycle; never asks a
model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.context.frame import PATH_LENGTH
from reyn.errors import InternalError
from reyn.journal import kinds
from reyn.kernel.limits import limit_of

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.journal import Body
    from reyn.kernel.run_state import RunState
    from reyn.skills import Skill

RULES_VERSION = 4
"""The version of the rules by which events are derived. A change that derives other bytes needs a new one.

    1   transitions, re-prompts, visits, finish, abort
    2   ops, steps, questions, rollback, sub-runs, all limits; a phase's ops are offered
    3   the prompt begins with what all phases share; its example finishes where that is possible
    4   the example keeps to its schema; thoughts before an answer are left aside
"""

CARRIED = frozenset({4})
"""The versions whose runs can still be driven and replayed."""


class Visit(msgspec.Struct, frozen=True):
    """Visit this phase with this input. `step` and `path` count the visits of the whole run, this one included."""

    phase: str
    input: kinds.ArtifactRef
    visit: int
    step: int
    path: tuple[str, ...]
    rollback: kinds.PhaseRolledBack | None = None


class Postprocess(msgspec.Struct, frozen=True):
    """Take the finish artifact through the postprocessor; `attempt` counts the tries."""

    input: kinds.ArtifactRef
    step: int
    attempt: int


Closing = kinds.SkillCompleted | kinds.SkillAborted | kinds.RunFailed
Move = Visit | Postprocess | Closing | kinds.PhaseRolledBack | kinds.LimitReached


def next_move(state: RunState, skill: Skill, settings: RunSettings) -> Move:
    """A phase to visit, or the event that moves, ends or stops the run."""
    if state.ending is not None:
        return _ending(state, skill)
    phase = state.phase or skill.entry
    visit = state.visits_of(phase) + 1
    cap = limit_of(state, settings, "max_phase_visits")
    if cap is not None and visit > cap:
        reason = f"phase `{phase}` was visited {cap} times, the most that `max_phase_visits` allows"
        return kinds.LimitReached("max_phase_visits", cap, phase, reason)
    assert state.input is not None
    path = (*state.path, phase)[-PATH_LENGTH:]
    return Visit(phase, state.input, visit, state.total_steps + 1, path, state.rollback)


def _ending(state: RunState, skill: Skill) -> Move:
    if state.ending == "finish":
        assert state.artifact is not None
        if skill.postprocessor is not None and state.result is None:
            return Postprocess(state.artifact, state.total_steps, state.post_attempts + 1)
        return kinds.SkillCompleted(state.result or state.artifact)
    if state.ending in ("abort", "no_progress"):
        return kinds.SkillAborted(state.phase, state.ending_reason)
    if state.ending == "failure" and skill.on_phase_failure == "rollback" and state.trail:
        before = state.trail[-1]
        return kinds.PhaseRolledBack(state.phase, before.phase, before.input, before.artifact, state.ending_reason)
    return kinds.RunFailed(state.ending_code, state.ending_reason)


def stop_for(outcome: Body, state: RunState) -> Body:
    """What an effect without an outcome means for the run: it stops, and goes on from here."""
    match outcome:
        case kinds.LlmFailed(code=code, message=message, hint=hint):
            return kinds.RunFailed(code, message, hint)
        case kinds.RunSkillStopped(status="waiting", wait=wait) if wait is not None:
            return kinds.WaitOpened(msgspec.structs.replace(wait, run=wait.run or outcome.run))
        case kinds.RunSkillStopped(status="limited"):
            reason = f"sub-run `{outcome.run}`: {outcome.reason}"
            return kinds.LimitReached(outcome.limit, outcome.value, state.phase, reason)
        case kinds.RunSkillStopped():
            return kinds.RunFailed(outcome.code, f"sub-run `{outcome.run}`: {outcome.reason}", outcome.hint)
    raise InternalError(f"`{outcome.kind}` does not stop a run")
