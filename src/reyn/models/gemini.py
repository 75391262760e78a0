"""Adapter for the Gemini API through Google's Gen AI SDK. Needs the extra `gemini`.

It constrains the output with `response_json_schema` and uses native function calling. Gemini caches prompt prefixes by
itself; Reyn puts the static part first and reports the cached tokens. Key, client and errors belong to `remote`.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ModelError, ResponseIncomplete
from reyn.journal.kinds import Usage
from reyn.models.chat_messages import EMPTY, decode_arguments, system_text, to_turns
from reyn.models.decoding import GEMINI
from reyn.models.remote import CONNECT_SECONDS, MAX_ANSWER_LENGTH, RemoteModel
from reyn.models.streaming import ENCODINGS, StreamedReply, limit_stream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.models.protocol import Image, Message, ModelAnswer, ModelRequest, ToolDefinition
    from reyn.models.remote import RequestFormat

_API_VERSION = "v1"
"""The default of the SDK, which also reads it from the environment."""
_BROKEN = frozenset(
    ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "OTHER")
)
"""Reasons to stop after which another attempt may succeed."""
_SIGNATURE = b"skip_thought_signature_validator"
"""Sent with function calls of earlier turns. The API requires a signature; the journal records none."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")


class GeminiModel(RemoteModel):
    """A model behind the Gemini API."""

    adapter = "gemini"
    _truncated = frozenset(("MAX_TOKENS", "CONTINUATION"))
    _subset = GEMINI
    _http_clients: tuple[Any, Any]

    @classmethod
    def import_sdk(cls) -> Any:
        import httpx2
        from google import genai
        from google.genai import errors

        return _Sdk(genai.Client, errors.APIError, httpx2)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send one request and read the streamed answer to its end."""
        request_format, schema = self._format_of(request)
        config = self._config(request, request_format, schema)
        client = self._connect()
        reply = StreamedReply(request)
        try:
            chunks = await client.aio.models.generate_content_stream(
                model=self._model, contents=to_contents(request.messages), config=config
            )
            async with aclosing(chunks):
                async for chunk in chunks:
                    self._add(reply, chunk)
                    if reply.length > MAX_ANSWER_LENGTH:
                        break
            return self._answer(reply, request_format, "text/event-stream")
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - third-party code
            raise self._sdk_exception(error, reply, request_format) from None  # its message may quote the key

    def _new_client(self) -> Any:
        httpx2, timeout = self._sdk.httpx2, self._settings.timeout_seconds
        options: dict[str, Any] = {"trust_env": self._trusts_environment, "headers": {"Accept-Encoding": ENCODINGS}}
        http_client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
            event_hooks={"response": [limit_stream]},
            **options,
        )
        self._http_clients = http_client, httpx2.Client(**options)
        return self._sdk.new_client(
            api_key=self._key(),
            vertexai=False,
            http_options={
                "base_url": self._base_url,
                "api_version": _API_VERSION,
                "timeout": timeout * 1000,
                # Both are passed, so that the SDK reads no certificates and no proxies by itself.
                "httpx_async_client": self._http_clients[0],
                "httpx_client": self._http_clients[1],
            },
        )

    def _replace_key(self, client: Any, key: str) -> None:
        client._api_client._http_options.headers["x-goog-api-key"] = key  # noqa: SLF001 - no public way to change it

    async def _close_client(self, client: Any) -> None:
        await self._http_clients[0].aclose()  # the SDK does not close what it was given
        self._http_clients[1].close()

    def _config(
        self, request: ModelRequest, request_format: RequestFormat, schema: dict[str, Any] | None
    ) -> dict[str, Any]:
        config: dict[str, Any] = {
            "max_output_tokens": self._settings.max_tokens,
            "automatic_function_calling": {"disable": True},
        }
        if system := system_text(request.messages):
            config["system_instruction"] = system
        if self._settings.temperature is not None:
            config["temperature"] = self._settings.temperature
        if request.tools:
            config["tools"] = to_tools(request.tools)
        if request_format.mode in ("json_schema", "json_object"):
            config["response_mime_type"] = "application/json"
        if schema is not None:
            config["response_json_schema"] = schema
        return config

    def _add(self, reply: StreamedReply, chunk: Any) -> None:
        """Add a piece of the answer."""
        blocked = getattr(chunk.prompt_feedback, "block_reason", None)
        if blocked:
            raise self._withheld(_value(blocked))
        if chunk.usage_metadata:
            reply.usage = _parse_usage(chunk.usage_metadata)
        for candidate in chunk.candidates or ():
            if candidate.index:
                continue  # only one answer was requested
            for part in getattr(candidate.content, "parts", None) or ():
                reply.has_begun = True
                if (call := part.function_call) is not None:
                    reply.add_call(call.id or "", call.name or "", msgspec.json.encode(call.args or {}).decode())
                if not part.thought:
                    reply.add_text(part.text or "")
            if candidate.finish_reason:
                self._finish(_value(candidate.finish_reason), candidate.finish_message, reply)

    def _finish(self, reason: str, message: str | None, reply: StreamedReply) -> None:
        details = f"{reason}: {message}" if message else reason
        if reason in _BROKEN:
            raise ResponseIncomplete(f"model `{self.name}` sent no valid answer: {self._shorten(details)}")
        if reason != "STOP" and reason not in self._truncated:
            raise self._withheld(details)
        reply.stop = reason

    # -- errors ---------------------------------------------------------------------------------------

    def _sdk_exception(self, error: Exception, reply: StreamedReply, request_format: RequestFormat) -> ModelError:
        """Translate an exception of the SDK or of the HTTP client."""
        httpx2 = self._sdk.httpx2
        if isinstance(error, self._sdk.APIError):
            return self._api_error(error, request_format)
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            return self.timeout_error()
        if reply.has_begun or not isinstance(error, httpx2.TransportError):
            is_foreign = reply.has_begun or isinstance(error, ValueError | TypeError | UnicodeError)
            return self._stream_error(error) if is_foreign else self._sdk_error(error)
        return self._connection_error(error)

    def _api_error(self, error: Any, request_format: RequestFormat) -> ModelError:
        message = self._shorten(str(error.message or error.details or error))
        response = error.response
        headers = dict(getattr(response, "headers", None) or {})
        request = getattr(response, "request", None)
        target = self.scrub(f"{request.method} {request.url}") if request is not None else ""
        details = list(_details(error.details))
        status = error.code if isinstance(error.code, int) else 500
        if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
            status = 401  # reported as 400
        delays = [found for detail in details if (found := _DURATION.fullmatch(str(detail.get("retryDelay", ""))))]
        if delays and "retry-after" not in headers:
            headers["retry-after"] = delays[0][1]
        return self._status_error(status, message, headers, request_format, target)


class _Sdk(msgspec.Struct, frozen=True):
    """What the adapter uses of the SDK."""

    new_client: Any
    APIError: Any
    httpx2: Any


def _parse_usage(counts: Any) -> Usage | None:
    """Return the token counts, which are cumulative; `None` unless the counts of input and output are present."""
    if counts.prompt_token_count is None:
        return None
    read = counts.prompt_token_count + (counts.tool_use_prompt_token_count or 0)
    cached = counts.cached_content_token_count or 0
    if counts.candidates_token_count is not None:
        written = counts.candidates_token_count + (counts.thoughts_token_count or 0)
    elif counts.total_token_count is not None:  # an answer of thoughts alone, for instance
        written = counts.total_token_count - read
    else:
        return None
    return Usage(read, written, cached if 0 <= cached <= read else 0)


def _value(reason: Any) -> str:
    return str(getattr(reason, "value", reason))


def _details(body: Any) -> list[dict[str, Any]]:
    """Return the details of an error response."""
    error = body.get("error", body) if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    return [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []


# -- messages and tools ------------------------------------------------------------------------------


def to_contents(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the messages after the system instruction."""
    names: dict[str, str] = {}

    def parts_of(message: Message) -> list[dict[str, Any]]:
        names.update({call.id: call.name for call in message.tool_calls})
        if message.role != "tool":
            return _parts(message)
        name = names.get(message.tool_call_id, "unknown")
        response = {"id": message.tool_call_id, "name": name, "response": {"result": message.text}}
        return [{"function_response": response}, *map(_image, message.images)]

    return to_turns(messages, "model", "parts", parts_of)


def to_tools(tools: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return tool definitions."""
    declarations = [
        {"name": tool.name, "description": tool.description, "parameters_json_schema": tool.parameters}
        for tool in tools
    ]
    return [{"function_declarations": declarations}]


def _parts(message: Message) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": message.text}] if message.text else []
    parts += map(_image, message.images)
    for call in message.tool_calls:
        function = {"id": call.id, "name": call.name, "args": decode_arguments(call.arguments)}
        parts.append({"function_call": function, "thought_signature": _SIGNATURE})
    return parts or [{"text": EMPTY}]


def _image(image: Image) -> dict[str, Any]:
    if image.url:
        kind = image.media_type or mimetypes.guess_type(image.url.partition("?")[0])[0] or "image/jpeg"
        return {"file_data": {"file_uri": image.url, "mime_type": kind}}
    return {"inline_data": {"mime_type": image.media_type, "data": base64.b64decode(image.data)}}
