"""What happens to a run as a whole: it starts, stops, is resumed, forked, ends."""

from __future__ import annotations

from reyn.journal.kinds.shapes import ArtifactRef, Change, ContentName, DerivedText, ForkPoint, ParentRef, Wait
from reyn.journal.registry import Body, event


@event("run_started", v=1, origin="start", enters="running")
class RunStarted(Body, frozen=True):
    """The run exists. Everything that can change what it does is named here. `parent` is the call that asked for a
    sub-run; `workspace` the run whose files it uses, if not its own; `rerun_of` the run whose input it repeats."""

    run_id: str
    skill: str
    skill_hash: ContentName
    input: ArtifactRef
    model: str
    settings: ContentName
    rules: int
    parent: ParentRef | None = None
    workspace: str | None = None
    rerun_of: str | None = None
    source: str | None = None
    """The path of the skill, if it was not run by name."""
    ops: ContentName | None = None
    """The specifications of the ops that the run is offered."""
    wording: int = 0
    """The version of the derived texts: prompts, corrections, reasons."""
    requests: ContentName | None = None
    """What the skills of the runs above a sub-run request; the sub-run may do no more."""


@event("run_forked", v=1, origin="outside", enters="running")
class RunForked(Body, frozen=True):
    """This run begins where another one was. What is null stays as it was there."""

    run_id: str
    point: ForkPoint
    model: str | None = None
    input: ArtifactRef | None = None
    skill: str | None = None
    skill_hash: ContentName | None = None
    rules: int | None = None
    wording: int | None = None
    ops: ContentName | None = None


@event("run_resumed", v=1, origin="outside", enters="running")
class RunResumed(Body, frozen=True):
    """A new driver took over. It fences an older one and names the intent that has no outcome yet. `model`, `skill` and
    `wording` are set if they changed. An open question stays open."""

    driver: str
    open_intent: str | None = None
    retry: bool = False
    model: str | None = None
    skill: str | None = None
    skill_hash: ContentName | None = None
    wording: int | None = None
    ops: ContentName | None = None


@event("run_failed", v=1, origin="derived", enters="failed")
class RunFailed(Body, frozen=True):
    """The run stopped on an error; `resume --retry` tries again. `hint` is what to do before, where that is more than
    the code says."""

    code: str
    reason: DerivedText
    hint: DerivedText = ""


@event("run_broken", v=1, origin="outside", enters="failed")
class RunBroken(Body, frozen=True):
    """A fault of Reyn itself, or of what it stands on, stopped the run; `resume --retry` goes on from its record."""

    code: str
    reason: str


@event("run_cancelled", v=1, origin="outside", enters="cancelled")
class RunCancelled(Body, frozen=True):
    """Somebody cancelled the run. `message` is the place of the request in the inbox."""

    reason: str
    message: int


@event("limit_reached", v=1, origin="derived", enters="limited")
class LimitReached(Body, frozen=True):
    """A cap stopped the run; raised, the run goes on."""

    limit: str
    value: int
    phase: str
    reason: DerivedText


@event("limit_raised", v=1, origin="outside")
class LimitRaised(Body, frozen=True):
    """Somebody raised a cap. `value` null is no cap at all."""

    limit: str
    value: int | None
    message: int


@event("wait_opened", v=1, origin="derived", enters="waiting")
class WaitOpened(Body, frozen=True):
    """The run waits for an answer; it can be given from anywhere, at any time."""

    wait: Wait

    @property
    def reason(self) -> str:
        return self.wait.message


@event("wait_answered", v=1, origin="outside", enters="running")
class WaitAnswered(Body, frozen=True):
    """Somebody answered. `value` is the JSON of the answer; `message` its place in the inbox."""

    wait: str
    value: ContentName
    message: int
    by: str = ""
    """Who answered, as far as it is known."""


@event("message_refused", v=1, origin="outside")
class MessageRefused(Body, frozen=True):
    """Something was said to the run that means nothing to it (any more), and was left aside."""

    message: int
    said: str
    why: str


@event("skill_completed", v=1, origin="derived", enters="finished")
class SkillCompleted(Body, frozen=True):
    """The model finished, its artifact fits the final output, and the postprocessor is done."""

    artifact: ArtifactRef


@event("skill_aborted", v=1, origin="derived", enters="aborted")
class SkillAborted(Body, frozen=True):
    """The model gave up, or a phase that was rolled back into made no progress."""

    phase: str
    reason: DerivedText


@event("undo_started", v=1, origin="outside")
class UndoStarted(Body, frozen=True):
    """Somebody wants the files that this run changed as they were before: newest first, these."""

    changes: tuple[Change, ...]


@event("undo_completed", v=1, origin="outside")
class UndoCompleted(Body, frozen=True):
    """Which files are as they were before the run, and which were left because somebody else changed them since."""

    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
