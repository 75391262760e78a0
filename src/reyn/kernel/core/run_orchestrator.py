"""Decide the next step of a run: phase sequence, transitions, rollback, limits, lifecycle. Never talks to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.context.frame import Repetition
from reyn.errors import InternalError
from reyn.journal import Body, kinds
from reyn.journal.summary import PATH_LENGTH, limit_of
from reyn.kernel.core.errors_of_nodes import HandleError, after_failure, at_limit, wait_of
from reyn.kernel.core.limits import allowance_reason, refusal_reason, visits_left
from reyn.skills import Skill, may_finish

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.kernel.core.snapshot import Ending, RunState


class Visit(msgspec.Struct, frozen=True):
    """Visit this phase with this input.

    Attributes:
        phase: The phase.
        input: Its input.
        visit: The number of visits of the phase, this one included.
        step: The number of visits in the whole run, this one included.
        path: The last phases entered, this one included.
        rollback: Why the phase is entered again.
        latest: The hash of the latest artifact of each type.
        repeated: How often the phase made the same decision for this input, if it did so more than once.
        cap: How often a phase may be visited, if visits are limited.
        left: How often each successor may still be visited; empty if visits are not limited.
        reply: The hash of the artifact of the last visit, if it is known.
        done: The ops that must not be repeated, of visits of the phase that failed or were rolled back.
        attempt: How often the visit has failed and is repeated, as `retry` of the node says.
        wait_ms: How long to wait before it, in milliseconds.
    """

    phase: str
    input: kinds.ArtifactRef
    visit: int
    step: int
    path: tuple[str, ...]
    rollback: kinds.RollbackRef | None = None
    latest: dict[str, str] = {}
    repeated: Repetition | None = None
    cap: int | None = None
    left: dict[str, int] = {}
    reply: str = ""
    done: tuple[kinds.DoneOp, ...] = ()
    attempt: int = 0
    wait_ms: int = 0


class Postprocess(msgspec.Struct, frozen=True):
    """Take the finish artifact through the postprocessor; `attempt` counts the tries."""

    input: kinds.ArtifactRef
    step: int
    attempt: int


Closing = kinds.SkillCompleted | kinds.SkillAborted | kinds.RunFailed
Move = Visit | Postprocess | HandleError | Closing | kinds.VisitRetried | kinds.PhaseRolledBack | kinds.LimitReached


def next_move(state: RunState, skill: Skill, settings: RunSettings) -> Move:
    """Return the phase to visit, or the event that moves, ends or stops the run."""
    if state.ending is not None:
        return _end(state, state.ending, skill)
    history = state.history
    if history.repeats > 1 and (stop := _no_progress(state, settings)) is not None:
        return stop
    phase = state.phase or skill.entry
    visit = history.visits.get(phase, 0) + 1
    cap = limit_of(state, settings, "max_phase_visits")
    if cap is not None and visit > cap and not (state.path[-1:] == (phase,) and skill.holds_conversation(phase)):
        stop = _too_many_visits(state, skill, phase, visit, cap)
        if stop is not None:
            return at_limit(stop, state, skill, settings)
    left = visits_left(state, skill, cap, phase)
    if left and max(left.values()) <= 0 and skill.node_kind(phase) == "phase" and not may_finish(skill, phase):
        names = " and ".join(f"`{name}`" for name in left)
        reason = f"phase `{phase}` has no successor left: {names} reached `max_phase_visits`, which is {cap}"
        return at_limit(kinds.LimitReached("max_phase_visits", cap or 0, phase, reason), state, skill, settings)
    artifact = state.visit.input
    assert artifact is not None
    next_phase, repeats = history.times_decided(phase, artifact.hash)
    return Visit(
        phase,
        artifact,
        visit,
        history.total_steps + 1,
        (*state.path, phase)[-PATH_LENGTH:],
        state.visit.rollback,
        history.latest,
        Repetition("decision", next_phase or "", repeats) if repeats > 1 else None,
        cap,
        left,
        history.trail[-1].artifact.hash if history.trail else "",
        history.done.get(phase, ()),
        state.visit.attempt,
        wait_of(state, skill) if state.visit.attempt else 0,
    )


def _too_many_visits(state: RunState, skill: Skill, phase: str, visit: int, cap: int) -> kinds.LimitReached | None:
    """Return the limit that another visit of a phase exceeds, if it does.

    The user paces a conversation: it may follow itself, and what counts is how often others lead to it in one turn.
    """
    since = ""
    if skill.holds_conversation(phase):
        visit, since = visit - state.visits_at_message.get(phase, 0), " since the last message of the user"
        if visit <= cap:
            return None
    often = "once" if cap == 1 else f"{cap} times"
    reason = f"phase `{phase}` was visited {often}{since}, the maximum that `max_phase_visits` allows"
    return kinds.LimitReached("max_phase_visits", cap, phase, reason)


def _no_progress(state: RunState, settings: RunSettings) -> kinds.LimitReached | None:
    """Return the limit that a run has reached by making the same decision again, if it has."""
    cap, times = limit_of(state, settings, "no_progress"), state.history.repeats
    if cap is None or times < cap:
        return None
    phase = state.path[-1]
    reason = f"no progress: phase `{phase}` gave the same artifact for the same input {times} times"
    return kinds.LimitReached("no_progress", cap, phase, reason)


def _end(state: RunState, ending: Ending, skill: Skill) -> Move:
    if ending.kind == "finish":
        output = state.output
        assert output.artifact is not None
        if skill.postprocessor is not None and output.result is None:
            return Postprocess(output.artifact, state.history.total_steps, output.post_attempts + 1)
        return kinds.SkillCompleted(output.result or output.artifact)
    if ending.kind in ("failure", "abort") and (move := after_failure(state, ending, skill)) is not None:
        return move
    if ending.kind in ("abort", "no_progress"):
        return kinds.SkillAborted(state.phase, ending.reason)
    if ending.kind in ("failure", "unanswered") and skill.on_phase_failure == "rollback" and state.history.trail:
        before = state.history.trail[-1]
        return kinds.PhaseRolledBack(state.phase, before.phase, before.input, before.artifact, ending.reason)
    return kinds.RunFailed(ending.code, ending.reason, error_name=ending.error_name)


def stop_for(outcome: Body, state: RunState) -> Body:
    """Return the event that stops the run after an effect without an outcome."""
    match outcome:
        case kinds.LlmFailed(code=code, message=message, hint=hint):
            return kinds.RunFailed(code, message, hint)
        case kinds.BudgetRefused():
            return kinds.LimitReached(outcome.limit, outcome.cap, state.phase, refusal_reason(outcome, state.phase))
        case kinds.AllowanceReached(limit=limit, cap=cap):
            return kinds.LimitReached(limit, cap, state.phase, allowance_reason(outcome, state.phase))
        case kinds.ChildStopped(status="waiting", wait=wait) if wait is not None:
            return kinds.WaitOpened(msgspec.structs.replace(wait, run=wait.run or outcome.run))
        case kinds.ChildStopped(status="limited"):
            reason = f"sub-run `{outcome.run}`: {outcome.reason}"
            return kinds.LimitReached(outcome.limit, outcome.value, state.phase, reason)
        case kinds.ChildStopped():
            reason = f"sub-run `{outcome.run}`: {outcome.reason}"
            return kinds.RunFailed(outcome.code, reason, outcome.hint, outcome.error_name)
    raise InternalError(f"`{outcome.kind}` does not stop a run")
