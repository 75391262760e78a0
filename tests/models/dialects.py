"""The APIs of the providers on the fake server: the same replies in each dialect."""

from __future__ import annotations

import importlib.util
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.models.calling import Caller
from tests.models.fake_server import (
    Behavior,
    Connection,
    FakeServer,
    Request,
    Text,
    chunk,
    event,
    stream,
    to_text,
    whole,
)


def require(package: str) -> None:
    """Skip a test if a package is not installed. Does not import it: LiteLLM connects to a server when imported."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"`{package}` is not installed")


Call = tuple[str, dict[str, Any]]
"""A tool call: its name and its arguments."""


class Dialect(ABC):
    """The form of one provider's replies.

    Attributes:
        adapter: The name of the adapter.
        package: The package that it needs.
        key_header: The header that has the key, with the text before the key.
        mode: The first output mode.
        prompt_too_long: A message about a prompt beyond the context window.
        schema_rejected: A message about a rejected output format.
    """

    adapter: str
    package: str
    key_header: tuple[str, str]
    mode = "json_schema"
    prompt_too_long: str
    schema_rejected: str

    def url(self, server_url: str) -> str:
        """Return the `base_url` of the server."""
        return server_url.removesuffix("/v1")

    @abstractmethod
    def events(self, text: str, calls: tuple[Call, ...], stop: str, usage: tuple[int, int, int] | None) -> list[bytes]:
        """Return the events of a whole answer; the last one or two end it."""

    @abstractmethod
    def error_body(self, code: int, message: str) -> Any:
        """Return the body of an error response."""

    @abstractmethod
    def schema_of(self, request: Request) -> Any:
        """Return the schema that a request constrains the answer to."""

    @abstractmethod
    def tools_of(self, request: Request) -> list[str]:
        """Return the names of the tools of a request."""

    @abstractmethod
    def error_event(self, code: int, message: str) -> bytes:
        """Return an error inside a stream."""

    stops: ClassVar[dict[str, str]]
    """`end`, `truncated` and `withheld` in the words of the API."""

    def good(
        self,
        answer: Text,
        *,
        calls: tuple[Call, ...] = (),
        stop: str = "end",
        usage: tuple[int, int, int] | None = (7, 5, 0),
    ) -> Behavior:
        """Send a complete answer. `usage`: input, output and cached tokens."""
        return stream(*self.events(to_text(answer), calls, self.stops[stop], usage))

    def broken(self, answer: Text, then: str = "end") -> Behavior:
        """Send an answer without its end."""
        return stream(*self.events(to_text(answer), (), "", None), then=then)

    def status(self, code: int, message: str = "no", **headers: str) -> Behavior:
        """Send an error response."""

        async def answer(_: Request, connection: Connection) -> None:
            body = json.dumps(self.error_body(code, message)).encode()
            await connection.whole(code, "application/json", body, {k.replace("_", "-"): v for k, v in headers.items()})

        return answer

    def failing_stream(self, code: int, message: str = "no") -> Behavior:
        """Begin an answer, then report an error inside the stream."""
        return stream(*self.events("begin", (), "", None), self.error_event(code, message))

    def page(self) -> Behavior:
        """Send a web page instead of an answer."""
        return whole("text/html", b"<html>Sign in</html>")


class OpenAIDialect(Dialect):
    adapter = package = "openai"
    key_header = ("authorization", "Bearer ")
    prompt_too_long = "This model's maximum context length is 8192 tokens."
    schema_rejected = "response_format is not supported"
    stops: ClassVar = {"end": "stop", "truncated": "length", "withheld": "content_filter"}

    def url(self, server_url: str) -> str:
        return server_url

    def events(self, text: str, calls: tuple[Call, ...], stop: str, usage: tuple[int, int, int] | None) -> list[bytes]:
        half = len(text) // 2
        events = [event(chunk(piece)) for piece in (text[:half], text[half:]) if piece]
        for index, (name, arguments) in enumerate(calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            calls_delta = [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]
            events.append(event(chunk() | {"choices": [{"index": 0, "delta": {"tool_calls": calls_delta}}]}))
        if stop:
            events.append(event(chunk(finish=stop)))
        if usage is not None:
            counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": usage[0] + usage[1]}
            counts["prompt_tokens_details"] = {"cached_tokens": usage[2]}
            events.append(event(chunk() | {"choices": [], "usage": counts}))
        return [*events, *([b"data: [DONE]\n\n"] if stop else [])]

    def error_body(self, code: int, message: str) -> Any:
        return {"error": {"message": message, "type": "t", "code": code}}

    def error_event(self, code: int, message: str) -> bytes:
        return event(self.error_body(code, message))

    def schema_of(self, request: Request) -> Any:
        return request.body.get("response_format", {}).get("json_schema", {}).get("schema")

    def tools_of(self, request: Request) -> list[str]:
        return [tool["function"]["name"] for tool in request.body.get("tools", ())]


class LiteLLMDialect(OpenAIDialect):
    """LiteLLM is a client for many APIs; the tests let it speak OpenAI's."""

    adapter = package = "litellm"


