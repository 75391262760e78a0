"""The calls of a chat: what a decorated function is made of, and a call as one turn of a `Conversation`."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.chat import (
    ChatItem,
    Conversation,
    MessageReceived,
    OpFinished,
    OpRequested,
    Reply,
    ReplyDelta,
    Restarted,
    Stopped,
)
from reyn.context import NormalizedMessageList
from reyn.context.histories import HISTORIES, RenderedMessages
from reyn.context.render import rendered_message
from reyn.context.transcript import NormalizedMessage, check_message, normalize
from reyn.errors import CallImpossible, ChatStopped, FunctionInvalid
from reyn.functions.definition import (
    MAX_SKILLS,
    CallOptions,
    Decoration,
    Definition,
    check_count,
    check_flag,
    enclosing,
)
from reyn.functions.images import check_image
from reyn.kernel.world.run_scope import current_scope
from reyn.models import Message
from reyn.skills import USER_MESSAGE, Skill
from reyn.skills.values import MIN_TOKENS, ArtifactType, ConversationSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from reyn.kernel.core.snapshot import RunState
    from reyn.runtime import OSRuntime, RunResult

_QUESTION = "A person answers the question first, for example with `OSRuntime.answer`; then call `resume`."
_LEFT = "the caller left the stream"
REPLY = ArtifactType(
    "reply",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "What the user sees.",
)
MEMORY_OPS = ("remember", "forget", "compact")
_HISTORY_NAMES = ("history", "chat_history")


class AbortSignal:
    """Aborts the turns that were started with it, those in progress and later ones. It cannot be taken back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._subscribers: list[Callable[[str], object]] = []

    def __repr__(self) -> str:
        return f"<AbortSignal {'aborted' if self.is_aborted else 'not aborted'}>"

    @property
    def is_aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._reason is not None

    @property
    def reason(self) -> str:
        """The reason of the abort; empty without one."""
        return self._reason or ""

    def abort(self, reason: str = "") -> None:
        """Abort. Only the first call has an effect."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            subscriber(reason)

    def subscribe(self, subscriber: Callable[[str], object]) -> Callable[[], None]:
        """Call a function with the reason at the abort, or now if it has happened; return a function to unsubscribe."""
        with self._lock:
            reason = self._reason
            self._subscribers.append(subscriber)
        if reason is not None:
            subscriber(reason)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers.remove(subscriber)

        return unsubscribe


@dataclass(frozen=True)
class ChatOptions(CallOptions):
    """The options of calls of a chat; see `LLMChat.options`."""

    key: str | None = None
    abort: AbortSignal | None = None


@dataclass(frozen=True)
class ChatDecoration(Decoration):
    """The arguments of `llm_chat`."""

    memory: bool = True
    max_tokens: int = ConversationSettings().max_tokens


class ChatDefinition(Definition):
    """What a function with `@llm_chat` is made of."""

    decorator = "llm_chat"
    noun = "chat"
    is_async = True

    def __init__(self, function: Callable[..., Any], decoration: ChatDecoration) -> None:
        super().__init__(function, decoration)
        self._memory, self._max_tokens = decoration.memory, decoration.max_tokens
        self._skill_of = lru_cache(MAX_SKILLS)(self._build_skill)
        self.rendered = RenderedMessages()
        self._signature = inspect.signature(function)
        names = list(self._signature.parameters)
        self.history_name = next((name for name in names if name in _HISTORY_NAMES), None)
        messages = [name for name in names if name not in _HISTORY_NAMES]
        if len(messages) != 1:
            hint = "Declare the user's message, and `history` if the caller keeps it."
            raise FunctionInvalid(f"{self.what} has the parameters {', '.join(names) or 'none'}", hint=hint)
        self.message_name = messages[0]
        check_count(decoration.max_tokens, "max_tokens", MIN_TOKENS, self.what)
        check_flag(decoration.memory, "memory", self.what)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Message, NormalizedMessageList]:
        """Return message and history of a call.

        Raises:
            TypeError: The arguments do not fit the signature.
            MessageInvalid: The message or one of the history is malformed.
            TranscriptInvalid: The history has a tool call without exactly one result.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments[self.message_name]
        message = given if isinstance(given, Message) else Message("user", given)
        text: object = message.text
        if not isinstance(text, str) or message.role != "user":
            hint = "Pass a text, or a `Message` of the user."
            raise CallImpossible(f"{self.what}: the message is a {type(given).__name__}", hint=hint)
        check_message(NormalizedMessage("user", text))
        earlier = bound.arguments.get(self.history_name or "") or ()
        history = normalize(earlier)
        # The history of a reply was checked when it came in.
        unchecked = () if isinstance(earlier, NormalizedMessageList) else history.tail(history.length)
        for image in (*message.images, *(image for one in unchecked for image in one.images)):
            check_image(image)
        return message, history

    def skill(self, options: ChatOptions, system: str | None) -> Skill:
        """Return the skill of a call: one phase that is a conversation. With a key, it continues after the reply.

        A system message in the history takes the place of the docstring.
        """
        instructions = self.instructions(dict(options.template_params), system)
        return self._skill_of(instructions, has_key=options.key is not None)

    def _build_skill(self, instructions: str, *, has_key: bool) -> Skill:
        return self.one_phase_skill(
            USER_MESSAGE,
            instructions,
            REPLY,
            " ".join(instructions.partition("\n\n")[0].split())[:200],
            more_ops=MEMORY_OPS if has_key and self._memory else (),
            conversation=ConversationSettings(self._max_tokens),
            is_endless=has_key,
        )

    def run_id(self, key: str) -> str:
        """Return the run of the conversation with a key."""
        return f"{self.skill_name}-{hashlib.sha256(f'{self.place} {key}'.encode()).hexdigest()[:20]}"


