"""One call of a chat: start or continue its run, and turn the run's events and deltas into the items of a stream."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context import NormalizedMessageList
from reyn.context.histories import HISTORIES
from reyn.context.render import rendered_message
from reyn.context.transcript import NormalizedMessage
from reyn.errors import CallImpossible, ChatStopped, RunNotResumable
from reyn.functions.abort import AbortSignal
from reyn.functions.chat_items import ChatItem, ChatReply, ChatRestart, ChatText, ChatToolCall, ChatToolResult
from reyn.functions.definition import enclosing
from reyn.journal import decode, kinds
from reyn.kernel.world.run_scope import current_scope
from reyn.skills import USER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from reyn.functions.chat import ChatDefinition, ChatOptions
    from reyn.journal import Event
    from reyn.kernel.core.snapshot import RunState
    from reyn.models import Delta, Message
    from reyn.runtime import OSRuntime, RunResult

_QUESTION = "A person answers the question first, for example with `OSRuntime.answer`; then call `resume`."
_LEFT = "the caller left the stream"
_MAX_RENDERED = 64


class ChatStream:
    """The stream of one call. Iterate over it, or await it for the reply alone.

    Leaving the loop early, or closing the stream, aborts the turn.
    """

    def __init__(self, call: ChatCall) -> None:
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


class ChatCall:
    """One call: starts or continues a run, and turns its events and deltas into items."""

    def __init__(
        self, definition: ChatDefinition, options: ChatOptions, message: Message | None, history: NormalizedMessageList
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
        self._runtime = definition.view(await definition.async_runtime(current_scope()))
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
        return await self._start(options.run_id)

    async def _start(self, run_id: str | None) -> RunResult:
        assert self._message is not None
        history = self._history
        if self._message.images:  # a run's input is text; the images come right before it
            history = history.append(NormalizedMessage("user", "", self._message.images))
        system = history.system.text if history.system is not None else None
        self._run_id = run_id or ""
        return await self._runtime.run(
            self._definition.skill(self._options, system),
            {"type": USER_MESSAGE.name, "data": {"text": self._message.text}},
            run_id=run_id,
            listener=self._on_event,
            on_delta=self._on_delta,
            within=enclosing(current_scope(), self._runtime, run_id),
            history=history,
        )

    async def _take_turn(self, run_id: str) -> RunResult:
        """Take the next turn of a conversation with a key, or continue the one that was interrupted."""
        runtime, self._run_id = self._runtime, run_id
        if not runtime.is_recorded(run_id):
            if self._message is None:
                raise CallImpossible(f"{self._definition.what}: the conversation `{self._options.key}` does not exist")
            return await self._start(run_id)
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
        if row.wait is None or row.wait.reason != kinds.MESSAGE:
            raise self._stopped(run_id, str(row.status), row.reason)
        runtime.answer(run_id, row.wait.id, self._message.text, images=self._message.images)
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
        goes_on = (
            self._options.key is not None and result.question is not None and result.question.reason == kinds.MESSAGE
        )
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
        return self._definition.rendered.extend(state.run_id, before, found.messages, content)

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
        if row.wait is not None and row.wait.reason != kinds.MESSAGE:
            hint = hint or _QUESTION
        return ChatStopped(message, run_id=run_id, status=status, history=history, hint=hint or None, action=action)


class RenderedHistories:
    """The histories of conversations with their texts. Each message of a conversation with a key is rendered once."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[NormalizedMessageList, NormalizedMessageList]] = OrderedDict()

    def extend(
        self, run_id: str, before: NormalizedMessageList, own: NormalizedMessageList, content: Callable[[str], bytes]
    ) -> NormalizedMessageList:
        """Return a history with the messages of a run, of which only the new ones are rendered.

        Args:
            run_id: The run.
            before: The messages that came before.
            own: The messages of the run, which refer to their content.
            content: Returns stored content by its hash.
        """
        source, rendered = self._known.pop(run_id, (NormalizedMessageList(), before))
        if not own.extends(source) or not rendered.extends(before):
            source, rendered = NormalizedMessageList(), before
        new = own.tail(own.length - source.length)
        rendered = rendered.append(*(_rendered(message, content) for message in new)).with_system(before.system)
        self._known[run_id] = own, rendered
        while len(self._known) > _MAX_RENDERED:
            self._known.popitem(last=False)
        return rendered


def _rendered(message: NormalizedMessage, content: Callable[[str], bytes]) -> NormalizedMessage:
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
