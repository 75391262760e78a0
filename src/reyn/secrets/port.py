"""The seam: places where values are kept by their names. None of them knows handles, or another one."""

from __future__ import annotations

from typing import Protocol


class Source(Protocol):
    """Gives values. What cannot be reached or trusted is a `SecretStoreUnavailable`."""

    @property
    def kind(self) -> str:
        """One word: `environment`, `keyring`, `file`."""
        ...

    def names(self) -> frozenset[str]: ...

    def get(self, name: str) -> str | None: ...


class Store(Source, Protocol):
    """Keeps values."""

    @property
    def place(self) -> str:
        """Where that is, in words."""
        ...

    @property
    def is_usable(self) -> bool:
        """Whether a value can be put here."""
        ...

    def set(self, name: str, value: str) -> bool:
        """Keep a value; `False` if it turns out that none can be kept here."""
        ...

    def remove(self, name: str) -> str:
        """Where the value was removed from, in words; empty if it was not here."""
        ...
