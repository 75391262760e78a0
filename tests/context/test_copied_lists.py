"""Values of a transcript are immutable: a list that a program passes is copied, and may change afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from reyn.context import (
    AssistantMessage,
    ContextMutation,
    ContextReplace,
    ContextSummary,
    DataFromSelfRef,
    MultimodalToolResult,
    PromptContract,
    UserMessage,
)
from reyn.context.messages import NormalizedMessage
from reyn.journal.kinds import Part
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
CONTENT = [
    (cls, field.name)
    for cls in (*ContextMutation.__subclasses__(), DataFromSelfRef, PromptContract)
    for field in msgspec.structs.fields(cls)
    if "Part" in str(field.type)
]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_is_passed_to_a_value_is_copied(name: str):
    make, item, field = LISTS[name]
    items = [item]
    value = make(items)
    items.append(item)
    assert len(getattr(value, field)) == 1
    assert value == make([item])


@pytest.mark.parametrize(("cls", "field"), CONTENT, ids=lambda part: part if isinstance(part, str) else part.__name__)
def test_content_that_is_passed_as_a_list_is_copied(cls: type[msgspec.Struct], field: str):
    parts = [Part(text="a")]
    required = {one.name: "x" for one in msgspec.structs.fields(cls) if one.required} | {field: parts}
    value = cls(**required | ({"images": ()} if "images" in required else {}))
    parts.append(Part(text="b"))
    assert getattr(value, field) == (Part(text="a"),)


def test_a_replacement_takes_what_a_history_takes():
    both = ContextReplace([Message("user", "hi"), {"role": "assistant", "content": "hello"}])
    assert [(message.role, message.text) for message in both.messages] == [("user", "hi"), ("assistant", "hello")]
