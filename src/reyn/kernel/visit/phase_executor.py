"""Execute one visit: input, frame, model call, verdict, ops, then the decision or the next turn.

Visits are coroutines that emit events and await effects, so that first execution, recovery and replay are the same
code. A visit knows its candidates and nothing else of the graph; the orchestrator decides what follows. `Stages` are
what a phase uses besides a call of its model; a phase that does not use a feature executes none of its code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.contract import Accepted, Acting, Rejected
from reyn.errors import AnswersRejected, ModelAborted, StateFailed, StepFailed, WorkNotDone
from reyn.journal import kinds
from reyn.journal.summary import limit_of
from reyn.kernel.core.effects import Pause, TurnInterrupted
from reyn.kernel.core.errors_of_nodes import NodeFailed, VisitFault, handles_abort
from reyn.kernel.core.limits import act_turns, limit_reached, repeated_failure
from reyn.kernel.visit.compaction import compact, plan_compaction
from reyn.kernel.visit.deciding import ConditionFault, without_forbidden
from reyn.kernel.visit.decision_checks import DecisionCheck, SentBack, artifact_checks, decision_checks
from reyn.kernel.visit.handoffs import hand_in, hand_over
from reyn.kernel.visit.op_log import Completed
from reyn.kernel.visit.progress import MAX_TRUNCATED_READS, VisitProgress
from reyn.kernel.visit.prompt_budget import Prompt, fit_prompt
from reyn.kernel.visit.skill_state import StateFault, change_of
from reyn.kernel.visit.step_context import StepFault
from reyn.kernel.visit.transcript_budget import fit_transcript
from reyn.kernel.visit.turn import LlmPhaseResult, ToolBatchResult, execute_single_llm_phase, schedule_tool_batch
from reyn.kernel.visit.visit_end import discard_visit, fail_visit, store_artifact
from reyn.kernel.visit.visit_input import plain_input, prepare_input, read_overviews

if TYPE_CHECKING:
    from reyn.context.handoff import HandoffStatus
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase

    Prepare = Callable[[VisitProgress], Awaitable[None]]


class Stages(NamedTuple):
    """What the visits of a phase do besides asking its model. It depends on the skill and the settings alone."""

    prepare: tuple[Prepare, ...]
    """Before the first turn, after its input is known."""
    completion: tuple[DecisionCheck, ...]
    """Of the artifact of a decision: before its ops, or after them if they fill fields of it."""
    review: tuple[DecisionCheck, ...]
    """Of a decision, before its ops."""


def stages_of(phase: CompiledPhase) -> Stages:
    """Return the stages that a phase uses."""
    prepare = {
        _check_conditions: phase.name in phase.skill.conditions,
        _receive_handoffs: phase.receives_handoffs,
        _read_overviews: phase.listing_ops,
    }
    used = tuple(stage for stage, is_used in prepare.items() if is_used)
    return Stages(used, artifact_checks(phase), decision_checks(phase))


async def visit(stages: Stages, phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a phase: call the model until a decision is accepted and its ops succeed, or the retries are used up."""
    progress = VisitProgress(phase, entry, tape)
    log = progress.log
    try:
        progress.context.take(plain_input(phase, entry, tape) or await prepare_input(phase, entry, log, tape))
        for prepare in stages.prepare:
            await prepare(progress)
        await _take_turns(progress, stages)
    except StepFault as fault:
        await fail_visit(entry, log, fault.ending(entry.phase, StepFailed.code), tape)
    except (ConditionFault, NodeFailed) as failed:
        await fail_visit(entry, log, failed, tape, progress.calls)
    except VisitFault as fault:
        if progress.context.is_conversation:
            _end_turn(progress, fault.reason, fault.code)
        else:
            await fail_visit(entry, log, fault, tape, progress.calls)
    except TurnInterrupted:
        aborted = tape.state.aborted
        assert aborted is not None
        progress.context.abort(aborted)
        _end_turn(progress, f"the turn was aborted: {aborted.reason}" if aborted.reason else "the turn was aborted")


