"""Decode the body of a response, and read an answer as it arrives: server-sent events, or one JSON document.

A body is decoded in steps of bounded size, and raw bytes count as well as decoded ones: compressed data may expand a
thousandfold, contain blocks that expand to nothing, or be followed by anything, which is an error here.

The readers of the SDKs are several times slower and, in most versions, do not return the connection to the pool. The
adapters interpret chunks and events, and add what they contain to a `StreamedReply`.
"""

from __future__ import annotations

import codecs
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from reyn.documents import JsonError, check_values
from reyn.errors import ResponseIncomplete
from reyn.models.messages import ToolCall
from reyn.models.protocol import ModelAnswer, ModelRequest, OutputMode, call_id
from reyn.models.thoughts import ThinkTags, Thoughts

if TYPE_CHECKING:
    from reyn.journal.kinds import Usage


_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 47}
_CHUNK = 65_536


class Undecodable(ValueError):
    """The content encoding was not requested, or the content does not have it."""


class TooManyBytes(Undecodable):
    """More raw bytes were received than are allowed."""


class BodyDecoder:
    """Decodes a body.

    Args:
        encoding: The header `content-encoding`; empty if there is none.
        most: Raw bytes that are accepted.
    """

    def __init__(self, encoding: str, most: int) -> None:
        self._encoding = encoding.strip().lower() or "identity"
        self._left = most
        if self._encoding != "identity" and self._encoding not in _WINDOW_BITS:
            raise Undecodable(f"content encoding {encoding[:40]!r}")
        bits = _WINDOW_BITS.get(self._encoding)
        self._decoder = None if bits is None else zlib.decompressobj(bits)

    @property
    def is_complete(self) -> bool:
        """Whether the compressed data has ended; also if the content is not compressed."""
        return self._decoder is None or self._decoder.eof

    def decode(self, content: bytes) -> Iterator[bytes]:
        """Yield the decoded content in pieces of at most 64 KB.

        Raises:
            Undecodable: It is not valid, or something follows its end.
            TooManyBytes: The raw bytes exceed the limit.
        """
        self._left -= len(content)
        if self._left < 0:
            raise TooManyBytes("too many bytes were received")
        if self._decoder is None:
            yield from (content[at : at + _CHUNK] for at in range(0, len(content), _CHUNK))
            return
        has_more = bool(content)
        while has_more:
            if self._decoder.eof:
                raise Undecodable(f"bytes follow the end of the {self._encoding} data")
            try:
                piece = self._decoder.decompress(content, _CHUNK)
            except zlib.error as error:
                raise Undecodable(f"not valid {self._encoding}: {error}") from error
            yield piece
            content = self._decoder.unconsumed_tail or self._decoder.unused_data
            has_more = bool(content) or (len(piece) == _CHUNK and not self._decoder.eof)  # a match may go on


S = TypeVar("S", bound=msgspec.Struct)
_MAX_BYTES = 32_000_000
"""Larger than any valid answer."""
_MAX_ERROR_BYTES = 65_536
_DRAIN_SECONDS = 0.1
_CALL_LENGTH = 32
_PIECE_LENGTH = 8
"""Counted besides the text of calls and their pieces, so that endless empty ones reach the length limit, too."""


class StreamedCall:
    """What has arrived of a tool call. `whole` are the arguments of a server that does not send them in pieces.

    `extra_content` is what the server wants back with the call.
    """

    def __init__(self, id: str = "", name: str = "", whole: str = "") -> None:
        self.id = id
        self.names = [name] if name else []
        self.whole = whole
        self.pieces: list[str] = []
        self.extra_content: Any = None


