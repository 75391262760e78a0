"""Deliver an agent's message to the conversation of another agent, and await the reply. The in-process half of A2A.

Names and states are those of the A2A protocol: a message belongs to a *context*, which is a conversation, and is
answered by a *task*, which is one turn of it. Depth and the choice of the conversation belong to `chain_manager`; a
wire needs `send` and the values here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from reyn.chat.services.chain_manager import ChainManager, agent_of
from reyn.errors import ReynError, RunBusy, RunIdTaken
from reyn.journal import ENDED, Blob, Say, canonical, decode, kinds
from reyn.kernel.core.conversations import AgentThread
from reyn.kernel.core.limits import SECOND
from reyn.kernel.world.sub_runs import charge_of
from reyn.skills import USER_MESSAGE, pin

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from reyn.kernel.core.effects import DeliverMessage, EventWithBlobs, PlanMessage
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.runtime.agent_host import AgentHost

_POLL_SECONDS = 0.1
"""Interval for comparing the clock with the time that a reply may take."""


class Message(msgspec.Struct, frozen=True):
    """A message to an agent.

    Attributes:
        message_id: Its id. A message with the id of one that was sent is not sent again.
        context_id: The conversation.
        text: The text.
        agent: The agent that receives it.
    """

    message_id: str
    context_id: str
    text: str
    agent: str


class Task(msgspec.Struct, frozen=True):
    """What became of a message.

    Attributes:
        id: The id of the message.
        context_id: The conversation; empty if the message was rejected.
        state: The state, in the short form of the protocol: `input-required` is `TASK_STATE_INPUT_REQUIRED` there.
        reply: The reply, if the task is completed.
        error: Why there is none.
        timed_out: Whether the reply took too long.
    """

    id: str
    context_id: str
    state: kinds.TaskState
    reply: str = ""
    error: str = ""
    timed_out: bool = False


class A2AHandler:
    """Carries the messages of one run to other agents. Implements the port `AgentMessenger`."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host
        self._chains = ChainManager(host.journal, host.settings.max_depth)

    # -- planning -------------------------------------------------------------------------------------

    def plan(self, effect: PlanMessage, tape: Tape) -> EventWithBlobs:
        """Find the agent and the conversation of a message. An error becomes the outcome of the message."""
        call, agent, state = effect.key, effect.agent, tape.state
        assert state.started is not None
        opened = f"{tape.run_id}.{call}"
        try:
            depth = self._chains.next_depth(state)
            skill, specs = self._host.find_skill(agent)
            thread = self._chains.thread(state, agent)
            if thread is not None and self._host.journal.find(thread.run) is not None:
                return kinds.AgentAsked(call, agent, thread.run, effect.text, depth), ()
            before = state.threads.get(agent)
            history, blobs = self._host.history_of(before.run, before.seq) if before is not None else ((), ())
        except ReynError as error:
            problem = f"{error.code}: {error.message}"
            return kinds.AgentAsked(call, agent, opened, effect.text, problem=problem), ()
        copy = pin(skill)
        message = {"type": USER_MESSAGE.name, "data": {"text": tape.content(effect.text).decode()}}
        content = Blob.of(canonical(message))
        first = kinds.ArtifactRef(USER_MESSAGE.name, content.hash)
        asked = kinds.AgentAsked(call, agent, opened, effect.text, depth, copy.hash, specs.hash, first, history)
        return asked, (copy, specs, content, *blobs)

    # -- delivering -----------------------------------------------------------------------------------

    async def deliver(self, effect: DeliverMessage, tape: Tape) -> EventWithBlobs:
        """Deliver a message once and await the reply; record what the conversation used meanwhile."""
        asked, started = effect.asked, tape.state.started
        assert started is not None
        if asked.problem:
            rejected = kinds.AgentReplied(asked.call, asked.agent, "", "rejected", error=asked.problem)
            return rejected, ()
        ask = kinds.AskRef(tape.run_id, asked.call, agent_of(started.skill), asked.depth, tape.state.total_answers)
        message = Message(ask.key, asked.run, tape.content(asked.text).decode(), asked.agent)
        task = await self.send(message, asked, ask, tape)
        return self._replied(task, asked, tape)

    async def send(self, message: Message, asked: kinds.AgentAsked, ask: kinds.AskRef, tape: Tape) -> Task:
        """Send a message and await what becomes of it.

        Args:
            message: The message.
            asked: Its intent, with what a new conversation starts with.
            ask: Its origin.
            tape: The tape of the run that sends it.
        """
        run = message.context_id
        try:
            with self._host.journal.claim(run):
                return await self._exchange(message, asked, ask, tape)
        except RunBusy:
            error = f"the conversation `{run}` is open in another process"
        except ReynError as failure:
            error = f"{failure.code}: {failure.message}"
        return Task(message.message_id, run, "failed", error=error)

    async def _exchange(self, message: Message, asked: kinds.AgentAsked, ask: kinds.AskRef, tape: Tape) -> Task:
        host, run = self._host, message.context_id
        if host.journal.find(run) is None:
            state, is_late = await self._in_time(host.open(asked, ask, tape), run)
        else:
            self._check_own(asked, ask)
            self._submit(message, ask)
            state, is_late = host.state_of(run), False
            if not self._is_settled(state, ask):
                state, is_late = await self._in_time(host.resume(run, message.agent, tape), run)
        if state.status == "waiting" and state.wait is not None and not state.wait.is_message:
            question = state.wait
            host.abort(run, f"its question was not answered: {question.message.partition(chr(10))[0]}")
            await host.resume(run, message.agent, tape)
            required: kinds.TaskState = "auth-required" if question.is_approval else "input-required"
            text = f"it asks a question that only a person can answer: {question.message}"
            return Task(message.message_id, run, required, error=text)
        task = self._task(message, state, ask)
        if is_late and task.state != "completed":
            seconds = self._host.settings.reply_seconds
            late = f"no reply within {seconds} seconds (`agents.reply_seconds`)"
            return replace(task, state="canceled", error=late, timed_out=True)
        return task

    def _check_own(self, asked: kinds.AgentAsked, ask: kinds.AskRef) -> None:
        """Check that the conversation is one that this run opened, and not one that was put in its place."""
        row = self._host.journal.find(asked.run)
        first = decode(next(iter(self._host.journal.read(asked.run))))
        opened = first.ask if isinstance(first, kinds.RunStarted) else None
        is_own = opened is not None and opened.run == ask.run and row is not None and not row.imported
        if is_own and asked.input is not None and isinstance(first, kinds.RunStarted):  # this message opened it
            is_own = (first.skill_hash, first.input, opened) == (asked.skill_hash, asked.input, ask)
        if not is_own:
            raise RunIdTaken(f"run `{asked.run}` exists and is not a conversation that this run opened")

    def _submit(self, message: Message, ask: kinds.AskRef) -> None:
        """Put a message into the inbox of a conversation, unless an earlier process did."""
        state = self._host.state_of(message.context_id)
        if state.received is not None and state.received.ask.key == ask.key:
            return
        waiting = self._host.journal.drain(state.run_id, state.messages_taken)
        sent = (one.payload.ask for one in waiting if isinstance(one.payload, Say))
        if all(one is None or one.key != ask.key for one in sent):
            self._host.say(message.context_id, message.text, f"agent:{ask.agent}" if ask.agent else "", ask)

    def _is_settled(self, state: RunState, ask: kinds.AskRef) -> bool:
        """Return whether an earlier process has seen the turn of a message to its end, or to a stop."""
        received = state.received
        if received is None or received.ask.key != ask.key:
            return state.status in ENDED
        is_asking = state.wait is not None and not state.wait.is_message
        return state.status in (*ENDED, "failed", "limited") or (
            received.state in ("completed", "canceled") and state.status == "waiting" and not is_asking
        )

    async def _in_time(self, work: Coroutine[object, object, RunState], run: str) -> tuple[RunState, bool]:
        """Execute a conversation; abort its turn when the time of a reply is over. Returns whether that happened."""
        end = self._host.clock.now() + self._host.settings.reply_seconds * SECOND
        task = asyncio.ensure_future(work)
        polls, next_abort = 0, 0
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_POLL_SECONDS)
                if task.done() or self._host.clock.now() < end:
                    continue
                if polls >= next_abort:  # a request between two turns has no effect, so it is repeated
                    self._host.abort(run, "the reply took too long")
                    next_abort = 2 * polls + 10
                polls += 1
            return task.result(), polls > 0
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def _task(self, message: Message, state: RunState, ask: kinds.AskRef) -> Task:
        """Return what became of a message, from the state of the conversation."""
        received, run = state.received, message.context_id
        if received is not None and received.ask.key == ask.key:
            if received.state == "completed" and received.reply is not None:
                artifact = msgspec.json.decode(self._host.journal.blob(received.reply.hash))
                return Task(message.message_id, run, "completed", reply=str(artifact["data"].get("text", "")))
            if received.state == "canceled":
                return Task(message.message_id, run, "canceled", error=f"the turn was aborted: {received.reason}")
        reason = f"the conversation is {state.status}: {state.reason or 'no reason was recorded'}"
        outcome: kinds.TaskState = "canceled" if state.status == "cancelled" else "failed"
        return Task(message.message_id, run, outcome, error=reason)

    # -- recording ------------------------------------------------------------------------------------

    def _replied(self, task: Task, asked: kinds.AgentAsked, tape: Tape) -> EventWithBlobs:
        """Return the event of a task, with what the conversation has used since the last message to it."""
        reply = Blob.of(task.reply.encode()) if task.state == "completed" else None
        body = kinds.AgentReplied(
            asked.call,
            asked.agent,
            asked.run,
            task.state,
            reply.hash if reply is not None else None,
            task.error,
            task.timed_out,
        )
        blobs = (reply,) if reply is not None else ()
        row = self._host.journal.find(asked.run)
        if row is None:  # it could not be opened
            return body, blobs
        state = self._host.state_of(asked.run)
        counted = tape.state.threads.get(asked.agent)
        if counted is None or counted.run != asked.run:
            counted = AgentThread(asked.run)
        charge = charge_of(state)
        used = charge - counted.charge if charge is not None else None
        body = replace(
            body,
            usage=state.models.usage - counted.usage,
            answers=max(0, state.models.answers - counted.answers),
            charge=used if used is not None and used.calls else None,
            active=max(0, state.active - counted.active),
            seq=row.seq,
            head=row.hash,
            open=state.status == "waiting" and state.wait is not None and state.wait.is_message,
        )
        return body, blobs
