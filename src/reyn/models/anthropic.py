"""Adapter for Anthropic's Messages API. Needs the extra `anthropic`.

It caches the static part of the prompt, constrains the output with `output_config.format`, and uses native tools. The
API has no sampling parameters, so `temperature` is not sent. Requests belong to `http_model`, key and errors to
`remote`.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from reyn.config.models import thought_tokens
from reyn.errors import EffortRejected
from reyn.journal.kinds import Usage
from reyn.models.chat_messages import NO_TEXT, decode_arguments, system_text, to_turns
from reyn.models.decoding import ANTHROPIC
from reyn.models.http_model import HttpModel, sdk_headers
from reyn.models.remote import RequestFormat, parse_retry_after

if TYPE_CHECKING:
    from reyn.models.messages import Image, Message
    from reyn.models.protocol import ModelRequest, ToolDefinition
    from reyn.models.streaming import StreamedCall, StreamedReply

_CACHED = {"cache_control": {"type": "ephemeral"}}
_THOUGHTS = ("thinking", "redacted_thinking")
"""The types of blocks with thoughts."""
_LEAST_BUDGET = 1024
_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class MessageEvent(msgspec.Struct):
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


class AnthropicModel(HttpModel):
    """A model behind the Messages API."""

    adapter = "anthropic"
    _path = "/v1/messages"
    _event = MessageEvent
    _status_of_type: ClassVar = {
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
    _truncated = frozenset(("max_tokens", "model_context_window_exceeded", "pause_turn"))
    _subset = ANTHROPIC

    def _headers(self, http: Any, key: str) -> Mapping[str, Any]:
        options = {"base_url": self._base_url, "http_client": http, "open_telemetry": False}
        return sdk_headers(self._sdk.AsyncAnthropic(api_key=key, **options))

    def _body(
        self, request: ModelRequest, request_format: RequestFormat, schema: dict[str, Any] | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._settings.answer_tokens(request.effort),
            "messages": to_messages(request.messages, has_thoughts=request_format.effort != "none"),
            "stream": True,
        }
        if system := to_system(request.messages):
            body["system"] = system
        if request.tools:
            body["tools"] = to_anthropic_tools(request.tools)
        output: dict[str, Any] = {}
        if (thinking := _thinking(request_format, request.messages)) is not None:
            body["thinking"] = thinking
            if thinking["type"] == "adaptive":
                output["effort"] = request_format.effort
        if schema is not None:
            output["format"] = {"type": "json_schema", "schema": schema}
        if output:
            body["output_config"] = output
        return body

    def _adder(self, reply: StreamedReply, request_format: RequestFormat) -> Callable[[MessageEvent], None]:
        blocks = _Blocks(reply)

        def add(event: MessageEvent) -> None:
            if event.error is not None:
                raise self._chunk_error(event.error, request_format)
            blocks.add(event)
            if reply.stop == "refusal":
                raise self._withheld(f"refusal{blocks.refusal}")

        return add

    # -- errors ---------------------------------------------------------------------------------------

    def _other_format(self, message: str, request_format: RequestFormat) -> tuple[str, dict[str, Any]] | None:
        is_level = isinstance(request_format.effort, str) and request_format.thinks
        if is_level and request_format.has_effort_levels and ("adaptive" in message or "effort" in message):
            return "thinking budget", {"has_effort_levels": False}  # of models before Claude 4.6
        return super()._other_format(message, request_format)

    def _effort_rejected(self, text: str, request_format: RequestFormat) -> EffortRejected:
        error = super()._effort_rejected(text, request_format)
        if isinstance(request_format.effort, int):
            hint = f"Use `low`, `medium` or `high`, which newer models need; the smallest number is {_LEAST_BUDGET}."
            return EffortRejected(error.message, hint=hint)
        return error

    def _retry_after(self, headers: Mapping[str, str]) -> float | None:
        """Return the delay in `Retry-After`, or else the time until the exhausted rate limits are reset."""
        resets = [
            _seconds_until(headers.get(name.removesuffix("remaining") + "reset", ""))
            for name in headers
            if name.startswith("anthropic-ratelimit-") and name.endswith("-remaining") and headers[name] == "0"
        ]
        found = [seconds for seconds in resets if seconds > 0]
        return parse_retry_after(headers) or max(found, default=None)


class _Thought(NamedTuple):
    """A block of thoughts that is arriving: how many blocks of the answer come before it, and its text in pieces."""

    place: int
    block: dict[str, Any]
    pieces: list[str]


class _Blocks:
    """Adds the events of a stream, and of the content blocks in it, to a reply."""

    def __init__(self, reply: StreamedReply) -> None:
        self.refusal = ""
        self._reply = reply
        self._calls: dict[int, StreamedCall] = {}
        self._thoughts: dict[int, _Thought] = {}
        self._has_text = False
        self._counts: dict[str, Any] = {}

    def add(self, event: MessageEvent) -> None:
        match event.type:
            case "message_start":
                self._count((event.message or {}).get("usage"))
            case "content_block_start":
                self._begin(event.index, event.content_block or {})
            case "content_block_delta":
                self._continue(event.index, event.delta or {})
            case "content_block_stop":
                self._end(event.index)
            case "message_delta":
                delta = event.delta or {}
                self._stop(delta.get("stop_reason"), delta.get("stop_details"))
                self._count(event.usage)
            case "message":  # a server that does not stream
                for number, block in enumerate(event.content or ()):
                    self._begin(number, block)
                    self._end(number)
                self._stop(event.stop_reason, event.stop_details)
                self._count(event.usage)

    def _begin(self, index: int, block: dict[str, Any]) -> None:
        if block.get("type") == "tool_use":
            whole = msgspec.json.encode(block.get("input") or {}).decode()
            self._calls[index] = self._reply.add_call(str(block.get("id") or ""), str(block.get("name") or ""), whole)
        elif block.get("type") == "text":
            self._add_text(block.get("text"))
        elif block.get("type") in _THOUGHTS:
            place = self._has_text + len(self._calls)
            self._thoughts[index] = _Thought(place, block, [str(block.get("thinking") or "")])
            self._reply.add_thought(block.get("thinking"))

    def _continue(self, index: int, delta: dict[str, Any]) -> None:
        piece = delta.get("partial_json")
        if delta.get("type") == "input_json_delta" and index in self._calls and isinstance(piece, str):
            self._reply.add_arguments(self._calls[index], piece)
        elif delta.get("type") == "text_delta":
            self._add_text(delta.get("text"))
        elif index in self._thoughts:
            thought = self._thoughts[index]
            if delta.get("type") == "thinking_delta" and isinstance(text := delta.get("thinking"), str):
                thought.pieces.append(text)
                self._reply.add_thought(text)
            elif delta.get("type") == "signature_delta":
                thought.block["signature"] = delta.get("signature")

    def _end(self, index: int) -> None:
        """End a block. Thoughts without a signature were cut off, and the API would not accept them."""
        thought = self._thoughts.pop(index, None)
        if thought is None:
            return
        if thought.block["type"] == "thinking":
            if not thought.block.get("signature"):
                return
            thought.block["thinking"] = "".join(thought.pieces)
        self._reply.add_opaque({"at": thought.place, "block": thought.block})

    def _add_text(self, text: Any) -> None:
        if isinstance(text, str) and text:
            self._has_text = self._has_text or bool(text.strip())
            self._reply.add_text(text)

    def _stop(self, reason: Any, details: Any) -> None:
        self._reply.stop = str(reason) if reason else self._reply.stop
        fields = details if isinstance(details, dict) else {}
        words = [str(fields[key]) for key in ("category", "explanation") if fields.get(key)]
        self.refusal = f" ({': '.join(words)})" if words else self.refusal

    def _count(self, usage: Any) -> None:
        """Keep the latest counts; those of later events are cumulative.

        `input_tokens` of the API has only those that no cache served or stored; in the usage it is all of them.
        """
        if isinstance(usage, dict):
            self._counts |= {key: value for key, value in usage.items() if value is not None}
        counts = self._counts
        if "input_tokens" not in counts or "output_tokens" not in counts:
            return
        cached, stored = (counts.get(f"cache_{kind}_input_tokens", 0) for kind in ("read", "creation"))
        parts = (counts["input_tokens"], cached, stored)
        if all(isinstance(part, int) and part >= 0 for part in parts):
            self._reply.usage = Usage(sum(parts), counts["output_tokens"], cached, stored, _thinking_tokens(counts))
        else:  # the recorder reports what is wrong
            self._reply.usage = Usage(counts["input_tokens"], counts["output_tokens"])


def _thinking_tokens(counts: dict[str, Any]) -> int | msgspec.UnsetType:
    """Return the part of the output that is thoughts, if the server reports a valid one."""
    details, written = counts.get("output_tokens_details"), counts["output_tokens"]
    found = details.get("thinking_tokens") if isinstance(details, dict) else None
    if isinstance(found, int) and isinstance(written, int) and 0 < found <= written:
        return found
    return msgspec.UNSET


def _seconds_until(text: str) -> float:
    """Return the time until an RFC 3339 timestamp; 0 if it is invalid."""
    try:
        return datetime.fromisoformat(text).timestamp() - time.time()
    except ValueError:
        return 0.0


# -- messages and tools ------------------------------------------------------------------------------


def _thinking(request_format: RequestFormat, messages: Sequence[Message]) -> dict[str, Any] | None:
    """Return how the model thinks; `None` leaves it to the provider.

    With a budget, the API requires the thoughts of the calls whose results come last. Without them, the model answers
    without thoughts of its own.
    """
    effort = request_format.effort
    if effort is None:
        return None
    if effort == "none":
        return {"type": "disabled"}
    if isinstance(effort, str) and request_format.has_effort_levels:
        return {"type": "adaptive", "display": "summarized"}
    if _continues_calls(messages):
        return None
    return {"type": "enabled", "budget_tokens": thought_tokens(effort)}


def _continues_calls(messages: Sequence[Message]) -> bool:
    """Return whether messages end with the results of calls that the model made without thoughts."""
    for message in reversed(messages):
        if message.role == "assistant":
            return bool(message.tool_calls) and not (message.thoughts and message.thoughts.parts)
        if message.role == "user":
            return False
    return False


def to_system(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the system prompt with a cache breakpoint at its end; tools come before it and are cached with it."""
    text = system_text(messages)
    return [{"type": "text", "text": text, **_CACHED}] if text.strip() else []


