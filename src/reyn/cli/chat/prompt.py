"""The prompt of a conversation on a terminal: what it draws passes the rules of the writer, and prints go above it."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING

from prompt_toolkit.application import create_app_session
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.patch_stdout import StdoutProxy

from reyn.cli.writer import escape, out

if TYPE_CHECKING:
    from collections.abc import Iterator

_EMOJI = "☺"
"""A character after which a joiner is not escaped: the prompt draws character by character."""


class _Displayed(dict[str, str]):
    """How the prompt shows a character, with the width that this has."""

    def __contains__(self, char: object) -> bool:
        return super().__contains__(char) or (isinstance(char, str) and len(char) == 1 and self[char] != char)

    def __missing__(self, char: str) -> str:
        return escape(_EMOJI + char)[1:]


class PromptOutput(Vt100_Output):
    """The output of the prompt. Its text is escaped; its own sequences are written with `write_raw`."""

    def write(self, data: str) -> None:
        super().write(escape(data) if data.strip("\r\n") else data)


class _AbovePrompt(StdoutProxy):
    """Prints above the prompt. A thread has no context of its own accord, and without it, the prompt is not found."""

    def _start_write_thread(self) -> threading.Thread:
        thread = threading.Thread(target=copy_context().run, args=(self._write_thread,), daemon=True)
        thread.start()
        return thread


@contextmanager
def prompt_at_terminal() -> Iterator[None]:
    """Draw prompts on the terminal, and print above them."""
    Char.display_mappings = _Displayed(Char.display_mappings)
    output = PromptOutput.from_pty(out.terminal, term=os.environ.get("TERM"))
    with create_app_session(output=output), _AbovePrompt(raw=True) as above, out.above(above):
        yield
