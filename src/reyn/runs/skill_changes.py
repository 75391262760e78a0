"""The lines in which two recorded versions of a skill differ."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import msgspec

_MAX_LINES = 60
_MAX_WIDTH = 200


def changed_lines(one: bytes, other: bytes) -> tuple[str, ...]:
    """Return what differs between two copies of a skill, as a diff with one heading for each part.

    Args:
        one: The copy of the first run.
        other: The copy of the second run.
    """
    found: list[str] = []
    try:
        changes = _changes("", msgspec.json.decode(one), msgspec.json.decode(other))
        for line in changes:
            if len(found) == _MAX_LINES:
                return (*found, "…")
            found.append(line if len(line) <= _MAX_WIDTH else f"{line[:_MAX_WIDTH]}…")
    except msgspec.DecodeError:  # a copy of an archive is compared before it is executed
        return ()
    return tuple(found)


def _changes(path: str, one: Any, other: Any) -> Iterator[str]:
    """Yield the differences of two values below a path: text line by line, other values as JSON."""
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _changes(f"{path}.{key}" if path else key, one.get(key), other.get(key))
        return
    yield f"{path}:"
    for line in difflib.unified_diff(_lines(one), _lines(other), n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield line


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return value.splitlines()
    items = value if isinstance(value, list) else [value]
    return [msgspec.json.encode(item).decode() for item in items]
