"""The effects with which a visit starts children, awaits their ends, and cancels them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reyn.journal import kinds
from reyn.kernel.core.effects import Effect, UnknownOutcome

if TYPE_CHECKING:
    from reyn.skills import Skill


class SubRunsAwaited(Exception):
    """The run can only go on when a sub-run that workers execute has ended or stopped. `runs` are those in progress."""

    def __init__(self, runs: tuple[str, ...]) -> None:
        super().__init__(*runs)
        self.runs = runs


@dataclass
class PlanChild(Effect[kinds.ChildStarted | kinds.ChildEnded]):
    """Find what a child runs, and validate its input. A child that is refused has ended: `await_child` executes others.

    `skill` is the skill, `agent:NAME` for an agent. `input` is the input of the skill, or the hash of the message.
    `pinned` is the run's own copy of the skill, if any. `rollback` is why a node is visited again. `declined` is set if
    a person decided that it does not run: it names what it did before.
    """

    key: str
    type: kinds.ChildType
    skill: str
    input: Any
    pinned: Skill | None = field(default=None, compare=False)
    shares_workspace: bool = False
    rollback: kinds.RollbackRef | None = None
    declined: str = ""

    outcomes = (kinds.ChildStarted, kinds.ChildEnded)
    failures = (kinds.AllowanceReached,)
    needs_intent = False


@dataclass
class ExecuteChild(Effect[kinds.ChildEnded | UnknownOutcome]):
    """Execute a child to its end. Its id derives from run and call, so that starting it twice starts it once."""

    key: str
    started: kinds.ChildStarted
    ahead: tuple[kinds.ChildStarted, ...] = field(default=(), compare=False)
    """Sub-runs that the visit will await next. They execute meanwhile; their outcomes are recorded when awaited."""
    concurrency: int = 1
    """How many of them, this one included, execute at the same time."""

    @property
    def needs_intent(self) -> bool:  # type: ignore[override]  # the base class declares a variable
        """Whether its intent must become durable first. Together with others, that happens when it is started."""
        return self.concurrency == 1

    outcomes = (kinds.ChildEnded,)
    failures = (kinds.ChildStopped,)
    continues_child = True


@dataclass
class AwaitFirst(Effect[kinds.ChildEnded | UnknownOutcome]):
    """Execute children at the same time until one of them ends, whichever is the first.

    If one of them stops, no others begin, and those in progress end or stop before the run does.
    """

    key: str
    started: tuple[kinds.ChildStarted, ...]
    concurrency: int
    """How many of them execute at the same time."""

    outcomes = (kinds.ChildEnded,)
    failures = (kinds.ChildStopped,)
    needs_intent = False  # their intents become durable before they begin
    continues_child = True

    def ends_with(self, call: str | None) -> bool:
        return any(call == one.call for one in self.started)


@dataclass
class CancelChild(Effect[kinds.ChildEnded]):
    """Cancel a child that is not needed any more, and await its end. `others` are cancelled at the same time."""

    key: str
    started: kinds.ChildStarted
    reason: str
    others: tuple[kinds.ChildStarted, ...] = field(default=(), compare=False)

    outcomes = (kinds.ChildEnded,)
    failures = (kinds.ChildStopped,)


@dataclass(frozen=True)
class StartChildren(Effect[None]):
    """Start sub-runs that the visit will await later, and continue at once. Nothing is recorded."""

    key: str
    started: tuple[kinds.ChildStarted, ...] = field(compare=False)
    concurrency: int
