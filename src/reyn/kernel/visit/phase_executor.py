"""Execute one visit: input, frame, model call, verdict, ops, then the decision or the next turn.

Visits are coroutines that emit events and await effects, so that first execution, recovery and replay are the same
code. A visit knows its candidates and nothing else of the graph; the orchestrator decides what follows. `postprocess`
turns the finish artifact into the result of the run. Nodes without a model are in `model_free`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.contract import Accepted, Acting, Rejected
from reyn.errors import (
    AnswersRejected,
    ApprovalExpired,
    ConditionFailed,
    FillFailed,
    ModelAborted,
    StateFailed,
    StepFailed,
    WorkNotDone,
)
from reyn.journal import Blob, canonical, kinds
from reyn.journal.summary import limit_of
from reyn.kernel.core.effects import CheckOutput, Pause, TurnInterrupted
from reyn.kernel.core.errors_of_nodes import NodeFailed
from reyn.kernel.core.limits import act_turns, limit_reached, repeated_failure
from reyn.kernel.visit.compaction import compact, plan_compaction
from reyn.kernel.visit.deciding import ConditionFault, without_forbidden
from reyn.kernel.visit.handoffs import hand_in, hand_over
from reyn.kernel.visit.model_call import Targets
from reyn.kernel.visit.op_dispatch import OpLog
from reyn.kernel.visit.prompt_budget import Prompt, TurnDraft, fit_prompt
from reyn.kernel.visit.reviews import has_unfilled, review_decision, sent_back
from reyn.kernel.visit.skill_state import StateFault, change_of
from reyn.kernel.visit.step_context import StepFault
from reyn.kernel.visit.steps import run_steps
from reyn.kernel.visit.transcript_budget import fit_transcript
from reyn.kernel.visit.turn import (
    LlmPhaseResult,
    ToolBatchResult,
    TurnContext,
    execute_single_llm_phase,
    schedule_tool_batch,
)
from reyn.kernel.visit.visit_end import fail_visit, store_artifact
from reyn.kernel.visit.visit_input import prepare_input, read_overviews
from reyn.kernel.visit.work import Work
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.context.handoff import HandoffStatus
    from reyn.kernel.core.run_orchestrator import Postprocess, Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.model_call import TurnSpec
    from reyn.kernel.visit.run_context import RunContext

MAX_TRUNCATED_READS = 10
"""Turns in which a visit may read more of truncated content; they cost no act turns."""


class VisitFault(Exception):
    """The visit fails: the files that it changed are restored, and the reason is recorded."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class SentBack(NamedTuple):
    """The verdict of a person who sends a decision back to the model."""

    message: str


class VisitProgress:
    """The progress of a visit: what it has used up, and the turn that it is in.

    Attributes:
        calls: Model calls, compactions included.
        call: The id of the last one.
        turns: Turns in which the model acted.
        reads: Turns in which it only read truncated content.
        retries: Answers in a row that led nowhere.
        rejection: The last answer, if it was rejected.
        must_reply: Whether ops are not on offer any more, because the same op keeps failing.
        left: The act turns that are left in this turn.
        spec: What the model may answer in this turn.
    """

    spec: TurnSpec

    def __init__(self, phase: CompiledPhase, entry: Visit, context: TurnContext, log: OpLog, tape: Tape) -> None:
        self.phase = phase
        self.entry = entry
        self.context = context
        self.log = log
        self.work = log.work
        self.tape = tape
        self.calls = self.turns = self.reads = self.retries = self.left = 0
        self.call = f"{entry.step}.0"
        self.rejection: Rejected | None = None
        self.must_reply = False

    def count_calls(self, calls: int) -> None:
        """Count model calls."""
        self.calls += calls
        self.call = f"{self.entry.step}.{self.calls}"

    def draft(self, *, is_truncated: bool = False) -> TurnDraft:
        """Return what the model would be asked in this turn, without regard to a token budget."""
        phase, context, tape = self.phase, self.context, self.tape
        reads_left = MAX_TRUNCATED_READS - self.reads if is_truncated or self.log.truncated else 0
        named = context.overviews.targets if context.overviews is not None else None
        targets = Targets(named, tape.content) if named is not None else None
        spec = phase.turn_spec(
            phase.form(tape.state),
            acting=self.left > 0,
            is_truncated=reads_left > 0,
            targets=targets,
            left=self.work.left if self.work is not None else (),
        )
        return context.draft(spec, self.left if phase.ops else reads_left or None)

    def correct(self, answer: LlmPhaseResult, path: str, message: str) -> None:
        """Let the next turn show an answer and what is wrong with it."""
        limit = self.phase.settings.sizes.input_bytes
        excerpt = self.log.truncate(f"{self.call}.answer", answer.reply.hash, limit, self.tape)
        self.context.correct(self.spec, answer, excerpt, path, message)

    @property
    def failure_code(self) -> str:
        """The code of a visit whose retries are used up: that of missing work if the model kept deciding without it."""
        is_about_exit = self.rejection is not None and self.rejection.rule == "candidate"
        return (WorkNotDone if is_about_exit and self.work and self.work.left else AnswersRejected).code

    def failure_reason(self) -> str:
        """Return why the visit has no decision."""
        phase, rejection = self.phase, self.rejection
        if rejection is None:
            return f"phase `{phase.name}`: no decision could be executed after {self.calls} answers"
        rejected = phase.max_retries + 1
        answers = "1 answer" if rejected == 1 else f"{rejected} answers"
        return f"phase `{phase.name}`: {answers} rejected, last at {rejection.path}: {rejection.message}"


