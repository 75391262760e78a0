"""Explain where each setting comes from: the default, a line of a file, a variable or a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config.load import FLAGS, Sources
from reyn.config.values import Config
from reyn.documents import nearest_hint
from reyn.errors import SettingUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Setting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A setting with its origin. The key of a nested setting is its path, such as `limits.tokens`.

    Attributes:
        key: The key.
        value: The value that is in effect.
        origin: The source that decides it.
        ignored: What that source sets and what has no effect, because the project is not trusted.
    """

    key: str
    value: Any
    origin: str
    ignored: tuple[str, ...] = ()


def explain_config(
    sources: Sources, config: Config | None = None, ignored: Mapping[str, Sequence[str]] | None = None
) -> list[Setting]:
    """Return every setting with the source that decides it.

    Args:
        sources: The sources of the configuration.
        config: The configuration in effect; by default the settings of the sources.
        ignored: The settings without effect, by key.
    """
    effective = msgspec.to_builtins(config or msgspec.convert(sources.merged, Config))
    rest = {key: tuple(texts) for key, texts in (ignored or {}).items()}
    settings = [
        Setting(".".join(path), value, _origin(path, sources), rest.pop(".".join(path), ()))
        for path, value in _leaves(effective)
    ]
    # What is ignored as a whole has no value. The keys of `permissions` contain dots themselves.
    settings += [Setting(key, None, _origin(tuple(key.split(".", 1)), sources), texts) for key, texts in rest.items()]
    return settings


def select_settings(settings: list[Setting], key: str) -> list[Setting]:
    """Return the setting with a key, or all settings below it.

    Raises:
        SettingUnknown: If there is no such key.
    """
    selected = [setting for setting in settings if setting.key == key or setting.key.startswith(f"{key}.")]
    if not selected:
        known = {setting.key for setting in settings} | {setting.key.partition(".")[0] for setting in settings}
        raise SettingUnknown(f"no setting `{key}`", hint=nearest_hint(key, known) or None)
    return selected


def _leaves(value: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key), inner


def _origin(path: tuple[str, ...], sources: Sources) -> str:
    """Return the last source that sets a key: it takes precedence."""
    source = sources.last(*path)
    if source is None:
        return "default"
    return "flag" if source.file == FLAGS else sources.place(*path)
