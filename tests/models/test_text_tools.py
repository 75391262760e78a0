"""A model without native tools answers a request that was written for native tools."""

from __future__ import annotations

import asyncio
import json

import jsonschema_rs
import pytest

from reyn.models import Message, ModelAnswer, ModelRequest, ToolDefinition
from reyn.models.protocol import PLAIN_TEXT
from reyn.models.text_tools import complete_with_text_tools

SEARCH = ToolDefinition("search", "Search\nthe notes.", {"type": "object", "properties": {"q": {"type": "string"}}})
DECIDE = {"anyOf": [{"type": "object", "properties": {"choice": {"const": "end"}}, "required": ["choice"]}]}


class Echo:
    name = "echo"

    def __init__(self, text: str) -> None:
        self._text = text
        self.request: ModelRequest

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.request = request
        return ModelAnswer(self._text)


def ask(text: str, contract: dict = DECIDE, *, tools: tuple = (SEARCH,)) -> tuple[ModelAnswer, ModelRequest]:
    messages = (Message("system", "Be brief."), Message("user", "hi"))
    request = ModelRequest(messages, contract, "r", "1.1", "h", answer_form="tools", tools=tools)
    model = Echo(text)
    return asyncio.run(complete_with_text_tools(model, request)), model.request


def test_the_tools_are_described_in_the_system_message_and_in_the_contract():
    _, request = ask("{}")
    system, user = request.messages
    assert system.text.startswith("Be brief.\n")
    assert "- search: Search the notes. Arguments: {" in system.text
    assert user.text == "hi"
    assert request.tools == ()
    for answer in ({"choice": "end"}, {"tool_calls": [{"name": "search", "arguments": {"q": "x"}}]}):
        assert jsonschema_rs.is_valid(request.contract, answer)
    assert not jsonschema_rs.is_valid(request.contract, {"tool_calls": [{"name": "other", "arguments": {}}]})


def test_an_answer_with_tool_calls_becomes_tool_calls():
    answer = {"tool_calls": [{"name": "search", "arguments": {"q": "x"}}, {"name": "search", "arguments": "{}"}]}
    reply, _ = ask(json.dumps(answer))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("search", '{"q":"x"}'), ("search", "{}")]
    assert len({call.id for call in reply.tool_calls}) == 2
    assert reply.text == ""
    assert ask(json.dumps(answer))[0] == reply


@pytest.mark.parametrize("text", ['{"choice": "end"}', "not JSON", "[1]", '{"tool_calls": []}', "[" * 5000])
def test_any_other_answer_is_content(text: str):
    reply, _ = ask(text)
    assert (reply.text, reply.tool_calls) == (text, ())


def test_malformed_calls_are_left_to_the_contract():
    reply, _ = ask('{"tool_calls": [3, {"name": 4}]}')
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("", "3"), ("", "{}")]


def test_a_plain_text_reply_is_the_content_of_an_object():
    reply, request = ask('{"content": "hello"}', PLAIN_TEXT)
    assert reply.text == "hello"
    assert jsonschema_rs.is_valid(request.contract, {"content": "hello"})
    assert ask("hello", PLAIN_TEXT)[0].text == "hello"


def test_a_request_without_tools_is_passed_on_as_it_is():
    reply, request = ask('{"content": "hello"}', PLAIN_TEXT, tools=())
    assert reply.text == '{"content": "hello"}'
    assert request.messages[0].text == "Be brief."
