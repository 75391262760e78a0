"""Values of a transcript are immutable: a list that a program passes is copied, and may change afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reyn import SyncRuntime, llm_function
from reyn.context import (
    AssistantMessage,
    ContextMutation,
    ContextReplace,
    ContextSummary,
    DataFromAgentConfig,
    DataFromSelfRef,
    MultimodalToolResult,
    PromptContract,
    UserMessage,
)
from reyn.context.messages import NormalizedMessage
from reyn.errors import MutationInvalid
from reyn.functions.definition import CallOptions
from reyn.journal import MemoryJournal
from reyn.journal.kinds import Part
from reyn.models import Image, Message, ToolCall
from tests.functions.support import Answers, value

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


def nested() -> tuple[dict[str, Any], list[Callable[[], object]]]:
    """Return a value with containers at several depths, and changes of each of them."""
    inner: list[Any] = ["a"]
    middle: dict[str, Any] = {"inner": inner, "pair": (inner, {"x": [1]})}
    outer: dict[str, Any] = {"name": "look", "middle": middle, "list": [middle, inner]}
    changes: list[Callable[[], object]] = [
        lambda: inner.append("b"),
        lambda: middle.update(more=1),
        lambda: middle["pair"][1]["x"].append(2),
        lambda: outer["list"].append(3),
        lambda: outer.update(more=1),
    ]
    return outer, changes


NESTED: dict[str, Callable[[dict[str, Any]], Callable[[], Any]]] = {
    "PromptContract.tool_prompt_specs": lambda value: attribute(
        PromptContract(tool_prompt_specs=[value]), "tool_prompt_specs"
    ),
    "DataFromAgentConfig.tool_prompt_specs": lambda value: attribute(
        DataFromAgentConfig("", None, [value]), "tool_prompt_specs"
    ),
    "DataFromAgentConfig.template_params": lambda value: attribute(DataFromAgentConfig("", value), "template_params"),
    "CallOptions.template_params": lambda value: attribute(
        CallOptions().changed("f", template_params=value), "template_params"
    ),
}


def attribute(holder: Any, name: str) -> Callable[[], Any]:
    return lambda: getattr(holder, name)


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("change", range(5))
def test_what_is_nested_in_a_value_is_copied(name: str, change: int):
    value, changes = nested()
    field = NESTED[name](value)
    before = repr(field())
    changes[change]()
    assert repr(field()) == before


def test_default_values_of_a_docstring_are_copied(tmp_path: Path):
    topics, hooks = ["tea"], list[Any]()
    with SyncRuntime.open(tmp_path, model=Answers(value(1)), journal=MemoryJournal(), trust=True) as rt:

        @llm_function(runtime=rt, template_params={"topics": topics, "tone": ...}, hooks=hooks)
        def count(text: str) -> int:
            """Talk about {topics}, {tone}."""

        tones = ["dry"]
        call = count.options(template_params={"tone": tones})
        topics.append("cake")
        tones.append("loud")
        hooks.append(lambda turn: pytest.fail("it is no hook of the function"))
        assert call("a") == 1
        [row] = rt.runs.all()
        prompt = rt.runs.prompt_at(row.run_id)[0][1]
        assert "Talk about ['tea'], ['dry']." in prompt


def test_a_value_that_contains_itself_can_be_copied():
    items: list[Any] = [1]
    items.append({"items": items})
    copy = DataFromAgentConfig("", {"x": items}).template_params
    assert copy is not None
    assert str(copy["x"]) == str(items)
    assert copy["x"] is not items


@pytest.mark.parametrize("summary", [{"text": "All so far."}, ["All so far."], 5])
def test_a_summary_is_a_text(summary: Any):
    with pytest.raises(MutationInvalid, match="pass its text"):
        DataFromSelfRef(summary=summary)


def test_a_replacement_takes_what_a_history_takes():
    both = ContextReplace([Message("user", "hi"), {"role": "assistant", "content": "hello"}])
    assert [(message.role, message.text) for message in both.messages] == [("user", "hi"), ("assistant", "hello")]
