"""Handles of secrets, and the origins that a secret may be sent to: syntax and validation, without access to any store.

Errors about handles do not quote their input: users paste values where a name or a handle belongs. An origin is the
scheme, host and port of a server. `Origins` stores the bindings; `reyn.config` implements it for the user.
"""

from __future__ import annotations

import re
from typing import Protocol
from urllib.parse import urlsplit

from reyn.errors import OriginInvalid, SecretNameInvalid, SecretValueInvalid

SCHEME = "secret://"
VARIABLE_SCHEME = "env://"
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MIN_LENGTH = 6
_MAX_LENGTH = 8_192


def is_handle(text: str) -> bool:
    """Return whether a text is `secret://NAME` or `env://VARIABLE`."""
    return (text.startswith(SCHEME) and is_name(text.removeprefix(SCHEME))) or is_variable_handle(text)


def is_variable_handle(text: str) -> bool:
    """Return whether a text is `env://VARIABLE`."""
    return text.startswith(VARIABLE_SCHEME) and _VARIABLE.fullmatch(text.removeprefix(VARIABLE_SCHEME)) is not None


def secret_name(handle: str) -> str:
    """Return the name in a `secret://NAME` handle.

    Raises:
        SecretNameInvalid: If it is not such a handle.
    """
    if not handle.startswith(SCHEME):
        raise SecretNameInvalid("not a secret handle", hint="Write `secret://NAME`, never the value itself.")
    return validate_name(handle.removeprefix(SCHEME))


def variable_of_handle(handle: str) -> str:
    """Return the variable in an `env://VARIABLE` handle."""
    return handle.removeprefix(VARIABLE_SCHEME)


def handle_of(name: str) -> str:
    """Return the `secret://NAME` handle of a stored secret."""
    return f"{SCHEME}{validate_name(name)}"


def is_name(text: str) -> bool:
    """Return whether a text is a valid name of a secret."""
    return _NAME.fullmatch(text) is not None


def validate_name(name: str) -> str:
    """Return the name; raise `SecretNameInvalid` if it is not valid."""
    if not is_name(name):
        raise SecretNameInvalid("invalid name of a secret")
    return name


def validate_value(handle: str, value: str) -> str:
    """Return the value; raise `SecretValueInvalid` if it cannot be scrubbed without hiding ordinary text."""
    fault = _fault(handle, value)
    if fault:
        raise SecretValueInvalid(f"the value of `{handle}` {fault}")
    return value


def _fault(handle: str, value: str) -> str:
    if not value.strip():
        return "is empty"
    if len(value) < _MIN_LENGTH:
        return f"has fewer than {_MIN_LENGTH} characters and could not be distinguished from ordinary text"
    if len(value) > _MAX_LENGTH:
        return f"has more than {_MAX_LENGTH} characters"
    if value in handle:
        return "is part of its own handle"
    if is_handle(value):
        return "is the handle of another secret"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode text"
    return ""


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

    def allow(self, handle: str, origin: str) -> None:
        """Bind a secret to one more origin."""

    def revoke(self, handle: str, origin: str | None = None) -> tuple[str, ...]:
        """Remove one binding, or all; return the origins that were removed."""


class MemoryOrigins:
    """Bindings that live as long as the process: the in-memory implementation for tests."""

    def __init__(self) -> None:
        self._origins: dict[str, tuple[str, ...]] = {}

    def allowed(self, handle: str) -> tuple[str, ...]:
        return self._origins.get(handle, ())

    def allow(self, handle: str, origin: str) -> None:
        self._origins[handle] = tuple(dict.fromkeys((*self.allowed(handle), origin)))

    def revoke(self, handle: str, origin: str | None = None) -> tuple[str, ...]:
        removed = tuple(each for each in self.allowed(handle) if origin in (None, each))
        self._origins[handle] = tuple(each for each in self.allowed(handle) if each not in removed)
        return removed
