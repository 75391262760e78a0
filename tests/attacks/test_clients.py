"""A hostile server answers a client of the API: without end, compressed, with other values, with redirects.

The oracles are the bytes that the client takes, the requests that it sends, and where their tokens go.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import msgspec
import pytest

from reyn.client import Client
from reyn.client import transport as transports
from reyn.errors import GatewayError
from reyn.journal import RunRow

LIMIT = 200_000
TOKEN = "reyn_token"
Use = Callable[[Client], Any]


async def all_of(items: Any) -> list[Any]:
    return [item async for item in items]


USES: dict[str, Use] = {
    "a value": lambda client: client.runs.find("a"),
    "events": lambda client: all_of(client.runs.events("a")),
    "pages": lambda client: client.runs.all(),
    "a stream": lambda client: all_of(client.runs.watch("a")),
    "children": lambda client: client.runs.descendants("a"),
    "an archive": lambda client: all_of(client.runs.export("a")),
    "a start": lambda client: client.run("skill", {"text": "x"}),
}


class Endless(httpx2.AsyncByteStream):
    """A body without end, which counts what was taken."""

    def __init__(self, piece: bytes, first: bytes = b"") -> None:
        self.taken, self._piece, self._first = 0, piece, first

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        while True:
            self.taken += len(self._piece)
            assert self.taken < 100 * LIMIT, "the client does not stop"
            yield self._piece


class Hostile:
    """A server that answers every request in the same way."""

    def __init__(self, answer: Callable[[], httpx2.Response]) -> None:
        self.requests: list[httpx2.Request] = []
        self._answer = answer

    def use(self, use: Use) -> Any:
        def handle(request: httpx2.Request) -> httpx2.Response:
            self.requests.append(request)
            assert len(self.requests) < 50, "the client does not stop"
            return self._answer()

        async def attempt() -> Any:
            http = httpx2.AsyncClient(
                transport=httpx2.MockTransport(handle), base_url="http://server", follow_redirects=True
            )
            async with Client.connect("http://server", TOKEN, http=http) as client:
                return await use(client)

        return asyncio.run(attempt())


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "MAX_RESPONSE", LIMIT)
    monkeypatch.setattr(transports, "PAUSES", (0.0, 0.0))


BODIES = {
    "blanks": (b" " * 10_000, b""),
    "a line": (b"x" * 10_000, b"data: "),
    "lines of one event": (b"data: " + b"x" * 10_000 + b"\n", b""),
    "open lists": (b"[" * 10_000, b""),
}


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("use", USES)
def test_a_body_without_end_is_left(use: str, body: str, status: int):
    stream = Endless(*BODIES[body])
    if use == "an archive" and body == "lines of one event" and status == 200:
        return  # an archive is as long as the run: its reader takes line by line
    with pytest.raises(GatewayError):
        Hostile(lambda: httpx2.Response(status, stream=stream)).use(USES[use])
    assert stream.taken <= LIMIT + 20_000


@pytest.mark.parametrize("use", USES)
def test_compressed_content_is_refused(use: str):
    body = gzip.compress(b" " * 10_000_000)
    headers = {"Content-Encoding": "gzip"}
    server = Hostile(lambda: httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(body)))
    with pytest.raises(GatewayError, match="compressed"):
        server.use(USES[use])
    assert {request.headers["accept-encoding"] for request in server.requests} == {"identity"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["http://other/steal", "//other/steal", "/api/other"])
@pytest.mark.parametrize("use", USES)
def test_no_redirect_is_followed(use: str, place: str, status: int):
    """Also if the HTTP client of the caller follows redirects."""
    server = Hostile(lambda: httpx2.Response(status, headers={"Location": place}, stream=httpx2.ByteStream(b"")))
    with pytest.raises(GatewayError):
        server.use(USES[use])
    assert {request.url.host for request in server.requests} == {"server"}
    assert all("steal" not in request.url.path and "other" not in request.url.path for request in server.requests)


WRONG = {
    "no JSON": b"<html>",
    "half": b'{"run": {',
    "deep": b'{"run": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "no UTF-8": b'{"run": "\xff"}',
    "a number": b"7",
    "many values": b"[" + b"[]," * 60_000 + b"[]]",
}


@pytest.mark.parametrize("body", WRONG)
@pytest.mark.parametrize("use", [use for use in USES if use not in ("an archive", "a stream")])
def test_what_is_no_answer_is_an_error_of_the_server(use: str, body: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.documents.json_text.MAX_VALUES", 50_000)
    with pytest.raises(GatewayError):
        Hostile(lambda: httpx2.Response(200, stream=httpx2.ByteStream(WRONG[body]))).use(USES[use])


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_is_no_event_is_an_error_of_the_server(data: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.documents.json_text.MAX_VALUES", 50_000)
    body = b"event: event\ndata: " + data + b"\n\n"
    with pytest.raises(GatewayError):
        Hostile(lambda: httpx2.Response(200, stream=httpx2.ByteStream(body))).use(USES["a stream"])


EVENT = b'[{"seq":1,"run_id":"a","ts":1,"kind":"k","v":1,"prev":"","hash":"","data":{}}]'
PAGE = b'{"runs":[],"next":"a","unindexed":0}'
CHILDREN = msgspec.json.encode([RunRow(run_id="a.1", skill="s", rules=1, started=1)])


@pytest.mark.parametrize(("use", "body"), [("events", EVENT), ("pages", PAGE), ("children", CHILDREN)])
def test_what_repeats_itself_ends(use: str, body: bytes):
    server = Hostile(lambda: httpx2.Response(200, stream=httpx2.ByteStream(body)))
    with pytest.raises(GatewayError, match="again"):
        server.use(USES[use])
    assert len(server.requests) <= 2


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"])
def test_no_character_of_a_text_ends_an_event(sign: str):
    """A model can write every character but the line feed, which JSON escapes, into a text that a stream contains."""
    event = '{"seq":1,"run_id":"a","ts":1,"kind":"k","v":1,"prev":"","hash":"","data":{"text":"a%sb"}}' % (
        sign if ord(sign) > 0x1F else f"\\u{ord(sign):04x}"
    )
    row = '{"status":"finished"}'
    body = f"event: event\nid: 1\ndata: {event}\n\nevent: end\ndata: {row}\n\n".encode()
    [found] = Hostile(lambda: httpx2.Response(200, stream=httpx2.ByteStream(body))).use(USES["a stream"])
    assert found.data["text"] == f"a{sign}b"
