"""`OpenAICompatible`: direct calls, streams, runs that use it, and keys that are recorded nowhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.errors import FunctionInvalid, KeyRejected, MessageInvalid, ModelTimeout, ModelUnavailable, TranscriptInvalid
from reyn.functions import ChatChunk, OpenAICompatible, tool
from reyn.journal import MemoryJournal
from reyn.models import Image, Message, ToolDefinition
from tests.models.fake_server import FakeServer, chunk, event, good, hang_up, silence, status, stream
from tests.models.test_openai_tools import calling, piece
from tests.support import write_skill

pytest.importorskip("openai")
pytestmark = pytest.mark.sockets

KEY = "sk-own/0123+456789abcdef"
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(good("Hello there!")) as server:
        yield server


def interface(server: FakeServer, **settings: Any) -> OpenAICompatible:
    return OpenAICompatible("m", base_url=server.url, **({"api_key": KEY} | settings))


def chat(llm: OpenAICompatible, messages: Any = HI, tools: Any = ()) -> Any:
    async def call() -> Any:
        try:
            return await llm.chat(messages, tools)
        finally:
            await llm.aclose()

    return asyncio.run(call())


def test_a_stream_yields_the_text_in_pieces_and_then_the_reply(server: FakeServer):
    async def collect() -> list[ChatChunk]:
        llm = interface(server)
        chunks = [chunk async for chunk in llm.chat_stream(messages=HI)]
        await llm.aclose()
        return chunks

    *pieces, last = asyncio.run(collect())
    assert [piece.text for piece in pieces] == ["Hell", "o th", "ere!"]
    assert last.reply is not None
    assert (last.text, last.reply.text) == ("", "Hello there!")
    assert last.reply.usage is not None
    assert last.reply.usage.output_tokens == 5
    assert server.requests[0].key == KEY
    assert server.requests[0].mode == "free"


def test_messages_may_be_dicts_or_values_with_images_and_tool_results(server: FakeServer):
    history = [
        Message("system", "Be brief."),
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
        Message("user", "and now?", (Image("image/png", "aGk="),)),
    ]
    chat(interface(server), history)
    roles = [message["role"] for message in server.requests[0].body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]


@tool(effect="pure")
def lookup(word: str) -> str:
    """Look a word up."""
    return word


def test_tools_are_ops_or_definitions_and_calls_are_part_of_the_reply(server: FakeServer):
    server.then(calling(piece(0, id="a", name="lookup", args='{"word": '), piece(0, args='"x"}')))
    other = ToolDefinition("other", "Do other things.", {"type": "object", "properties": {}})
    reply = chat(interface(server), HI, [lookup, other])
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("lookup", '{"word": "x"}')]
    sent = [tool["function"]["name"] for tool in server.requests[0].body["tools"]]
    assert sent == ["lookup", "other"]


@pytest.mark.parametrize(
    ("history", "error"),
    [
        ([{"role": "robot", "content": "hi"}], MessageInvalid),
        ([{"role": "user", "content": "\ud800"}], MessageInvalid),
        ([{"role": "user", "content": 3}], MessageInvalid),
        (["hi"], MessageInvalid),
        ([{"role": "tool", "tool_call_id": "a", "content": "x"}], TranscriptInvalid),
        ([Message("assistant", "", tool_calls=())], None),
    ],
)
def test_a_malformed_history_is_rejected_before_anything_is_sent(server: FakeServer, history: list, error: Any):
    if error is None:
        chat(interface(server), history)
        return
    with pytest.raises(error):
        chat(interface(server), history)
    assert server.requests == []


@pytest.mark.parametrize("wrong", [print, {"type": "function", "function": {"name": "add"}}, "add"])
def test_what_is_no_tool_is_rejected_before_anything_is_sent(server: FakeServer, wrong: Any):
    with pytest.raises(FunctionInvalid, match="which is no tool"):
        asyncio.run(interface(server).chat([Message("user", "hi")], [wrong]))
    assert server.requests == []


def test_leaving_a_stream_early_closes_the_connection(server: FakeServer):
    server.then(stream(event(chunk("Hello")), then="silence"))

    async def first() -> str:
        llm = interface(server)
        stream = llm.chat_stream(HI)
        async for first_piece in stream:
            await stream.aclose()
            return first_piece.text
        return ""

    assert asyncio.run(first()) == "Hello"
    server.wait_for(lambda: server.open_connections == 0)


def test_a_transient_error_is_raised_and_a_rejected_format_is_changed(server: FakeServer):
    for behavior in (status(503), hang_up):
        server.then(behavior)
        with pytest.raises(ModelUnavailable):
            chat(interface(server))
    server.then(status(400, "use `max_completion_tokens` instead"), good("Hello"))
    assert chat(interface(server)).text == "Hello"


@pytest.mark.slow
def test_an_answer_that_takes_too_long_is_an_error(server: FakeServer):
    server.then(silence)
    with pytest.raises(ModelTimeout, match="within 1 seconds"):
        chat(interface(server, timeout=1))


def test_a_missing_key_is_an_error_before_anything_is_sent():
    with pytest.raises(KeyRejected):
        chat(OpenAICompatible("gpt-4.1-mini", key="env://REYN_TEST_NO_SUCH_VARIABLE"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"key": "env://X", "api_key": "y"}, "`key` and `api_key`"),
        ({"key": "sk-literal"}, "`key` is not a handle"),
        ({"api_key": ""}, "`api_key` is not a text"),
        ({"retries": -1}, "`retries` is -1"),
        ({"base_url": "ftp://x"}, "`base_url` is 'ftp://x'"),
        ({"base_url": 5}, "`base_url` is 5"),
        ({"mode": "best"}, "`mode` is 'best'"),
        ({"timeout": "soon"}, "`timeout` is 'soon'"),
        ({"temperature": 3}, "`temperature` is 3"),
        ({"model_name": ""}, "`model_name` is ''"),
        ({"model_name": 5}, "`model_name` is 5"),
    ],
)
def test_an_invalid_argument_is_named_with_its_value_and_a_hint(settings: dict, words: str):
    with pytest.raises(FunctionInvalid, match=words) as found:
        OpenAICompatible(**({"model_name": "m"} | settings))
    assert found.value.own_hint
    assert "sk-literal" not in str(found.value)


@pytest.mark.slow
def test_a_run_uses_it_with_native_tools_and_records_retries_but_no_key(server: FakeServer, tmp_path: Path):
    write_skill(tmp_path, "s", {"only": ["end"]}, ops={"only": "file"})
    (tmp_path / "a.txt").write_text("x")
    read = calling(piece(0, id="a", name="file_read", args=json.dumps({"path": "a.txt"})))
    server.then(status(503), read, good(f"The key is {KEY}."))
    with SyncRuntime.open(tmp_path, model=interface(server), journal=MemoryJournal()) as rt:
        result = rt.run("s", {"text": "in"}, run_id="k")
        assert result.status == "finished"
        assert KEY not in repr(result.artifact)
        assert [event.kind for event in rt.runs.events("k")].count("model_retried") == 1
        assert all(KEY.encode() not in line for line in rt.runs.export("k"))
        rt.runs.replay("k")


def test_its_name_does_not_open_another_server():
    assert OpenAICompatible("m", base_url="https://models.example/v1").name == "m@models.example"
    assert OpenAICompatible("gpt-4.1-mini").name == "openai:gpt-4.1-mini"
