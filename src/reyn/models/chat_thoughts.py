"""Thoughts in the chat completions API, which has no field of its own for them: what servers send, and get back.

Servers add `reasoning_content` or `reasoning` (a text), `reasoning_details` (OpenRouter) or `thinking_blocks` (LiteLLM)
to a message, and `extra_content` to a tool call (Gemini). The same fields go back with the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from reyn.models.streaming import StreamedReply
    from reyn.models.thoughts import Thoughts

_TEXTS = ("reasoning_content", "reasoning")
_LISTS = ("reasoning_details", "thinking_blocks")
_PIECES = ("text", "summary", "thinking")
"""The fields of a listed part whose texts arrive in pieces."""


class ThoughtFields(msgspec.Struct):
    """The fields with thoughts in a piece of an answer."""

    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None


class _Piece:
    """A listed part that is arriving."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields: dict[str, Any] = {}
        self._pieces: dict[str, list[str]] = {}
        self.add(fields)

    def continues_with(self, fields: dict[str, Any]) -> bool:
        """Return whether a piece continues this part: it has the same index and type, and the part has not ended."""
        own = self.fields
        is_whole = "data" in fields or "data" in own or bool(own.get("signature"))
        return not is_whole and all(own.get(name) == fields.get(name) for name in ("index", "type"))

    def add(self, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            if name in _PIECES and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
            elif value is not None or name not in self.fields:
                self.fields[name] = value

    def whole(self) -> dict[str, Any]:
        return self.fields | {name: "".join(pieces) for name, pieces in self._pieces.items()}


class ThoughtCollector:
    """Assembles streamed thoughts in time linear in their length."""

    def __init__(self, reply: StreamedReply) -> None:
        self._reply = reply
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[_Piece]] = {}
        reply.on_end = self._end

    def add(self, delta: ThoughtFields) -> None:
        """Add the thoughts of a piece of an answer."""
        is_read = False
        for name in _TEXTS:
            text = getattr(delta, name)
            if isinstance(text, str) and text:
                self._texts.setdefault(name, []).append(text)
                self._reply.length += len(text)
                if not is_read:  # some servers send the text under both names
                    self._reply.add_thought(text)
                is_read = True
        for name in _LISTS:
            listed = getattr(delta, name)
            for fields in listed if isinstance(listed, list) else ():
                if isinstance(fields, dict):
                    self._add_part(name, fields, is_read=is_read)

    def _add_part(self, name: str, fields: dict[str, Any], *, is_read: bool) -> None:
        parts = self._lists.setdefault(name, [])
        if parts and parts[-1].continues_with(fields):
            parts[-1].add(fields)
        else:
            parts.append(_Piece(fields))
        self._reply.length += sum(len(value) for value in fields.values() if isinstance(value, str))
        if not is_read:
            self._reply.add_thought("".join(str(fields.get(piece) or "") for piece in _PIECES))

    def _end(self) -> None:
        reply = self._reply
        for name, pieces in self._texts.items():
            reply.opaque.append({"field": name, "value": "".join(pieces)})
        for name, parts in self._lists.items():
            reply.opaque.append({"field": name, "value": [part.whole() for part in parts]})
        for number, call in enumerate(reply.calls):
            if call.extra_content is not None:
                reply.opaque.append({"call": number, "value": call.extra_content})


def add_thoughts(wire: dict[str, Any], thoughts: Thoughts) -> None:
    """Add the thoughts of a server with this API to a message with tool calls, as the server sent them.

    Recorded parts may be forged: they set no other field of the message.
    """
    calls = wire["tool_calls"]
    for part in thoughts.parts if thoughts.api in ("openai", "litellm") else ():
        match part:
            case {"field": field, "value": str(value)} if field in _TEXTS:
                wire[field] = value
            case {"field": field, "value": list(value)} if field in _LISTS:
                wire[field] = value
            case {"call": int(number), "value": value} if 0 <= number < len(calls):
                calls[number]["extra_content"] = value