class AnthropicDialect(Dialect):
    adapter = package = "anthropic"
    key_header = ("authorization", "Bearer ")
    prompt_too_long = "prompt is too long: 210000 tokens > 200000 maximum"
    schema_rejected = "output_config.format.schema: too complex"
    stops: ClassVar = {"end": "end_turn", "truncated": "max_tokens", "withheld": "refusal"}
    types: ClassVar = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}

    def events(self, text: str, calls: tuple[Call, ...], stop: str, usage: tuple[int, int, int] | None) -> list[bytes]:
        counts: dict[str, Any] = {}
        if usage is not None:
            counts = {"input_tokens": usage[0] - usage[2], "cache_read_input_tokens": usage[2], "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m"}
        events = [_sse("message_start", message=message | {"stop_reason": None, "usage": counts}), _sse("ping")]
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        blocks.append(({"type": "thinking", "thinking": ""}, [{"type": "thinking_delta", "thinking": "hm"}]))
        if text:
            half = len(text) // 2
            pieces = [{"type": "text_delta", "text": piece} for piece in (text[:half], text[half:])]
            blocks.append(({"type": "text", "text": ""}, pieces))
        for index, (name, arguments) in enumerate(calls):
            whole_text = json.dumps(arguments)
            pieces = [
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", whole_text[:3], whole_text[3:])
            ]
            blocks.append(({"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}, pieces))
        for index, (block, pieces) in enumerate(blocks):
            events.append(_sse("content_block_start", index=index, content_block=block))
            events += [_sse("content_block_delta", index=index, delta=piece) for piece in pieces]
            events.append(_sse("content_block_stop", index=index))
        if stop:
            delta = {"stop_reason": "tool_use" if calls and stop == "end_turn" else stop, "stop_sequence": None}
            if stop == "refusal":
                delta["stop_details"] = {"type": "refusal", "category": "cyber", "explanation": None}
            final = {"output_tokens": usage[1]} if usage is not None else {}
            events += [_sse("message_delta", delta=delta, usage=final), _sse("message_stop")]
        return events

    def error_body(self, code: int, message: str) -> Any:
        kind = self.types.get(code, "overloaded_error" if code == 529 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def error_event(self, code: int, message: str) -> bytes:
        return _sse("error", **{key: one for key, one in self.error_body(code, message).items() if key != "type"})

    def schema_of(self, request: Request) -> Any:
        return request.body.get("output_config", {}).get("format", {}).get("schema")

    def tools_of(self, request: Request) -> list[str]:
        return [tool["name"] for tool in request.body.get("tools", ())]


class GeminiDialect(Dialect):
    adapter = "gemini"
    package = "httpx2"
    key_header = ("x-goog-api-key", "")
    prompt_too_long = "The input token count (9000) exceeds the maximum number of tokens allowed (8192)."
    schema_rejected = "Invalid JSON payload: response_json_schema is too complex"
    stops: ClassVar = {"end": "STOP", "truncated": "MAX_TOKENS", "withheld": "SAFETY"}

    def events(self, text: str, calls: tuple[Call, ...], stop: str, usage: tuple[int, int, int] | None) -> list[bytes]:
        half = len(text) // 2
        parts: list[dict[str, Any]] = [{"text": "hm", "thought": True}]
        parts += [{"text": piece} for piece in (text[:half], text[half:]) if piece]
        parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in calls]
        events = [self._chunk([part]) for part in parts]
        if stop:
            last: dict[str, Any] = {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": stop}]}
            if usage is not None:
                counts = {"promptTokenCount": usage[0], "candidatesTokenCount": usage[1]}
                last["usageMetadata"] = counts | ({"cachedContentTokenCount": usage[2]} if usage[2] else {})
            events.append(event(last))
        return events

    def _chunk(self, parts: list[dict[str, Any]]) -> bytes:
        return event({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})

    def error_body(self, code: int, message: str) -> Any:
        return {"error": {"code": code, "message": message, "status": "FAILED"}}

    def error_event(self, code: int, message: str) -> bytes:
        return event(self.error_body(code, message))

    def schema_of(self, request: Request) -> Any:
        return request.body.get("generationConfig", {}).get("responseJsonSchema")

    def tools_of(self, request: Request) -> list[str]:
        return [one["name"] for tool in request.body.get("tools", ()) for one in tool["functionDeclarations"]]


class ProviderCaller(Caller):
    """Runs skills on the fake server in the dialect of a provider."""

    def __init__(self, root: Path, server: FakeServer, dialect: Dialect) -> None:
        self.dialect = dialect
        self.key_header = dialect.key_header[0]
        super().__init__(root, server)

    def configure(self, others: dict[str, Any] | None = None, **settings: Any) -> None:
        name = "openai/m" if self.dialect.adapter == "litellm" else "m"
        own = {"model": f"{self.dialect.adapter}:{name}", "base_url": self.dialect.url(self.server.url)}
        super().configure(others, **(own | {"answer_form": "full", "retries": 1} | settings))

    def key_headers(self) -> set[str]:
        name, before = self.dialect.key_header
        return {value.removeprefix(before) for request in self.server.requests for value in request.all(name)}


def _sse(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()


DIALECTS: tuple[Dialect, ...] = (OpenAIDialect(), AnthropicDialect(), GeminiDialect(), LiteLLMDialect())
