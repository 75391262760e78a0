"""The recorded form of an answer with native tool calls: canonical JSON `{"content": …, "tool_calls": […]}`.

The kernel records it as the text of the answer, so that a replay derives the ops from what the model sent.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from reyn.journal import canonical
from reyn.models.protocol import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.models.protocol import ModelAnswer


class NativeReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer to a request with tools: text, tool calls, or both."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


def encode_reply(reply: ModelAnswer, scrub: Callable[[str], str]) -> bytes:
    """Return the bytes to record for an answer, with secrets replaced and lone surrogates escaped."""

    def clean(text: str) -> str:
        return scrub(text).encode("utf-8", "backslashreplace").decode()

    calls = tuple(ToolCall(clean(call.id), clean(call.name), clean(call.arguments)) for call in reply.tool_calls)
    return canonical(NativeReply(clean(reply.text), calls))


def decode_reply(text: str | bytes) -> NativeReply:
    """Return a recorded answer.

    Raises:
        msgspec.MsgspecError: If the text has another shape.
    """
    return msgspec.json.decode(text, type=NativeReply)


def call_id(run_id: str, call: str, number: int) -> str:
    """Return the id of a tool call for a provider that sent none: the same for the same call, unique across runs."""
    return "call_" + hashlib.sha256(f"{run_id} {call} {number}".encode()).hexdigest()[:24]
