"""The forms of messages: JSON values of the chat completions API, turns of other APIs, and plain text.

`to_wire` is for the adapters that speak chat completions, `to_turns` for APIs in which roles alternate, and
`to_plain_text` for models that have no native tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from reyn.documents import JsonError, decode_json
from reyn.errors import RequestRejected
from reyn.models.chat_thoughts import add_thoughts

if TYPE_CHECKING:
    from reyn.models.messages import Image, Message
    from reyn.models.protocol import ToolDefinition


def to_wire(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages with images, native tool calls and their results.

    The API accepts images only from the user, so images of tool results follow in a message of the user after the last
    result of the batch.
    """
    wire: list[dict[str, Any]] = []
    result_images: list[Image] = []
    for message in messages:
        if message.role == "tool":
            wire.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text})
            result_images += message.images
            continue
        if result_images:
            wire.append(_images_of_results(result_images))
            result_images = []
        wire.append(_to_wire(message))
    if result_images:
        wire.append(_images_of_results(result_images))
    return wire


def _to_wire(message: Message) -> dict[str, Any]:
    wire = _content_to_wire(message)
    if message.name:
        wire["name"] = message.name
    return wire


def _content_to_wire(message: Message) -> dict[str, Any]:
    if message.images:
        text = [{"type": "text", "text": message.text}] if message.text else []
        return {"role": message.role, "content": [*text, *_image_parts(message.images)]}
    if not message.tool_calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    wire = {"role": message.role, "content": message.text or None, "tool_calls": calls}
    if message.thoughts is not None:
        add_thoughts(wire, message.thoughts)
    return wire


def _images_of_results(images: list[Image]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "Images of the tool results:"}, *_image_parts(images)]}


def _image_parts(images: Iterable[Image]) -> Iterator[dict[str, Any]]:
    for image in images:
        url = image.url or f"data:{image.media_type};base64,{image.data}"
        yield {"type": "image_url", "image_url": {"url": url}}


def tool_wire(tools: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return tool definitions."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


NO_TEXT = "(no text)"
"""Sent for a message without content, which some APIs reject."""


def system_text(messages: Sequence[Message]) -> str:
    """Return the text of the system message; empty if there is none."""
    return messages[0].text if messages and messages[0].role == "system" else ""


def to_turns(
    messages: Iterable[Message], assistant: str, content: str, parts_of: Callable[[Message], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the messages after the system message as turns: the results of one batch of tool calls become one.

    Args:
        messages: The messages.
        assistant: The role of the model.
        content: The field with the parts of a turn.
        parts_of: Returns the parts of a message.
    """
    turns: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        if number == 0 and message.role == "system":
            continue
        role = assistant if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1][content] += parts_of(message)
        else:
            turns.append({"role": role, content: parts_of(message)})
    return turns


def decode_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call. Invalid ones, which the OS has rejected, are sent as text."""
    try:
        decoded = decode_json(text or "{}")
    except JsonError:
        decoded = None
    return decoded if isinstance(decoded, dict) else {"invalid_arguments": text}


def to_plain_text(messages: Iterable[Message], model: str) -> Iterator[tuple[str, str]]:
    """Yield role and text of messages for a model without native tools and images.

    A tool call becomes a line of the assistant's text; a result becomes a message of the user.

    Raises:
        RequestRejected: If a message has an image.
    """
    for message in messages:
        if message.images:
            hint = "Use a model that accepts images, or remove the image."
            raise RequestRejected(f"model `{model}` does not accept images", hint=hint)
        if message.role == "tool":
            yield "user", f"Result of tool call {message.tool_call_id}:\n{message.text}"
        elif message.tool_calls:
            calls = (f"Tool call {call.id}: {call.name}({call.arguments})" for call in message.tool_calls)
            yield message.role, "\n".join([message.text, *calls] if message.text else calls)
        else:
            yield message.role, message.text
