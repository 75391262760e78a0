"""`OpenAICompatible`: a model behind a chat completions endpoint, for `llm_interface` and for direct use.

It is the adapter of `openai:` models (`reyn.models.openai`) with its settings as arguments. Runs record retries and
output modes as for a configured model.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Never
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from reyn.config import ModelSettings
from reyn.config.user import user_config
from reyn.context.transcript import normalize
from reyn.contract import Contract
from reyn.errors import FunctionInvalid, SchemaRejected
from reyn.functions.ambient import close_with_loop
from reyn.functions.definition import is_text
from reyn.functions.option_names import check_option_names
from reyn.models import Message, ModelAnswer, ModelRequest, ToolDefinition
from reyn.models.protocol import PLAIN_TEXT
from reyn.ops import Op
from reyn.secrets import EnvironmentStore, MemoryOrigins, MemoryStore, Secrets, open_secrets
from reyn.streams import ItemStream

if TYPE_CHECKING:
    from reyn.config.models import Effort
    from reyn.journal.kinds import AnswerForm
    from reyn.models.openai import OpenAIModel

_OWN_KEY = "API_KEY"
_MAX_FORMAT_CHANGES = 8


class ChatChunk(msgspec.Struct, frozen=True):
    """A piece of a streamed answer.

    Attributes:
        text: The new text.
        reply: The whole answer with its tool calls and token counts; set in the last piece only.
    """

    text: str = ""
    reply: ModelAnswer | None = None


class OpenAICompatible:
    """A model behind a server with OpenAI's chat completions API.

    Pass it to a decorator as `llm_interface`, or to a runtime as `model`. `chat` and `chat_stream` call it directly,
    without a run: nothing is recorded, and a transient error is raised instead of retried.

    Args:
        model_name: The name of the model at the server.
        base_url: The address of the server, with `/v1`; by default OpenAI's.
        key: The handle of the key: `secret://NAME` or `env://VARIABLE`.
        api_key: The key itself, if the program has it from elsewhere. It is sent to the server and recorded nowhere.
        answer_form: The form in which runs ask it; `tools` uses native tool calling.
        images: Whether it reads images. Without, it gets a description of those that tools return, and fails if
            arguments are images.
        mode: The output mode.
        timeout: The most seconds for one answer.
        retries: How often a run retries a transient error.
        max_tokens: The longest answer.
        temperature: The sampling temperature; `None` uses the server's default.
        effort: How much the model thinks before it answers: `none`, `low`, `medium` or `high`; `None` uses the
            server's default.

    Raises:
        FunctionInvalid: An argument is invalid.
    """

    takes_time = True

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str | None = None,
        key: str | None = None,
        api_key: str | None = None,
        answer_form: AnswerForm = "tools",
        images: bool = False,
        mode: Literal["auto", "json_schema", "json_object", "free"] = "auto",
        timeout: int | None = None,
        retries: int = 3,
        max_tokens: int = 1024,
        temperature: float | None = 0,
        effort: Effort | None = None,
        **unknown: Never,
    ) -> None:
        check_option_names(unknown, ("model_name", "base_url", "key", "api_key", *_ALLOWED), "`OpenAICompatible`")
        if not is_text(model_name):
            raise FunctionInvalid(
                f"`OpenAICompatible`: `model_name` is {model_name!r:.100}",
                hint="Pass the name of the model at the server, for example `gpt-4.1-mini`.",
            )
        if api_key is not None and not is_text(api_key):
            raise FunctionInvalid("`OpenAICompatible`: `api_key` is not a text", hint="Pass the key, or leave it out.")
        if key and api_key:
            raise FunctionInvalid("`OpenAICompatible`: `key` and `api_key` are both set", hint="Pass one of them.")
        self.answer_form: AnswerForm = answer_form
        self._model_name = model_name
        self._api_key = api_key
        values = {
            "model": f"openai:{model_name}",
            "base_url": base_url,
            "key": f"secret://{_OWN_KEY}" if api_key else key,
            "answer_form": answer_form,
            "images": images,
            "mode": mode,
            "timeout": timeout,
            "retries": retries,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "effort": effort,
        }
        try:
            self.settings = msgspec.convert(values, ModelSettings)
        except msgspec.ValidationError as error:
            raise _argument_error(values, error) from error
        # A name that opened the same model name at another server would send the run there when it is resumed.
        self.name = f"openai:{model_name}" if base_url is None else f"{model_name}@{urlsplit(base_url).netloc}"
        self._models: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[OpenAIModel, AsyncGenerator[None]]]
        self._models = WeakKeyDictionary()  # connections cannot move between event loops

    @property
    def reads_images(self) -> bool:
        """Whether it reads images."""
        return self.settings.images

    def __repr__(self) -> str:
        return f"<OpenAICompatible {self.name}>"

    async def _model(self) -> OpenAIModel:
        """Return the adapter of the running event loop, opened on first use because the SDK is slow to import."""
        loop = asyncio.get_running_loop()
        entry = self._models.get(loop)
        if entry is None:
            from reyn.models.openai import OpenAIModel

            model = OpenAIModel(self.name, self._model_name, self.settings, lambda: self._secrets)
            entry = self._models[loop] = (model, await close_with_loop(model))
        return entry[0]

    @cached_property
    def _secrets(self) -> Secrets:
        if self._api_key is not None:
            return Secrets([MemoryStore({_OWN_KEY: self._api_key})], EnvironmentStore({}), MemoryOrigins())
        return open_secrets(origins=user_config())

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer a request of a run. A key that the server quotes is not part of the reply."""
        model = await self._model()
        reply = await model.complete(request)
        calls = tuple(msgspec.structs.replace(call, arguments=model.scrub(call.arguments)) for call in reply.tool_calls)
        thoughts = reply.thoughts.scrubbed(model.scrub) if reply.thoughts is not None else None
        return msgspec.structs.replace(reply, text=model.scrub(reply.text), tool_calls=calls, thoughts=thoughts)

    async def chat(
        self, messages: Iterable[Message | dict[str, Any]], tools: Iterable[Op | ToolDefinition] = ()
    ) -> ModelAnswer:
        """Send messages and return the answer.

        Args:
            messages: The conversation: messages, or dicts as in the API.
            tools: The tools that the model may call.

        Raises:
            ModelError: There is no answer.
            MessageInvalid: A message is malformed.
            TranscriptInvalid: A tool call does not have exactly one result.
        """
        reply = None
        async for chunk in self.chat_stream(messages, tools):
            reply = chunk.reply
        assert reply is not None
        return reply

    def chat_stream(
        self, messages: Iterable[Message | dict[str, Any]], tools: Iterable[Op | ToolDefinition] = ()
    ) -> ItemStream[ChatChunk]:
        """Send messages and yield the answer in pieces; the last one has the whole reply. See `chat`.

        Leaving the loop early closes the connection.
        """
        return ItemStream(self._chunks(messages, tools))

    async def _chunks(
        self, messages: Iterable[Message | dict[str, Any]], tools: Iterable[Op | ToolDefinition]
    ) -> AsyncGenerator[ChatChunk]:
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        request = ModelRequest(
            normalize(messages),
            PLAIN_TEXT,
            run_id="",
            call="",
            request_hash="",
            on_delta=pieces.put_nowait,
            answer_form="tools",
            tools=tool_definitions(tools),
        )
        call = asyncio.create_task(self._complete_directly(request))
        call.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (text := await pieces.get()) is not None:
                yield ChatChunk(text)
            yield ChatChunk(reply=call.result())
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    async def _complete_directly(self, request: ModelRequest) -> ModelAnswer:
        """Call the model; repeat the call in another format if the server rejects this one, which it does at once."""
        model, changes = await self._model(), 0
        while True:
            try:
                async with asyncio.timeout(self.settings.timeout_seconds):
                    return await model.complete(request)
            except SchemaRejected as error:
                changes += 1
                if not error.instead or changes > _MAX_FORMAT_CHANGES:
                    raise
            except TimeoutError:
                raise model.timeout_error() from None

    async def aclose(self) -> None:
        """Close the connections of the running event loop. They are closed with the loop, too."""
        _, lifetime = self._models.pop(asyncio.get_running_loop(), (None, None))
        if lifetime is not None:
            await lifetime.aclose()


