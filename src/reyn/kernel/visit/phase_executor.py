"""Execute one visit: preprocessor, frame, model call, verdict, ops, then the decision or the next turn.

Visits are coroutines that emit events and await effects, so that first execution, recovery and replay are the same
code. A visit knows its candidates and nothing else of the graph; the orchestrator decides what follows. `visit_skill`
visits a node that is a skill; `postprocess` turns the finish artifact into the result of the run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context import Rollback
from reyn.context.words import plain_text
from reyn.contract import Accepted, Acting, Rejected
from reyn.errors import AnswersRejected, ApprovalExpired, CompactionFailed, StepFailed, SubRunFailed
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.core.effects import QUEUED, CheckOutput, Pause, ReadOverviews, Restore, TurnInterrupted
from reyn.kernel.core.limits import act_turns, limit_of, limit_reached, repeated_failure, within_limits
from reyn.kernel.visit.compaction import compact, plan_compaction
from reyn.kernel.visit.compiled_phase import Targets
from reyn.kernel.visit.handoffs import hand_in, hand_over
from reyn.kernel.visit.op_dispatch import OpLog, run_sub_skill
from reyn.kernel.visit.prompt_budget import fit_prompt
from reyn.kernel.visit.steps import StepFault, run_steps
from reyn.kernel.visit.transcript_budget import fit_transcript
from reyn.kernel.visit.turn import PreparedInput, TurnContext, execute_single_llm_phase, schedule_tool_batch
from reyn.kernel.visit.waits import ask_person, beginning, review_decision, sent_back
from reyn.skills import successors
from reyn.skills.values import USER_MESSAGE, skill_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.context import CompiledTurnContext, Repetition
    from reyn.kernel.core.run_orchestrator import Postprocess, Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase, RunContext, TurnSpec


MAX_TRUNCATED_READS = 10
"""Turns in which a visit may read more of truncated content; they cost no act turns."""


async def visit(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a phase: call the model until a decision is accepted and its ops succeed, or the retries are used up."""
    tape.emit(kinds.PhaseStarted(entry.phase, entry.visit, entry.input))
    log = OpLog(phase.vocabulary)
    try:
        prepared = _unprocessed_input(phase, entry, tape) or await _prepare_input(phase, entry, log, tape)
    except StepFault as fault:
        return await _fail_visit(entry, log, 0, StepFailed.code, fault.describe(entry.phase), tape)
    handoff = await hand_in(phase, entry, tape)
    context = TurnContext(phase, entry, prepared, handoff, log, tape, await _overviews(phase, entry, prepared, tape))
    try:
        await _take_turns(phase, entry, context, log, tape)
    except TurnInterrupted:
        aborted = tape.state.aborted
        assert aborted is not None
        context.abort(aborted)
        reason = f"the turn was aborted: {aborted.reason}" if aborted.reason else "the turn was aborted"
        ends = phase.name not in successors(phase.skill, phase.name)
        tape.emit(kinds.PhaseAborted(entry.phase, entry.visit, reason, ends))


