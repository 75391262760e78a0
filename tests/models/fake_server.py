"""A server on loopback that speaks OpenAI's streamed chat completions, and breaks them in every way it is told to.

It lives in a thread of its own. Each request is met by the next `Manner` of its list; the last one stays.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

Text = str | dict[str, Any]
"""What a model says: an object is sent as JSON."""
_HANGS = 60


class Asked:
    """One request, as it arrived."""

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


class Line:
    """The connection on which an answer goes back."""

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
        """Close at once, in the middle of whatever was being said."""
        self._writer.transport.abort()

    async def until_dropped(self) -> None:
        while await self._reader.read(1 << 16):
            pass


Manner = Callable[[Asked, Line], Awaitable[None]]


class FakeServer:
    """`with FakeServer(good(...)) as server:`; `server.asked` holds every request, `server.drops` counts the clients
    that hung up on a silent server."""

    def __init__(self, *manners: Manner) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self.drops = 0
        self._manners = list(manners)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-server", daemon=True)
        self._lines: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def then(self, *manners: Manner) -> None:
        """From now on, these."""
        self._manners = list(manners)

    @property
    def open_connections(self) -> int:
        return len(self._lines)

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + _HANGS
        while not is_so():
            assert time.monotonic() < deadline, "it never was so"
            time.sleep(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_HANGS)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_HANGS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_HANGS)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for task in self._lines:
            task.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        self.connections += 1
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                manner = self._manners.pop(0) if len(self._manners) > 1 else self._manners[0]
                await manner(asked, Line(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            self.drops += 1
        except _Dropped:
            self.drops += 1
        except asyncio.CancelledError:
            pass
        finally:
            self._lines.discard(task)
            writer.transport.abort()


class _Dropped(Exception):
    pass


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines if line)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Asked(first.split()[1], headers, await reader.readexactly(length))


# -- manners ------------------------------------------------------------------------------------------


def chunk(text: str | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices} | fields


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def to_text(said: Text) -> str:
    return said if isinstance(said, str) else json.dumps(said)


def good(said: Text | Callable[[Asked], Text], *, usage: Any = (7, 5), pieces: int = 3, ascii: bool = True) -> Manner:
    """A whole answer in pieces. `usage` of `None` is left out; anything but a pair is sent as it is."""

    async def answer(asked: Asked, line: Line) -> None:
        text = to_text(said(asked) if callable(said) else said)
        size = max(1, -(-len(text) // pieces))
        await line.begin_stream()
        await line.piece(event(chunk("")))
        for at in range(0, len(text), size):
            said_so_far = json.dumps(chunk(text[at : at + size]), ensure_ascii=ascii)
            await line.piece(b"data: " + said_so_far.encode() + b"\n\n")
        await line.piece(event(chunk(finish="stop")))
        if usage is not None:
            counted = usage
            if isinstance(usage, tuple):
                counted = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
            await line.piece(event(chunk() | {"choices": [], "usage": counted}))
        await line.piece(b"data: [DONE]\n\n")
        await line.end_stream()

    return answer


def status(code: int, message: str | Callable[[Asked], str] = "no", *, retry_after: str = "", **error: Any) -> Manner:
    """A refusal, in the shape of OpenAI's errors."""

    async def answer(asked: Asked, line: Line) -> None:
        words = message(asked) if callable(message) else message
        body = json.dumps({"error": {"message": words, "type": "t", "code": code} | error}).encode()
        await line.whole(code, "application/json", body, {"retry-after": retry_after} if retry_after else None)

    return answer


def whole(kind: str, body: bytes, code: int = 200, **headers: str) -> Manner:
    """An answer that is no stream."""

    async def answer(_: Asked, line: Line) -> None:
        await line.whole(code, kind, body, headers)

    return answer


def stream(*contents: bytes, then: str = "end") -> Manner:
    """A stream of exactly these bytes; afterwards `end`, `hang up`, or `silence`."""

    async def answer(asked: Asked, line: Line) -> None:
        await line.begin_stream()
        for content in contents:
            await line.piece(content)
        if then == "end":
            await line.end_stream()
        elif then == "hang up":
            line.hang_up()
            raise ConnectionResetError
        else:
            await silence(asked, line)

    return answer


def together(count: int, then: Manner) -> Manner:
    """Answer no request before `count` of them have arrived."""
    arrived: list[Asked] = []
    are_all_here = asyncio.Event()

    async def answer(asked: Asked, line: Line) -> None:
        arrived.append(asked)
        if len(arrived) == count:
            are_all_here.set()
        await are_all_here.wait()
        await then(asked, line)

    return answer


async def silence(_: Asked, line: Line) -> None:
    """Accept, and never answer."""
    await line.until_dropped()
    raise _Dropped


async def hang_up(_: Asked, line: Line) -> None:
    """Accept, and close without a word."""
    line.hang_up()
    raise ConnectionResetError


def drip(content: bytes, seconds: float) -> Manner:
    """One byte at a time, for as long as the client stays."""

    async def answer(_: Asked, line: Line) -> None:
        await line.begin_stream()
        at = 0
        while True:
            await line.piece(content[at % len(content) :][:1])
            at += 1
            await asyncio.sleep(seconds)

    return answer
