"""What a run does without a model: visit a skill, a node with rules or a fan-out, and the postprocessor.

The artifact of a skill or a fan-out goes to the only successor of the node. Rules choose the successor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.errors import ConditionFailed, JoinFailed, StateFailed, StepFailed, SubRunFailed
from reyn.journal import Blob, canonical, digest, kinds
from reyn.kernel.core.child_effects import PlanChild
from reyn.kernel.core.errors_of_nodes import VisitFault
from reyn.kernel.core.limits import within_limits
from reyn.kernel.visit.completed_steps import CompletedSteps
from reyn.kernel.visit.deciding import first_match, target_of, values_of
from reyn.kernel.visit.fan_out import run_branches
from reyn.kernel.visit.handoffs import hand_over
from reyn.kernel.visit.op_log import Completed, OpLog
from reyn.kernel.visit.skill_state import StateFault, change_of
from reyn.kernel.visit.step_context import StepFault
from reyn.kernel.visit.steps import NOTHING, run_node, run_steps
from reyn.kernel.visit.visit_end import fail_visit, store_artifact
from reyn.skills import successors
from reyn.skills.arrivals import accepted_by
from reyn.skills.flow import LOCAL_ROOT
from reyn.skills.values import END, skill_of
from reyn.vocabulary.error_names import REJECTED

if TYPE_CHECKING:
    from reyn.kernel.core.run_orchestrator import Postprocess, Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.run_context import RunContext


class NodeEnd(NamedTuple):
    """What a node ends with, unless its successor does not accept it.

    Attributes:
        artifact: The artifact.
        done: What its steps and sub-runs have done.
        code: The code of the failure if the artifact is not accepted.
        target: The successor; `None` for the end of the run.
        passes_on: Whether the artifact is the one that arrived, which does not count again in the state.
        local: What its steps have bound to `local`.
    """

    artifact: dict[str, Any]
    done: CompletedSteps
    code: str
    target: str | None
    passes_on: bool = False
    local: Mapping[str, Any] = NOTHING


async def visit_skill(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a node that is a skill: run it with the input; its result is the artifact of the visit."""
    await _visit(_run_skill, SubRunFailed.code, phase, entry, tape)


async def visit_fan_out(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a node that runs branches: the artifact that joins their results is that of the visit."""
    await _visit(_join_branches, JoinFailed.code, phase, entry, tape)


async def visit_rules(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a node with rules: the first that matches decides where the run goes on."""
    await _visit(_apply_rules, StepFailed.code, phase, entry, tape)


async def _visit(
    work: Callable[[CompiledPhase, Visit, OpLog, Tape], Awaitable[NodeEnd]],
    code: str,
    phase: CompiledPhase,
    entry: Visit,
    tape: Tape,
) -> None:
    """Visit a node. `code` is that of the failure if a step or a sub-run fails."""
    log = OpLog(phase.vocabulary)
    try:
        await within_limits(tape, phase.settings)
        end = await work(phase, entry, log, tape)
    except StepFault as fault:
        await fail_visit(entry, log, fault.ending(entry.phase, code), tape)
    except VisitFault as fault:
        await fail_visit(entry, log, fault, tape)
    else:
        await _end_visit(phase, entry, end, log, tape)


async def _run_skill(phase: CompiledPhase, entry: Visit, log: OpLog, tape: Tape) -> NodeEnd:
    name, shares = skill_of(entry.phase), entry.phase.endswith("[shared]")
    args = {"kind": "run_skill", "skill": name, "input": msgspec.json.decode(tape.content(entry.input.hash))}
    pinned = phase.sub_skill(name)
    plan = PlanChild(f"{entry.step}.1", "skill", name, entry.input, pinned, shares, entry.rollback)
    artifact, done = await run_node(plan, args, phase, log, tape, entry.phase)
    return NodeEnd(artifact, done, SubRunFailed.code, _successor(phase, entry))


async def _join_branches(phase: CompiledPhase, entry: Visit, log: OpLog, tape: Tape) -> NodeEnd:
    artifact, local = await run_branches(phase, entry, log, tape)
    assert log.steps is not None
    return NodeEnd(artifact, log.steps, JoinFailed.code, _successor(phase, entry), local=local)


async def _apply_rules(phase: CompiledPhase, entry: Visit, log: OpLog, tape: Tape) -> NodeEnd:
    """Run the preprocessor. The artifact after it goes on, unless the rule makes one of its own."""
    steps, local = phase.definition.preprocessor, NOTHING
    artifact: dict[str, Any] = msgspec.json.decode(tape.content(entry.input.hash))
    if steps:
        artifact, local = await run_steps(steps, artifact, f"{entry.step}.pre", phase, log, tape, entry.phase)
    expressions = [expression for one in phase.rules for expression in one.expressions]
    values = values_of(expressions, artifact | {LOCAL_ROOT: local}, phase.skill, tape)
    matched, data = first_match(phase.rules, entry, values, tape)
    made = matched.rule.artifact
    result = {"type": artifact["type"], "data": artifact["data"]} if made is None else {"type": made.name, "data": data}
    done = log.steps if log.steps is not None else CompletedSteps()
    return NodeEnd(result, done, ConditionFailed.code, target_of(matched), made is None, local)


def _successor(phase: CompiledPhase, entry: Visit) -> str | None:
    """Return the only successor of a node; `None` for the end of the run."""
    return next(iter(successors(phase.skill, entry.phase)), None)


async def _end_visit(phase: CompiledPhase, entry: Visit, end: NodeEnd, log: OpLog, tape: Tape) -> None:
    """End a visit with an artifact, which its successor has to accept."""
    artifact, done, code, target, passes_on, local = end
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
