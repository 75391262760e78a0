"""Streamed tool calls: assembled from pieces in the shapes that servers send, in linear time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reyn.models import ModelRequest
from reyn.models.openai import ToolCallCollector, ToolCallDelta
from reyn.models.protocol import call_id
from reyn.models.streaming import StreamedReply

REQUEST = ModelRequest((), {}, "run", "1.1", "hash")


def piece(index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": args}}


def collect(*pieces: dict[str, Any]) -> list[tuple[str, str, str]]:
    reply = StreamedReply(REQUEST)
    collector = ToolCallCollector(reply)
    for one in pieces:
        collector.add(msgspec.convert([one], list[ToolCallDelta]))
    calls = reply.answer("openai", "free", is_truncated=False).tool_calls
    new = {call_id("run", "1.1", number): f"new-{number}" for number in range(1, 9)}
    return [(new.get(call.id, call.id), call.name, call.arguments) for call in calls]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [piece(0, "a", "f", ""), piece(0, args='{"x"'), piece(0, args=":1}")], [("a", "f", '{"x":1}')], id="one"
        ),
        pytest.param(
            [piece(0, "a", "f", "{"), piece(1, "b", "g", "["), piece(0, args="}"), piece(1, args="]")],
            [("a", "f", "{}"), ("b", "g", "[]")],
            id="interleaved",
        ),
        pytest.param(
            [piece(0, "a", "f", "{"), piece(0, "a", "f", "}")], [("a", "f", "{}")], id="id and name in every piece"
        ),
        pytest.param(
            [piece(0, "a1", "f", "{"), piece(0, "a2", None, "}")], [("a1", "f", "{}")], id="a new id in every piece"
        ),
        pytest.param(
            [piece(0, "a", "f", "{}"), piece(0, "b", "g", "{}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="the same index for every call",
        ),
        pytest.param(
            [piece(None, "a", "f", "{"), piece(None, args="}"), piece(None, "b", "g", "{}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="no index",
        ),
        pytest.param(
            [piece(name="f", args={"x": 1}), piece(name="g", args={})],
            [("new-1", "f", '{"x":1}'), ("new-2", "g", "")],
            id="no index, no id, arguments as an object",
        ),
        pytest.param([piece(0, "a", "get_"), piece(0, "a", "it", "{}")], [("a", "get_it", "{}")], id="name in pieces"),
        pytest.param([piece(0, args="{}")], [("new-1", "", "{}")], id="nothing but arguments"),
        pytest.param([{"index": 7, "id": "a"}], [("a", "", "")], id="no function"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_pieces_of_tool_calls(pieces: list, calls: list):
    assert collect(*pieces) == calls


@pytest.mark.slow
def test_a_million_pieces_are_assembled_in_linear_time():
    """With text that grows by concatenation, this test would copy some terabytes."""
    reply = StreamedReply(REQUEST)
    collector = ToolCallCollector(reply)
    collector.add(msgspec.convert([piece(0, "a", "f")], list[ToolCallDelta]))
    part = msgspec.convert([piece(0, args="12345678")], list[ToolCallDelta])
    for _ in range(1_000_000):
        collector.add(part)
    assert reply.length > 8_000_000
    [call] = reply.answer("openai", "free", is_truncated=False).tool_calls
    assert len(call.arguments) == 8_000_000
