"""Bound what transformations of a schema produce.

A transformation that copies keywords into every alternative multiplies: a schema of a few lines becomes gigabytes. Each
one counts the characters of what it produces, and ends beyond a limit.
"""

from __future__ import annotations

from typing import Any

from reyn.jsonschema.cost import encoded

_MAX_CHARACTERS = 1_000_000
_DATA = ("enum", "const")


class SchemaTooLarge(ValueError):
    """A transformation of a schema would produce too much."""


class Growth:
    """Counts the characters that the transformations of one schema produce, and ends them beyond a limit.

    Args:
        size: The characters of the schema. The limit is at least four times as many.
    """

    def __init__(self, size: int) -> None:
        self._left = max(_MAX_CHARACTERS, 4 * size)

    def add(self, schema: Any) -> None:
        """Count a schema without its subschemas.

        Raises:
            SchemaTooLarge: The limit is reached.
        """
        if isinstance(schema, dict):
            self.add_characters(8 + sum(_weight(key, value) for key, value in schema.items()))

    def add_characters(self, count: int) -> None:
        """Count characters.

        Raises:
            SchemaTooLarge: The limit is reached.
        """
        self._left -= count
        if self._left < 0:
            raise SchemaTooLarge("the schema becomes too large when its alternatives are written out")

    def add_tree(self, value: Any) -> None:
        """Count everything in a value. A part that is in several places counts in each of them, and is walked once.

        Raises:
            SchemaTooLarge: The limit is reached.
        """
        self.add_characters(_size(value, {}))


def _weight(key: str, value: Any) -> int:
    """Return about how many characters a keyword has, without subschemas."""
    if key in _DATA:
        return len(key) + len(encoded(value))
    if isinstance(value, dict):
        return len(key) + sum(map(len, value)) + 4 * len(value)
    if isinstance(value, list):
        return len(key) + sum(len(one) + 4 if isinstance(one, str) else 4 for one in value)
    return len(key) + (len(value) if isinstance(value, str) else 4)


def _size(value: Any, known: dict[int, int]) -> int:
    if not isinstance(value, dict | list):
        return len(value) + 2 if isinstance(value, str) else 4
    if id(value) not in known:
        names = sum(map(len, value)) if isinstance(value, dict) else 0
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 2 + names + sum(2 + _size(part, known) for part in parts)
    return known[id(value)]
