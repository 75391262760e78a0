"""`@llm_chat`: a conversation with a model, as an async stream of text, tool calls and the reply.

Without a key, each call is a run that starts with the caller's history; the reply holds the history of the next call.
With a key, all calls are turns of one run, which keeps the history and what the conversation remembers. An aborted
or failed turn keeps the user's message and the results of completed tool calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, overload

import msgspec

from reyn.context import NormalizedMessage, NormalizedMessageList, normalize, rendered_message
from reyn.context.histories import HISTORIES
from reyn.context.transcript import check_message
from reyn.errors import CallImpossible, ChatStopped, FunctionInvalid, RunNotResumable
from reyn.functions import ambient
from reyn.functions.abort import AbortSignal
from reyn.functions.images import check_image
from reyn.functions.options import check_count, check_toolkit
from reyn.functions.skill import Template, skill_name
from reyn.journal import decode, kinds
from reyn.kernel.nesting import current_scope
from reyn.models import Message
from reyn.runtime import OSRuntime, SyncRuntime
from reyn.skills import USER_MESSAGE, Skill
from reyn.skills.values import END, MIN_TOKENS, ArtifactType, ConversationSettings, Phase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence

    from reyn.journal import Event
    from reyn.kernel.live import Listener
    from reyn.kernel.snapshot import RunState
    from reyn.models import Delta, Model
    from reyn.ops import Op
    from reyn.runtime import RunResult

    History = Iterable[Message | dict[str, Any]]

P = ParamSpec("P")

REPLY = ArtifactType(
    "reply",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "What the user sees.",
)
MEMORY_OPS = ("remember", "forget", "compact")
_HISTORY_NAMES = ("history", "chat_history")
_DEFAULT_ACT_TURNS = 10
_QUESTION = "A person answers the question first, for example with `OSRuntime.answer`; then call `resume`."
_LEFT = "the caller left the stream"


class ChatText(msgspec.Struct, frozen=True):
    """A piece of the model's text."""

    text: str


class ChatToolCall(msgspec.Struct, frozen=True):
    """The model calls a tool, and the permission gate allows it.

    Attributes:
        id: The call, unique in the run.
        name: The tool; `kind` and form of a built-in op, such as `file_read`.
        arguments: Its arguments.
    """

    id: str
    name: str
    arguments: dict[str, Any]


class ChatToolResult(msgspec.Struct, frozen=True):
    """A tool call has a result.

    Attributes:
        id: The call.
        name: The tool.
        status: `ok`, `error`, `denied`, `skipped` or `timeout`.
        result: What the model sees.
    """

    id: str
    name: str
    status: str
    result: dict[str, Any]


class ChatRestart(msgspec.Struct, frozen=True):
    """The model is called again: the text of this turn that arrived before is void.

    Attributes:
        reason: Why: a retried error, or an answer that violates the contract.
    """

    reason: str


class ChatReply(msgspec.Struct, frozen=True):
    """The end of a call, the last item of its stream.

    Attributes:
        text: The reply; empty if the turn was aborted.
        history: The conversation after the call. Pass it to the next call, unless the conversation has a key.
        run_id: The run.
        status: `replied` or `aborted`.
        usage: The tokens of the run so far.
    """

    text: str
    history: NormalizedMessageList
    run_id: str
    status: Literal["replied", "aborted"] = "replied"
    usage: kinds.Usage = kinds.Usage()


ChatItem = ChatText | ChatToolCall | ChatToolResult | ChatRestart | ChatReply


class _Options(msgspec.Struct, frozen=True):
    key: str | None = None
    abort: AbortSignal | None = None
    run_id: str | None = None
    template_params: tuple[tuple[str, Any], ...] = ()
    listener: Any = None


class _Decoration(msgspec.Struct, frozen=True):
    """The arguments of the decorator."""

    llm_interface: Any = None
    toolkit: Any = ()
    runtime: Any = None
    template_params: Any = None
    memory: bool = True
    max_tokens: int = ConversationSettings().max_tokens
    max_act_turns: int = _DEFAULT_ACT_TURNS
    max_retries: int | None = None


