"""Drives a run: asks what happens next, lets a visit take a step, recalls or performs its effects.

The only loop of the kernel. It is not asyncio that steps a visit but `send`: whatever is not an effect is refused, so
a visit can be driven again from its record. Events are flushed before every effect that touches the world (the intent
is durable before the world is touched) and at every stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from reyn.errors import ForeignAwait, InternalError, ReynError
from reyn.journal import kinds
from reyn.kernel.effects import EXPIRED, UNKNOWN_OUTCOME, Ask, Effect, Pause, answer_of
from reyn.kernel.phase_executor import postprocess, visit, visit_skill
from reyn.kernel.run_orchestrator import Postprocess, Visit, next_move, stop_for
from reyn.kernel.tape import RecordingEnded
from reyn.skills.values import is_skill_node

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from reyn.journal import Blob, Body
    from reyn.kernel.briefs import Briefs
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape

    BriefsOf = Callable[[kinds.RunStarted], Briefs]


class World(Protocol):
    """Everything outside a run."""

    async def perform(self, effect: Effect[Any], tape: Tape) -> tuple[Body, tuple[Blob, ...]] | None:
        """Carry an effect out; what came of it, with the content that refers to. Nothing if it was given up because the
        run was cancelled meanwhile."""
        ...

    def now(self) -> int: ...

    def outside(self, state: RunState) -> list[tuple[Body, tuple[Blob, ...]]]:
        """What reached the run since it last listened: first that it was resumed, then what was said to it."""
        ...

    async def hear(self, wait: kinds.Wait, state: RunState) -> bool:
        """Put a question to people; whether something was said to the run since. False: nobody answers now."""
        ...

    async def flush(self, tape: Tape) -> None:
        """Make what the tape buffers durable."""
        ...


class _Stopped(Exception):
    """The run is no longer running, or a recording ended: unwinds the visit in flight."""


class Driver:
    """Without a world it only recalls: that is a replay, and it stops where the recording does."""

    def __init__(self, tape: Tape, briefs_of: BriefsOf, world: World | None) -> None:
        self.tape = tape
        self.briefs_of = briefs_of
        self.world = world

    async def drive(self) -> RunState:
        """Go on until the run is not running any more."""
        try:
            self._listen()
            while True:
                self.tape.take_outside()
                if self.tape.state.status != "running":
                    self._listen()
                self._ensure_running()
                await self._step()
        except (_Stopped, RecordingEnded):
            pass
        except ReynError:
            raise
        except Exception as error:  # noqa: BLE001 - told, recorded, and passed on as ours
            await self._break(error)
        if self.world is not None:
            await self.world.flush(self.tape)
        return self.tape.state

    async def _break(self, error: Exception) -> None:
        """A fault that nobody foresaw: what is recorded stays, the paid answer too, and the run says why it stopped."""
        reason = f"an internal fault: {type(error).__name__}: {error}"
        if self.world is not None and self.tape.upcoming is None:
            self.tape.record(kinds.RunBroken(InternalError.code, reason), self.world.now())
            await self.world.flush(self.tape)
        raise InternalError(reason) from error

    async def _step(self) -> None:
        tape = self.tape
        assert tape.state.started is not None
        briefs = self.briefs_of(tape.state.started)
        move = next_move(tape.state, briefs.skill, briefs.settings)
        match move:
            case Visit():
                tape.forget()
                brief = briefs.of(move.phase, tape.state)
                await self._advance((visit_skill if is_skill_node(move.phase) else visit)(brief, move, tape))
            case Postprocess():
                tape.forget()
                await self._advance(postprocess(briefs.of_post(), move, tape))
            case _:
                tape.emit(move)

    async def _advance(self, coroutine: Coroutine[Effect[Any], Any, None]) -> None:
        """Step a coroutine through its effects to its end."""
        result: Any = None
        try:
            while True:
                effect = coroutine.send(result)
                if not isinstance(effect, Effect):
                    raise ForeignAwait(f"a visit awaited {effect!r}, which is not an effect")
                result = await (self._ask(effect) if isinstance(effect, Ask) else self._resolve(effect))
        except StopIteration:
            return
        finally:
            coroutine.close()

    async def _resolve(self, effect: Effect[Any]) -> Any:
        """The result of an effect. A failed one stops the run; when that goes on, it is resolved again."""
        while True:
            self._listen()
            self._ensure_running()
            if isinstance(effect, Pause):
                return None
            if effect.is_unsafe and self.tape.state.recovery.unknown_outcome == effect.key:
                return UNKNOWN_OUTCOME
            known = effect.outcomes + effect.failures
            outcome = self.tape.recall(known, effect.key) or await self._perform(effect)
            if outcome is None:
                continue
            if isinstance(outcome, effect.outcomes):
                return effect.result(outcome, self.tape.content)
            self.tape.emit(stop_for(outcome, self.tape.state))

    async def _perform(self, effect: Effect[Any]) -> Body | None:
        """What came of an effect; nothing if it was given up because something was said to the run."""
        if self.world is None:
            raise _Stopped
        if effect.needs_intent:
            await self.world.flush(self.tape)
        performed = await self.world.perform(effect, self.tape)
        if performed is None:
            return None
        outcome, blobs = performed
        self.tape.record(outcome, self.world.now(), *blobs)
        return outcome

    async def _ask(self, effect: Ask) -> Any:
        """The answer to an open question, however long it takes and wherever it comes from."""
        while True:
            self._listen()
            answered, wait = self.tape.state.answered, self.tape.state.wait
            if answered is not None and answered.wait == effect.key:
                self._ensure_running()
                return answer_of(answered, self.tape.content)
            if self.tape.state.expired == effect.key:
                self._ensure_running()
                return EXPIRED
            if wait is None:
                self._ensure_running()
            self.tape.ensure_passed(f"an answer to `{effect.key}`")
            if self.world is None or wait is None:
                raise _Stopped
            if wait.expires_at is not None and self.world.now() >= wait.expires_at:
                self.tape.record(kinds.WaitExpired(wait.id), self.world.now())
                continue
            await self.world.flush(self.tape)
            if not await self.world.hear(wait, self.tape.state):
                raise _Stopped

    def _listen(self) -> None:
        """Take what came from outside: recorded first; live, what was said since."""
        self.tape.take_outside()
        if self.world is not None and self.tape.upcoming is None:
            for body, blobs in self.world.outside(self.tape.state):
                self.tape.record(body, self.world.now(), *blobs)

    def _ensure_running(self) -> None:
        """A run that stopped goes on only if the recording says so."""
        while self.tape.state.status != "running":
            if not self.tape.take_outside():
                raise _Stopped
