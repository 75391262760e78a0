"""Store secrets in the keyring of the operating system (macOS Keychain, Secret Service, KWallet; extra `secrets`).

Only backends that the `keyring` library recommends are used, which excludes those that store plain text or nothing.
Backends are loaded on first use: listing names and reading variables need none. A locked or broken keyring is an error;
Reyn never falls back to the file silently.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from reyn.errors import SecretStoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from keyring.backend import KeyringBackend

    from reyn.secrets.file import SecretsFile

    T = TypeVar("T")

SERVICE = "reyn"
_RECOMMENDED = 1
"""Minimum priority of the backends that `keyring` recommends."""


class KeyringStore:
    """Values in the keyring, their names in the secrets file."""

    kind = "keyring"

    def __init__(self, file: SecretsFile) -> None:
        self._file = file
        self._unusable_reason = ""

    def __repr__(self) -> str:
        return f"KeyringStore(service={SERVICE!r}, index={str(self._file.path)!r})"

    @property
    def is_usable(self) -> bool:
        return bool(self._backends)

    @property
    def place(self) -> str:
        return f"the keyring ({self._backends[0].name})" if self._backends else f"no keyring: {self._unusable_reason}"

    def names(self) -> frozenset[str]:
        return self._file.read().keyring

    def get(self, name: str) -> str | None:
        if name not in self.names():
            return None
        if not self.is_usable:
            raise SecretStoreUnavailable(f"`{name}` is in the keyring, which is not usable: {self._unusable_reason}")
        values = (_call(f"read `{name}`", backend.get_password, SERVICE, name) for backend in self._backends)
        return next((value for value in values if value is not None), None)

    def set(self, name: str, value: str) -> bool:
        """Store the name first: a crash then leaves a name without a value, never a value without a name."""
        was_known = name in self.names()
        self._file.update(lambda contents: contents.with_keyring_name(name))
        is_stored = False
        try:
            is_stored = any(_store(backend, name, value) for backend in self._backends)
        finally:
            if not is_stored and not was_known:
                self._file.update(lambda contents: contents.without_keyring_name(name))
        if not is_stored:
            self._unusable_reason = "no backend can store values"
            self._backends = ()
        return is_stored

    def remove(self, name: str) -> str:
        if name not in self.names():
            return ""
        for backend in self._backends:
            if _call(f"read `{name}`", backend.get_password, SERVICE, name) is not None:
                _call(f"remove `{name}`", backend.delete_password, SERVICE, name)
        self._file.update(lambda contents: contents.without_keyring_name(name))
        if self.is_usable:
            return self.place
        return f"the list of keyring entries only; the keyring is not usable: {self._unusable_reason}"

    @cached_property
    def _backends(self) -> tuple[KeyringBackend, ...]:
        """Return the usable backends, best first."""
        try:
            import keyring
            from keyring.backends.chainer import ChainerBackend

            active = keyring.get_keyring()
            members = active.backends if isinstance(active, ChainerBackend) else [active]
            usable = tuple(backend for backend in members if backend.priority >= _RECOMMENDED)
        except ImportError:
            self._unusable_reason = "the extra `secrets` is not installed"
            return ()
        except Exception as error:  # noqa: BLE001 - backends are third-party code
            self._unusable_reason = f"{type(error).__name__}: {error}"
            return ()
        if not usable:
            self._unusable_reason = "`keyring` recommends no available backend"
        return usable


def _store(backend: KeyringBackend, name: str, value: str) -> bool:
    try:
        backend.set_password(SERVICE, name, value)
    except NotImplementedError:  # some backends are read-only, such as those of package registries
        return False
    except Exception as error:  # noqa: BLE001 - as above; its message may quote the value
        raise SecretStoreUnavailable(f"the keyring cannot store `{name}`: {type(error).__name__}") from None
    return True


def _call(action: str, method: Callable[[str, str], T], service: str, name: str) -> T:
    try:
        return method(service, name)
    except Exception as error:  # noqa: BLE001 - as above
        raise SecretStoreUnavailable(f"the keyring cannot {action}: {type(error).__name__}: {error}") from None
