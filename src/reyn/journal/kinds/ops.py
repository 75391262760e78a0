"""Events of ops and sub-runs: an intent before, an outcome after. `call` identifies the op, also after a crash.

Every op kind has two events, `<kind>_started` and `<kind>_completed`, of one shape (`OpStarted`, `OpCompleted`). Their
types are made per kind, so that journals with kinds that are not installed stay readable.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from reyn.journal.kinds.shapes import (
    ArtifactRef,
    AskRequest,
    Change,
    ContentName,
    Count,
    OpStatus,
    RunRequest,
    Usage,
    Wait,
)
from reyn.journal.registry import Body, event, family


@event("permission_denied", v=1, origin="outcome")
class PermissionDenied(Body, frozen=True):
    """The gate denied an op. `rule` names the rule; `result` is what the model sees."""

    call: str
    op: str
    rule: str
    reason: str
    result: ContentName
    op_kind: str = ""


@family("started", v=2, origin="outcome")
class OpStarted(Body, frozen=True):
    """The gate allowed an op. `changes` names each file before and after; `result` is set if it is known already."""

    op_kind: ClassVar[str]

    call: str
    args: ContentName
    rule: str
    op: str = ""
    changes: tuple[Change, ...] = ()
    result: ContentName | None = None
    request: AskRequest | RunRequest | None = None
    """What the kernel does before the op completes."""


@family("completed", v=2, origin="outcome")
class OpCompleted(Body, frozen=True):
    """The outcome of an op. `changed` is true if the files are now as `changes` says."""

    op_kind: ClassVar[str]

    call: str
    status: OpStatus
    result: ContentName
    bytes: Count
    changed: bool = False


@event("request_fulfilled", v=1, origin="derived")
class RequestFulfilled(Body, frozen=True):
    """What an unsafe op requested is available: it is about to be performed."""

    call: str


@event("workspace_updated", v=1, origin="derived")
class WorkspaceUpdated(Body, frozen=True):
    """A file was created, changed or deleted."""

    call: str
    change: Change


@event("restore_started", v=1, origin="derived")
class RestoreStarted(Body, frozen=True):
    """The files that a failed visit changed are restored, newest change first."""

    call: str
    changes: tuple[Change, ...]


@event("workspace_restored", v=1, origin="outcome")
class WorkspaceRestored(Body, frozen=True):
    """Which files were restored, and which were left because another program changed them."""

    call: str
    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@event("sub_run_started", v=1, origin="outcome")
class SubRunStarted(Body, frozen=True):
    """The intent to run another skill: the id of the sub-run, the copy of its skill, its input. `problem` says why it
    cannot start."""

    call: str
    skill: str
    run: str
    skill_hash: ContentName | None = None
    input: ArtifactRef | None = None
    shares_workspace: bool = False
    problem: str = ""
    ops: ContentName | None = None
    """The specifications of the ops that the sub-run is offered."""


@event("sub_run_completed", v=1, origin="outcome")
class SubRunCompleted(Body, frozen=True):
    """A sub-run ended: its final artifact, or why there is none, and what it used."""

    call: str
    run: str
    error: str = ""
    artifact: ArtifactRef | None = None
    usage: Usage = Usage()
    answers: Count = 0
    """The model answers it took."""
    active: Count = 0
    """Microseconds of execution since it last stopped."""
    changes: tuple[Change, ...] = ()
    """The changes it left in files that the run shares with it."""
    result: ContentName | None = None
    """Set by rules 1 to 4 only: the result that the model saw."""


@event("sub_run_stopped", v=1, origin="outcome")
class SubRunStopped(Body, frozen=True):
    """A sub-run stopped and can be resumed. This run stops for the same reason."""

    call: str
    run: str
    status: Literal["failed", "limited", "waiting", "blocked"]
    reason: str
    code: str = ""
    limit: str = ""
    value: int = 0
    wait: Wait | None = None
    active: Count = 0
    hint: str = ""
