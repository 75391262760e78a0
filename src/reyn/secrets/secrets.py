"""Look up, store and remove secrets across all stores; register every value that is read with the scrubber."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from reyn.errors import (
    ReynError,
    SecretMissing,
    SecretRefused,
    SecretStoreUnavailable,
    UserConfigUnavailable,
)
from reyn.secrets.handles import (
    MemoryOrigins,
    Origins,
    handle_of,
    is_variable_handle,
    origin_of,
    secret_name,
    validate_name,
    validate_value,
    variable_of_handle,
)
from reyn.secrets.scrubber import Scrubber
from reyn.secrets.stores import (
    EnvironmentStore,
    FileStore,
    KeyringStore,
    SecretsFile,
    Source,
    Store,
    secrets_path,
    variable_of,
)

if TYPE_CHECKING:
    from pathlib import Path


_logger = logging.getLogger("reyn.secrets")


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
    """The store of a value, and the stores that older values were removed from."""

    place: str
    removed: tuple[str, ...] = ()


class Secrets:
    """The secrets of the user who runs this process.

    Variables take precedence over stores, and earlier stores over later ones. A new value goes to the first usable
    store and is removed from the others.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        environment: EnvironmentStore | None = None,
        origins: Origins | None = None,
    ) -> None:
        self.scrubber = Scrubber()
        self.origins: Origins = origins or MemoryOrigins()
        self.unreadable: dict[str, str] = {}
        """Why secrets could not be read by `learn`, by handle or store."""
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
            return self.get(secret_name(handle))
        value = self._variable(handle)
        self.scrubber.add(handle, validate_value(handle, value))
        return value

    def _variable(self, handle: str) -> str:
        variable = variable_of_handle(handle)
        value = self._environment.variable(variable)
        if value is None:
            hint = f"Set `{variable}`, or store the value as a secret and refer to it as `secret://NAME`."
            raise SecretMissing(f"the environment variable `{variable}` is not set", hint=hint)
        return value

    @staticmethod
    def _missing(name: str) -> SecretMissing:
        hint = f"Store the secret `{name}`, or set the variable `{variable_of(name)}`."
        return SecretMissing(f"no secret `{name}`", hint=hint)

    def resolve_for(self, handle: str, url: str) -> str:
        """Return the value of a secret in order to send it to a server. The first use binds it to the origin.

        Args:
            handle: The secret.
            url: The URL of the server.

        Raises:
            SecretRefused: The secret is bound to other origins.
            OriginInvalid: The URL has no usable origin.
            SecretMissing: There is no value.
        """
        origin = origin_of(url)
        self.check_origin(handle, origin)
        value = self.resolve(handle)
        if not self.origins.allowed(handle):
            self._bind(handle, origin)
        return value

    def check_origin(self, handle: str, origin: str) -> None:
        """Check that a secret may be sent to an origin, without reading its value; see `resolve_for`."""
        allowed = self.origins.allowed(handle)
        if allowed and origin not in allowed:
            message = f"`{handle}` may be sent to {', '.join(allowed)} only, not to {origin}"
            raise SecretRefused(message, hint=f"Allow sending `{handle}` to {origin}, if that server may have it.")

    def _bind(self, handle: str, origin: str) -> None:
        try:
            self.origins.allow(handle, origin)
        except UserConfigUnavailable as error:
            _logger.warning("`%s` cannot be bound to %s: %s", handle, origin, error.message)

    def learn(self, handles: Iterable[str] = ()) -> None:
        """Make values known to the scrubber without using them.

        These are all values outside the keyring, and those of the handles. A value that cannot be read is noted in
        `unreadable`.
        """
        for source in self._sources:
            if source.kind == "keyring":
                continue
            try:
                for name in source.names():
                    self._learn(handle_of(name))
            except ReynError as error:
                self.unreadable[source.kind] = error.message
        for handle in handles:
            self._learn(handle)

    def _learn(self, handle: str) -> None:
        try:
            self.resolve(handle)
        except SecretMissing:
            return
        except ReynError as error:
            self.unreadable[handle] = error.message

    def check_present(self, handle: str) -> None:
        """Check that a secret exists, without reading its value.

        Raises:
            SecretMissing: There is none.
        """
        if is_variable_handle(handle):
            self._variable(handle)
        elif secret_name(handle) not in self.names():
            raise self._missing(secret_name(handle))

    def has_variable(self, variable: str) -> bool:
        """Return whether an environment variable is set to a non-empty value."""
        return self._environment.variable(variable) is not None

    def get(self, name: str) -> str:
        """Return the value of a stored secret by its name; see `resolve`."""
        value = self._find(validate_name(name))
        if value is None:
            raise self._missing(name)
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


def open_secrets(
    environ: Mapping[str, str] | None = None, home: Path | None = None, *, origins: Origins | None = None
) -> Secrets:
    """Open the secrets of the current user: variables, the keyring if it works, and the secrets file.

    Args:
        environ: Environment variables; those of the process by default.
        home: The home directory.
        origins: Where the origins of secrets are stored; by default in memory.
    """
    environ = os.environ if environ is None else environ
    file = SecretsFile(secrets_path(environ, home))
    return Secrets([KeyringStore(file), FileStore(file)], EnvironmentStore(environ), origins)