class _Definition:
    """What a decorated function is made of, shared by all of its calls."""

    def __init__(self, function: Callable[..., Any], decoration: _Decoration) -> None:
        self.function = function
        self.decoration = decoration
        self.name = function.__name__
        self.what = f"chat `{self.name}`"
        self.skill_name = skill_name(self.name)
        self.place = f"{_module_name(function)}:{function.__qualname__}"
        text = inspect.getdoc(function) or ""
        if not text.strip():
            raise FunctionInvalid(f"{self.what} has no docstring", hint="Write one: it is the system prompt.")
        self._template = Template(text, decoration.template_params, self.what)
        self._signature = inspect.signature(function)
        names = list(self._signature.parameters)
        self.history_name = next((name for name in names if name in _HISTORY_NAMES), None)
        messages = [name for name in names if name not in _HISTORY_NAMES]
        if len(messages) != 1:
            hint = "Declare the user's message, and `history` if the caller keeps it."
            raise FunctionInvalid(f"{self.what} has the parameters {', '.join(names) or 'none'}", hint=hint)
        self.message_name = messages[0]
        toolkit = check_toolkit(decoration.toolkit, self.what)
        self.decoration = msgspec.structs.replace(decoration, toolkit=toolkit)
        check_count(decoration.max_act_turns, "max_act_turns", 0, self.what)
        check_count(decoration.max_retries, "max_retries", 0, self.what)
        check_count(decoration.max_tokens, "max_tokens", MIN_TOKENS, self.what)
        if decoration.runtime is not None and not isinstance(decoration.runtime, OSRuntime):
            message = f"{self.what}: `runtime` is a {type(decoration.runtime).__name__}"
            raise FunctionInvalid(message, hint="Pass an `OSRuntime`.")
        self._views: list[tuple[Any, Any]] = []

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

    def skill(self, options: _Options, system: str | None) -> Skill:
        """Return the skill of a call: one phase that is a conversation. With a key, it goes on after the reply.

        A system message in the history takes the place of the docstring.
        """
        decoration = self.decoration
        instructions = system or self._template.fill(dict(options.template_params))
        memory = MEMORY_OPS if options.key is not None and decoration.memory else ()
        allowed = (*(op.spec.kind for op in decoration.toolkit), *memory)
        name = self.skill_name
        phase = Phase(
            name,
            (USER_MESSAGE,),
            instructions,
            can_finish=options.key is None,
            allowed_ops=allowed,
            max_act_turns=decoration.max_act_turns if allowed else 0,
            conversation=ConversationSettings(decoration.max_tokens),
        )
        requests: dict[str, list[str]] = {}
        for op in decoration.toolkit:
            if op.spec.permission:
                requests.setdefault(op.spec.permission, []).append(op.spec.kind)
        return Skill(
            name,
            name,
            {name: phase},
            {name: (END,) if options.key is None else (name,)},
            REPLY,
            description=" ".join(instructions.partition("\n\n")[0].split())[:200],
            permissions=dict(requests),
            function=self.place,
        )

    def view(self, runtime: OSRuntime) -> OSRuntime:
        """Return the runtime with the chat's tools, model and settings."""
        for base, view in self._views:
            if base is runtime:
                found: OSRuntime = view
                return found
        decoration = self.decoration
        grants: dict[str, list[dict[str, Any]]] = {}
        for op in decoration.toolkit:
            if op.spec.permission:
                grants.setdefault(op.spec.permission, []).append({"allow": op.spec.kind, "skill": self.skill_name})
        settings: dict[str, Any] = (
            {} if decoration.max_retries is None else {"max_phase_retries": decoration.max_retries}
        )
        derived = runtime.derive(ops=decoration.toolkit, model=decoration.llm_interface, permissions=grants, **settings)
        self._views = [*self._views, (runtime, derived)][-8:]
        return derived

    async def runtime(self) -> OSRuntime:
        scope, runtime = current_scope(), self.decoration.runtime
        if runtime is None:
            runtime = scope.owner if scope is not None else ambient.runtime_in_use()
        if isinstance(runtime, SyncRuntime):
            raise CallImpossible(f"{self.what} is `async`; its runtime must be an `OSRuntime`")
        return runtime if runtime is not None else await ambient.project_runtime()

    def run_id(self, key: str) -> str:
        """Return the run of the conversation with a key."""
        return f"{self.skill_name}-{hashlib.sha256(f'{self.place} {key}'.encode()).hexdigest()[:20]}"


