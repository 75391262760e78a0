"""The state of a run is the fold of its events. This module is that fold: values and `apply`, no I/O.

Lifecycle lives here and nowhere else: what a transition, a finish, a failure, a rollback, a question or a limit means
for the run is what `apply` makes of its event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from reyn.context.frame import PATH_LENGTH
from reyn.errors import ChainBroken
from reyn.journal import Status, decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reyn.journal import Body, Event

TRAIL_LENGTH = PATH_LENGTH
"""How many completed visits a rollback can go back through; what is older is not kept, so that cost stays constant."""
WARNINGS = 50
"""How many warnings a run's state holds; the journal holds them all."""
KEPT = 200
"""How many of the things that a frame showed in part stay readable; the journal holds them all."""


class Passed(msgspec.Struct, frozen=True):
    """A completed visit: what it took and what it gave."""

    phase: str
    input: kinds.ArtifactRef
    artifact: kinds.ArtifactRef


class RunState(msgspec.Struct, frozen=True):
    """An immutable snapshot. `status` is `None` only before the first event."""

    status: Status | None = None
    reason: str = ""
    started: kinds.RunStarted | None = None
    model: str = ""
    """Who is asked: the model the run was started with, or the last one it was resumed with."""
    phase: str = ""
    """The phase being visited, or to be visited next."""
    input: kinds.ArtifactRef | None = None
    visit_open: bool = False
    ending: Literal["finish", "abort", "failure", "no_progress", "post_failure"] | None = None
    """How the last visit asks the run to end; the orchestrator turns it into the closing event."""
    ending_reason: str = ""
    ending_code: str = ""
    failure_code: str = ""
    """The code of the failure that the run stands at."""
    failure_hint: str = ""
    stopped_at: str | None = None
    """The sub-run that the run stopped with."""
    reached: tuple[str, int] | None = None
    """The cap that the run stands at: its name and value."""
    artifact: kinds.ArtifactRef | None = None
    result: kinds.ArtifactRef | None = None
    """What the postprocessor made of the artifact."""
    post_attempts: int = 0
    visits: dict[str, int] = {}
    path: tuple[str, ...] = ()
    switched: dict[str, str] = {}
    """Models that could not be had, each with the one that is asked in its place."""
    trail: tuple[Passed, ...] = ()
    rollback: kinds.PhaseRolledBack | None = None
    """Why the phase is entered again, while it is."""
    total_steps: int = 0
    answers: int = 0
    """Answers of models, those of sub-runs included."""
    usage: kinds.Usage = kinds.Usage()
    raised: dict[str, int | None] = {}
    messages_taken: int = 0
    open_intent: str | None = None
    doubtful: str | None = None
    """An intent that an earlier driver left without an outcome: nobody here knows whether it took place."""
    wait: kinds.Wait | None = None
    given: kinds.WaitAnswered | None = None
    kept: dict[str, str] = {}
    """What a frame showed in part: the name of the whole, by the word it is readable under."""
    warnings: tuple[str, ...] = ()
    clock: int = 0
    active: int = 0
    """Microseconds spent driving: neither waiting, nor stopped, nor dead."""
    visit_since: int = 0
    """How much of `active` had passed when the visit began."""

    def visits_of(self, phase: str) -> int:
        return self.visits.get(phase, 0)

    @property
    def run_id(self) -> str:
        assert self.started is not None
        return self.started.run_id

    @property
    def workspace(self) -> str:
        """The run whose files this one uses."""
        assert self.started is not None
        return self.started.workspace or self.started.run_id


EMPTY = RunState()

ENDED = ("finished", "aborted", "cancelled")
"""States that nothing moves on from; another run can go on from them."""

B = TypeVar("B", bound="Body")
_RULES: dict[type[Body], Callable[[RunState, Any], RunState]] = {}


def _on(cls: type[B]) -> Callable[[Callable[[RunState, B], RunState]], Callable[[RunState, B], RunState]]:
    def register(rule: Callable[[RunState, B], RunState]) -> Callable[[RunState, B], RunState]:
        _RULES[cls] = rule
        return rule

    return register


def apply(state: RunState, body: Body, ts: int) -> RunState:
    """The state after one more event. Total: every kind of event has a meaning in every state."""
    if body.origin != "derived":
        state = _pass_time(state, body, ts)
    rule = _RULES.get(type(body))
    if rule is not None:
        state = rule(state, body)
    if body.enters is not None and not _stays(state, body):
        state = replace(state, status=body.enters, reason=getattr(body, "reason", ""))
    return state


def fold(events: Iterable[Event]) -> RunState:
    """The state after all events of a run; one that is missing would leave the others without a meaning."""
    state = EMPTY
    for seq, event in enumerate(events, start=1):
        if event.seq != seq:
            raise ChainBroken(f"event {seq} of run `{event.run_id}` is missing")
        state = apply(state, decode(event), event.ts)
    return state


