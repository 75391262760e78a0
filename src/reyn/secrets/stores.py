"""Stores without external dependencies: environment variables, the secrets file, and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.secrets.handles import is_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reyn.secrets.file import SecretsFile

PREFIX = "REYN_SECRET_"
"""`reyn.config` ignores variables with this prefix."""


def variable_of(name: str) -> str:
    """Return the variable that overrides the stored value of a secret."""
    return f"{PREFIX}{name}"


class EnvironmentStore:
    """Read-only secrets from `REYN_SECRET_NAME` variables. An empty variable counts as unset."""

    kind = "environment"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __repr__(self) -> str:
        return f"EnvironmentStore({sorted(self.names())})"

    def names(self) -> frozenset[str]:
        variables = (variable for variable, text in self._environ.items() if variable.startswith(PREFIX) and text)
        return frozenset(filter(is_name, (variable.removeprefix(PREFIX) for variable in variables)))

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