def to_messages(messages: Iterable[Message], *, has_thoughts: bool = True) -> list[dict[str, Any]]:
    """Return the messages after the system prompt, with the thoughts of earlier answers if the model thinks."""

    def blocks_of(message: Message) -> list[dict[str, Any]]:
        blocks, thoughts = _blocks(message), message.thoughts
        if has_thoughts and thoughts is not None and thoughts.api == AnthropicModel.adapter:
            own = [part for part in thoughts.parts if _is_own(part)]
            for number, part in enumerate(own):
                blocks.insert(part["at"] + number, part["block"])
        return blocks

    return to_turns(messages, "assistant", "content", blocks_of)


def _is_own(part: Any) -> bool:
    """Return whether a part is a block of thoughts. Recorded parts may be forged: other blocks are no thoughts."""
    match part:
        case {"at": int(place), "block": {"type": str(kind)}}:
            return place >= 0 and kind in _THOUGHTS
    return False


def to_anthropic_tools(tools: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return tool definitions."""
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return _result(message)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    blocks += map(_image, message.images)
    blocks += [
        {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": decode_arguments(call.arguments)}
        for call in message.tool_calls
    ]
    return blocks or [{"type": "text", "text": NO_TEXT}]


def _result(message: Message) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    result = {"type": "tool_result", "tool_use_id": _id(message.tool_call_id)}
    content = [*text, *map(_image, message.images)]
    return [result | ({"content": content} if content else {})]


def _image(image: Image) -> dict[str, Any]:
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _id(id: str) -> str:
    """Return an id that the API accepts; ids of other providers may have other characters."""
    return id if _ID.fullmatch(id) else f"call_{hashlib.sha256(id.encode()).hexdigest()[:24]}"
