"""Messages and tools as JSON values of Anthropic's Messages API."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reyn.models.protocol import Image, Message, ToolDefinition

_CACHED = {"cache_control": {"type": "ephemeral"}}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_EMPTY = "(no text)"
"""Sent for a message without content, which the API rejects."""


def to_system(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the system prompt with a cache breakpoint at its end; tools come before it and are cached with it."""
    if not messages or messages[0].role != "system" or not messages[0].text.strip():
        return []
    return [{"type": "text", "text": messages[0].text, **_CACHED}]


def to_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the messages after the system prompt. Results of one batch of tool calls become one message."""
    wire: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        if number == 0 and message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _result(message) if message.role == "tool" else _blocks(message)
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    return wire


def to_tools(tools: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return tool definitions."""
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]


def _blocks(message: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    blocks += map(_image, message.images)
    blocks += [
        {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": _input(call.arguments)}
        for call in message.tool_calls
    ]
    return blocks or [{"type": "text", "text": _EMPTY}]


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


def _input(arguments: str) -> dict[str, Any]:
    """Return the arguments of a call. Invalid ones, which the OS has rejected, are sent as text."""
    try:
        decoded = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        decoded = None
    return decoded if isinstance(decoded, dict) else {"invalid_arguments": arguments}
