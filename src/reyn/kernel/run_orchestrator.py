"""Decide what a run does next: phase sequence, transitions, rollback, limits, lifecycle. Never talks to a model."""

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
    from reyn.kernel.run_state import Ending, RunState
    from reyn.skills import Skill


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
    """Return the phase to visit, or the event that moves, ends or stops the run."""
    if state.ending is not None:
        return _end(state, state.ending, skill)
    phase = state.phase or skill.entry
    visit = state.visits_of(phase) + 1
    cap = limit_of(state, settings, "max_phase_visits")
    if cap is not None and visit > cap:
        times = "once" if cap == 1 else f"{cap} times"
        reason = f"phase `{phase}` was visited {times}, the maximum that `max_phase_visits` allows"
        return kinds.LimitReached("max_phase_visits", cap, phase, reason)
    assert state.visit.input is not None
    path = (*state.history.path, phase)[-PATH_LENGTH:]
    return Visit(phase, state.visit.input, visit, state.history.total_steps + 1, path, state.visit.rollback)


def _end(state: RunState, ending: Ending, skill: Skill) -> Move:
    if ending.kind == "finish":
        output = state.output
        assert output.artifact is not None
        if skill.postprocessor is not None and output.result is None:
            return Postprocess(output.artifact, state.history.total_steps, output.post_attempts + 1)
        return kinds.SkillCompleted(output.result or output.artifact)
    if ending.kind in ("abort", "no_progress"):
        return kinds.SkillAborted(state.phase, ending.reason)
    if ending.kind == "failure" and skill.on_phase_failure == "rollback" and state.history.trail:
        before = state.history.trail[-1]
        return kinds.PhaseRolledBack(state.phase, before.phase, before.input, before.artifact, ending.reason)
    return kinds.RunFailed(ending.code, ending.reason)


def stop_for(outcome: Body, state: RunState) -> Body:
    """Return the event that stops the run after an effect without an outcome."""
    match outcome:
        case kinds.LlmFailed(code=code, message=message, hint=hint):
            return kinds.RunFailed(code, message, hint)
        case kinds.SubRunStopped(status="waiting", wait=wait) if wait is not None:
            return kinds.WaitOpened(msgspec.structs.replace(wait, run=wait.run or outcome.run))
        case kinds.SubRunStopped(status="limited"):
            reason = f"sub-run `{outcome.run}`: {outcome.reason}"
            return kinds.LimitReached(outcome.limit, outcome.value, state.phase, reason)
        case kinds.SubRunStopped():
            return kinds.RunFailed(outcome.code, f"sub-run `{outcome.run}`: {outcome.reason}", outcome.hint)
    raise InternalError(f"`{outcome.kind}` does not stop a run")
