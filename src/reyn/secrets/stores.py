"""Stores of secrets: environment variables, the keyring, the secrets file, and memory.

A store maps names to values; it knows neither handles nor other stores. The secrets file has values for machines
without a keyring, and the names of the values in the keyring. A locked or broken keyring is an error; Reyn never falls
back to the file silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec

from reyn.errors import SecretStoreUnavailable
from reyn.private_files import PrivateFile, user_folder
from reyn.secrets.handles import is_name

if TYPE_CHECKING:
    from pathlib import Path

    from keyring.backend import KeyringBackend

    T = TypeVar("T")

SECRET_PREFIX = "REYN_SECRET_"  # noqa: S105 - a prefix of variable names
"""The prefix of variables that hold secrets; `reyn.config` ignores them."""
SERVICE = "reyn"
_RECOMMENDED = 1
"""Minimum priority of the backends that `keyring` recommends."""


class Source(Protocol):
    """A read-only source of secrets. Methods raise `SecretStoreUnavailable` if it cannot be read or trusted."""

    @property
    def kind(self) -> str:
        """Return `environment`, `keyring`, `file` or `memory`."""

    def names(self) -> frozenset[str]:
        """Return the names of all secrets without reading their values."""

    def get(self, name: str) -> str | None:
        """Return a value, or `None` if there is no such secret."""


class Store(Source, Protocol):
    """A source that can also store values."""

    @property
    def place(self) -> str:
        """Return a description of the location for users, such as a path."""

    @property
    def is_usable(self) -> bool:
        """Return whether values can be stored."""

    def set(self, name: str, value: str) -> bool:
        """Store a value; return `False` if the store turns out to be unable to."""

    def remove(self, name: str) -> str:
        """Remove a value; return the location it was removed from, empty if there was none."""


def variable_of(name: str) -> str:
    """Return the variable that overrides the stored value of a secret."""
    return f"{SECRET_PREFIX}{name}"


class EnvironmentStore:
    """Read-only secrets from `REYN_SECRET_NAME` variables. An empty variable counts as unset."""

    kind = "environment"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __repr__(self) -> str:
        return f"EnvironmentStore({sorted(self.names())})"

    def names(self) -> frozenset[str]:
        variables = (
            variable for variable, text in self._environ.items() if variable.startswith(SECRET_PREFIX) and text
        )
        return frozenset(filter(is_name, (variable.removeprefix(SECRET_PREFIX) for variable in variables)))

    def get(self, name: str) -> str | None:
        return self.variable(variable_of(name))

    def variable(self, variable: str) -> str | None:
        """Return the value of any variable, for `env://` handles."""
        return self._environ.get(variable) or None


class FileStore:
    """Values in a file that only its owner can read."""

    kind = "file"
    is_usable = True

    def __init__(self, file: SecretsFile) -> None:
        self._file = file

    def __repr__(self) -> str:
        return f"FileStore({self.place!r})"

    @property
    def place(self) -> str:
        return str(self._file.path)

    def names(self) -> frozenset[str]:
        return frozenset(self._file.read().values)

    def get(self, name: str) -> str | None:
        return self._file.read().values.get(name)

    def set(self, name: str, value: str) -> bool:
        self._file.update(lambda contents: contents.with_value(name, value))
        return True

    def remove(self, name: str) -> str:
        if name not in self.names():
            return ""
        self._file.update(lambda contents: contents.without_value(name))
        return self.place


class MemoryStore:
    """Values that live as long as the process: the in-memory implementation for tests."""

    kind = "memory"
    place = "memory"
    is_usable = True

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __repr__(self) -> str:
        return f"MemoryStore({sorted(self._values)})"

    def names(self) -> frozenset[str]:
        return frozenset(self._values)

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def set(self, name: str, value: str) -> bool:
        self._values[name] = value
        return True

    def remove(self, name: str) -> str:
        return self.place if self._values.pop(name, None) is not None else ""


class StoredSecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the secrets file.

    Attributes:
        keyring: Names of the values in the keyring, because keyrings cannot list their entries.
    """

    format: Literal[1] = 1
    values: dict[str, str] = {}
    keyring: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"StoredSecrets(values of {sorted(self.values)}, keyring={sorted(self.keyring)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("names", sorted({*self.values, *self.keyring}))]

    def with_value(self, name: str, value: str) -> StoredSecrets:
        return msgspec.structs.replace(self, values=self.values | {name: value})

    def without_value(self, name: str) -> StoredSecrets:
        return msgspec.structs.replace(self, values={key: value for key, value in self.values.items() if key != name})

    def with_keyring_name(self, name: str) -> StoredSecrets:
        return msgspec.structs.replace(self, keyring=self.keyring | {name})

    def without_keyring_name(self, name: str) -> StoredSecrets:
        return msgspec.structs.replace(self, keyring=self.keyring - {name})


def secrets_path(environ: Mapping[str, str], home: Path | None = None) -> Path:
    """Return the path of the secrets file, which need not exist. A relative `XDG_CONFIG_HOME` is ignored."""
    try:
        return user_folder(environ, home) / "secrets.json"
    except RuntimeError as error:
        hint = "Set `HOME` or `XDG_CONFIG_HOME`."
        raise SecretStoreUnavailable(f"no folder for the secrets file: {error}", hint=hint) from error


class SecretsFile:
    """Reads and updates the secrets file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = PrivateFile(path, SecretStoreUnavailable, is_confidential=True)

    def __repr__(self) -> str:
        return f"SecretsFile({str(self.path)!r})"

    def read(self) -> StoredSecrets:
        """Return the contents; empty if the file does not exist. Creates nothing."""
        return self._decode(self._file.read())

    def update(self, transform: Callable[[StoredSecrets], StoredSecrets]) -> None:
        """Replace the contents by `transform(contents)` under the lock."""

        def replace(content: bytes | None) -> bytes | None:
            before = self._decode(content)
            after = transform(before)
            if after == before:
                return None
            return msgspec.json.format(msgspec.json.encode(after, order="deterministic"), indent=2)

        self._file.update(replace)

    def _decode(self, content: bytes | None) -> StoredSecrets:
        if content is None:
            return StoredSecrets()
        try:
            return msgspec.json.decode(content, type=StoredSecrets)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # No cause: the message of a decoder may quote a value.
            hint = "Fix it or move it away. A newer version of Reyn may have written it."
            raise self._file.refusal(self.path, "is damaged or has an unsupported format", hint) from None


class KeyringStore:
    """Values in the keyring of the operating system (macOS Keychain, Secret Service, KWallet; extra `secrets`).

    Only backends that the `keyring` library recommends are used, which excludes those that store plain text or nothing.
    Backends are loaded on first use: listing names and reading variables need none.
    """

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
