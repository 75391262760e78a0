"""The result of a python step, and how it fails."""

from __future__ import annotations

import json
from typing import Any

import msgspec


class StepOutput:
    """The printed output of a step, up to a limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._content = bytearray()
        self.truncated = False

    def add(self, text: bytes) -> None:
        room = self._most - len(self._content)
        self._content += text[:room]
        self.truncated = self.truncated or len(text) > room

    @property
    def text(self) -> str:
        return self._content.decode("utf-8", "replace")


class PythonResult(msgspec.Struct, frozen=True):
    """The value that a step returned, and which sandbox executed it. `note` says why it was not Monty."""

    value: Any
    sandbox: str
    output: StepOutput
    note: str = ""


class PythonFailed(Exception):
    """A python step raised an exception, exceeded a limit, or returned a value that is not JSON."""

    def __init__(self, message: str, sandbox: str, output: StepOutput, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.sandbox = sandbox
        self.output = output
        self.timed_out = timed_out


def to_json(value: Any) -> Any:
    """Return a value as plain JSON. Dates, decimals and the like become text."""
    return json.loads(json.dumps(value, default=str, allow_nan=False))
