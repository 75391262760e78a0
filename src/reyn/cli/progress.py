"""Prints the progress of a run from its durable events: one line each, and on a terminal a live last line."""

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
"""Entries that other lines already show: those of the sub-run, or the result."""
_ENDS = {"finished", "failed", "limited", "aborted", "cancelled"}
_MARKED = {"retried", "switched", "rejected", "rolled_back", "visit_failed", "limited", "failed", "aborted"}


class Progress:
    """The listener of a run. `run_id` is the run that the command executes, not one of its sub-runs."""

    def __init__(self, runtime: SyncRuntime, *, err: bool, people: TerminalPeople | None = None) -> None:
        self.run_id = ""
        self._is_introduced = False
        self._err = err
        self._people = people
        self._runtime = runtime
        self._timeline = Timeline(runtime.content, lambda run: runtime.find(run).phase)
        self._ticker = _ticker(sys.stderr if err else sys.stdout)
        self._began = time.monotonic()
        self._received = 0

    @property
    def took(self) -> int:
        """Microseconds since the command started to execute the run."""
        return int((time.monotonic() - self._began) * 1_000_000)

    def __call__(self, event: Event) -> None:
        self.run_id = self.run_id or event.run_id
        self._received = 0
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
        """Show how much of an answer has arrived."""
        self._received += len(delta.text)
        if self._ticker is not None:
            self._ticker.tell(self._timeline.doing, f"{self._received:,} characters received")

    def introduce(self, run_id: str) -> None:
        """Print the id of the run before anything else, even if the run has no new event."""
        if not self._is_introduced:
            row = self._runtime.find(run_id)
            origin = f" · forked from {row.fork_of} at event {row.fork_seq}" if row.fork_of else ""
            self._say(clean(f"run {run_id}{origin}"))

    def pause(self) -> None:
        """Clear the live line until the next event."""
        if self._ticker is not None:
            self._ticker.pause()

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
            case "asks":  # `TerminalPeople` shows the question
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
    """An entry as an indented line; failures are coloured."""
    is_marked = entry.what in _MARKED or entry.about.get("status", "ok") != "ok"
    line = f"{'  ' * entry.level}{entry.text}"
    return click.style(line, fg="yellow") if is_marked else line


def _ticker(stream: TextIO | None) -> Ticker | None:
    if stream is None or not stream.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return None
    from reyn.cli.ticker import Ticker

    return Ticker(stream)
