"""The stream of a chat completion, read piece by piece: server-sent events become chunks.

The SDK has a reader of its own, which costs several times as much and, in most versions, the connection.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import AnswerCut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_MOST_BYTES = 32_000_000
"""More than any answer has."""
_MOST_ERROR_BYTES = 65_536
_LAST_SECONDS = 0.1


class Said(msgspec.Struct):
    """A piece of an answer, or of a refusal to give one."""

    content: str | list[Any] | None = None
    refusal: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):  # in parts, of which some are thoughts
            return "".join(str(part.get("text") or "") for part in self.content if isinstance(part, dict))
        return self.content or self.refusal or ""


class Choice(msgspec.Struct):
    """One of the answers; only one is asked for. A whole answer has a `message`, a stream `delta`s."""

    index: int | None = 0
    delta: Said | None = None
    message: Said | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """What is read of a chunk, or of an answer that came whole."""

    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None


NOTHING = Said()
_DECODER = msgspec.json.Decoder(Chunk)


def kind_of(response: Any) -> str:
    return str(response.headers.get("content-type", "nothing"))


async def chunks(response: Any) -> AsyncIterator[Chunk]:
    """What a server says, piece by piece; of one that knows no streams, in one."""
    if kind_of(response).startswith("application/json"):
        yield _decoded(await _whole(response.aiter_bytes()))
        return
    contents = response.aiter_bytes()
    begun: list[bytes] = []
    async for line in _lines(contents):
        if not line.startswith(b"data:"):
            line = line.removeprefix(codecs.BOM_UTF8)  # a stream may begin with it
            if begun and not line.strip():
                yield _decoded(b"\n".join(begun))
                begun = []
            if not line.startswith(b"data:"):
                continue  # a comment, another field of the event, or nothing we know
        content = line[5:].strip()
        if content == b"[DONE]":
            break
        if begun:
            begun.append(content)
        elif content:
            try:
                yield _decoded(content)
            except (UnicodeDecodeError, json.JSONDecodeError):
                begun.append(content)  # it may go on in the next line
    if begun:
        yield _decoded(b"\n".join(begun))
    await _read_to_the_end(contents)


async def _whole(contents: AsyncIterator[bytes]) -> bytes:
    gathered = bytearray()
    async for content in contents:
        gathered += content
        _check_length(len(gathered))
    return bytes(gathered)


def _check_length(length: int) -> None:
    if length > _MOST_BYTES:
        raise AnswerCut(f"more than {_MOST_BYTES} bytes came, and no end")


async def keep_bounded(response: Any) -> None:
    """A hook of the HTTP client: of an error, only the beginning is read, however much the server sends."""
    if response.status_code < 400:
        return
    stream = response.stream
    [kind] = [base for base in type(stream).__mro__ if base.__name__ == "AsyncByteStream"]

    class Bounded(kind):  # type: ignore[misc, valid-type]  # another class in each major of the SDK
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = _MOST_ERROR_BYTES
            async for content in stream:
                yield content[:left]
                left -= len(content)
                if left <= 0:
                    return

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()


async def _lines(contents: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    begun: list[bytes] = []
    length, half = 0, b""
    async for content in contents:
        length += len(content)
        _check_length(length)
        if half or b"\r" in content:
            content, half = half + content, b""
            if content.endswith(b"\r"):  # the other half of a line's end may be in the next
                content, half = content[:-1], b"\r"
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = content.split(b"\n")
        begun.append(first)
        if others:
            yield b"".join(begun)
            for line in others[:-1]:
                yield line
            begun = [others[-1]]
    yield b"".join(begun)


async def _read_to_the_end(contents: AsyncIterator[bytes]) -> None:
    """Only a connection with nothing left on it can be used again; one that goes on for long is not worth it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_SECONDS):
            async for _ in contents:
                pass


def _decoded(content: bytes) -> Chunk:
    try:
        return _DECODER.decode(content)
    except msgspec.DecodeError:
        # Halves of characters, which servers send that cut texts into pieces, are refused there and taken here.
        return msgspec.convert(json.loads(content), Chunk)
