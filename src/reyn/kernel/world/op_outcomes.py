"""The events that record the outcomes of ops: completed, denied, or as an operator confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal import Blob, Body, canonical, kinds
from reyn.journal.registry import op_event
from reyn.ops.execution import doubtful
from reyn.ops.op import NO_SECRETS
from reyn.permissions import Denied

if TYPE_CHECKING:
    from reyn.kernel.core.effects import PerformOp, Permit, PlanOp
    from reyn.ops import Call, Result

    OutcomeEvent = tuple[Body, tuple[Blob, ...]]


def withheld_outcome(
    effect: PlanOp | PerformOp, call: Call, handle: str, what: str, *, may_have_effect: bool = False
) -> OutcomeEvent:
    """Return the denial of an op that holds a secret. It names the secret, and repeats nothing of the op."""
    denied = Denied(NO_SECRETS, f"{what} the value of `{handle}`; nothing of it was recorded")
    return denied_outcome(effect, call, denied, may_have_effect=may_have_effect)


def denied_outcome(
    effect: PlanOp | PerformOp | Permit, call: Call, denied: Denied, *, may_have_effect: bool = False
) -> OutcomeEvent:
    result = call.denied(denied)
    content = Blob.of(canonical(doubtful(result).result if may_have_effect else result))
    return kinds.PermissionDenied(
        *(effect.key, call.op or "", denied.rule, denied.reason, content.hash, call.kind),
        may_have_effect=may_have_effect,
    ), (content,)


def confirmed_result(effect: PerformOp, call: Call, known: bytes | None) -> Result:
    """Return the result that the operator confirmed for an intent whose outcome is unknown."""
    if effect.resolution == "failed":
        return call.error("the op did not take effect, as an operator confirmed")
    planned: Result = msgspec.json.decode(known) if known else call.ok()
    return planned | {"note": "the op took effect, as an operator confirmed"}


def resolved_outcome(effect: PerformOp, call: Call, known: Blob | None) -> OutcomeEvent:
    """Return the outcome that the operator confirmed for an intent whose outcome is unknown."""
    result = confirmed_result(effect, call, known.content if known else None)
    applied = len(effect.started.changes) if effect.resolution == "done" else 0
    return completed_outcome(effect, result, applied=applied)


def completed_outcome(effect: PerformOp, result: Result, *, applied: int = 0) -> OutcomeEvent:
    content = Blob.of(canonical(result))
    return completed_event(effect, result["status"], content, applied=applied), (content,)


def completed_event(effect: PerformOp, status: kinds.OpStatus, result: Blob, *, applied: int = 0) -> kinds.OpCompleted:
    """Return the event. `applied` counts the planned changes that are in their files, or may be."""
    partly = applied if 0 < applied < len(effect.started.changes) else None
    completed = op_event(kinds.OpCompleted, effect.args["kind"])
    return completed(effect.key, status, result.hash, len(result.content), applied > 0, partly)
