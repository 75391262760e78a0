"""The secrets file: values for machines without a keyring, and the names of the values in the keyring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.errors import SecretStoreUnavailable
from reyn.private_files import PrivateFile, user_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the secrets file."""

    format: Literal[1] = 1
    values: dict[str, str] = {}
    keyring: frozenset[str] = frozenset()
    """Names of the values in the keyring, because keyrings cannot list their entries."""

    def __repr__(self) -> str:
        return f"Contents(values of {sorted(self.values)}, keyring={sorted(self.keyring)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("names", sorted({*self.values, *self.keyring}))]

    def with_value(self, name: str, value: str) -> Contents:
        return msgspec.structs.replace(self, values=self.values | {name: value})

    def without_value(self, name: str) -> Contents:
        return msgspec.structs.replace(self, values={key: value for key, value in self.values.items() if key != name})

    def with_keyring_name(self, name: str) -> Contents:
        return msgspec.structs.replace(self, keyring=self.keyring | {name})

    def without_keyring_name(self, name: str) -> Contents:
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

    def read(self) -> Contents:
        """Return the contents; empty if the file does not exist. Creates nothing."""
        return self._decode(self._file.read())

    def update(self, transform: Callable[[Contents], Contents]) -> None:
        """Replace the contents by `transform(contents)` under the lock."""

        def replace(content: bytes | None) -> bytes | None:
            before = self._decode(content)
            after = transform(before)
            if after == before:
                return None
            return msgspec.json.format(msgspec.json.encode(after, order="deterministic"), indent=2)

        self._file.update(replace)

    def _decode(self, content: bytes | None) -> Contents:
        if content is None:
            return Contents()
        try:
            return msgspec.json.decode(content, type=Contents)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # No cause: the message of a decoder may quote a value.
            hint = "Fix it or move it away. A newer version of Reyn may have written it."
            raise self._file.refusal(self.path, "is damaged or has an unsupported format", hint) from None
