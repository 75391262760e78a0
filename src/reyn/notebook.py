"""The progress of a run in a notebook cell: `rt.run(..., listener=LiveProgress(rt))`.

Elsewhere it prints lines. IPython is used where it runs already and is never imported. What recorded values show
in a notebook is beside each value, see `reyn.cells`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reyn.cells import MimeBundle, bundle, element, preformatted
from reyn.characters import clean
from reyn.runs.timeline import Timeline

if TYPE_CHECKING:
    from reyn.journal import Event
    from reyn.models import Delta
    from reyn.runtime import OSRuntime, SyncRuntime

_MAX_LINES = 12
_SECONDS = 0.1
"""The shortest time between two updates of a display: a notebook drops the output of a cell that prints too fast."""
_ENDS = {"finished", "failed", "limited", "aborted", "cancelled", "question", "sub_run_question", "suspended"}
"""Lines of a run that may be its last ones, so that they are shown at once."""


class LiveProgress:
    """A listener of runs that shows what they do now, and their last lines, in the cell that creates it.

    Outside of a notebook, also in IPython at a terminal, it prints each line.

        result = rt.run("hello", {"name": "Ada"}, listener=LiveProgress(rt))

    Pass `on_delta` of it, too, to see how much of an answer has arrived.
    """

    def __init__(self, runtime: OSRuntime | SyncRuntime) -> None:
        """Show an empty progress.

        Args:
            runtime: The runtime that executes the runs.
        """
        self._timeline = Timeline(runtime.runs.content, runtime.runs.events)
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._count = self._received = 0
        self._drawn_at = self._due_at = 0.0
        self._end = ""
        self._lock = threading.Lock()
        self._update = _open_display(self._shown())

    def __call__(self, event: Event) -> None:
        """Take the next event."""
        entry = self._timeline.add(event)
        self._received, self._end = 0, ""
        if entry is not None:
            line = f"{'  ' * entry.level}{clean(entry.text)}"
            self._lines.append(line)
            self._count += 1
            if self._update is None:
                sys.stdout.write(f"{line}\n")
            self._end = entry.text if entry.type in _ENDS and not entry.depth else ""
        self._draw_soon(is_last=bool(self._end))

    def on_delta(self, delta: Delta) -> None:
        """Take a piece of a model's answer. Its text is not shown: it is not validated yet."""
        self._received += len(delta.text)
        self._draw_soon(is_last=False)

    def _draw_soon(self, *, is_last: bool) -> None:
        """Update the display now, or when the last update is long enough ago."""
        now = time.monotonic()
        if self._update is None or (now < self._due_at and not is_last):
            return
        wait = self._drawn_at + _SECONDS - now
        if wait > 0 and not is_last:
            try:
                asyncio.get_running_loop().call_later(wait, self._draw_due)
                self._due_at = now + wait
                return
            except RuntimeError:  # called by a program without a loop
                pass
        self._draw()

    def _draw_due(self) -> None:
        if self._due_at:
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            self._drawn_at, self._due_at = time.monotonic(), 0.0
            assert self._update is not None
            self._update(self._shown())

    def _shown(self) -> MimeBundle:
        """Return what the run does now, and its last lines."""
        parts = [self._end or self._timeline.activity or ("starting" if self._count else "waiting for the run")]
        parts += [f"{self._received:,} characters received"] if self._received else []
        parts += [f"{self._timeline.tokens:,} tokens"] if self._timeline.tokens else []
        now, hidden = " · ".join(map(clean, parts)), self._count - len(self._lines)
        lines = "\n".join([*([f"… {hidden:,} earlier lines"] if hidden else []), *self._lines])
        return bundle(f"{lines}\n{now}".lstrip(), preformatted(lines), element("b", now))


def _open_display(first: MimeBundle) -> Callable[[MimeBundle], Any] | None:
    """Return what updates a new display of the current cell; `None` outside of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or type(shell).__name__ == "TerminalInteractiveShell":
        return None
    from importlib import import_module

    handle = import_module("IPython.display").display(first, raw=True, display_id=True)
    return lambda shown: handle.update(shown, raw=True)
