"""Requests to the server: JSON in, values out, problem documents as the errors of the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from reyn.documents import JsonError, check_values
from reyn.errors import GatewayError, ReynError, ServerUnavailable, all_errors

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
_SECONDS, _MAX_DIGITS = 60, 16
MAX_RESPONSE = 64_000_000
"""The bytes of a response, of an event of a stream and of a line of an archive. A server that sends more is left."""
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 2.0, 2.0)
"""Seconds before each attempt to continue a stream that broke. With a new event, counting begins anew."""


class ServerSentEvent(NamedTuple):
    """An event of a stream."""

    event: str
    id: str
    data: bytes


class Transport:
    """Sends requests with a token.

    Args:
        url: The address of the server.
        token: An access token.
        http: The HTTP client to use; by default a new one, which is closed with this object.
    """

    def __init__(self, url: str, token: str, http: httpx2.AsyncClient | None = None) -> None:
        import httpx2

        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        self._http = http or httpx2.AsyncClient(base_url=url, timeout=_SECONDS, trust_env=False)
        self._headers = headers
        self._error = httpx2.HTTPError

    async def call(
        self, method: str, path: str, result: type[T], body: Any = None, query: Mapping[str, Any] | None = None
    ) -> T:
        """Send a request; return the decoded response.

        Raises:
            ReynError: The error of the server, in its own class.
            ServerUnavailable: The server cannot be reached.
        """
        content = msgspec.json.encode(body) if body is not None else None
        params = {name: value for name, value in (query or {}).items() if value is not None}
        options: dict[str, Any] = {
            "content": content,
            "params": params,
            "headers": self._headers,
            "follow_redirects": False,
        }
        try:
            async with self._http.stream(method, path, **options) as response:
                received = await _body(response)
        except self._error as error:
            raise ServerUnavailable(f"the server cannot be reached: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            raise error_of(received, response.status_code)
        return decoded(received, result)

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """Yield the lines of a response, each with its line break, as they arrive.

        Raises:
            ReynError: The error of the server, in its own class.
            ServerUnavailable: The server cannot be reached.
        """
        try:
            async with self._http.stream("GET", path, headers=self._headers, follow_redirects=False) as response:
                await _check(response)
                async for line in _split(response):
                    yield line
        except self._error as error:
            raise ServerUnavailable(f"the response broke: {str(error) or type(error).__name__}") from error

    async def events(
        self,
        path: str,
        take: Callable[[ServerSentEvent], T | None],
        after: int = 0,
        query: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[T]:
        """Yield what `take` makes of the events of a stream; `None` for those that bring nothing new.

        A connection that breaks is opened again, after the last event, unless connections bring nothing new again and
        again.

        Raises:
            ReynError: The error of the server, in its own class.
            ServerUnavailable: The server cannot be reached again.
        """
        failures = 0
        params = {name: str(value).lower() for name, value in (query or {}).items() if value}
        while True:
            headers = self._headers | {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            error: Exception | None = None
            try:
                options: dict[str, Any] = {"params": params, "headers": headers, "follow_redirects": False}
                async with self._http.stream("GET", path, **options) as response:
                    await _check(response)
                    async for event in _parsed(response):
                        if event.event == "problem":
                            raise error_of(event.data, response.status_code)
                        after = _seq_of(event.id, after)
                        if (found := take(event)) is not None:
                            failures = 0
                            yield found
                        if event.event == "end":
                            return
            except self._error as broken:
                error = broken
            if failures >= len(PAUSES):
                reason = f": {str(error) or type(error).__name__}" if error is not None else " before the run"
                raise ServerUnavailable(f"the stream ended{reason}") from error
            await asyncio.sleep(PAUSES[failures])
            failures += 1

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _seq_of(identity: str, before: int) -> int:
    """Return the sequence number that an event of a stream has; if it has none, that of the event before."""
    return int(identity) if identity.isdecimal() and len(identity) <= _MAX_DIGITS else before


async def _check(response: httpx2.Response) -> None:
    if not response.is_success:
        raise error_of(await _body(response), response.status_code)


async def _body(response: httpx2.Response) -> bytes:
    """Return the content of a response.

    Raises:
        GatewayError: It is too large, or compressed: then its size would say nothing.
    """
    content = bytearray()
    async for chunk in _raw(response):
        content += chunk
        if len(content) > MAX_RESPONSE:
            raise GatewayError(f"the server sent more than {MAX_RESPONSE:,} bytes")
    return bytes(content)


async def _raw(response: httpx2.Response) -> AsyncIterator[bytes]:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise GatewayError("the server sent compressed content, which was not requested")
    if response.is_stream_consumed:  # of a transport that has no streams
        yield response.content
        return
    async for chunk in response.aiter_raw():
        yield chunk


async def _split(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the lines of a response, each with its line break. No other character than a line feed ends one."""
    rest = bytearray()
    async for chunk in _raw(response):
        *whole, last = chunk.split(b"\n")
        for line in whole:
            yield bytes(rest) + line + b"\n"
            rest.clear()
        rest += last
        if len(rest) > MAX_RESPONSE:
            raise GatewayError(f"the server sent a line of more than {MAX_RESPONSE:,} bytes")
    if rest:
        yield bytes(rest)


async def _parsed(response: httpx2.Response) -> AsyncIterator[ServerSentEvent]:
    name, identity, size = "message", "", 0
    data: list[bytes] = []
    async for whole in _split(response):
        line = whole.rstrip(b"\r\n")
        if not line:
            if data:
                yield ServerSentEvent(name, identity, b"\n".join(data))
            name, identity, size, data = "message", "", 0, []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode(errors="replace")
        elif field == b"id":
            identity = value.decode(errors="replace")
        elif field == b"data":
            data.append(value)
            size += len(whole)
            if size > MAX_RESPONSE:
                raise GatewayError(f"the server sent an event of more than {MAX_RESPONSE:,} bytes")


def decoded(content: bytes, kind: type[T]) -> T:
    """Return the value in a response or an event.

    Raises:
        GatewayError: It is no such value.
    """
    try:
        check_values(content)
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, JsonError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayError(f"the server sent something that this client does not know: {error}") from error


def error_of(content: bytes, status: int) -> ReynError:
    """Return the error of a problem document, in the class of its code."""
    try:
        problem = decoded(content, dict[str, Any])
        code, text, hint = problem.get("code", ""), str(problem.get("detail", "")), str(problem.get("hint", ""))
    except GatewayError:
        code, text, hint = "", "", ""
    text = text or f"the server answered with the status {status}"
    kind = next((one for one in all_errors() if one.code == code), GatewayError)
    error = kind.__new__(kind)
    ReynError.__init__(error, text, hint=hint)
    return error
