"""One visit of a phase, top to bottom: frame, model, verdict, and the decision or the next attempt.

`visit` is a coroutine that emits events and awaits effects. Driven for the first time, after a crash or in a replay, it
reads the same and does the same; it knows its candidates and nothing else of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.context import Execution, correction, volatile_parts
from reyn.contract import Accepted, Rejected
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.llm_call_recorder import ask

if TYPE_CHECKING:
    from reyn.kernel.briefs import PhaseBrief
    from reyn.kernel.run_orchestrator import Visit
    from reyn.kernel.tape import Tape


async def visit(brief: PhaseBrief, entry: Visit, tape: Tape) -> None:
    tape.emit(kinds.PhaseStarted(entry.phase, entry.visit, entry.input))
    frame = messages = _frame(brief, entry)
    rejected = None
    for attempt in range(1, brief.max_attempts + 1):
        call = f"{entry.step}.{attempt}"
        tape.emit(kinds.FrameBuilt(messages), brief.stable)
        reply = await ask(brief, messages, call, tape)
        verdict = brief.contract.judge(reply.text)
        if verdict.dropped:
            tape.emit(kinds.AnswerUnwrapped(call, verdict.dropped))
        if isinstance(verdict, Accepted):
            return _commit(entry, call, verdict, tape)
        rejected = verdict
        tape.emit(kinds.ValidationError(call, verdict.rule, verdict.path, verdict.message, reply.hash))
        messages = (*frame, *correction(reply.hash, verdict.path, verdict.message))
    return _give_up(brief, entry, rejected, tape)


def _frame(brief: PhaseBrief, entry: Visit) -> tuple[kinds.FrameMessage, ...]:
    execution = Execution(entry.path, entry.visit, entry.step)
    stable = kinds.FrameMessage("system", (kinds.Part(blob=brief.stable.hash),))
    return (stable, volatile_parts(entry.input.hash, execution))


def _commit(entry: Visit, call: str, verdict: Accepted, tape: Tape) -> None:
    """The decision takes effect: control, artifact, end of the visit, in one go."""
    tape.emit(
        kinds.ControlDecided(
            call, verdict.type, verdict.decision, verdict.next_phase, verdict.confidence, verdict.reason
        )
    )
    if verdict.artifact is not None:
        content = Blob.of(canonical(verdict.artifact))
        reference = kinds.ArtifactRef(verdict.artifact["type"], content.hash)
        tape.emit(kinds.ArtifactStored(reference, len(content.content)), content)
    tape.emit(kinds.PhaseCompleted(entry.phase, entry.visit, verdict.type, verdict.next_phase))


def _give_up(brief: PhaseBrief, entry: Visit, last: Rejected | None, tape: Tape) -> None:
    assert last is not None
    reason = f"phase `{entry.phase}`: {brief.max_attempts} answers rejected, the last at {last.path}: {last.message}"
    tape.emit(kinds.PhaseFailed(entry.phase, entry.visit, brief.max_attempts, reason))
