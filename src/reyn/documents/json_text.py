"""Decode JSON that a user wrote, and report where it is malformed."""

from __future__ import annotations

import json
from typing import Any

import msgspec


class JsonError(ValueError):
    """A text is not JSON. The message has the line and the column, if they are known, and the reason."""


def decode_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        JsonError: The text is not JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise JsonError(_problem(text, error)) from error


def _problem(text: str, error: Exception) -> str:
    """Return the position and the reason. The standard library reports both; msgspec reports a byte offset."""
    try:
        json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as located:
        return f"line {located.lineno}, column {located.colno}: {located.msg[:1].lower()}{located.msg[1:]}"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as constant:
        return str(constant)
    return "it is not Unicode text" if isinstance(error, UnicodeEncodeError) else str(error)


def _reject_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not a JSON number")
