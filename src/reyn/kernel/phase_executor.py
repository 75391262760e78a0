"""Execute one visit: preprocessor, frame, model call, verdict, ops, then the decision or the next turn.

Visits are coroutines that emit events and await effects, so that first execution, recovery and replay are the same
code. A visit knows its candidates and nothing else of the graph; the orchestrator decides what follows. `visit_skill`
visits a node that is a skill; `postprocess` turns the finish artifact into the result of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.context import Execution, Rollback, TurnFrame, correction, turn_message
from reyn.contract import Accepted, Acting, Rejected
from reyn.errors import AnswersRejected, ApprovalExpired, StepFailed, SubRunFailed
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.approvals import review_decision, sent_back
from reyn.kernel.effects import Pause, Restore
from reyn.kernel.handoffs import hand_in, hand_over
from reyn.kernel.limits import act_turns, limit_of, limit_reached, repeated_failure, within_limits
from reyn.kernel.llm_call_recorder import ask
from reyn.kernel.op_dispatch import OpLog, run_op, run_sub_skill
from reyn.kernel.steps import StepFault, run_steps
from reyn.skills import successors
from reyn.skills.values import skill_of

if TYPE_CHECKING:
    from reyn.context import Repetition
    from reyn.kernel.compiled_skill import CompiledPhase, RunContext, TurnSpec
    from reyn.kernel.run_orchestrator import Postprocess, Visit
    from reyn.kernel.tape import Tape


MAX_TRUNCATED_READS = 10
"""Turns in which a visit may read more of truncated content; they cost no act turns."""


async def visit(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a phase: call the model until a decision is accepted and its ops succeed, or the retries are used up."""
    tape.emit(kinds.PhaseStarted(entry.phase, entry.visit, entry.input))
    log, turns, reads, retries, calls = OpLog(), 0, 0, 0, 0
    correction_messages: tuple[kinds.FrameMessage, ...] = ()
    last_rejection: Rejected | None = None
    try:
        prepared = _unprocessed_input(phase, entry, tape) or await _prepare_input(phase, entry, log, tape)
    except StepFault as fault:
        return await _fail_visit(entry, log, 0, StepFailed.code, fault.describe(entry.phase), tape)
    handoff = hand_in(phase, entry, tape)
    while retries <= phase.max_retries:
        if log.failure is not None:
            await _within_progress(phase, log.failure, tape)
        left = 0 if phase.skips_limit_checks and not tape.state.raised else await _turns_left(phase, turns, tape)
        reads_left = MAX_TRUNCATED_READS - reads if log.is_truncated else 0
        spec = phase.turn_spec(phase.form(tape.state), acting=left > 0, is_truncated=reads_left > 0)
        turns_left = left if phase.ops else reads_left or None
        frame_messages = _frame(spec, entry, prepared, log, turns_left, phase.remaining_visits(tape.state), handoff)
        calls += 1
        call = f"{entry.step}.{calls}"
        frame = tape.emit(
            kinds.FrameBuilt((*frame_messages, *correction_messages), spec.form), spec.stable, *prepared.blobs
        )
        reply = await ask(spec, phase.model, frame.messages, call, tape, tuple(log.results), prepared.input)
        verdict = spec.contract.judge(reply.text, is_truncated=reply.is_truncated, probability=reply.probability)
        if verdict.dropped:
            tape.emit(kinds.AnswerUnwrapped(call, verdict.dropped))
        if isinstance(verdict, Rejected):
            error = tape.emit(kinds.ValidationError(call, verdict.rule, verdict.path, verdict.message, reply.hash))
            answer = log.truncate(f"{call}.answer", reply.hash, phase.settings.sizes.input_bytes, tape)
            correction_messages = correction(answer, error.path, error.message)
            last_rejection, retries = verdict, retries + 1
            if retries > phase.max_retries and phase.used_up and verdict.rule == "candidate":
                phase, retries = await _more_visits(phase, _failure_reason(phase, calls, verdict), tape), 0
            continue
        if isinstance(verdict, Accepted) and phase.definition.requires_approval:
            reviewed = await review_decision(verdict, call, phase, tape)
            if reviewed.decision == "expired":
                reason = f"phase `{phase.name}`: its decision was not approved in time"
                return await _fail_visit(entry, log, calls, ApprovalExpired.code, reason, tape)
            if reviewed.decision == "reject":
                # A person decides how often, so this is not limited; what the model gets wrong itself counts anew.
                answer = log.truncate(f"{call}.answer", reply.hash, phase.settings.sizes.input_bytes, tape)
                correction_messages, retries = correction(answer, "$", sent_back(reviewed)), 0
                continue
        correction_messages, last_rejection = (), None
        deferral = await _run_ops(verdict, call, phase, log, tape) if verdict.ops else None
        if isinstance(verdict, Accepted) and deferral is None:
            return _commit(phase, entry, call, verdict, log, tape)
        if isinstance(verdict, Acting) and spec.contract.ops.only_reads_truncated(verdict.ops):
            reads += 1
        elif left > 0:
            turns += 1
        else:
            retries += 1
    reason = _failure_reason(phase, calls, last_rejection)
    return await _fail_visit(entry, log, calls, AnswersRejected.code, reason, tape)


class _PreparedInput(NamedTuple):
    """The input of a visit: its hash, the hash of what frames contain of it, new content, the rollback, if any, and
    type and hash of what frames contain of the artifacts that the phase reads."""

    input: str
    hash: str
    blobs: tuple[Blob, ...] = ()
    rollback: Rollback | None = None
    reads: tuple[tuple[str, str], ...] = ()


