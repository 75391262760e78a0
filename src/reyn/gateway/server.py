"""Runs the HTTP server: the socket, the login link, signals, a graceful end."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from reyn.engines import Serving
from reyn.errors import AddressUnsafe, ServerUnavailable
from reyn.gateway.app import create_app
from reyn.gateway.guard import access_log
from reyn.gateway.site import Gateway
from reyn.gateway.work import execute_submitted
from reyn.journal.submission import DEFAULT_QUEUE

if TYPE_CHECKING:
    import uvicorn

    from reyn.api import ChatRuntime

_log = logging.getLogger("reyn.gateway")
_DRAIN_SECONDS = 10
_BACKLOG = 2_048


class ServerSettings(msgspec.Struct, frozen=True):
    """Where and how to serve.

    Attributes:
        host: The address to bind.
        port: The port; 0 for a free one.
        certificate: The file of a TLS certificate, with `key`.
        key: The file of its key.
        behind_proxy: The public address, such as `https://reyn.example.com`, of a proxy that encrypts.
        may_work: Whether the server executes runs.
        concurrency: How many submitted runs it executes at once, where workers share them.
    """

    host: str = "127.0.0.1"
    port: int = 8300
    certificate: str | None = None
    key: str | None = None
    behind_proxy: str | None = None
    may_work: bool = True
    concurrency: int = 4

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


class Started(msgspec.Struct, frozen=True):
    """A server that takes requests: its address, and the link with which its user signs in once."""

    url: str
    login_url: str


async def serve(
    runtime: ChatRuntime,
    settings: ServerSettings,
    *,
    user: str,
    on_start: Callable[[Started], None],
    on_request: Callable[[str], object] | None = None,
) -> None:
    """Serve a runtime until SIGINT or SIGTERM.

    Raises:
        AddressUnsafe: Other machines could connect without encryption, or there are no tokens.
        ServerUnavailable: The address cannot be bound.
    """
    import uvicorn

    from reyn.gateway.protocol import PatientProtocol

    check_address(runtime, settings)
    bound = _bind(settings)
    port = bound.getsockname()[1]
    scheme, hosts, url = _addresses(settings, port)
    site = Gateway(runtime, user=user, may_work=settings.may_work)
    app = create_app(site, hosts, scheme=scheme)
    if on_request is not None:
        _log_requests(on_request)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        http=PatientProtocol,
        ws="none",
        proxy_headers=False,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        h11_max_incomplete_event_size=64_000,
        limit_concurrency=3_000,
        lifespan="off",
    )
    server = _server(config, site)
    bound.listen(_BACKLOG)  # from here on, a client can connect
    on_start(Started(url, f"{url}/login#{site.access.new_code()}"))
    serving = Serving(queues=(DEFAULT_QUEUE,), concurrency=settings.concurrency, listener=site.changes.publish)
    beside = [asyncio.ensure_future(runtime.project.notify(url))]
    if settings.may_work and (runtime.services.config.engine or runtime.services.journal.is_remote):
        beside.append(asyncio.ensure_future(execute_submitted(runtime, serving)))
    try:
        await server.serve(sockets=[bound])
    finally:
        beside[0].cancel()
        serving.stop.set()
        for ended in await asyncio.gather(*beside, return_exceptions=True):
            if isinstance(ended, Exception):
                _log.error("a part of the server failed", exc_info=ended)
        await site.close()
        bound.close()


def check_address(runtime: ChatRuntime, settings: ServerSettings) -> None:
    """Refuse to serve other machines without encryption and tokens.

    Raises:
        AddressUnsafe: It is refused.
    """
    if settings.is_loopback:
        return
    if settings.certificate is None and settings.behind_proxy is None:
        raise AddressUnsafe(f"`{settings.host}` can be reached from other machines, and nothing encrypts")
    if not any(not token.is_session for token in runtime.services.journal.access_tokens()):
        raise AddressUnsafe(
            f"`{settings.host}` can be reached from other machines, and there is no access token",
            hint="Create a token first.",
        )


def _addresses(settings: ServerSettings, port: int) -> tuple[str, list[str], str]:
    """Return the scheme and the hosts that browsers name, and the address of the server."""
    if settings.behind_proxy is not None:
        scheme, _, host = settings.behind_proxy.rstrip("/").partition("://")
        return scheme, [host], f"{scheme}://{host}"
    scheme = "https" if settings.certificate else "http"
    names = ["127.0.0.1", "localhost", "[::1]"] if settings.is_loopback else [settings.host]
    shown = f"[{settings.host}]" if ":" in settings.host.strip("[]") and "[" not in settings.host else settings.host
    return scheme, [f"{name}:{port}" for name in names], f"{scheme}://{shown}:{port}"


def _bind(settings: ServerSettings) -> socket.socket:
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, settings.port))
    except (OSError, OverflowError) as error:
        bound.close()
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise ServerUnavailable(
            f"cannot serve at {settings.host}:{settings.port}: {text}", hint="Use another address or port."
        ) from error
    return bound


def _server(config: uvicorn.Config, site: Gateway) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        """Ends the streams when the server is asked to end: they would go on for ever."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            site.end_streams()
            await super().shutdown(sockets)

    return Server(config)


class _JsonLines(logging.Handler):
    """Passes each record on as a line of JSON."""

    def __init__(self, print_line: Callable[[str], object]) -> None:
        super().__init__()
        self._print = print_line

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"at": record.created, **getattr(record, "fields", {"message": record.getMessage()})}
        self._print(msgspec.json.encode(fields).decode())


def _log_requests(print_line: Callable[[str], object]) -> None:
    access_log.addHandler(_JsonLines(print_line))
    access_log.setLevel(logging.INFO)
    access_log.propagate = False
