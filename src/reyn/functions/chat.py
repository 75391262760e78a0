"""`@llm_chat`: a conversation with a model, as an async stream of text, tool calls and the reply.

Without a key, each call is a run that starts with the caller's history; the reply holds the history of the next call.
With a key, all calls are turns of one run, which keeps the history and what the conversation remembers. An aborted
or failed turn keeps the user's message and the results of completed tool calls.
"""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, overload

from reyn.context import NormalizedMessageList
from reyn.context.transcript import NormalizedMessage, check_message, normalize
from reyn.errors import CallImpossible, FunctionInvalid
from reyn.functions.abort import AbortSignal
from reyn.functions.chat_stream import ChatCall, ChatStream, RenderedHistories
from reyn.functions.definition import (
    DEFAULT_ACT_TURNS,
    CallOptions,
    Decorated,
    Decoration,
    Definition,
    check_count,
    check_flag,
    permission_requests,
)
from reyn.functions.images import check_image
from reyn.kernel.world.run_scope import current_scope
from reyn.models import Message
from reyn.runtime import OSRuntime
from reyn.skills import USER_MESSAGE, Skill
from reyn.skills.values import END, MIN_TOKENS, ArtifactType, ConversationSettings, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reyn.kernel.world.hooks import Hook
    from reyn.kernel.world.services import Listener
    from reyn.models import Model
    from reyn.ops import Op

P = ParamSpec("P")

REPLY = ArtifactType(
    "reply",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "What the user sees.",
)
MEMORY_OPS = ("remember", "forget", "compact")
_HISTORY_NAMES = ("history", "chat_history")
_MAX_SKILLS = 64
_KEY_HINT = "Use a text that names the conversation, such as the id of the user."


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

    def __init__(self, function: Callable[..., Any], decoration: ChatDecoration) -> None:
        super().__init__(function, decoration)
        self._memory, self._max_tokens = decoration.memory, decoration.max_tokens
        self._skills: dict[tuple[str, bool], Skill] = {}
        self.rendered = RenderedHistories()
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
        if decoration.runtime is not None and not isinstance(decoration.runtime, OSRuntime):
            message = f"{self.what}: `runtime` is a {type(decoration.runtime).__name__}"
            raise FunctionInvalid(message, hint="Pass an `OSRuntime`.")

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
        has_key = options.key is not None
        skill = self._skills.get((instructions, has_key))
        if skill is None:
            skill = self._build_skill(instructions, has_key=has_key)
            while len(self._skills) >= _MAX_SKILLS:
                self._skills.pop(next(iter(self._skills)))
            self._skills[instructions, has_key] = skill
        return skill

    def _build_skill(self, instructions: str, *, has_key: bool) -> Skill:
        decoration, name = self.decoration, self.skill_name
        memory = MEMORY_OPS if has_key and self._memory else ()
        allowed = (*(op.spec.kind for op in decoration.toolkit), *memory)
        phase = Phase(
            name,
            (USER_MESSAGE,),
            instructions,
            can_finish=not has_key,
            allowed_ops=allowed,
            max_act_turns=decoration.max_act_turns if allowed else 0,
            conversation=ConversationSettings(self._max_tokens),
        )
        return Skill(
            name,
            name,
            {name: phase},
            {name: (name,) if has_key else (END,)},
            REPLY,
            description=" ".join(instructions.partition("\n\n")[0].split())[:200],
            permissions=permission_requests(decoration.toolkit),
            function=self.place,
        )

    def run_id(self, key: str) -> str:
        """Return the run of the conversation with a key."""
        return f"{self.skill_name}-{hashlib.sha256(f'{self.place} {key}'.encode()).hexdigest()[:20]}"