def _unprocessed_input(phase: CompiledPhase, entry: Visit, tape: Tape) -> _PreparedInput | None:
    """Return the input of a visit that needs no preparation; `None` if it needs some."""
    if entry.rollback is not None or phase.definition.preprocessor or phase.definition.reads:
        return None
    is_small = len(tape.content(entry.input.hash)) <= phase.settings.sizes.input_bytes
    return _PreparedInput(entry.input.hash, entry.input.hash) if is_small else None


async def _prepare_input(phase: CompiledPhase, entry: Visit, log: OpLog, tape: Tape) -> _PreparedInput:
    """Run the preprocessor on the input artifact, and truncate what is too large for a frame.

    Of the artifacts that the phase reads, those that exist and are not the input itself are included.
    """
    limit, back = phase.settings.sizes.input_bytes, entry.rollback
    content = Blob(entry.input.hash, tape.content(entry.input.hash))
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
    if len(content.content) > limit:
        shown = log.truncate_blob(f"{entry.step}.input", content, limit, tape)
        return _PreparedInput(content.hash, shown, (), rollback, reads)
    blobs = (content,) if phase.definition.preprocessor else ()
    return _PreparedInput(content.hash, content.hash, blobs, rollback, reads)


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
    """Stop the run: the model insists on a phase whose visits are used up. Return the phase as it is after a raise."""
    names = " and ".join(f"`{name}`" for name in sorted(phase.used_up))
    cap = limit_of(tape.state, phase.settings, "max_phase_visits") or 0
    reason = f"{names} reached `max_phase_visits`, which is {cap}; {rejections}"
    tape.emit(kinds.LimitReached("max_phase_visits", cap, phase.name, reason))
    await Pause()
    return phase.recompiled(tape.state)


async def _within_progress(phase: CompiledPhase, failure: Repetition, tape: Tape) -> None:
    """Stop the run if the model called the same op in vain too often."""
    while (stop := repeated_failure(tape.state, phase.settings, failure.name, failure.times)) is not None:
        tape.emit(stop)
        await Pause()


def _frame(
    spec: TurnSpec,
    entry: Visit,
    prepared: _PreparedInput,
    log: OpLog,
    remaining: int | None,
    remaining_visits: dict[str, int],
    handoff: str | None,
) -> tuple[kinds.FrameMessage, ...]:
    failure = log.failure if log.failure is not None and log.failure.times > 1 else None
    turn = TurnFrame(
        prepared.hash,
        Execution(entry.path, entry.visit, entry.step, remaining_visits),
        prepared.rollback,
        len(log.results),
        log.digest,
        remaining,
        prepared.reads,
        tuple(one for one in (entry.repeated, failure) if one is not None),
        handoff,
    )
    return (spec.system, turn_message(turn, spec.closing, has_choices=len(spec.candidates) > 1))


async def _run_ops(
    verdict: Accepted | Acting, call: str, phase: CompiledPhase, log: OpLog, tape: Tape
) -> kinds.DecisionDeferred | None:
    """Execute the ops of a turn in order.

    Returns:
        The deferral of the decision, if one of its ops did not succeed or asked the user.
    """
    decides = isinstance(verdict, Accepted)
    deferral = log.failure = None
    for number, args in enumerate(verdict.ops, start=1):
        outcome = await run_op(args, f"{call}.{number}", phase, tape)
        log.add_changes(outcome.changes, tape)
        log.add_result(outcome, f"{call}.{number}", phase.settings.sizes.result_bytes, tape)
        log.count_failure(args, outcome)
        if decides and (outcome.status != "ok" or outcome.asked_user):
            deferral = deferral or kinds.DecisionDeferred(call, f"{call}.{number}", outcome.status)
            if outcome.status != "ok":
                break
    if deferral is not None:
        tape.emit(deferral)
    return deferral


def _commit(phase: CompiledPhase, entry: Visit, call: str, verdict: Accepted, log: OpLog, tape: Tape) -> None:
    """Emit the decision, its artifact and the end of the visit."""
    tape.emit(
        kinds.ControlDecided(
            call, verdict.type, verdict.decision, verdict.next_phase, verdict.confidence, verdict.reason
        )
    )
    if verdict.artifact is not None:
        _store(verdict.artifact, tape)
        hand_over(phase, entry, verdict.artifact, log, tape, reason=verdict.reason, extra=verdict.handoff)
    tape.emit(kinds.PhaseCompleted(entry.phase, entry.visit, verdict.type, verdict.next_phase))


def _store(artifact: dict[str, Any], tape: Tape) -> kinds.ArtifactRef:
    content = Blob.of(canonical(artifact))
    reference = kinds.ArtifactRef(artifact["type"], content.hash)
    tape.emit(kinds.ArtifactStored(reference, len(content.content)), content)
    return reference


def _failure_reason(phase: CompiledPhase, calls: int, last_rejection: Rejected | None) -> str:
    if last_rejection is None:
        return f"phase `{phase.name}`: no decision could be executed after {calls} answers"
    rejected = phase.max_retries + 1
    return f"phase `{phase.name}`: {rejected} answers rejected, last at {last_rejection.path}: {last_rejection.message}"


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
    log = OpLog()
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
    log, prefix = OpLog(), f"{entry.step}.post{entry.attempt}"
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
