"""Ask a model without native tools for an answer with tool calls, for instance the fallback of one that has them.

The request was written for native tools. The tools are appended to the system message in words, and the answer
`{"tool_calls": [{"name": …, "arguments": {…}}]}` becomes tool calls.
"""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.documents import JsonError, decode_json
from reyn.models.answers import to_answer
from reyn.models.messages import Message, ToolCall
from reyn.models.protocol import PLAIN_TEXT, Model, ModelAnswer, ModelRequest, ToolDefinition, call_id


async def complete_with_text_tools(model: Model, request: ModelRequest) -> ModelAnswer:
    """Call a model without native tools; return its reply with the tool calls of its answer."""
    if not request.tools:
        return to_answer(await model.complete(request), request)
    words = in_words(request)
    reply = to_answer(await model.complete(words), words)
    try:
        answer = decode_json(reply.text)
    except JsonError:
        return reply
    calls = answer.get("tool_calls") if isinstance(answer, dict) else None
    if isinstance(calls, list) and calls:
        tool_calls = tuple(_tool_call(one, request, number) for number, one in enumerate(calls, start=1))
        return msgspec.structs.replace(reply, text=_content(answer), tool_calls=tool_calls)
    if request.contract == PLAIN_TEXT and isinstance(answer, dict) and isinstance(answer.get("content"), str):
        return msgspec.structs.replace(reply, text=answer["content"])
    return reply


def in_words(request: ModelRequest) -> ModelRequest:
    """Return a request whose tools are described in its system message and in its contract."""
    messages, text = list(request.messages), _instructions(request)
    if messages and messages[0].role == "system":
        messages[0] = msgspec.structs.replace(messages[0], text=f"{messages[0].text}\n{text}")
    else:
        messages.insert(0, Message("system", text))
    if request.contract == PLAIN_TEXT:
        decide = [_closed({"content": {"type": "string"}})]
    else:
        decide = request.contract.get("anyOf", [request.contract])
    contract = {"anyOf": [*decide, _calls_schema(request.tools)]}
    return msgspec.structs.replace(request, messages=tuple(messages), contract=contract, tools=())


def _instructions(request: ModelRequest) -> str:
    tools = "".join(f"- {_describe(tool)}\n" for tool in request.tools)
    reply = 'To reply, answer {"content": ...}. ' if request.contract == PLAIN_TEXT else ""
    call = '{"tool_calls": [{"name": ..., "arguments": {...}}]}'
    return f"{reply}To call tools first, answer {call} instead. You are then asked again, with their results.\n{tools}"


def _describe(tool: ToolDefinition) -> str:
    parameters = msgspec.json.encode(tool.parameters).decode()
    return f"{tool.name}: {' '.join(tool.description.split())} Arguments: {parameters}"


def _calls_schema(tools: tuple[ToolDefinition, ...]) -> dict[str, Any]:
    calls = [_closed({"name": {"const": tool.name}, "arguments": tool.parameters}) for tool in tools]
    return _closed({"tool_calls": {"type": "array", "minItems": 1, "items": {"anyOf": calls}}})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _content(answer: dict[str, Any]) -> str:
    content = answer.get("content")
    return content if isinstance(content, str) else ""


def _tool_call(call: Any, request: ModelRequest, number: int) -> ToolCall:
    """Return a call of an answer. What is not a call keeps its JSON as arguments; the contract rejects it."""
    fields = call if isinstance(call, dict) else {"arguments": call}
    name, arguments = fields.get("name"), fields.get("arguments", {})
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ToolCall(call_id(request.run_id, request.call, number), name if isinstance(name, str) else "", text)