class StreamedReply:
    """What has arrived of an answer.

    Attributes:
        calls: The tool calls, in the order of their first pieces.
        length: The number of characters, to bound how much is read.
        stop: Why the answer ended, in the words of the API; empty while it has not.
        usage: The token counts, if the server has reported them.
        summary: The pieces of the thoughts that people can read.
        opaque: The parts of the thoughts that go back to the model, in the form of the adapter.
        tags: Splits thoughts in tags off the text, for servers that may send them.
        on_end: Called at the end of the answer; adds parts that arrived in pieces.
    """

    def __init__(self, request: ModelRequest) -> None:
        self.calls: list[StreamedCall] = []
        self.length = 0
        self.stop = ""
        self.usage: Usage | None = None
        self.tags: ThinkTags | None = None
        self.on_end: Callable[[], None] | None = None
        self.summary: list[str] = []
        self.opaque: list[Any] = []
        self._request = request
        self._texts: list[str] = []

    @property
    def has_unasked_calls(self) -> bool:
        """Whether it calls tools although the request offers none."""
        return bool(self.calls) and self._request.answer_form != "tools"

    def add_text(self, text: str) -> None:
        """Add a piece of the text, and pass it on."""
        if text and self.tags is not None:
            thought, text = self.tags.split(text)
            self.add_thought(thought)
        if text:
            self._texts.append(text)
            self.length += len(text)
            if self._request.on_delta is not None:
                self._request.on_delta(text)

    def add_thought(self, text: Any) -> None:
        """Add a piece of the readable thoughts. It is not part of the answer, and is not passed on."""
        if isinstance(text, str) and text:
            self.summary.append(text)
            self.length += len(text)

    def add_opaque(self, part: Any) -> None:
        """Add a part of the thoughts that goes back to the model as it is."""
        self.opaque.append(part)
        self.length += len(repr(part))

    def add_call(self, id: str = "", name: str = "", whole: str = "") -> StreamedCall:
        """Begin a tool call."""
        call = StreamedCall(id, name, whole)
        self.calls.append(call)
        self.length += _CALL_LENGTH + len(whole)
        return call

    def add_arguments(self, call: StreamedCall, piece: str) -> None:
        """Add a piece of the arguments of a call."""
        call.pieces.append(piece)
        self.length += _PIECE_LENGTH + len(piece)

    def answer(self, api: str, mode: OutputMode, *, is_truncated: bool) -> ModelAnswer:
        """Return the answer of an API. A call without an id gets one."""
        request = self._request
        calls = tuple(
            ToolCall(
                call.id or call_id(request.run_id, request.call, number),
                "".join(call.names),
                "".join(call.pieces) or call.whole,
            )
            for number, call in enumerate(self.calls, start=1)
        )
        if self.tags is not None:
            thought, text = self.tags.end()
            self.tags = None
            self.add_thought(thought)
            self.add_text(text)
        if self.on_end is not None:
            self.on_end()
        thoughts = None
        if self.summary or self.opaque:
            thoughts = Thoughts(api, tuple(self.opaque), "".join(self.summary))
        return ModelAnswer("".join(self._texts), self.usage, mode, is_truncated, tool_calls=calls, thoughts=thoughts)


def content_type(response: Any) -> str:
    """Return the content type of a response."""
    return str(response.headers.get("content-type", "none"))