_ALLOWED = {
    "base_url": "an address that begins with `https://` or `http://`, such as `https://api.openai.com/v1`",
    "key": "a handle: `secret://NAME` or `env://VARIABLE`; a key itself is passed as `api_key`",
    "answer_form": "`auto`, `full`, `short` or `tools`",
    "images": "True or False",
    "mode": "`auto`, `json_schema`, `json_object` or `free`",
    "timeout": "whole seconds above 0, or `None`",
    "retries": "a whole number of at least 0",
    "max_tokens": "a whole number above 0",
    "temperature": "a number from 0 to 2, or `None`",
    "effort": "`none`, `low`, `medium` or `high`, or `None`",
}


def _argument_error(values: dict[str, Any], error: msgspec.ValidationError) -> FunctionInvalid:
    """Return the error that names the argument and what it may be."""
    name = str(error).rpartition("`$.")[2].rstrip("`").partition("[")[0]
    if name not in _ALLOWED:
        return FunctionInvalid(f"`OpenAICompatible`: {error}", hint="Fix the argument.")
    # A value in the place of a handle may be a key.
    value = "not a handle" if name == "key" else f"{values[name]!r:.100}"
    return FunctionInvalid(f"`OpenAICompatible`: `{name}` is {value}", hint=f"Use {_ALLOWED[name]}.")


def tool_definitions(tools: Iterable[Op | ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Return the definitions of tools: ops as the form `tools` offers them.

    Raises:
        FunctionInvalid: One is neither a tool nor a definition.
    """
    listed = list(tools)
    for one in listed:
        kind: object = one
        if not isinstance(kind, Op | ToolDefinition):
            message = f"`OpenAICompatible`: `tools` has a {type(kind).__name__}, which is no tool"
            raise FunctionInvalid(message, hint="Decorate a function with `@tool`, or pass a `ToolDefinition`.")
    ops = Contract((), tuple(tool.spec for tool in listed if isinstance(tool, Op)), form="tools").tools
    return (*ops, *(tool for tool in listed if isinstance(tool, ToolDefinition)))