def _end_turn(progress: VisitProgress, reason: str, code: str = "") -> None:
    """End a turn of a conversation without a reply. Its message and completed ops stay."""
    entry, log, ends = progress.entry, progress.log, not progress.phase.follows_itself
    # A repetition finds the ops of the model in the transcript; its steps take over what these steps have done.
    is_repeated = ends and bool(code)
    steps = log.steps.content() if is_repeated and log.steps is not None else None
    done, _, blobs = log.completed_turn() if is_repeated else Completed()
    blobs, name = (blobs, None) if steps is None else ((*blobs, steps), steps.hash)
    progress.tape.emit(kinds.PhaseAborted(entry.phase, entry.visit, reason, ends, code, name, done), *blobs)


# -- before the first turn --------------------------------------------------------------------------


async def _check_conditions(progress: VisitProgress) -> None:
    """Leave out the candidates that the conditions on their edges forbid."""
    progress.use(without_forbidden(progress.phase, progress.entry, progress.context.prepared, progress.tape))


async def _receive_handoffs(progress: VisitProgress) -> None:
    """Add what earlier phases hand over."""
    progress.context.handoff = await hand_in(progress.phase, progress.entry, progress.tape)


async def _read_overviews(progress: VisitProgress) -> None:
    """Add what ops can act on; also after ops that may have changed it."""
    context, call = progress.context, progress.call if progress.calls else ""
    context.overviews = await read_overviews(progress.phase, progress.entry, context.prepared, progress.tape, call)


# -- turns ------------------------------------------------------------------------------------------


async def _take_turns(progress: VisitProgress, stages: Stages) -> None:
    """Take turns until a decision is committed, or the retries are used up."""
    while progress.retries <= progress.phase.max_retries:
        if progress.phase.checks_limits or progress.tape.state.raised or progress.log.failure is not None:
            await _check_limits(progress)
        answer = await _ask_model(progress)
        verdict: Accepted | Acting | Rejected | SentBack = answer.verdict
        if isinstance(verdict, Accepted):
            is_filled_late = bool(progress.phase.sources and verdict.ops)
            if checks := stages.review if is_filled_late else (*stages.completion, *stages.review):
                verdict = await _checked(progress, verdict, checks)
            if isinstance(verdict, Accepted):
                if (verdict.ops or progress.spec.grows) and not await _act(progress, answer, verdict):
                    continue
                if is_filled_late:
                    verdict = await _checked(progress, verdict, stages.completion)
        if isinstance(verdict, Accepted):
            return await _commit(progress, verdict)
        if isinstance(verdict, Acting):
            await _act(progress, answer, verdict)
        elif isinstance(verdict, Rejected):
            await _reject(progress, answer, verdict)
        else:
            # Rejections by a person are not limited, and reset the retries for answers that Reyn rejects.
            progress.correct(answer, "$", verdict.message)
            progress.retries = 0
    raise VisitFault(progress.failure_code, progress.failure_reason())


async def _checked(
    progress: VisitProgress, verdict: Accepted, checks: Sequence[DecisionCheck]
) -> Accepted | Rejected | SentBack:
    """Return a decision after its checks, or the verdict of the first that it does not pass."""
    for check in checks:
        checked = await check(progress, verdict)
        if not isinstance(checked, Accepted):
            return checked
        verdict = checked
    return verdict


async def _check_limits(progress: VisitProgress) -> None:
    """Stop the run for every limit that is reached, and find out how many act turns are left."""
    phase, state, failure = progress.phase, progress.tape.state, progress.log.failure
    if progress.work is not None and (fault := progress.work.fault()):
        raise VisitFault(WorkNotDone.code, fault)
    if failure is not None and phase.stays_open:
        is_stuck = repeated_failure(state, phase.settings, failure.name, failure.times) is not None
        progress.must_reply = progress.must_reply or is_stuck
    elif failure is not None:
        while (stop := repeated_failure(progress.tape.state, phase.settings, failure.name, failure.times)) is not None:
            await _stop(progress, stop)
    await _count_turns(progress)
    if progress.work is not None and (fault := progress.work.fault(progress.left)):
        raise VisitFault(WorkNotDone.code, fault)


