"""Native tools of the `openai` adapter against a fake server: requests, streams of tool calls, faults, downgrades."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.models.protocol import decode_reply
from tests.models.calling import KEY, Caller
from tests.models.fake_server import Behavior, FakeServer, Request, chunk, event, good, status, stream, whole
from tests.support import write_skill

pytest.importorskip("openai")
pytestmark = pytest.mark.sockets

DONE = b"data: [DONE]\n\n"
DECISION = {"reason": "it is good", "choice": "end", "confidence": 1, "data": {"text": "done", "count": 1}}
RESULT = {"type": "tally", "data": {"text": "done", "count": 1}}
TALLY = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["text", "count"],
}


def piece(index: int, *, id: str | None = None, name: str | None = None, args: str | None = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    return {"index": index, "function": function} | ({"id": id, "type": "function"} if id else {})


def calling(*pieces: dict[str, Any], finish: str = "tool_calls", content: str | None = None) -> Behavior:
    """Stream tool calls, one piece per event, or all in one chunk for a list."""
    deltas = [{"tool_calls": [one]} for one in pieces]
    if content is not None:
        deltas.insert(0, {"content": content})
    events = [event(chunk() | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    usage = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    return stream(*events, event(chunk(finish=finish)), usage, DONE)


READ = calling(
    piece(0, id="call_9", name="file_read", args=""), piece(0, args='{"path": '), piece(0, args='"prices.csv"}')
)


class ToolCaller(Caller):
    def __init__(self, root: Path, server: FakeServer, **settings: Any) -> None:
        super().__init__(root, server, **({"answer_form": "tools"} | settings))
        (root / "prices.csv").write_text("noodles,3.1\n")
        write_skill(root, "s", {"a": ["end"]}, ops={"a": "file"}, artifacts={"tally": TALLY}, final_output="tally")
        write_skill(root, "reply", {"a": ["end"]}, ops={"a": "file"})

    def replies(self) -> list[Any]:
        return [decode_reply(text) for text in self.texts()]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(good(DECISION)) as server:
        yield server


@pytest.fixture
def caller(tmp_path: Path, server: FakeServer, caplog: Any, capfd: Any) -> Iterator[ToolCaller]:
    caller = ToolCaller(tmp_path, server)
    yield caller
    out = capfd.readouterr()
    caller.check(caplog.records, out.out + out.err)


def test_tools_are_sent_natively_and_streamed_calls_are_executed(caller: ToolCaller, server: FakeServer):
    server.then(READ, good(DECISION))
    result = caller.run("s")
    assert (result.status, result.artifact) == ("finished", RESULT)
    [first, second] = server.requests
    tools = {tool["function"]["name"]: tool for tool in first.body["tools"]}
    assert tools["file_read"]["type"] == "function"
    assert tools["file_read"]["function"]["parameters"]["required"] == ["path"]
    assert first.mode == second.mode == "json_schema"
    assert "noodles" in json.dumps(second.body["messages"])
    [reply, _] = caller.replies()
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("call_9", "file_read", '{"path": "prices.csv"}')
    ]
    assert [used["usage"]["output_tokens"] for used in caller.events("llm_responded")] == [5, 5]


def test_parallel_calls_are_executed_in_their_order(caller: ToolCaller, server: FakeServer):
    server.then(
        calling(
            piece(0, id="x", name="file_read", args='{"path": "pri'),
            piece(1, id="y", name="file_glob", args='{"pattern": "*.csv"}'),
            piece(0, args='ces.csv"}'),
            content="Let me look.",
        ),
        good(DECISION),
    )
    assert caller.run("s").ok
    [first, second] = caller.events("file_started")
    with SyncRuntime(caller.runtime()) as rt:
        assert [json.loads(rt.runs.content(one["args"]))["op"] for one in (first, second)] == ["read", "glob"]
    assert caller.replies()[0].content == "Let me look."


def test_a_plain_text_reply_is_requested_without_a_response_format(caller: ToolCaller, server: FakeServer):
    server.then(good("Hello!"))
    assert caller.run("reply").artifact == {"type": "note", "data": {"text": "Hello!"}}
    assert server.requests[0].mode == "free"
    assert "tools" in server.requests[0].body
    [answer] = caller.events("llm_responded")
    assert answer["mode"] == "free"


def test_a_phase_without_ops_is_asked_without_tools(caller: ToolCaller, server: FakeServer):
    server.then(good("on"))
    assert caller.run("one").ok
    assert "tools" not in server.requests[0].body


def test_an_answer_in_one_document_may_call_tools(caller: ToolCaller, server: FakeServer):
    call = {"id": "x", "type": "function", "function": {"name": "file_read", "arguments": '{"path": "prices.csv"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    server.then(whole("application/json", json.dumps(body).encode()), good(DECISION))
    assert caller.run("s").ok
    assert caller.replies()[0].tool_calls[0].id == "x"


def test_calls_without_an_id_get_one(caller: ToolCaller, server: FakeServer):
    server.then(calling(piece(0, name="file_read", args='{"path": "prices.csv"}'), finish="stop"), good(DECISION))
    assert caller.run("s").ok
    assert caller.replies()[0].tool_calls[0].id.startswith("call_")


@pytest.mark.parametrize(
    "wrong",
    [
        calling(piece(0, id="x", name="nothing", args="{}")),
        calling(piece(0, id="x", name="file_read", args='{"path": ')),
        calling(piece(0, id="x", name="file_read", args='{"path": '), finish="length"),
        calling(piece(0, id="x", name="file_read", args="{}"), piece(1, id="x", name="file_read", args="{}")),
        calling(piece(0, id="x", args="{}")),
        good(""),
    ],
)
def test_a_wrong_call_is_rejected_and_the_model_is_asked_again(caller: ToolCaller, server: FakeServer, wrong: Behavior):
    server.then(wrong, good(DECISION))
    assert caller.run("s").ok
    assert len(caller.events("validation_error")) == 1
    [_, again] = server.requests
    assert "rejected" in json.dumps(again.body["messages"])


@pytest.mark.parametrize("then", ["hang up", "end"])
def test_a_stream_that_breaks_off_inside_arguments_is_retried(caller: ToolCaller, server: FakeServer, then: str):
    half = event(chunk() | {"choices": [{"index": 0, "delta": {"tool_calls": [piece(0, id="x", name="file_read")]}}]})
    server.then(stream(half, then=then), READ, good(DECISION))
    assert caller.run("s").ok
    assert caller.codes() == ["RYN510"]
    assert len(caller.events("file_started")) == 1


def test_a_malformed_tool_call_on_the_wire_is_retried(caller: ToolCaller, server: FakeServer):
    bad = chunk() | {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": "zero"}]}}]}
    server.then(stream(event(bad), DONE), good(DECISION))
    assert caller.run("s").ok
    assert caller.codes() == ["RYN510"]


def test_a_key_in_the_arguments_is_not_recorded(caller: ToolCaller, server: FakeServer):
    server.then(calling(piece(0, id="x", name="file_read", args=json.dumps({"path": KEY}))), good(DECISION))
    assert caller.run("s").ok
    assert KEY not in caller.texts()[0]


def test_a_server_that_cannot_constrain_requests_with_tools_is_asked_without(caller: ToolCaller, server: FakeServer):
    """The downgrade is for requests with tools only; other requests keep their format."""

    def behave(request: Request) -> Behavior:
        is_both = request.mode != "free" and "tools" in request.body
        return status(400, "cannot use custom grammar constraints with tools") if is_both else good(DECISION)

    async def answer(request: Request, connection: Any) -> None:
        await behave(request)(request, connection)

    server.then(answer)
    assert caller.run("s").ok
    assert [one["instead"] for one in caller.events("model_retried")] == ["json_object", "free"]
    assert [request.mode for request in server.requests] == ["json_schema", "json_object", "free"]


def test_a_rejected_tool_schema_fails_at_once(caller: ToolCaller, server: FakeServer):
    server.then(status(400, "Invalid schema for function 'file_read': no"))
    result = caller.run("s")
    assert (result.status, result.code) == ("failed", "RYN509")
    assert len(server.requests) == 1


def test_tool_arguments_beyond_any_limit_end_the_answer(caller: ToolCaller, server: FakeServer):
    big = "x" * 500_000
    server.then(
        calling(piece(0, id="x", name="file_read", args='{"path": "'), *(piece(0, args=big) for _ in range(6))),
        good(DECISION),
    )
    assert caller.run("s").ok
    [error] = caller.events("validation_error")
    assert error["class"] == "size"


def test_a_server_without_native_tools_is_asked_in_the_short_form(tmp_path: Path, server: FakeServer):
    caller = ToolCaller(tmp_path, server, answer_form=None)
    server.then(
        good({"reason": "to see", "ops": [{"kind": "file", "op": "read", "path": "prices.csv"}]}), good(DECISION)
    )
    assert caller.run("s").ok
    assert "tools" not in server.requests[0].body
