"""Copy what a program passes, so that it can change its own afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def copy_nested(value: Any, known: dict[int, Any] | None = None) -> Any:
    """Return a value whose mappings, lists, tuples and sets are copies, at every depth; other objects stay the same.

    `known` has the copies of the containers that the value is in, by identity.
    """
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, Mapping):
        mapping = known[id(value)] = dict[Any, Any]()
        mapping.update((key, copy_nested(item, known)) for key, item in value.items())
        return mapping
    if isinstance(value, list):
        items = known[id(value)] = list[Any]()
        items.extend(copy_nested(item, known) for item in value)
        return items
    if type(value) is tuple:
        return tuple(copy_nested(item, known) for item in value)
    return set(value) if isinstance(value, set) else value
