"""The live progress line at the bottom of a terminal: the current activity and its duration."""

from __future__ import annotations

import threading
import time

from reyn.cli.writer import out

_REFRESH_SECONDS = 0.25


class LiveLine:
    """Shows the current activity and its duration on one line; other lines are printed above it.

    The first `update` shows the line; `pause` removes it until the next `update`.
    """

    def __init__(self, *, err: bool) -> None:
        self._err = err
        self._lock = threading.Lock()
        self._ended: threading.Event | None = None
        self._activity, self._detail = "", ""
        self._started = self._activity_started = time.monotonic()

    def update(self, activity: str, detail: str) -> None:
        """Show an activity with a detail; a new activity restarts its timer."""
        with self._lock:
            is_new = activity != self._activity or self._ended is None
            if activity != self._activity:
                self._activity, self._activity_started = activity, time.monotonic()
            self._detail = detail
            if self._ended is None:
                self._ended = threading.Event()
                threading.Thread(target=self._refresh, args=(self._ended,), name="reyn-live", daemon=True).start()
            if is_new:
                self._draw()

    def pause(self) -> None:
        with self._lock:
            if self._ended is not None:
                self._ended.set()
                self._ended = None
                out.status("", err=self._err)

    def _refresh(self, ended: threading.Event) -> None:
        while not ended.wait(_REFRESH_SECONDS):
            with self._lock:
                if not ended.is_set():
                    self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        times = f"{now - self._activity_started:.0f} s", self._detail, f"total {now - self._started:.0f} s"
        text = " · ".join(part for part in (self._activity, *times) if part)
        out.status(f"  {text}", err=self._err)
