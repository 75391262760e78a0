"""Requests to the server: JSON in, values out, problem documents as the errors of the runtime."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from reyn.errors import GatewayError, ReynError, ServerUnavailable, all_errors

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
_SECONDS = 60
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 2.0, 2.0)
"""Seconds before each attempt to continue a stream that broke. With an event, counting begins anew."""


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

        headers = {"Authorization": f"Bearer {token}"}
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
        try:
            response = await self._http.request(method, path, content=content, params=params, headers=self._headers)
        except self._error as error:
            raise ServerUnavailable(f"the server cannot be reached: {str(error) or type(error).__name__}") from error
        if response.status_code >= 400:
            raise error_of(response.content, response.status_code)
        return msgspec.json.decode(response.content, type=result)

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """Yield the lines of a response, each with its line break, as they arrive.

        Raises:
            ReynError: The error of the server, in its own class.
            ServerUnavailable: The server cannot be reached.
        """
        rest = b""
        try:
            async with self._http.stream("GET", path, headers=self._headers) as response:
                if response.status_code >= 400:
                    raise error_of(await response.aread(), response.status_code)
                async for chunk in response.aiter_bytes():
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield line + b"\n"
        except self._error as error:
            raise ServerUnavailable(f"the response broke: {str(error) or type(error).__name__}") from error
        if rest:
            yield rest

    async def events(
        self, path: str, after: int = 0, query: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ServerSentEvent]:
        """Yield the events of a stream. A connection that breaks is opened again, after the last event.

        Raises:
            ServerUnavailable: The server cannot be reached again.
        """
        failures = 0
        params = {name: str(value).lower() for name, value in (query or {}).items() if value}
        while True:
            headers = self._headers | {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            error: Exception | None = None
            try:
                async with self._http.stream("GET", path, params=params, headers=headers) as response:
                    if response.status_code >= 400:
                        raise error_of(await response.aread(), response.status_code)
                    async for event in _parsed(response):
                        failures = 0
                        if event.id.isdecimal():
                            after = int(event.id)
                        yield event
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


async def _parsed(response: httpx2.Response) -> AsyncIterator[ServerSentEvent]:
    name, identity = "message", ""
    data: list[str] = []
    async for line in response.aiter_lines():
        if not line:
            if data:
                yield ServerSentEvent(name, identity, "\n".join(data).encode())
            name, identity, data = "message", "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "id":
            identity = value
        elif field == "data":
            data.append(value)


def error_of(content: bytes, status: int) -> ReynError:
    """Return the error of a problem document, in the class of its code."""
    try:
        problem = json.loads(content)
        code, text, hint = problem.get("code", ""), str(problem["detail"]), str(problem.get("hint", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return GatewayError(f"the server answered with the status {status}")
    kind = next((one for one in all_errors() if one.code == code), GatewayError)
    error = kind.__new__(kind)
    ReynError.__init__(error, text, hint=hint)
    return error
