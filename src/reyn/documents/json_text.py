"""JSON that others wrote: files, messages and answers of servers, with bounds on its depth and number of values.

The sender pays two bytes for a value, and the reader about a hundred. Callers bound the bytes; everything that
arrives from outside is decoded here, or counted here before a library decodes it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

MAX_VALUES = 500_000
"""The largest number of values in one text."""
_MAX_DEPTH = 500
_PIECE = 65_536
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.S)


class JsonError(ValueError):
    """A text is not JSON. The message has the position and the reason.

    Attributes:
        reason: What is wrong.
        line: The line, counted from 1; 0 if the error has no position.
        column: The column, counted from 1.
    """

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {reason}" if line else reason)
        self.reason = reason
        self.line = line
        self.column = column


def decode_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        JsonError: The text is not JSON, or exceeds a bound.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise JsonError("it is not UTF-8 text") from error
    # Checked first: the depth that a parser accepts depends on the version of Python.
    if json_depth(text, _MAX_DEPTH) > _MAX_DEPTH:
        raise JsonError(f"it is nested more than {_MAX_DEPTH} deep")
    try:
        check_values(text)
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise _located(text, error) from error


def json_depth(text: str, limit: int) -> int:
    """Return the nesting depth of brackets outside strings; 0 if there are too few brackets to exceed the limit."""
    if text.count("{") + text.count("[") <= limit:
        return 0
    level = deepest = 0
    for token in _BRACKETS.finditer(text):
        if token[0] in "{[":
            level += 1
            deepest = max(deepest, level)
            if deepest > limit:
                break
        elif token[0] in "}]":
            level -= 1
    return deepest


# -- the number of values -------------------------------------------------------------------------------------

_CHARACTERS = rb'"(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+'
_STRING = re.compile(_CHARACTERS + rb'(?:"|\\?(?=[\x00-\x1f]))|(")' + _CHARACTERS[1:] + rb"(\\?)")
"""A string up to its quote or to a control character, which no string contains; else one that the piece leaves open."""


def check_values(text: str | bytes) -> None:
    """Raise `JsonError` if a text has too many values. A text with fewer bytes is not looked at."""
    if len(text) > MAX_VALUES:
        content, counter = text.encode() if isinstance(text, str) else text, ValueCounter()
        for at in range(0, len(content), _PIECE):  # the strings of a piece are held while they are counted
            counter.add(content[at : at + _PIECE])


class ValueCounter:
    """Counts the values of JSON that arrives in pieces, also as the data of server-sent events.

    Attributes:
        count: How many values there are at most, without the keys of objects.
    """

    def __init__(self) -> None:
        self.count = 1
        self._open = b""
        """The start of a string that has not ended: its quote, and the backslash if the last piece ended with one."""

    def add(self, piece: bytes) -> None:
        """Count the values of a piece. Raises `JsonError` if there are too many."""
        outside = _STRING.sub(rb"\1\2", self._open + piece)
        self._open = outside[outside.find(b'"') :] if b'"' in outside else b""
        self.count += sum(map(outside.count, (b",", b"[", b"{")))
        if self.count > MAX_VALUES:
            raise JsonError(f"it has more than {MAX_VALUES} values")


def _located(text: str, error: Exception) -> JsonError:
    """Return the error with the position that the standard library finds; msgspec reports a byte offset."""
    try:
        json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as found:
        return JsonError(f"{found.msg[:1].lower()}{found.msg[1:]}", found.lineno, found.colno)
    except ValueError as constant:
        return JsonError(str(constant))
    return JsonError("it is not Unicode text" if isinstance(error, UnicodeEncodeError) else str(error))


def _reject_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not a JSON number")
