"""Events of ops, approvals and file changes: an intent before each effect, an outcome after it.

All op kinds share the data of `<kind>_started` and `<kind>_completed`, so journals stay readable when the package that
provides a kind is not installed.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from reyn.journal.kinds.shapes import (
    Approved,
    AskRequest,
    Change,
    ContentName,
    Count,
    DerivedContent,
    DerivedText,
    EnvironmentRef,
    Hash,
    MemoryRequest,
    MessageRequest,
    OpStatus,
    RestoreVerdict,
    RunRequest,
)
from reyn.journal.registry import Body, event, family


@event("permission_denied", v=1, origin="outcome")
class PermissionDenied(Body, frozen=True):
    """The permission gate denied an op, or its arguments or result contain a secret.

    If the result contains a secret, the denial follows `<kind>_started`, and the result is neither recorded nor sent to
    the model. `call` identifies the op, `op_kind` and `op` name its kind and form. `rule` is the rule that decided;
    `reason` is the explanation. `result` is the result that the model receives. `may_have_effect` is true if the op is
    unsafe and was performed.
    """

    call: str
    op: str
    rule: str
    reason: str
    result: ContentName
    op_kind: str = ""
    may_have_effect: bool = False


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
    """A person decided, or the approval expired.

    `result` is the result of a rejected op that the model sees; `args` are edited arguments, which need an approval of
    their own. If `always` is true, the same version of the skill needs no approval for this op and rule from now on.
    """

    call: str
    decision: Literal["approve", "reject", "edit", "defer", "expired"]
    digest: Hash
    by: str = ""
    remark: str = ""
    always: bool = False
    op: str = ""
    args: ContentName | None = None
    result: ContentName | None = None
    rule: DerivedText = ""


@event("decision_proposed", v=1, origin="derived")
class DecisionProposed(Body, frozen=True):
    """A phase with `requires_approval` made a valid decision. It takes effect only if a person approves it.

    `type`, `next_phase` and `reason` are those of the decision. `digest` covers the run, the call and the whole
    decision; `preview` is the text for the person and `artifact` the proposed artifact, which an abort does not have.
    """

    call: str
    phase: str
    type: Literal["transition", "finish", "abort"]
    next_phase: str | None
    reason: str
    digest: Hash
    preview: DerivedContent
    artifact: ContentName | None = None


@event("decision_reviewed", v=1, origin="derived")
class DecisionReviewed(Body, frozen=True):
    """A person approved the decision of a phase, edited its artifact and approved it, sent it back (`reject`) or
    postponed it, or the question expired.

    A decision that is sent back is a rejected answer: the model is called again with the `remark`. An edited `artifact`
    takes the place of the proposed one, unless a check of the phase refuses it: then the decision is reviewed again. If
    the question expires, the visit fails.
    """

    call: str
    decision: Literal["approve", "reject", "edit", "defer", "expired"]
    digest: Hash
    by: str = ""
    remark: str = ""
    artifact: ContentName | None = None


@family("started", v=1, origin="outcome")
class OpStarted(Body, frozen=True):
    """An op was planned and allowed; it is about to be performed.

    `call` identifies the op, also after a crash; `op` is its form, for example `read`. `args` are the arguments and
    `rule` is the permission rule that allows them. `changes` lists the files that the op will change, with their
    contents before and after. `result` is set if the result is known before the op is performed. `request` is work that
    the kernel does first: a question to a person, a run of another skill, or a change of a conversation's memory.
    `is_untracked` is true if the op may change files without an event, as a shell command does. `approval` is set if
    the rule says `ask`.
    """

    op_kind: ClassVar[str]

    call: str
    args: ContentName
    rule: str
    op: str = ""
    changes: tuple[Change, ...] = ()
    result: ContentName | None = None
    request: AskRequest | RunRequest | MemoryRequest | MessageRequest | None = None
    is_untracked: bool = False
    approval: Approved | None = None


@family("completed", v=1, origin="outcome")
class OpCompleted(Body, frozen=True):
    """An op was performed.

    `status` is the status in its result, `result` the whole result and `bytes` its size. `changed` is true if the
    changes of `<kind>_started` took effect. If the result is an error, they may have taken effect; `undo` then compares
    the files. `applied` is set if only the first changes took effect. `attachments` are contents that the result names
    by their hashes, such as images. `changes` lists the files that the op was found to have changed; null if
    Reyn did not look. `unrecorded` names files that changed and whose contents are not recorded. `may_have_effect` is
    true if the op is unsafe and may have taken effect although its result is an error: it took too long, or what it
    returned is invalid or too large. `environment` is the one whose packages its code could import.
    """

    op_kind: ClassVar[str]

    call: str
    status: OpStatus
    result: ContentName
    bytes: Count
    changed: bool = False
    applied: Count | None = None
    attachments: tuple[ContentName, ...] = ()
    changes: tuple[Change, ...] | None = None
    unrecorded: tuple[str, ...] = ()
    may_have_effect: bool = False
    environment: EnvironmentRef | None = None


@event("request_fulfilled", v=1, origin="derived")
class RequestFulfilled(Body, frozen=True):
    """The request of an unsafe op was fulfilled, for example by a reply; the op is about to be performed."""

    call: str


@event("workspace_updated", v=1, origin="derived")
class WorkspaceUpdated(Body, frozen=True):
    """The op `call` created, changed or deleted a file."""

    call: str
    change: Change


@event("restore_started", v=1, origin="derived")
class RestoreStarted(Body, frozen=True):
    """A visit failed; the files that it changed are about to be restored, newest change first."""

    call: str
    changes: tuple[Change, ...]


@event("workspace_restored", v=1, origin="outcome")
class WorkspaceRestored(Body, frozen=True):
    """The files of a failed visit were restored. `left` lists files that another program changed since; they stay.

    `verdicts` are the decisions of the permission gate, one per file; a file that it denied stays as well.
    """

    call: str
    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    verdicts: tuple[RestoreVerdict, ...] = ()
