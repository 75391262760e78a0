"""Parse URLs and classify addresses: whether a host is public, private, or not to be connected to at all."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from reyn.ops.budget import OpFailed

_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Target(NamedTuple):
    """The parsed target of a URL: its host in ASCII, its port, and the path with the query."""

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


def parse_url(url: str) -> Target:
    """Return where a URL leads.

    Host names are converted to punycode, so that a person who approves a host sees letters that cannot be mistaken.

    Raises:
        OpFailed: It is not an `http` or `https` URL, or contains credentials.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        host = _ascii_host(parts.hostname or "")
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
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], path + query)


def _ascii_host(host: str) -> str:
    host = host.rstrip(".").lower()
    if ":" in host:
        return str(ipaddress.IPv6Address(host.partition("%")[0]))
    if host.isascii():
        if not host or not all(char.isalnum() or char in "-._" for char in host):
            raise ValueError("the host name is invalid")
        return host
    import idna

    return idna.encode(host, uts46=True).decode()


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet, including the addresses embedded in it."""
    parsed: Address = ipaddress.ip_address(address.partition("%")[0])
    return all(one.is_global and not one.is_multicast and not one.is_reserved for one in _embedded(parsed))


def is_private_name(host: str) -> bool:
    """Return whether a host is known to be private without a look-up: an address, or a name of this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not is_public(host)
    except ValueError:
        return False


def _embedded(address: Address) -> list[Address]:
    """Return an address, or the IPv4 address that it leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    return [address]
