"""Messages with images and tool calls, as a chat completions server and as a model without tools receive them."""

from __future__ import annotations

import pytest

from reyn.errors import RequestRejected
from reyn.models import Image, Message, ToolCall, ToolDefinition
from reyn.models.chat_messages import to_plain_text, to_wire, tool_wire

CALLS = (ToolCall("a", "search", '{"q":1}'), ToolCall("b", "read", "{}"))
PICTURE = Image("image/png", "aGk=")


def test_text_messages_keep_role_and_text():
    messages = [Message("system", "be brief"), Message("user", "hi"), Message("assistant", "hello")]
    assert to_wire(messages) == [{"role": m.role, "content": m.text} for m in messages]


def test_tool_calls_and_results_are_native():
    calls, result = to_wire([Message("assistant", "", tool_calls=CALLS), Message("tool", "found", tool_call_id="a")])
    assert calls["content"] is None
    assert calls["tool_calls"][0] == {
        "id": "a",
        "type": "function",
        "function": {"name": "search", "arguments": '{"q":1}'},
    }
    assert result == {"role": "tool", "tool_call_id": "a", "content": "found"}


def test_images_are_parts_of_the_users_message():
    [message] = to_wire([Message("user", "look", (PICTURE, Image(url="https://a.example/b.png")))])
    assert message["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
    ]


@pytest.mark.parametrize("after", [[], [Message("assistant", "I see")]])
def test_images_of_tool_results_follow_the_last_result_of_the_batch(after):
    results = [Message("tool", "x", (PICTURE,), tool_call_id="a"), Message("tool", "y", tool_call_id="b")]
    wire = to_wire([Message("assistant", "", tool_calls=CALLS), *results, *after])
    assert [message["role"] for message in wire[:4]] == ["assistant", "tool", "tool", "user"]
    assert wire[3]["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="
    assert len(wire) == 4 + len(after)


def test_a_tool_definition_is_a_function():
    assert tool_wire([ToolDefinition("f", "Do it.", {"type": "object"})]) == [
        {"type": "function", "function": {"name": "f", "description": "Do it.", "parameters": {"type": "object"}}}
    ]


def test_a_model_without_tools_reads_calls_and_results_as_text():
    messages = [Message("assistant", "Let me look.", tool_calls=CALLS), Message("tool", "found", tool_call_id="a")]
    assert list(to_plain_text(messages, "m")) == [
        ("assistant", 'Let me look.\nTool call a: search({"q":1})\nTool call b: read({})'),
        ("user", "Result of tool call a:\nfound"),
    ]


def test_a_model_without_images_rejects_one():
    with pytest.raises(RequestRejected, match="`m` does not accept images"):
        list(to_plain_text([Message("user", "look", (PICTURE,))], "m"))
