"""Messages and tools as values of the Gemini API."""

from __future__ import annotations

import base64
import mimetypes
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reyn.models.protocol import Image, Message, ToolDefinition

_SIGNATURE = b"skip_thought_signature_validator"
"""Sent with function calls of earlier turns. The API requires a signature; the journal records none."""
_EMPTY = "(no text)"
"""Sent for a message without content, which the API rejects."""


def to_system(messages: Sequence[Message]) -> str:
    """Return the system instruction; empty if there is none."""
    return messages[0].text if messages and messages[0].role == "system" else ""


def to_contents(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the messages after the system instruction. Results of one batch of tool calls become one content."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for number, message in enumerate(messages):
        if number == 0 and message.role == "system":
            continue
        names |= {call.id: call.name for call in message.tool_calls}
        role = "model" if message.role == "assistant" else "user"
        parts = _result(message, names) if message.role == "tool" else _parts(message)
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
    return contents


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
        function = {"id": call.id, "name": call.name, "args": _arguments(call.arguments)}
        parts.append({"function_call": function, "thought_signature": _SIGNATURE})
    return parts or [{"text": _EMPTY}]


def _result(message: Message, names: dict[str, str]) -> list[dict[str, Any]]:
    name = names.get(message.tool_call_id, "unknown")
    response = {"id": message.tool_call_id, "name": name, "response": {"result": message.text}}
    return [{"function_response": response}, *map(_image, message.images)]


def _image(image: Image) -> dict[str, Any]:
    if image.url:
        kind = image.media_type or mimetypes.guess_type(image.url.partition("?")[0])[0] or "image/jpeg"
        return {"file_data": {"file_uri": image.url, "mime_type": kind}}
    return {"inline_data": {"mime_type": image.media_type, "data": base64.b64decode(image.data)}}


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call. Invalid ones, which the OS has rejected, are sent as text."""
    try:
        decoded = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        decoded = None
    return decoded if isinstance(decoded, dict) else {"invalid_arguments": text}
