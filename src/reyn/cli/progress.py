"""A run under way, told as its events become durable: lines that stay; on a terminal, a last one for what goes on."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean
from reyn.cli.timeline import Timeline

if TYPE_CHECKING:
    from typing import TextIO

    from reyn.cli.people import TerminalPeople
    from reyn.cli.ticker import Ticker
    from reyn.cli.timeline import Entry
    from reyn.journal import Event
    from reyn.models import Delta
    from reyn.runtime import SyncRuntime

_BEGINNINGS = {"started", "forked", "resumed"}
_HIDDEN = {"sub_run", "asks_below"}
"""What other lines tell as well: a sub-run's own, or the end."""
_ENDS = {"finished", "failed", "limited", "aborted", "cancelled"}
_MARKED = {"retried", "switched", "rejected", "rolled_back", "visit_failed", "limited", "failed", "aborted"}


class Progress:
    """The listener of a run. `run_id` is the run that is driven, not one below it."""

    def __init__(self, runtime: SyncRuntime, *, err: bool, people: TerminalPeople | None = None) -> None:
        self.run_id = ""
        self._is_introduced = False
        self._err = err
        self._people = people
        self._runtime = runtime
        self._timeline = Timeline(self._content, lambda run: runtime.find(run).phase)
        self._ticker = _ticker(sys.stderr if err else sys.stdout)
        self._began = time.monotonic()
        self._come = 0

    @property
    def took(self) -> int:
        """Microseconds since the command began to drive."""
        return int((time.monotonic() - self._began) * 1_000_000)

    def __call__(self, event: Event) -> None:
        self.run_id = self.run_id or event.run_id
        self._come = 0
        entry = self._timeline.take(event)
        if entry is None or entry.what not in _BEGINNINGS:
            self.introduce(event.run_id)
        self._is_introduced = True
        if entry is not None and self._is_shown(entry):
            self._say(self._line(entry))
        if self._ticker is not None:
            tokens = f"{self._timeline.tokens:,} tokens" if self._timeline.tokens else ""
            self._ticker.tell(self._timeline.doing, tokens)

    def on_delta(self, delta: Delta) -> None:
        """An answer is on its way; how much of it has come is all that is told."""
        self._come += len(delta.text)
        if self._ticker is not None:
            self._ticker.tell(self._timeline.doing, f"{self._come:,} characters have come")

    def introduce(self, run_id: str) -> None:
        """The id of the run is told first, whatever its first event is, and even if it has none."""
        if not self._is_introduced:
            row = self._runtime.find(run_id)
            origin = f" · forked from {row.fork_of} at event {row.fork_seq}" if row.fork_of else ""
            self._say(clean(f"run {run_id}{origin}"))

    def pause(self) -> None:
        """Leave the terminal to somebody else, until the next event."""
        if self._ticker is not None:
            self._ticker.pause()

    def _content(self, name: str) -> bytes:
        """Looked for when it is needed: the journal may not be there before the first event."""
        return self._runtime.runtime.journal.blob(name)

    def _line(self, entry: Entry) -> str:
        line = coloured_line(entry)
        if entry.what != "answered" or self._people is None:
            return line
        is_elsewhere = (entry.run_id, entry.about["wait"]) in self._people.asked
        return line.replace("answered", "answered elsewhere", 1) if is_elsewhere else line

    def _is_shown(self, entry: Entry) -> bool:
        match entry.what:
            case "turn":
                return bool(entry.about["turn"] > 1 or entry.about["tokens"])
            case "asks":  # whoever asks shows the question
                return self._people is None
            case "answered" if self._people is not None:
                return (entry.run_id, entry.about["wait"]) not in self._people.answered
        return entry.what not in _HIDDEN and (entry.what not in _ENDS or entry.depth > 0)

    def _say(self, line: str) -> None:
        if self._ticker is not None:
            self._ticker.say(line)
        else:
            click.echo(line, err=self._err)


def coloured_line(entry: Entry) -> str:
    """An entry as a line of its level; what went wrong stands out."""
    is_marked = entry.what in _MARKED or entry.about.get("status", "ok") != "ok"
    line = f"{'  ' * entry.level}{entry.text}"
    return click.style(line, fg="yellow") if is_marked else line


def _ticker(stream: TextIO | None) -> Ticker | None:
    if stream is None or not stream.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return None
    from reyn.cli.ticker import Ticker

    return Ticker(stream)
