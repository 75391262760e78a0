"""Where each setting comes from: a default, a line of a file, a variable, a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config.load import CODE, FILES, load_config, read_documents, says
from reyn.documents import nearest
from reyn.errors import ConfigInvalid, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from reyn.documents import Document


class Setting(msgspec.Struct, frozen=True):
    """One key with its value; of what is nested, `key` is the way there: `limits.tokens`."""

    key: str
    value: Any
    origin: str


def explain_config(
    root: Path, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> list[Setting]:
    """Every setting of the project at `root`, with the place that decides it."""
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    config = msgspec.to_builtins(load_config(root, given, environ))
    documents = read_documents(root, environ, [])
    return [Setting(".".join(way), value, _origin(way, given, documents)) for way, value in _leaves(config)]


def only(settings: list[Setting], key: str) -> list[Setting]:
    """The setting of that key, or all below it."""
    found = [setting for setting in settings if setting.key == key or setting.key.startswith(f"{key}.")]
    if not found:
        known = {setting.key for setting in settings} | {setting.key.partition(".")[0] for setting in settings}
        finding = Finding("config", 1, 1, CODE, f"no key `{key}`", nearest(key, known))
        raise ConfigInvalid("the configuration has no such key:", [finding])
    return found


def _leaves(value: dict[str, Any], way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*way, key))
        else:
            yield (*way, key), inner


def _origin(way: tuple[str, ...], flags: Mapping[str, Any], documents: list[Document]) -> str:
    """The last that says something of a key decides it."""
    if way[0] in flags:
        return "flag"
    for document in reversed(documents):
        if says(document, way):
            return f"{document.file}:{document.at(*way).line}" if document.file in FILES else document.file
    return "default"
