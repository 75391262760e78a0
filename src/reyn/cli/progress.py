"""Print the progress of a run from its durable events: one line each, and a live last line on a terminal."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from reyn.cli.output import coloured_line
from reyn.cli.writer import Printed, Styled, is_plain, is_terminal, out, styled
from reyn.journal import Event, decode, kinds
from reyn.models import Delta
from reyn.runs.timeline import Timeline, TimelineEntry

if TYPE_CHECKING:
    from reyn.cli.people import TerminalPeople
    from reyn.runtime import RunResult, SyncRuntime


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


_BEGINNINGS = {"started", "forked", "resumed"}
_HIDDEN = {"sub_run", "sub_run_question"}
"""Entries that other lines already show: those of the sub-run, or the result."""
_ENDS = {"finished", "failed", "limited", "aborted", "cancelled"}


class Progress:
    """The listener of a run.

    Args:
        runtime: The runtime that executes the run.
        err: Print progress to standard error, and streamed text as JSON.
        people: Asks questions at the terminal; it prints them itself.
        stream: Print the model's text as it arrives, and no live line.

    Attributes:
        run_id: The run that the command executes, not one of its sub-runs.
        warned: Warnings that were printed.
        visits: The visits of this run that ended and whose phases have ops: phase, number, ops.
    """

    def __init__(
        self, runtime: SyncRuntime, *, err: bool = False, people: TerminalPeople | None = None, stream: bool = False
    ) -> None:
        self.run_id = ""
        self.warned: set[str] = set()
        self.visits: list[dict[str, Any]] = []
        self._is_introduced = False
        self._err = err
        self._people = people
        self._runtime = runtime
        self._timeline = Timeline(runtime.runs.content, runtime.runs.events)
        self._stream = (JsonStream() if err else TextStream()) if stream else None
        self._live_line = None if stream else _live_line(err=err)
        self._started = time.monotonic()
        self._received = 0

    def is_usage_complete(self, result: RunResult) -> bool:
        """Return whether the model reported the usage of every call, as far as this command knows."""
        if self._timeline.unreported:
            return False
        # An earlier command may have called the model.
        has_answer = (event.kind == kinds.LlmResponded.kind for event in self._runtime.runs.events(result.run_id))
        return bool(result.usage.total) or not any(has_answer)

    @property
    def took(self) -> int:
        """Microseconds since the command started to execute the run."""
        return int((time.monotonic() - self._started) * 1_000_000)

    def __call__(self, event: Event) -> None:
        self.run_id = self.run_id or event.run_id
        self._stream_answer(event)
        self._received = 0
        entry = self._timeline.add(event)
        self._note_visit(event, entry)
        if entry is None or entry.type not in _BEGINNINGS:
            self.introduce(event.run_id)
        self._is_introduced = True
        if entry is not None and self._is_shown(entry):
            self._print(self._line(entry))
        if entry is not None and entry.type in _BEGINNINGS:
            self._warn(event.run_id)
        if self._live_line is not None:
            tokens = f"{self._timeline.tokens:,} tokens" if self._timeline.tokens else ""
            self._live_line.update(self._timeline.activity, tokens)

    def start(self) -> None:
        """Show the live line at once: the SDK of a model can take seconds to import before the first event."""
        if self._live_line is not None:
            self._live_line.update("starting", "")

    def follow(self, runtime: SyncRuntime) -> None:
        """Read the run through the runtime that executes it, if that was derived from the project's."""
        self._runtime = runtime

    def on_delta(self, delta: Delta) -> None:
        """Print a piece of the model's text, or how much of it has arrived."""
        self._received += len(delta.text)
        if self._stream is not None:
            self._stream(delta)
        if self._live_line is not None:
            self._live_line.update(self._timeline.activity, f"{self._received:,} characters received")

    def _stream_answer(self, event: Event) -> None:
        """Print the whole answer of a model that does not stream, such as a scripted one."""
        if self._stream is None or self._received or event.kind != kinds.LlmResponded.kind:
            return
        body = decode(event)
        assert isinstance(body, kinds.LlmResponded)
        text = self._runtime.runs.content(body.text).decode(errors="replace")
        self._stream(Delta(event.run_id, body.call, text))

    def _note_visit(self, event: Event, entry: TimelineEntry | None) -> None:
        if entry is not None and "ops" in entry.data and event.run_id == self.run_id:
            self.visits.append({key: entry.data[key] for key in ("phase", "visit", "ops")})

    def read_visits(self, run_id: str) -> None:
        """Read the visits of a run that this command did not execute."""
        if self.run_id:
            return
        self.run_id = run_id
        timeline = Timeline(self._runtime.runs.content, self._runtime.runs.events)
        for event in self._runtime.runs.events(run_id):
            self._note_visit(event, timeline.add(event))

    def introduce(self, run_id: str) -> None:
        """Print the id of the run before anything else, even if the run has no new event."""
        if not self._is_introduced:
            row = self._runtime.runs.find(run_id)
            origin = f" · forked from {row.fork_of} at event {row.fork_seq}" if row.fork_of else ""
            self._print(f"run {run_id}{origin}")

    def _warn(self, run_id: str) -> None:
        """Print the requests of a run that no rule grants."""
        for warning in self._runtime.permissions.warnings(run_id):
            if warning not in self.warned:
                self.warned.add(warning)
                out.note(styled(f"warning: {warning}", "yellow"))

    def pause(self) -> None:
        """End a streamed line; clear the live line until the next event."""
        if self._stream is not None:
            self._stream.end_line()
        if self._live_line is not None:
            self._live_line.pause()

    def _line(self, entry: TimelineEntry) -> Styled:
        line = coloured_line(entry)
        if entry.type != "answered" or self._people is None:
            return line
        is_elsewhere = (entry.run_id, entry.data["wait"]) in self._people.asked
        return line._replace(text=line.text.replace(":", " from another process:", 1)) if is_elsewhere else line

    def _is_shown(self, entry: TimelineEntry) -> bool:
        match entry.type:
            case "turn":
                return bool(entry.data["tokens"])
            case "question":  # `TerminalPeople` prints the question
                return self._people is None
            case "answered" if self._people is not None:
                return (entry.run_id, entry.data["wait"]) not in self._people.answered
        return entry.type not in _HIDDEN and (entry.type not in _ENDS or entry.depth > 0)

    def _print(self, line: Printed) -> None:
        if self._stream is not None:
            self._stream.end_line()
        out.line(line, err=self._err)


def _live_line(*, err: bool) -> LiveLine | None:
    if not is_terminal(err=err) or is_plain() or os.environ.get("TERM", "unknown") == "unknown":
        return None
    return LiveLine(err=err)


class TextStream:
    """Prints deltas to standard output. Each model call starts on a new line."""

    def __init__(self) -> None:
        self._call = ("", "")
        self._is_mid_line = False
        self._last = ""

    def __call__(self, delta: Delta) -> None:
        if (delta.run_id, delta.call) != self._call:
            self.end_line()
        self._call = (delta.run_id, delta.call)
        out.text(delta.text, self._last)
        self._last = delta.text[-1:]
        self._is_mid_line = not delta.text.endswith("\n")

    def end_line(self) -> None:
        """End the current line, if it has text."""
        if self._is_mid_line:
            self._is_mid_line, self._last = False, ""
            out.line()


class JsonStream:
    """Prints each delta to standard output as `{"delta": {"run_id", "call", "text"}}`."""

    def __call__(self, delta: Delta) -> None:
        out.json({"delta": delta})

    def end_line(self) -> None:
        """Do nothing: each object is a line."""
