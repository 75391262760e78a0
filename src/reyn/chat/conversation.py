"""A conversation that this process executes: what callers use.

Messages go through the inbox and are durable before they are taken; everything that a caller sees comes from events of
the run. Leaving the conversation interrupts it where it is; it continues from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from reyn.chat.conversation_run import ConversationRun
from reyn.chat.items import ChatItem
from reyn.chat.meaning import Meaning, meaning_of
from reyn.chat.recorded import CONTINUE_THERE, left_error
from reyn.chat.unread import UnsentMessage
from reyn.context.messages import user_message
from reyn.errors import RunBusy
from reyn.journal import ENDED, kinds
from reyn.runtime.conversations import checked_message
from reyn.streams import ItemStream

if TYPE_CHECKING:
    from reyn.chat.items import QuestionAsked, Reply, SkillProgressed
    from reyn.models import Image, Message
    from reyn.skills.agents import Agent


class ReplyStream(ItemStream[ChatItem]):
    """What happens until a reply, which is the last item. Leaving it early aborts the reply."""


class ConversationItems(ItemStream[ChatItem]):
    """What happens in a conversation until it is closed. Leaving it early leaves the rest to the next reader."""


class Conversation(ConversationRun):
    """A conversation with an agent, or with a model by `@llm_chat`. Use it as an async context manager:

        async with rt.chat("designer") as chat:
            reply = await chat.say("hello")
            print(reply.text)

    - `say` sends a message and returns the reply; `stream` also yields what happens until then.
    - `post` sends a message without waiting for the reply.
    - `items` streams the conversation's items: messages, deltas, ops, skills, questions, replies.
    - `answer` replies to a question of the conversation or of one of its runs.
    - `interpret` tells whether a text of the user is such an answer or a message.
    - `abort` stops the reply in progress.

    Attributes:
        run_id: The run.
        agent: The agent, unless the conversation is one of `@llm_chat`.
        questions: The open questions.
        runs: The skills in the background.
    """

    @property
    def agent(self) -> Agent:
        """The agent. A conversation of `@llm_chat` has none."""
        assert self._agent is not None
        return self._agent

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
            raise RunBusy(f"conversation `{self.run_id}` is open elsewhere", hint=CONTINUE_THERE)
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

    async def say(self, message: str | Message | dict[str, Any]) -> Reply:
        """Say something and return the reply.

        Args:
            message: The text, or a `Message` with images, also as a dict.

        Raises:
            InputInvalid: The text is blank or too long.
            MessageInvalid: The text is not valid Unicode.
            ConversationInvalid: The conversation was left.
            RunNotResumable: The conversation has ended.
            ChatStopped: The conversation stopped before it replied. The message stays, and `say` continues it.
            RunBusy: Another caller executes the conversation. The message was not sent.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.post(message, reply)
        return await reply

    def stream(
        self,
        message: str | Message | dict[str, Any] | None = None,
        *,
        raise_limits: Mapping[str, int | None] | None = None,
    ) -> ReplyStream:
        """Say something, and yield what happens until the reply, which is the last item. See `say` about errors.

        A reply that did not arrive in pieces is one `ReplyDelta`, too. Leaving the loop early, or closing the stream,
        aborts the reply. A conversation has one reader at a time, by `stream` or by `items`; a second one gets
        `StreamTaken`, and its message is not sent. Items from before the message are dropped.

        Args:
            message: The text, or a `Message` with images; by default, the reply in progress or the one that was
                interrupted is yielded. If there is nothing to continue, the last reply is yielded again.
            raise_limits: Without a message, new values of limits; see `resume`.
        """
        reader = object()

        def leave() -> None:
            self._items.release(reader)
            self.leave_soon()

        return ReplyStream(self._read_reply(reader, message, raise_limits), leave)

    async def _read_reply(
        self,
        reader: object,
        message: str | Message | dict[str, Any] | None,
        raise_limits: Mapping[str, int | None] | None,
    ) -> AsyncGenerator[ChatItem]:
        with self._items.reading(reader):
            reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            self._streamed = reply
            if message is not None:
                self.post(message, reply)
                self._items.restart()
            else:
                self._attach(reply, raise_limits)
            try:
                async with aclosing(self._items.read_turn(reply, is_last=not self._stays_open)) as turn:
                    async for item in turn:
                        yield item
            finally:
                await self._leave(reply)

    def _attach(self, reply: asyncio.Future[Reply], raise_limits: Mapping[str, int | None] | None) -> None:
        """Await the reply in progress, continue the one that was interrupted, or repeat the last one."""
        if self._is_driving and not raise_limits:
            self._items.drop_turns()
        else:
            self.resume(raise_limits=raise_limits)
            self._items.restart()
        self._replies.add(0, reply)
        if not self.is_busy:
            self._repeat()

    def leave_soon(self) -> None:
        """Let the reply that was streamed be aborted before the next effect, if it is still in progress.

        It is safe in any thread. The event loop closes the stream, too, and waits until the abort is recorded.
        """
        if self._streamed is not None and not self._streamed.done():
            self._is_leaving = True
            self._runtime.services.polling.defer(self.run_id, partial(self._abandon, self._streamed))

    def _abandon(self, reply: asyncio.Future[Reply]) -> None:
        """Abort a reply that has no reader any more."""
        end: asyncio.Future[Any] | None = reply if self._stays_open else self._driving
        if end is None or end.done():
            return
        is_shared = self._runtime.services.shared_runs.has_others(self.run_id)
        if self._stays_open or (self._turn.is_executing and not is_shared):
            self.abort("the caller left the stream")
        else:
            end.cancel()  # nothing is sent yet, or other callers wait for the reply

    async def _leave(self, reply: asyncio.Future[Reply]) -> None:
        """Abort a reply that has no reader any more, and wait until that is recorded."""
        if self._is_leaving:
            self._is_leaving = False
            self._runtime.services.polling.withdraw(self.run_id)
        end: asyncio.Future[Any] | None = reply if self._stays_open else self._driving
        if end is not None and not end.done():
            self._abandon(reply)
            try:
                await asyncio.wait([end])
            except asyncio.CancelledError:
                end.cancel()
                raise
        if not reply.cancel() and not reply.cancelled():
            reply.exception()  # it was raised, or has no reader

    def post(
        self,
        message: str | Message | dict[str, Any],
        reply: asyncio.Future[Reply] | None = None,
        *,
        by: str | None = None,
    ) -> None:
        """Say something without waiting for the reply; the items of the conversation contain it.

        Args:
            message: The text, or a `Message` with images, also as a dict in the format of chat completion APIs.
            reply: Receives the reply, or the reason why there is none.
            by: The name of the user who says it; by default the one of the conversation.

        Raises:
            ConversationInvalid: The conversation was left.
            RunNotResumable: The conversation has ended.
        """
        text: str | Message | dict[str, Any] = message
        images: tuple[Image, ...] = ()
        if not isinstance(text, str):
            said = user_message(text)
            text, images, by = said.text, said.images, by if by is not None else said.name or None
        checked_message(text, images)
        if self._is_closed:
            raise left_error(self.run_id)
        if not (self._is_driving or self._beginning.is_single_turn) and self._runtime.runs.is_recorded(self.run_id):
            self._runtime.conversations.check_open(self.run_id)
        self._replies.unsent.append(UnsentMessage(text, images, reply, self._by if by is None else by))
        self._turn.posted += 1
        if not self._is_driving:
            self._continue()
        elif self._turn.is_executing:
            self._send()
        self.questions.wake(self.run_id)

    def resume(self, *, raise_limits: Mapping[str, int | None] | None = None) -> None:
        """Continue the run with what is in its inbox, and retry what failed, unless it is being executed here.

        Args:
            raise_limits: New values of the limits that stopped the run; `None` removes a limit.

        Raises:
            ConversationInvalid: The conversation was left.
            RunNotFound: The conversation has not begun.
            RunBusy: A limit is to be raised, and the conversation has not stopped.
        """
        if self._is_closed:
            raise left_error(self.run_id)
        if self._is_driving:
            if raise_limits:
                raise RunBusy(f"conversation `{self.run_id}` has not stopped", hint="Raise the limit when it has.")
            return
        self._runtime.runs.find(self.run_id)
        self._raise_limits = raise_limits
        self._continue()

    async def ready(self) -> None:
        """Wait until the conversation waits for a message or for the reply to a question, or has stopped."""
        if self._driving is not None:
            await self._is_ready.wait()

    def items(self) -> ConversationItems:
        """Yield what happens from opening the conversation to closing it. Nothing is yielded twice.

        After a loop that was left, a new call yields the items that follow. While another reader is active, by `items`
        or `stream`, reading raises `StreamTaken`.
        """
        reader = object()
        return ConversationItems(self._read_items(reader), lambda: self._items.release(reader))

    async def _read_items(self, reader: object) -> AsyncGenerator[ChatItem]:
        with self._items.reading(reader):
            async with aclosing(self._items.read()) as items:
                async for item in items:
                    yield item

    def rename(self, title: str) -> None:
        """Give the conversation a title; an empty one removes it."""
        self._runtime.conversations.rename(self.run_id, title, by=self._by)

    def interpret(self, text: str) -> Meaning:
        """Return what a text of the user means: the answer to the oldest open question, or a message. It does nothing.

        Send an answer with `answer(meaning.question, meaning.value)`, a message with `say` or `post`.
        """
        return meaning_of(text, self.questions)

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
