"""JSON with more values than the memory has room for: two bytes of a sender become a hundred of the reader.

The attacker is a server that a run asks: an MCP server, a model, a search service, or the author of an archive. The
oracles are a walk over what `json` decodes, and the memory that the interpreter reports.
"""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.documents import JsonError, decode_json, json_text
from reyn.errors import ArchiveTooLarge, McpServerFailed
from reyn.models.chat_messages import decode_arguments
from reyn.ops.mcp import transport
from reyn.runs.archive import ImportLimits, read_archive
from reyn.runtime import SyncRuntime
from tests.models.calling import Caller
from tests.models.fake_server import Behavior, FakeServer, stream, whole
from tests.ops.test_web import Web
from tests.properties import examples

MOST = 1_000
FEW, MANY = 300, 1_001
VALUES = ["[]", "{}", "1", '""', '"\\",["', '"a\\\\"', '{"a":[]}']
REFUSED = f"more than {MOST} values"

TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(st.sampled_from('ab",[{}]\\\x00\n\x7fé\u2028'), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('a",\\[{'), max_size=4), inner),
    max_leaves=20,
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAX_VALUES", MOST)


def values(tree: Any) -> int:
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return 1 + sum(map(values, inner))


def containers(tree: Any) -> int:
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return isinstance(tree, (dict, list)) + sum(map(containers, inner))


@examples(150)
@given(TREES, st.integers(1, 9), st.booleans(), st.sampled_from([None, 1]))
def test_values_are_counted_however_the_text_is_split(tree: Any, size: int, ascii: bool, indent: int | None):
    text = json.dumps(tree, ensure_ascii=ascii, indent=indent).encode()
    counter = json_text.ValueCounter()
    for at in range(0, len(text), size):
        counter.add(text[at : at + size])
    assert values(tree) <= counter.count <= values(tree) + containers(tree)


@examples(100)
@given(st.lists(st.sampled_from([b'"', b"\\", b"\n", b"\x00", b": ", b"x", b"data: "]), max_size=12), st.integers(1, 5))
def test_nothing_before_a_line_hides_the_values_on_it(noise: list[bytes], size: int):
    text = b"".join(noise) + b"\ndata: " + b"[]," * 10
    counter = json_text.ValueCounter()
    for at in range(0, len(text), size):
        counter.add(text[at : at + size])
    assert counter.count > 20


@pytest.mark.parametrize(
    "tail", [b'\\"' * 200_000, b'"\\' * 200_000, b'"\n' * 200_000, b'""' * 200_000, b"\\" * 400_000]
)
def test_counting_takes_linear_time(tail: bytes):
    """Quadratic time would be hours; the test then ends at its timeout."""
    json_text.ValueCounter().add(b'["' + tail)


# -- carriers -----------------------------------------------------------------------------------------------------


def text(value: str, count: int) -> str:
    return f"[{','.join([value] * count)}]"


def message(value: str, count: int) -> bytes:
    return f'{{"jsonrpc":"2.0","id":1,"result":{{"x":{text(value, count)}}}}}'.encode()


@pytest.mark.parametrize("value", VALUES)
def test_texts_and_messages_have_a_bounded_number_of_values(value: str, few: None):
    assert len(decode_json(text(value, FEW))) == len(decode_json(text(value, FEW).encode())) == FEW
    assert transport._message(message(value, FEW)) is not None
    with pytest.raises(JsonError, match=REFUSED):
        decode_json(text(value, MANY))
    with pytest.raises(transport._ServerFault, match=REFUSED):
        transport._message(message(value, MANY))
    assert decode_arguments(f'{{"a":{text(value, MANY)}}}').keys() == {"invalid_arguments"}


def test_signs_in_texts_are_not_values(few: None):
    prose = json.dumps('a,[{",\\' * MANY).encode()
    assert transport._message(b'{"jsonrpc":"2.0","id":1,"result":{"x":' + prose + b"}}") is not None


def as_events(content: bytes) -> bytes:
    return b"event: message\ndata: " + content + b"\n\n"


def in_lines(content: bytes) -> bytes:
    return b': "\nevent: message\ndata: ' + content.replace(b",", b",\ndata: ") + b"\n\n"


