"""The checks of an accepted decision that a phase asks for: filled fields, steps, the caller's check, an approval.

Each returns the decision, perhaps with another artifact, or why the model has to answer again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.contract import Accepted, Rejected
from reyn.errors import ApprovalExpired, FillFailed, StepFailed
from reyn.kernel.core.effects import CheckOutput
from reyn.kernel.core.errors_of_nodes import VisitFault
from reyn.kernel.visit.reviews import has_unfilled, review_decision, sent_back
from reyn.kernel.visit.step_context import StepFault
from reyn.kernel.visit.steps import run_steps
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.progress import VisitProgress


class SentBack(NamedTuple):
    """The verdict of a person who sends a decision back to the model."""

    message: str


DecisionCheck = Callable[["VisitProgress", Accepted], Awaitable[Accepted | Rejected | SentBack]]


def artifact_checks(phase: CompiledPhase) -> tuple[DecisionCheck, ...]:
    """Return how the artifact of a decision is completed and checked: after its ops, if these fill fields of it."""
    stages: dict[DecisionCheck, Any] = {_fill: phase.sources, _check_artifact: phase.checks}
    return tuple(stage for stage, is_used in stages.items() if is_used)


def decision_checks(phase: CompiledPhase) -> tuple[DecisionCheck, ...]:
    """Return the checks of a decision by the caller and by a person, before its ops are executed."""
    stages: dict[DecisionCheck, Any] = {
        _check_output: phase.skill.checks_output,
        _review: phase.definition.requires_approval,
    }
    return tuple(stage for stage, is_used in stages.items() if is_used)


async def _fill(progress: VisitProgress, verdict: Accepted) -> Accepted:
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
        await run_steps(
            phase.checks, artifact, prefix, phase, progress.log, progress.tape, phase.name, local, is_check=True
        )
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
        edited = await _fill(progress, edited) if progress.phase.sources else edited
        return await _check_artifact(progress, edited, f"-{asked}")

    reviewed, verdict = await review_decision(verdict, progress.call, progress.phase, progress.tape, check)
    if reviewed.decision == "expired":
        reason = f"phase `{progress.phase.name}`: its decision was not approved in time"
        raise VisitFault(ApprovalExpired.code, reason)
    return SentBack(sent_back(reviewed)) if reviewed.decision == "reject" else verdict
