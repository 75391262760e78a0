"""Messages of a prompt or of a history: text, images, tool calls."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import force_setattr

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
    """

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    thoughts: Thoughts | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "images", tuple(self.images))
        force_setattr(self, "tool_calls", tuple(self.tool_calls))
