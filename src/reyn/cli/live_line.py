"""The live progress line at the bottom of a terminal. Imports `rich`, so it is imported only for a terminal."""

from __future__ import annotations

import time
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

_REFRESHES_PER_SECOND = 4


class LiveLine:
    """Shows the current activity and its duration on one line; other lines are printed above it.

    The first `update` shows the line; `pause` clears it until the next `update`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live = Live(
            self,
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._activity, self._detail = "", ""
        self._started = self._activity_started = time.monotonic()

    def __rich__(self) -> Text:
        now = time.monotonic()
        times = f"{now - self._activity_started:.0f} s", self._detail, f"total {now - self._started:.0f} s"
        text = " · ".join(part for part in (self._activity, *times) if part)
        return Text(f"  {text}", style="dim", no_wrap=True, overflow="ellipsis")

    def update(self, activity: str, detail: str) -> None:
        """Show an activity with a detail; a new activity restarts its timer."""
        if activity != self._activity:
            self._activity, self._activity_started = activity, time.monotonic()
        self._detail = detail
        self._live.start(refresh=True)

    def print(self, line: str) -> None:
        """Print a permanent line above the live line."""
        self._console.print(Text.from_ansi(line), soft_wrap=True)

    def pause(self) -> None:
        self._live.stop()
