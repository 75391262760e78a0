"""Event versions of earlier releases (rules 1 to 4), with their conversion to the current version.

Runs under these rules can be read, verified, exported and forked, but not resumed.
"""

from __future__ import annotations

from reyn.journal.kinds.ops import OpCompleted, OpStarted, SubRunCompleted, SubRunStarted, SubRunStopped
from reyn.journal.kinds.run import MessageRefused
from reyn.journal.kinds.shapes import ArtifactRef, Change, ContentName, Count, OpStatus, Question, Usage
from reyn.journal.kinds.visit import ContentTruncated
from reyn.journal.registry import Body, older_event, op_event


@older_event("message_refused", v=1)
class MessageRefused1(Body, frozen=True):
    message: Count
    said: str
    why: str

    def upgrade(self) -> Body:
        return MessageRefused(self.message, self.said, self.why)


@older_event("content_cut", v=1)
class ContentCut1(Body, frozen=True):
    name: str
    content: ContentName
    shown: ContentName
    bytes: Count

    def upgrade(self) -> Body:
        return ContentTruncated(self.name, self.content, self.shown, self.bytes)


@older_event("file_started", v=1)
class FileStarted1(Body, frozen=True):
    call: str
    op: str
    args: ContentName
    rule: str
    changes: tuple[Change, ...] = ()
    result: ContentName | None = None

    def upgrade(self) -> OpStarted:
        make = op_event(OpStarted, "file")
        return make(self.call, self.args, self.rule, self.op, self.changes, self.result)


@older_event("file_completed", v=1)
class FileCompleted1(Body, frozen=True):
    call: str
    status: OpStatus
    result: ContentName
    bytes: Count
    changed: bool = False

    def upgrade(self) -> Body:
        make = op_event(OpCompleted, "file")
        return make(self.call, self.status, self.result, self.bytes, self.changed)


@older_event("ask_user_started", v=1)
class AskUserStarted1(Body, frozen=True):
    call: str
    args: ContentName

    def upgrade(self) -> Body:
        return op_event(OpStarted, "ask_user")(self.call, self.args, "")


@older_event("ask_user_completed", v=1)
class AskUserCompleted1(Body, frozen=True):
    call: str
    status: OpStatus
    result: ContentName
    bytes: Count

    def upgrade(self) -> Body:
        return op_event(OpCompleted, "ask_user")(self.call, self.status, self.result, self.bytes)


@older_event("run_skill_started", v=1)
class RunSkillStarted1(Body, frozen=True):
    call: str
    skill: str
    run: str
    args: ContentName | None = None
    skill_hash: ContentName | None = None
    input: ArtifactRef | None = None
    shares_workspace: bool = False
    problem: str = ""

    def upgrade(self) -> Body:
        return SubRunStarted(
            self.call, self.skill, self.run, self.skill_hash, self.input, self.shares_workspace, self.problem
        )


@older_event("run_skill_completed", v=1)
class RunSkillCompleted1(Body, frozen=True):
    call: str
    status: OpStatus
    result: ContentName
    bytes: Count
    artifact: ArtifactRef | None = None
    usage: Usage = Usage()
    answers: Count = 0
    active: Count = 0
    changes: tuple[Change, ...] = ()

    def upgrade(self) -> Body:
        error = "" if self.artifact else self.status
        return SubRunCompleted(
            self.call, "", error, self.artifact, self.usage, self.answers, self.active, self.changes, self.result
        )


@older_event("run_skill_stopped", v=1)
class RunSkillStopped1(Body, frozen=True):
    call: str
    run: str
    status: str
    reason: str
    code: str = ""
    limit: str = ""
    value: int = 0
    wait: Question | None = None
    active: Count = 0
    hint: str = ""

    def upgrade(self) -> Body:
        fields = (self.status, self.reason, self.code, self.limit, self.value, self.wait, self.active, self.hint)
        return SubRunStopped(self.call, self.run, *fields)  # type: ignore[arg-type]  # the values are the same
