"""The last line of a terminal, which tells what is going on now and for how long; everything else is printed above it.

Imports `rich`, and is imported only where somebody looks on.
"""

from __future__ import annotations

import time
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

_REFRESHES = 4


class Ticker:
    """Starts with the first thing it is told; `pause` clears the line until the next."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live = Live(
            self,
            console=self._console,
            refresh_per_second=_REFRESHES,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._doing, self._rest = "", ""
        self._began = self._since = time.monotonic()

    def __rich__(self) -> Text:
        now = time.monotonic()
        times = f"{now - self._since:.0f} s", self._rest, f"{now - self._began:.0f} s in all"
        words = " · ".join(part for part in (self._doing, *times) if part)
        return Text(f"  {words}", style="dim", no_wrap=True, overflow="ellipsis")

    def tell(self, doing: str, rest: str) -> None:
        """What goes on from now on, and what is worth knowing beside it."""
        if doing != self._doing:
            self._doing, self._since = doing, time.monotonic()
        self._rest = rest
        self._live.start()

    def say(self, line: str) -> None:
        """A line that stays."""
        self._console.print(Text.from_ansi(line), soft_wrap=True)

    def pause(self) -> None:
        self._live.stop()
