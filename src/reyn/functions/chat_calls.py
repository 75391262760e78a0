"""The calls of a chat: what a decorated function is made of, and a call as one turn of a `Conversation`."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from reyn.chat import ChatItem, Conversation, Reply
from reyn.chat.conversation import ReplyStream
from reyn.chat.conversation_run import Beginning
from reyn.chat.recorded import unanswered_error
from reyn.context import NormalizedMessageList
from reyn.context.messages import user_message
from reyn.context.transcript import normalize
from reyn.errors import CallImpossible, FunctionInvalid
from reyn.functions.definition import (
    MAX_SKILLS,
    CallOptions,
    Decoration,
    Definition,
    check_count,
    check_flag,
    check_option,
    enclosing,
)
from reyn.functions.images import check_image
from reyn.functions.option_names import arguments_error
from reyn.journal import digest
from reyn.kernel.world.inbox import stored_images
from reyn.kernel.world.run_scope import call_name, current_scope
from reyn.skills import USER_MESSAGE, Skill
from reyn.skills.names import is_reserved_phase_name, is_valid_name
from reyn.skills.values import MIN_TOKENS, ArtifactType, ConversationSettings

if TYPE_CHECKING:
    from reyn.models import Message
    from reyn.runtime import OSRuntime

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
    raise_limits: Mapping[str, int | None] | None = None
    """See `LLMChat.resume`."""


@dataclass(frozen=True)
class ChatDecoration(Decoration):
    """The arguments of `llm_chat`."""

    name: str | None = None
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
        self._own_name = decoration.name
        if decoration.name is not None:
            name: object = decoration.name
            is_valid = isinstance(name, str) and is_valid_name(name) and not is_reserved_phase_name(name)
            expected = "a letter, then letters, digits, `_` and `-`, such as `support`"
            check_option(name, "name", self.what, is_valid=is_valid, expected=expected)
            self.skill_name = decoration.name
        self._skill_of = lru_cache(MAX_SKILLS)(self._build_skill)
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
            ArgumentsInvalid: The arguments do not fit the signature.
            MessageInvalid: The message or one of the history is malformed.
            TranscriptInvalid: The history has a tool call without exactly one result.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise arguments_error(self.what, error, kwargs, self._signature.parameters) from error
        bound.apply_defaults()
        message = user_message(bound.arguments[self.message_name])
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
        named = f"{self._own_name or self.place} {key}"
        return f"{self.skill_name}-{hashlib.sha256(named.encode()).hexdigest()[:20]}"


class ChatReply(Reply, frozen=True, tag="reply"):
    """The end of a call, the last item of its stream.

    Attributes:
        history: The conversation after the call. Pass it to the next call, unless the conversation has a key.
        run_id: The run.
    """

    history: NormalizedMessageList = NormalizedMessageList()
    run_id: str = ""


class ChatStream(ReplyStream):
    """The stream of one call. Iterate over it, or await it for the reply alone.

    Leaving the loop early, or closing the stream, aborts the turn.
    """

    def __init__(
        self, definition: ChatDefinition, options: ChatOptions, message: Message | None, history: NormalizedMessageList
    ) -> None:
        opened: list[Conversation] = []

        def leave() -> None:
            for conversation in opened:
                conversation.leave_soon()

        super().__init__(_stream(definition, options, message, history, opened), leave)
        self._found: ChatReply | None = None

    async def _next(self) -> ChatItem:
        item = await super()._next()
        if isinstance(item, ChatReply):
            self._found = item
        return item

    def __await__(self) -> Generator[Any, None, ChatReply]:
        return self._reply().__await__()

    async def _reply(self) -> ChatReply:
        with suppress(StopAsyncIteration):
            while True:
                await anext(self)
        if self._found is None:
            raise CallImpossible("the stream ended before the reply", hint="Call the chat again.")
        return self._found


async def _stream(
    definition: ChatDefinition,
    options: ChatOptions,
    message: Message | None,
    history: NormalizedMessageList,
    opened: list[Conversation],
) -> AsyncGenerator[ChatItem]:
    """Yield the items of the turn; the last one is the reply. The conversation is added to `opened`.

    Raises:
        ChatStopped: The turn did not end with a reply. The error has the history with the user's message.
    """
    runtime = definition.view(await definition.async_runtime(current_scope()))
    conversation = _open(runtime, definition, options, message, history)
    opened.append(conversation)
    loop, unanswered = asyncio.get_running_loop(), None
    unsubscribe = (options.abort or AbortSignal()).subscribe(
        lambda reason: loop.call_soon_threadsafe(conversation.abort, reason)
    )
    try:
        async with aclosing(conversation.stream(message, raise_limits=options.raise_limits)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    if item.status == "unanswered":
                        unanswered = item  # the run has still to record its end
                        continue
                    outcome = (item.text, item.status, item.usage, item.run, item.reason, item.code)
                    item = ChatReply(*outcome, conversation.history, conversation.run_id)
                yield item
    finally:
        unsubscribe()
    if unanswered is not None:
        raise unanswered_error(runtime.runs, conversation.run_id, unanswered, conversation.history)


def _open(
    runtime: OSRuntime,
    definition: ChatDefinition,
    options: ChatOptions,
    message: Message | None,
    history: NormalizedMessageList,
) -> Conversation:
    """Return the conversation of the call."""
    key = options.key
    run_id = options.run_id if key is None else definition.run_id(key)
    if message is None and run_id is None:
        raise CallImpossible(f"{definition.what}: `resume` needs a key or a run id")
    if message is None and key is not None and run_id and not runtime.runs.is_recorded(run_id):
        raise CallImpossible(f"{definition.what}: the conversation `{key}` does not exist")
    system = history.system.text if history.system is not None and history.system.text.strip() else None
    skill = definition.skill(options, system)
    # What can differ from call to call comes with the message; otherwise the run keeps its first instructions.
    changes = definition.is_template or system is not None
    instructions = skill.phases[skill.entry].instructions if changes else None
    within = enclosing(current_scope(), runtime, run_id)
    beginning = Beginning(skill, history, within, is_single_turn=key is None, instructions=instructions)
    scope = current_scope()
    if scope is not None and key is not None and run_id is not None and message is not None:
        # Like the id of a sub-run, it derives from the call of the op and from what is said.
        name = call_name(
            digest(run_id.encode()), digest(message.text.encode()), images=stored_images(message.images)[0]
        )
        sender = f"{scope.tape.run_id}.{scope.next_key(name)}"
        beginning = beginning._replace(sender=sender, is_repeated=scope.is_repeated)
    return Conversation(lambda _: runtime, beginning, run_id or "", listener=options.listener)