_SUB_RUN_ENDS = frozenset((kinds.RunSkillCompleted, kinds.RunSkillStopped))
_TAKE_OVERS = frozenset((kinds.RunResumed, kinds.RunForked))


def _pass_time(state: RunState, body: Body, ts: int) -> RunState:
    """Time counts while a driver works: not before a resume, and not while the run stands still."""
    kind = type(body)
    if kind in _SUB_RUN_ENDS:
        return replace(state, clock=ts, active=state.active + body.active)  # type: ignore[attr-defined]  # both have it
    works = state.status == "running" and kind not in _TAKE_OVERS
    return replace(state, clock=ts, active=state.active + max(0, ts - state.clock) if works else state.active)


def _stays(state: RunState, body: Body) -> bool:
    """A new driver does not answer an open question; it only goes on asking it. What has ended has ended."""
    if isinstance(body, kinds.RunForked):
        return False
    return state.status in ENDED or (isinstance(body, kinds.RunResumed) and state.wait is not None)


def _warn(state: RunState, warning: str) -> tuple[str, ...]:
    if len(state.warnings) < WARNINGS:
        return (*state.warnings, warning)
    return (*state.warnings[: WARNINGS - 1], "and more: `reyn events` has them all")


# -- the run ------------------------------------------------------------------------------------------


@_on(kinds.RunStarted)
def _(state: RunState, body: kinds.RunStarted) -> RunState:
    return replace(state, started=body, input=body.input, model=body.model)


@_on(kinds.RunForked)
def _(state: RunState, body: kinds.RunForked) -> RunState:
    """The same run under another name, with files of its own; nothing of how the other one went on."""
    assert state.started is not None
    started = replace(
        state.started,
        run_id=body.run_id,
        skill=body.skill or state.started.skill,
        skill_hash=body.skill_hash or state.started.skill_hash,
        input=body.input if body.input and not state.total_steps else state.started.input,
        parent=None,
        workspace=None,
    )
    return replace(
        state,
        started=started,
        model=body.model or state.model,
        input=body.input or state.input,
        wait=None,
        ending=None,
        answers=state.answers + (state.started.parent.answered if state.started.parent else 0),
        trail=() if body.skill_hash else state.trail,
    )


@_on(kinds.RunResumed)
def _(state: RunState, body: kinds.RunResumed) -> RunState:
    """A failed visit is entered anew once its failure stands; everything else goes on where it was. A sub-run's
    question is asked by the sub-run, once it is driven again."""
    ending = state.ending
    if state.status == "failed" and ending in ("failure", "post_failure"):
        ending = "finish" if ending == "post_failure" else None
    started = state.started
    if body.skill_hash is not None:
        assert started is not None
        started = replace(started, skill=body.skill or started.skill, skill_hash=body.skill_hash)
    wait = state.wait if state.wait is not None and state.wait.run is None else None
    return replace(
        state,
        started=started,
        ending=ending,
        wait=wait,
        stopped_at=None,
        trail=() if body.skill_hash else state.trail,
        doubtful=body.open_intent,
        model=body.model or state.model,
        switched={} if body.model or body.retry else state.switched,
    )


@_on(kinds.RunCancelled)
def _(state: RunState, body: kinds.RunCancelled) -> RunState:
    return replace(state, messages_taken=body.message, wait=None)


@_on(kinds.RunFailed)
def _(state: RunState, body: kinds.RunFailed) -> RunState:
    return replace(state, failure_code=body.code, failure_hint=body.hint)


@_on(kinds.RunBroken)
def _(state: RunState, body: kinds.RunBroken) -> RunState:
    return replace(state, failure_code=body.code, failure_hint="")


@_on(kinds.LimitReached)
def _(state: RunState, body: kinds.LimitReached) -> RunState:
    return replace(state, reached=(body.limit, body.value))


@_on(kinds.LimitRaised)
def _(state: RunState, body: kinds.LimitRaised) -> RunState:
    return replace(state, raised={**state.raised, body.limit: body.value}, messages_taken=body.message)


@_on(kinds.WaitOpened)
def _(state: RunState, body: kinds.WaitOpened) -> RunState:
    return replace(state, wait=body.wait)


@_on(kinds.WaitAnswered)
def _(state: RunState, body: kinds.WaitAnswered) -> RunState:
    return replace(state, wait=None, given=body, messages_taken=body.message, doubtful=None)


@_on(kinds.MessageRefused)
def _(state: RunState, body: kinds.MessageRefused) -> RunState:
    return replace(state, messages_taken=body.message)


# -- one visit ----------------------------------------------------------------------------------------


@_on(kinds.PhaseStarted)
def _(state: RunState, body: kinds.PhaseStarted) -> RunState:
    return replace(
        state,
        phase=body.phase,
        input=body.input,
        visit_open=True,
        visits={**state.visits, body.phase: body.visit},
        path=(*state.path, body.phase)[-PATH_LENGTH:],
        total_steps=state.total_steps + 1,
        visit_since=state.active,
    )


