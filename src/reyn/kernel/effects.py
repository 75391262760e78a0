"""What a visit may ask of the world. A visit awaits effects and nothing else, so it can always be driven again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec

from reyn.journal import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from reyn.journal import Body
    from reyn.skills import Skill

    Content = Callable[[str], bytes]

R = TypeVar("R")


class Effect(Generic[R]):
    """Awaiting one hands it to the driver, which recalls its recorded outcome or performs it."""

    outcomes: ClassVar[tuple[type[Body], ...]] = ()
    """The events that record what came of it."""
    failures: ClassVar[tuple[type[Body], ...]] = ()
    """The events that record that nothing came of it, yet: they stop the run, and it can be resolved again."""
    only_looks: ClassVar[bool] = False
    """Whether it leaves the world as it is, so that it needs no durable intent."""
    is_unsafe: bool = False
    """Whether doing it twice could do harm."""
    key: str
    """Fixed before the effect and unique in the run; its outcome carries the same."""

    def __await__(self) -> Generator[Effect[Any], Any, R]:
        result: R = yield self
        return result

    def result(self, outcome: Body, content: Content) -> R:
        """What the visit gets, from the recorded outcome; the same whether it was just performed or recalled."""
        return cast("R", outcome)


@dataclass(frozen=True)
class Reply:
    """A model's answer: its text, the name under which the text is kept, and whether it ended at a limit of length."""

    text: str
    hash: str
    is_cut: bool = False


@dataclass(frozen=True)
class CallModel(Effect[Reply]):
    """Ask the model. The messages are parts; whoever performs the call joins them."""

    key: str
    model: str
    messages: tuple[kinds.FrameMessage, ...]
    contract: dict[str, Any]
    request_hash: str
    results: tuple[str, ...] = ()

    outcomes = (kinds.LlmResponded,)
    failures = (kinds.LlmFailed,)

    def result(self, outcome: Body, content: Content) -> Reply:
        assert isinstance(outcome, kinds.LlmResponded)
        return Reply(content(outcome.text).decode(), outcome.text, outcome.cut)


@dataclass(frozen=True)
class Admit(Effect[kinds.FileStarted | kinds.PermissionDenied]):
    """Ask the gate, and look at what is there before an op changes it."""

    key: str
    args: dict[str, Any]

    outcomes = (kinds.FileStarted, kinds.PermissionDenied)
    only_looks = True


class Doubt:
    """Instead of an outcome: an unsafe intent was left by a driver that died, and may have taken place."""


DOUBT = Doubt()


@dataclass(frozen=True)
class Perform(Effect[kinds.FileCompleted | Doubt]):
    """Do what was admitted. `told` is what a person says of an unsafe intent whose outcome nobody knows."""

    key: str
    args: dict[str, Any]
    started: kinds.FileStarted
    is_unsafe: bool = False
    told: str = ""

    outcomes = (kinds.FileCompleted,)


@dataclass(frozen=True)
class Restore(Effect[kinds.WorkspaceRestored]):
    """Put files back as they were, newest change first."""

    key: str
    changes: tuple[kinds.Change, ...]

    outcomes = (kinds.WorkspaceRestored,)


@dataclass(frozen=True)
class Ask(Effect[Any]):
    """Wait for a person's answer; a `wait_opened` of the same id stands before it. Gives the JSON of the answer."""

    key: str


@dataclass(frozen=True)
class Pause(Effect[None]):
    """Go on only when the run is running: after an event that stopped it, that is when it is resumed."""

    key: str = ""


@dataclass(frozen=True)
class AdmitSkill(Effect[kinds.RunSkillStarted | kinds.PermissionDenied]):
    """Find the skill of a sub-run and check its input. `pinned` is the run's own copy, where it has one."""

    key: str
    skill: str
    given: Any
    args: dict[str, Any] | None = None
    pinned: Skill | None = field(default=None, compare=False)
    shares_workspace: bool = False

    outcomes = (kinds.RunSkillStarted, kinds.PermissionDenied)
    only_looks = True


@dataclass(frozen=True)
class RunChild(Effect[kinds.RunSkillCompleted]):
    """Drive a sub-run to its end. Started twice, it is started once: its id derives from the run and the call."""

    key: str
    started: kinds.RunSkillStarted

    outcomes = (kinds.RunSkillCompleted,)
    failures = (kinds.RunSkillStopped,)


def answer_of(given: kinds.WaitAnswered, content: Content) -> Any:
    return msgspec.json.decode(content(given.value))
