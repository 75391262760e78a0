"""Messages of a prompt or of a history: text, images, tool calls."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import force_setattr

from reyn.errors import MessageInvalid, surrogate_fault
from reyn.models.thoughts import Thoughts

Role = Literal["system", "user", "assistant", "tool"]
"""The author of a message; `tool` is the result of a tool call."""


class Image(msgspec.Struct, frozen=True):
    """An image in a message: either its content or a URL that the provider fetches.

    Attributes:
        media_type: The media type of `data`, such as `image/png`.
        data: The content in base64; empty if `url` is set.
        url: The address of the image; empty if `data` is set.
    """

    media_type: str = ""
    data: str = ""
    url: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call of an answer.

    Attributes:
        id: The id that the provider chose; the result refers to it.
        name: The name of the tool.
        arguments: The arguments as JSON text, exactly as the model wrote them.
    """

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """A message of the prompt.

    Attributes:
        role: The author.
        text: The text; empty if the message consists of images or tool calls.
        images: Images of a message of the user, or of a tool's result.
        tool_calls: The tools that a message of the assistant calls.
        tool_call_id: The call that a message with role `tool` answers.
        thoughts: What the model that is asked thought before this message of the assistant.
        name: The name of the author, for models that tell several users apart.
        annotations: What a provider said about the text of an answer, such as citations. It is kept, not sent.
    """

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    thoughts: Thoughts | None = None
    name: str = ""
    annotations: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        try:
            force_setattr(self, "images", tuple(self.images))
            force_setattr(self, "tool_calls", tuple(self.tool_calls))
        except TypeError as error:
            raise MessageInvalid("a message has `images` or `tool_calls` that are no list") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the message as JSON, in the format of chat completion APIs. Reyn reads it wherever it takes messages.

        What the format has no place for is under `reyn`.

        Raises:
            MessageInvalid: A field is malformed, or text is not valid Unicode.
        """
        return message_to_dict(self)


def message_to_dict(message: Message, **more: Any) -> dict[str, Any]:
    """Return a message in the format of chat completion APIs; `more` is what only Reyn knows about it.

    Raises:
        MessageInvalid: It cannot be read again.
    """
    content: Any = message.text
    if message.images:
        content = [{"type": "text", "text": message.text}] if message.text else []
        content += [_image_to_dict(image) for image in message.images]
    elif message.tool_calls and not message.text:
        content = None
    written: dict[str, Any] = {"role": message.role, "content": content}
    if message.name:
        written["name"] = message.name
    if message.tool_calls:
        written["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        written["tool_call_id"] = message.tool_call_id
    if message.annotations:
        written["annotations"] = list(message.annotations)
    own = {name: value for name, value in more.items() if value}
    if message.thoughts is not None:
        own["thoughts"] = message.thoughts
    if own:
        written["reyn"] = own
    try:
        builtin: dict[str, Any] = msgspec.to_builtins(written, str_keys=True)
        text = msgspec.json.encode(builtin).decode()
    except UnicodeEncodeError as error:
        raise MessageInvalid(f"a message has {surrogate_fault(str(error.object))}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageInvalid(f"a message has no JSON form: {error}") from error
    decoded: dict[str, Any] = msgspec.json.decode(text)
    return decoded


def _image_to_dict(image: Image) -> dict[str, Any]:
    if image.data and not image.url:
        if image_of_url(url := f"data:{image.media_type};base64,{image.data}") != image:
            raise MessageInvalid(f"an image has the media type {image.media_type!r:.100}")
        return {"type": "image_url", "image_url": {"url": url}}
    if image.data or image_of_url(image.url) != Image(url=image.url):
        raise MessageInvalid("an image has both data and an address", hint="Use one of them.")
    written = {"type": "image_url", "image_url": {"url": image.url}}
    return written | ({"media_type": image.media_type} if image.media_type else {})


def image_of_url(url: str) -> Image:
    """Return the image at a URL; a `data:` URL holds the image itself."""
    head, comma, data = url.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return Image(media_type=head[5:-7], data=data)
    return Image(url=url)
