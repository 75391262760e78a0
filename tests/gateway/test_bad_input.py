"""What the server does with clients that are broken, hostile or gone, and with a clock that jumps."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from reyn.client.transport import Transport
from reyn.errors import GatewayError, ReynError, ServerUnavailable
from reyn.gateway.problems import PROBLEM
from reyn.testing import ScriptedModel
from reyn.testing.fixtures import SteppingClock, events_after, run_started
from tests.gateway.support import HOST, QUESTION, ended, run_async, served_on_socket, serving
from tests.support import finish, go

PAIR = [go("second"), finish("served")]

# -- requests that two programs may read differently --------------------------------------------------

HIDDEN = "GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
POST = "POST /api/session HTTP/1.1\r\nHost: {host}\r\n"
SMUGGLED = {
    "a length and chunks": f"{POST}Content-Length: 6\r\n{CHUNKED}\r\n0\r\n\r\n{HIDDEN}",
    "chunks and a length": f"{POST}{CHUNKED}Content-Length: 6\r\n\r\n0\r\n\r\n{HIDDEN}",
    "two lengths": f"{POST}Content-Length: 0\r\nContent-Length: 60\r\n\r\n{HIDDEN}",
    "a length with a sign": f"{POST}Content-Length: +0\r\n\r\n{HIDDEN}",
    "another coding": f"{POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    "a blank before the colon": f"{POST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    "a size that is no number": f"{POST}{CHUNKED}\r\n0x0\r\n\r\n{HIDDEN}",
    "two hosts": "GET /healthz HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n",
    "no host": "GET /healthz HTTP/1.1\r\n\r\n",
    "another host in the target": "GET http://evil.example/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "a header that is folded": "GET /healthz HTTP/1.1\r\nHost: evil.example\r\n {host}\r\n\r\n",
    "a header without end": "GET /healthz HTTP/1.1\r\nHost: {host}\r\nX: " + "x" * 70_000,
    "no request": "\x16\x03\x01\x02\x00\x01\x00" * 40 + "\r\n\r\n",
}


@pytest.mark.sockets
def test_smuggled_requests_are_not_answered(tmp_path: Path):
    with served_on_socket(tmp_path, ScriptedModel([])) as (url, _):
        host = urlsplit(url).netloc
        for name, text in SMUGGLED.items():
            answer = exchange(host, text.replace("{host}", host).encode())
            assert b" 200 " not in answer, name
            assert answer.count(b"HTTP/1.1 ") <= 1, name
            if not answer:  # the connection was closed before all was read
                continue
            assert answer.startswith(b"HTTP/1.1 4"), name
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"application/problem+json" in head.lower(), name
            assert b"content-security-policy" in head.lower(), name
            assert json.loads(body)["code"].startswith("RYN8"), name
        assert b" 200 " in exchange(host, HIDDEN.replace("{host}", host).encode()), "the server still serves"


def exchange(host: str, request: bytes) -> bytes:
    """Send bytes, close the sending side, and return everything that comes back."""
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), timeout=120) as connection:
        found = b""
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65_536):
                found += chunk
        except ConnectionError:  # it closed the connection first
            pass
        return found


# -- paths ----------------------------------------------------------------------------------------------

TRICKS = [
    "..",
    "%2e%2e",
    "..%2f..%2freyn.yaml",
    "%2fetc%2fpasswd",
    "k%00",
    "k%2f..%2fk2",
    "%",
    "%ff",
    "C:%5cx",
    "~",
    "k;x",
]
TRICKS += ["k%0d%0aX:%20y", "%252e%252e", "k?x#y", "." * 300, "k" * 5_000, "\u202ek"]


@pytest.mark.parametrize("trick", TRICKS)
def test_no_path_reaches_outside_its_run(tmp_path: Path, trick: str):
    async def work() -> None:
        (tmp_path / "secret.txt").write_text("a secret")
        async with serving(tmp_path, PAIR) as served, served.http(served.token()) as http:
            for rest in ("", "/files", "/events", "/stream", f"/content/{trick}", f"/content/{'0' * 64}/{trick}"):
                if (trick, rest) == ("..", "/stream"):
                    continue  # the client makes it the stream of all runs
                response = await http.get(f"/api/runs/{trick}{rest}")
                assert response.status_code in (400, 403, 404, 422), rest
                assert response.headers["content-type"] == PROBLEM
                assert "a secret" not in response.text
            for address in (f"/static/{trick}", f"/api/skills/{trick}", f"/api/conversations/{trick}"):
                response = await http.get(address)
                assert response.status_code in (200, 404, 422), address
                assert response.status_code != 200 or "a secret" not in response.text
            assert "x" not in response.headers

    run_async(work)


# -- clients that do not read, runs that go -------------------------------------------------------------


def scope(path: str, token: str) -> dict[str, Any]:
    headers = [(b"host", HOST.encode()), (b"authorization", f"Bearer {token}".encode())]
    return {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http"} | {
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"follow=true",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8300),
    }


def test_a_client_that_never_reads_holds_nobody_up(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, PAIR) as served, served.http(served.token()) as http:
            journal = served.site.runtime.services.journal
            first = events_after("long", [run_started("long")], ts=1)
            journal.append("long", 0, first)
            stuck, gone = asyncio.Event(), asyncio.Event()

            async def send(message: dict[str, Any]) -> None:
                if message["type"] == "http.response.body" and message.get("body"):
                    stuck.set()
                    await gone.wait()

            parts = iter([{"type": "http.request", "body": b"", "more_body": False}])

            async def receive() -> dict[str, Any]:
                for part in parts:
                    return part
                await gone.wait()
                return {"type": "http.disconnect"}

            call = served.app(scope("/api/runs/long/stream", served.token()), receive, send)
            streaming = asyncio.ensure_future(call)
            await stuck.wait()
            assert served.site.streams.total() == 1
            await http.post("/api/runs", json={"skill": "pair", "input": {"text": "in"}, "run_id": "k"})
            assert (await ended(http, "k"))["result"]["status"] == "finished"
            gone.set()
            await asyncio.wait([streaming])
            streaming.exception()  # it may have been dropped before
            assert served.site.streams.total() == 0
            assert not served.site.ends

    run_async(work)


def test_a_run_that_is_deleted_while_it_is_watched_ends_the_stream_with_a_problem(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [QUESTION]) as served, served.http(served.token()) as http:
            await http.post("/api/runs", json={"skill": "asker", "input": {"text": "in"}, "run_id": "k"})
            await ended(http, "k")
            watching = asyncio.ensure_future(http.get("/api/runs/k/stream", params={"follow": "true"}))
            while not served.site.streams:  # noqa: ASYNC110 - nothing tells when a stream begins
                await asyncio.sleep(0)
            deleted = await http.post("/api/deletions", json={"runs": ["k"]})
            assert deleted.json()["runs"] == ["k"]
            last = (await watching).text.replace("\r\n", "\n").strip().split("\n\n")[-1]
            assert "event: problem" in last
            assert json.loads(last.partition("data: ")[2])["code"] == "RYN401"

    run_async(work)


# -- a server that is killed ----------------------------------------------------------------------------


def sent(seq: int) -> bytes:
    return f"id: {seq}\r\nevent: event\r\ndata: {seq}\r\n\r\n".encode()


class Broken(httpx2.AsyncByteStream):
    """A response that breaks after some events, in the middle of one."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> Any:
        for chunk in self._chunks:
            yield chunk
        raise httpx2.RemoteProtocolError("the server was killed")


