"""Events of ops, approvals, file changes, sub-runs and other agents: an intent before each effect, an outcome after it.

All op kinds share the data of `<kind>_started` and `<kind>_completed`, so journals stay readable when the package that
provides a kind is not installed.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from reyn.journal.kinds.shapes import (
    ArtifactRef,
    AskRequest,
    Change,
    Charge,
    ContentName,
    Count,
    DerivedContent,
    DerivedText,
    Hash,
    HistoryPart,
    MemoryRequest,
    MessageRequest,
    OpStatus,
    PhaseArtifact,
    Question,
    RestoreVerdict,
    RunRequest,
    Usage,
)
from reyn.journal.registry import Body, event, family


@event("permission_denied", v=1, origin="outcome")
class PermissionDenied(Body, frozen=True):
    """The permission gate denied an op, or its arguments or result contain a secret.

    If the result contains a secret, the denial follows `<kind>_started`, and the result is neither recorded nor sent to
    the model. `call` identifies the op, `op_kind` and `op` name its kind and form. `rule` is the rule that decided;
    `reason` is the explanation. `result` is the result that the model receives.
    """

    call: str
    op: str
    rule: str
    reason: str
    result: ContentName
    op_kind: str = ""


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


@family("started", v=1, origin="outcome")
class OpStarted(Body, frozen=True):
    """An op was planned and allowed; it is about to be performed.

    `call` identifies the op, also after a crash; `op` is its form, for example `read`. `args` are the arguments and
    `rule` is the permission rule that allows them. `changes` lists the files that the op will change, with their
    contents before and after. `result` is set if the result is known before the op is performed. `request` is work that
    the kernel does first: a question to a person, a run of another skill, or a change of a conversation's memory.
    `is_untracked` is true if the op may change files without an event, as a shell command does.
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


@family("completed", v=1, origin="outcome")
class OpCompleted(Body, frozen=True):
    """An op was performed.

    `status` is the status in its result, `result` the whole result and `bytes` its size. `changed` is true if the
    changes of `<kind>_started` took effect. If the result is an error, they may have taken effect; `undo` then compares
    the files. `applied` is set if only the first changes took effect. `attachments` are contents that the result names
    by their hashes, such as images. `changes` lists the files that the op was found to have changed; null if
    Reyn did not look. `unrecorded` names files that changed and whose contents are not recorded.
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


@event("sub_run_started", v=1, origin="outcome")
class SubRunStarted(Body, frozen=True):
    """A sub-run is about to start.

    `run` is its id, which derives from the parent run and `call`. `skill_hash` is the pinned copy of its skill, `input`
    its input, and `ops` the specifications of the ops that it may use. `shares_workspace` is true if it uses the
    parent's workspace. `problem` is set if it cannot start. `background` is true if the parent does not wait for it: a
    message in the inbox of the parent reports its end.
    """

    call: str
    skill: str
    run: str
    skill_hash: ContentName | None = None
    input: ArtifactRef | None = None
    shares_workspace: bool = False
    problem: str = ""
    ops: ContentName | None = None
    background: bool = False


@event("sub_run_completed", v=1, origin="outcome")
class SubRunCompleted(Body, frozen=True):
    """A sub-run ended.

    `artifact` is its final artifact; without one, `error` says why. `usage` and `answers` count its tokens and model
    answers, `active` its execution time in microseconds since it last stopped. `changes` lists the changes it made in
    files that it shares with this run. `head` is the hash of its last event at that time. `summary` is the reason of
    its last decision, `handoff` the last handoff that one of its phases recorded. `phases` lists the artifacts of its
    latest visits. `charge` is what it was charged.
    """

    call: str
    run: str
    error: str = ""
    artifact: ArtifactRef | None = None
    usage: Usage = Usage()
    answers: Count = 0
    active: Count = 0
    changes: tuple[Change, ...] = ()
    head: Hash | None = None
    summary: str = ""
    handoff: ContentName | None = None
    phases: tuple[PhaseArtifact, ...] = ()
    charge: Charge | None = None


@event("nested_run_ended", v=1, origin="outside")
class NestedRunEnded(Body, frozen=True):
    """The code of the op `call` ran a function as a sub-run, which ended or stopped.

    `run` is its id, which derives from the parent run, `call`, the function and its arguments. `status` is its status.
    `usage` and `answers` count its tokens and model answers, `charge` is what it was charged.
    """

    call: str
    run: str
    skill: str
    status: str
    usage: Usage = Usage()
    answers: Count = 0
    charge: Charge | None = None


@event("sub_run_stopped", v=1, origin="outcome")
class SubRunStopped(Body, frozen=True):
    """A sub-run stopped and can be resumed; this run stops for the same reason.

    `status` and `reason` are those of the sub-run: `failed` comes with `code` and `hint`, `limited` with `limit` and
    `value`, `waiting` with `wait`. `active` is its execution time in microseconds since it last stopped.
    """

    call: str
    run: str
    status: Literal["failed", "limited", "waiting", "blocked"]
    reason: str
    code: str = ""
    limit: str = ""
    value: int = 0
    wait: Question | None = None
    active: Count = 0
    hint: str = ""


TaskState = Literal[
    "submitted", "working", "completed", "failed", "canceled", "rejected", "input-required", "auth-required"
]
"""The states of a message to an agent, as the A2A protocol names those of a task."""


@event("agent_asked", v=1, origin="outcome")
class AgentAsked(Body, frozen=True):
    """A message to another agent is about to be sent.

    `run` is the conversation of that agent: one that an earlier message opened, or a new one, whose id derives from
    this run and `call`. `text` is the message, `depth` counts the agents that asked one another, this message included.
    A new conversation has the pinned copy `skill_hash` of the agent's skill, the op specifications `ops`, the first
    message as its `input`, and the messages of an earlier conversation with the agent as its `history`. `problem` is
    set if the message cannot be sent.
    """

    call: str
    agent: str
    run: str
    text: ContentName
    depth: Count = 1
    skill_hash: ContentName | None = None
    ops: ContentName | None = None
    input: ArtifactRef | None = None
    history: tuple[HistoryPart, ...] = ()
    problem: str = ""


@event("agent_replied", v=1, origin="outcome")
class AgentReplied(Body, frozen=True):
    """Another agent replied to a message, or will not.

    `state` is the state of the message; only `completed` has a reply, `text`. Otherwise `error` is the reason.
    `timed_out` is true if the reply took too long. `usage`, `answers` and `charge` count what the conversation `run`
    used since the last message to it, `active` is its execution time in microseconds. `seq` and `head` are the last
    event of the conversation and its hash. `open` is true if the conversation can take another message.
    """

    call: str
    agent: str
    run: str
    state: TaskState
    text: ContentName | None = None
    error: str = ""
    timed_out: bool = False
    usage: Usage = Usage()
    answers: Count = 0
    charge: Charge | None = None
    active: Count = 0
    seq: Count = 0
    head: Hash | None = None
    open: bool = False
