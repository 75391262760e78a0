"""A conversation that this process executes.

The driver of the run stays alive between messages, so that a turn costs the same however long the conversation is.
Messages go through the inbox and are durable before they are taken; everything that a caller sees comes from events of
the run. Leaving the conversation interrupts it where it is; it continues from there.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from reyn.chat.items import ChatItem, MessageReceived, QuestionAsked, Reply, SkillProgressed, SkillStarted, Stopped
from reyn.chat.reader import ItemReader, last_reply
from reyn.chat.recorded import CONTINUE_THERE, failure_of, history_of, idle_result, left_error, stop_error
from reyn.chat.replies import PendingReplies
from reyn.chat.services.intervention_registry import InterventionRegistry
from reyn.chat.services.skill_runner import SkillRunner
from reyn.chat.unread import UnreadItems
from reyn.errors import RunBusy, RunNotResumable
from reyn.journal import ENDED, kinds
from reyn.kernel.runtime_types import LATER
from reyn.runtime.conversations import checked_message
from reyn.skills.agents import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
    from typing import Self

    from reyn.chat.beginning import Beginning
    from reyn.context import NormalizedMessageList
    from reyn.journal import Event
    from reyn.kernel.runtime_types import People, RunResult
    from reyn.kernel.world.services import Listener
    from reyn.models import Delta, Message
    from reyn.runtime import OSRuntime
    from reyn.skills.agents import Agent

_logger = logging.getLogger("reyn.chat")


class Conversation:
    """A conversation with an agent, or with a model by `@llm_chat`. Use it as an async context manager:

        async with rt.chat("designer") as chat:
            reply = await chat.say("hello")
            print(reply.text)

    - `say` sends a message and returns the reply; `stream` also yields what happens until then.
    - `post` sends a message without waiting for the reply.
    - `items` streams the conversation's items: messages, deltas, ops, skills, questions, replies.
    - `answer` replies to a question of the conversation or of one of its runs.
    - `abort` stops the reply in progress.

    Attributes:
        run_id: The run.
        agent: The agent, unless the conversation is one of `@llm_chat`.
        questions: The open questions.
        runs: The skills in the background.
    """

    def __init__(
        self,
        derive: Callable[[People], OSRuntime],
        beginning: Beginning,
        run_id: str,
        *,
        agent: Agent | None = None,
        by: str = "",
        model: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Create a conversation. `reyn.chat.open_conversation` does this.

        Args:
            derive: Returns the runtime that executes it. If its runs ask the people that it gets, which is this
                conversation, the run stays alive between messages; otherwise it stops when it asks.
            beginning: How it begins, if it is new.
            run_id: The run; it is created with the first message. If it is empty, the id is generated.
            agent: The agent.
            by: The name of the user; it is recorded with the messages.
            model: The model to call from here on, if the conversation exists.
            listener: A callback that receives every event after it is durable.
        """
        self._agent, self.executes_background_runs = agent, True
        self.questions = InterventionRegistry()
        self._runtime = derive(self)
        self._stays_open = self._runtime.services.people is self
        """Whether the run asks this conversation for the next message. If not, it stops after each reply."""
        self._beginning, self._by, self._model, self._listener = beginning, by, model, listener
        self._reader = ItemReader(self._runtime.runs.content, run_id, by)
        self._items = UnreadItems()
        self._replies = PendingReplies()
        self._is_recorded = False
        self._driving: asyncio.Task[None] | None = None
        self._is_busy = False
        self._is_turn_open = False
        """Whether the message that is answered is part of the transcript, so that the turn can be aborted."""
        self._posted = 0
        """The messages of this process that the conversation has not taken yet."""
        self._abort_reason: str | None = None
        """Why the next turn is to be aborted as soon as it begins."""
        self._is_ready, self._is_closed = asyncio.Event(), False
        self.runs = SkillRunner(self._runtime, run_id, self.publish)

    @property
    def run_id(self) -> str:
        """The run."""
        return self._reader.run_id

    @property
    def agent(self) -> Agent:
        """The agent. A conversation of `@llm_chat` has none."""
        assert self._agent is not None
        return self._agent

    @property
    def _is_driving(self) -> bool:
        return self._driving is not None and not self._driving.done()

    @property
    def is_busy(self) -> bool:
        """Whether the agent works on a reply, or is about to."""
        return self._is_driving and (self._is_busy or self._posted > 0)

    @property
    def usage(self) -> kinds.Usage:
        """The tokens of the conversation so far."""
        return self._reader.usage

    @property
    def received(self) -> int:
        """The characters of the model's answer that have arrived, while the agent works on a reply."""
        return self._reader.received

    @property
    def progress(self) -> list[SkillProgressed]:
        """Where the skills are that the agent waits for, the outermost first, then those in the background."""
        return [*self._reader.progress.values(), *self.runs.progress.values()]

    # -- opening and leaving --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Continue the conversation where it was interrupted, and its background runs; a new one begins empty.

        Raises:
            RunBusy: Another process executes the conversation.
        """
        if self._is_driving:
            return
        self._is_closed = False
        self._items.restart()
        if not self._runtime.runs.is_recorded(self.run_id) or self._runtime.runs.find(self.run_id).status in ENDED:
            return
        if self._runtime.services.journal.is_claimed(self.run_id):
            raise RunBusy(f"conversation `{self.run_id}` is open in another process", hint=CONTINUE_THERE)
        self.runs.continue_all(self._runtime.runs.state(self.run_id))
        self.resume()

    async def close(self) -> None:
        """Leave the conversation. It and its runs are interrupted where they are, and can be continued."""
        self._is_closed = True
        await self.runs.close()
        if self._driving is not None:
            self._driving.cancel()
            await asyncio.wait([self._driving])
        self._items.end()

    # -- talking --------------------------------------------------------------------------------------

    async def say(self, message: str | Message) -> Reply:
        """Say something and return the reply.

        Args:
            message: The text, or a `Message` with images.

        Raises:
            InputInvalid: The text is blank or too long.
            MessageInvalid: The text is not valid Unicode.
            ConversationInvalid: The conversation was left.
            ChatStopped: The conversation stopped before it replied. The message stays, and `say` continues it.
            RunBusy: Another process began to execute the conversation; it has the message and replies.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.post(message, reply)
        return await reply

    async def stream(self, message: str | Message | None = None) -> AsyncGenerator[ChatItem]:
        """Say something, and yield what happens until the reply, which is the last item. See `say` about errors.

        A reply that did not arrive in pieces is one `ReplyDelta`, too. Leaving the loop early aborts the reply. Only
        one task can read a conversation, by `stream` or by `items`. Items from before the message are dropped.

        Args:
            message: The text, or a `Message` with images; by default, the reply in progress or the one that was
                interrupted is yielded. If there is nothing to continue, the last reply is yielded again.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if message is not None:
            self.post(message, reply)
            self._items.restart()
        else:
            self._attach(reply)
        try:
            async with aclosing(self._items.read_turn(reply, is_last=not self._stays_open)) as turn:
                async for item in turn:
                    yield item
        finally:
            await self._leave(reply)

    def _attach(self, reply: asyncio.Future[Reply]) -> None:
        """Await the reply in progress, continue the one that was interrupted, or repeat the last one."""
        if self._is_driving:
            self._items.drop_turns()
        else:
            self.resume()
            self._items.restart()
        self._replies.add(0, reply)
        if not self.is_busy:
            self._repeat()

    def _repeat(self) -> None:
        """Give the last reply to everyone who waits for one although there is nothing to answer."""
        if 0 in self._replies:
            reply = last_reply(self._runtime.runs.state(self.run_id), self._runtime.runs.content)
            self.publish(reply)
            self._replies.resolve(0, reply)

    async def _leave(self, reply: asyncio.Future[Reply]) -> None:
        """Abort a reply that has no reader any more, and wait until that is recorded."""
        end: asyncio.Future[Any] | None = reply if self._stays_open else self._driving
        if end is not None and not end.done():
            self.abort("the caller left the stream")
            try:
                await asyncio.wait([end])
            except asyncio.CancelledError:
                end.cancel()
                raise
        if not reply.cancel() and not reply.cancelled():
            reply.exception()  # it was raised, or has no reader

    def post(self, message: str | Message, reply: asyncio.Future[Reply] | None = None) -> None:
        """Say something without waiting for the reply; the items of the conversation contain it.

        Args:
            message: The text, or a `Message` with images.
            reply: Receives the reply, or the reason why there is none.

        Raises:
            ConversationInvalid: The conversation was left.
        """
        text, images = (message, ()) if isinstance(message, str) else (message.text, message.images)
        checked_message(text, has_images=bool(images))
        if self._is_closed:
            raise left_error(self.run_id)
        if not self._beginning.is_single_turn and not self._is_recorded:
            self._is_recorded = self._runtime.runs.is_recorded(self.run_id)
        if (is_new := not self._is_recorded) and self._is_driving:  # the first message is about to be recorded
            self._replies.early.append((message, reply))
            return
        say = partial(self._runtime.conversations.say, instructions=self._beginning.instructions)
        self._replies.add(0 if is_new else say(self.run_id, text, by=self._by, images=images).message_id, reply)
        self._posted += 1
        if is_new:
            arguments = self._beginning.arguments(text, images)
            self._beginning = self._beginning.said(text, images)
            self._execute(partial(self._runtime.run, **arguments, run_id=self.run_id or None, wait=False))
        else:
            self.resume()
        self.questions.wake(self.run_id)

    def resume(self) -> None:
        """Continue the run with what is in its inbox, and retry what failed, unless it is being executed here.

        Raises:
            ConversationInvalid: The conversation was left.
        """
        if self._is_closed:
            raise left_error(self.run_id)
        if self._is_driving:
            return
        state = self._runtime.runs.state(self.run_id)  # another process may have taken messages
        self._reader = ItemReader(self._runtime.runs.content, self.run_id, self._by, state.usage)
        model, self._model = self._model, None
        work = partial(self._runtime.resume, self.run_id, retry=state.status == "failed", model=model)
        self._execute(work, is_turn_open=state.is_turn_open)

    @property
    def history(self) -> NormalizedMessageList:
        """The messages so far, with those that the conversation began with."""
        return history_of(self._runtime.runs, self.run_id, self._beginning.history)

    async def ready(self) -> None:
        """Wait until the conversation waits for a message or for the reply to a question, or has stopped."""
        if self._driving is not None:
            await self._is_ready.wait()

    def publish(self, item: ChatItem) -> None:
        """Add an item to the stream, after those of events so far."""
        self._items.put(item)

    def items(self) -> AsyncIterator[ChatItem]:
        """Yield what happens from opening the conversation to closing it, to one reader. Nothing is yielded twice."""
        return self._items.read()

    def abort(self, reason: str = "") -> None:
        """Stop the reply in progress, or the next one if it is about to begin; the conversation continues.

        Completed ops stay.
        """
        if not self._is_turn_open:
            self._abort_reason = reason if self.is_busy else None
            return
        with suppress(RunNotResumable):
            self._runtime.conversations.abort_turn(self.run_id, reason, partial=self._reader.partial)

    def rename(self, title: str) -> None:
        """Give the conversation a title; an empty one removes it."""
        self._runtime.conversations.rename(self.run_id, title, by=self._by)

    def answer(self, question: QuestionAsked, value: Any) -> None:
        """Reply to a question of the conversation or of one of its runs.

        Raises:
            ReplyInvalid: The value does not fit the question.
            QuestionUnknown: The question has a reply already.
        """
        self._runtime.answer(question.run, question.question.id, value, by=self._by)
        self.questions.close(question.run, question.question.id)
        self.questions.wake(question.run)
        if not self.runs.is_executing(question.run):
            self._is_ready.clear()  # the turn continues

    def is_of_agent(self, run: str) -> bool:
        """Return whether a run is this conversation, or one with an agent that was asked, and not one of a skill."""
        row = None if run == self.run_id else self._runtime.services.journal.find(run)
        return run == self.run_id or (row is not None and row.skill.startswith(PREFIX))

    # -- the run --------------------------------------------------------------------------------------

    def _execute(self, work: Callable[..., Coroutine[Any, Any, RunResult]], *, is_turn_open: bool = False) -> None:
        self._is_busy, self._is_turn_open = True, is_turn_open  # perhaps it continues a turn
        self._is_ready.clear()
        self._driving = asyncio.ensure_future(self._await(work))

    async def _await(self, work: Callable[..., Coroutine[Any, Any, RunResult]]) -> None:
        """Execute the run until it ends or stops, and tell everyone who waits for a reply."""
        try:
            result = await work(listener=self._on_event, on_delta=self._on_delta)
            if result.status == "running":
                raise RunBusy(f"conversation `{self.run_id}` is open elsewhere", run_id=self.run_id)
            self._reader.usage = result.usage
        except asyncio.CancelledError:
            self._items.end()
            self._replies.fail(None)
            raise
        except Exception as error:  # noqa: BLE001 - raised where the reply is awaited
            if (idle := idle_result(self._runtime.runs, self.run_id, error)) is not None:
                return self._stop(idle)
            is_stored = self._is_recorded and self._posted > 0
            self._fail(*failure_of(self._runtime.runs, self.run_id, error, is_stored=is_stored))
        else:
            self._stop(result)

    def _stop(self, result: RunResult) -> None:
        self._reader.run_id = result.run_id  # also if it recorded nothing
        if result.status == "finished" or (result.question is not None and result.question.is_message):
            self._repeat()  # there was nothing left to do
        stopped = Stopped(str(result.status), result.reason, result.code, result.hint)
        self._fail(stop_error(self._runtime.runs, result, self.history) if self._replies else None, stopped)

    def _fail(self, error: Exception | None, stopped: Stopped) -> None:
        self._posted, self._abort_reason, self._is_busy, self._is_turn_open = 0, None, False, False
        self._reader.progress.clear()
        self._is_ready.set()
        self._replies.fail(error)
        self.publish(stopped)

    # -- people ---------------------------------------------------------------------------------------

    async def ask(self, run_id: str, question: kinds.Question) -> Any:
        """Show a question; the reply comes through the inbox. Part of the port `People`."""
        if question.is_message and run_id == self.run_id:
            self._is_busy = self._is_turn_open = False
            if self._posted:
                return LATER  # the message is in the inbox
            self._abort_reason = None  # there was no turn to abort
            self._repeat()
        else:
            self.publish(self.questions.open(run_id, question))
        self._is_ready.set()
        try:
            return await self.questions.sleep(run_id)
        finally:
            self.questions.close(run_id, question.id)

    @property
    def name(self) -> str:
        """The name of the user, recorded with replies."""
        return self._by

    # -- events ---------------------------------------------------------------------------------------

    def _on_delta(self, delta: Delta) -> None:
        if (item := self._reader.read_delta(delta)) is not None:
            self.publish(item)

    def _on_event(self, event: Event) -> None:
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception as error:  # noqa: BLE001 - listeners are foreign code
                self._listener = None
                _logger.warning("the listener failed at event %s and was dropped: %r", event.seq, error)
        for item in self._reader.read(event):
            self.publish(item)
            match item:
                case SkillStarted(background=True):
                    self.runs.start(item.run, event.run_id)
                case MessageReceived():
                    self._take(item)
                case Reply():
                    self._is_busy = self._is_turn_open = False
                    self._replies.resolve(self._reader.answering.message, item)
        if event.kind == kinds.TranscriptExtended.kind and event.run_id == self.run_id:
            self._is_turn_open = self._is_busy
            if self._abort_reason is not None and self._is_turn_open:
                reason, self._abort_reason = self._abort_reason, None
                self.abort(reason)

    def _take(self, message: MessageReceived) -> None:
        """A turn begins with a message, and ends with its reply."""
        self._is_busy, self._is_turn_open = True, False
        if not message.run:
            self._posted = max(0, self._posted - 1)
        early, self._replies.early = self._replies.early, []
        for one, reply in early:
            self.post(one, reply)
