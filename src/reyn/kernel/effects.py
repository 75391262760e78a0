"""What a visit may ask of the world. A visit awaits effects and nothing else, so it can always be driven again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from reyn.journal import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from reyn.journal import Body

R = TypeVar("R")


class Effect(Generic[R]):
    """Awaiting one hands it to the driver, which recalls its recorded outcome or performs it."""

    outcome: ClassVar[type[Body]]
    """The event that records what came of it."""
    failure: ClassVar[type[Body]]
    """The event that records that nothing came of it."""
    key: str
    """Fixed before the effect and unique in the run; its outcome carries the same."""

    def __await__(self) -> Generator[Effect[Any], Any, R]:
        result: R = yield self
        return result

    def result(self, outcome: Body, content: Callable[[str], bytes]) -> R:
        """What the visit gets, from the recorded outcome; the same whether it was just performed or recalled."""
        raise NotImplementedError  # every effect says it for itself


@dataclass(frozen=True)
class Reply:
    """A model's answer: its text and the name under which the text is kept."""

    text: str
    hash: str


@dataclass(frozen=True)
class CallModel(Effect[Reply]):
    """Ask the model. The messages are parts; whoever performs the call joins them."""

    key: str
    messages: tuple[kinds.FrameMessage, ...]
    contract: dict[str, Any]
    request_hash: str

    outcome = kinds.LlmResponded
    failure = kinds.LlmFailed

    def result(self, outcome: Body, content: Callable[[str], bytes]) -> Reply:
        assert isinstance(outcome, kinds.LlmResponded)
        return Reply(content(outcome.text).decode(), outcome.text)
