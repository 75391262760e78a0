"""Decode JSON that a user wrote, and report where it is malformed."""

from __future__ import annotations

import json
from typing import Any

import msgspec


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


def decode_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        JsonError: The text is not JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise _located(text, error) from error


def _located(text: str, error: Exception) -> JsonError:
    """Return the error with the position that the standard library finds; msgspec reports a byte offset."""
    try:
        json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as found:
        return JsonError(f"{found.msg[:1].lower()}{found.msg[1:]}", found.lineno, found.colno)
    except RecursionError:
        return JsonError("it is nested too deeply")
    except ValueError as constant:
        return JsonError(str(constant))
    return JsonError("it is not Unicode text" if isinstance(error, UnicodeEncodeError) else str(error))


def _reject_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not a JSON number")