async def _take_turns(phase: CompiledPhase, entry: Visit, context: TurnContext, log: OpLog, tape: Tape) -> None:
    """Take turns until a decision is committed or the visit fails."""
    turns, reads, retries, calls = 0, 0, 0, 0
    must_reply = False
    last_rejection: Rejected | None = None
    while retries <= phase.max_retries:
        if log.failure is not None and phase.stays_open:
            must_reply = must_reply or _is_stuck(phase, log.failure, tape)
        elif log.failure is not None:
            await _within_progress(phase, log.failure, tape)
        left = 0 if phase.skips_limit_checks and not tape.state.raised else await _turns_left(phase, turns, tape)
        left = 0 if must_reply else left
        draft = partial(_draft, phase, context, log, left, MAX_TRUNCATED_READS - reads, tape)
        spec, compiled = draft()
        if phase.calls_hooks(tape.state) and await context.call_hooks(spec, compiled, f"{entry.step}.{calls + 1}"):
            spec, compiled = draft()
        if context.is_conversation and (plan := plan_compaction(phase, context, tape)) is not None:
            compaction = await compact(plan, phase, f"{entry.step}.{calls}", tape)
            calls += compaction.calls
            if compaction.error:
                return await _fail_visit(entry, log, calls, CompactionFailed.code, compaction.error, tape)
            spec, compiled = draft()
        calls += 1
        call = f"{entry.step}.{calls}"
        prompt = None
        if phase.prompt_limit(tape.state).tokens is not None:
            contents = context.contents(f"{entry.step}.{calls - 1}")
            if context.grows(spec):
                prompt = await fit_transcript(draft, context.transcript, contents, phase, log, call, tape)
            else:
                prompt = await fit_prompt(draft, contents, phase, log, call, tape)
            spec = prompt.spec if prompt is not None else spec
        answer = await execute_single_llm_phase(spec, compiled, call, context, phase.model, tape, prompt)
        reply, verdict = answer
        if phase.skill.checks_output and isinstance(verdict, Accepted):
            verdict = await _check_output(verdict, call, spec)
        if isinstance(verdict, Rejected):
            error = tape.emit(kinds.ValidationError(call, verdict.rule, verdict.path, verdict.message, reply.hash))
            excerpt = log.truncate(f"{call}.answer", reply.hash, phase.settings.sizes.input_bytes, tape)
            context.correct(spec, answer, excerpt, error.path, error.message)
            last_rejection, retries = verdict, retries + 1
            if retries > phase.max_retries and phase.used_up and verdict.rule == "candidate":
                phase, retries = await _more_visits(phase, _failure_reason(phase, calls, verdict), tape), 0
            elif retries > phase.max_retries and phase.stays_open and left > 0:
                must_reply, retries = True, phase.max_retries  # one more attempt, without ops
                context.pending = ()
            continue
        if isinstance(verdict, Accepted) and phase.definition.requires_approval:
            reviewed = await review_decision(verdict, call, phase, tape)
            if reviewed.decision == "expired":
                reason = f"phase `{phase.name}`: its decision was not approved in time"
                return await _fail_visit(entry, log, calls, ApprovalExpired.code, reason, tape)
            if reviewed.decision == "reject":
                # Rejections by a person are not limited, and reset the retries for answers that Reyn rejects.
                rejected = log.truncate(f"{call}.answer", reply.hash, phase.settings.sizes.input_bytes, tape)
                context.correct(spec, answer, rejected, "$", sent_back(reviewed))
                retries = 0
                continue
        context.pending, last_rejection = (), None
        context.begin_ops(spec, answer, call)
        batch = await schedule_tool_batch(verdict, call, phase, log, tape) if verdict.ops else None
        context.add_turn(spec, answer, batch, max(0, left - 1))
        if isinstance(verdict, Accepted) and (batch is None or batch.deferral is None):
            return _commit(phase, entry, call, verdict, log, tape)
        if context.overviews is not None and _may_change(phase, verdict.ops):
            context.overviews = await _overviews(phase, entry, context.prepared, tape, call)
        if isinstance(verdict, Acting) and spec.contract.ops.only_reads_truncated(verdict.ops):
            reads += 1
        elif left > 0:
            turns += 1
        else:
            retries += 1
    reason = _failure_reason(phase, calls, last_rejection)
    if phase.stays_open:
        # Completed ops stay, as after an abort by the user.
        tape.emit(kinds.PhaseAborted(entry.phase, entry.visit, reason, ends=False, code=AnswersRejected.code))
        return None
    return await _fail_visit(entry, log, calls, AnswersRejected.code, reason, tape)


def _is_stuck(phase: CompiledPhase, failure: Repetition, tape: Tape) -> bool:
    """Return whether the same op failed too often with the same arguments."""
    return repeated_failure(tape.state, phase.settings, failure.name, failure.times) is not None


def _may_change(phase: CompiledPhase, ops: Sequence[dict[str, Any]]) -> bool:
    """Return whether ops may have changed what other ops can act on."""
    forms = (phase.vocabulary.form_of(op) for op in ops)
    return any(form is None or form.effect_of(op) != "pure" for form, op in zip(forms, ops, strict=True))


async def _check_output(verdict: Accepted, call: str, spec: TurnSpec) -> Accepted | Rejected:
    """Reject a final output that fits its schema but not the check of the program that started the run."""
    if verdict.type != "finish" or verdict.artifact is None:
        return verdict
    found = await CheckOutput(call, verdict.artifact["data"])
    return spec.contract.reject_output(found.path, found.error) if found.error else verdict