@pytest.mark.parametrize("alive", [1, 3])
def test_a_client_of_a_killed_server_loses_and_repeats_nothing(alive: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.client.transport.PAUSES", (0.0, 0.0, 0.0))
    last, dead = 20, iter([True, True, False] * 20)

    def answer(request: httpx2.Request) -> httpx2.Response:
        if next(dead):
            raise httpx2.ConnectError("refused")
        after = int(request.headers["last-event-id"])
        events = [sent(seq) for seq in range(after + 1, last + 1)]
        if len(events) <= alive:
            return httpx2.Response(200, content=b"".join(events) + b"event: end\r\ndata: {}\r\n\r\n")
        return httpx2.Response(200, stream=Broken([*events[:alive], events[alive][:9]]))

    async def work() -> None:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="http://127.0.0.1")
        transport = Transport("http://127.0.0.1", "token", http)
        numbers = transport.events("/stream", lambda event: int(event.data) if event.event == "event" else None)
        found = [number async for number in numbers]
        assert found == list(range(1, last + 1))

    run_async(work)


def test_a_client_of_a_server_that_stays_dead_gets_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.client.transport.PAUSES", (0.0, 0.0, 0.0))

    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async def work() -> None:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(refuse), base_url="http://127.0.0.1")
        with pytest.raises(ServerUnavailable) as found:
            async for _ in Transport("http://127.0.0.1", "token", http).events("/stream", lambda event: event):
                pass
        assert found.value.hint

    run_async(work)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"detail": 3, "code": []}', b"\xff"])
def test_an_answer_of_another_server_is_an_error_of_the_gateway(body: bytes):
    async def work() -> None:
        answer = httpx2.MockTransport(lambda _: httpx2.Response(502, content=body))
        http = httpx2.AsyncClient(transport=answer, base_url="http://127.0.0.1")
        with pytest.raises(ReynError) as found:
            await Transport("http://127.0.0.1", "token", http).call("GET", "/api/runs", dict)
        assert isinstance(found.value, GatewayError)

    run_async(work)


# -- a clock that jumps ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-86_400, 86_400, -1])
def test_a_clock_that_jumps_changes_no_run_and_no_figure_below_zero(tmp_path: Path, seconds: int):
    async def work() -> None:
        clock = SteppingClock()
        clock.advance(10 * 86_400)
        answers = [QUESTION, finish("thanks")]
        async with serving(tmp_path, answers, clock=clock) as served, served.http(served.token()) as http:
            await http.post("/api/runs", json={"skill": "asker", "input": {"text": "in"}, "run_id": "k"})
            await ended(http, "k")
            for number in range(12):
                await http.post("/api/session", json={"secret": f"x{number}"})
            clock.advance(seconds)
            ages = [line for line in (await http.get("/metrics")).text.splitlines() if line.startswith("reyn_old")]
            assert float(ages[0].split()[1]) >= 0
            limited = (await http.post("/api/session", json={"secret": "x"})).status_code
            assert limited == (429 if seconds == -1 else 401), "a jump does not lock a user out"
            answered = await http.post("/api/runs/k/answer", json={"value": "blue"})
            assert answered.status_code == 202, answered.text
            assert (await ended(http, "k"))["result"]["status"] == "finished"
            assert (await http.post("/api/runs/k/verify", json={})).status_code == 200

    run_async(work)
