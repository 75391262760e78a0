"""The origins that a secret may be sent to. An origin is the scheme, host and port of a server.

Implementations of `Origins` store the bindings; `reyn.config` stores them for the user.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from reyn.errors import OriginInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_.])?|\[[0-9a-f:.]+\]")


def origin_of(url: str) -> str:
    """Return the origin of a URL, normalized: lower case, without a default port.

    Hosts must be ASCII: the punycode of a name cannot be mistaken for another name.

    Raises:
        OriginInvalid: The URL has no usable scheme, host or port, or contains credentials.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise OriginInvalid(f"`{url}` is not a URL: {error}") from error
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    if parts.scheme not in _DEFAULT_PORTS or "@" in parts.netloc or not _HOST.fullmatch(host):
        raise OriginInvalid(f"`{url}` is not the URL of a server with an ASCII host name")
    return f"{parts.scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


def validate_origin(text: str) -> str:
    """Return the normalized origin; raise `OriginInvalid` if the text contains more than an origin."""
    parts = urlsplit(text)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise OriginInvalid(f"`{text}` is more than an origin", hint=f"Write `{origin_of(text)}`.")
    return origin_of(text)


class Origins(Protocol):
    """The bindings of secrets to origins, by handle."""

    def allowed(self, handle: str) -> tuple[str, ...]:
        """Return the origins that a secret may be sent to; empty if it is bound to none yet."""
        ...

    def allow(self, handle: str, origin: str) -> None:
        """Bind a secret to one more origin."""
        ...

    def revoke(self, handle: str, origin: str | None = None) -> tuple[str, ...]:
        """Remove one binding, or all; return the origins that were removed."""
        ...


class MemoryOrigins:
    """Bindings that live as long as the process: the in-memory implementation for tests."""

    def __init__(self, origins: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._origins = dict(origins or {})

    def allowed(self, handle: str) -> tuple[str, ...]:
        return self._origins.get(handle, ())

    def allow(self, handle: str, origin: str) -> None:
        self._origins[handle] = tuple(dict.fromkeys((*self.allowed(handle), origin)))

    def revoke(self, handle: str, origin: str | None = None) -> tuple[str, ...]:
        removed = tuple(each for each in self.allowed(handle) if origin in (None, each))
        self._origins[handle] = tuple(each for each in self.allowed(handle) if each not in removed)
        return removed
