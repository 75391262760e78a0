"""The world of one live run: its model, its clock, what is said to it, and where its events go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.errors import InternalError
from reyn.journal import Cancel, RaiseLimit, kinds
from reyn.kernel.effects import CallModel
from reyn.kernel.llm_call_recorder import LlmCallRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.journal import Blob, Body, Event, Journal, Message
    from reyn.kernel.commits import SharedCommits
    from reyn.kernel.effects import Effect
    from reyn.kernel.ports import Clock
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape
    from reyn.models import Model

    Listener = Callable[[Event], None]


class Resumption:
    """How a driver takes a recorded run over: under which name, and whether to try a failure again."""

    def __init__(self, driver: str, *, retry: bool = False) -> None:
        self.driver = driver
        self.retry = retry


class LiveWorld:
    def __init__(
        self,
        journal: Journal,
        commits: SharedCommits,
        model: Model,
        clock: Clock,
        *,
        resumption: Resumption | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._journal = journal
        self._commits = commits
        self._recorder = LlmCallRecorder(model)
        self._clock = clock
        self._resumption = resumption
        self._listener = listener
        self.warnings = self._recorder.warnings

    async def perform(self, effect: Effect[Any], tape: Tape) -> tuple[Body, tuple[Blob, ...]]:
        if isinstance(effect, CallModel):
            return await self._recorder.perform(effect, tape)
        raise InternalError(f"nobody performs {type(effect).__name__}")

    def now(self) -> int:
        return self._clock.now()

    def outside(self, state: RunState) -> list[Body]:
        assert state.started is not None
        said: list[Body] = []
        if self._resumption is not None:
            resumption, self._resumption = self._resumption, None
            model = self._recorder.model.name
            said.append(
                kinds.RunResumed(
                    resumption.driver, state.open_intent, resumption.retry, model if model != state.model else None
                )
            )
        inbox = self._journal.drain(state.started.run_id, state.messages_taken)
        return said + [_to_event(message) for message in inbox]

    async def flush(self, tape: Tape) -> None:
        """Only what is durable is shown; whoever looks on cannot break the run."""
        for event in await tape.flush(self._commits.append):
            if self._listener is not None:
                self._show(event, self._listener)

    def _show(self, event: Event, listener: Listener) -> None:
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - somebody else's code
            self._listener = None
            self.warnings.append(f"the listener broke at event {event.seq} and was left out: {error!r}")


def _to_event(message: Message) -> Body:
    match message.said:
        case Cancel(reason):
            return kinds.RunCancelled(reason, message.id)
        case RaiseLimit(limit, value):
            return kinds.LimitRaised(limit, value, message.id)
