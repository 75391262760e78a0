"""The state of a run: the fold of its events, `apply(state, event)`. No I/O.

This module defines the effect of transitions, failures, rollbacks and limits on a run. The lifecycle itself (status,
reason, phase, open question) is folded in `reyn.journal.lifecycle`, which the list of runs shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.errors import ChainBroken, HistoryInvalid
from reyn.journal import decode, kinds
from reyn.journal.lifecycle import rule_of
from reyn.kernel.core import rules
from reyn.kernel.core.snapshot import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reyn.journal import Body, Event

_UNTIMED = (kinds.BudgetReserved, kinds.BudgetSettled, kinds.ConversationRenamed)
"""Inputs that do not count the time since the last one. Budget events are recorded together with a second input; a
title can be given while no driver executes the run."""

_WITH_OWN_TIME = (kinds.ChildEnded, kinds.ChildStopped)
"""Outcomes that name the time in which another run was executed. A function is executed within the time of its op."""
_CONTINUING = (kinds.RunResumed, kinds.RunForked)

EMPTY = RunState(
    started=kinds.RunStarted(
        "", skill="", skill_hash="", input=kinds.ArtifactRef("", ""), model="", settings="", rules=0, wording=0
    )
)
"""A run without events. It is the only state without a first event; compare with `is`."""


def apply(state: RunState, body: Body, ts: int) -> RunState:
    """Return the state after one more event.

    Raises:
        HistoryInvalid: No run records this event in this state; the journal or archive was forged or damaged.
    """
    steps = _STEPS.get(type(body)) or _steps(type(body))
    if state is EMPTY and steps.rule is not rules.on_run_started:
        raise HistoryInvalid(f"`{body.kind}` comes before `run_started`")
    if steps.is_timed:
        state = _count_time(state, body, ts)
    if steps.rule is not None:
        state = steps.rule(state, body)
    return state if steps.lifecycle is None else steps.lifecycle(state, body)


class _Steps(NamedTuple):
    """What an event kind changes: the active time, the state, the lifecycle."""

    is_timed: bool
    rule: Callable[[RunState, Any], RunState] | None
    lifecycle: Callable[[RunState, Any], RunState] | None


_STEPS: dict[type[Body], _Steps] = {}


def _steps(kind: type[Body]) -> _Steps:
    """Return what an event kind changes. The kinds of ops are created on demand."""
    is_timed = kind.origin != "derived" and kind not in _UNTIMED
    steps = _STEPS[kind] = _Steps(is_timed, _RULES.get(kind.base), rule_of(kind))
    return steps


def fold(events: Iterable[Event]) -> RunState:
    """Return the state after all events of a run."""
    state = EMPTY
    for seq, event in enumerate(events, start=1):
        if event.seq != seq:
            raise ChainBroken(f"event {seq} of run `{event.run_id}` is missing")
        state = apply(state, decode(event), event.ts)
    return state


def _count_time(state: RunState, body: Body, ts: int) -> RunState:
    """Count the time since the last input while a driver executes the run: not before a resume, not while it waits."""
    if isinstance(body, _WITH_OWN_TIME) and not (isinstance(body, kinds.ChildEnded) and body.type == "function"):
        elapsed = body.active
    elif state.status != "running" or isinstance(body, _CONTINUING):
        elapsed = 0
    else:
        elapsed = max(0, ts - state.last_input)
    return replace(state, last_input=ts, active=state.active + elapsed)


_RULES: dict[type[Body], Callable[[RunState, Any], RunState]] = {
    kinds.RunStarted: rules.on_run_started,
    kinds.RunForked: rules.on_run_forked,
    kinds.RunResumed: rules.on_run_resumed,
    kinds.RunFailed: rules.on_run_failed,
    kinds.RunBroken: rules.on_run_broken,
    kinds.LimitReached: rules.on_limit_reached,
    kinds.LimitRaised: rules.on_limit_raised,
    kinds.WaitAnswered: rules.on_wait_answered,
    kinds.WaitExpired: rules.on_wait_expired,
    kinds.PhaseStarted: rules.on_phase_started,
    kinds.StepCompleted: rules.on_step_completed,
    kinds.ContentTruncated: rules.on_content_truncated,
    kinds.ContextLogFailed: rules.on_context_log_failed,
    kinds.FrameBuilt: rules.on_frame_built,
    kinds.LlmRequested: rules.on_llm_requested,
    kinds.LlmResponded: rules.on_llm_responded,
    kinds.LlmFailed: rules.on_outcome,
    kinds.BudgetSettled: rules.on_budget_settled,
    kinds.BudgetRefused: rules.on_budget_refused,
    kinds.ModelSwitched: rules.on_model_switched,
    kinds.ArtifactStored: rules.on_artifact_stored,
    kinds.ControlDecided: rules.on_control_decided,
    kinds.HandoffRecorded: rules.on_handoff_recorded,
    kinds.PhaseCompleted: rules.on_phase_completed,
    kinds.PhaseFailed: rules.on_phase_failed,
    kinds.PhaseAborted: rules.on_phase_aborted,
    kinds.TurnAborted: rules.on_turn_aborted,
    kinds.PhaseRolledBack: rules.on_phase_rolled_back,
    kinds.PostprocessorStarted: rules.on_postprocessor_started,
    kinds.PostprocessorCompleted: rules.on_postprocessor_completed,
    kinds.PostprocessorFailed: rules.on_postprocessor_failed,
    kinds.TranscriptExtended: rules.on_transcript_change,
    kinds.ExperienceRemembered: rules.on_transcript_change,
    kinds.ExperienceForgotten: rules.on_transcript_change,
    kinds.ContextCompacted: rules.on_transcript_change,
    kinds.MemoryChanged: rules.on_transcript_change,
    kinds.ContextMutated: rules.on_context_mutated,
    kinds.ConversationRenamed: rules.on_conversation_renamed,
    kinds.MessageQueued: rules.on_message_queued,
    kinds.MessageTaken: rules.on_message_taken,
    kinds.OpStarted: rules.on_op_started,
    kinds.RequestFulfilled: rules.on_intent,
    kinds.OpCompleted: rules.on_op_completed,
    kinds.PermissionDenied: rules.on_outcome,
    kinds.ChildStarted: rules.on_child_started,
    kinds.ChildStopped: rules.on_child_stopped,
    kinds.ChildEnded: rules.on_child_ended,
    kinds.OutputChecked: rules.on_output_checked,
    kinds.RestoreStarted: rules.on_intent,
    kinds.WorkspaceRestored: rules.on_workspace_restored,
}