@_on(kinds.StepCompleted)
def _(state: RunState, body: kinds.StepCompleted) -> RunState:
    if body.status not in ("skipped", "empty"):
        return state
    warning = f"step {body.call} `{body.step}` failed and was left {body.status}: {body.reason}"
    return replace(state, warnings=_warn(state, warning))


@_on(kinds.ContentCut)
def _(state: RunState, body: kinds.ContentCut) -> RunState:
    kept = {**state.kept, body.name: body.content}
    if len(kept) > KEPT:
        del kept[next(iter(kept))]
    return replace(state, kept=kept)


@_on(kinds.LlmRequested)
def _(state: RunState, body: kinds.LlmRequested) -> RunState:
    return replace(state, open_intent=body.call)


@_on(kinds.LlmResponded)
def _(state: RunState, body: kinds.LlmResponded) -> RunState:
    usage = state.usage + body.usage if body.usage else state.usage
    return replace(state, answers=state.answers + 1, usage=usage, open_intent=None, doubtful=None)


@_on(kinds.ModelSwitched)
def _(state: RunState, body: kinds.ModelSwitched) -> RunState:
    return replace(state, switched={**state.switched, body.model: body.to})


@_on(kinds.ControlDecided)
def _(state: RunState, body: kinds.ControlDecided) -> RunState:
    return replace(state, ending_reason=body.reason)


@_on(kinds.ArtifactStored)
def _(state: RunState, body: kinds.ArtifactStored) -> RunState:
    return replace(state, artifact=body.artifact)


@_on(kinds.PhaseCompleted)
def _(state: RunState, body: kinds.PhaseCompleted) -> RunState:
    if body.type == "abort":
        return replace(state, visit_open=False, ending="abort")
    artifact, back = state.artifact, state.rollback
    assert artifact is not None
    if back is not None and artifact.hash == back.rejected.hash:
        reason = f"no progress: after a rollback, phase `{body.phase}` gave the same artifact again"
        return replace(state, visit_open=False, ending="no_progress", ending_reason=reason)
    if body.type == "finish":
        return replace(state, visit_open=False, ending="finish", rollback=None)
    assert state.input is not None
    trail = (*state.trail, Passed(body.phase, state.input, artifact))[-TRAIL_LENGTH:]
    return replace(state, visit_open=False, phase=body.next_phase, input=artifact, trail=trail, rollback=None)


@_on(kinds.PhaseFailed)
def _(state: RunState, body: kinds.PhaseFailed) -> RunState:
    return replace(state, visit_open=False, ending="failure", ending_reason=body.reason, ending_code=body.code)


@_on(kinds.PhaseRolledBack)
def _(state: RunState, body: kinds.PhaseRolledBack) -> RunState:
    return replace(state, phase=body.to, input=body.input, ending=None, rollback=body, trail=state.trail[:-1])


@_on(kinds.PostprocessorStarted)
def _(state: RunState, body: kinds.PostprocessorStarted) -> RunState:
    return replace(state, visit_open=True, post_attempts=body.attempt, visit_since=state.active)


@_on(kinds.PostprocessorCompleted)
def _(state: RunState, body: kinds.PostprocessorCompleted) -> RunState:
    return replace(state, visit_open=False, result=body.artifact)


@_on(kinds.PostprocessorFailed)
def _(state: RunState, body: kinds.PostprocessorFailed) -> RunState:
    return replace(state, visit_open=False, ending="post_failure", ending_reason=body.reason, ending_code=body.code)


# -- ops ----------------------------------------------------------------------------------------------


def _begun(state: RunState, body: Any) -> RunState:
    return replace(state, open_intent=body.call)


def _over(state: RunState, _: Any) -> RunState:
    return replace(state, open_intent=None, doubtful=None)


_RULES |= dict.fromkeys((kinds.FileStarted, kinds.RunSkillStarted, kinds.RestoreStarted), _begun)
_RULES |= dict.fromkeys((kinds.LlmFailed, kinds.FileCompleted), _over)


@_on(kinds.RunSkillStopped)
def _(state: RunState, body: kinds.RunSkillStopped) -> RunState:
    return replace(state, open_intent=None, doubtful=None, stopped_at=body.run)


@_on(kinds.WorkspaceRestored)
def _(state: RunState, body: kinds.WorkspaceRestored) -> RunState:
    why = "somebody else changed it since, or it could not be written"
    for path in body.left:
        state = replace(state, warnings=_warn(state, f"`{path}` was not restored: {why}"))
    return replace(state, open_intent=None, doubtful=None)


@_on(kinds.RunSkillCompleted)
def _(state: RunState, body: kinds.RunSkillCompleted) -> RunState:
    return replace(
        state,
        open_intent=None,
        doubtful=None,
        usage=state.usage + body.usage,
        answers=state.answers + body.answers,
    )
