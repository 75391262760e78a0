"""`RunInspection`: a recorded run that is looked at again and again, such as by a page.

Each event is read once, as it arrives. A state or a line of long ago is derived from the last checkpoint before it,
so that no request reads the whole run. The wording of lines is in `timeline`, the fold in `reader`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from reyn.cells import MAX_LINES, Html, InNotebook, MimeBundle, bundle, element, mimebundle, preformatted, status_badge
from reyn.errors import ReynError, RunNotFound
from reyn.journal import decode, kinds
from reyn.journal.results import result_parts
from reyn.journal.summary import to_result
from reyn.runs.event_lines import to_line
from reyn.runs.reader import ReadEvent, RecordedTurn, RunReader
from reyn.runs.spans import Span, SpanReader
from reyn.runs.timeline import Timeline, TimelineEntry
from reyn.skills.graph_svg import VisitedPath, graph_html
from reyn.skills.pin import check_pinned, unpin
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.journal import Body, Event, Journal, RunRow

Level = Literal["decisions", "effects", "everything"]
"""The lines to list: decisions, questions, beginnings and ends; also effects; or one line for each event."""
_CHECKPOINT_EVENTS = 200
"""A checkpoint is stored after so many events."""
_MOST_RUNS = 16


class LinePage(msgspec.Struct, frozen=True):
    """A part of the lines of a run: `total` is their number, `start` the index of the first of `lines`."""

    total: int
    start: int
    lines: list[TimelineEntry]


class SpanPage(msgspec.Struct, frozen=True):
    """A part of the spans of a run: `total` is their number, `start` the index of the first of `spans`."""

    total: int
    start: int
    spans: list[Span]


class _Checkpoint(NamedTuple):
    """What has read a run up to an event."""

    reader: RunReader
    timeline: Timeline
    path: VisitedPath


class RunInspection(InNotebook):
    """A recorded run. It may be used by several threads.

    A notebook shows its graph with the path, its last decisions, its result and its cost.

    Args:
        read: Yields the events after a sequence number.
        content: Returns the bytes that an event refers to by hash.
    """

    def __init__(self, read: Callable[[int], Iterator[Event]], content: Callable[[str], bytes]) -> None:
        self._read = read
        self._content = content
        self._path = VisitedPath()
        self._lock = Lock()
        self._reader = RunReader()
        self._timeline = Timeline(content)
        self._spans = SpanReader()
        self._checkpoints = [self._checkpoint()]
        self._seqs: dict[Level, array[int]] = {"decisions": array("Q"), "effects": array("Q")}

    def refresh(self) -> int:
        """Read the events that are new; return the number of all."""
        with self._lock:
            for event in self._read(self._reader.seq):
                _follow(self._path, self._reader.take(event).body)
                self._spans.take(event)
                entry = self._timeline.add(event)
                if entry is not None:
                    self._seqs["effects"].append(entry.seq)
                    if entry.is_decision:
                        self._seqs["decisions"].append(entry.seq)
                if event.seq % _CHECKPOINT_EVENTS == 0:
                    self._checkpoints.append(self._checkpoint())
            return self._reader.seq

    def _checkpoint(self) -> _Checkpoint:
        return _Checkpoint(self._reader.copy(), self._timeline.copy(), self._path.copy())

    # -- lists ----------------------------------------------------------------------------------------

    def lines(self, level: Level, start: int, limit: int) -> LinePage:
        """Return lines from an index on; a negative index counts from the end."""
        last = self.refresh()
        seqs = self._seqs.get(level)
        total = last if seqs is None else len(seqs)
        first, end = _bounds(total, start, limit)
        if first == end:
            return LinePage(total, first, [])
        if seqs is None:
            return LinePage(total, first, [_event_line(one) for one in islice(self._read(first), end - first)])
        return LinePage(total, first, self._entries(set(seqs[first:end])))

    def index_of(self, level: Level, seq: int) -> int:
        """Return the index of the line of an event, or of the last line before it."""
        last = self.refresh()
        seqs = self._seqs.get(level)
        found = min(seq, last) if seqs is None else bisect_right(seqs, seq)
        return max(0, found - 1)

    def _entries(self, wanted: set[int]) -> list[TimelineEntry]:
        last = max(wanted)
        timeline = self._checkpoint_before(min(wanted)).timeline.copy()
        after = self._checkpoint_before(min(wanted)).reader.seq
        events = takewhile(lambda one: one.seq <= last, self._read(after))
        entries = [(event.seq, timeline.add(event)) for event in events]
        return [entry for seq, entry in entries if seq in wanted and entry is not None]

    def spans(self, start: int, limit: int) -> SpanPage:
        """Return spans from an index on; a negative index counts from the end."""
        self.refresh()
        with self._lock:
            first, end = _bounds(len(self._spans.spans), start, limit)
            return SpanPage(len(self._spans.spans), first, self._spans.spans[first:end])

    # -- one event ------------------------------------------------------------------------------------

    def _checkpoint_before(self, seq: int) -> _Checkpoint:
        """Return the last checkpoint before an event; that at the beginning if there is none."""
        return self._checkpoints[
            bisect_left(self._checkpoints, seq, key=lambda one: one.reader.seq) - 1 if seq > 0 else 0
        ]

    def _reads_to(self, seq: int) -> Iterator[ReadEvent]:
        """Yield the events from the last checkpoint before one on."""
        reader = self._checkpoint_before(seq).reader.copy()
        return map(reader.take, self._read(reader.seq))

    def at(self, seq: int | None) -> ReadEvent | None:
        """Return an event with the state after it, or the last one before it; `None` if there is none."""
        last = self.refresh()
        wanted = last if seq is None else min(seq, last)
        if wanted < 1:
            return None
        return next(read for read in self._reads_to(wanted) if read.event.seq == wanted)

    def path_at(self, seq: int | None) -> VisitedPath:
        """Return the path of the run up to an event."""
        last = self.refresh()
        before = self._checkpoint_before(min(seq, last) if seq is not None else last)
        path = before.path.copy()
        for event in takewhile(lambda one: seq is None or one.seq <= seq, self._read(before.reader.seq)):
            if event.kind in _OF_PATH:
                _follow(path, decode(event))
        return path

    def turn_at(self, seq: int | None) -> RecordedTurn:
        """Return the turn of an event, or the last one before it; by default the last turn of the run.

        Raises:
            RunNotFound: The run has no event `seq`, or no turn at or before it.
        """
        last = self.refresh()
        if seq is not None and seq > last:
            raise RunNotFound(f"the run has no event {seq}", hint=f"The last event of the run is {last}.")
        wanted = last if seq is None else seq
        found: RecordedTurn | None = None
        for read in self._reads_to(wanted):
            if read.turn is not None and read.turn.seq > wanted:
                break
            found = read.turn
            if read.event.seq >= wanted and (found is None or found.answer is not None):
                break
        if found is None:
            raise RunNotFound(
                f"the run has no frame at or before event {wanted}",
                hint="The first frame is recorded by the first `frame_built` event.",
            )
        return found

    def events_of(self, turn: RecordedTurn) -> Iterator[Event]:
        """Yield the events of a turn after its frame: those before the next frame or visit."""
        return takewhile(lambda one: one.kind not in ("frame_built", "phase_started"), self._read(turn.seq))

    # -- notebooks ------------------------------------------------------------------------------------

    def shown(self) -> tuple[str, list[Html]]:
        """Return the run as text and as HTML: what it is, its graph with the path, its last decisions, its result."""
        last = self.at(None)
        if last is None:
            return "no events", [element("div", "no events")]
        state, page = last.after, self.lines("decisions", -MAX_LINES, MAX_LINES)
        result = to_result(state, self._content)
        text, parts = result_parts(result)
        what = f"{state.started.skill} · {state.models.name or state.started.model} · {self._path.visits:,} visits"
        earlier = [f"… {page.start:,} earlier lines"] if page.start else []
        lines = "\n".join([*earlier, *(f"{'  ' * one.level}{one.text}" for one in page.lines)])
        head = element("div", "run ", element("code", result.run_id), ": ", status_badge(result.status), f" · {what}")
        text = f"run {result.run_id}: {result.status} · {what}\n{text}\n{lines}"
        return text, [head, self._graph(state.started.skill_hash), *parts, preformatted(lines)]

    def _graph(self, skill_hash: str) -> Html:
        """Return the graph of the run's own copy of its skill, which may be damaged if the run was imported."""
        try:
            skill = unpin(self._content(skill_hash))
            check_pinned(skill)
        except ReynError as error:
            return element("div", error.message)
        return graph_html(skill, self._path)