class LLMChat(Generic[P]):
    """A conversation with a model: `async for item in chat("hello", history)`, or `reply = await chat("hello")`."""

    def __init__(self, definition: _Definition, options: _Options | None = None) -> None:
        self._definition = definition
        self._options = options or _Options()
        self.__name__ = definition.name
        self.__doc__ = definition.function.__doc__
        self.__module__ = definition.function.__module__
        self.__qualname__ = definition.function.__qualname__
        self.__wrapped__ = definition.function

    def __repr__(self) -> str:
        return f"<llm_chat {self.__module__}:{self.__qualname__}>"

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
        if options.key is not None and message.images:
            raise CallImpossible(
                f"{self._definition.what}: a message of a conversation with a key cannot have images",
                hint="Call it without a key, or let a tool return the image.",
            )
        return ChatStream(_Call(self._definition, options, message, history))

    def resume(self) -> ChatStream:
        """Continue a turn that was interrupted, for instance by the end of the process, and stream its reply.

        Raises:
            CallImpossible: The options name neither a key nor a run.
        """
        return ChatStream(_Call(self._definition, self._options, None, NormalizedMessageList()))

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
            raise CallImpossible(f"{self._definition.what}: `abort` is a {type(abort).__name__}, not an `AbortSignal`")
        params = dict(self._options.template_params) | dict(template_params or {})
        given = {"key": key, "abort": abort, "run_id": run_id, "listener": listener}
        changes = {name: value for name, value in given.items() if value is not None}
        return LLMChat(
            self._definition,
            msgspec.structs.replace(self._options, template_params=tuple(params.items()), **changes),
        )

    @property
    def conversation(self) -> str | None:
        """The run of the conversation with the key of the options."""
        key = self._options.key
        return self._definition.run_id(key) if key is not None else None


class ChatStream:
    """The stream of one call. Iterate over it, or await it for the reply alone.

    Leaving the loop early, or closing the stream, aborts the turn.
    """

    def __init__(self, call: _Call) -> None:
        self._items = call.items()
        self._found: ChatReply | None = None

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


