"""Explain where each setting comes from: the default, a line of a file, a variable or a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config.load import FILES, load_config, read_documents, sets_key
from reyn.documents import nearest
from reyn.errors import SettingUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from reyn.documents import Document


class Setting(msgspec.Struct, frozen=True):
    """A setting with its origin. The key of a nested setting is its path, such as `limits.tokens`."""

    key: str
    value: Any
    origin: str


def explain_config(
    root: Path, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> list[Setting]:
    """Return every setting of the project at `root` with the source that decides it."""
    set_flags = {key: value for key, value in (flags or {}).items() if value is not None}
    config = msgspec.to_builtins(load_config(root, set_flags, environ))
    documents = read_documents(root, environ, [])
    return [Setting(".".join(path), value, _origin(path, set_flags, documents)) for path, value in _leaves(config)]


def select_settings(settings: list[Setting], key: str) -> list[Setting]:
    """Return the setting with a key, or all settings below it.

    Raises:
        SettingUnknown: If there is no such key.
    """
    selected = [setting for setting in settings if setting.key == key or setting.key.startswith(f"{key}.")]
    if not selected:
        known = {setting.key for setting in settings} | {setting.key.partition(".")[0] for setting in settings}
        raise SettingUnknown(f"no setting `{key}`", hint=nearest(key, known) or None)
    return selected


def _leaves(value: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key), inner


def _origin(path: tuple[str, ...], flags: Mapping[str, Any], documents: list[Document]) -> str:
    """Return the last source that sets a key: it takes precedence."""
    if path[0] in flags:
        return "flag"
    for document in reversed(documents):
        if sets_key(document, path):
            return f"{document.file}:{document.at(*path).line}" if document.file in FILES else document.file
    return "default"
