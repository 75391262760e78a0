"""Deliver an agent's message to the conversation of another agent, and await the reply.

The conversation is a child of the run that asks, with the rights of its own agent: it draws on the budgets of the runs
above it, and stops where it waits for the next message. States are those of a task in the A2A protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.errors import ChainTooDeep, ReynError, RunBusy
from reyn.journal import ENDED, AbortTurn, Blob, Cancel, Journal, RunRow, canonical, kinds
from reyn.journal.family import descendants, has_child
from reyn.journal.submission import post_message
from reyn.journal.summary import SECOND
from reyn.kernel.core.conversations import AgentThread
from reyn.kernel.core.run_state import EMPTY, fold
from reyn.kernel.runtime_types import LATER, People
from reyn.kernel.world.child_spec import ChildEnd, ChildSpec, charge_of, depth_below
from reyn.kernel.world.loading import first_event, load_state, pin_model, pin_ops, pin_run
from reyn.kernel.world.unsafe_ops import with_acted
from reyn.skills import USER_MESSAGE
from reyn.skills.agents import agent_of

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.child_effects import PlanChild
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.inbox import InboxPolling
    from reyn.kernel.world.services import Services, StoredHistory

    ChildExecution = Coroutine[object, object, ChildEnd]
    Drive = Callable[[kinds.ChildStarted, ChildSpec, Tape], ChildExecution]

_POLL_SECONDS = 0.1
"""Interval for comparing the clock with the time that a reply may take."""


class _NoUser:
    """The `people` of a conversation that another agent opened: no user types the next message.

    Its other questions reach the user of the run that asks.
    """

    def __init__(self, people: People) -> None:
        self._people = people

    async def ask(self, run_id: str, question: kinds.Question) -> Any:
        return LATER if question.is_message else await self._people.ask(run_id, question)


class AgentMessages:
    """Plans the messages of a run to other agents, and awaits their replies."""

    def __init__(self, services: Services) -> None:
        self._services = services

    # -- planning ---------------------------------------------------------------------------------------

    def plan(self, effect: PlanChild, tape: Tape) -> EventWithBlobs:
        """Find the agent and the conversation of a message.

        Raises:
            ReynError: There is no such agent, or the message cannot be sent to it.
        """
        call, name, text, services = effect.key, effect.skill, effect.input, self._services
        depth, skill = self._next_depth(tape.started), services.agent_skill(agent_of(name))
        thread = tape.state.threads.get(name)
        if thread is not None and self._continues(thread, tape):
            return kinds.ChildStarted(call, "agent", name, thread.run, text=text, depth=depth), ()
        is_known = thread is not None and has_child(services.journal, tape.run_id, thread.run)
        history, blobs = self._history(thread) if thread is not None and is_known else ((), ())
        message = {"type": USER_MESSAGE.name, "data": {"text": tape.content(text).decode()}}
        copies = pin_run(skill, Blob.of(canonical(message)), pin_ops(skill, services.ops.vocabulary))
        return kinds.ChildStarted(
            call,
            "agent",
            name,
            f"{tape.run_id}.{call}",
            copies.skill_hash,
            copies.input,
            copies.ops,
            text=text,
            depth=depth,
            history=history,
        ), (*copies.blobs, *blobs)

    def _next_depth(self, started: kinds.RunStarted) -> int:
        """Return how many agents have asked one another, with the next message of a run.

        Raises:
            ChainTooDeep: They are too many.
        """
        highest = self._services.config.agents.max_depth
        ask, parent = started.ask, started.parent
        while ask is None and parent is not None:
            above = first_event(self._services.journal, parent.run)
            ask, parent = (above.ask, above.parent) if above is not None else (None, None)
        depth = (ask.depth if ask is not None else 0) + 1
        if depth > highest:
            raise ChainTooDeep(
                f"agents may ask one another up to {highest} deep (`agents.max_depth`), "
                f"and this message would be number {depth}"
            )
        depth_below(started)
        return depth

    def _continues(self, thread: AgentThread, tape: Tape) -> bool:
        """Return whether the next message continues a conversation.

        One that failed, stopped or ended is not continued, and a fork does not write to those of its origin.
        """
        is_own = thread.run.startswith(f"{tape.run_id}.")
        return thread.is_open and is_own and self._services.journal.find(thread.run) is not None

    def _history(self, thread: AgentThread) -> StoredHistory:
        """Return the messages of a conversation up to its last reply, as the history of a new one."""
        journal = self._services.journal
        state = fold(islice(journal.read(thread.run), thread.seq))
        found = state.current_transcript
        if found is None or found.visit:
            return (), ()
        return self._services.store_history(found.rendered(journal.blob))

    # -- delivering -------------------------------------------------------------------------------------

    async def deliver(
        self, intent: kinds.ChildStarted, tape: Tape, settings: RunSettings, drive: Drive
    ) -> EventWithBlobs:
        """Deliver a message once and await the reply; record what the conversation used meanwhile.

        Args:
            intent: The message.
            tape: The tape of the run that sends it.
            settings: The settings of a child of that run.
            drive: Executes the conversation.
        """
        try:
            with self._services.journal.claim(intent.run):
                spec = self._spec(intent, tape, settings)
                reply = await self._exchange(intent.run, spec, partial(drive, intent, spec, tape))
        except RunBusy:
            reply = _Reply("failed", f"the conversation `{intent.run}` is open elsewhere")
        except ReynError as failure:
            reply = _Reply("failed", f"{failure.code}: {failure.message}")
        return self._ended(intent, reply, tape), ()

    def _spec(self, intent: kinds.ChildStarted, tape: Tape, settings: RunSettings) -> ChildSpec:
        """Return how the conversation of a message runs: within what its own agent may use, too."""
        services, name = self._services, agent_of(intent.skill)
        agent, state = services.agents.load(name), load_state(services.journal, intent.run)
        is_new = state is EMPTY
        recorded = tape.state if is_new else state
        # What the conversation has used so far does not count again.
        tokens, seconds = settings.limits.tokens, settings.limits.run_seconds
        tokens = None if tokens is None else tokens + state.usage.total
        seconds = None if seconds is None else seconds + state.active // SECOND
        tokens = min((cap for cap in (tokens, agent.budget.tokens) if cap is not None), default=None)
        asks = agent_of(tape.started.skill)
        named = services.roster.project_name(agent.model) if is_new else None
        return ChildSpec(
            replace(settings, limits=replace(settings.limits, tokens=tokens, run_seconds=seconds)),
            pin_model(services.roster, services.roster.ready(named, recorded.models.name)),
            rights="own",
            people=_NoUser(services.people),
            history=(intent.history, ()),
            ask=kinds.AskRef(tape.run_id, intent.call, asks, intent.depth, tape.state.total_answers),
            text=tape.content(intent.text or "").decode(),
        )

    async def _exchange(self, run: str, spec: ChildSpec, drive: Callable[[], ChildExecution]) -> _Reply:
        """Execute a conversation until it has replied. A question that only a person can answer ends its turn."""
        state, is_late = await self._in_time(drive(), run)
        if state.status == "waiting" and state.wait is not None and not state.wait.is_message:
            question = state.wait
            self._abort(run, f"its question was not answered: {question.message.partition(chr(10))[0]}")
            await drive()
            text = f"it asks a question that only a person can answer: {question.message}"
            return _Reply("auth-required" if question.is_approval else "input-required", text)
        reply = _reply(spec, state)
        if is_late and reply.state != "completed":
            late = f"no reply within {self._services.config.agents.reply_seconds} seconds (`agents.reply_seconds`)"
            return _Reply("canceled", late, timed_out=True)
        return reply

    async def _in_time(self, work: ChildExecution, run: str) -> tuple[RunState, bool]:
        """Execute a conversation; abort its turn when the time of a reply is over. Returns whether that happened."""
        clock, task = self._services.clock, asyncio.ensure_future(work)
        end = clock.now() + self._services.config.agents.reply_seconds * SECOND
        polls, next_abort = 0, 0
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_POLL_SECONDS)
                if task.done() or clock.now() < end:
                    continue
                if polls >= next_abort:  # a request between two turns has no effect, so it is repeated
                    self._abort(run, "the reply took too long")
                    next_abort = 2 * polls + 10
                polls += 1
            return task.result().state, polls > 0
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def _abort(self, run: str, reason: str) -> None:
        """Abort the turn in progress of a conversation and of those that its agent opened, and cancel its skills."""
        journal = self._services.journal
        row = journal.find(run)
        if row is not None:
            abort_turns(journal, self._services.polling, [row, *descendants(journal, run)], reason)

    def _ended(self, intent: kinds.ChildStarted, reply: _Reply, tape: Tape) -> kinds.ChildEnded:
        """Return the event of a reply, with what the conversation has used since the last message to it."""
        body = kinds.ChildEnded(intent.call, "agent", intent.skill, intent.run, *reply)
        row = self._services.journal.find(intent.run)
        if row is None:  # it could not be opened
            return body
        state = load_state(self._services.journal, intent.run)
        counted = tape.state.threads.get(intent.skill)
        if counted is None or counted.run != intent.run:
            counted = AgentThread(intent.run)
        body = with_acted(body, self._services.journal, self._services.journal.read(intent.run, counted.seq))
        return replace(
            body,
            usage=state.usage - counted.usage,
            answers=max(0, state.models.answers - counted.answers),
            charge=charge_of(state.charge - counted.charge),
            active=max(0, state.active - counted.active),
            seq=row.seq,
            head=row.hash,
            open=state.status == "waiting" and state.wait is not None and state.wait.is_message,
        )


class _Reply(NamedTuple):
    """The outcome of a message: fields of `ChildEnded`."""

    state: kinds.TaskState
    error: str = ""
    artifact: kinds.ArtifactRef | None = None
    timed_out: bool = False


def _reply(spec: ChildSpec, state: RunState) -> _Reply:
    """Return the outcome of a message, from the state of the conversation."""
    received = state.received
    if received is not None and spec.ask is not None and received.ask.key == spec.ask.key:
        if received.state == "completed" and received.reply is not None:
            return _Reply("completed", artifact=received.reply)
        if received.state in ("canceled", "failed"):
            return _Reply(received.state, received.reason)
    reason = f"the conversation is {state.status}: {state.reason or 'no reason was recorded'}"
    return _Reply("canceled" if state.status == "cancelled" else "failed", reason)


def abort_turns(journal: Journal, polling: InboxPolling, rows: Iterable[RunRow], reason: str) -> None:
    """Abort the turn in progress of each conversation that an agent opened, and cancel the other runs."""
    for row in rows:
        if row.status in ENDED:
            continue
        started = first_event(journal, row.run_id)
        is_conversation = started is not None and started.ask is not None
        if is_conversation and row.wait is not None and row.wait.is_message:
            continue
        post_message(journal, row, AbortTurn(reason) if is_conversation else Cancel(reason))
        polling.notify(row.run_id)
