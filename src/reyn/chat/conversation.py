"""A conversation that this process executes.

The driver of the run stays alive between messages, so that a turn costs the same however long the conversation is.
Messages go through the inbox and are durable before they are taken; everything that a caller sees comes from events of
the run. Leaving the conversation interrupts it where it is; it continues from there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from reyn.chat.items import ChatItem, MessageReceived, QuestionAsked, Reply, SkillProgressed, SkillStarted, Stopped
from reyn.chat.reader import ItemReader
from reyn.chat.services.intervention_registry import InterventionRegistry
from reyn.chat.services.skill_runner import SkillRunner
from reyn.context import NormalizedMessageList
from reyn.errors import ChatStopped, ConversationInvalid, RunBusy, RunNotFound, RunNotResumable
from reyn.journal import ENDED, kinds
from reyn.runtime.conversations import checked_message
from reyn.skills import USER_MESSAGE
from reyn.skills.agents import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from reyn.journal import Event
    from reyn.journal.results import RunResult
    from reyn.kernel.runtime_types import People
    from reyn.kernel.world.run_scope import RunScope
    from reyn.kernel.world.services import Listener
    from reyn.models import Delta
    from reyn.runtime import OSRuntime
    from reyn.skills import Skill
    from reyn.skills.agents import Agent

_STORED = "The message is stored; it is answered when the conversation continues."
_CONTINUE_THERE = "Continue there, or leave it there first."


class Conversation:
    """A conversation with an agent, or with a model by `@llm_chat`. Use it as an async context manager:

        async with rt.chat("designer") as chat:
            reply = await chat.say("hello")
            print(reply.text)

    - `say` sends a message and returns the reply.
    - `post` sends a message without waiting for the reply.
    - `items` streams the conversation's items: messages, deltas, ops, skills, questions, replies.
    - `answer` replies to a question of the conversation or of one of its runs.
    - `abort` stops the reply in progress.

    Attributes:
        run_id: The run.
        agent: The agent, unless the conversation is one of `@llm_chat`.
        questions: The open questions.
        runs: The skills in the background.
        result: The result of the run, if it has stopped.
        failure: Why there is no result.
    """

    def __init__(
        self,
        derive: Callable[[People], OSRuntime],
        skill: Skill | None,
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
            skill: The skill, for a new conversation.
            run_id: The run; it is created with the first message. If it is empty, the id is generated.
            agent: The agent.
            by: The name of the user; it is recorded with the messages.
            model: The model to call from here on, if the conversation exists.
            listener: A callback that receives every event after it is durable.
        """
        self._agent = agent
        self.questions = InterventionRegistry()
        self.result: RunResult | None = None
        self.failure: BaseException | None = None
        self._runtime = derive(self)
        self._skill = skill
        self._by = by
        self._model = model
        self._listener = listener
        self._reader = ItemReader(self._runtime.runs.content, run_id, by)
        self._items: asyncio.Queue[ChatItem | None] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        """Who waits for a reply, by the id of the message in the inbox; 0 is the first message of the run."""
        self._early: list[tuple[str, asyncio.Future[Reply] | None]] = []
        """What was said before the first message was recorded; it follows as soon as that is."""
        self._driving: asyncio.Task[None] | None = None
        self._is_busy = False
        self._is_turn_open = False
        """Whether the message that is answered is part of the transcript, so that the turn can be aborted."""
        self._posted = 0
        """The messages of this process that the conversation has not taken yet."""
        self._abort_reason: str | None = None
        """Why the next turn is to be aborted as soon as it begins."""
        self._is_ready = asyncio.Event()
        self._stopped: Stopped | None = None
        self._is_closed = False
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
        if self._runtime.runs.is_recorded(self.run_id):
            await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Continue the conversation where it was interrupted, and its background runs.

        Raises:
            RunBusy: Another process executes the conversation.
        """
        self._is_closed = False
        row = self._runtime.runs.find(self.run_id)
        if row.status in ENDED:
            self._stopped = Stopped(str(row.status), row.reason)
            return
        if self._runtime.services.journal.is_claimed(self.run_id):
            raise RunBusy(f"conversation `{self.run_id}` is open in another process", hint=_CONTINUE_THERE)
        self.runs.continue_all(self._runtime.runs.state(self.run_id))
        self.resume()

    async def close(self) -> None:
        """Leave the conversation. It and its runs are interrupted where they are, and can be continued."""
        self._is_closed = True
        await self.runs.close()
        if self._driving is not None:
            self._driving.cancel()
            await asyncio.wait([self._driving])
        self._items.put_nowait(None)

    async def abandon(self, reason: str) -> None:
        """Abort the reply in progress, and wait until that is recorded."""
        if self._driving is not None and self._is_driving:
            self.abort(reason)
            try:
                await asyncio.wait([self._driving])
            except asyncio.CancelledError:
                self._driving.cancel()
                raise

    # -- talking --------------------------------------------------------------------------------------

    async def say(self, text: str) -> Reply:
        """Say something and return the reply.

        Raises:
            InputInvalid: The text is blank or too long.
            MessageInvalid: The text is not valid Unicode.
            ConversationInvalid: The conversation was left.
            ChatStopped: The conversation stopped before it replied. The message stays, and `say` continues it.
            RunBusy: Another process began to execute the conversation; it has the message and replies.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.post(text, reply)
        return await reply

    def post(self, text: str, reply: asyncio.Future[Reply] | None = None) -> None:
        """Say something without waiting for the reply; the items of the conversation contain it.

        Args:
            text: The message.
            reply: Receives the reply, or the reason why there is none.

        Raises:
            ConversationInvalid: The conversation was left.
        """
        text = checked_message(text)
        if self._is_closed:
            raise ConversationInvalid(
                f"conversation `{self.run_id}` was left", hint=f'Open it again: `rt.chat(run_id="{self.run_id}")`.'
            )
        if self._stopped is not None and self._stopped.status in ENDED:
            raise RunNotResumable(
                f"conversation `{self.run_id}` is {self._stopped.status}", hint="Start a new one, or fork it."
            )
        is_new = not self._runtime.runs.is_recorded(self.run_id)
        if is_new and self._is_driving:  # the first message is about to be recorded
            self._early.append((text, reply))
            return
        message = 0 if is_new else self._runtime.conversations.say(self.run_id, text, by=self._by).message_id
        if reply is not None:
            self._waiting[message] = reply
        self._posted += 1
        if is_new:
            self.begin(text)
        elif not self._is_driving:
            self.resume()

    def begin(self, text: str, *, history: NormalizedMessageList | None = None, within: RunScope | None = None) -> None:
        """Start the run with its first message; see `OSRuntime.run` about `history` and `within`."""
        assert self._skill is not None
        message = {"type": USER_MESSAGE.name, "data": {"text": text}}
        run_id, before = self.run_id or None, history or ()
        run = partial(self._runtime.run, listener=self._on_event, on_delta=self._on_delta)
        self._execute(partial(run, self._skill, message, run_id=run_id, within=within, history=before))

    def resume(self, *, is_waiting: bool = False) -> None:
        """Continue the run with what is in its inbox, and retry what failed.

        Args:
            is_waiting: Whether it is known to wait for a message, so that its state need not be read.
        """
        is_failed = is_turn_open = False
        if not is_waiting:
            state = self._runtime.runs.state(self.run_id)  # another process may have taken messages
            is_failed, is_turn_open = state.status == "failed", state.is_turn_open
            queued, usage = state.inbox.queued, state.models.usage
            self._reader = ItemReader(self._runtime.runs.content, self.run_id, self._by, queued, usage)
        model, self._model = self._model, None
        resume = partial(self._runtime.resume, listener=self._on_event, on_delta=self._on_delta)
        self._execute(partial(resume, self.run_id, retry=is_failed, model=model), is_turn_open=is_turn_open)

    async def ready(self) -> None:
        """Wait until the conversation waits for a message or for the reply to a question, or has stopped."""
        if self._driving is not None:
            await self._is_ready.wait()

    def publish(self, item: ChatItem) -> None:
        """Add an item to the stream, after those of events so far."""
        self._items.put_nowait(item)

    async def items(self) -> AsyncIterator[ChatItem]:
        """Yield what happens in the conversation until it is closed. There is one reader."""
        while (item := await self.next_item()) is not None:
            yield item

    async def next_item(self) -> ChatItem | None:
        """Return the next item; `None` if the conversation was closed or interrupted."""
        return await self._items.get()

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
        if not self.runs.is_executing(question.run):
            self._is_ready.clear()  # the turn continues

    def is_of_agent(self, run: str) -> bool:
        """Return whether a run is this conversation, or one with an agent that was asked, and not one of a skill."""
        row = None if run == self.run_id else self._runtime.services.journal.find(run)
        return run == self.run_id or (row is not None and row.skill.startswith(PREFIX))

    # -- the run --------------------------------------------------------------------------------------

    def _execute(self, work: Callable[[], Coroutine[Any, Any, RunResult]], *, is_turn_open: bool = False) -> None:
        self._stopped = self.result = self.failure = None
        self._is_busy = True  # perhaps it continues a turn
        self._is_turn_open = is_turn_open
        self._is_ready.clear()
        self._driving = asyncio.ensure_future(self._await(work))

    async def _await(self, work: Callable[[], Coroutine[Any, Any, RunResult]]) -> None:
        """Execute the run until it ends or stops, and tell everyone who waits for a reply."""
        try:
            result = self.result = await work()
            self._reader.usage = result.usage
        except asyncio.CancelledError as error:
            self.failure = error
            self._items.put_nowait(None)
            raise
        except RunBusy as error:
            said = "; what you said is in its inbox" if self._posted else ""
            busy = RunBusy(f"{error.message}{said}", hint=_CONTINUE_THERE)
            self._fail(busy, Stopped("busy", busy.message, busy.code, _CONTINUE_THERE))
        except RunNotResumable as error:
            row = self._runtime.runs.find(self.run_id)
            self._fail(error, Stopped(str(row.status), row.reason, error.code, _STORED))
        except Exception as error:  # noqa: BLE001 - raised where the reply is awaited
            self._fail(error, Stopped("failed", str(error)), is_shown=not self._waiting)
        else:
            self._stop(result)

    def _stop(self, result: RunResult) -> None:
        stopped = Stopped(str(result.status), result.reason, result.code, result.hint)
        is_awaited = bool(self._waiting or self._early)
        self._fail(self._stop_error(result) if is_awaited else None, stopped)

    def _stop_error(self, result: RunResult) -> ChatStopped:
        try:
            history = self._runtime.runs.transcript(self.run_id)
        except RunNotFound:  # the first turn failed
            history = NormalizedMessageList()
        return ChatStopped(
            f"conversation `{self.run_id}` is {result.status}: {result.reason}",
            run_id=self.run_id,
            status=str(result.status),
            history=history,
            hint=result.hint or None,
            action=self._runtime.runs.next_action(self._runtime.runs.find(self.run_id)),
        )

    def _fail(self, error: Exception | None, stopped: Stopped, *, is_shown: bool = True) -> None:
        self.failure, self._stopped = error, stopped
        self._posted, self._abort_reason = 0, None
        self._is_busy = self._is_turn_open = False
        self._reader.progress.clear()
        self._is_ready.set()
        waiting = [*self._waiting.values(), *(reply for _, reply in self._early)]
        self._waiting, self._early = {}, []
        for reply in waiting:
            if error is not None and reply is not None and not reply.done():
                reply.set_exception(error)
        if is_shown:
            self.publish(stopped)

    # -- people ---------------------------------------------------------------------------------------

    async def ask(self, run_id: str, question: kinds.Question) -> Any:
        """Show a question; the reply comes through the inbox. Part of the port `People`."""
        if question.is_message and run_id == self.run_id:
            self._is_busy = self._is_turn_open = False
            if not self._posted:  # there was no turn to abort
                self._abort_reason = None
        else:
            asked = QuestionAsked(run_id, question)
            self.questions.open(asked)
            self.publish(asked)
        self._is_ready.set()
        try:
            return await asyncio.get_running_loop().create_future()
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
            self._listener(event)
        for item in self._reader.read(event):
            self.publish(item)
            match item:
                case SkillStarted(background=True):
                    self.runs.start(item.run, event.run_id)
                case MessageReceived():
                    self._take(item)
                case Reply():
                    self._finish_turn(item)
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
        early, self._early = self._early, []
        for text, reply in early:
            self.post(text, reply)

    def _finish_turn(self, reply: Reply) -> None:
        self._is_busy = self._is_turn_open = False
        waiting = self._waiting.pop(self._reader.answering.message, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