class _Call:
    """One call: starts or continues a run, and turns its events and deltas into items."""

    def __init__(
        self, definition: _Definition, options: _Options, message: Message | None, history: NormalizedMessageList
    ) -> None:
        self._definition = definition
        self._options = options
        self._message = message
        self._history = history
        self._queue: asyncio.Queue[ChatItem | None] = asyncio.Queue()
        self._run_id = ""
        self._is_plain = False
        self._has_events = False
        self._is_aborted = False
        self._abort_reason: str | None = None
        self._turn_text: list[str] = []
        self._names: dict[str, str] = {}
        self._runtime: OSRuntime

    async def items(self) -> AsyncGenerator[ChatItem]:
        """Yield the items of the stream; the last one is the reply.

        Raises:
            ChatStopped: The turn did not end with a reply. The error has the history with the user's message.
        """
        definition, options = self._definition, self._options
        self._runtime = definition.view(await definition.runtime())
        loop = asyncio.get_running_loop()
        signal = options.abort or AbortSignal()
        unsubscribe = signal.subscribe(lambda reason: loop.call_soon_threadsafe(self._abort, reason))
        turn = asyncio.create_task(self._execute())
        turn.add_done_callback(lambda _: self._queue.put_nowait(None))
        try:
            while (item := await self._queue.get()) is not None:
                yield item
            result = turn.result()
            reply = self._end(result)
            if reply.text and "".join(self._turn_text) != reply.text:
                yield ChatText(reply.text)
            yield reply
        finally:
            unsubscribe()
            await self._leave(turn)

    async def _leave(self, turn: asyncio.Task[RunResult]) -> None:
        """Abort a turn whose stream is not read any more, and wait until that is recorded."""
        if turn.done():
            return
        self._abort(_LEFT)
        try:
            await turn
        except asyncio.CancelledError:
            turn.cancel()
            raise

    # -- the run --------------------------------------------------------------------------------------

    async def _execute(self) -> RunResult:
        options = self._options
        if options.key is not None:
            return await self._take_turn(self._definition.run_id(options.key))
        if self._message is None:
            if options.run_id is None:
                raise CallImpossible(f"{self._definition.what}: `resume` needs a key or a run id")
            return await self._resume(options.run_id)
        history = self._history
        if self._message.images:  # a run's input is text; the images come right before it
            history = history.append(NormalizedMessage("user", "", self._message.images))
        return await self._start(options.run_id, history)

    async def _start(self, run_id: str | None, history: NormalizedMessageList) -> RunResult:
        assert self._message is not None
        system = history.system.text if history.system is not None else None
        self._run_id = run_id or ""
        scope = current_scope()
        is_nested = scope is not None and run_id is None and scope.owner.journal is self._runtime.journal
        return await self._runtime.run(
            self._definition.skill(self._options, system),
            {"type": USER_MESSAGE.name, "data": {"text": self._message.text}},
            run_id=run_id,
            listener=self._on_event,
            on_delta=self._on_delta,
            within=scope if is_nested else None,
            history=history,
        )

    async def _take_turn(self, run_id: str) -> RunResult:
        """Take the next turn of a conversation with a key, or continue the one that was interrupted."""
        runtime, self._run_id = self._runtime, run_id
        if not runtime.is_recorded(run_id):
            if self._message is None:
                raise CallImpossible(f"{self._definition.what}: the conversation `{self._options.key}` does not exist")
            return await self._start(run_id, self._history)
        row = runtime.find(run_id)
        if self._message is None:
            return await self._resume(run_id)
        if row.wait is None:
            # The last turn failed or was interrupted. What it has done stays; the new message takes its place.
            # A turn that is being executed, here or in another process, is not: the claim raises `RunBusy`.
            with runtime.journal.claim(run_id):
                runtime.abort_turn(run_id, "a new message came before the reply")
            await runtime.resume(run_id, retry=True)
            row = runtime.find(run_id)
        if row.wait is None or not row.wait.id.endswith(".message"):
            raise self._stopped(run_id, str(row.status), row.reason)
        runtime.answer(run_id, row.wait.id, self._message.text)
        return await self._resume(run_id)

    async def _resume(self, run_id: str) -> RunResult:
        self._run_id, status = run_id, self._runtime.find(run_id).status
        return await self._runtime.resume(
            run_id, retry=status == "failed", listener=self._on_event, on_delta=self._on_delta
        )

    # -- events ---------------------------------------------------------------------------------------

    def _on_delta(self, delta: Delta) -> None:
        if self._is_plain and delta.run_id == self._run_id:
            self._turn_text.append(delta.text)
            self._queue.put_nowait(ChatText(delta.text))

    def _on_event(self, event: Event) -> None:
        if self._options.listener is not None:
            self._options.listener(event)
        if not self._has_events:
            self._has_events, self._run_id = True, event.run_id
            if self._abort_reason is not None:
                self._post_abort(self._abort_reason)
        if event.run_id != self._run_id:
            return  # of a sub-run
        body = decode(event)
        match body:
            case kinds.FrameBuilt(form=form):
                self._is_plain = form == "tools"
                self._turn_text = []
            case kinds.ModelRetried(message=reason) | kinds.ModelSwitched(message=reason):
                self._restart(reason)
            case kinds.ValidationError(path=path, message=reason):
                self._restart(f"{path}: {reason}")
            case kinds.PhaseAborted():
                self._is_aborted = True
            case kinds.OpStarted():
                arguments = msgspec.json.decode(self._runtime.content(body.args))
                self._names[body.call] = name = f"{body.op_kind}_{body.op}" if body.op else body.op_kind
                fields = {key: value for key, value in arguments.items() if key not in ("kind", "op")}
                self._queue.put_nowait(ChatToolCall(body.call, name, fields))
            case kinds.OpCompleted() | kinds.PermissionDenied():
                result = msgspec.json.decode(self._runtime.content(body.result))
                status = body.status if isinstance(body, kinds.OpCompleted) else "denied"
                name = self._names.pop(body.call, body.op_kind)
                self._queue.put_nowait(ChatToolResult(body.call, name, status, result))

    def _restart(self, reason: str) -> None:
        if self._turn_text:
            self._turn_text = []
            self._queue.put_nowait(ChatRestart(reason))

    # -- abort ----------------------------------------------------------------------------------------

    def _abort(self, reason: str) -> None:
        """Abort the turn: at once, or as soon as the run exists."""
        if self._abort_reason is None:
            self._abort_reason = reason
            if self._has_events:
                self._post_abort(reason)

    def _post_abort(self, reason: str) -> None:
        with suppress(RunNotResumable):  # the run has ended; only its last items are still to be read
            self._runtime.abort_turn(self._run_id, reason, partial="".join(self._turn_text))

    # -- the end --------------------------------------------------------------------------------------

    def _end(self, result: RunResult) -> ChatReply:
        state = self._runtime.state(result.run_id)
        history = self._history_after(state)
        goes_on = self._options.key is not None and result.wait is not None and result.wait.id.endswith(".message")
        if self._is_aborted:
            return ChatReply("", history, result.run_id, "aborted", result.usage)
        if not goes_on and result.status != "finished":
            raise self._stopped(result.run_id, str(result.status), result.reason, result.hint, history)
        assert state.output.artifact is not None
        text: str = msgspec.json.decode(self._runtime.content(state.output.artifact.hash))["data"]["text"]
        return ChatReply(text, history, result.run_id, "replied", result.usage)

    def _history_after(self, state: RunState) -> NormalizedMessageList:
        """Return the history of the caller with what the run has added, or the whole conversation with a key."""
        found, content = state.conversations.get(self._definition.skill_name), self._runtime.content
        if found is None:  # the run stopped before its first turn
            said = () if self._message is None else (NormalizedMessage("user", self._message.text),)
            return self._history.append(*said)
        # The list of the run shares its memory with the one that the next call extends.
        before = HISTORIES.load(found.history, content).with_system(self._history.system)
        return before.append(*(_rendered(one, content) for one in found.messages.tail(found.messages.length)))

    def _stopped(
        self,
        run_id: str,
        status: str,
        reason: str,
        hint: str = "",
        history: NormalizedMessageList | None = None,
    ) -> ChatStopped:
        if history is None:
            history = self._history_after(self._runtime.state(run_id))
        message = f"{self._definition.what}: run `{run_id}` is {status}: {reason}"
        row = self._runtime.find(run_id)
        action = self._runtime.next_action(row)
        if row.wait is not None and not row.wait.id.endswith(".message"):
            hint = hint or _QUESTION
        return ChatStopped(message, run_id=run_id, status=status, history=history, hint=hint or None, action=action)


