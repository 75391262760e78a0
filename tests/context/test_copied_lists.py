"""Values of a transcript are immutable: a list that a program passes is copied, and may change afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reyn.context import (
    AssistantMessage,
    ContextReplace,
    ContextSummary,
    MultimodalToolResult,
    UserMessage,
)
from reyn.context.messages import NormalizedMessage
from reyn.models import Image, Message, ToolCall

CALL, IMAGE = ToolCall("a", "f", "{}"), Image("image/png", "aGk=")
LISTS: dict[str, tuple[Callable[[list[Any]], Any], Any, str]] = {
    "Message.images": (lambda items: Message("user", "x", images=items), IMAGE, "images"),
    "Message.tool_calls": (lambda items: Message("assistant", "", tool_calls=items), CALL, "tool_calls"),
    "NormalizedMessage.images": (lambda items: NormalizedMessage("user", "x", images=items), IMAGE, "images"),
    "AssistantMessage.tool_calls": (lambda items: AssistantMessage("x", items), CALL, "tool_calls"),
    "UserMessage.images": (lambda items: UserMessage("x", items), IMAGE, "images"),
    "MultimodalToolResult.images": (lambda items: MultimodalToolResult("a", "x", items), IMAGE, "images"),
    "ContextSummary.remember": (lambda items: ContextSummary("x", 0, items), "text", "remember"),
    "ContextReplace.messages": (ContextReplace, Message("user", "x"), "messages"),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_is_passed_to_a_value_is_copied(name: str):
    make, item, field = LISTS[name]
    items = [item]
    value = make(items)
    items.append(item)
    assert len(getattr(value, field)) == 1
    assert value == make([item])


def test_a_replacement_takes_what_a_history_takes():
    both = ContextReplace([Message("user", "hi"), {"role": "assistant", "content": "hello"}])
    assert [(message.role, message.text) for message in both.messages] == [("user", "hi"), ("assistant", "hello")]
