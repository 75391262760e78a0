"""A conversation that this process executes.

The driver of the run stays alive between messages, so that a turn costs the same however long the conversation is.
Messages go through the inbox and are durable before they are taken; everything that a caller sees comes from events of
the run. Leaving the conversation interrupts it where it is; it continues from there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.chat.items import (
    ChatItem,
    Delta,
    MessageReceived,
    OpFinished,
    OpRequested,
    QuestionAsked,
    Reply,
    Restarted,
    RunProgressed,
    RunReported,
    RunStarted,
    Stopped,
    unanswered_text,
)
from reyn.chat.partial_reply import PartialReply
from reyn.chat.services.intervention_registry import InterventionRegistry
from reyn.chat.services.skill_runner import SkillRunner
from reyn.context import NormalizedMessageList
from reyn.errors import ChatStopped, ConversationInvalid, RunBusy, RunNotFound, RunNotResumable
from reyn.journal import ENDED, decode, kinds
from reyn.runtime.messages import checked_message
from reyn.skills import USER_MESSAGE
from reyn.skills.agents import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType
    from typing import Self

    from reyn.journal import Event
    from reyn.kernel.runtime_types import People, RunResult
    from reyn.models import Delta as ModelDelta
    from reyn.runtime import OSRuntime
    from reyn.skills import Skill
    from reyn.skills.agents import Agent

_STORED = "The message is stored; it is answered when the conversation continues."
_CONTINUE_THERE = "Continue there, or leave it there first."


class Conversation:
    """A conversation with an agent. Use it as an async context manager:

        async with rt.chat("designer") as chat:
            reply = await chat.say("hello")
            print(reply.text)

    - `say` sends a message and returns the reply.
    - `post` sends a message without waiting for the reply.
    - `items` streams the conversation's items: messages, deltas, ops, runs, questions, replies.
    - `answer` replies to a question of the conversation or of one of its runs.
    - `abort` stops the reply in progress.

    Attributes:
        run_id: The run.
        agent: The agent.
    """

    def __init__(
        self,
        derive: Callable[[People], OSRuntime],
        agent: Agent,
        skill: Skill,
        run_id: str,
        *,
        by: str = "",
        model: str | None = None,
    ) -> None:
        """Open a conversation. `OSRuntime.chat` does this.

        Args:
            derive: Returns the runtime that executes it, whose runs ask in the conversation.
            agent: The agent.
            skill: The agent's skill, for a new conversation.
            run_id: The run; it is created with the first message.
            by: The name of the user; it is recorded with the messages.
            model: The model to call from here on, if the conversation exists.
        """
        self._model = model
        self.run_id = run_id
        self.agent = agent
        self._runtime = derive(self)
        self._skill = skill
        self._by = by
        self._items: asyncio.Queue[ChatItem | None] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        """Who waits for a reply, by the id of the message in the inbox; 0 is the first message of the run."""
        self._queued: deque[kinds.MessageQueued] = deque()
        self._early: list[tuple[str, asyncio.Future[Reply] | None]] = []
        """What was said before the first message was recorded; it follows as soon as that is."""
        self._answering: tuple[int, str] = (0, "")
        """The message that is being answered, and the background run that it is about."""
        self._driving: asyncio.Task[None] | None = None
        self._usage = kinds.Usage()
        self._partial: list[str] = []
        self._partial_reply = PartialReply()
        self._is_answering = False
        self._received = 0
        self._names: dict[str, str] = {}
        self._skills: dict[str, str] = {}
        self._is_busy = False
        self._posted = 0
        """The messages of this process that the conversation has not taken yet."""
        self._abort_reason: str | None = None
        """Why the next turn is to be aborted as soon as it begins."""
        self._is_ready = asyncio.Event()
        self._stopped: Stopped | None = None
        self._is_closed = False
        self.questions = InterventionRegistry()
        self.runs = SkillRunner(self._runtime, run_id, self.publish, self.questions)
        self._progress: dict[str, RunProgressed] = {}

    @property
    def is_busy(self) -> bool:
        """Whether the agent works on a reply, or is about to."""
        is_driving = self._driving is not None and not self._driving.done()
        return is_driving and (self._is_busy or self._posted > 0)

    @property
    def usage(self) -> kinds.Usage:
        """The tokens of the conversation so far."""
        return self._usage

    @property
    def received(self) -> int:
        """The characters of the model's answer that have arrived, while the agent works on a reply."""
        return self._received

    @property
    def progress(self) -> list[RunProgressed]:
        """Where the skills are that the agent waits for, the outermost first, then those in the background."""
        return [*self._progress.values(), *self.runs.progress]

    # -- opening and leaving --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._runtime.is_recorded(self.run_id):
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
        row = self._runtime.find(self.run_id)
        if row.status in ENDED:
            self._stopped = Stopped(str(row.status), row.reason)
            return
        if self._runtime.journal.is_claimed(self.run_id):
            raise RunBusy(f"conversation `{self.run_id}` is open in another process", hint=_CONTINUE_THERE)
        state = self._runtime.state(self.run_id)
        self._usage = state.models.usage
        self.runs.continue_all(state)
        self._start_task(is_new=False)

    async def close(self) -> None:
        """Leave the conversation. It and its runs are interrupted where they are, and can be continued."""
        self._is_closed = True
        await self.runs.close()
        if self._driving is not None:
            self._driving.cancel()
            await asyncio.wait([self._driving])
        self._items.put_nowait(None)

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
        is_recorded = self._runtime.is_recorded(self.run_id)
        is_driving = self._driving is not None and not self._driving.done()
        if not is_recorded and is_driving:  # the first message is about to be recorded
            self._early.append((text, reply))
            return
        is_new = not is_recorded
        message = 0 if is_new else self._runtime.say(self.run_id, text, by=self._by).message_id
        if reply is not None:
            self._waiting[message] = reply
        self._posted += 1
        if not is_driving:
            self._start_task(is_new=is_new, text=text)

    async def ready(self) -> None:
        """Wait until the conversation waits for a message or for the reply to a question, or has stopped."""
        if self._driving is not None:
            await self._is_ready.wait()

    def publish(self, item: ChatItem) -> None:
        """Add an item to the stream, after those of events so far."""
        self._items.put_nowait(item)

    async def items(self) -> AsyncIterator[ChatItem]:
        """Yield what happens in the conversation until it is closed. There is one reader."""
        while (item := await self._items.get()) is not None:
            yield item

    def abort(self, reason: str = "") -> None:
        """Stop the reply in progress, or the next one if it is about to begin; the conversation continues.

        Completed ops stay.
        """
        if not self._is_busy and self._posted:
            self._abort_reason = reason
            return
        with suppress(RunNotResumable):
            self._runtime.abort_turn(self.run_id, reason, partial="".join(self._partial))

    def rename(self, title: str) -> None:
        """Give the conversation a title; an empty one removes it."""
        self._runtime.rename(self.run_id, title, by=self._by)

    def answer(self, question: QuestionAsked, value: Any, *, is_text: bool = False) -> None:
        """Reply to a question of the conversation or of one of its runs.

        Raises:
            ReplyInvalid: The value does not fit the question.
            QuestionUnknown: The question has a reply already.
        """
        self._runtime.answer(question.run, question.question.id, value, is_text=is_text, by=self._by)
        self.questions.close(question.run, question.question.id)
        if not self.runs.is_executing(question.run):
            self._is_ready.clear()  # the turn continues

    def is_of_agent(self, run: str) -> bool:
        """Return whether a run is this conversation, or one with an agent that was asked, and not one of a skill."""
        row = None if run == self.run_id else self._runtime.journal.find(run)
        return run == self.run_id or (row is not None and row.skill.startswith(PREFIX))

    # -- the run --------------------------------------------------------------------------------------

    def _start_task(self, *, is_new: bool, text: str = "") -> None:
        self._stopped = None
        self._is_busy = True  # perhaps it continues a turn
        self._is_ready.clear()
        self._driving = asyncio.ensure_future(self._execute(is_new=is_new, text=text))

    async def _execute(self, *, is_new: bool, text: str) -> None:
        """Execute the run until it ends or stops, and tell everyone who waits for a reply."""
        try:
            result = await self._result(is_new=is_new, text=text)
            self._usage = result.usage
            failure = self._stop_error(result)
        except asyncio.CancelledError:
            raise
        except RunBusy as error:
            busy = RunBusy(f"{error.message}; what you said is in its inbox", hint=_CONTINUE_THERE)
            self._fail(busy, Stopped("busy", busy.message, busy.code, _CONTINUE_THERE))
        except RunNotResumable as error:
            row = self._runtime.find(self.run_id)
            self._fail(error, Stopped(str(row.status), row.reason, error.code, _STORED))
        except Exception as error:  # noqa: BLE001 - raised where the reply is awaited
            stopped = Stopped("failed", str(error))
            self._fail(error, stopped, is_shown=not self._waiting)
        else:
            self._fail(failure, Stopped(str(result.status), result.reason, result.code, result.hint))

    def _stop_error(self, result: RunResult) -> ChatStopped:
        return ChatStopped(
            f"conversation `{self.run_id}` is {result.status}: {result.reason}",
            run_id=self.run_id,
            status=str(result.status),
            history=self._history(),
            hint=result.hint or None,
            action=self._runtime.next_action(self._runtime.find(self.run_id)),
        )

    def _history(self) -> NormalizedMessageList:
        """Return the messages; there are none if the first turn failed."""
        try:
            return self._runtime.transcript(self.run_id)
        except RunNotFound:
            return NormalizedMessageList()

    async def _result(self, *, is_new: bool, text: str) -> RunResult:
        if is_new:
            artifact = {"type": USER_MESSAGE.name, "data": {"text": text}}
            return await self._runtime.run(
                self._skill, artifact, run_id=self.run_id, listener=self._on_event, on_delta=self._on_delta
            )
        retry = self._runtime.find(self.run_id).status == "failed"
        self._queued = deque(self._runtime.state(self.run_id).inbox.queued)  # another process may have taken some
        model, self._model = self._model, None
        return await self._runtime.resume(
            self.run_id, retry=retry, model=model, listener=self._on_event, on_delta=self._on_delta
        )

    def _fail(self, error: Exception, stopped: Stopped, *, is_shown: bool = True) -> None:
        self._stopped = stopped
        self._posted, self._abort_reason = 0, None
        self._progress.clear()
        self._is_ready.set()
        waiting = [*self._waiting.values(), *(reply for _, reply in self._early)]
        self._waiting, self._early = {}, []
        for reply in waiting:
            if reply is not None and not reply.done():
                reply.set_exception(error)
        if is_shown:
            self.publish(stopped)

    # -- people ---------------------------------------------------------------------------------------

    async def ask(self, run_id: str, question: kinds.Question) -> Any:
        """Show a question; the reply comes through the inbox. Part of the port `People`."""
        if question.is_message and run_id == self.run_id:
            self._is_busy = False
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

    def _on_delta(self, delta: ModelDelta) -> None:
        self._received += len(delta.text)
        # The summary of a compaction is no reply: no frame precedes it.
        if self._is_answering and delta.run_id == self.run_id and (text := self._partial_reply.feed(delta.text)):
            self._partial.append(text)
            self.publish(Delta(text))

    def _on_event(self, event: Event) -> None:
        body = decode(event)
        if isinstance(body, kinds.SubRunStarted) and body.background and not body.problem:
            self.publish(RunStarted(body.run, body.skill, background=True))
            self.runs.start(body.run, event.run_id)
        if isinstance(body, kinds.SubRunStarted) and not body.background:
            self._skills[body.run] = body.skill
            self.publish(RunStarted(body.run, body.skill))
        if isinstance(body, kinds.SubRunCompleted):
            self._progress.pop(body.run, None)
            self._skills.pop(body.run, None)
            self.publish(RunReported(body.run, "failed" if body.artifact is None else "finished", body.error))
        if isinstance(body, kinds.PhaseStarted) and event.run_id in self._skills:
            item = RunProgressed(event.run_id, self._skills[event.run_id], body.phase, body.visit)
            self._progress[event.run_id] = item
            self.publish(item)
        if event.run_id == self.run_id:
            self._on_own_event(body)

    def _on_own_event(self, body: Any) -> None:
        content = self._runtime.content
        match body:
            case kinds.RunStarted():
                self._take(MessageReceived(msgspec.json.decode(content(body.input.hash))["data"]["text"], self._by))
                early, self._early = self._early, []
                for text, reply in early:
                    self.post(text, reply)
            case kinds.MessageQueued():
                self._queued.append(body)
            case kinds.MessageTaken():
                taken = self._queued.popleft()
                self._answering = (taken.message, taken.run)
                self._take(MessageReceived(content(body.text).decode(), taken.by, taken.run))
            case kinds.WaitAnswered(is_message=True):
                self._answering = (body.message, "")
                self._take(MessageReceived(msgspec.json.decode(content(body.value)), body.by))
            case kinds.TranscriptExtended() if self._abort_reason is not None:  # the turn has begun
                reason, self._abort_reason = self._abort_reason, None
                self.abort(reason)
            case kinds.PhaseStarted():
                self._progress.clear()
            case kinds.FrameBuilt():
                self._begin_answer()
            case kinds.LlmResponded(usage=usage):
                self._is_answering = False
                self._usage += usage or kinds.Usage()
            case kinds.ModelRetried(message=reason) | kinds.ModelSwitched(message=reason):
                self._restart(reason)
            case kinds.ValidationError(path=path, message=reason):
                self._restart(f"{path}: {reason}")
            case kinds.OpStarted():
                arguments = msgspec.json.decode(content(body.args))
                self._names[body.call] = name = f"{body.op_kind}_{body.op}" if body.op else body.op_kind
                fields = {key: value for key, value in arguments.items() if key not in ("kind", "op")}
                self.publish(OpRequested(body.call, name, fields))
            case kinds.OpCompleted() | kinds.PermissionDenied():
                result = msgspec.json.decode(content(body.result))
                status = body.status if isinstance(body, kinds.OpCompleted) else "denied"
                self.publish(OpFinished(body.call, self._names.pop(body.call, body.op_kind), status, result))
            case kinds.ArtifactStored():
                text = msgspec.json.decode(content(body.artifact.hash))["data"].get("text", "")
                self._reply(Reply(str(text), "replied", self._usage))
            case kinds.PhaseAborted(code=code, reason=reason) if code:
                self._reply(Reply(unanswered_text(reason), "unanswered", self._usage))
            case kinds.PhaseAborted():
                self._reply(Reply("", "aborted", self._usage))

    def _take(self, message: MessageReceived) -> None:
        """A turn begins with a message, and ends with its reply."""
        self._is_busy = True
        if not message.run:
            self._posted = max(0, self._posted - 1)
        self.publish(message)

    def _begin_answer(self) -> None:
        self._is_answering = True
        self._partial, self._partial_reply, self._received = [], PartialReply(), 0

    def _restart(self, reason: str) -> None:
        if self._partial:
            self.publish(Restarted(reason))
        self._begin_answer()

    def _reply(self, reply: Reply) -> None:
        message, run = self._answering
        reply = msgspec.structs.replace(reply, run=run)
        self._is_busy, self._partial = False, []
        self.publish(reply)
        waiting = self._waiting.pop(message, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
