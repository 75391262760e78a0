"""Print the text of the model as it arrives: as text, or as one JSON object a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, is_terminal, print_json

if TYPE_CHECKING:
    from reyn.models import Delta


class TextStream:
    """Prints deltas to standard output. Each model call starts on a new line."""

    def __init__(self) -> None:
        self._call = ("", "")
        self._is_mid_line = False

    def __call__(self, delta: Delta) -> None:
        if (delta.run_id, delta.call) != self._call:
            self.end_line()
        self._call = (delta.run_id, delta.call)
        click.echo("\n".join(map(clean, delta.text.split("\n"))) if is_terminal() else delta.text, nl=False)
        self._is_mid_line = not delta.text.endswith("\n")

    def end_line(self) -> None:
        """End the current line, if it has text."""
        if self._is_mid_line:
            self._is_mid_line = False
            click.echo()


class JsonStream:
    """Prints each delta to standard output as `{"delta": {"run_id", "call", "text"}}`."""

    def __call__(self, delta: Delta) -> None:
        print_json({"delta": delta})

    def end_line(self) -> None:
        """Do nothing: each object is a line."""
