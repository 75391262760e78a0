"""Deliver an agent's message to the conversation of another agent, and await the reply.

The conversation is a child of the run that asks, with the rights of its own agent: it draws on the budgets of the runs
above it, and stops where it waits for the next message. States are those of a task in the A2A protocol.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from reyn.errors import ChainTooDeep, ReynError, RunBusy
from reyn.journal import ENDED, AbortTurn, Blob, Cancel, canonical, kinds
from reyn.journal.family import descendants
from reyn.kernel.core.conversations import AgentThread
from reyn.kernel.core.limits import SECOND
from reyn.kernel.core.run_state import EMPTY, fold
from reyn.kernel.runtime_types import LATER
from reyn.kernel.world.children import MAX_DEPTH, ChildSpec, depth_below
from reyn.kernel.world.loading import first_event, load_state, pin_model, pin_ops, pin_run
from reyn.ops.op import MessageOutcome
from reyn.skills import USER_MESSAGE
from reyn.skills.agents import PREFIX, agent_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from reyn.journal import Journal, RunRow
    from reyn.kernel.core.effects import DeliverMessage, EventWithBlobs, PlanMessage
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.runtime_types import People
    from reyn.kernel.world.children import ChildEnd, Children
    from reyn.kernel.world.inbox import InboxPolling
    from reyn.kernel.world.services import History

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
    """Carries the messages of one run to other agents."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._services = children.services

    # -- planning ---------------------------------------------------------------------------------------

    def plan(self, effect: PlanMessage, tape: Tape) -> EventWithBlobs:
        """Find the agent and the conversation of a message. An error becomes the outcome of the message."""
        call, agent, state, services = effect.key, effect.agent, tape.state, self._services
        opened = f"{tape.run_id}.{call}"
        try:
            depth = self._next_depth(tape.started)
            skill = services.agent_skill(agent)
            thread = state.threads.get(agent)
            if thread is not None and self._continues(thread, tape):
                return kinds.AgentAsked(call, agent, thread.run, effect.text, depth), ()
            history, blobs = self._history(thread) if thread is not None else ((), ())
        except ReynError as error:
            problem = f"{error.code}: {error.message}"
            return kinds.AgentAsked(call, agent, opened, effect.text, problem=problem), ()
        message = {"type": USER_MESSAGE.name, "data": {"text": tape.content(effect.text).decode()}}
        copies = pin_run(skill, Blob.of(canonical(message)), pin_ops(skill, services.ops.vocabulary))
        asked = kinds.AgentAsked(
            call, agent, opened, effect.text, depth, copies.skill_hash, copies.ops, copies.input, history
        )
        return asked, (*copies.blobs, *blobs)

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
        if depth_below(started) > MAX_DEPTH:
            raise ChainTooDeep(f"sub-runs are nested deeper than {MAX_DEPTH} levels")
        return depth

    def _continues(self, thread: AgentThread, tape: Tape) -> bool:
        """Return whether the next message continues a conversation.

        One that failed, stopped or ended is not continued, and a fork does not write to those of its origin.
        """
        is_own = thread.run.startswith(f"{tape.run_id}.")
        return thread.is_open and is_own and self._services.journal.find(thread.run) is not None

    def _history(self, thread: AgentThread) -> History:
        """Return the messages of a conversation up to its last reply, as the history of a new one."""
        journal = self._services.journal
        state = fold(islice(journal.read(thread.run), thread.seq))
        found = state.conversations.get(state.phase)
        if found is None or found.visit:
            return (), ()
        return self._services.store_history(found.rendered(journal.blob))

    # -- delivering -------------------------------------------------------------------------------------

    async def deliver(self, effect: DeliverMessage, tape: Tape) -> EventWithBlobs:
        """Deliver a message once and await the reply; record what the conversation used meanwhile."""
        asked = effect.asked
        if asked.problem:
            return kinds.AgentReplied(asked.call, asked.agent, "", "rejected", error=asked.problem), ()
        try:
            with self._services.journal.claim(asked.run):
                outcome = await self._exchange(asked, tape)
        except RunBusy:
            outcome = MessageOutcome(
                asked.run, "failed", error=f"the conversation `{asked.run}` is open in another process"
            )
        except ReynError as failure:
            outcome = MessageOutcome(asked.run, "failed", error=f"{failure.code}: {failure.message}")
        return self._replied(outcome, asked, tape)

    def _spec(self, asked: kinds.AgentAsked, tape: Tape) -> ChildSpec:
        """Return how the conversation of a message runs: within what its own agent may use, too."""
        services = self._services
        agent, state = services.agents.load(asked.agent), load_state(services.journal, asked.run)
        is_new = state is EMPTY
        recorded = tape.state if is_new else state
        settings = self._children.settings_left(tape)
        # What the conversation has used so far does not count again.
        tokens, seconds = settings.limits.tokens, settings.limits.run_seconds
        tokens = None if tokens is None else tokens + state.models.usage.total
        seconds = None if seconds is None else seconds + state.active // SECOND
        tokens = min((cap for cap in (tokens, agent.budget.tokens) if cap is not None), default=None)
        return ChildSpec(
            replace(settings, limits=replace(settings.limits, tokens=tokens, run_seconds=seconds)),
            pin_model(services.roster, services.roster.ready(agent.model if is_new else None, recorded.models.name)),
            rights="own",
            people=_NoUser(services.people),
            history=(asked.history, ()),
            ask=kinds.AskRef(
                tape.run_id, asked.call, agent_of(tape.started.skill), asked.depth, tape.state.total_answers
            ),
            text=tape.content(asked.text).decode(),
        )

    async def _exchange(self, asked: kinds.AgentAsked, tape: Tape) -> MessageOutcome:
        run, spec = asked.run, self._spec(asked, tape)
        intent = kinds.SubRunStarted(
            asked.call, f"{PREFIX}{asked.agent}", run, asked.skill_hash, asked.input, ops=asked.ops
        )
        end, is_late = await self._in_time(self._children.drive(intent, spec, tape), run)
        state = end.state
        if state.status == "waiting" and state.wait is not None and not state.wait.is_message:
            question = state.wait
            self._abort(run, f"its question was not answered: {question.message.partition(chr(10))[0]}")
            await self._children.drive(intent, spec, tape)
            text = f"it asks a question that only a person can answer: {question.message}"
            return MessageOutcome(run, "auth-required" if question.is_approval else "input-required", error=text)
        outcome = self._outcome(spec, state)
        if is_late and outcome.state != "completed":
            late = f"no reply within {self._services.config.agents.reply_seconds} seconds (`agents.reply_seconds`)"
            return MessageOutcome(run, "canceled", error=late, timed_out=True)
        return outcome

    async def _in_time(self, work: Coroutine[object, object, ChildEnd], run: str) -> tuple[ChildEnd, bool]:
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
            return task.result(), polls > 0
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

    def _outcome(self, spec: ChildSpec, state: RunState) -> MessageOutcome:
        """Return what became of a message, from the state of the conversation."""
        received, run = state.received, state.run_id
        if received is not None and spec.ask is not None and received.ask.key == spec.ask.key:
            if received.state == "completed" and received.reply is not None:
                artifact = msgspec.json.decode(self._services.journal.blob(received.reply.hash))
                return MessageOutcome(run, "completed", str(artifact["data"].get("text", "")))
            if received.state == "canceled":
                return MessageOutcome(run, "canceled", error=f"the turn was aborted: {received.reason}")
        reason = f"the conversation is {state.status}: {state.reason or 'no reason was recorded'}"
        return MessageOutcome(run, "canceled" if state.status == "cancelled" else "failed", error=reason)

    def _replied(self, outcome: MessageOutcome, asked: kinds.AgentAsked, tape: Tape) -> EventWithBlobs:
        """Return the event of an outcome, with what the conversation has used since the last message to it."""
        reply = Blob.of(outcome.reply.encode()) if outcome.state == "completed" else None
        body = kinds.AgentReplied(
            asked.call,
            asked.agent,
            asked.run,
            outcome.state,
            reply.hash if reply is not None else None,
            outcome.error,
            outcome.timed_out,
        )
        blobs = (reply,) if reply is not None else ()
        row = self._services.journal.find(asked.run)
        if row is None:  # it could not be opened
            return body, blobs
        state = load_state(self._services.journal, asked.run)
        counted = tape.state.threads.get(asked.agent)
        if counted is None or counted.run != asked.run:
            counted = AgentThread(asked.run)
        used = state.charge - counted.charge
        body = replace(
            body,
            usage=state.models.usage - counted.usage,
            answers=max(0, state.models.answers - counted.answers),
            charge=used if used.calls else None,
            active=max(0, state.active - counted.active),
            seq=row.seq,
            head=row.hash,
            open=state.status == "waiting" and state.wait is not None and state.wait.is_message,
        )
        return body, blobs


def abort_turns(journal: Journal, polling: InboxPolling, rows: Iterable[RunRow], reason: str) -> None:
    """Abort the turn in progress of each conversation that an agent opened, and cancel the other runs."""
    for row in rows:
        if row.status in ENDED:
            continue
        started = first_event(journal, row.run_id)
        is_conversation = started is not None and started.ask is not None
        if is_conversation and row.wait is not None and row.wait.is_message:
            continue
        journal.post(row.run_id, AbortTurn(reason) if is_conversation else Cancel(reason))
        polling.notify(row.run_id)