async def _overviews(
    phase: CompiledPhase, entry: Visit, prepared: PreparedInput, tape: Tape, call: str = ""
) -> kinds.OverviewsRead | None:
    """Return what the ops of a conversation can act on, if one of them can tell.

    `call` is the last call of the visit: its ops may have changed what there is.
    """
    if phase.definition.conversation is None:
        return None
    op_kinds = tuple(spec.kind for spec in phase.ops if spec.has_overview)
    if not op_kinds:
        return None
    new = {blob.hash: blob.content for blob in prepared.blobs}
    text = plain_text(new.get(prepared.input) or tape.content(prepared.input))
    if _continues(phase, entry):  # a short message, such as `yes`, refers to what was said before
        text += f"\n{plain_text(tape.content(entry.input.hash))}"
    return await ReadOverviews(f"{call or entry.step}.overviews", op_kinds, text)


def _unprocessed_input(phase: CompiledPhase, entry: Visit, tape: Tape) -> PreparedInput | None:
    """Return the input of a visit that needs no preparation; `None` if it needs some."""
    definition = phase.definition
    if entry.rollback is not None or definition.preprocessor or definition.reads or _continues(phase, entry):
        return None
    name = entry.input.hash
    if len(tape.content(name)) > phase.settings.sizes.input_bytes:
        return None
    order = phase.field_order(entry.input.type)
    if order is None:
        return PreparedInput(name, name)
    return PreparedInput(name, name, (order,), orders={name: order.hash})


async def _prepare_input(phase: CompiledPhase, entry: Visit, log: OpLog, tape: Tape) -> PreparedInput:
    """Run the preprocessor on the input artifact, and truncate content that is too large for a prompt.

    Includes the artifacts that the phase reads, if they exist and are not the input itself.
    """
    limit, back = phase.settings.sizes.input_bytes, entry.rollback
    content = Blob(entry.input.hash, tape.content(entry.input.hash))
    images: tuple[kinds.Part, ...] = ()
    is_reply = _continues(phase, entry)
    if is_reply:
        content, images = await _next_message(content.content, entry, tape)
    if phase.definition.preprocessor:
        artifact: dict[str, Any] = msgspec.json.decode(content.content)
        enriched = await run_steps(phase.definition.preprocessor, artifact, f"{entry.step}.pre", phase, log, tape)
        content = Blob.of(canonical(enriched))
    rollback = None
    if back is not None:
        rollback = Rollback(log.truncate(f"{entry.step}.rejected", back.rejected.hash, limit, tape), back.reason)
    reads = tuple(
        (name, log.truncate(f"{entry.step}.read{number}", entry.latest[name], limit, tape))
        for number, name in enumerate(phase.definition.reads, start=1)
        if entry.latest.get(name) not in (None, entry.input.hash)
    )
    shown = content.hash
    blobs: tuple[Blob, ...] = (content,) if phase.definition.preprocessor or is_reply else ()
    if len(content.content) > limit:
        shown, blobs = log.truncate_blob(f"{entry.step}.input", content, limit, tape), ()
    types = {shown: USER_MESSAGE.name if is_reply else entry.input.type} | {one: name for name, one in reads}
    if back is not None and rollback is not None:
        types[rollback.rejected_artifact] = back.rejected.type
    found = {one: order for one, name in types.items() if (order := phase.field_order(name)) is not None}
    blobs = (*blobs, *dict.fromkeys(found.values()))
    orders = {one: order.hash for one, order in found.items()}
    return PreparedInput(content.hash, shown, blobs, rollback, reads, images, orders)


def _continues(phase: CompiledPhase, entry: Visit) -> bool:
    """Return whether the visit continues a conversation: the phase follows itself, and its input is its own reply.

    A fork may replace the input by a message of the user.
    """
    if phase.definition.conversation is None or entry.rollback is not None:
        return False
    follows_itself = len(entry.path) > 1 and entry.path[-2] == entry.phase
    return follows_itself and (not entry.reply or entry.reply == entry.input.hash)


