"""Adapter for servers that implement OpenAI's chat completions API. Needs the extra `openai`.

In mode `auto` it downgrades from `json_schema` to `json_object` to `free` when a server rejects the output format, and
reports each step as an error with the next mode. Requests go only to the configured URL: environment variables of the
SDK and redirects are ignored. Requests belong to `http_model`, key and errors to `remote`, and reading the
stream to `streaming`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import EffortRejected, ResponseIncomplete
from reyn.journal.kinds import Usage
from reyn.models.chat_messages import to_wire, tool_wire
from reyn.models.chat_thoughts import ThoughtCollector, ThoughtFields
from reyn.models.http_model import HttpModel, sdk_headers
from reyn.models.protocol import Embeddings
from reyn.models.thoughts import ThinkTags

if TYPE_CHECKING:
    from reyn.config.models import Effort
    from reyn.models.protocol import ModelRequest
    from reyn.models.remote import RequestFormat
    from reyn.models.streaming import StreamedCall, StreamedReply

_NEWER_LIMIT = "max_completion_tokens"
_TEXT_TYPES = ("text", "output_text")


class FunctionDelta(msgspec.Struct):
    """A piece of the name and of the arguments of a tool call. Some servers send arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolCallDelta(msgspec.Struct):
    """A piece of a tool call. Pieces of one call have the same `index`; some servers send none."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None
    extra_content: Any = None


class ChunkDelta(ThoughtFields):
    """A piece of an answer, or of the model's refusal to answer."""

    content: str | list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallDelta] | None = None

    @property
    def text(self) -> str:
        """The text, without thoughts."""
        if isinstance(self.content, list):
            parts = (part for part in self.content if isinstance(part, dict))
            return "".join(str(part.get("text") or "") for part in parts if part.get("type", "text") in _TEXT_TYPES)
        return self.content or self.refusal or ""


class ChunkChoice(msgspec.Struct):
    """One of the answers. A streamed answer consists of `delta`s; an answer in one document is a `message`."""

    index: int | None = 0
    delta: ChunkDelta | None = None
    message: ChunkDelta | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """The fields that Reyn reads from a chunk or from a whole document."""

    choices: list[ChunkChoice] | None = None
    usage: Any = None
    error: Any = None


class _Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class _EmbeddingAnswer(msgspec.Struct):
    data: list[_Embedding]
    usage: dict[str, Any] = {}


