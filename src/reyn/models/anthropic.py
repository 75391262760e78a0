"""Adapter for Anthropic's Messages API. Needs the extra `anthropic`.

It caches the static part of the prompt, constrains the output with `output_config.format`, and uses native tools. The
API has no sampling parameters, so `temperature` is not sent. The client belongs to `stainless`, key and errors to
`remote`, and the form of messages to `anthropic_messages`.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from reyn.errors import ResponseIncomplete
from reyn.journal.kinds import Usage
from reyn.models.anthropic_messages import to_messages, to_system, to_tools
from reyn.models.decoding import ANTHROPIC, Inexpressible, decoding_schema, to_subset
from reyn.models.protocol import ModelAnswer, ToolCall, call_id
from reyn.models.remote import MAX_ANSWER_LENGTH, parse_retry_after
from reyn.models.stainless import StainlessModel
from reyn.models.streaming import content_type, read_events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from reyn.errors import ModelError
    from reyn.models.protocol import ModelRequest
    from reyn.models.remote import RequestFormat

_TRUNCATED = frozenset(("max_tokens", "model_context_window_exceeded", "pause_turn"))
"""Stop reasons of an answer that is not complete."""
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status of an error that is reported inside a stream."""


class Event(msgspec.Struct):
    """The fields that Reyn reads from an event of a stream, or from a whole message."""

    type: str = ""
    index: int = 0
    message: dict[str, Any] | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: Any = None
    error: Any = None


