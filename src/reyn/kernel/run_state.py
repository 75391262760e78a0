"""The state of a run is the fold of its events. This module is that fold: values and `apply`, no I/O.

Lifecycle lives here and nowhere else: what a transition, a finish, a failure or a limit means for the run is what
`apply` makes of its event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from reyn.context.frame import PATH_LENGTH
from reyn.journal import Status, decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reyn.journal import Body, Event


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
    ending: Literal["finish", "abort", "failure"] | None = None
    """How the last visit asks the run to end; the orchestrator turns it into the closing event."""
    ending_reason: str = ""
    artifact: kinds.ArtifactRef | None = None
    visits: dict[str, int] = {}
    path: tuple[str, ...] = ()
    total_steps: int = 0
    answers: int = 0
    usage: kinds.Usage = kinds.Usage()
    raised: dict[str, int | None] = {}
    messages_taken: int = 0
    open_intent: str | None = None

    def visits_of(self, phase: str) -> int:
        return self.visits.get(phase, 0)


EMPTY = RunState()

B = TypeVar("B", bound="Body")
_RULES: dict[type[Body], Callable[[RunState, Any], RunState]] = {}


def _on(cls: type[B]) -> Callable[[Callable[[RunState, B], RunState]], Callable[[RunState, B], RunState]]:
    def register(rule: Callable[[RunState, B], RunState]) -> Callable[[RunState, B], RunState]:
        _RULES[cls] = rule
        return rule

    return register


def apply(state: RunState, body: Body) -> RunState:
    """The state after one more event. Total: every kind of event has a meaning in every state."""
    rule = _RULES.get(type(body))
    if rule is not None:
        state = rule(state, body)
    if body.enters is not None:
        state = replace(state, status=body.enters, reason=getattr(body, "reason", ""))
    return state


def fold(events: Iterable[Event], state: RunState = EMPTY) -> RunState:
    for event in events:
        state = apply(state, decode(event))
    return state


@_on(kinds.RunStarted)
def _(state: RunState, body: kinds.RunStarted) -> RunState:
    return replace(state, started=body, input=body.input, model=body.model)


@_on(kinds.RunResumed)
def _(state: RunState, body: kinds.RunResumed) -> RunState:
    """A failed visit is entered anew once its failure stands; everything else goes on where it was."""
    if state.status == "failed" and state.ending == "failure":
        state = replace(state, ending=None)
    return replace(state, model=body.model) if body.model else state


@_on(kinds.RunCancelled)
def _(state: RunState, body: kinds.RunCancelled) -> RunState:
    return replace(state, messages_taken=body.message)


@_on(kinds.LimitRaised)
def _(state: RunState, body: kinds.LimitRaised) -> RunState:
    return replace(state, raised={**state.raised, body.limit: body.value}, messages_taken=body.message)


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
    )


@_on(kinds.LlmRequested)
def _(state: RunState, body: kinds.LlmRequested) -> RunState:
    return replace(state, open_intent=body.call)


@_on(kinds.LlmResponded)
def _(state: RunState, body: kinds.LlmResponded) -> RunState:
    usage = state.usage + body.usage if body.usage else state.usage
    return replace(state, answers=state.answers + 1, usage=usage, open_intent=None)


@_on(kinds.LlmFailed)
def _(state: RunState, body: kinds.LlmFailed) -> RunState:
    return replace(state, open_intent=None)


@_on(kinds.ControlDecided)
def _(state: RunState, body: kinds.ControlDecided) -> RunState:
    return replace(state, ending_reason=body.reason)


@_on(kinds.ArtifactStored)
def _(state: RunState, body: kinds.ArtifactStored) -> RunState:
    return replace(state, artifact=body.artifact)


@_on(kinds.PhaseCompleted)
def _(state: RunState, body: kinds.PhaseCompleted) -> RunState:
    if body.type == "transition":
        return replace(state, visit_open=False, phase=body.next_phase, input=state.artifact)
    return replace(state, visit_open=False, ending=body.type)


@_on(kinds.PhaseFailed)
def _(state: RunState, body: kinds.PhaseFailed) -> RunState:
    return replace(state, visit_open=False, ending="failure", ending_reason=body.reason)
