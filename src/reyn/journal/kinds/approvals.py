"""Events of approvals: a person decides about an op for which a rule says `ask`, or about the decision of a phase."""

from __future__ import annotations

from typing import Literal

from reyn.journal.kinds.shapes import ContentName, DerivedContent, DerivedText, Hash
from reyn.journal.registry import Body, event


@event("approval_required", v=1, origin="outcome")
class ApprovalRequired(Body, frozen=True):
    """An op needs approval because of an `ask` rule.

    `digest` covers the run, the call, its arguments, the new contents and the current files; `preview` is the text for
    the person. The `wait_opened` that follows contains the time of expiry.
    """

    call: str
    op_kind: str
    op: str
    args: ContentName
    rule: str
    digest: Hash
    preview: ContentName


@event("approval_decided", v=1, origin="derived")
class ApprovalDecided(Body, frozen=True):
    """A person decided, or the approval expired. `result` is the result of a rejected op that the model sees;
    `args` are edited arguments, which need an approval of their own."""

    call: str
    decision: Literal["approve", "reject", "edit", "defer", "expired"]
    digest: Hash
    by: str = ""
    remark: str = ""
    always: bool = False
    """Whether the same version of the skill needs no approval for this op and rule from now on."""
    op: str = ""
    args: ContentName | None = None
    result: ContentName | None = None
    rule: DerivedText = ""


@event("decision_proposed", v=1, origin="derived")
class DecisionProposed(Body, frozen=True):
    """A phase with `requires_approval` made a valid decision. It takes effect only if a person approves it.

    `type`, `next_phase` and `reason` are those of the decision. `digest` covers the run, the call and the whole
    decision; `preview` is the text for the person.
    """

    call: str
    phase: str
    type: Literal["transition", "finish", "abort"]
    next_phase: str | None
    reason: str
    digest: Hash
    preview: DerivedContent


@event("decision_reviewed", v=1, origin="derived")
class DecisionReviewed(Body, frozen=True):
    """A person approved the decision of a phase, sent it back (`reject`) or postponed it, or the question expired.

    A decision that is sent back is a rejected answer: the model is called again with the `remark`. If the question
    expires, the visit fails.
    """

    call: str
    decision: Literal["approve", "reject", "defer", "expired"]
    digest: Hash
    by: str = ""
    remark: str = ""


@event("wait_expired", v=1, origin="outside", enters="running")
class WaitExpired(Body, frozen=True):
    """The question timed out; the run continues as if it was declined."""

    wait: str
    reason: str = ""