class ChatReply(Reply, frozen=True, tag="reply"):
    """The end of a call, the last item of its stream.

    Attributes:
        history: The conversation after the call. Pass it to the next call, unless the conversation has a key.
        run_id: The run.
    """

    history: NormalizedMessageList = NormalizedMessageList()
    run_id: str = ""


class ChatStream:
    """The stream of one call. Iterate over it, or await it for the reply alone.

    Leaving the loop early, or closing the stream, aborts the turn.
    """

    def __init__(
        self, definition: ChatDefinition, options: ChatOptions, message: Message | None, history: NormalizedMessageList
    ) -> None:
        self._definition = definition
        self._options = options
        self._message = message
        self._history = history
        self._items = self._stream()
        self._found: ChatReply | None = None
        self._runtime: OSRuntime

    def __aiter__(self) -> ChatStream:
        return self

    async def __anext__(self) -> ChatItem:
        item = await anext(self._items)
        if isinstance(item, ChatReply):
            self._found = item
        return item

    def __await__(self) -> Generator[Any, None, ChatReply]:
        return self._reply().__await__()

    async def _reply(self) -> ChatReply:
        async for _ in self:
            pass
        if self._found is None:
            raise CallImpossible("the stream ended before the reply", hint="Call the chat again.")
        return self._found

    async def aclose(self) -> None:
        """Abort the turn, if it is still in progress, and wait until it is recorded."""
        await self._items.aclose()

    async def _stream(self) -> AsyncGenerator[ChatItem]:
        """Yield the items of the turn; the last one is the reply.

        Raises:
            ChatStopped: The turn did not end with a reply. The error has the history with the user's message.
        """
        definition, options = self._definition, self._options
        self._runtime = definition.view(await definition.async_runtime(current_scope()))
        conversation = await self._begin()
        loop = asyncio.get_running_loop()
        signal = options.abort or AbortSignal()
        unsubscribe = signal.subscribe(lambda reason: loop.call_soon_threadsafe(conversation.abort, reason))
        found: Reply | None = None
        text = ""
        try:
            while (item := await conversation.next_item()) is not None and not isinstance(item, Stopped):
                match item:
                    case MessageReceived():
                        continue
                    case Reply():
                        found = item
                        continue
                    case ReplyDelta():
                        text += item.text
                    case Restarted() | OpRequested() | OpFinished():
                        text = ""
                yield item
            if conversation.failure is not None:
                raise conversation.failure
            assert conversation.result is not None
            reply = self._end(conversation.result, found)
            if reply.text not in ("", text):
                yield ReplyDelta(reply.text)
            yield reply
        finally:
            unsubscribe()
            await conversation.abandon(_LEFT)

    # -- the run --------------------------------------------------------------------------------------

    async def _begin(self) -> Conversation:
        """Start the run of the call, or the next turn of a conversation with a key."""
        options, what, message = self._options, self._definition.what, self._message
        run_id = options.run_id if options.key is None else self._definition.run_id(options.key)
        if message is None:
            if run_id is None:
                raise CallImpossible(f"{what}: `resume` needs a key or a run id")
            if options.key is not None and not self._runtime.runs.is_recorded(run_id):
                raise CallImpossible(f"{what}: the conversation `{options.key}` does not exist")
            return self._resumed(run_id)
        if options.key is not None and run_id is not None and self._runtime.runs.is_recorded(run_id):
            await self._post(message, run_id)
            return self._resumed(run_id, is_waiting=True)
        history = self._history
        if message.images:  # a run's input is text; the images come right before it
            history = history.append(NormalizedMessage("user", "", message.images))
        system = history.system.text if history.system is not None else None
        conversation = self._conversation(run_id, self._definition.skill(options, system))
        conversation.begin(message.text, history=history, within=enclosing(current_scope(), self._runtime, run_id))
        return conversation

    def _conversation(self, run_id: str | None, skill: Skill | None = None) -> Conversation:
        return Conversation(lambda _: self._runtime, skill, run_id or "", listener=self._options.listener)

    def _resumed(self, run_id: str, *, is_waiting: bool = False) -> Conversation:
        conversation = self._conversation(run_id)
        conversation.resume(is_waiting=is_waiting)
        return conversation

    async def _post(self, message: Message, run_id: str) -> None:
        """Send the next message of a conversation with a key.

        If the last turn failed or was interrupted, what it has done stays, and the new message takes its place. A turn
        that is being executed, here or in another process, goes on: the claim raises `RunBusy`.
        """
        runtime = self._runtime
        row = runtime.runs.find(run_id)
        if row.wait is None:
            with runtime.services.journal.claim(run_id):
                runtime.conversations.abort_turn(run_id, "a new message came before the reply")
            await runtime.resume(run_id, retry=True)
            row = runtime.runs.find(run_id)
        if row.wait is None or not row.wait.is_message:
            raise self._stopped(run_id, str(row.status), row.reason)
        runtime.conversations.say(run_id, message.text, images=message.images)

    # -- the end --------------------------------------------------------------------------------------

    def _end(self, result: RunResult, found: Reply | None) -> ChatReply:
        """Return the reply of a turn. A run that has ended before has a result, and no items."""
        run_id, state = result.run_id, self._runtime.runs.state(result.run_id)
        history = self._history_after(state)
        goes_on = self._options.key is not None and result.question is not None and result.question.is_message
        if (found is None or found.status == "replied") and not goes_on and result.status != "finished":
            raise self._stopped(run_id, str(result.status), result.reason, result.hint, history)
        if found is None:
            assert state.output.artifact is not None
            found = Reply(msgspec.json.decode(self._runtime.runs.content(state.output.artifact.hash))["data"]["text"])
        return ChatReply(found.text, found.status, result.usage, history=history, run_id=run_id)

    def _history_after(self, state: RunState) -> NormalizedMessageList:
        """Return the history of the caller with what the run has added, or the whole conversation with a key."""
        found, content = state.conversations.get(self._definition.skill_name), self._runtime.runs.content
        if found is None:  # the run stopped before its first turn
            said = () if self._message is None else (NormalizedMessage("user", self._message.text),)
            return self._history.append(*said)
        # The list of the run shares its memory with the one that the next call extends.
        before = HISTORIES.load(found.history, content)
        rendered = self._definition.rendered.render(
            state.run_id,
            found.messages,
            lambda message: _as_seen(message, content),
            lambda: (NormalizedMessageList(), before),
        )
        return rendered.with_system(self._history.system)

    def _stopped(
        self,
        run_id: str,
        status: str,
        reason: str,
        hint: str = "",
        history: NormalizedMessageList | None = None,
    ) -> ChatStopped:
        if history is None:
            history = self._history_after(self._runtime.runs.state(run_id))
        message = f"{self._definition.what}: run `{run_id}` is {status}: {reason}"
        row = self._runtime.runs.find(run_id)
        action = self._runtime.runs.next_action(row)
        if row.wait is not None and not row.wait.is_message:
            hint = hint or _QUESTION
        return ChatStopped(message, run_id=run_id, status=status, history=history, hint=hint or None, action=action)


def _as_seen(message: NormalizedMessage, content: Callable[[str], bytes]) -> NormalizedMessage:
    """Return a message with its text. Of a reply that was recorded as JSON, this is what the user saw."""
    rendered = rendered_message(message, content, with_images=True)
    is_json = message.role == "assistant" and not message.status and not any(part.reply for part in message.parts)
    try:
        answer = msgspec.json.decode(rendered.text) if is_json else None
    except (msgspec.DecodeError, RecursionError):
        return rendered
    match answer:
        case {"data": {"text": str(text)}} | {"artifact": {"data": {"text": str(text)}}}:
            return msgspec.structs.replace(rendered, text=text)
    return rendered