async def visit(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a phase: call the model until a decision is accepted and its ops succeed, or the retries are used up."""
    log = OpLog(phase.vocabulary, Work(phase, tape.content) if phase.has_work else None)
    if phase.definition.conversation is not None and tape.state.truncated:
        log.truncated.update(tape.state.truncated_in(entry.phase))  # its messages still show them
    try:
        prepared = await prepare_input(phase, entry, log, tape)
        if entry.phase in phase.skill.conditions:
            phase = without_forbidden(phase, entry, prepared, tape)
    except StepFault as fault:
        reason = fault.describe(entry.phase)
        return await fail_visit(entry, log, 0, StepFailed.code, reason, tape, fault.error_name)
    except ConditionFault as fault:
        return await fail_visit(entry, log, 0, ConditionFailed.code, fault.message, tape)
    except NodeFailed as failed:
        return await fail_visit(entry, log, 0, failed.code, failed.reason, tape, failed.error_name)
    handoff = await hand_in(phase, entry, tape) if phase.receives_handoffs else None
    overviews = await read_overviews(phase, entry, prepared, tape) if phase.listing_ops else None
    context = TurnContext(phase, entry, prepared, handoff, log, tape, overviews)
    progress = VisitProgress(phase, entry, context, log, tape)
    try:
        await _take_turns(progress)
    except VisitFault as fault:
        if context.is_conversation:
            _end_turn(phase, entry, fault.reason, tape, fault.code)
        else:
            await fail_visit(entry, log, progress.calls, fault.code, fault.reason, tape)
    except NodeFailed as failed:
        await fail_visit(entry, log, progress.calls, failed.code, failed.reason, tape, failed.error_name)
    except TurnInterrupted:
        aborted = tape.state.aborted
        assert aborted is not None
        context.abort(aborted)
        reason = f"the turn was aborted: {aborted.reason}" if aborted.reason else "the turn was aborted"
        _end_turn(phase, entry, reason, tape)


def _end_turn(phase: CompiledPhase, entry: Visit, reason: str, tape: Tape, code: str = "") -> None:
    """End a turn of a conversation without a reply. Its message and completed ops stay."""
    tape.emit(kinds.PhaseAborted(entry.phase, entry.visit, reason, not phase.follows_itself, code))


async def _take_turns(progress: VisitProgress) -> None:
    """Take turns until a decision is committed, or the retries are used up."""
    while progress.retries <= progress.phase.max_retries:
        await _check_limits(progress)
        answer = await _ask_model(progress)
        verdict: Accepted | Acting | Rejected | SentBack = answer.verdict
        is_filled_late = bool(isinstance(verdict, Accepted) and progress.phase.sources and verdict.ops)
        if isinstance(verdict, Accepted) and progress.phase.sources and not verdict.ops:
            verdict = _filled(progress, verdict)
        if isinstance(verdict, Accepted) and progress.phase.checks and not is_filled_late:
            verdict = await _check_artifact(progress, verdict)
        if isinstance(verdict, Accepted) and progress.phase.skill.checks_output:
            verdict = await _check_output(progress, verdict)
        if isinstance(verdict, Accepted) and progress.phase.definition.requires_approval:
            verdict = await _review(progress, verdict)
        if isinstance(verdict, Rejected):
            await _reject(progress, answer, verdict)
        elif isinstance(verdict, SentBack):
            # Rejections by a person are not limited, and reset the retries for answers that Reyn rejects.
            progress.correct(answer, "$", verdict.message)
            progress.retries = 0
        elif await _act(progress, answer, verdict) and isinstance(verdict, Accepted):
            if is_filled_late:
                checked = await _check_artifact(progress, _filled(progress, verdict))
                if isinstance(checked, Rejected):
                    await _reject(progress, answer, checked)
                    continue
                verdict = checked
            return _commit(progress, verdict)
    raise VisitFault(progress.failure_code, progress.failure_reason())


async def _check_limits(progress: VisitProgress) -> None:
    """Stop the run for every limit that is reached, and find out how many act turns are left."""
    phase, state, failure = progress.phase, progress.tape.state, progress.log.failure
    if failure is None and phase.skips_limit_checks and not state.raised and progress.work is None:
        return
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
    if phase.calls_hooks(tape.state) and await context.call_hooks(draft, f"{progress.entry.step}.{progress.calls + 1}"):
        draft = progress.draft()
    if context.is_conversation and (plan := plan_compaction(phase, context, tape)) is not None:
        progress.count_calls(await compact(plan, phase, context, progress.call, tape))
        draft = progress.draft()
    last_call = progress.call
    progress.count_calls(1)
    prompt: Prompt | None = None
    if context.limit is not None or phase.limits_prompt(tape.state):
        contents = context.contents(last_call)
        if context.grows(draft.spec):
            fitted, most = context.transcript, context.limit
            prompt = await fit_transcript(
                progress.draft, fitted, contents, phase, progress.log, progress.call, tape, most
            )
        else:
            prompt = await fit_prompt(progress.draft, contents, phase, progress.log, progress.call, tape)
    progress.spec = draft.spec if prompt is None else prompt.spec
    return await execute_single_llm_phase(draft, progress.call, context, phase.model, tape, prompt)


def _filled(progress: VisitProgress, verdict: Accepted) -> Accepted:
    """Return a decision whose artifact has the fields that ops of the visit fill."""
    phase, artifact, work = progress.phase, verdict.artifact, progress.work
    if artifact is None or work is None:
        return verdict
    schema = phase.output_schemas[verdict.next_phase or END, artifact["type"]]
    artifact, error = work.fill(artifact, schema)
    error = error or phase.artifact_error({artifact["type"]: schema}, artifact)
    if error:
        raise VisitFault(FillFailed.code, error)
    return msgspec.structs.replace(verdict, artifact=artifact, artifact_json=None)


async def _check_artifact(progress: VisitProgress, verdict: Accepted, attempt: str = "") -> Accepted | Rejected:
    """Reject a decision that does not pass the check of the node; `attempt` is that of a person's edit."""
    phase, artifact = progress.phase, verdict.artifact
    if artifact is None or not phase.checks:
        return verdict
    prefix, local = f"{progress.call}.check{attempt}", progress.context.prepared.local
    try:
        await run_steps(phase.checks, artifact, prefix, phase, progress.log, progress.tape, phase.name, local)
    except StepFault as fault:
        if fault.is_final and not attempt:  # an expression without a value: no other answer is better
            raise VisitFault(StepFailed.code, fault.describe(phase.name)) from fault
        return progress.spec.contract.reject_output("", fault.message)
    return verdict


async def _check_output(progress: VisitProgress, verdict: Accepted) -> Accepted | Rejected:
    """Reject a final output that fits its schema but not the check of the program that started the run."""
    if verdict.type != "finish" or verdict.artifact is None:
        return verdict
    found = await CheckOutput(progress.call, verdict.artifact["data"])
    return progress.spec.contract.reject_output(found.path, found.error) if found.error else verdict


async def _review(progress: VisitProgress, verdict: Accepted) -> Accepted | SentBack:
    """Wait until a person approves the decision, perhaps with another artifact, or sends it back."""

    async def check(edited: Accepted, asked: int) -> Accepted | Rejected:
        """Check an edited artifact as that of the model was checked. Fields that ops fill keep their values."""
        if has_unfilled(progress.phase, edited):
            return edited  # checked after its ops
        edited = _filled(progress, edited) if progress.phase.sources else edited
        return await _check_artifact(progress, edited, f"-{asked}")

    reviewed, verdict = await review_decision(verdict, progress.call, progress.phase, progress.tape, check)
    if reviewed.decision == "expired":
        reason = f"phase `{progress.phase.name}`: its decision was not approved in time"
        raise VisitFault(ApprovalExpired.code, reason)
    return SentBack(sent_back(reviewed)) if reviewed.decision == "reject" else verdict


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
    context.add_turn(spec, answer, batch, progress.left if phase.ops else MAX_TRUNCATED_READS - progress.reads)
    if not is_final and context.overviews is not None and _may_change(phase, verdict.ops):
        context.overviews = await read_overviews(phase, progress.entry, context.prepared, tape, progress.call)
    return is_final


def _may_change(phase: CompiledPhase, ops: Sequence[dict[str, Any]]) -> bool:
    """Return whether ops may have changed what other ops can act on."""
    forms = (phase.vocabulary.form_of(op) for op in ops)
    return any(form is None or form.effect_of(op) != "pure" for form, op in zip(forms, ops, strict=True))


def _commit(progress: VisitProgress, verdict: Accepted) -> None:
    """Emit the decision, its artifact and the end of the visit."""
    phase, entry, log, tape = progress.phase, progress.entry, progress.log, progress.tape
    change: kinds.StateChange | None = None
    if phase.skill.state and verdict.artifact is not None:
        try:
            change = change_of(phase, verdict.artifact, tape)
        except StateFault as fault:
            raise VisitFault(StateFailed.code, f"phase `{phase.name}`: {fault.message}") from fault
    tape.emit(
        kinds.ControlDecided(
            progress.call, verdict.type, verdict.decision, verdict.next_phase, verdict.confidence, verdict.reason
        )
    )
    if verdict.type == "abort" and phase.is_endless:
        reason = f"the model aborted the turn: {verdict.reason}"
        return _end_turn(phase, entry, reason, tape, ModelAborted.code)
    if verdict.artifact is not None:
        store_artifact(verdict.artifact, tape, verdict.artifact_json, change)
        status: HandoffStatus = "time_boxed" if progress.turns and progress.left <= 0 else "completed"
        reason, extra = verdict.reason, verdict.handoff
        hand_over(phase, entry, verdict.artifact, log, tape, status=status, reason=reason, extra=extra)
    rolls_back = phase.skill.on_phase_failure == "rollback" and not progress.context.is_conversation
    done, steps, blobs = log.completed() if rolls_back and (log.performed or log.steps) else ((), None, ())
    tape.emit(kinds.PhaseCompleted(entry.phase, entry.visit, verdict.type, verdict.next_phase, done, steps), *blobs)
    return None


async def postprocess(context: RunContext, entry: Postprocess, tape: Tape) -> None:
    """Run the postprocessor on the finish artifact; its output is the result of the run."""
    post = context.skill.postprocessor
    assert post is not None
    tape.emit(kinds.PostprocessorStarted(entry.attempt, entry.input))
    artifact = msgspec.json.decode(tape.content(entry.input.hash))
    log, prefix = OpLog(context.vocabulary), f"{entry.step}.post{entry.attempt}"
    try:
        enriched, _ = await run_steps(post.steps, artifact, prefix, context, log, tape)
        result = {"type": post.output.name, "data": enriched["data"]}
        error = context.artifact_error({post.output.name: post.output.schema}, result)
    except StepFault as fault:
        error = fault.describe("postprocessor")
    if error:
        await log.restore_files(f"{prefix}.restore", tape)
        _, steps, blobs = log.completed()
        tape.emit(kinds.PostprocessorFailed(StepFailed.code, f"postprocessor: {error}", steps), *blobs)
        return
    content = Blob.of(canonical(result))
    tape.emit(kinds.PostprocessorCompleted(kinds.ArtifactRef(post.output.name, content.hash)), content)
