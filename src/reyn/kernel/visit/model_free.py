"""What a run does without a model: visit a skill or a fan-out over branches, and the postprocessor.

The artifact of such a visit goes to the only successor of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import JoinFailed, StateFailed, StepFailed, SubRunFailed
from reyn.journal import Blob, canonical, digest, kinds
from reyn.kernel.core.child_effects import PlanChild
from reyn.kernel.core.errors_of_nodes import VisitFault
from reyn.kernel.core.limits import within_limits
from reyn.kernel.visit.fan_out import run_branches
from reyn.kernel.visit.handoffs import hand_over
from reyn.kernel.visit.op_log import Completed, OpLog
from reyn.kernel.visit.skill_state import StateFault, change_of
from reyn.kernel.visit.step_context import StepFault
from reyn.kernel.visit.steps import NOTHING, run_node, run_steps
from reyn.kernel.visit.visit_end import fail_visit, store_artifact
from reyn.skills import successors
from reyn.skills.arrivals import accepted_by
from reyn.skills.values import END, skill_of
from reyn.vocabulary.error_names import REJECTED

if TYPE_CHECKING:
    from reyn.kernel.core.run_orchestrator import Postprocess, Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.completed_steps import CompletedSteps
    from reyn.kernel.visit.run_context import RunContext


async def visit_skill(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a node that is a skill: run it with the input; its result is the artifact of the visit."""
    name, shares = skill_of(entry.phase), entry.phase.endswith("[shared]")
    log, call, pinned, back = OpLog(phase.vocabulary), f"{entry.step}.1", phase.sub_skill(name), entry.rollback
    args = {"kind": "run_skill", "skill": name, "input": msgspec.json.decode(tape.content(entry.input.hash))}
    plan = PlanChild(call, "skill", name, entry.input, pinned, shares, back)
    try:
        await within_limits(tape, phase.settings)
        artifact, done = await run_node(plan, args, phase, log, tape, entry.phase)
    except StepFault as fault:
        reason = f"node `{entry.phase}`: {fault.message}"
        await fail_visit(entry, log, VisitFault(SubRunFailed.code, reason, fault.error_name), tape)
    except VisitFault as fault:
        await fail_visit(entry, log, fault, tape)
    else:
        await end_visit(phase, entry, artifact, done, SubRunFailed.code, log, tape, _successor(phase, entry))


async def visit_fan_out(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a node that runs branches: the artifact that joins their results is that of the visit."""
    log = OpLog(phase.vocabulary)
    try:
        await within_limits(tape, phase.settings)
        artifact, local = await run_branches(phase, entry, log, tape)
    except StepFault as fault:
        await fail_visit(entry, log, fault.ending(entry.phase, JoinFailed.code), tape)
    except VisitFault as fault:
        await fail_visit(entry, log, fault, tape)
    else:
        assert log.steps is not None
        target = _successor(phase, entry)
        await end_visit(phase, entry, artifact, log.steps, JoinFailed.code, log, tape, target, local=local)


def _successor(phase: CompiledPhase, entry: Visit) -> str | None:
    """Return the only successor of a node; `None` for the end of the run."""
    return next(iter(successors(phase.skill, entry.phase)), None)


async def end_visit(
    phase: CompiledPhase,
    entry: Visit,
    artifact: dict[str, Any],
    done: CompletedSteps,
    code: str,
    log: OpLog,
    tape: Tape,
    target: str | None,
    *,
    passes_on: bool = False,
    local: Mapping[str, Any] = NOTHING,
) -> None:
    """End a visit with an artifact, which its successor has to accept.

    Args:
        phase: The node.
        entry: The visit.
        artifact: The artifact.
        done: What its steps and sub-runs have done.
        code: The code of the failure if the artifact is not accepted.
        log: The ops of the visit.
        tape: The history.
        target: The successor; `None` for the end of the run.
        passes_on: Whether the artifact is the one that arrived, which does not count again in the state.
        local: What its steps have bound to `local`.
    """
    back, encoded, name = entry.rollback, canonical(artifact), ""
    is_unchanged = digest(encoded) == entry.input.hash
    accepted = {member.name: member.schema for member in accepted_by(phase.skill, target or END)}
    error = "" if is_unchanged and artifact["type"] in accepted else phase.artifact_error(accepted, artifact)
    if not error and phase.checks:
        try:
            prefix = f"{entry.step}.check"
            await run_steps(phase.checks, artifact, prefix, phase, log, tape, entry.phase, local, is_check=True)
        except StepFault as fault:
            error, name = f"check: {fault.message}", fault.error_name or ("" if fault.is_final else REJECTED)
    if error:
        done.drop_results()
    elif back is not None and digest(encoded) == back.rejected.hash and entry.reply:
        # No model decides about a node, so that the phase before it has to change its input.
        error = f"it returned the same artifact again after a rollback: {back.reason}{done.acted and f'. {done.acted}'}"
    change: kinds.StateChange | None = None
    if not error and phase.skill.state and not passes_on:
        try:
            change = change_of(phase, artifact, tape)
        except StateFault as fault:
            error, code = fault.message, StateFailed.code
    if error:
        return await fail_visit(entry, log, VisitFault(code, f"node `{entry.phase}`: {error}", name), tape)
    store_artifact(artifact, tape, encoded, change)
    hand_over(phase, entry, artifact, log, tape)
    _, steps, blobs = log.completed() if phase.skill.on_phase_failure == "rollback" else Completed()
    completed = kinds.PhaseCompleted(
        entry.phase, entry.visit, "transition" if target else "finish", target, steps=steps
    )
    tape.emit(completed, *blobs)
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
