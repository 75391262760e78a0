"""Paths of recorded content in what another run said: they must not name the content of this run.

The recorded content of each run has the same names, below `workspace:.full/`. In a history that a run starts with,
`earlier/` comes before them. No run has a file there.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

import msgspec

from reyn.workspace.paths import RECORDED, RECORDED_FOLDER, WORKSPACE

EARLIER = "earlier"
_PATH = re.compile(rf"{WORKSPACE}(?:[^\s\"'`<>|\\]|\\/)*")


def as_earlier(text: str) -> str:
    """Return a text with the paths of recorded content as those of an earlier run."""
    return text if RECORDED_FOLDER not in text else _PATH.sub(lambda found: _moved(found[0]), text)


def arguments_as_earlier(arguments: str) -> str:
    """Return the arguments of a tool call, which are JSON, with such paths as those of an earlier run."""
    if WORKSPACE not in arguments and "\\" not in arguments:
        return arguments
    try:
        value = msgspec.json.decode(arguments)
        moved = _walked(value)
    except (msgspec.DecodeError, RecursionError):
        return as_earlier(arguments)
    return arguments if moved == value else msgspec.json.encode(moved).decode()


def is_earlier(parts: tuple[str, ...]) -> bool:
    """Return whether the path of recorded content belongs to an earlier run."""
    return parts[:1] == (EARLIER,)


def _walked(value: Any) -> Any:
    match value:
        case str():
            return _moved(value) if value.startswith(WORKSPACE) else as_earlier(value)
        case list():
            return [_walked(item) for item in value]
        case dict():
            return {key: _walked(item) for key, item in value.items()}
        case _:
            return value


def _moved(path: str) -> str:
    first, *rest = posixpath.normpath(path.removeprefix(WORKSPACE).replace("\\/", "/").lstrip("/")).split("/")
    if first != RECORDED_FOLDER:
        return path
    return RECORDED + "/".join(rest if rest[:1] == [EARLIER] else (EARLIER, *rest))