async def _next_message(reply: bytes, entry: Visit, tape: Tape) -> tuple[Blob, tuple[kinds.Part, ...]]:
    """Return the next message as a `user_message`, and its images: the oldest in the queue, or the user's reply."""
    text: Any = None
    images: tuple[kinds.Part, ...] = ()
    if not tape.state.inbox.queued:
        schema = {"type": "string", "minLength": 1, "maxLength": MAX_MESSAGE_CHARS}
        excerpt = beginning(plain_text(reply))
        text = await ask_person(f"{entry.step}.message", excerpt, schema, tape, reason=kinds.MESSAGE)
    if text is None or text is QUEUED:
        queued = tape.state.inbox.queued[0]
        tape.emit(kinds.MessageTaken(entry.phase, entry.visit, queued.text))
        text = tape.content(queued.text).decode()
    elif (answer := tape.state.last_answer) is not None:
        images = tuple(kinds.Part(image=image) for image in answer.images)
    return Blob.of(canonical({"type": USER_MESSAGE.name, "data": {"text": text}})), images


MAX_MESSAGE_CHARS = 10_000_000


def _draft(
    phase: CompiledPhase,
    context: TurnContext,
    log: OpLog,
    left: int,
    reads: int,
    tape: Tape,
    *,
    is_truncated: bool = False,
) -> tuple[TurnSpec, CompiledTurnContext]:
    """Return the answer specification and the messages, without regard to a token budget.

    `left` and `reads` are the act turns that are left, and the turns to read truncated content.
    """
    reads_left = reads if is_truncated or log.is_truncated else 0
    form, read = phase.form(tape.state), context.overviews
    targets = Targets(read.targets, tape.content) if read is not None and read.targets is not None else None
    spec = phase.turn_spec(form, acting=left > 0, is_truncated=reads_left > 0, targets=targets)
    return spec, context.compile(spec, left if phase.ops else reads_left or None)


async def _turns_left(phase: CompiledPhase, turns: int, tape: Tape) -> int:
    """Return the act turns that are left, after stopping the run for every limit that is reached."""
    phase_limit = phase.definition.max_act_turns if phase.ops else 0
    while True:
        stop = limit_reached(tape.state, phase.settings)
        if stop is None and not phase_limit:
            return 0
        left = max(0, act_turns(tape.state, phase.settings, phase_limit) - turns)
        if stop is None and turns and not left and phase.settings.on_limit == "stop":
            reason = f"phase `{phase.name}` used all of its {turns} act turns"
            stop = kinds.LimitReached("max_act_turns", turns, phase.name, reason)
        if stop is None:
            return left
        tape.emit(stop)
        await Pause()


async def _more_visits(phase: CompiledPhase, rejections: str, tape: Tape) -> CompiledPhase:
    """Stop the run: the model keeps choosing a phase without visits left. Return the phase after a raise."""
    names = " and ".join(f"`{name}`" for name in sorted(phase.used_up))
    cap = limit_of(tape.state, phase.settings, "max_phase_visits") or 0
    reason = f"{names} reached `max_phase_visits`, which is {cap}; {rejections}"
    tape.emit(kinds.LimitReached("max_phase_visits", cap, phase.name, reason))
    await Pause()
    return phase.recompiled(tape.state)


async def _within_progress(phase: CompiledPhase, failure: Repetition, tape: Tape) -> None:
    """Stop the run if the same op failed too often with the same arguments."""
    while (stop := repeated_failure(tape.state, phase.settings, failure.name, failure.times)) is not None:
        tape.emit(stop)
        await Pause()


def _commit(phase: CompiledPhase, entry: Visit, call: str, verdict: Accepted, log: OpLog, tape: Tape) -> None:
    """Emit the decision, its artifact and the end of the visit."""
    tape.emit(
        kinds.ControlDecided(
            call, verdict.type, verdict.decision, verdict.next_phase, verdict.confidence, verdict.reason
        )
    )
    if verdict.artifact is not None:
        _store(verdict.artifact, tape, verdict.artifact_json)
        hand_over(phase, entry, verdict.artifact, log, tape, reason=verdict.reason, extra=verdict.handoff)
    tape.emit(kinds.PhaseCompleted(entry.phase, entry.visit, verdict.type, verdict.next_phase))


def _store(artifact: dict[str, Any], tape: Tape, encoded: bytes | None = None) -> kinds.ArtifactRef:
    """Emit an artifact. `encoded` is its canonical JSON, if it is known."""
    content = Blob.of(canonical(artifact) if encoded is None else encoded)
    reference = kinds.ArtifactRef(artifact["type"], content.hash)
    tape.emit(kinds.ArtifactStored(reference, len(content.content)), content)
    return reference