def _check_key(key: object, what: str) -> None:
    if not isinstance(key, str):
        raise CallImpossible(f"{what}: the key is a {type(key).__name__}, not text")
    if not key.strip():
        raise CallImpossible(f"{what}: the key is blank")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise CallImpossible(f"{what}: the key has a lone surrogate at character {error.start}") from error


def _module_name(function: Callable[..., Any]) -> str:
    """Return the module of a function; of the main program, the name under which another one would import it."""
    name: str = getattr(function, "__module__", None) or ""
    if name != "__main__":
        return name
    main = sys.modules[name]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return str(spec.name) if spec is not None else Path(file).stem if file else name


def _rendered(message: NormalizedMessage, content: Callable[[str], bytes]) -> NormalizedMessage:
    """Return a message with its text. Of a reply that was recorded as JSON, this is what the user saw."""
    rendered = rendered_message(message, content)
    is_json = message.role == "assistant" and not message.status and not any(part.reply for part in message.parts)
    try:
        answer = msgspec.json.decode(rendered.text) if is_json else None
    except (msgspec.DecodeError, RecursionError):
        return rendered
    match answer:
        case {"data": {"text": str(text)}} | {"artifact": {"data": {"text": str(text)}}}:
            return msgspec.structs.replace(rendered, text=text)
    return rendered


class _Decorator:
    """`@llm_chat(…)` with arguments."""

    def __init__(self, decoration: _Decoration) -> None:
        self._decoration = decoration

    def __call__(self, function: Callable[P, Any]) -> LLMChat[P]:
        if not hasattr(function, "__name__"):
            raise FunctionInvalid(f"`@llm_chat` decorates functions, not a {type(function).__name__}")
        return LLMChat(_Definition(function, self._decoration))


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
    max_act_turns: int = _DEFAULT_ACT_TURNS,
    max_retries: int | None = None,
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
    max_act_turns: int = _DEFAULT_ACT_TURNS,
    max_retries: int | None = None,
) -> Any:
    """Make a Python function a conversation with a model. Its body is never executed.

    The docstring is the system prompt; a system message in the history takes its place. The function has a parameter
    for the message of the user, and one called `history` if the caller keeps the history.

    Args:
        function: The function, if the decorator is used without arguments.
        llm_interface: The model to call, or the name of one; by default the project's.
        toolkit: Tools that the model may call. The program grants them by passing them; a rule of the operator that
            denies or asks still holds.
        runtime: Where calls are executed and recorded; by default the project around the current folder.
        template_params: The parameters of the docstring: names, or default values by name.
        memory: Whether the model may remember and forget texts, and compact the conversation, if it has a key.
        max_tokens: The size above which older messages of a conversation with a key are replaced by a summary.
        max_act_turns: In how many turns of a call the model may use tools.
        max_retries: How often a rejected answer is asked for again; by default `max_phase_retries` of the project.

    Raises:
        FunctionInvalid: The function cannot be a conversation.
    """
    params = (template_params,) if isinstance(template_params, str) else template_params
    decoration = _Decoration(llm_interface, toolkit, runtime, params, memory, max_tokens, max_act_turns, max_retries)
    decorator = _Decorator(decoration)
    return decorator if function is None else decorator(function)


__all__ = [
    "ChatItem",
    "ChatReply",
    "ChatRestart",
    "ChatStream",
    "ChatText",
    "ChatToolCall",
    "ChatToolResult",
    "LLMChat",
    "llm_chat",
]
