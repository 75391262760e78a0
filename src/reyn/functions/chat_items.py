"""The items of a chat's stream: pieces of text, tool calls and their results, and the reply at the end."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from reyn.context import NormalizedMessageList
from reyn.journal import kinds


class ChatText(msgspec.Struct, frozen=True):
    """A piece of the model's text."""

    text: str


class ChatToolCall(msgspec.Struct, frozen=True):
    """The model calls a tool, and the permission gate allows it.

    Attributes:
        id: The call, unique in the run.
        name: The tool; `kind` and form of a built-in op, such as `file_read`.
        arguments: Its arguments.
    """

    id: str
    name: str
    arguments: dict[str, Any]


class ChatToolResult(msgspec.Struct, frozen=True):
    """A tool call has a result.

    Attributes:
        id: The call.
        name: The tool.
        status: `ok`, `error`, `denied`, `skipped` or `timeout`.
        result: What the model sees.
    """

    id: str
    name: str
    status: str
    result: dict[str, Any]


class ChatRestart(msgspec.Struct, frozen=True):
    """The model is called again: the text of this turn that arrived before is void.

    Attributes:
        reason: Why: a retried error, or an answer that violates the contract.
    """

    reason: str


class ChatReply(msgspec.Struct, frozen=True):
    """The end of a call, the last item of its stream.

    Attributes:
        text: The reply; empty if the turn was aborted.
        history: The conversation after the call. Pass it to the next call, unless the conversation has a key.
        run_id: The run.
        status: `replied` or `aborted`.
        usage: The tokens of the run so far.
    """

    text: str
    history: NormalizedMessageList
    run_id: str
    status: Literal["replied", "aborted"] = "replied"
    usage: kinds.Usage = kinds.Usage()


ChatItem = ChatText | ChatToolCall | ChatToolResult | ChatRestart | ChatReply
