"""Events of approvals: a person decides about one action that a rule wants to be asked about."""

from __future__ import annotations

from typing import Literal

from reyn.journal.kinds.shapes import ContentName, DerivedText, Hash
from reyn.journal.registry import Body, event


@event("approval_required", v=1, origin="outcome")
class ApprovalRequired(Body, frozen=True):
    """A rule says `ask`. `digest` covers the run, the call, its arguments, the contents and the files as they are now;
    `preview` is what the person sees."""

    call: str
    op_kind: str
    op: str
    args: ContentName
    rule: str
    digest: Hash
    preview: ContentName


@event("approval_decided", v=1, origin="derived")
class ApprovalDecided(Body, frozen=True):
    """A person decided, or the approval expired. `result` is what the model sees of a rejected op; `args` are edited
    arguments, which are a new action."""

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


@event("wait_expired", v=1, origin="outside", enters="running")
class WaitExpired(Body, frozen=True):
    """The question timed out; the run continues as if it was declined."""

    wait: str
    reason: str = ""
