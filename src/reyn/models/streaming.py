"""Read a chat completion as it arrives: server-sent events, or one JSON document from servers that do not stream.

The SDK's own reader is several times slower and, in most versions, does not return the connection to the pool. The
interpretation of chunks belongs to `openai`.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ResponseIncomplete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_MAX_BYTES = 32_000_000
"""Larger than any valid answer."""
_MAX_ERROR_BYTES = 65_536
_DRAIN_SECONDS = 0.1


class Delta(msgspec.Struct):
    """A piece of an answer, or of the model's refusal to answer."""

    content: str | list[Any] | None = None
    refusal: str | None = None

    @property
    def text(self) -> str:
        """The text, without reasoning parts."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text") or "") for part in self.content if isinstance(part, dict))
        return self.content or self.refusal or ""


class Choice(msgspec.Struct):
    """One of the answers. A streamed answer consists of `delta`s; an answer in one document is a `message`."""

    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """The fields that Reyn reads from a chunk or from a whole document."""

    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None


EMPTY_DELTA = Delta()
_DECODER = msgspec.json.Decoder(Chunk)


def content_type(response: Any) -> str:
    """Return the content type of a response."""
    return str(response.headers.get("content-type", "none"))


async def read_chunks(response: Any) -> AsyncIterator[Chunk]:
    """Yield the chunks of a response.

    Raises:
        ResponseIncomplete: If the response exceeds the size limit.
    """
    if content_type(response).startswith("application/json"):
        yield _decode(await _read_all(response.aiter_bytes()))
        return
    contents = response.aiter_bytes()
    pending: list[bytes] = []  # data lines of an event whose JSON spans several lines
    async for line in _lines(contents):
        if not line.startswith(b"data:"):
            line = line.removeprefix(codecs.BOM_UTF8)  # a stream may start with a byte-order mark
            if pending and not line.strip():
                yield _decode(b"\n".join(pending))
                pending = []
            if not line.startswith(b"data:"):
                continue  # a comment or another field
        content = line[5:].strip()
        if content == b"[DONE]":
            break
        if pending:
            pending.append(content)
        elif content:
            try:
                yield _decode(content)
            except (UnicodeDecodeError, json.JSONDecodeError):
                pending.append(content)
    if pending:
        yield _decode(b"\n".join(pending))
    await _drain(contents)


async def _read_all(contents: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for content in contents:
        body += content
        _check_length(len(body))
    return bytes(body)


def _check_length(length: int) -> None:
    if length > _MAX_BYTES:
        raise ResponseIncomplete(f"the response exceeds {_MAX_BYTES} bytes")


async def limit_error_body(response: Any) -> None:
    """Limit how much of an error response is read. A response hook of the HTTP client."""
    if response.status_code < 400:
        return
    stream = response.stream
    [base_class] = [base for base in type(stream).__mro__ if base.__name__ == "AsyncByteStream"]

    class LimitedStream(base_class):  # type: ignore[misc, valid-type]  # the class differs between SDK versions
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = _MAX_ERROR_BYTES
            async for content in stream:
                yield content[:left]
                left -= len(content)
                if left <= 0:
                    return

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = LimitedStream()


async def _lines(contents: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split a stream at LF, CRLF and CR, as the format of server-sent events requires."""
    partial: list[bytes] = []
    length, carriage_return = 0, b""
    async for content in contents:
        length += len(content)
        _check_length(length)
        if carriage_return or b"\r" in content:
            content, carriage_return = carriage_return + content, b""
            if content.endswith(b"\r"):  # the LF of a CRLF may be in the next piece
                content, carriage_return = content[:-1], b"\r"
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = content.split(b"\n")
        partial.append(first)
        if others:
            yield b"".join(partial)
            for line in others[:-1]:
                yield line
            partial = [others[-1]]
    yield b"".join(partial)


async def _drain(contents: AsyncIterator[bytes]) -> None:
    """Read the rest briefly: only a connection without unread data can be reused."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in contents:
                pass


def _decode(content: bytes) -> Chunk:
    try:
        return _DECODER.decode(content)
    except msgspec.DecodeError:
        # Servers that split text between surrogates send escapes that msgspec rejects and `json` accepts.
        return msgspec.convert(json.loads(content), Chunk)
