"""Adapter for servers that implement OpenAI's chat completions API. Needs the extra `openai`.

In mode `auto` it downgrades from `json_schema` to `json_object` to `free` when a server rejects the output format, and
reports each step as an error with the next mode. Requests go only to the configured URL: environment variables of the
SDK and redirects are ignored. The client belongs to `stainless`, key and errors to `remote`, and reading
the stream to `streaming`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.journal.kinds import Usage
from reyn.models.chat_messages import to_wire, tool_wire
from reyn.models.decoding import decoding_schema
from reyn.models.protocol import ModelAnswer, call_id
from reyn.models.remote import MAX_ANSWER_LENGTH
from reyn.models.stainless import StainlessModel
from reyn.models.streaming import EMPTY_DELTA, content_type, read_chunks
from reyn.models.tool_deltas import ToolCallCollector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from reyn.models.protocol import ModelRequest
    from reyn.models.remote import RequestFormat
    from reyn.models.streaming import Chunk

_NEWER_LIMIT = "max_completion_tokens"


class OpenAIModel(StainlessModel):
    """A model behind a chat completions endpoint."""

    adapter = "openai"
    _path = "/chat/completions"
    _client_class = "AsyncOpenAI"

    @staticmethod
    def import_sdk() -> Any:
        import openai

        return openai

    def _first_format(self, request_format: RequestFormat) -> RequestFormat:
        # OpenAI rejects `anyOf` at the root of a schema, and its newer models reject `max_tokens`; most other servers
        # know only `max_tokens`.
        is_openai = self._settings.base_url is None
        limit_field = _NEWER_LIMIT if is_openai else "max_tokens"
        return request_format._replace(is_one_object=is_openai, limit_field=limit_field)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send one request and read the streamed answer to its end."""
        request_format = self._format_of(request)

        async def read(response: Any) -> ModelAnswer:
            return await self._read_answer(read_chunks(response), content_type(response), request_format, request)

        return await self._stream(self._body(request, request_format), request_format, read)

    def _new_client(self) -> Any:
        client = super()._new_client()
        # The SDK reads these from the environment; only the project's configuration counts.
        client.organization = client.project = None
        return client

    def _body(self, request: ModelRequest, request_format: RequestFormat) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": to_wire(request.messages),
            request_format.limit_field: self._settings.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._settings.temperature is not None:
            body["temperature"] = self._settings.temperature
        if request.tools:
            body["tools"] = tool_wire(request.tools)
        if request_format.mode == "json_schema":
            schema = decoding_schema(request.contract, is_one_object=request_format.is_one_object)
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        elif request_format.mode == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    async def _read_answer(
        self, chunks: AsyncIterator[Chunk], kind: str, request_format: RequestFormat, request: ModelRequest
    ) -> ModelAnswer:
        """Collect the chunks of an answer; raise `ResponseIncomplete` if the stream ends before the answer does."""
        parts: list[str] = []
        calls = ToolCallCollector()
        on_delta = request.on_delta
        length, usage, is_finished, is_truncated = 0, None, False, False
        async for chunk in chunks:
            if chunk.error is not None:
                raise self._chunk_error(chunk.error, request_format)
            if chunk.usage is not None:
                usage = _parse_usage(chunk.usage) or usage
            for choice in chunk.choices or ():
                if choice.index:
                    continue  # only one answer was requested
                delta = choice.delta or choice.message or EMPTY_DELTA
                text = delta.text
                parts.append(text)
                length += len(text) + (calls.add(delta.tool_calls) if delta.tool_calls else 0)
                is_finished = is_finished or bool(choice.finish_reason)
                is_truncated = is_truncated or choice.finish_reason == "length"
                if choice.finish_reason == "content_filter":
                    raise self._withheld("content_filter")
                if on_delta is not None and text:
                    on_delta(text)
            if length > MAX_ANSWER_LENGTH:
                is_finished = True
                break
        if not is_finished:
            raise self._unfinished(length, kind)
        tool_calls = calls.tool_calls(lambda number: call_id(request.run_id, request.call, number))
        return ModelAnswer("".join(parts), usage, request_format.mode, is_truncated, tool_calls=tool_calls)

    # -- errors ---------------------------------------------------------------------------------------

    def _other_format(self, message: str, request_format: RequestFormat) -> tuple[str, dict[str, Any]] | None:
        if request_format.limit_field == "max_tokens" and _NEWER_LIMIT in message:
            return _NEWER_LIMIT, {"limit_field": _NEWER_LIMIT}
        return super()._other_format(message, request_format)

    def _error_message(self, body: dict[str, Any]) -> Any:
        return body.get("message")


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
    return Usage(input_tokens, output_tokens, cached)
