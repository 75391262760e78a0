"""The state of a run: the fold of its events, `apply(state, event)`. No I/O.

This module defines the effect of transitions, failures and rollbacks on a run. Status, reason, phase and open question
are folded in `reyn.journal.lifecycle`, what the result of a run needs in `reyn.journal.summary`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from reyn.errors import ChainBroken, HistoryInvalid
from reyn.journal import Body, Event, decode, kinds
from reyn.journal.summary import count_time, is_timed, summary_rule
from reyn.kernel.core import rules
from reyn.kernel.core.snapshot import RunState

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
        state = count_time(state, body, ts)
    if steps.rule is not None:
        state = steps.rule(state, body)
    return state if steps.summary is None else steps.summary(state, body)


class _Steps(NamedTuple):
    """What an event kind changes: the active time, the state, its summary."""

    is_timed: bool
    rule: Callable[[RunState, Any], RunState] | None
    summary: Callable[[RunState, Any], RunState] | None


_STEPS: dict[type[Body], _Steps] = {}


def _steps(kind: type[Body]) -> _Steps:
    """Return what an event kind changes. The kinds of ops are created on demand."""
    steps = _STEPS[kind] = _Steps(is_timed(kind), _RULES.get(kind.base), summary_rule(kind))
    return steps


def fold(events: Iterable[Event]) -> RunState:
    """Return the state after all events of a run."""
    state = EMPTY
    for seq, event in enumerate(events, start=1):
        if event.seq != seq:
            raise ChainBroken(f"event {seq} of run `{event.run_id}` is missing")
        state = apply(state, decode(event), event.ts)
    return state


_RULES: dict[type[Body], Callable[[RunState, Any], RunState]] = {
    kinds.RunStarted: rules.on_run_started,
    kinds.RunForked: rules.on_run_forked,
    kinds.RunResumed: rules.on_run_resumed,
    kinds.WaitAnswered: rules.on_wait_answered,
    kinds.WaitExpired: rules.on_wait_expired,
    kinds.PhaseStarted: rules.on_phase_started,
    kinds.ContentTruncated: rules.on_content_truncated,
    kinds.FrameBuilt: rules.on_frame_built,
    kinds.LlmRequested: rules.on_llm_requested,
    kinds.LlmResponded: rules.on_llm_responded,
    kinds.LlmFailed: rules.on_outcome,
    kinds.BudgetRefused: rules.on_outcome,
    kinds.AllowanceReached: rules.on_outcome,
    kinds.ArtifactStored: rules.on_artifact_stored,
    kinds.ControlDecided: rules.on_control_decided,
    kinds.HandoffRecorded: rules.on_handoff_recorded,
    kinds.PhaseCompleted: rules.on_phase_completed,
    kinds.PhaseFailed: rules.on_phase_failed,
    kinds.PhaseAborted: rules.on_phase_aborted,
    kinds.TurnAborted: rules.on_turn_aborted,
    kinds.VisitRetried: rules.on_visit_retried,
    kinds.ErrorHandled: rules.on_error_handled,
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
    kinds.MessageQueued: rules.on_message_queued,
    kinds.MessageTaken: rules.on_message_taken,
    kinds.RuleMatched: rules.on_values_read,
    kinds.ConditionsChecked: rules.on_values_read,
    kinds.OpStarted: rules.on_op_started,
    kinds.RequestFulfilled: rules.on_intent,
    kinds.OpCompleted: rules.on_op_completed,
    kinds.PermissionDenied: rules.on_outcome,
    kinds.ChildStarted: rules.on_child_started,
    kinds.ChildStopped: rules.on_outcome,
    kinds.ChildEnded: rules.on_child_ended,
    kinds.RestoreStarted: rules.on_intent,
    kinds.WorkspaceRestored: rules.on_outcome,
}