async def _count_turns(progress: VisitProgress) -> None:
    """Find out how many act turns are left, after stopping the run for every limit that is reached."""
    phase, turns, tape = progress.phase, progress.turns, progress.tape
    phase_limit = phase.definition.max_act_turns if phase.ops else 0
    while True:
        stop = limit_reached(tape.state, phase.settings)
        left = max(0, act_turns(tape.state, phase.settings, phase_limit) - turns) if phase_limit else 0
        if stop is None and phase_limit and turns and not left and phase.settings.on_limit == "stop":
            reason = f"phase `{phase.name}` used all of its {turns} act turns"
            stop = kinds.LimitReached("max_act_turns", turns, phase.name, reason)
        progress.left = 0 if progress.must_reply else left
        if stop is None:
            return
        await _stop(progress, stop)


async def _stop(progress: VisitProgress, stop: kinds.LimitReached) -> None:
    """Stop the run at a limit. In a conversation, the message that has begun the turn is part of the transcript."""
    if progress.context.is_conversation:
        progress.draft()
    await Pause(stop=stop)


async def _ask_model(progress: VisitProgress) -> LlmPhaseResult:
    """Prepare the prompt of a turn, and call the model."""
    phase, context, tape = progress.phase, progress.context, progress.tape
    draft = progress.draft()
    if tape.state.started.hooks and await context.call_hooks(draft, f"{progress.entry.step}.{progress.calls + 1}"):
        draft = progress.draft()
    if context.is_conversation and (plan := plan_compaction(phase, context, tape)) is not None:
        progress.count_calls(await compact(plan, phase, context, progress.call, tape))
        draft = progress.draft()
    last_call = progress.call
    progress.count_calls(1)
    prompt: Prompt | None = None
    models, raised = tape.state.models, tape.state.raised
    may_be_long = phase.may_limit_prompt or raised or models.prompt_limit.tokens is not None
    if context.limit is not None or (may_be_long and phase.limits_prompt(tape.state)):
        contents = context.contents(last_call)
        if draft.spec.grows:
            fitted, most = context.transcript, context.limit
            prompt = await fit_transcript(
                progress.draft, fitted, contents, phase, progress.log, progress.call, tape, most
            )
        else:
            prompt = await fit_prompt(progress.draft, contents, phase, progress.log, progress.call, tape)
    progress.spec = draft.spec if prompt is None else prompt.spec
    return await execute_single_llm_phase(draft, progress.call, context, phase.model, tape, prompt)


async def _reject(progress: VisitProgress, answer: LlmPhaseResult, verdict: Rejected) -> None:
    """Record why an answer is rejected, and let the next turn correct it."""
    phase, tape = progress.phase, progress.tape
    error = tape.emit(
        kinds.ValidationError(progress.call, verdict.rule, verdict.path, verdict.message, answer.reply.hash)
    )
    progress.correct(answer, error.path, error.message)
    progress.rejection = verdict
    progress.retries += 1
    if progress.retries <= phase.max_retries:
        return
    if phase.used_up and verdict.rule == "candidate" and progress.failure_code == AnswersRejected.code:
        await _more_visits(progress)
    elif phase.stays_open and progress.left > 0:
        progress.must_reply, progress.retries = True, phase.max_retries  # one more attempt, without ops
        progress.context.pending = ()


