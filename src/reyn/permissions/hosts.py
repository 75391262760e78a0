"""Hosts as permission rules name them, and which addresses belong to the public internet.

A host has one spelling: lower case, punycode, without a trailing dot, addresses in their shortest form. The address
that a connection uses is a host, too, so that a rule on an address also covers names that resolve to it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from fnmatch import fnmatchcase
from functools import cache

import msgspec

PRIVATE = "private:"
"""Begins the target of a connection to a private or loopback address. Only a pattern that begins so grants it."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is assigned to the public internet."""
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host, this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by customers of a carrier
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "2001::/23",  # IETF protocol assignments, with Teredo, benchmarks and ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
"""IANA's special-purpose registries, as of 2025: what is not globally reachable, or is only through a tunnel."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_WITH_IPV4 = (0, 0xFFFF0000)
"""The first 96 bits of `::a.b.c.d` and `::ffff:0:a.b.c.d`, both deprecated."""
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
_THIS_MACHINE = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "0.0.0.0/8", "::1/128", "::/128")))
_DEFAULT_PORTS = ("80", "443")


def parse_address(text: str) -> Address | None:
    """Return the address that a host spells, in any notation that the system's resolver takes; `None` for a name."""
    text = text.partition("%")[0]
    try:
        if ":" in text:
            address = ipaddress.IPv6Address(text)
            return address.ipv4_mapped or address
        last = text.rpartition(".")[2]
        # As in browsers: a host whose last part is a number is an address.
        return ipaddress.IPv4Address(socket.inet_aton(text)) if re.fullmatch(r"\d+|0x[0-9a-f]*", last) else None
    except OSError as error:
        raise ValueError(f"`{text}` is not a valid address") from error


def canonical_host(text: str) -> str:
    """Return the one spelling of a host.

    Raises:
        ValueError: It is not a host.
    """
    host = text.rstrip(".").lower()
    if not host.isascii():
        try:
            import idna
        except ImportError:
            raise ValueError("a host that is not ASCII needs the extra `web`: pip install 'reyn[web]'") from None
        host = idna.encode(host, uts46=True).decode().lower().rstrip(".")
    if ":" not in host and (not host or not all(char.isalnum() or char in "-._" for char in host)):
        raise ValueError("the host name is invalid")
    address = parse_address(host)
    return host if address is None else str(address)


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet, including the address embedded in it."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        embedded = found.ipv4_mapped or (_low(found) if found in _NAT64 else None)
        if embedded is None:
            return found in _UNICAST and not any(found in network for network in _NOT_PUBLIC)
        found = embedded
    return not any(found in network for network in _NOT_PUBLIC)


def _low(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _reached(address: Address) -> tuple[Address, ...]:
    """Return an address, and the IPv4 addresses that a translator or a tunnel may lead to from it."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _NAT64 or address in _LOCAL_NAT64 or int(address) >> 32 in _WITH_IPV4:
        return (address, _low(address))
    embedded = [one for one in (address.sixtofour, *(address.teredo or ())) if one is not None]
    return (address, *embedded)


def _is_this_machine(host: str, addresses: tuple[Address, ...]) -> bool:
    is_name = host == "localhost" or host.endswith(".localhost")
    return is_name or any(one in network for one in addresses for network in _THIS_MACHINE)


class Host(msgspec.Struct, frozen=True):
    """A host, with a port unless it is the default one of its scheme.

    Attributes:
        name: The canonical host.
        port: The port; empty for the scheme's own.
        is_private: Whether it is the target of a connection to a private or loopback address.
    """

    name: str
    port: str = ""
    is_private: bool = False

    @classmethod
    def parse(cls, text: str) -> Host:
        """Parse `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`, each of which may begin with `private:`.

        Raises:
            ValueError: It is not a host.
        """
        name, port = _split(text.removeprefix(PRIVATE))
        return cls(canonical_host(name), port, text.startswith(PRIVATE))

    @property
    def text(self) -> str:
        """The host as rules, verdicts and people name it."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{PRIVATE if self.is_private else ''}{name}{f':{self.port}' if self.port else ''}"

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The address that the host spells, and those embedded in it; empty for a name."""
        address = parse_address(self.name)
        return () if address is None else _reached(address)

    @property
    def is_known_private(self) -> bool:
        """Whether it is private without a look-up: an address, or a name of this machine."""
        address = parse_address(self.name)
        return _is_this_machine(self.name, self.addresses) or (address is not None and not is_public(str(address)))


_BRACKETED = re.compile(r"\[([0-9a-f.]*:[0-9a-f:.]*)(?:%[^\]]*)?\](?::(.*))?", re.IGNORECASE | re.ASCII)
"""An IPv6 address as URLs write it, with a port or without."""


def _split(text: str) -> tuple[str, str]:
    """Return host and port."""
    if found := _BRACKETED.fullmatch(text):
        return found[1], found[2] or ""
    if text.count(":") > 1:
        return text, ""
    name, _, port = text.partition(":")
    return name, port


def _is_glob(text: str) -> bool:
    return any(sign in text for sign in "*?") or ("[" in text and not _BRACKETED.fullmatch(text))


class HostPattern(msgspec.Struct, frozen=True):
    """A pattern of hosts: a name with wildcards, an address, or a network such as `10.0.0.0/8`."""

    text: str
    name: str
    port: str = ""
    is_private: bool = False
    network: Network | None = None

    @classmethod
    def parse(cls, text: str) -> HostPattern:
        """Parse a pattern.

        Raises:
            ValueError: It can match no host.
        """
        plain, is_private = text.removeprefix(PRIVATE), text.startswith(PRIVATE)
        if "/" in plain:
            try:
                return cls(text, plain, is_private=is_private, network=ipaddress.ip_network(plain, strict=False))
            except ValueError:
                raise ValueError(f"`{text}` is not a host; write it without the scheme and the path") from None
        name, port = _split(plain)
        if not _is_glob(plain):
            return cls(Host(canonical_host(name), port, is_private).text, canonical_host(name), port, is_private)
        labels = [label if label.isascii() else canonical_host(label) for label in plain.rstrip(".").lower().split(".")]
        name, port = _split(".".join(labels))
        return cls(f"{PRIVATE if is_private else ''}{'.'.join(labels)}", name, port, is_private)

    def grants(self, host: Host) -> bool:
        """Return whether it names a host, with its port and as private if it is."""
        if host.is_private and not self.is_private:
            return False
        if self.network is not None:
            return self.is_private <= host.is_private and any(one in self.network for one in host.addresses)
        # A rule about one private host is about that host; a pattern of private hosts may match public ones.
        private = msgspec.structs.replace(host, is_private=True)
        return self._matches(host.text, self.text) or private.text == self.text

    def restricts(self, host: Host) -> bool:
        """Return whether it covers a host: on every port if it names none, also by an address in another form."""
        if self.is_private and not host.is_private:  # an op asks about a private address separately
            return False
        if self.port and not any(
            fnmatchcase(port, self.port) for port in ((host.port,) if host.port else _DEFAULT_PORTS)
        ):
            return False
        if self.network is not None:
            return any(one in self.network for one in host.addresses)
        own = None if _is_glob(self.name) else parse_address(self.name)
        if _is_this_machine(self.name, () if own is None else (own,)) and _is_this_machine(host.name, host.addresses):
            return True
        return any(self._matches(name, self.name) for name in (host.name, *map(str, host.addresses)))

    def _matches(self, text: str, pattern: str) -> bool:
        return text == pattern or fnmatchcase(text, pattern)


host_pattern = cache(HostPattern.parse)
