"""A name becomes its value, at the last moment; from then on the value is known to the scrubber."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from reyn.errors import SecretMissing, SecretStoreUnavailable
from reyn.secrets.file import SecretsFile, secrets_path
from reyn.secrets.handles import checked_name, checked_value
from reyn.secrets.keyring_store import KeyringStore
from reyn.secrets.scrubber import Scrubber
from reyn.secrets.stores import EnvironmentStore, FileStore, variable_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reyn.secrets.port import Source, Store


class Held(msgspec.Struct, frozen=True):
    """A secret by its name, the kind of the store that it comes from, and the kinds that this one hides."""

    name: str
    store: str
    over: tuple[str, ...] = ()


class Kept(msgspec.Struct, frozen=True):
    """Where a value was put, and where older ones were removed from, in words."""

    place: str
    removed: tuple[str, ...] = ()


class Secrets:
    """The secrets of the operator. A variable wins over every store, an earlier store over a later one; a new value
    goes into the first that can be used, and is then in no other."""

    def __init__(self, stores: Sequence[Store], environment: EnvironmentStore | None = None) -> None:
        self.scrubber = Scrubber()
        self._stores = tuple(stores)
        self._environment = environment or EnvironmentStore({})
        self._sources: tuple[Source, ...] = (self._environment, *self._stores)

    def __repr__(self) -> str:
        return f"Secrets({[store.kind for store in self._stores]})"

    @property
    def place(self) -> str:
        """Where a new value goes, in words."""
        usable = self._usable()
        return self._words_for(usable[0]) if usable else "nowhere"

    def names(self) -> list[str]:
        return [held.name for held in self.held()]

    def held(self) -> list[Held]:
        """Every name, in order, with the stores that hold it. No value is read."""
        kinds: dict[str, list[str]] = {}
        for source in self._sources:
            for name in source.names():
                kinds.setdefault(name, []).append(source.kind)
        return [Held(name, first, tuple(others)) for name, (first, *others) in sorted(kinds.items())]

    def get(self, name: str) -> str:
        """The value, for the moment in which it is used: keep it nowhere."""
        value = self._find(checked_name(name))
        if value is None:
            raise SecretMissing(f"there is no secret `{name}`", hint=_how_to_set(name))
        self.scrubber.add(name, checked_value(name, value))
        return value

    def set(self, name: str, value: str) -> Kept:
        self.scrubber.add(checked_name(name), checked_value(name, value))
        keeper = next((store for store in self._usable() if store.set(name, value)), None)
        if keeper is None:
            raise SecretStoreUnavailable(f"no store keeps `{name}`")
        removed = [store.remove(name) for store in self._stores if store is not keeper]
        return Kept(self._words_for(keeper), tuple(filter(None, removed)))

    def remove(self, name: str) -> tuple[str, ...]:
        """Remove a secret from every store; where it was, in words."""
        removed = tuple(filter(None, [store.remove(checked_name(name)) for store in self._stores]))
        if removed:
            return removed
        if self._environment.get(name):
            hint = f"Run: unset {variable_of(name)}"
            raise SecretMissing(f"`{name}` is in no store; it comes from the environment", hint=hint)
        raise SecretMissing(f"there is no secret `{name}`", hint="`reyn secret list` tells which there are.")

    def _find(self, name: str) -> str | None:
        for source in self._sources:
            value = source.get(name)
            if value is not None:
                return value
        return None

    def _usable(self) -> list[Store]:
        return [store for store in self._stores if store.is_usable]

    def _words_for(self, keeper: Store) -> str:
        """Where it is, and why it is not in a store that would come first."""
        passed_over = [store.place for store in self._stores[: self._stores.index(keeper)]]
        return f"{keeper.place} ({'; '.join(passed_over)})" if passed_over else keeper.place


def open_secrets(environ: Mapping[str, str] | None = None, home: Path | None = None) -> Secrets:
    """The secrets of whoever runs this process: in a keyring where one works, else in a file."""
    environ = os.environ if environ is None else environ
    file = SecretsFile(secrets_path(environ, home))
    return Secrets([KeyringStore(file), FileStore(file)], EnvironmentStore(environ))


def _how_to_set(name: str) -> str:
    return f"Run: reyn secret set {name} (or set the variable {variable_of(name)})"
