"""Look up, store and remove secrets across all stores; register every value that is read with the scrubber."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from reyn.errors import SecretMissing, SecretStoreUnavailable
from reyn.secrets.file import SecretsFile, secrets_path
from reyn.secrets.handles import (
    handle_of,
    is_variable_handle,
    name_of,
    validate_name,
    validate_value,
    variable_of_handle,
)
from reyn.secrets.keyring_store import KeyringStore
from reyn.secrets.scrubber import Scrubber
from reyn.secrets.stores import EnvironmentStore, FileStore, variable_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reyn.secrets.port import Source, Store


class SecretEntry(msgspec.Struct, frozen=True):
    """A secret in a listing.

    Attributes:
        name: Its name.
        store: Kind of the store that provides the value.
        over: Kinds of the stores whose value it overrides.
    """

    name: str
    store: str
    over: tuple[str, ...] = ()


class StoreResult(msgspec.Struct, frozen=True):
    """Where a value was stored, and where older values were removed from."""

    place: str
    removed: tuple[str, ...] = ()


class Secrets:
    """The secrets of the user who runs this process.

    Variables take precedence over stores, and earlier stores over later ones. A new value goes to the first usable
    store and is removed from the others.
    """

    def __init__(self, stores: Sequence[Store], environment: EnvironmentStore | None = None) -> None:
        self.scrubber = Scrubber()
        self._stores = tuple(stores)
        self._environment = environment or EnvironmentStore({})
        self._sources: tuple[Source, ...] = (self._environment, *self._stores)

    def __repr__(self) -> str:
        return f"Secrets({[store.kind for store in self._stores]})"

    @property
    def place(self) -> str:
        """Return a description of the store that receives new values."""
        usable = self._usable_stores()
        return self._describe_place(usable[0]) if usable else "nowhere"

    def names(self) -> list[str]:
        return [entry.name for entry in self.entries()]

    def entries(self) -> list[SecretEntry]:
        """List all secrets by name with the stores that contain them, without reading values."""
        kinds: dict[str, list[str]] = {}
        for source in self._sources:
            for name in source.names():
                kinds.setdefault(name, []).append(source.kind)
        return [SecretEntry(name, first, tuple(others)) for name, (first, *others) in sorted(kinds.items())]

    def resolve(self, handle: str) -> str:
        """Return the value of `secret://NAME` or `env://VARIABLE`. Do not keep it longer than the call that needs it.

        Raises:
            SecretNameInvalid: If it is not a handle.
            SecretMissing: If there is no value.
        """
        if not is_variable_handle(handle):
            return self.get(name_of(handle))
        variable = variable_of_handle(handle)
        value = self._environment.variable(variable)
        if value is None:
            hint = f"Set `{variable}`, or store the value as a secret and refer to it as `secret://NAME`."
            raise SecretMissing(f"the environment variable `{variable}` is not set", hint=hint)
        self.scrubber.add(handle, validate_value(handle, value))
        return value

    def has_variable(self, variable: str) -> bool:
        """Return whether an environment variable is set to a non-empty value."""
        return self._environment.variable(variable) is not None

    def get(self, name: str) -> str:
        """Return the value of a stored secret by its name; see `resolve`."""
        value = self._find(validate_name(name))
        if value is None:
            hint = f"Store the secret `{name}`, or set the variable `{variable_of(name)}`."
            raise SecretMissing(f"no secret `{name}`", hint=hint)
        handle = handle_of(name)
        self.scrubber.add(handle, validate_value(handle, value))
        return value

    def set(self, name: str, value: str) -> StoreResult:
        """Store a value in the first usable store and remove it from the others."""
        handle = handle_of(name)
        self.scrubber.add(handle, validate_value(handle, value))
        target = next((store for store in self._usable_stores() if store.set(name, value)), None)
        if target is None:
            raise SecretStoreUnavailable(f"no store accepts `{name}`")
        removed = [store.remove(name) for store in self._stores if store is not target]
        return StoreResult(self._describe_place(target), tuple(filter(None, removed)))

    def remove(self, name: str) -> tuple[str, ...]:
        """Remove a secret from every store; return the places it was removed from.

        Raises:
            SecretMissing: If no store contains it.
        """
        removed = tuple(filter(None, [store.remove(validate_name(name)) for store in self._stores]))
        if removed:
            return removed
        if self._environment.get(name):
            hint = f"Run: unset {variable_of(name)}"
            raise SecretMissing(f"`{name}` is set by an environment variable and is in no store", hint=hint)
        raise SecretMissing(f"no secret `{name}`", hint="Check the name against the list of secrets.")

    def _find(self, name: str) -> str | None:
        for source in self._sources:
            value = source.get(name)
            if value is not None:
                return value
        return None

    def _usable_stores(self) -> list[Store]:
        return [store for store in self._stores if store.is_usable]

    def _describe_place(self, target: Store) -> str:
        """Describe a store, and why the stores before it were not used."""
        skipped = [store.place for store in self._stores[: self._stores.index(target)]]
        return f"{target.place} ({'; '.join(skipped)})" if skipped else target.place


def open_secrets(environ: Mapping[str, str] | None = None, home: Path | None = None) -> Secrets:
    """Open the secrets of the current user: variables, the keyring if it works, and the secrets file."""
    environ = os.environ if environ is None else environ
    file = SecretsFile(secrets_path(environ, home))
    return Secrets([KeyringStore(file), FileStore(file)], EnvironmentStore(environ))
