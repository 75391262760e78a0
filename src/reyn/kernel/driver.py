"""Drives a run: asks what happens next, lets a visit take a step, recalls or performs its effects.

The only loop of the kernel. It is not asyncio that steps a visit but `send`: whatever is not an effect is refused, so
a visit can be driven again from its record. Events are flushed before every effect (the intent is durable before the
world is touched) and at every stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from reyn.errors import ForeignAwait
from reyn.kernel.effects import Effect
from reyn.kernel.phase_executor import visit
from reyn.kernel.run_orchestrator import Visit, failure_of, limit_of, next_move
from reyn.kernel.tape import RecordingEnded

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from reyn.journal import Blob, Body
    from reyn.kernel.briefs import Briefs
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape


class World(Protocol):
    """Everything outside a run."""

    async def perform(self, effect: Effect[Any], tape: Tape) -> tuple[Body, tuple[Blob, ...]]:
        """Carry an effect out; what came of it, with the content that refers to."""
        ...

    def now(self) -> int: ...

    def outside(self, state: RunState) -> list[Body]:
        """What reached the run since it last listened: first that it was resumed, then what was said to it."""
        ...

    async def flush(self, tape: Tape) -> None:
        """Make what the tape buffers durable."""
        ...


class _Stopped(Exception):
    """The run is no longer running, or a recording ended: unwinds the visit in flight."""


class Driver:
    """Without a world it only recalls: that is a replay, and it stops where the recording does."""

    def __init__(self, tape: Tape, briefs: Briefs, world: World | None) -> None:
        self.tape = tape
        self.briefs = briefs
        self.world = world

    async def drive(self) -> RunState:
        """Go on until the run is not running any more."""
        try:
            self._listen()
            while True:
                self.tape.take_outside()
                self._ensure_running()
                await self._step()
        except (_Stopped, RecordingEnded):
            pass
        if self.world is not None:
            await self.world.flush(self.tape)
        return self.tape.state

    async def _step(self) -> None:
        tape, briefs = self.tape, self.briefs
        move = next_move(tape.state, briefs.skill, briefs.settings)
        if not isinstance(move, Visit):
            tape.emit(move)
            return
        tape.forget()
        brief = briefs.of(move.phase, limit_of(tape.state, briefs.settings, "max_phase_visits"))
        await self._advance(visit(brief, move, tape))

    async def _advance(self, coroutine: Coroutine[Effect[Any], Any, None]) -> None:
        """Step a coroutine through its effects to its end."""
        result: Any = None
        try:
            while True:
                effect = coroutine.send(result)
                if not isinstance(effect, Effect):
                    raise ForeignAwait(f"a visit awaited {effect!r}, which is not an effect")
                result = await self._resolve(effect)
        except StopIteration:
            return
        finally:
            coroutine.close()

    async def _resolve(self, effect: Effect[Any]) -> Any:
        """The result of an effect. A failed one stops the run; when that is retried, it is resolved again."""
        while True:
            self._listen()
            self._ensure_running()
            outcome = self.tape.recall((effect.outcome, effect.failure), effect.key) or await self._perform(effect)
            if isinstance(outcome, effect.outcome):
                return effect.result(outcome, self.tape.content)
            self.tape.emit(failure_of(outcome))

    async def _perform(self, effect: Effect[Any]) -> Body:
        if self.world is None:
            raise _Stopped
        await self.world.flush(self.tape)
        outcome, blobs = await self.world.perform(effect, self.tape)
        self.tape.record(outcome, self.world.now(), *blobs)
        return outcome

    def _listen(self) -> None:
        """Take what came from outside: recorded first; live, what was said since."""
        self.tape.take_outside()
        if self.world is not None and self.tape.upcoming is None:
            for body in self.world.outside(self.tape.state):
                self.tape.record(body, self.world.now())

    def _ensure_running(self) -> None:
        """A run that stopped goes on only if the recording says so."""
        while self.tape.state.status != "running":
            if not self.tape.take_outside():
                raise _Stopped