async def _more_visits(progress: VisitProgress) -> None:
    """Stop the run: the model keeps choosing a phase without visits left. After a raise, it has attempts again."""
    phase, tape = progress.phase, progress.tape
    names = " and ".join(f"`{name}`" for name in sorted(phase.used_up))
    cap = limit_of(tape.state, phase.settings, "max_phase_visits") or 0
    reason = f"{names} reached `max_phase_visits`, which is {cap}; {progress.failure_reason()}"
    await _stop(progress, kinds.LimitReached("max_phase_visits", cap, phase.name, reason))
    progress.phase, progress.retries = phase.recompiled(tape.state), 0


async def _act(progress: VisitProgress, answer: LlmPhaseResult, verdict: Accepted | Acting) -> bool:
    """Execute the ops of an answer; return whether a decision can be committed."""
    phase, context, log, tape, spec = progress.phase, progress.context, progress.log, progress.tape, progress.spec
    context.pending, progress.rejection = (), None
    if spec.grows:
        context.begin_ops(spec, answer, progress.call)
    batch: ToolBatchResult | None = None
    if verdict.ops:
        batch = await schedule_tool_batch(verdict, progress.call, answer.reply.hash, phase, log, tape)
    is_final = isinstance(verdict, Accepted) and (batch is None or batch.deferral is None)
    if not is_final:
        is_free = isinstance(verdict, Acting) and progress.reads < MAX_TRUNCATED_READS
        if is_free and spec.contract.ops.only_reads_truncated(verdict.ops):
            progress.reads += 1
        elif progress.left > 0:
            progress.turns, progress.left = progress.turns + 1, progress.left - 1
        else:
            progress.retries += 1
    if spec.grows:
        context.add_turn(spec, answer, batch, progress.left if phase.ops else MAX_TRUNCATED_READS - progress.reads)
    if not is_final and context.overviews is not None and _may_change(phase, verdict.ops):
        await _read_overviews(progress)
    return is_final


def _may_change(phase: CompiledPhase, ops: Sequence[dict[str, Any]]) -> bool:
    """Return whether ops may have changed what other ops can act on."""
    forms = (phase.vocabulary.form_of(op) for op in ops)
    return any(form is None or form.effect_of(op) != "pure" for form, op in zip(forms, ops, strict=True))


async def _commit(progress: VisitProgress, verdict: Accepted) -> None:
    """Emit the decision, its artifact and the end of the visit. An abort that the node handles discards the visit."""
    phase, entry, log, tape = progress.phase, progress.entry, progress.log, progress.tape
    change: kinds.StateChange | None = None
    if phase.skill.state and verdict.artifact is not None:
        try:
            change = change_of(phase, verdict.artifact, tape)
        except StateFault as fault:
            raise VisitFault(StateFailed.code, f"phase `{phase.name}`: {fault.message}") from fault
    discarded = None
    if verdict.type == "abort" and handles_abort(tape.state, phase.skill):
        discarded = await discard_visit(entry, log, tape)
    tape.emit(
        kinds.ControlDecided(
            progress.call, verdict.type, verdict.decision, verdict.next_phase, verdict.confidence, verdict.reason
        )
    )
    if verdict.type == "abort" and phase.is_endless:
        reason = f"the model aborted the turn: {verdict.reason}"
        return _end_turn(progress, reason, ModelAborted.code)
    if verdict.artifact is not None:
        store_artifact(verdict.artifact, tape, verdict.artifact_json, change)
        if phase.uses_handoffs:
            status: HandoffStatus = "time_boxed" if progress.turns and progress.left <= 0 else "completed"
            reason, extra = verdict.reason, verdict.handoff
            hand_over(phase, entry, verdict.artifact, log, tape, status=status, reason=reason, extra=extra)
    if discarded is None and phase.skill.on_phase_failure == "rollback" and (log.performed or log.steps):
        discarded = log.completed_turn() if progress.context.is_conversation else log.completed()
    done, steps, blobs = discarded or Completed()
    tape.emit(kinds.PhaseCompleted(entry.phase, entry.visit, verdict.type, verdict.next_phase, done, steps), *blobs)
    return None