def _failure_reason(phase: CompiledPhase, calls: int, last_rejection: Rejected | None) -> str:
    if last_rejection is None:
        return f"phase `{phase.name}`: no decision could be executed after {calls} answers"
    rejected = phase.max_retries + 1
    answers = "1 answer" if rejected == 1 else f"{rejected} answers"
    return f"phase `{phase.name}`: {answers} rejected, last at {last_rejection.path}: {last_rejection.message}"


async def _fail_visit(entry: Visit, log: OpLog, calls: int, code: str, reason: str, tape: Tape) -> None:
    """Restore the files that the visit changed, then record its failure."""
    await _restore_files(f"{entry.step}.restore", log, tape)
    tape.emit(kinds.PhaseFailed(entry.phase, entry.visit, calls, reason, code))


async def _restore_files(call: str, log: OpLog, tape: Tape) -> None:
    changes = log.changes_of(tape.state.run_id)
    if changes:
        tape.emit(kinds.RestoreStarted(call, changes))
        await Restore(call, changes)


# -- without a model ----------------------------------------------------------------------------------


async def visit_skill(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a node that is a skill: run it with the input; its result is the artifact of the visit."""
    tape.emit(kinds.PhaseStarted(entry.phase, entry.visit, entry.input))
    name = skill_of(entry.phase)
    shares = entry.phase.endswith("[shared]")
    await within_limits(tape, phase.settings)
    log = OpLog(phase.vocabulary)
    sub_run = await run_sub_skill(
        name, entry.input, f"{entry.step}.1", phase.sub_skill(name), tape, shares_workspace=shares
    )
    log.add_changes(sub_run.changes, tape)
    if sub_run.artifact is None:
        return await _fail_visit(entry, log, 0, SubRunFailed.code, f"node `{entry.phase}`: {sub_run.error}", tape)
    artifact = msgspec.json.decode(tape.content(sub_run.artifact.hash))
    target = next(iter(successors(phase.skill, entry.phase)), None)
    accepted = phase.skill.inputs_of(target) if target else (phase.skill.final_output,)
    error = artifact_error(phase, {member.name: member.schema for member in accepted}, artifact)
    if error:
        return await _fail_visit(entry, log, 0, SubRunFailed.code, f"node `{entry.phase}`: {error}", tape)
    _store(artifact, tape)
    hand_over(phase, entry, artifact, log, tape)
    kind: Any = "transition" if target else "finish"
    tape.emit(kinds.PhaseCompleted(entry.phase, entry.visit, kind, target))
    return None


def artifact_error(context: RunContext, accepted: dict[str, Any], artifact: dict[str, Any]) -> str:
    """Return why an artifact is not one of the accepted types; empty if it is."""
    if artifact["type"] not in accepted:
        names = " or ".join(f"`{name}`" for name in accepted)
        return f"the result has type `{artifact['type']}`; expected {names}"
    error = context.validator(accepted[artifact["type"]]).first_error(artifact["data"])
    return f"the result is not a valid `{artifact['type']}`: {error.path('data')}: {error.message}" if error else ""


async def postprocess(context: RunContext, entry: Postprocess, tape: Tape) -> None:
    """Run the postprocessor on the finish artifact; its output is the result of the run."""
    post = context.skill.postprocessor
    assert post is not None
    tape.emit(kinds.PostprocessorStarted(entry.attempt, entry.input))
    artifact = msgspec.json.decode(tape.content(entry.input.hash))
    log, prefix = OpLog(context.vocabulary), f"{entry.step}.post{entry.attempt}"
    try:
        enriched = await run_steps(post.steps, artifact, prefix, context, log, tape)
        result = {"type": post.output.name, "data": enriched["data"]}
        error = artifact_error(context, {post.output.name: post.output.schema}, result)
    except StepFault as fault:
        error = fault.describe("postprocessor")
    if error:
        await _restore_files(f"{prefix}.restore", log, tape)
        tape.emit(kinds.PostprocessorFailed(StepFailed.code, f"postprocessor: {error}"))
        return
    content = Blob.of(canonical(result))
    tape.emit(kinds.PostprocessorCompleted(kinds.ArtifactRef(post.output.name, content.hash)), content)