class AnthropicModel(StainlessModel):
    """A model behind the Messages API."""

    adapter = "anthropic"
    _path = "/v1/messages"
    _client_class = "AsyncAnthropic"
    _client_options: ClassVar = {"open_telemetry": False}

    @staticmethod
    def import_sdk() -> Any:
        import anthropic

        return anthropic

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send one request and read the streamed answer to its end."""
        request_format = self._format_of(request)
        body = self._body(request, request_format)
        if request_format.mode == "json_schema" and "output_config" not in body:
            request_format = request_format._replace(mode="free")  # this contract cannot be expressed

        async def read(response: Any) -> ModelAnswer:
            events = read_events(response, Event)
            return await self._read_answer(events, content_type(response), request_format, request)

        return await self._stream(body, request_format, read)

    def _body(self, request: ModelRequest, request_format: RequestFormat) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._settings.max_tokens,
            "messages": to_messages(request.messages),
            "stream": True,
        }
        if system := to_system(request.messages):
            body["system"] = system
        if request.tools:
            body["tools"] = to_tools(request.tools)
        if request_format.mode == "json_schema":
            try:
                schema = to_subset(
                    decoding_schema(request.contract, is_one_object=request_format.is_one_object), ANTHROPIC
                )
            except Inexpressible:
                return body
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return body

    async def _read_answer(
        self, events: AsyncIterator[Event], kind: str, request_format: RequestFormat, request: ModelRequest
    ) -> ModelAnswer:
        """Collect the events of an answer; raise `ResponseIncomplete` if the stream ends before the answer does."""
        reply = _Reply()
        on_delta = request.on_delta
        async for event in events:
            if event.error is not None:
                raise self._event_error(event.error, request_format)
            text = reply.add(event)
            if on_delta is not None and text:
                on_delta(text)
            if reply.stop_reason == "refusal":
                raise self._withheld(f"refusal{reply.refusal}")
            if reply.length > MAX_ANSWER_LENGTH:
                reply.stop_reason = reply.stop_reason or "max_tokens"
                break
        if not reply.stop_reason:
            raise self._unfinished(reply.length, kind)
        is_truncated = reply.stop_reason in _TRUNCATED
        return ModelAnswer(
            "".join(reply.texts),
            reply.usage(),
            request_format.mode,
            is_truncated,
            tool_calls=reply.tool_calls(request),
        )

    # -- errors ---------------------------------------------------------------------------------------

    def _error_message(self, body: dict[str, Any]) -> Any:
        fields = body.get("error")
        return fields.get("message") if isinstance(fields, dict) else None

    def _event_error(self, error: Any, request_format: RequestFormat) -> ModelError:
        """Translate an error event of a stream."""
        fields = error if isinstance(error, dict) else {"message": error}
        message = self._shorten(str(fields.get("message", error)))
        status = _STATUS_OF_TYPE.get(str(fields.get("type")))
        if status is None:
            return ResponseIncomplete(f"model `{self.name}` reported an error instead of an answer: {message}")
        return self._status_error(status, message, {}, request_format)

    def _retry_after(self, headers: Mapping[str, str]) -> float | None:
        """Return the delay in `Retry-After`, or else the time until the exhausted rate limits are reset."""
        resets = [
            _seconds_until(headers.get(name.removesuffix("remaining") + "reset", ""))
            for name in headers
            if name.startswith("anthropic-ratelimit-") and name.endswith("-remaining") and headers[name] == "0"
        ]
        found = [seconds for seconds in resets if seconds > 0]
        return parse_retry_after(headers) or max(found, default=None)


class _Reply:
    """What has arrived of a reply."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.stop_reason: str | None = None
        self.refusal = ""
        self.length = 0
        self._calls: dict[int, _Call] = {}
        self._counts: dict[str, Any] = {}

    def add(self, event: Event) -> str:
        """Add an event; return its text."""
        match event.type:
            case "message_start":
                self._count((event.message or {}).get("usage"))
            case "content_block_start":
                return self._begin(event.index, event.content_block or {})
            case "content_block_delta":
                return self._continue(event.index, event.delta or {})
            case "message_delta":
                delta = event.delta or {}
                self._stop(delta.get("stop_reason"), delta.get("stop_details"))
                self._count(event.usage)
            case "message":  # a server that does not stream
                texts = [self._begin(number, block) for number, block in enumerate(event.content or ())]
                self._stop(event.stop_reason, event.stop_details)
                self._count(event.usage)
                return "".join(texts)
        return ""

    def _begin(self, index: int, block: dict[str, Any]) -> str:
        if block.get("type") == "tool_use":
            arguments = block.get("input")
            whole = msgspec.json.encode(arguments).decode() if arguments else ""
            self._calls[index] = _Call(str(block.get("id") or ""), str(block.get("name") or ""), whole)
            self.length += 32 + len(whole)
        return self._text(block.get("text")) if block.get("type") == "text" else ""

    def _continue(self, index: int, delta: dict[str, Any]) -> str:
        piece = delta.get("partial_json")
        if delta.get("type") == "input_json_delta" and index in self._calls and isinstance(piece, str):
            self._calls[index].pieces.append(piece)
            self.length += 8 + len(piece)
        return self._text(delta.get("text")) if delta.get("type") == "text_delta" else ""

    def _text(self, text: Any) -> str:
        found: str = text if isinstance(text, str) else ""
        self.texts.append(found)
        self.length += len(found)
        return found

    def _stop(self, reason: Any, details: Any) -> None:
        self.stop_reason = str(reason) if reason else self.stop_reason
        fields = details if isinstance(details, dict) else {}
        words = [str(fields[key]) for key in ("category", "explanation") if fields.get(key)]
        self.refusal = f" ({': '.join(words)})" if words else self.refusal

    def _count(self, usage: Any) -> None:
        """Keep the latest counts; those of later events are cumulative."""
        if isinstance(usage, dict):
            self._counts |= {key: value for key, value in usage.items() if value is not None}

    def usage(self) -> Usage | None:
        """Return the token counts, or `None` unless both input and output tokens are present.

        `input_tokens` of the API has only those that no cache served or stored; here it is all of them.
        """
        counts = self._counts
        if "input_tokens" not in counts or "output_tokens" not in counts:
            return None
        cached, stored = (counts.get(f"cache_{kind}_input_tokens", 0) for kind in ("read", "creation"))
        parts = (counts["input_tokens"], cached, stored)
        if not all(isinstance(part, int) and part >= 0 for part in parts):
            return Usage(counts["input_tokens"], counts["output_tokens"])  # the recorder reports what is wrong
        return Usage(sum(parts), counts["output_tokens"], cached, stored)

    def tool_calls(self, request: ModelRequest) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(call.id or call_id(request.run_id, request.call, number), call.name, call.arguments)
            for number, (_, call) in enumerate(sorted(self._calls.items()), start=1)
        )


class _Call:
    def __init__(self, id: str, name: str, whole: str) -> None:
        self.id, self.name, self._whole = id, name, whole
        self.pieces: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self.pieces) or self._whole or "{}"


def _seconds_until(text: str) -> float:
    """Return the time until an RFC 3339 timestamp; 0 if it is invalid."""
    try:
        return datetime.fromisoformat(text).timestamp() - time.time()
    except ValueError:
        return 0.0
