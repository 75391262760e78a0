"""One visit of a phase, top to bottom: preprocessor, frame, model, verdict, ops, and the decision or the next turn.

`visit` is a coroutine that emits events and awaits effects. Driven for the first time, after a crash or in a replay, it
reads the same and does the same; it knows its candidates and nothing else of the graph. `visit_skill` is a visit of a
node that is another skill, `postprocess` the way from the finish to what the caller gets: the same, without a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.context import Execution, Rollback, Volatile, correction, volatile_message
from reyn.contract import Accepted, Acting, Rejected
from reyn.errors import AnswersRejected, StepFailed, SubRunFailed
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.effects import Pause, Restore
from reyn.kernel.limits import act_turns, limit_reached, within_limits
from reyn.kernel.llm_call_recorder import ask
from reyn.kernel.op_dispatch import OpLog, run_op, run_sub_skill
from reyn.kernel.steps import StepFault, run_steps
from reyn.skills import successors
from reyn.skills.values import skill_of

if TYPE_CHECKING:
    from reyn.kernel.briefs import Offer, PhaseBrief, Surroundings
    from reyn.kernel.run_orchestrator import Postprocess, Visit
    from reyn.kernel.tape import Tape


async def visit(brief: PhaseBrief, entry: Visit, tape: Tape) -> None:
    tape.emit(kinds.PhaseStarted(entry.phase, entry.visit, entry.input))
    log, turns, reads, retries, calls = OpLog(), 0, 0, 0, 0
    rejected: tuple[kinds.FrameMessage, ...] = ()
    last: Rejected | None = None
    try:
        given = _as_it_is(brief, entry, tape) or await _prepare(brief, entry, log, tape)
    except StepFault as fault:
        return await _give_up(entry, log, 0, StepFailed.code, fault.words(entry.phase), tape)
    while retries <= brief.max_retries:
        left = 0 if brief.is_plain and not tape.state.raised else await _turns_left(brief, turns, tape)
        may_read = MAX_TRUNCATED_READS - reads if log.is_truncated else 0
        offer = brief.offer(acting=left > 0, is_truncated=may_read > 0)
        messages = (*_frame(offer, entry, given, log, left if brief.ops else may_read or None), *rejected)
        calls += 1
        call = f"{entry.step}.{calls}"
        frame = tape.emit(kinds.FrameBuilt(messages), offer.stable, *given.blobs)
        reply = await ask(offer, brief.model, frame.messages, call, tape, tuple(log.shown), given.input)
        verdict = offer.contract.judge(reply.text, is_cut=reply.is_cut)
        if verdict.dropped:
            tape.emit(kinds.AnswerUnwrapped(call, verdict.dropped))
        if isinstance(verdict, Rejected):
            error = tape.emit(kinds.ValidationError(call, verdict.rule, verdict.path, verdict.message, reply.hash))
            shown = log.truncate(f"{call}.answer", reply.hash, brief.settings.sizes.input_bytes, tape)
            rejected, last, retries = correction(shown, error.path, error.message), verdict, retries + 1
            continue
        rejected, last = (), None
        held_up = await _perform(verdict, call, brief, log, tape) if verdict.ops else None
        if isinstance(verdict, Accepted) and held_up is None:
            return _commit(entry, call, verdict, tape)
        if isinstance(verdict, Acting) and offer.contract.ops.only_reads_truncated(verdict.ops):
            reads += 1
        elif left > 0:
            turns += 1
        else:
            retries += 1
    return await _give_up(entry, log, calls, AnswersRejected.code, _words(brief, entry, calls, last), tape)


MAX_TRUNCATED_READS = 10
"""Turns in which a visit may read more of truncated content; they cost no act turns."""


class _Given(NamedTuple):
    """The input of a visit: its hash, the hash of what the frame shows of it, new content, and the rollback, if any."""

    input: str
    shown: str
    blobs: tuple[Blob, ...] = ()
    rollback: Rollback | None = None


def _as_it_is(brief: PhaseBrief, entry: Visit, tape: Tape) -> _Given | None:
    """The input where nothing has to be done to it."""
    if entry.rollback is not None or brief.described.preprocessor:
        return None
    is_small = len(tape.content(entry.input.hash)) <= brief.settings.sizes.input_bytes
    return _Given(entry.input.hash, entry.input.hash) if is_small else None


async def _prepare(brief: PhaseBrief, entry: Visit, log: OpLog, tape: Tape) -> _Given:
    """The input artifact, enriched by the preprocessor, cut if it is too large for a frame."""
    limit, back = brief.settings.sizes.input_bytes, entry.rollback
    given = Blob(entry.input.hash, tape.content(entry.input.hash))
    if brief.described.preprocessor:
        artifact: dict[str, Any] = msgspec.json.decode(given.content)
        enriched = await run_steps(brief.described.preprocessor, artifact, f"{entry.step}.pre", brief, log, tape)
        given = Blob.of(canonical(enriched))
    rollback = None
    if back is not None:
        rollback = Rollback(log.truncate(f"{entry.step}.rejected", back.rejected.hash, limit, tape), back.reason)
    if len(given.content) <= limit:
        return _Given(given.hash, given.hash, (given,) if brief.described.preprocessor else (), rollback)
    return _Given(given.hash, log.truncate_blob(f"{entry.step}.input", given, limit, tape), (), rollback)


async def _turns_left(brief: PhaseBrief, turns: int, tape: Tape) -> int:
    """Act turns that are left, once no limit stands in the way any more."""
    of_phase = brief.described.max_act_turns if brief.ops else 0
    while True:
        stop = limit_reached(tape.state, brief.settings)
        if stop is None and not of_phase:
            return 0
        left = max(0, act_turns(tape.state, brief.settings, of_phase) - turns)
        if stop is None and turns and not left and brief.settings.on_limit == "stop":
            reason = f"phase `{brief.phase}` took {turns} act turns, the most that it may"
            stop = kinds.LimitReached("max_act_turns", turns, brief.phase, reason)
        if stop is None:
            return left
        tape.emit(stop)
        await Pause()


def _frame(
    offer: Offer, entry: Visit, given: _Given, log: OpLog, remaining: int | None
) -> tuple[kinds.FrameMessage, ...]:
    turn = Volatile(
        given.shown,
        Execution(entry.path, entry.visit, entry.step),
        given.rollback,
        len(log.shown),
        log.digest,
        remaining,
    )
    return (offer.system, volatile_message(turn))


async def _perform(
    verdict: Accepted | Acting, call: str, brief: PhaseBrief, log: OpLog, tape: Tape
) -> kinds.DecisionDeferred | None:
    """The ops of a turn, in order. A decision is held up by the first that does not succeed, or that asks somebody."""
    decides = isinstance(verdict, Accepted)
    deferred = None
    for number, args in enumerate(verdict.ops, start=1):
        done = await run_op(args, f"{call}.{number}", brief, tape)
        log.add(done.changes, tape)
        log.show(done, f"{call}.{number}", brief.settings.sizes.result_bytes, tape)
        if decides and (done.status != "ok" or done.asked):
            deferred = deferred or kinds.DecisionDeferred(call, f"{call}.{number}", done.status)
            if done.status != "ok":
                break
    if deferred is not None:
        tape.emit(deferred)
    return deferred


def _commit(entry: Visit, call: str, verdict: Accepted, tape: Tape) -> None:
    """The decision takes effect: control, artifact, end of the visit, in one go."""
    tape.emit(
        kinds.ControlDecided(
            call, verdict.type, verdict.decision, verdict.next_phase, verdict.confidence, verdict.reason
        )
    )
    if verdict.artifact is not None:
        _store(verdict.artifact, tape)
    tape.emit(kinds.PhaseCompleted(entry.phase, entry.visit, verdict.type, verdict.next_phase))


def _store(artifact: dict[str, Any], tape: Tape) -> kinds.ArtifactRef:
    content = Blob.of(canonical(artifact))
    reference = kinds.ArtifactRef(artifact["type"], content.hash)
    tape.emit(kinds.ArtifactStored(reference, len(content.content)), content)
    return reference


def _words(brief: PhaseBrief, entry: Visit, calls: int, last: Rejected | None) -> str:
    if last is None:
        return f"phase `{entry.phase}`: after {calls} answers no decision could be carried out"
    rejected = brief.max_retries + 1
    return f"phase `{entry.phase}`: {rejected} answers rejected, the last at {last.path}: {last.message}"


async def _give_up(entry: Visit, log: OpLog, calls: int, code: str, reason: str, tape: Tape) -> None:
    """The visit fails; the files that it changed are put back first."""
    await _put_back(f"{entry.step}.restore", log, tape)
    tape.emit(kinds.PhaseFailed(entry.phase, entry.visit, calls, reason, code))


async def _put_back(call: str, log: OpLog, tape: Tape) -> None:
    changes = log.changes_of(tape.state.run_id)
    if changes:
        tape.emit(kinds.RestoreStarted(call, changes))
        await Restore(call, changes)


# -- without a model ----------------------------------------------------------------------------------


async def visit_skill(brief: PhaseBrief, entry: Visit, tape: Tape) -> None:
    """A visit of a node that is another skill: what comes in goes to it, what it gives goes on."""
    tape.emit(kinds.PhaseStarted(entry.phase, entry.visit, entry.input))
    name = skill_of(entry.phase)
    shares = entry.phase.endswith("[shared]")
    await within_limits(tape, brief.settings)
    log = OpLog()
    done = await run_sub_skill(
        name, entry.input, f"{entry.step}.1", brief.sub_skill(name), tape, shares_workspace=shares
    )
    log.add(done.changes, tape)
    if done.artifact is None:
        return await _give_up(entry, log, 0, SubRunFailed.code, f"node `{entry.phase}`: {done.error}", tape)
    artifact = msgspec.json.decode(tape.content(done.artifact.hash))
    target = next(iter(successors(brief.skill, entry.phase)), None)
    wrong = _misfit(brief, target, artifact)
    if wrong:
        return await _give_up(entry, log, 0, SubRunFailed.code, f"node `{entry.phase}`: {wrong}", tape)
    _store(artifact, tape)
    kind: Any = "transition" if target else "finish"
    tape.emit(kinds.PhaseCompleted(entry.phase, entry.visit, kind, target))
    return None


def _misfit(brief: Surroundings, target: str | None, artifact: dict[str, Any]) -> str:
    """Why an artifact cannot go on to a node, or be the final output."""
    taken = brief.skill.inputs_of(target) if target else (brief.skill.final_output,)
    return misfit(brief, {member.name: member.schema for member in taken}, artifact)


def misfit(brief: Surroundings, taken: dict[str, Any], artifact: dict[str, Any]) -> str:
    if artifact["type"] not in taken:
        return f"it gave a `{artifact['type']}`, but {' or '.join(f'`{name}`' for name in taken)} is taken"
    wrong = brief.validator(taken[artifact["type"]]).first_error(artifact["data"])
    return f"its `{artifact['type']}` does not fit: {wrong.path('data')}: {wrong.message}" if wrong else ""


async def postprocess(around: Surroundings, entry: Postprocess, tape: Tape) -> None:
    """The finish artifact through the postprocessor's steps to what the caller gets."""
    post = around.skill.postprocessor
    assert post is not None
    tape.emit(kinds.PostprocessorStarted(entry.attempt, entry.input))
    artifact = msgspec.json.decode(tape.content(entry.input.hash))
    log, prefix = OpLog(), f"{entry.step}.post{entry.attempt}"
    try:
        enriched = await run_steps(post.steps, artifact, prefix, around, log, tape)
        result = {"type": post.output.name, "data": enriched["data"]}
        wrong = misfit(around, {post.output.name: post.output.schema}, result)
    except StepFault as fault:
        wrong = fault.words("postprocessor")
    if wrong:
        await _put_back(f"{prefix}.restore", log, tape)
        tape.emit(kinds.PostprocessorFailed(StepFailed.code, f"postprocessor: {wrong}"))
        return
    content = Blob.of(canonical(result))
    tape.emit(kinds.PostprocessorCompleted(kinds.ArtifactRef(post.output.name, content.hash)), content)
