"""Send one HTTP request within limits: checked addresses, bounded time and size, no redirects, no environment.

The connection is made to the address that was checked, so that a name that resolves differently the second time does
not lead elsewhere. Redirects are returned to the caller, which decides about the new host.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from reyn._version import __version__
from reyn.models.streaming import BodyDecoder, TooManyBytes, Undecodable
from reyn.ops.budget import OpFailed
from reyn.permissions.hosts import canonical_host

if TYPE_CHECKING:
    import ssl

MAX_PAGE_BYTES = 5_000_000
"""Bytes of a response that are read; the rest is left."""
_OVERHEAD_BYTES = 500_000
"""Bytes of headers and framing that are read besides."""
WEB_EXTRA_MISSING = "web access needs the extra `web`: pip install 'reyn[web]'"
_USER_AGENT = f"reyn/{__version__}"
_REDIRECTS = (301, 302, 303, 307, 308)


class Response(NamedTuple):
    """A response: `content` is decompressed and holds at most the allowed bytes."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    is_truncated: bool

    @property
    def location(self) -> str:
        """The URL that a redirect leads to; empty if this is no redirect."""
        return self.headers.get("location", "") if self.status in _REDIRECTS else ""


class TimedOut(OpFailed):
    """The server did not answer in time."""


async def request(
    target: WebTarget,
    *,
    seconds: float,
    check: Callable[[list[str]], None],
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    max_bytes: int = MAX_PAGE_BYTES,
) -> Response:
    """Send a request and read the response.

    Args:
        target: Where to send it.
        seconds: Time limit for everything together.
        check: Called with the addresses of the host; raises `OpFailed` if one of them must not be used.
        method: The method.
        headers: Further headers.
        body: The body.
        max_bytes: Bytes of the response to read.

    Raises:
        TimedOut: It took too long.
        OpFailed: There is no usable response.
    """
    import asyncio

    try:
        async with asyncio.timeout(seconds):
            address = await _checked_address(target, check)
            return await _exchange(target, address, method, dict(headers or {}), body, max_bytes)
    except TimeoutError as error:
        raise TimedOut(f"`{target.name}` did not answer within {seconds:g} seconds") from error


async def _checked_address(target: WebTarget, check: Callable[[list[str]], None]) -> str:
    """Resolve a host, and return an address to connect to. All of its addresses are checked."""
    import asyncio

    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OpFailed(f"the host `{target.host}` cannot be resolved") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise OpFailed(f"the host `{target.host}` has no address")
    check(addresses)
    return addresses[0]


async def _exchange(
    target: WebTarget, address: str, method: str, headers: dict[str, str], body: bytes, max_bytes: int
) -> Response:
    import ssl

    http = _http()
    sent = {"Host": target.name, "User-Agent": _USER_AGENT, "Accept-Encoding": "gzip, identity", **headers}
    if body:
        sent["Content-Length"] = str(len(body))
    url = http.URL(
        scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
    )
    backend = _pinned(address, max_bytes + _OVERHEAD_BYTES)
    pool = http.AsyncConnectionPool(ssl_context=_tls(), network_backend=backend, max_connections=1)
    try:
        async with pool, pool.stream(method, url, headers=list(sent.items()), content=body or None) as response:
            received = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            decoder = BodyDecoder(received.get("content-encoding", ""), max_bytes + _OVERHEAD_BYTES)
            content = await _read(response.aiter_stream(), decoder, max_bytes)
            is_truncated = len(content) > max_bytes or (bool(content) and not decoder.is_complete)
            return Response(response.status, received, content[:max_bytes], is_truncated)
    except TooManyBytes as error:
        raise OpFailed(f"`{target.name}` sends more than {max_bytes + _OVERHEAD_BYTES} bytes") from error
    except Undecodable as error:
        raise OpFailed(f"the response of `{target.name}` cannot be decoded: {error}") from error
    except (ssl.SSLError, OSError, http.NetworkError, http.ProtocolError, http.TimeoutException) as error:
        reason = str(error) or type(error).__name__
        raise OpFailed(f"`{target.name}` cannot be reached: {reason[:200]}") from error


async def _read(stream: AsyncIterator[bytes], decoder: BodyDecoder, most: int) -> bytes:
    """Return the decoded content; if there is more than `most`, one piece more."""
    content = bytearray()
    async for chunk in stream:
        for piece in decoder.decode(chunk):
            content += piece
            if len(content) > most:
                return bytes(content)
    return bytes(content)


@cache
def _tls() -> ssl.SSLContext:
    import ssl

    return ssl.create_default_context()


def _http() -> Any:
    try:
        import httpcore2
    except ImportError as error:
        raise OpFailed(WEB_EXTRA_MISSING) from error
    return httpcore2


def _pinned(address: str, most: int) -> Any:
    """Return a network backend that always connects to one address and ignores the requested name.

    Its connections raise `TooManyBytes` after `most` bytes: headers, chunk extensions and trailers count, too.
    """
    http = _http()

    class CountedStream(http.AsyncNetworkStream):  # type: ignore[misc, name-defined]  # imported lazily
        left = most

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def read(self, *args: Any, **options: Any) -> bytes:
            content: bytes = await self._stream.read(*args, **options)
            self.left -= len(content)
            if self.left < 0:
                raise TooManyBytes("too many bytes were received")
            return content

        async def write(self, *args: Any, **options: Any) -> None:
            await self._stream.write(*args, **options)

        async def aclose(self) -> None:
            await self._stream.aclose()

        async def start_tls(self, *args: Any, **options: Any) -> Any:
            return CountedStream(await self._stream.start_tls(*args, **options))

        def get_extra_info(self, info: str) -> Any:
            return self._stream.get_extra_info(info)

    class PinnedBackend(http.AsyncNetworkBackend):  # type: ignore[misc, name-defined]  # imported lazily
        def __init__(self) -> None:
            self._backend = http.AnyIOBackend()

        async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> Any:
            return CountedStream(await self._backend.connect_tcp(address, port, *args, **options))

        async def sleep(self, seconds: float) -> None:
            await self._backend.sleep(seconds)

    return PinnedBackend()


# -- addresses ------------------------------------------------------------------------------------------------

_PORTS = {"http": 80, "https": 443}


class WebTarget(NamedTuple):
    """The parsed target of a URL: its canonical host, its port, and the path with the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def name(self) -> str:
        """The host as permission rules name it, with the port unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.name}{self.path}"


def parse_url(url: str) -> WebTarget:
    """Return where a URL leads.

    Host names are converted to punycode, so that a person who approves a host sees letters that cannot be mistaken.

    Raises:
        OpFailed: It is not an `http` or `https` URL, or contains credentials.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        host = canonical_host(parts.hostname or "")
    except (ValueError, UnicodeError) as error:
        raise OpFailed(f"`{url[:200]}` is not a valid URL: {error}") from error
    if parts.scheme not in _PORTS:
        raise OpFailed(f"`{url[:200]}` has no `http` or `https` scheme")
    if "@" in parts.netloc:
        raise OpFailed("a URL must not contain a user name or password")
    if not host or port == 0:
        raise OpFailed(f"`{url[:200]}` has no host")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = f"?{quote(parts.query, safe='/%:@!$&()*+,;=~-._?[]')}" if parts.query else ""
    return WebTarget(parts.scheme, host, port or _PORTS[parts.scheme], path + query)
