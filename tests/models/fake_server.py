"""A server on loopback that implements OpenAI's streamed chat completions and can misbehave in many ways.

It runs in its own thread. Each request uses up one `Behavior` of a list; the last one is repeated.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

Text = str | dict[str, Any]
"""The text of an answer; a dict is sent as JSON."""
_TIMEOUT_SECONDS = 60


class Request:
    """A received request."""

    def __init__(self, path: str, headers: list[tuple[str, str]], raw: bytes) -> None:
        self.path = path
        self.headers = headers
        self.raw = raw
        self.body: dict[str, Any] = json.loads(raw) if raw else {}
        self.at = time.monotonic()

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def key(self) -> str:
        return (self.all("authorization") or [""])[0].removeprefix("Bearer ")

    @property
    def mode(self) -> str:
        return str(self.body.get("response_format", {}).get("type", "free"))


class Connection:
    """The connection on which a response is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} So", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        await self.send("\r\n".join(lines).encode())

    async def whole(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        await self.head(status, {"content-type": kind, "content-length": str(len(body))} | (headers or {}))
        await self.send(body)

    async def begin_stream(self) -> None:
        await self.head(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})

    async def piece(self, content: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(content), content))

    async def end_stream(self) -> None:
        await self.send(b"0\r\n\r\n")

    def hang_up(self) -> None:
        """Close the connection immediately."""
        self._writer.transport.abort()

    async def until_dropped(self) -> None:
        while await self._reader.read(1 << 16):
            pass


Behavior = Callable[[Request, Connection], Awaitable[None]]


class FakeServer:
    """`with FakeServer(good(...)) as server:`; `server.requests` contains every request, `server.drops` counts the
    clients that disconnected from a silent server."""

    def __init__(self, *behaviors: Behavior) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.drops = 0
        self._behaviors = list(behaviors)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-server", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def then(self, *behaviors: Behavior) -> None:
        """Replace the behaviors."""
        self._behaviors = list(behaviors)

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "timeout"
            time.sleep(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_TIMEOUT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_TIMEOUT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_SECONDS)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                behavior = self._behaviors.pop(0) if len(self._behaviors) > 1 else self._behaviors[0]
                await behavior(request, Connection(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            self.drops += 1
        except _Dropped:
            self.drops += 1
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


class _Dropped(Exception):
    pass


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines if line)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Request(first.split()[1], headers, await reader.readexactly(length))


# -- behaviors ------------------------------------------------------------------------------------------


def chunk(text: str | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices} | fields


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def to_text(answer: Text) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


def good(
    content: Text | Callable[[Request], Text], *, usage: Any = (7, 5), pieces: int = 3, ascii: bool = True
) -> Behavior:
    """Send a complete answer in pieces. `usage` may be a pair of counts, `None`, or raw JSON."""

    async def answer(request: Request, connection: Connection) -> None:
        text = to_text(content(request) if callable(content) else content)
        size = max(1, -(-len(text) // pieces))
        await connection.begin_stream()
        await connection.piece(event(chunk("")))
        for at in range(0, len(text), size):
            piece = json.dumps(chunk(text[at : at + size]), ensure_ascii=ascii)
            await connection.piece(b"data: " + piece.encode() + b"\n\n")
        await connection.piece(event(chunk(finish="stop")))
        if usage is not None:
            counts = usage
            if isinstance(usage, tuple):
                counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
            await connection.piece(event(chunk() | {"choices": [], "usage": counts}))
        await connection.piece(b"data: [DONE]\n\n")
        await connection.end_stream()

    return answer


def status(
    code: int, message: str | Callable[[Request], str] = "no", *, retry_after: str = "", **error: Any
) -> Behavior:
    """Send an error in OpenAI's format."""

    async def answer(request: Request, connection: Connection) -> None:
        text = message(request) if callable(message) else message
        body = json.dumps({"error": {"message": text, "type": "t", "code": code} | error}).encode()
        await connection.whole(code, "application/json", body, {"retry-after": retry_after} if retry_after else None)

    return answer


def whole(kind: str, body: bytes, code: int = 200, **headers: str) -> Behavior:
    """Send a response that is not streamed."""

    async def answer(_: Request, connection: Connection) -> None:
        await connection.whole(code, kind, body, headers)

    return answer


def stream(*contents: bytes, then: str = "end") -> Behavior:
    """Stream these bytes, then `end`, `hang up`, or `silence`."""

    async def answer(request: Request, connection: Connection) -> None:
        await connection.begin_stream()
        for content in contents:
            await connection.piece(content)
        if then == "end":
            await connection.end_stream()
        elif then == "hang up":
            connection.hang_up()
            raise ConnectionResetError
        else:
            await silence(request, connection)

    return answer


def together(count: int, then: Behavior) -> Behavior:
    """Wait until `count` requests have arrived before answering any."""
    arrived: list[Request] = []
    are_complete = asyncio.Event()

    async def answer(request: Request, connection: Connection) -> None:
        arrived.append(request)
        if len(arrived) == count:
            are_complete.set()
        await are_complete.wait()
        await then(request, connection)

    return answer


async def silence(_: Request, connection: Connection) -> None:
    """Accept the request and never answer."""
    await connection.until_dropped()
    raise _Dropped


async def hang_up(_: Request, connection: Connection) -> None:
    """Accept the request and close the connection."""
    connection.hang_up()
    raise ConnectionResetError


def drip(content: bytes, seconds: float) -> Behavior:
    """Send one byte at a time until the client disconnects."""

    async def answer(_: Request, connection: Connection) -> None:
        await connection.begin_stream()
        at = 0
        while True:
            await connection.piece(content[at % len(content) :][:1])
            at += 1
            await asyncio.sleep(seconds)

    return answer
