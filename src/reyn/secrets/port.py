"""The interfaces of secret stores. A store maps names to values; it knows neither handles nor other stores."""

from __future__ import annotations

from typing import Protocol


class Source(Protocol):
    """A read-only source of secrets. Methods raise `SecretStoreUnavailable` if it cannot be read or trusted."""

    @property
    def kind(self) -> str:
        """Return `environment`, `keyring`, `file` or `memory`."""
        ...

    def names(self) -> frozenset[str]:
        """Return the names of all secrets without reading their values."""
        ...

    def get(self, name: str) -> str | None:
        """Return a value, or `None` if there is no such secret."""
        ...


class Store(Source, Protocol):
    """A source that can also store values."""

    @property
    def place(self) -> str:
        """Return a description of the location for users, such as a path."""
        ...

    @property
    def is_usable(self) -> bool:
        """Return whether values can be stored."""
        ...

    def set(self, name: str, value: str) -> bool:
        """Store a value; return `False` if the store turns out to be unable to."""
        ...

    def remove(self, name: str) -> str:
        """Remove a value; return the location it was removed from, empty if there was none."""
        ...