class LLMChat(Decorated, Generic[P]):
    """A conversation with a model: `async for item in chat("hello", history)`, or `reply = await chat("hello")`."""

    def __init__(self, definition: ChatDefinition, options: ChatOptions | None = None) -> None:
        super().__init__(definition)
        self._definition = definition
        self._options = options or ChatOptions()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ChatStream:
        """Say something. The stream does nothing before it is read or awaited.

        Raises:
            MessageInvalid: The message or one of the history is malformed.
            TranscriptInvalid: A tool call of the history does not have exactly one result.
        """
        message, history = self._definition.bind(args, kwargs)
        options = self._options
        if options.key is not None and history.length:
            raise CallImpossible(
                f"{self._definition.what}: the conversation `{options.key}` has a history of its own",
                hint="Pass `history`, or a `key`, not both.",
            )
        return ChatStream(ChatCall(self._definition, options, message, history))

    def resume(self) -> ChatStream:
        """Continue a turn that was interrupted, for instance by the end of the process, and stream its reply.

        Raises:
            CallImpossible: The options name neither a key nor a run.
        """
        return ChatStream(ChatCall(self._definition, self._options, None, NormalizedMessageList()))

    def options(
        self,
        *,
        key: str | None = None,
        abort: AbortSignal | None = None,
        run_id: str | None = None,
        template_params: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> LLMChat[P]:
        """Return the chat with options for its calls. The chat itself stays as it is.

        Args:
            key: The name of a conversation that Reyn keeps: each call is its next turn, also in another process.
            abort: Aborts the turn that is in progress.
            run_id: The run of a call without a key; generated by default.
            template_params: Values of the parameters of the docstring.
            listener: Called with every event of the run once it is durable.
        """
        if key is not None:
            _check_key(key, self._definition.what)
        if abort is not None and not isinstance(abort, AbortSignal):
            raise CallImpossible(
                f"{self._definition.what}: `abort` is a {type(abort).__name__}", hint="Pass an `AbortSignal`."
            )
        changes = {"key": key, "abort": abort, "run_id": run_id, "listener": listener}
        options = self._options.changed(self._definition.what, template_params, **changes)
        return LLMChat(self._definition, options)

    async def fork(self, key: str) -> LLMChat[P]:
        """Copy the conversation with the key of the options; return the chat with the key of the copy.

        The copy has the messages and the memory so far, and both go on independently.

        Args:
            key: The key of the copy.

        Raises:
            CallImpossible: The options name no key, or the new key is the same or no text.
            RunNotFound: The conversation does not exist.
            RunIdTaken: There is a conversation with the new key.
        """
        definition, run = self._definition, self.conversation
        copy = self.options(key=key)
        if run is None or copy.conversation == run:
            raise CallImpossible(
                f"{definition.what}: pass the key of the new conversation; the chat needs a key, too",
                hint='Call `chat.options(key="a").fork("b")`.',
            )
        runtime = definition.view(await definition.async_runtime(current_scope()))
        await runtime.fork(run, run_id=copy.conversation)
        # A fork begins after the last reply; what the program changed in the memory since then comes after it.
        now, then = ({one.text: one.id for one in runtime.memory(name)} for name in (run, copy.conversation))
        for text in then.keys() - now.keys():
            runtime.forget(copy.conversation, then[text])
        for text in now:
            if text not in then:
                runtime.remember(copy.conversation, text)
        return copy

    @property
    def conversation(self) -> str | None:
        """The run of the conversation with the key of the options."""
        key = self._options.key
        return self._definition.run_id(key) if key is not None else None


def _check_key(key: object, what: str) -> None:
    if not isinstance(key, str):
        raise CallImpossible(f"{what}: the key is a {type(key).__name__}, not text", hint=_KEY_HINT)
    if not key.strip():
        raise CallImpossible(f"{what}: the key is blank", hint=_KEY_HINT)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise CallImpossible(
            f"{what}: the key has a lone surrogate at character {error.start}", hint=_KEY_HINT
        ) from error


class _Decorator:
    """`@llm_chat(…)` with arguments."""

    def __init__(self, decoration: ChatDecoration) -> None:
        self._decoration = decoration

    def __call__(self, function: Callable[P, Any]) -> LLMChat[P]:
        return LLMChat(ChatDefinition(function, self._decoration))


@overload
def llm_chat(function: Callable[P, Any], /) -> LLMChat[P]: ...


@overload
def llm_chat(
    *,
    llm_interface: Model | str | None = None,
    toolkit: Sequence[Op] = (),
    runtime: OSRuntime | None = None,
    template_params: Mapping[str, Any] | Sequence[str] | None = None,
    memory: bool = True,
    max_tokens: int = ConversationSettings().max_tokens,
    max_act_turns: int = DEFAULT_ACT_TURNS,
    max_retries: int | None = None,
    hooks: Sequence[Hook] = (),
    include_must_principles: bool = False,
) -> _Decorator: ...


def llm_chat(
    function: Callable[..., Any] | None = None,
    /,
    *,
    llm_interface: Model | str | None = None,
    toolkit: Sequence[Op] = (),
    runtime: OSRuntime | None = None,
    template_params: Mapping[str, Any] | Sequence[str] | None = None,
    memory: bool = True,
    max_tokens: int = ConversationSettings().max_tokens,
    max_act_turns: int = DEFAULT_ACT_TURNS,
    max_retries: int | None = None,
    hooks: Sequence[Hook] = (),
    include_must_principles: bool = False,
) -> Any:
    """Turn a Python function into a conversation with a model. The body of the function is never executed.

    The docstring is the system prompt; a system message in the history replaces it. The first parameter of the function
    is the user's message. A second parameter named `history` takes earlier messages, if the caller keeps them.

    Args:
        function: The function, if the decorator is used without arguments.
        llm_interface: A model, or the name of one; default: the `model` of the project.
        toolkit: Tools that the model may call. The function needs no further permission for them, but the operator's
            rules can still deny a tool or ask.
        runtime: The runtime that executes and records calls; default: the project of the current folder.
        template_params: Names of parameters that the docstring contains as `{name}`, or a mapping of names to default
            values.
        memory: Whether a conversation with a key has the ops `remember`, `forget` and `compact`.
        max_tokens: The size of a conversation with a key above which a summary replaces older messages.
        max_act_turns: Maximum number of turns of one call in which the model uses tools.
        max_retries: Maximum number of retries after rejected answers; default: `max_phase_retries` of the project.
        hooks: Functions that Reyn calls before each model call; they return mutations of the transcript.
        include_must_principles: Whether to add the rule that tools are called through the tool call interface only.
            Set it for models that write tool calls as text.

    Raises:
        FunctionInvalid: The function cannot be a conversation.
    """
    decoration = ChatDecoration(
        llm_interface,
        toolkit,
        runtime,
        template_params,
        max_act_turns,
        max_retries,
        hooks,
        include_must_principles,
        memory,
        max_tokens,
    )
    decorator = _Decorator(decoration)
    return decorator if function is None else decorator(function)


__all__ = ["ChatStream", "LLMChat", "llm_chat"]
