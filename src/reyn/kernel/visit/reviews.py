"""Review the decisions of phases with `requires_approval`: a person approves, edits and approves, or sends back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.contract import Accepted, Rejected, artifact_branch
from reyn.journal import Blob, canonical, digest, kinds
from reyn.jsonschema import lenient
from reyn.kernel.core.effects import Expired
from reyn.kernel.visit.waits import (
    SUGGESTIONS,
    action_id,
    ask_approval,
    decided_by,
    printable,
    reply_form,
    reply_object,
    reply_schema,
)
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.jsonschema import Schema
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase

ABORT_RESPONSE = reply_schema(reply_form(*SUGGESTIONS))


def decision_response(artifact: Schema) -> dict[str, Any]:
    """Return the schema of a reply to a decision, whose artifact a person may edit within its own schema."""
    return reply_schema(reply_form(*SUGGESTIONS), reply_form("edit", needs=("artifact",), artifact=artifact))


ArtifactCheck = Callable[[Accepted, int], Awaitable[Accepted | Rejected]]


async def review_decision(
    verdict: Accepted, call: str, phase: CompiledPhase, tape: Tape, check: ArtifactCheck
) -> tuple[kinds.DecisionReviewed, Accepted]:
    """Wait until a person approves the decision of a phase, edits and approves it, or sends it back, or the question
    expires. Returns the review and the decision, which may have another artifact by then.

    Nothing of the decision has taken effect before: neither its ops nor its artifact.

    Args:
        verdict: The decision.
        call: The model call that made it.
        phase: The phase.
        tape: The tape of the run.
        check: Checks the decision with an edited artifact, as that of the model was checked. The number is that of the
            question. If it is refused, the question is asked again.
    """
    proposed, blobs = _proposed(verdict, call, phase, tape)
    proposed = tape.emit(proposed, *blobs)
    schema = _edited_schema(phase, verdict)
    response = ABORT_RESPONSE if schema is None else decision_response(schema)
    title = f"Approve the decision of phase `{phase.name}`: {_target(verdict)}?"
    asked, is_deferred, refused = 0, False, ""
    while True:
        asked += 1
        answer = await ask_approval(
            action_id(proposed.digest, asked),
            f"{title}{refused}",
            tape.content(proposed.preview).decode(),
            response,
            phase,
            tape,
            reason="decision",
            is_deferred=is_deferred,
        )
        reviewed, edited = _reviewed(answer, proposed, tape)
        tape.emit(reviewed, *((Blob.of(canonical(edited)),) if edited is not None else ()))
        is_deferred = reviewed.decision == "defer"
        if edited is not None:
            checked = await check(msgspec.structs.replace(verdict, artifact=edited, artifact_json=None), asked)
            if isinstance(checked, Accepted):
                return reviewed, checked
            refused = f" The edited artifact was refused: {printable(f'{checked.path}: {checked.message}')}"
        elif not is_deferred:
            return reviewed, verdict


def _edited_schema(phase: CompiledPhase, verdict: Accepted) -> dict[str, Any] | None:
    """Return the schema of an edited artifact: that of the model's own. An abort has no artifact."""
    if verdict.artifact is None:
        return None
    target, name = verdict.next_phase or END, verdict.artifact["type"]
    schema = phase.output_schemas[target, name]
    if has_unfilled(phase, verdict):
        asked = (one for one in phase.candidates if (one.next_phase, one.schema_name) == (target, name))
        schema = next(asked).artifact_schema
    return artifact_branch(name, schema if phase.settings.strict else lenient(schema))


def has_unfilled(phase: CompiledPhase, verdict: Accepted) -> bool:
    """Return whether ops of the decision itself fill fields of its artifact."""
    return bool(phase.sources and verdict.ops)


def _proposed(
    verdict: Accepted, call: str, phase: CompiledPhase, tape: Tape
) -> tuple[kinds.DecisionProposed, tuple[Blob, ...]]:
    action = [verdict.type, verdict.next_phase, verdict.confidence, verdict.reason, verdict.artifact, verdict.ops]
    action += [] if verdict.handoff is None else [verdict.handoff]
    identity = digest(canonical([tape.state.run_id, call, *action]))
    preview = Blob.of(_decision_preview(verdict).encode())
    blobs = (preview,) if verdict.artifact is None else (preview, Blob.of(canonical(verdict.artifact)))
    named = blobs[1].hash if len(blobs) > 1 else None
    reason, target = verdict.reason, verdict.next_phase
    return kinds.DecisionProposed(call, phase.name, verdict.type, target, reason, identity, preview.hash, named), blobs


def _reviewed(
    answer: Any, proposed: kinds.DecisionProposed, tape: Tape
) -> tuple[kinds.DecisionReviewed, dict[str, Any] | None]:
    """Return the review that a reply is, and the edited artifact if there is one."""
    call, identity = proposed.call, proposed.digest
    if isinstance(answer, Expired):
        return kinds.DecisionReviewed(call, "expired", identity), None
    value, by = reply_object(answer), decided_by(tape)
    edited = value.get("artifact")
    named = digest(canonical(edited)) if edited is not None else None
    return kinds.DecisionReviewed(call, value["decision"], identity, by, value.get("remark", ""), named), edited


def _target(verdict: Accepted) -> str:
    return f"go to `{verdict.next_phase}`" if verdict.next_phase else verdict.type


def _decision_preview(verdict: Accepted) -> str:
    """Return the preview of a decision. Texts of the model are JSON, so none can imitate a line of Reyn's own."""
    lines = [f"reason: {printable(verdict.reason)} (confidence {verdict.confidence:g})"]
    lines += [f"op {number}: {printable(args)}" for number, args in enumerate(verdict.ops, start=1)]
    if verdict.artifact is not None:
        data = printable(verdict.artifact["data"], indent=2)
        lines.append(f"artifact `{verdict.artifact['type']}`: {data}")
    if verdict.handoff is not None:
        lines.append(f"handoff: {printable(verdict.handoff, indent=2)}")
    return "\n".join(lines) + "\n"


def sent_back(reviewed: kinds.DecisionReviewed) -> str:
    """Return the message to the model about a decision that was sent back; the remark cannot begin a new line."""
    return f"a reviewer sent the decision back{f': {printable(reviewed.remark)}' if reviewed.remark else ''}"
