"""What ops do: an intent before, an outcome after, a denial alone. `call` names the op, the same after a crash."""

from __future__ import annotations

from typing import Literal

from reyn.journal.kinds.shapes import ArtifactRef, Change, ContentName, Count, OpStatus, Usage, Wait
from reyn.journal.registry import Body, event


@event("permission_denied", v=1, origin="outcome")
class PermissionDenied(Body, frozen=True):
    """The gate refused an op, by which rule; `result` is what the model is told."""

    call: str
    op: str
    rule: str
    reason: str
    result: ContentName


@event("file_started", v=1, origin="outcome")
class FileStarted(Body, frozen=True):
    """The gate admitted a file op. A writing one names each file before and after, and the result it will have."""

    call: str
    op: str
    args: ContentName
    rule: str
    changes: tuple[Change, ...] = ()
    result: ContentName | None = None


@event("file_completed", v=1, origin="outcome")
class FileCompleted(Body, frozen=True):
    """What came of a file op; `changed` if files are now as its intent says."""

    call: str
    status: OpStatus
    result: ContentName
    bytes: Count
    changed: bool = False


@event("workspace_updated", v=1, origin="derived")
class WorkspaceUpdated(Body, frozen=True):
    """A file is another one than before."""

    call: str
    change: Change


@event("restore_started", v=1, origin="derived")
class RestoreStarted(Body, frozen=True):
    """The files that a failed visit changed are put back, newest first."""

    call: str
    changes: tuple[Change, ...]


@event("workspace_restored", v=1, origin="outcome")
class WorkspaceRestored(Body, frozen=True):
    """Which files are as they were before, and which were left because somebody else changed them since."""

    call: str
    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@event("ask_user_started", v=1, origin="derived")
class AskUserStarted(Body, frozen=True):
    """A question will be put to people."""

    call: str
    args: ContentName


@event("ask_user_completed", v=1, origin="derived")
class AskUserCompleted(Body, frozen=True):
    """The question was answered."""

    call: str
    status: OpStatus
    result: ContentName
    bytes: Count


@event("run_skill_started", v=1, origin="outcome")
class RunSkillStarted(Body, frozen=True):
    """A sub-run is asked for: its id, the copy of its skill, its input. `problem` says why there can be none."""

    call: str
    skill: str
    run: str
    args: ContentName | None = None
    skill_hash: ContentName | None = None
    input: ArtifactRef | None = None
    shares_workspace: bool = False
    problem: str = ""


@event("run_skill_completed", v=1, origin="outcome")
class RunSkillCompleted(Body, frozen=True):
    """A sub-run ended: its artifact, what it used, how many answers it took."""

    call: str
    status: OpStatus
    result: ContentName
    bytes: Count
    artifact: ArtifactRef | None = None
    usage: Usage = Usage()
    answers: Count = 0
    active: Count = 0
    """Microseconds spent driving it since it last stopped."""
    changes: tuple[Change, ...] = ()
    """What it left changed in files that the run shares with it."""


@event("run_skill_stopped", v=1, origin="outcome")
class RunSkillStopped(Body, frozen=True):
    """A sub-run stopped and can go on; so does this run, for the same reason."""

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
