"""Implement `World` for a live run: perform effects, read the inbox, ask the user, make events durable.

The driver decides when each of these happens. Claims, and whether a stopped run continues, belong to `reyn.runtime`.
"""

from __future__ import annotations

import asyncio
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.context.budget_log import BUDGET_LOG
from reyn.context.token_counting import TokenCounting
from reyn.errors import BudgetExceeded, InternalError
from reyn.journal import ENDED, Body, Event, kinds
from reyn.journal.family import reply_to
from reyn.journal.spending import in_full
from reyn.kernel.core.child_effects import AwaitFirst, CancelChild, ExecuteChild, PlanChild, StartChildren
from reyn.kernel.core.driver import Driver
from reyn.kernel.core.effects import (
    MAX_TOGETHER,
    CallHooks,
    CallModel,
    CheckOutput,
    FitTokens,
    PerformOp,
    Permit,
    PlanOp,
    ReadOverviews,
    Restore,
)
from reyn.kernel.runtime_types import Later, NamedPeople, People
from reyn.kernel.world.allowance import STARTING, Allowance, count_of
from reyn.kernel.world.budgets import CallBudget, budgeted_run, flush_whole
from reyn.kernel.world.cancellation import Cancellation
from reyn.kernel.world.child_tasks import TasksAhead
from reyn.kernel.world.children import Children
from reyn.kernel.world.hooks import HookCaller
from reyn.kernel.world.inbox import answer_error, inbox_events, op_edit_error
from reyn.kernel.world.llm_call_recorder import LlmCallRecorder, PreparedCall
from reyn.kernel.world.loading import resumed_event
from reyn.kernel.world.run_scope import run_scope
from reyn.kernel.world.submitted_children import SubmittedChildren, are_submitted
from reyn.kernel.world.timers import wait_for_time

if TYPE_CHECKING:
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.effects import Effect
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.budgets import Above, BudgetedRun
    from reyn.kernel.world.child_spec import ChildSpec
    from reyn.kernel.world.loading import Resumption
    from reyn.kernel.world.services import Observers, Services

_WAIT_POLL_SECONDS = 0.05
"""Interval for reading the inbox while a user is asked."""
_ROOM_SECONDS = 0.05
"""Interval between attempts to begin a call while other calls may use the rest of the tokens."""
_UNBOUNDED_CALLS = 100
"""The model calls of a root run without a bound before the bound is looked for again: it can be set in mid-run."""
_MAX_INVALID_ANSWERS = 3
"""Number of invalid replies after which the run stops and waits."""
_BUDGET_APPLIED, _kind_of = kinds.ContextBudgetApplied.kind, attrgetter("kind")
_KEEP_AHEAD = (ExecuteChild, AwaitFirst, CancelChild, PlanChild, Permit)