@mimebundle.register(RunInspection)
def _(run: RunInspection) -> MimeBundle:
    text, parts = run.shown()
    return bundle(text, *parts)


_OF_PATH = {kind.kind for kind in (kinds.PhaseStarted, kinds.SkillCompleted, kinds.PhaseRolledBack, kinds.VisitRetried)}


def _follow(path: VisitedPath, body: Body) -> None:
    match body:
        case kinds.PhaseStarted(phase=phase):
            path.enter(phase)
        case kinds.SkillCompleted():
            path.enter(END)
        case kinds.PhaseRolledBack() | kinds.VisitRetried():
            path.leave()


def _bounds(total: int, start: int, limit: int) -> tuple[int, int]:
    first = min(max(0, total + start if start < 0 else start), total)
    return first, min(total, first + limit)


def _event_line(event: Event) -> TimelineEntry:
    data = msgspec.json.encode(event.data).decode()
    return TimelineEntry(event.run_id, event.seq, event.ts, 0, event.kind, f"{event.kind}  {to_line(data)}")


class Inspections:
    """The inspections of the runs that were looked at last.

    Args:
        journal: Returns the journal.
    """

    def __init__(self, journal: Callable[[], Journal]) -> None:
        self._journal = journal
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, int], RunInspection] = OrderedDict()

    def of(self, row: RunRow) -> RunInspection:
        """Return the inspection of a run."""
        key = (row.run_id, row.started)  # a run may be deleted, and its id used again
        with self._lock:
            if key not in self._known:
                journal = self._journal()
                self._known[key] = RunInspection(lambda after: journal.read(row.run_id, after), journal.blob)
                if len(self._known) > _MOST_RUNS:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return self._known[key]