def encoded(name: str) -> Callable[[bytes], bytes]:
    return lambda content: as_events(content).decode().encode(name)


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("application/json", bytes),
        ("text/event-stream", as_events),
        ("text/event-stream", in_lines),
        ("text/event-stream; charset=cp037", encoded("cp037")),
        ("text/event-stream; charset=utf-16-le", encoded("utf-16-le")),
    ],
)
def test_an_mcp_server_behind_http_cannot_send_more_values(
    tmp_path: Path, few: None, kind: str, form: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
):
    decoded = watched(monkeypatch)
    with FakeServer(whole(kind, form(message("[]", MANY)))) as server:
        options = {"mcp": {"servers": {"desk": {"url": server.url, "timeout": 20}}}}
        with SyncRuntime.open(tmp_path, **options) as runtime, pytest.raises(McpServerFailed):
            runtime.project.mcp_tools("desk")
    assert all(values(tree) < MOST for tree in decoded)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the library of MCP decodes."""
    from mcp.client import streamable_http

    decoded: list[Any] = []
    real = streamable_http.jsonrpc_message_adapter

    class Watching:
        @staticmethod
        def validate_json(content: bytes | str, **options: Any) -> Any:
            try:
                decoded.append(json.loads(content))
            except ValueError:
                decoded.append(None)
            return real.validate_json(content, **options)

    monkeypatch.setattr(streamable_http, "jsonrpc_message_adapter", Watching)
    return decoded


CHUNKS = [
    '{{"choices": {0}}}',
    '{{"choices": [], "usage": {0}}}',
    '{{"choices": [], "error": {{"message": {0}}}}}',
    '{{"choices": [{{"delta": {{"content": {0}}}}}]}}',
    '{{"choices": [{{"delta": {{"tool_calls": {0}}}}}]}}',
]


def streamed(body: str) -> Behavior:
    return stream(b"data: " + body.encode() + b"\n\n", b"data: [DONE]\n\n")


def over_lines(body: str) -> Behavior:
    return stream(b"data: " + body.replace(",", ",\ndata: ").encode() + b"\n\n", b"data: [DONE]\n\n")


def document(body: str) -> Behavior:
    return whole("application/json", body.encode())


@pytest.mark.sockets
@pytest.mark.parametrize("send", [streamed, over_lines, document])
def test_a_model_server_cannot_send_more_values(tmp_path: Path, few: None, send: Callable[[str], Behavior]):
    with FakeServer() as server:
        caller = Caller(tmp_path, server, retries=0)
        for number, form in enumerate(CHUNKS):
            server.then(send(form.format(text("{}", MANY))))
            result = caller.run(run_id=f"k{number}")
            assert result.status == "failed"
            assert REFUSED in result.reason, form


@pytest.mark.sockets
def test_a_search_service_cannot_send_more_values(tmp_path: Path, few: None):
    with FakeServer(whole("application/json", f'{{"results":{text("{}", MANY)}}}'.encode())) as server:
        web = Web(tmp_path)
        web.allow(f"private:{server.url.removeprefix('http://').partition('/')[0]}")
        web.settings["web"] = {"search": {"provider": "searxng", "url": server.url}}
        assert web.run(kind="web_search", query="tea")["status"] == "error"


def test_an_archive_cannot_have_more_values(few: None):
    header = f'{{"reyn_export":1,"run":"a","runs":{text(chr(34) * 2, MANY)}}}\n'.encode()
    with pytest.raises(ArchiveTooLarge, match=REFUSED):
        read_archive([header], ImportLimits())


def test_five_megabytes_of_empty_lists_take_no_hundred_megabytes():
    content = b'{"choices":[' + b"[]," * 1_700_000 + b"[]]}"

    async def read() -> None:
        class Body:
            async def __aiter__(self) -> Any:
                for at in range(0, len(content), 65_536):
                    yield content[at : at + 65_536]

        from reyn.models.openai import Chunk
        from reyn.models.streaming import EventReader

        reader = EventReader(Chunk, lambda _: None, is_document=True)
        async for piece in Body():
            reader.add(piece)
        reader.finish()

    tracemalloc.start()
    with pytest.raises(Exception, match="values"):
        asyncio.run(read())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000_000
