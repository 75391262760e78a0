"""What every request passes, static files and streams included: host, origin, size, rate, headers, the access log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from reyn.errors import RequestRefused, RequestTooLarge, ReynError
from reyn.gateway.problems import problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


access_log = logging.getLogger("reyn.gateway.access")
MAX_BODY = 16_000_000
_MAX_DIGITS = 20
_BODY_SECONDS = 30
_REST_SECONDS, _MAX_REST = 5, 100_000_000
"""How long, and how much of, a body that was refused is read, so that its sender reads the response."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class RequestGuard:
    """ASGI middleware around everything.

    Args:
        app: The application.
        hosts: The values of `Host` that are accepted, with the port unless it is the default one.
        scheme: The scheme that browsers see.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], scheme: str = "http") -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._scheme = scheme
        self._origins = frozenset(f"{scheme}://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        scope["scheme"] = self._scheme  # behind a proxy that encrypts, the connection itself does not
        request, started, status = Request(scope), time.perf_counter(), [0]

        is_refused = False

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                names = {name.lower() for name, _ in message["headers"]}
                own = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
                if is_refused:  # what follows may not be what it seems
                    own.append((b"connection", b"close"))
                message["headers"] = [*message["headers"], *(pair for pair in own if pair[0] not in names)]
            elif status[0] == RequestTooLarge.status and not message.get("more_body") and _may_send_rest(request):
                await send({**message, "more_body": True})
                await _discard_rest(receive)
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        try:
            self._check_origin(request)
            self._check_size(request)
            await self._app(scope, _bounded(receive), send_guarded)
        except ReynError as error:
            is_refused = True
            if not status[0]:
                await problem_response(error)(scope, receive, send_guarded)
        finally:
            principal = scope.get("reyn.principal")
            _log(request, status[0], time.perf_counter() - started, principal.name if principal else "")

    def _check_origin(self, request: Request) -> None:
        """Refuse another host (a name that was rebound to this address) and pages of another origin.

        Raises:
            RequestRefused: It is refused.
        """
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            raise RequestRefused("the request names another host than this server's")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise RequestRefused("the request comes from a page of another origin")
        site = request.headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") and not _is_navigation(request):
            raise RequestRefused("the request comes from a page of another site")

    def _check_size(self, request: Request) -> None:
        if "transfer-encoding" in request.headers and "content-length" in request.headers:
            raise RequestRefused("the request has two lengths, which a proxy may read differently")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > _MAX_DIGITS or int(length) > MAX_BODY:
            raise RequestTooLarge(f"the body is larger than {MAX_BODY:,} bytes")


def _is_navigation(request: Request) -> bool:
    """Return whether a link on another page opens a page of this server; the cookie is not sent with it."""
    return (
        request.method == "GET"
        and request.headers.get("sec-fetch-mode") == "navigate"
        and not request.url.path.startswith("/api")
    )


def _may_send_rest(request: Request) -> bool:
    """Return whether the rest of a refused body is read: its length is known, or its sender is."""
    length = request.headers.get("content-length", "")
    is_known = length.isdecimal() and len(length) <= _MAX_DIGITS and int(length) <= _MAX_REST
    return is_known or "reyn.principal" in request.scope


async def _discard_rest(receive: Receive) -> None:
    """Read a body that is not wanted: a connection that is closed before would end with an error for its sender."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_REST_SECONDS):
            while size <= _MAX_REST:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


def _bounded(receive: Receive) -> Receive:
    """Bound the size of a body that arrives in chunks, and the time that it takes."""
    size, ends = 0, time.monotonic() + _BODY_SECONDS
    is_complete = False

    async def receive_bounded() -> Message:
        nonlocal size, is_complete
        if is_complete:
            return await receive()
        try:
            async with asyncio.timeout(max(0.0, ends - time.monotonic())):
                message = await receive()
        except TimeoutError as error:
            raise RequestTooLarge(f"the body did not arrive in {_BODY_SECONDS} s") from error
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise RequestTooLarge(f"the body is larger than {MAX_BODY:,} bytes")
        is_complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return receive_bounded


def _log(request: Request, status: int, seconds: float, user: str) -> None:
    """Log a request as one JSON object, without its query, its body and its credentials."""
    fields: dict[str, Any] = {
        "method": request.method,
        "path": request.url.path,
        "status": status,
        "ms": round(seconds * 1000, 1),
        "client": request.client.host if request.client else "",
        "user": user,
    }
    access_log.info("request", extra={"fields": fields})
