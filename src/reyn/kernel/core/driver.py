"""Execute a run: decide the next move, step its visit, recall or perform the effects that the visit awaits.

This is the kernel's only loop. It steps a visit with `coroutine.send`, not with asyncio, and rejects everything that
is not an effect, so every visit can be re-executed from its record. Buffered events are flushed before every effect
that changes something and whenever the run stops.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from reyn.errors import ForeignAwait, InternalError, ReynError
from reyn.journal import Blob, Body, kinds
from reyn.kernel.core.child_effects import StartChildren, SubRunsAwaited
from reyn.kernel.core.effects import (
    EXPIRED,
    UNKNOWN_OUTCOME,
    Ask,
    Effect,
    Pause,
    Permit,
    Restore,
    TurnInterrupted,
    decode_answer,
)
from reyn.kernel.core.errors_of_nodes import HandleError, NodeFailed, failure_in_visit
from reyn.kernel.core.run_orchestrator import Postprocess, Visit, next_move, stop_for
from reyn.kernel.core.tape import RecordingEnded, Tape
from reyn.permissions.gate import ProjectMissing

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.kernel.core.snapshot import RunState
    from reyn.skills import Skill

    ProgramCompiler = Callable[[kinds.RunStarted], "Program"]


class Program(Protocol):
    """A compiled skill, whose visits the driver executes."""

    @property
    def skill(self) -> Skill: ...

    @property
    def settings(self) -> RunSettings: ...

    def begin(self, move: Visit | Postprocess | HandleError, tape: Tape) -> Coroutine[Effect[Any], Any, None]:
        """Return the coroutine of a visit, of the postprocessor, or of the way to the handler of an error."""
        ...


class World(Protocol):
    """Everything outside a run."""

    async def perform(self, effect: Effect[Any], tape: Tape) -> tuple[Body, tuple[Blob, ...]] | None:
        """Perform an effect.

        Returns:
            The event that records the outcome, with the content it refers to; `None` if the effect was abandoned
            because the run was cancelled.
        """
        ...

    def now(self) -> int: ...

    def external_events(self, state: RunState) -> list[tuple[Body, tuple[Blob, ...]]]:
        """Return the events that reached the run from outside since the last call: a resumption, inbox messages."""
        ...

    async def wait_for_answer(self, wait: kinds.Question, state: RunState) -> bool:
        """Ask the user, and return whether a message arrived or the question expired; False if there is no reply
        now."""
        ...

    async def start(self, effect: StartChildren, tape: Tape) -> None:
        """Start sub-runs without awaiting them."""
        ...

    async def flush(self, tape: Tape) -> None:
        """Make the buffered events of the tape durable."""
        ...

    async def commit_intent(self, effect: Effect[Any], tape: Tape) -> None:
        """Make the buffered events durable, together with what the effect reserves."""
        ...

    async def settle(self, *, is_finishing: bool = False) -> None:
        """End work that was started ahead of the visit and is no longer awaited; let it finish if possible."""
        ...


class _Stopped(Exception):
    """Unwinds the visit in progress: the run has stopped, or the recording has ended."""


class Driver:
    """Executes one run. Without a world it only recalls, which is a replay that ends where the recording does."""

    def __init__(self, tape: Tape, compile_skill: ProgramCompiler, world: World | None) -> None:
        self.tape = tape
        self._compile_skill = compile_skill
        self._started: kinds.RunStarted | None = None
        self._skill: Program | None = None
        self.world = world

    async def execute(self) -> RunState:
        """Execute the run until it ends or stops."""
        try:
            state = await self._execute()
            if self.world is not None:
                await self.world.settle(is_finishing=state.status in ("waiting", "limited"))
            return state
        finally:
            if self.world is not None:
                await self.world.settle()

    async def _execute(self) -> RunState:
        try:
            self._take_external_events()
            if self.world is not None and self.tape.state.queue:
                await self.world.flush(self.tape)  # a worker that dies at once has recorded that it took the run
            while True:
                self.tape.take_external()
                if self.tape.state.status != "running":
                    self._take_external_events()
                    self._ensure_running()
                await self._step()
        except (_Stopped, RecordingEnded):
            pass
        except SubRunsAwaited as awaited:
            if self.world is not None:
                self.tape.record(kinds.RunSuspended(awaited.runs), self.world.now())
        except ReynError:
            raise
        except ProjectMissing:  # another worker continues here
            if self.world is not None:
                await self.world.flush(self.tape)
            raise
        except Exception as error:  # noqa: BLE001 - recorded, and raised again as an InternalError
            await self._record_internal_error(error)
        if self.world is not None:
            await self.world.flush(self.tape)
        return self.tape.state

    async def _record_internal_error(self, error: Exception) -> None:
        """Flush the buffered events, including a paid answer, and record why the run stopped."""
        reason = f"internal error: {type(error).__name__}: {error}"
        if self.world is not None and self.tape.upcoming is None:
            self.tape.record(kinds.RunBroken(InternalError.code, reason), self.world.now())
            await self.world.flush(self.tape)
        raise InternalError(reason) from error

    async def _step(self) -> None:
        tape, skill = self.tape, self._compiled_skill()
        move = next_move(tape.state, skill.skill, skill.settings)
        if isinstance(move, Visit | Postprocess | HandleError):
            tape.drop_content()
            await self._advance(skill.begin(move, tape))
        else:
            tape.emit(move)

    def _compiled_skill(self) -> Program:
        """Return the compiled skill of the run. A resume or a fork may replace it."""
        started = self.tape.state.started
        if self._skill is None or started is not self._started:
            self._started, self._skill = started, self._compile_skill(started)
        return self._skill

    async def _advance(self, coroutine: Coroutine[Effect[Any], Any, None]) -> None:
        """Step a coroutine through its effects to its end."""
        effect: Any = None
        try:
            effect = coroutine.send(None)
            while True:
                if not isinstance(effect, Effect):
                    raise ForeignAwait(f"a visit awaited {effect!r}, which is not an effect")
                try:
                    result = await (self._ask(effect) if isinstance(effect, Ask) else self._resolve(effect))
                except (TurnInterrupted, NodeFailed) as interruption:
                    if self.world is not None and isinstance(interruption, TurnInterrupted):
                        await self.world.settle()  # what was started ahead
                    effect = coroutine.throw(interruption)
                else:
                    effect = coroutine.send(result)
        except StopIteration:
            return
        finally:
            coroutine.close()

    async def _resolve(self, effect: Effect[Any]) -> Any:
        """Return the result of an effect. A failure stops the run; when the run is resumed, the effect is retried."""
        tape = self.tape
        if isinstance(effect, Pause) and effect.stop is not None:
            self._stop(effect.stop, effect.key)
        while True:
            self._take_external_events()
            if tape.state.status != "running":
                self._ensure_running()
            self._check_abort(effect)
            if isinstance(effect, Pause):
                return None
            if isinstance(effect, StartChildren):
                if self.world is not None and tape.upcoming is None:
                    await self.world.start(effect, tape)
                return None
            if isinstance(effect, Permit):
                return await self._permit(effect)
            recovery = tape.state.recovery
            if effect.is_unsafe and effect.key in recovery.unknown_outcomes:
                return UNKNOWN_OUTCOME
            if recovery.children and effect.continues_child and any(map(effect.ends_with, recovery.children)):
                return UNKNOWN_OUTCOME
            outcome: Body | None = tape.early.pop(effect.key) if effect.key in tape.early else None
            if outcome is None:
                outcome = tape.recall(effect) if tape.upcoming is not None else await self._perform(effect)
            if outcome is None:
                continue
            if isinstance(outcome, effect.outcomes):
                return effect.result(outcome, tape.content)
            self._stop(stop_for(outcome, tape.state), outcome.call)  # type: ignore[attr-defined]  # outcomes have it

    def _stop(self, stop: Body, call: str) -> None:
        """Stop the run, unless the node of the visit handles the error."""
        if (failed := failure_in_visit(stop, self.tape.state, self._compiled_skill().skill, call)) is not None:
            raise failed
        self.tape.emit(stop)

    async def _permit(self, effect: Permit) -> Body | None:
        """Return the denial or the question that is recorded for a step; the world decides at the end of the tape."""
        if self.tape.upcoming is None:
            return await self._perform(effect)
        return self.tape.recall(effect) if self.tape.has_outcome(effect) else None

    async def _perform(self, effect: Effect[Any]) -> Body | None:
        """Perform an effect and record its outcome; `None` if it was abandoned because of a message to the run."""
        if self.world is None:
            raise _Stopped
        if effect.needs_intent:
            await self.world.commit_intent(effect, self.tape)
        performed = await self.world.perform(effect, self.tape)
        if performed is None:
            return None
        outcome, blobs = performed
        self.tape.record(outcome, self.world.now(), *blobs)
        return outcome

    async def _ask(self, effect: Ask) -> Any:
        """Return the reply to an open question; stop the run if there is none yet."""
        while True:
            self._take_external_events()
            self._check_abort(effect)
            last_answer, wait = self.tape.state.last_answer, self.tape.state.wait
            if last_answer is not None and last_answer.wait == effect.key:
                self._ensure_running()
                return decode_answer(last_answer, self.tape.content)
            if self.tape.state.expired == effect.key:
                self._ensure_running()
                return EXPIRED
            if wait is None:
                self._ensure_running()
                if effect.is_message and self.tape.state.inbox.queued:
                    return None
            self.tape.ensure_at_end(f"an answer to `{effect.key}`")
            if self.world is None or wait is None:
                raise _Stopped
            if wait.expires_at is not None and wait.is_expired(self.world.now()):
                self.tape.record(kinds.WaitExpired(wait.id), self.world.now())
                continue
            is_new = any(event.kind == kinds.WaitOpened.kind for event in self.tape.pending)
            await self.world.flush(self.tape)
            if effect.is_deferred and is_new:
                raise _Stopped
            if not await self.world.wait_for_answer(wait, self.tape.state):
                raise _Stopped

    def _check_abort(self, effect: Effect[Any]) -> None:
        """Interrupt the visit if its turn was aborted. Files are restored in any case."""
        if self.tape.state.aborted is not None and not isinstance(effect, Restore):
            raise TurnInterrupted

    def _take_external_events(self) -> None:
        """Take events from outside the run: recorded ones first, then new ones from the world."""
        tape = self.tape
        if tape.upcoming is not None:
            tape.take_external()
        if self.world is not None and tape.upcoming is None:
            for body, blobs in self.world.external_events(tape.state):
                tape.record(body, self.world.now(), *blobs)

    def _ensure_running(self) -> None:
        """Unwind unless the run is running; a stopped run continues only if the recording continues it."""
        while self.tape.state.status != "running":
            if not self.tape.take_external():
                raise _Stopped
