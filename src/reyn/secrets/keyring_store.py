"""The keyring of the desktop: macOS Keychain, Secret Service, KWallet, through the extra `secrets`.

A backend counts if `keyring` itself recommends it, which leaves out those that fail, forget, or write plain text. It is
looked for when one is needed, not before: a list of names and a variable need none. A keyring that is there but locked
or broken is an error; the file never takes its place unsaid.
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
"""The lowest priority of a backend that `keyring` recommends."""


class KeyringStore:
    """Values in a keyring, their names in the file of secrets."""

    kind = "keyring"

    def __init__(self, file: SecretsFile) -> None:
        self._file = file
        self._why_not = ""

    def __repr__(self) -> str:
        return f"KeyringStore(service={SERVICE!r}, index={str(self._file.path)!r})"

    @property
    def is_usable(self) -> bool:
        return bool(self._backends)

    @property
    def place(self) -> str:
        return f"the keyring ({self._backends[0].name})" if self._backends else f"no keyring: {self._why_not}"

    def names(self) -> frozenset[str]:
        return self._file.read().keyring

    def get(self, name: str) -> str | None:
        if name not in self.names():
            return None
        if not self.is_usable:
            raise SecretStoreUnavailable(f"`{name}` is in the keyring, which cannot be used here: {self._why_not}")
        found = (_told(f"read `{name}`", backend.get_password, SERVICE, name) for backend in self._backends)
        return next((value for value in found if value is not None), None)

    def set(self, name: str, value: str) -> bool:
        """The name is noted first: a crash leaves a name without a value, never a value that nobody knows of."""
        was_known = name in self.names()
        self._file.change(lambda contents: contents.with_keyring_name(name))
        is_kept = False
        try:
            is_kept = any(_keep(backend, name, value) for backend in self._backends)
        finally:
            if not is_kept and not was_known:
                self._file.change(lambda contents: contents.without_keyring_name(name))
        if not is_kept:
            self._why_not = "none of its backends stores anything"
            self._backends = ()
        return is_kept

    def remove(self, name: str) -> str:
        if name not in self.names():
            return ""
        for backend in self._backends:
            if _told(f"read `{name}`", backend.get_password, SERVICE, name) is not None:
                _told(f"remove `{name}`", backend.delete_password, SERVICE, name)
        self._file.change(lambda contents: contents.without_keyring_name(name))
        if self.is_usable:
            return self.place
        return f"the list of what the keyring holds; the keyring itself cannot be used here: {self._why_not}"

    @cached_property
    def _backends(self) -> tuple[KeyringBackend, ...]:
        """Those that count, the best first."""
        try:
            import keyring
            from keyring.backends.chainer import ChainerBackend

            chosen = keyring.get_keyring()
            members = chosen.backends if isinstance(chosen, ChainerBackend) else [chosen]
            found = tuple(backend for backend in members if backend.priority >= _RECOMMENDED)
        except ImportError:
            self._why_not = "the extra `secrets` is not installed"
            return ()
        except Exception as error:  # noqa: BLE001 - backends are anybody's code
            self._why_not = f"{type(error).__name__}: {error}"
            return ()
        if not found:
            self._why_not = "no backend that `keyring` recommends"
        return found


def _keep(backend: KeyringBackend, name: str, value: str) -> bool:
    try:
        backend.set_password(SERVICE, name, value)
    except NotImplementedError:  # some only lend what they have: those of package registries
        return False
    except Exception as error:  # noqa: BLE001 - as above; without its words, which might quote the value
        raise SecretStoreUnavailable(f"the keyring does not store `{name}`: {type(error).__name__}") from None
    return True


def _told(what: str, call: Callable[[str, str], T], service: str, name: str) -> T:
    try:
        return call(service, name)
    except Exception as error:  # noqa: BLE001 - as above
        raise SecretStoreUnavailable(f"the keyring cannot {what}: {type(error).__name__}: {error}") from None
