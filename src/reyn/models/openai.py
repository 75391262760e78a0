"""Adapter for servers that implement OpenAI's chat completions API. Needs the extra `openai`.

In mode `auto` it downgrades from `json_schema` to `json_object` to `free` when a server rejects the output format, and
reports each step as an error with the next mode. Requests go only to the configured URL: environment variables of the
SDK and redirects are ignored. Key, client and errors belong to `remote`; reading the stream belongs to `streaming`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.errors import ModelError
from reyn.journal.kinds import Usage
from reyn.models.chat_messages import to_wire, tool_wire
from reyn.models.decoding import decoding_schema
from reyn.models.native_reply import call_id
from reyn.models.protocol import ModelAnswer
from reyn.models.remote import CONNECT_SECONDS, MAX_ANSWER_LENGTH, RemoteModel
from reyn.models.sdk_logs import scrub_logs
from reyn.models.streaming import EMPTY_DELTA, ENCODINGS, content_type, limit_body, read_chunks
from reyn.models.tool_deltas import ToolCallCollector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from reyn.models.protocol import ModelRequest
    from reyn.models.remote import RequestFormat
    from reyn.models.streaming import Chunk

_NEWER_LIMIT = "max_completion_tokens"


class OpenAIModel(RemoteModel):
    """A model behind a chat completions endpoint."""

    adapter = "openai"

    @staticmethod
    def _import_sdk() -> Any:
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
        client = self._connect()
        try:
            # `chat.completions.create` spends more time on validating types than the call takes.
            stream = await client.post(
                "/chat/completions",
                body=self._body(request, request_format),
                options={"follow_redirects": False},
                cast_to=object,
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
            )
        except Exception as error:  # noqa: BLE001 - third-party code
            raise self._request_error(error, request_format) from None  # its message may quote the key
        try:
            async with stream:
                chunks = read_chunks(stream.response)
                return await self._read_answer(chunks, content_type(stream.response), request_format, request)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            raise self._stream_error(error) from None

    def _new_client(self) -> Any:
        timeout = self._settings.timeout_seconds
        client = self._sdk.AsyncOpenAI(
            api_key=self._key(),
            base_url=self._base_url,
            max_retries=0,
            timeout=self._sdk.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
            http_client=self._sdk.DefaultAsyncHttpxClient(
                trust_env=self._trusts_environment,
                headers={"Accept-Encoding": ENCODINGS},
                event_hooks={"response": [limit_body]},
            ),
        )
        # The SDK reads these from the environment; only the project's configuration counts.
        client.organization = client.project = None
        client._custom_headers = {}  # noqa: SLF001 - no public way to clear them
        if self._scrubber is not None:
            scrub_logs(self._scrubber)  # the SDK has imported the HTTP libraries by now
        return client

    def _replace_key(self, client: Any, key: str) -> None:
        client.api_key = key

    async def _close_client(self, client: Any) -> None:
        await client.close()

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

    def _request_error(self, error: Exception, request_format: RequestFormat) -> ModelError:
        """Translate an exception that was raised before an answer began."""
        if isinstance(error, self._sdk.APIStatusError):
            target = self._scrub(f"{error.request.method} {error.request.url}")
            message, headers = self._error_message(error), error.response.headers
            return self._status_error(error.status_code, message, headers, request_format, target)
        cause = error.__cause__ or error
        if isinstance(error, self._sdk.APITimeoutError) and "Connect" not in type(cause).__name__:
            return self.timeout_error()
        if not isinstance(error, self._sdk.APIConnectionError):
            return self._sdk_error(cause)
        return self._connection_error(cause)

    def _other_format(self, message: str, request_format: RequestFormat) -> tuple[str, dict[str, Any]] | None:
        if request_format.limit_field == "max_tokens" and _NEWER_LIMIT in message:
            return _NEWER_LIMIT, {"limit_field": _NEWER_LIMIT}
        return super()._other_format(message, request_format)

    def _error_message(self, error: Any) -> str:
        message = error.body.get("message") if isinstance(error.body, dict) else error.response.text
        return self._shorten(str(message or error.message))


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