class LiveWorld:
    """The world of one run. `warnings` collects messages for the caller that no event records."""

    def __init__(
        self,
        services: Services,
        model: str,
        observers: Observers,
        resumption: Resumption | None = None,
        above: Above = tuple,
        people: People | None = None,
    ) -> None:
        """Create the world of a run.

        Args:
            services: What performing effects needs.
            model: The model to call.
            observers: The callbacks of the caller.
            resumption: The options with which a recorded run continues.
            above: Returns the runs above a child, on whose budgets it draws.
            people: Who replies to the questions of the run; by default the people of the services.
        """
        self._services = services
        self._observers = observers
        self._journal = services.journal
        self._model = model
        self._roster = services.roster
        self._recorder = LlmCallRecorder(services.roster, services.watchers, self._journal, observers.on_delta)
        self._counting = TokenCounting(services.roster)
        self._ops = services.performer
        self._people = people or services.people
        self._polling = services.polling
        self._cancelled = Cancellation(self._journal, services.polling)
        self._above = above
        self.children = Children(services, self._execute_child)
        """The children of the run."""
        self._tasks = TasksAhead(self.children, services.commits, self.flush)
        self._was_suspended = resumption is not None and resumption.is_suspended
        self._completes_log = resumption is not None
        self._log_failure = ""
        self._resumption = resumption
        self._listener = observers.listener
        self.warnings = self._recorder.warnings
        self._invalid_answers = 0
        self._reads: int | None = None
        """The ops since the last commit, if that came before an op that only reads, and all of them only read."""
        self._planned: set[str] = set()
        """Children that were planned in this process."""
        self._count_at = 1
        """The model calls from which on a root run compares them with their bound: a quarter of what was left then."""
        self._call: tuple[PreparedCall, CallBudget | None] | None = None
        """The model call whose intent is durable, and its budget, if it has one."""

    @cached_property
    def _submitted(self) -> SubmittedChildren:
        """The branches of a submitted run."""
        return SubmittedChildren(self.children, self._tasks, was_suspended=self._was_suspended)

    async def execute(self, tape: Tape) -> RunState:
        """Execute the run until it ends or stops."""
        compile_skill = self._services.compile_skill
        try:
            return await Driver(tape, lambda started: compile_skill(started, tape.content), self).execute()
        finally:
            self._ops.forget(tape.run_id)

    async def _execute_child(
        self, tape: Tape, resumption: Resumption | None, parent: Tape, spec: ChildSpec
    ) -> RunState:
        """Execute a child until it ends or stops. It draws on the budgets of its parent and of the runs above."""
        services = self._services

        def above() -> tuple[BudgetedRun, ...]:
            settings = services.settings_of(parent.started, parent.content)
            return budgeted_run(parent.state, settings), *self._above()

        observers, model = self._observers._replace(check=spec.check), spec.model.name
        try:
            return await LiveWorld(services, model, observers, resumption, above, spec.people).execute(tape)
        finally:
            self._polling.notify(tape.run_id)
            self._polling.notify(parent.run_id)  # the message may be for the parent as well

    async def perform(self, effect: Effect[Any], tape: Tape) -> EventWithBlobs | None:
        if self._journal.is_remote:  # else no claim is ever lost
            self._journal.check_claim(tape.run_id)
        if (ahead := self._tasks.ahead) and not isinstance(effect, _KEEP_AHEAD):
            if effect.key in ahead:
                return await self._tasks.outcome(effect.key, tape)
            await self.settle()  # the iteration or the batch that started them has ended
        match effect:
            case CallModel():
                return await self._call_model(effect, tape)
            case CallHooks():
                return await self._cancelled.unless(
                    HookCaller(self._services.hooks, self._roster).perform(effect, tape), tape
                )
            case FitTokens(key, counter, model, work):
                return await self._cancelled.unless(self._counting.perform(key, counter, model, work), tape)
            case PlanOp():
                op = self._ops.op_of(effect, tape)
                may_act = op is None or op.is_foreign or op.is_preparable
                if may_act and len(tape.pending) != len(tape.state.recovery.open_intents):
                    # Whatever foreign code does, the answer that asked for it is durable. The starts of ops that are
                    # performed together share a commit.
                    await self.flush(tape)
                if op is not None and op.is_preparable:
                    return await self._cancelled.unless(self._ops.prepare_and_plan(effect, op, tape), tape)
                planned = self._ops.plan(effect, op, tape)
                body = planned[0]
                if isinstance(body, kinds.OpStarted) and isinstance(body.request, STARTING) and not effect.approved:
                    return self._allowance(tape).plan_within(planned, effect)
                return planned
            case PerformOp() if effect.ahead and not tape.state.recovery.unknown_outcomes:
                self._tasks.start_ops({one.key: self._perform_op(one, tape) for one in (effect, *effect.ahead)})
                return await self._tasks.outcome(effect.key, tape)
            case PerformOp():
                return await self._perform_op(effect, tape)
            case CheckOutput():
                return self._check_output(effect), ()
            case Restore():
                return self._ops.restore(effect, tape)
            case ReadOverviews():
                return self._ops.read_overviews(effect, tape)
            case Permit():
                return self._ops.permit(effect, tape)
            case PlanChild() | ExecuteChild() | AwaitFirst() | CancelChild():
                return await self._perform_child(effect, tape)
        raise InternalError(f"effect {type(effect).__name__} has no implementation")

    async def _perform_child(
        self, effect: PlanChild | ExecuteChild | AwaitFirst | CancelChild, tape: Tape
    ) -> EventWithBlobs:
        match effect:
            case PlanChild():
                if reached := self._allowance(tape).stop_before(effect, self._planned):
                    return reached, ()
                planned = self.children.plan(effect, tape)
                if isinstance(planned[0], kinds.ChildStarted):
                    self._planned.add(planned[0].run)
                return planned
            case AwaitFirst() if are_submitted(effect, tape):
                return await self._submitted.first(effect, tape)
            case ExecuteChild() if are_submitted(effect, tape):
                return await self._submitted.execute(effect, tape)
            case CancelChild() if tape.state.queue:
                return await self._submitted.cancel(effect, tape)
            case AwaitFirst() if self._may_overlap(tape):
                return await self._tasks.first(effect, tape)
            case CancelChild():
                return await self._tasks.cancel(effect, tape)
            case AwaitFirst():
                effect = ExecuteChild(effect.started[0].call, effect.started[0])
            case ExecuteChild() if not effect.needs_intent and self._may_overlap(tape):
                return await self._tasks.execute(effect, tape)
        if tape.pending:  # its intent
            await self.flush(tape)
        return await self.children.execute(effect, tape)

    async def _perform_op(self, effect: PerformOp, tape: Tape) -> EventWithBlobs | None:
        op = self._ops.op_of(effect, tape)
        if op is not None and not op.may_take_time:
            return await self._ops.perform(effect, op, tape)

        async def perform() -> EventWithBlobs | None:
            if self._polling.is_due(tape.run_id) and self._cancelled.is_requested(tape.state):
                return None  # asked for since the intent was recorded
            return await self._ops.perform(effect, op, tape, lambda: self.children.end_calls(scope))

        with run_scope(self._services, tape, effect, self._above) as scope:
            return await self._cancelled.unless(perform(), tape)

    def _allowance(self, tape: Tape) -> Allowance:
        settings = self._services.settings_of(tape.started, tape.content)
        return Allowance(tape.state, settings, self._above(), self._journal, self._services.message_counts)

    def _check_output(self, effect: CheckOutput) -> kinds.OutputChecked:
        if self._observers.check is None:
            return kinds.OutputChecked(effect.key, checked=False)
        path, error = self._observers.check(effect.data)
        return kinds.OutputChecked(effect.key, self._roster.scrub(error), path)

    async def start(self, effect: StartChildren, tape: Tape) -> None:
        if are_submitted(effect, tape):
            await self._submitted.start(effect.started, effect.concurrency, tape)
        elif self._may_overlap(tape):
            await self._tasks.start(effect.started, effect.concurrency, tape)

    def _may_overlap(self, tape: Tape) -> bool:
        """Return whether sub-runs execute at the same time.

        A model that takes no time gains nothing, and a scripted one gives its answers in order: those of the first
        sub-run, then those of the second, whatever the concurrency.
        """
        return self._roster.takes_time(tape.state.models.name)

    async def settle(self, *, is_finishing: bool = False) -> None:
        await self._tasks.settle(is_finishing=is_finishing)

    async def commit_intent(self, effect: Effect[Any], tape: Tape) -> None:
        """Make the intent of an effect durable; that of a model call together with the reservation of its budget."""
        if effect.key in self._tasks.ahead:  # its intent is durable
            return None
        only_reads = isinstance(effect, PerformOp) and self._only_reads(effect, tape)
        if only_reads and self._reads is not None and self._reads < MAX_TOGETHER:
            self._reads += 1
            return None
        self._reads = 0 if only_reads else None
        if not isinstance(effect, CallModel):
            return await self.flush(tape)
        prepared = self._recorder.prepare(effect, tape)
        budget, now = self._budget(prepared, tape), self.now()  # also without one, so that times do not depend on it
        self._call = (prepared, budget)
        if budget is None:
            return await self.flush(tape)
        budget.propose(prepared.first, now)
        try:
            await self.flush(tape)
        except BudgetExceeded:
            budget.withdraw()
            await self.flush(tape)

    def _budget(self, prepared: PreparedCall, tape: Tape) -> CallBudget | None:
        """Return the budget of a call; `None` if no cap covers it and its model answers at once."""
        services, started = self._services, tape.state.started
        compiled = services.compile_skill(started, tape.content)
        may_be_capped = compiled.has_budgets or services.budgets.has_caps or tape.state.raised or self._above()
        if not may_be_capped and not prepared.takes_time:
            return None
        key, settings = prepared.call.key, compiled.settings
        return CallBudget(services.budgets, self._journal, tape, settings, self._above, key, self.now, self.flush)

    def _only_reads(self, effect: PerformOp, tape: Tape) -> bool:
        """Return whether an op only reads, and at once, so that it can be executed again after a crash."""
        op = self._ops.op_of(effect, tape)
        return op is not None and not op.may_take_time and op.only_reads(effect.args)

    async def _call_model(self, effect: CallModel, tape: Tape) -> EventWithBlobs | None:
        """Call the model; return nothing if the run or the turn was cancelled before or during the call."""
        assert self._call is not None
        (prepared, budget), self._call = self._call, None
        if self._polling.is_due(tape.run_id) and self._cancelled.is_requested(tape.state):
            # A listener may have asked for the abort when it received the intent.
            if budget is not None:
                budget.release()
            return None
        state, counts, count = tape.state, self._services.message_counts, None
        needed = state.reserved.tokens if state.reserved is not None else 0
        answers = state.models.answers  # all of them: a person's reply begins a new count and may change the bound
        if state.conversations or state.started.parent is not None or answers >= self._count_at:
            count = count_of(state, self._services.settings_of(tape.started, tape.content), self._above())
            self._count_at = answers + _UNBOUNDED_CALLS
            if count is not None and count.calls_bound is not None:
                self._count_at = answers + (count.calls_bound - count.calls) // 4
        while count is not None and (begun := counts.begin(count, needed)) is not True:
            if begun is False:
                await asyncio.sleep(_ROOM_SECONDS)
            if begun is not False or self._cancelled.is_requested(state):
                if budget is not None:
                    budget.release()
                return (kinds.AllowanceReached(effect.key, *begun), ()) if begun else None

        async def record(body: Body) -> None:
            tape.record(body, self.now())
            await flush_whole(self.flush, tape)

        outcome: EventWithBlobs | None = None
        try:
            call = self._recorder.perform(prepared, tape, record, budget)
            if not prepared.takes_time:
                outcome = await call
            elif (outcome := await self._cancelled.unless(call, tape)) is None and budget is not None:
                budget.abandon()
            return outcome
        finally:
            if count is not None:
                usage = outcome[0].usage if outcome and isinstance(outcome[0], kinds.LlmResponded) else None
                counts.end(count, needed, usage.total if usage is not None else 0)

    def now(self) -> int:
        return self._services.clock.now()

    # -- messages to the run --------------------------------------------------------------------------

    def external_events(self, state: RunState) -> list[EventWithBlobs]:
        """Return the resumption of the run, if it was resumed, and the messages in its inbox.

        `InboxPolling` limits reads while the run is running. A resumed run, and one that stops or waits, always reads.
        """
        events: list[EventWithBlobs] = []
        if self._resumption is not None:
            resumption, self._resumption = self._resumption, None
            if state.status != "failed" or resumption.retry:  # what was recorded can lead to a failure: it is no retry
                events.append(resumed_event(resumption, state, self._roster, self._model, self._services.hook_names))
            if state.reserved is not None:  # the process that made the call died
                events.append((in_full(state.reserved), ()))
                state = replace(state, reserved=None)
        elif state.status == "running" and not self._polling.is_due(state.run_id):
            return events
        self._polling.skip(state.run_id)  # messages that are posted from now on make the next read due
        must_read = bool(events) or state.status != "running"  # a run that stops misses no message
        messages = (self._journal.drain if must_read else self._journal.peek)(state.run_id, state.messages_taken)
        if messages or (state.inbox.queued and state.status in ENDED):
            events += inbox_events(messages, state, self.now(), self._journal)
            if state.queue:
                self._submitted.abort([body for body, _ in events], state)
        return events

    async def wait_for_answer(self, wait: kinds.Question, state: RunState) -> bool:
        """Ask the user and poll the inbox meanwhile; return whether the run continues."""
        if wait.is_timer:
            return await wait_for_time(wait, state, self._services)
        asking = asyncio.ensure_future(self._people.ask(state.run_id, wait))
        try:
            while True:
                await asyncio.wait([asking], timeout=_WAIT_POLL_SECONDS)
                if self._journal.peek(state.run_id, state.messages_taken):
                    return True
                if asking.done():
                    return self._take_answer(asking, wait, state)
                if wait.expires_at is not None and wait.is_expired(self.now()):
                    return True
        finally:
            asking.cancel()
            # Awaiting it would also end the cancellation of the run itself, if that comes now.
            await asyncio.wait([asking])
            if not asking.cancelled():
                asking.exception()  # it is handled, or the reply came first

    def _take_answer(self, asking: asyncio.Future[Any], wait: kinds.Question, state: RunState) -> bool:
        error = asking.exception()
        if error is not None:
            self.warnings.append(f"the question could not be asked: {type(error).__name__}: {error}")
        if error is not None or isinstance(asking.result(), Later):
            return False
        answer = self._roster.scrub_value(asking.result())
        reason = answer_error(wait, wait.id, answer) or op_edit_error(self._journal, state.run_id, wait, answer)
        if not reason:
            by = self._people.name if isinstance(self._people, NamedPeople) else ""
            self._journal.post(state.run_id, reply_to(wait, answer, by))
            return True
        self._invalid_answers += 1
        self.warnings.append(f"an answer to `{wait.id}` was rejected: {reason}")
        return self._invalid_answers < _MAX_INVALID_ANSWERS

    # -- events ---------------------------------------------------------------------------------------

    async def flush(self, tape: Tape) -> None:
        """Make buffered events durable, then pass them to the listener."""
        commits, state = self._services.commits, tape.state
        events = await tape.flush(partial(self._submitted.append, state) if state.queue else commits.append)
        if (watchers := self._services.watchers).by_run:
            watchers.wake(tape.run_id, events)
        if self._listener is not None:
            for event in events:
                self.notify_listener(event)
        if self._completes_log:
            self._completes_log = False
            has_budgets = tape.state.has_handoffs
            failure = self._services.budget_log.complete(
                tape.run_id, self._journal.read(tape.run_id) if has_budgets else ()
            )
        elif _BUDGET_APPLIED in map(_kind_of, events):
            failure = self._services.budget_log.append(events)
        else:
            return
        if failure and failure != self._log_failure and tape.upcoming is None:
            self._log_failure = failure
            tape.record(kinds.ContextLogFailed(BUDGET_LOG, failure), self.now())
            await self.flush(tape)

    def notify_listener(self, event: Event) -> None:
        """Pass a durable event to the listener. A listener that raises is dropped with a warning."""
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception as error:  # noqa: BLE001 - listeners are foreign code
            self._listener = None
            self.warnings.append(f"the listener failed at event {event.seq} and was dropped: {error!r}")
