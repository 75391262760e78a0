"""Answers with thoughts and a call of `file_read`, as the servers of each provider stream them, and what goes back."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.models.dialects import AnthropicDialect, Dialect, GeminiDialect, LiteLLMDialect, OpenAIDialect
from tests.models.fake_server import Behavior, event, stream

SUMMARY = "The price is in the file. I read it. 漢字 \U0001f600"
HALVES = (SUMMARY[:11], SUMMARY[11:])
ARGUMENTS = {"path": "prices.csv"}
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds+/="
DONE = b"data: [DONE]\n\n"


class Wire(NamedTuple):
    """One way in which a provider sends thoughts.

    Attributes:
        name: What is special about it.
        dialect: The API.
        events: The stream of an answer that calls `file_read`.
        back: The message of the assistant in the next request, without its text.
        tokens: The tokens of the thoughts that the server counts.
        summary: The part that people can read.
    """

    name: str
    dialect: Dialect
    events: tuple[bytes, ...]
    back: Any
    tokens: int = 40
    summary: str = SUMMARY

    @property
    def answer(self) -> Behavior:
        return stream(*self.events)


def sse(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()


def anthropic_events(
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]], stop: str = "tool_use"
) -> tuple[bytes, ...]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None}
    usage = {"input_tokens": 30, "output_tokens": 1}
    events = [sse("message_start", message=message | {"stop_sequence": None, "usage": usage})]
    for index, (block, deltas) in enumerate(blocks):
        events.append(sse("content_block_start", index=index, content_block=block))
        events += [sse("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(sse("content_block_stop", index=index))
    counts = {"output_tokens": 70, "output_tokens_details": {"thinking_tokens": 40}}
    events.append(sse("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=counts))
    return (*events, sse("message_stop"))


THINKING = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [
        *({"type": "thinking_delta", "thinking": half} for half in HALVES),
        {"type": "signature_delta", "signature": SIGNATURE},
    ],
)
REDACTED = ({"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4="}, [])
TOOL_USE = (
    {"type": "tool_use", "id": "toolu_1", "name": "file_read", "input": {}},
    [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"path": "pri', 'ces.csv"}')],
)
TEXT = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Let me look."}])
WHOLE = {"type": "thinking", "thinking": SUMMARY, "signature": SIGNATURE}
OMITTED = ({"type": "thinking", "thinking": "", "signature": ""}, [{"type": "signature_delta", "signature": SIGNATURE}])
USED = {"type": "tool_use", "id": "toolu_1", "name": "file_read", "input": ARGUMENTS}
SAID = {"type": "text", "text": "Let me look."}


def chat_events(*deltas: dict[str, Any], finish: str = "tool_calls") -> tuple[bytes, ...]:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = [
        event(base | {"choices": [{"index": 0, "delta": {"role": "assistant"} | delta, "finish_reason": None}]})
        for delta in deltas
    ]
    events.append(event(base | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
    usage = {"prompt_tokens": 30, "completion_tokens": 70, "total_tokens": 100}
    usage |= {"completion_tokens_details": {"reasoning_tokens": 40}}
    return (*events, event(base | {"choices": [], "usage": usage}), DONE)


def chat_call(**more: Any) -> dict[str, Any]:
    function = {"name": "file_read", "arguments": json.dumps(ARGUMENTS)}
    return {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function} | more]}


def chat_back(more: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    function = {"name": "file_read", "arguments": json.dumps(ARGUMENTS)}
    call = {"id": "call_1", "type": "function", "function": function} | (more or {})
    return {"role": "assistant", "content": None, "tool_calls": [call]} | fields


DETAILS = [
    {
        "type": "reasoning.text",
        "text": SUMMARY,
        "signature": SIGNATURE,
        "id": "r1",
        "format": "anthropic-claude-v1",
        "index": 0,
    },
    {"type": "reasoning.encrypted", "data": "b64=", "id": "r2", "format": "openai-responses-v1", "index": 1},
]
DETAIL_PIECES = [
    {"reasoning_details": [DETAILS[0] | {"text": HALVES[0], "signature": None}], "reasoning": HALVES[0]},
    {"reasoning_details": [DETAILS[0] | {"text": HALVES[1], "signature": None}], "reasoning": HALVES[1]},
    {"reasoning_details": [DETAILS[0] | {"text": ""}]},
    {"reasoning_details": [DETAILS[1]]},
]


BLOCK_PIECES = [
    {"reasoning_content": half, "thinking_blocks": [{"type": "thinking", "thinking": half}]} for half in HALVES
]


def gemini_events(*parts: dict[str, Any], finish: str = "STOP") -> tuple[bytes, ...]:
    events = [event({"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}) for part in parts]
    usage = {"promptTokenCount": 30, "candidatesTokenCount": 30, "thoughtsTokenCount": 40, "totalTokenCount": 100}
    last = {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": finish}], "usageMetadata": usage}
    return (*events, event(last))


CALL = {"functionCall": {"id": "f1", "name": "file_read", "args": ARGUMENTS}}
THOUGHT = [{"text": half, "thought": True} for half in HALVES]

CLAUDE, CHAT, GEMINI, LITELLM = AnthropicDialect(), OpenAIDialect(), GeminiDialect(), LiteLLMDialect()
SIGNED = CALL | {"thoughtSignature": SIGNATURE}
EXTRA = {"extra_content": {"google": {"thought_signature": SIGNATURE}}}
WIRES = (
    Wire("thinking", CLAUDE, anthropic_events([THINKING, TOOL_USE]), [WHOLE, USED]),
    Wire("thinking and text", CLAUDE, anthropic_events([THINKING, TEXT, TOOL_USE]), [WHOLE, SAID, USED]),
    Wire("redacted", CLAUDE, anthropic_events([THINKING, REDACTED, TOOL_USE]), [WHOLE, REDACTED[0], USED]),
    Wire("interleaved", CLAUDE, anthropic_events([TEXT, THINKING, TOOL_USE]), [SAID, WHOLE, USED]),
    Wire("omitted", CLAUDE, anthropic_events([OMITTED, TOOL_USE]), [WHOLE | {"thinking": ""}, USED], summary=""),
    Wire("signature", GEMINI, gemini_events(*THOUGHT, SIGNED), [SIGNED]),
    Wire(
        "signed text",
        GEMINI,
        gemini_events(*THOUGHT, {"text": "Let me look."}, {"text": "", "thoughtSignature": "abc="}, SIGNED),
        [{"text": "Let me look.", "thoughtSignature": "abc="}, SIGNED],
    ),
    Wire(
        "reasoning_content",
        CHAT,
        chat_events(*({"reasoning_content": half} for half in HALVES), chat_call()),
        chat_back(reasoning_content=SUMMARY),
    ),
    Wire(
        "reasoning",
        CHAT,
        chat_events(*({"reasoning": half} for half in HALVES), chat_call()),
        chat_back(reasoning=SUMMARY),
    ),
    Wire(
        "details",
        CHAT,
        chat_events(*DETAIL_PIECES, chat_call()),
        chat_back(reasoning=SUMMARY, reasoning_details=DETAILS),
    ),
    Wire(
        "extra_content",
        CHAT,
        chat_events({"reasoning_content": SUMMARY}, chat_call(**EXTRA)),
        chat_back(EXTRA, reasoning_content=SUMMARY),
    ),
    Wire(
        "blocks",
        LITELLM,
        chat_events(
            *BLOCK_PIECES,
            {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": SIGNATURE}]},
            chat_call(),
        ),
        chat_back(reasoning_content=SUMMARY, thinking_blocks=[WHOLE]),
    ),
)


def assistant_messages(dialect: Dialect, body: dict[str, Any]) -> list[Any]:
    """Return the messages of the assistant in a request: their parts, where an API has parts."""
    if dialect.adapter == "anthropic":
        return [one["content"] for one in body["messages"] if one["role"] == "assistant"]
    if dialect.adapter == "gemini":
        return [one["parts"] for one in body["contents"] if one["role"] == "model"]
    return [one for one in body["messages"] if one["role"] == "assistant"]


def truncated(wire: Wire) -> Behavior:
    """A stream that ends at the output limit while the model thinks."""
    if wire.dialect.adapter == "anthropic":
        block, deltas = THINKING
        events = anthropic_events([(block, deltas[:1])], stop="max_tokens")
        return stream(*(one for one in events if b"content_block_stop" not in one))
    if wire.dialect.adapter == "gemini":
        return stream(*gemini_events(THOUGHT[0], finish="MAX_TOKENS"))
    return stream(*chat_events({"reasoning_content": HALVES[0]}, finish="length"))
