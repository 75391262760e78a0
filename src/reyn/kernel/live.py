"""The world of one live run: its model, its files, its sub-runs, its people, its clock, what is said to it, and where
its events go."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reyn.errors import InternalError
from reyn.journal import Answer, Blob, Cancel, RaiseLimit, canonical, check_json, kinds
from reyn.jsonschema import compile_schema
from reyn.kernel import versions
from reyn.kernel.effects import CallModel, ExecuteSubRun, PerformOp, PlanOp, PlanSubRun, Restore
from reyn.kernel.llm_call_recorder import LlmCallRecorder
from reyn.kernel.ports import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.journal import Body, Event, Journal, Message
    from reyn.kernel.commits import SharedCommits
    from reyn.kernel.effects import Effect
    from reyn.kernel.loading import Resumption
    from reyn.kernel.op_performer import OpPerformer
    from reyn.kernel.ports import Clock, People
    from reyn.kernel.run_state import RunState
    from reyn.kernel.sub_runs import SubRuns
    from reyn.kernel.tape import Tape
    from reyn.models.roster import Roster

    Listener = Callable[[Event], None]
    Recorded = tuple[Body, tuple[Blob, ...]]

_LISTEN_SECONDS = 0.05
_CANCEL_SECONDS = 0.25
_MOST_FAULTS = 3
"""How often somebody may give an answer that does not fit before the run stops and waits."""


class LiveWorld:
    def __init__(
        self,
        journal: Journal,
        commits: SharedCommits,
        model: str,
        roster: Roster,
        clock: Clock,
        ops: OpPerformer,
        sub_runs: SubRuns,
        people: People,
        *,
        resumption: Resumption | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._journal = journal
        self._commits = commits
        self._model = model
        self._recorder = LlmCallRecorder(roster, getattr(listener, "hear", None))
        self._clock = clock
        self._ops = ops
        self._sub_runs = sub_runs
        self._people = people
        self._resumption = resumption
        self._listener = listener
        self.warnings = self._recorder.warnings
        self._faults = 0

    async def perform(self, effect: Effect[Any], tape: Tape) -> Recorded | None:
        match effect:
            case CallModel():
                return await self._ask(effect, tape)
            case PlanOp():
                return self._ops.plan(effect, tape)
            case PerformOp():
                return await self._ops.perform(effect, tape)
            case Restore():
                return self._ops.restore(effect, tape)
            case PlanSubRun():
                return self._sub_runs.plan(effect, tape)
            case ExecuteSubRun():
                return await self._sub_runs.execute(effect, tape)
        raise InternalError(f"nobody performs {type(effect).__name__}")

    async def _ask(self, effect: CallModel, tape: Tape) -> Recorded | None:
        """Ask the model. One that takes its time is left alone as soon as the run is cancelled."""

        async def tell(body: Body) -> None:
            tape.record(body, self.now())
            landing = asyncio.ensure_future(self.flush(tape))
            try:
                await asyncio.shield(landing)
            except asyncio.CancelledError:
                await asyncio.wait([landing])  # what is on its way to the disk is known to have landed
                raise

        asking = self._recorder.perform(effect, tape, tell)
        if not self._recorder.may_take_time(effect, tape.state):
            return await asking
        task = asyncio.ensure_future(asking)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_CANCEL_SECONDS)
                if not task.done() and self._is_cancelled(tape.state):
                    return None
            return task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    def _is_cancelled(self, state: RunState) -> bool:
        said = self._journal.drain(state.run_id, state.messages_taken)
        return any(isinstance(message.said, Cancel) for message in said)

    def now(self) -> int:
        return self._clock.now()

    # -- what is said to the run ----------------------------------------------------------------------

    def outside(self, state: RunState) -> list[Recorded]:
        said: list[Recorded] = []
        if self._resumption is not None:
            resumption, self._resumption = self._resumption, None
            said.append(self._resumed(resumption, state))
        return said + heard(self._journal.drain(state.run_id, state.messages_taken), state.wait)

    def _resumed(self, resumption: Resumption, state: RunState) -> Recorded:
        model, pinned = self._model, resumption.pinned
        return kinds.RunResumed(
            resumption.driver,
            state.recovery.open_intent,
            resumption.retry,
            model if resumption.is_other_model or model != state.models.name else None,
            resumption.skill,
            pinned.hash if pinned else None,
            None if state.wording == versions.WORDING else versions.WORDING,
            resumption.ops.hash if resumption.ops else None,
        ), tuple(blob for blob in (pinned, resumption.ops) if blob)

    async def hear(self, wait: kinds.Wait, state: RunState) -> bool:
        """Ask whoever is here, and listen to the inbox meanwhile: the first to answer is heard."""
        asking = asyncio.ensure_future(self._people.ask(state.run_id, wait))
        try:
            while True:
                await asyncio.wait([asking], timeout=_LISTEN_SECONDS)
                if self._journal.drain(state.run_id, state.messages_taken):
                    return True
                if asking.done():
                    return self._heard(asking, wait, state)
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await asking

    def _heard(self, asking: asyncio.Future[Any], wait: kinds.Wait, state: RunState) -> bool:
        error = asking.exception()
        if error is not None:
            self.warnings.append(f"nobody could be asked: {type(error).__name__}: {error}")
        if error is not None or isinstance(asking.result(), Later):
            return False
        fault = answer_fault(wait, wait.id, asking.result())
        if not fault:
            self._journal.post(state.run_id, Answer(wait.id, asking.result()))
            return True
        self._faults += 1
        self.warnings.append(f"an answer to `{wait.id}` was not taken: {fault}")
        return self._faults < _MOST_FAULTS

    # -- where events go ------------------------------------------------------------------------------

    async def flush(self, tape: Tape) -> None:
        """Only what is durable is shown; whoever looks on cannot break the run."""
        for event in await tape.flush(self._commits.append):
            self.show(event)

    def show(self, event: Event) -> None:
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception as error:  # noqa: BLE001 - somebody else's code
            self._listener = None
            self.warnings.append(f"the listener broke at event {event.seq} and was left out: {error!r}")


def heard(messages: Sequence[Message], wait: kinds.Wait | None) -> list[Recorded]:
    """What was said to a run, as the events that record its hearing. The first answer counts; after a cancel, nothing
    does. A question of a sub-run is answered there."""
    said: list[Recorded] = []
    wait = wait if wait is not None and wait.run is None else None
    is_cancelled = False
    for message in messages:
        if is_cancelled:
            said.append((kinds.MessageRefused(message.id, type(message.said).__name__, "the run is cancelled"), ()))
            continue
        body, blobs = to_event(message, wait)
        said.append((body, blobs))
        is_cancelled = isinstance(body, kinds.RunCancelled)
        wait = None if isinstance(body, kinds.WaitAnswered) else wait
    return said


def to_event(message: Message, wait: kinds.Wait | None) -> Recorded:
    """Something that was said to a run, as the event that records its hearing."""
    match message.said:
        case Cancel(reason):
            return kinds.RunCancelled(reason, message.id), ()
        case RaiseLimit(limit, value):
            return kinds.LimitRaised(limit, value, message.id), ()
        case Answer(asked, value):
            why = answer_fault(wait, asked, value)
            if why:
                return kinds.MessageRefused(message.id, "answer", why), ()
            content = Blob.of(canonical(value))
            return kinds.WaitAnswered(asked, content.hash, message.id), (content,)


def answer_fault(wait: kinds.Wait | None, asked: str, value: Any) -> str:
    """Why an answer cannot be taken; empty if it can."""
    if wait is None or wait.id != asked:
        return f"no question `{asked}` is open"
    try:
        check_json(value)
    except ValueError as error:
        return f"the answer is not JSON: {error}"
    wrong = compile_schema(wait.response_schema).first_error(value)
    return f"the answer does not fit the question: {wrong.path('answer')} {wrong.message}" if wrong else ""