class EventReader(Generic[S]):
    """Decodes a stream of server-sent events, or one document, and passes each event on.

    Args:
        shape: The struct of an event, and of a whole document.
        pass_on: Receives each event.
        is_document: Whether the response is one JSON document.

    `is_done` is set after the event that ends the answer.
    """

    def __init__(self, shape: type[S], pass_on: Callable[[S], None], *, is_document: bool = False) -> None:
        self._decode = _decoder(shape)
        self._pass_on = pass_on
        self._is_document = is_document
        self.is_done = False
        self._length = 0
        self._partial: list[bytes] = []
        """The pieces of a line that has not ended."""
        self._carriage_return = b""
        """A CR at the end of the last piece: the LF of a CRLF may be in the next one."""
        self._pending: list[bytes] = []
        """The data lines of an event whose JSON spans several lines."""

    def add(self, content: bytes) -> None:
        """Read a piece of the response. Raises `ResponseIncomplete` if the response exceeds the size limit."""
        self._length += len(content)
        if self._length > _MAX_BYTES:
            raise ResponseIncomplete(f"the response exceeds {_MAX_BYTES} bytes")
        if self._is_document:
            self._partial.append(content)
            return
        if self._carriage_return or b"\r" in content:
            content, self._carriage_return = self._carriage_return + content, b""
            if content.endswith(b"\r"):
                content, self._carriage_return = content[:-1], b"\r"
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = content.split(b"\n")
        if lines and self._partial:
            lines[0] = b"".join((*self._partial, lines[0]))
            self._partial.clear()
        if rest:
            self._partial.append(rest)
        for line in lines:
            if self.is_done:
                return
            if line or self._pending:
                self._read_line(line)

    def finish(self) -> None:
        """Read what only the end of the response completes."""
        if self._is_document:
            self._pass_on(self._decode(b"".join(self._partial)))
            return
        if not self.is_done:
            self._read_line(b"".join(self._partial))
        if self._pending:
            self._pass_on(self._decode(b"\n".join(self._pending)))

    def _read_line(self, line: bytes) -> None:
        pending = self._pending
        if not line.startswith(b"data:"):
            line = line.removeprefix(codecs.BOM_UTF8)  # a stream may start with a byte-order mark
            if pending and not line.strip():
                self._pass_on(self._decode(b"\n".join(pending)))
                pending.clear()
            if not line.startswith(b"data:"):
                return  # a comment or another field
        content = line[5:].strip()
        if content == b"[DONE]":
            self.is_done = True
        elif pending:
            pending.append(content)
        elif content:
            try:
                event = self._decode(content)
            except (UnicodeDecodeError, json.JSONDecodeError):
                pending.append(content)
            else:
                self._pass_on(event)


ENCODINGS = "gzip, deflate"
"""The content encodings that requests accept."""


async def limit_body(response: Any) -> None:
    """Limit how much of a response is read and decoded. A response hook of the HTTP client.

    The client decodes a chunk as a whole and any number of encodings in turn, so that a few kilobytes can become
    gigabytes. Here one encoding is decoded in steps, up to the limit; a body in any other encoding is not read.
    """
    is_error = response.status_code >= 400
    encoding = response.headers.get("content-encoding", "identity").strip().lower() or "identity"
    is_plain_stream = encoding == "identity" and content_type(response).startswith("text/event-stream")
    if is_plain_stream and not is_error:
        return  # `EventReader` limits it, and this is what costs time
    stream = response.stream
    [base_class] = [base for base in type(stream).__mro__ if base.__name__ == "AsyncByteStream"]
    if "content-encoding" in response.headers:
        del response.headers["content-encoding"]  # what follows is decoded

    class LimitedStream(base_class):  # type: ignore[misc, valid-type]  # the class differs between SDK versions
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = _MAX_ERROR_BYTES if is_error else _MAX_BYTES
            try:
                async for content in _decoded(stream, BodyDecoder(encoding, _MAX_BYTES)):
                    if len(content) > left and not is_error:
                        raise ResponseIncomplete(f"the response exceeds {_MAX_BYTES} bytes")
                    yield content[:left]
                    left -= len(content)
                    if left <= 0 and is_error:
                        return
            except TooManyBytes as error:
                if not is_error:
                    raise ResponseIncomplete(f"the response exceeds {_MAX_BYTES} bytes") from error
            except Undecodable as error:
                if not is_error:  # the status of an error says enough
                    raise ResponseIncomplete(f"the response cannot be decoded: {error}") from error

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = LimitedStream()


async def _decoded(stream: AsyncIterator[bytes], decoder: BodyDecoder) -> AsyncIterator[bytes]:
    """Yield the decoded content in pieces of bounded size."""
    async for raw in stream:
        for content in decoder.decode(raw):
            yield content


async def drain(contents: AsyncIterator[bytes]) -> None:
    """Read the rest briefly: only a connection without unread data can be reused."""
    import asyncio

    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in contents:
                pass


@cache
def _decoder(shape: type[S]) -> Callable[[bytes], S]:
    decoder = msgspec.json.Decoder(shape)

    def decode(content: bytes) -> S:
        try:
            check_values(content)
        except JsonError as error:
            raise ResponseIncomplete(f"an event of the response cannot be read: {error}") from error
        try:
            return decoder.decode(content)
        except msgspec.DecodeError:
            # Servers that split text between surrogates send escapes that msgspec rejects and `json` accepts.
            return msgspec.convert(json.loads(content), shape)

    return decode