class OpenAIModel(HttpModel):
    """A model behind a chat completions endpoint."""

    adapter = "openai"
    _path = "/chat/completions"
    _event = Chunk
    _truncated = frozenset(("length",))

    def _first_format(self, request_format: RequestFormat) -> RequestFormat:
        # OpenAI rejects `anyOf` at the root of a schema, and its newer models reject `max_tokens`; most other servers
        # know only `max_tokens`.
        is_openai = self._settings.base_url is None
        limit_field = _NEWER_LIMIT if is_openai else "max_tokens"
        return request_format._replace(is_one_object=is_openai, limit_field=limit_field)

    def _headers(self, http: Any, key: str) -> Mapping[str, Any]:
        client = self._sdk.AsyncOpenAI(api_key=key, base_url=self._base_url, http_client=http)
        # The SDK reads these from the environment; only the project's configuration counts.
        client.organization = client.project = None
        return sdk_headers(client)

    def _body(
        self, request: ModelRequest, request_format: RequestFormat, schema: dict[str, Any] | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": to_wire(request.messages),
            request_format.limit_field: self._settings.answer_tokens(request.effort),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= self._effort_fields(request_format)
        if self._settings.temperature is not None and not (self._fixes_temperature and request_format.thinks):
            body["temperature"] = self._settings.temperature
        if request.tools:
            body["tools"] = tool_wire(request.tools)
        if schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        elif request_format.mode == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    @property
    def _fixes_temperature(self) -> bool:
        """Whether the server rejects a temperature when the model thinks."""
        return self._settings.base_url is None

    def _check_effort(self, effort: Effort | None) -> None:
        if isinstance(effort, int):
            message = f"`effort` of model `{self.name}` is {effort}, and its API takes no number of tokens"
            raise EffortRejected(message, hint="Use `none`, `low`, `medium` or `high`.")

    def _effort_fields(self, request_format: RequestFormat) -> dict[str, Any]:
        """Return the fields of a request that say how much the model thinks."""
        return {} if request_format.effort is None else {"reasoning_effort": request_format.effort}

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Ask the server for the vectors of texts: `POST /embeddings`."""
        body = msgspec.json.encode({"model": self._model, "input": list(texts), "encoding_format": "float"})
        async with self._response(body, self._formats[False, True], "/embeddings") as response:
            answer = msgspec.json.decode(await response.aread(), type=_EmbeddingAnswer)
        found = sorted(answer.data, key=lambda one: one.index)
        sizes = {len(one.embedding) for one in found}
        if [one.index for one in found] != list(range(len(texts))) or len(sizes) > 1 or 0 in sizes:
            raise ResponseIncomplete(f"model `{self.name}` sent {len(found)} vectors for {len(texts)} texts")
        tokens = answer.usage.get("total_tokens", 0)
        return Embeddings([one.embedding for one in found], tokens if isinstance(tokens, int) else 0)

    def _adder(self, reply: StreamedReply, request_format: RequestFormat) -> Callable[[Chunk], None]:
        calls, thoughts = ToolCallCollector(reply), ThoughtCollector(reply)
        # Servers of open models may send thoughts as text.
        if self._settings.base_url is not None or self.adapter != "openai":
            reply.tags = ThinkTags()

        def add(chunk: Chunk) -> None:
            if chunk.error is not None:
                raise self._chunk_error(chunk.error, request_format)
            if chunk.usage is not None:
                reply.usage = _parse_usage(chunk.usage) or reply.usage
            for choice in chunk.choices or ():
                if choice.index:
                    continue  # only one answer was requested
                delta = choice.delta or choice.message
                if delta is not None:
                    reply.add_text(delta.content if type(delta.content) is str else delta.text)
                    if delta.reasoning_content or delta.reasoning or delta.reasoning_details or delta.thinking_blocks:
                        thoughts.add(delta)
                    if delta.tool_calls:
                        calls.add(delta.tool_calls)
                if choice.finish_reason:
                    reply.stop = reply.stop or choice.finish_reason
                if choice.finish_reason == "content_filter":
                    raise self._withheld("content_filter")

        return add

    # -- errors ---------------------------------------------------------------------------------------

    def _other_format(self, message: str, request_format: RequestFormat) -> tuple[str, dict[str, Any]] | None:
        if request_format.limit_field == "max_tokens" and _NEWER_LIMIT in message:
            return _NEWER_LIMIT, {"limit_field": _NEWER_LIMIT}
        return super()._other_format(message, request_format)


def _parse_usage(usage: Any) -> Usage | None:
    """Return the token counts, or `None` unless both input and output tokens are present."""
    if not isinstance(usage, dict):
        return None
    input_tokens, output_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if input_tokens is None or output_tokens is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if not isinstance(cached, int) or not isinstance(input_tokens, int) or not 0 <= cached <= input_tokens:
        cached = 0
    return Usage(input_tokens, output_tokens, cached, 0, _thinking_tokens(usage, output_tokens))


def _thinking_tokens(usage: dict[str, Any], output_tokens: Any) -> int | msgspec.UnsetType:
    """Return the part of the output that is thoughts, if the server reports a valid one."""
    details = usage.get("completion_tokens_details")
    found = details.get("reasoning_tokens") if isinstance(details, dict) else None
    is_part = isinstance(found, int) and isinstance(output_tokens, int) and 0 <= found <= output_tokens
    return found if is_part and found else msgspec.UNSET


class ToolCallCollector:
    """Assembles streamed tool calls in time linear in their length.

    Servers disagree on details: some repeat id and name in every piece, send no index or the same index for every call,
    or send the arguments as an object. A piece belongs to the call of its index, unless it brings another id and a
    name: one server gives every piece a new id.
    """

    def __init__(self, reply: StreamedReply) -> None:
        self._reply = reply
        self._by_index: dict[int, StreamedCall] = {}

    def add(self, deltas: Iterable[ToolCallDelta]) -> None:
        """Add pieces of tool calls."""
        for delta in deltas:
            call, function = self._find(delta), delta.function or FunctionDelta()
            call.id = call.id or delta.id or ""
            call.extra_content = delta.extra_content or call.extra_content
            if function.name and call.names != [function.name]:  # some servers repeat the whole name
                call.names.append(function.name)
                self._reply.length += len(function.name)
            arguments = function.arguments or ""
            piece = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            self._reply.add_arguments(call, piece)

    def _find(self, delta: ToolCallDelta) -> StreamedCall:
        last = self._reply.calls[-1] if self._reply.calls else None
        call = last if delta.index is None else self._by_index.get(delta.index)
        if call is None or _begins_another(delta, call):
            call = self._reply.add_call()
            if delta.index is not None:
                self._by_index[delta.index] = call
        return call


def _begins_another(delta: ToolCallDelta, call: StreamedCall) -> bool:
    """Return whether a piece begins another call, although it seems to belong to this one."""
    if delta.function is None or not delta.function.name:
        return False
    return delta.id != call.id if delta.id else delta.index is None
