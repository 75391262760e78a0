"""Operations that show one run: its lines, its spans, its state and its decisions, its files and its content.

None of them reads a whole run for a request: `Runs.inspect` reads each event once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import PlainTextResponse, Response

from reyn.errors import RequestInvalid, ResourceNotFound
from reyn.gateway.operations import ApiCall, operation
from reyn.journal.registry import Status, content_hashes, decode
from reyn.runs.decisions import RecordedDecision
from reyn.runs.inspection import Level, SpanPage

if TYPE_CHECKING:
    from reyn.runs.timeline import TimelineEntry

_MAX_LINES = 1_000
_DIFF_CHARS = 200_000


class LinesFrom(msgspec.Struct):
    """Which lines to return.

    Attributes:
        level: `decisions`, also `effects`, or `everything`: one line for each event.
        start: The index of the first line; a negative one counts from the end.
        limit: The number of lines, at most 1,000.
        around: An event. If it is named, the page has its line, or the last one before it, in its middle.
    """

    level: Level = "effects"
    start: int = 0
    limit: int = 200
    around: int | None = None


class TimelineLine(msgspec.Struct):
    """A readable line about an event. `is_decision` and `is_warning` are for filters and colours."""

    seq: int
    ts: int
    level: int
    type: str
    text: str
    data: dict[str, Any]
    is_decision: bool
    is_warning: bool


class TimelinePage(msgspec.Struct):
    """Lines of a run: `total` is the number of all, `start` the index of the first of `lines`.

    `found` is the index of the line that `around` names.
    """

    total: int
    start: int
    lines: list[TimelineLine]
    found: int | None = None


@operation("GET", "/api/runs/{run}/timeline", "view", query=LinesFrom, result=TimelinePage)
def get_timeline(call: ApiCall) -> TimelinePage:
    """Return what a run did as readable lines."""
    inspection, wanted = call.site.runtime.runs.inspect(call.run), call.query
    limit = max(1, min(wanted.limit, _MAX_LINES))
    start, found = wanted.start, None
    if wanted.around is not None:
        found = inspection.index_of(wanted.level, wanted.around)
        start = max(0, found - limit // 2)
    page = inspection.lines(wanted.level, start, limit)
    return TimelinePage(page.total, page.start, [_line(one) for one in page.lines], found)


def _line(one: TimelineEntry) -> TimelineLine:
    return TimelineLine(one.seq, one.ts, one.level, one.type, one.text, dict(one.data), one.is_decision, one.is_warning)


class SpansFrom(msgspec.Struct):
    """Which spans to return: those from an index on, which counts from the end if it is negative."""

    start: int = 0
    limit: int = 200


@operation("GET", "/api/runs/{run}/spans", "view", query=SpansFrom, result=SpanPage)
def get_spans(call: ApiCall) -> SpanPage:
    """Return what took time in a run: model calls, ops, steps, children and waits."""
    return call.site.runtime.runs.inspect(call.run).spans(call.query.start, max(1, min(call.query.limit, _MAX_LINES)))


class AtEvent(msgspec.Struct):
    """The event to look at; by default the last one."""

    at: int | None = None


class TakenEdge(msgspec.Struct):
    """An edge of the graph that a run took so often."""

    source: str
    target: str
    count: int


class RunStateView(msgspec.Struct):
    """The state of a run at an event.

    `path` are the last phases entered. `visits` counts the visits of each node of the graph up to the event, `end`
    included, and `taken` are the edges between them.
    """

    seq: int
    ts: int
    status: Status | None
    reason: str
    phase: str
    path: tuple[str, ...]
    tokens: int
    question: str
    visits: dict[str, int]
    taken: list[TakenEdge]


@operation("GET", "/api/runs/{run}/state", "view", query=AtEvent, result=RunStateView)
def get_state(call: ApiCall) -> RunStateView:
    """Return the state of a run as it was at an event: the fold of the events up to it."""
    inspection = call.site.runtime.runs.inspect(call.run)
    read = inspection.at(call.query.at)
    if read is None:
        return RunStateView(0, 0, None, "", "", (), 0, "", {}, [])
    state, path = read.after, inspection.path_at(read.event.seq)
    question = state.wait.message if state.wait is not None else ""
    return RunStateView(
        read.event.seq,
        read.event.ts,
        state.status,
        state.reason,
        state.phase,
        state.path,
        state.usage.total,
        question,
        path.nodes,
        [TakenEdge(source, target, edge.count) for (source, target), edge in path.edges.items()],
    )


class DecisionAt(AtEvent):
    """The event to look at; by default the last one. Without `messages`, the texts of the prompt are left out."""

    messages: bool = True


@operation("GET", "/api/runs/{run}/decision", "view", query=DecisionAt, result=RecordedDecision)
def get_decision(call: ApiCall) -> RecordedDecision:
    """Return the model call at an event, or the last one before it.

    It has the prompt with the size of each section, the answer, the exits that were offered, why an answer was
    rejected, the tokens and the cost.
    """
    found = call.site.runtime.runs.decision_at(call.run, call.query.at)
    return found if call.query.messages else msgspec.structs.replace(found, messages=())


# -- files and content --------------------------------------------------------------------------------


class OfFile(msgspec.Struct):
    """The path of a file, as `/files` has it."""

    path: str


class FileDiff(msgspec.Struct):
    """How a run changed a file, as a unified diff. A long one is truncated."""

    path: str
    text: str
    is_truncated: bool


@operation("GET", "/api/runs/{run}/file-diff", "view", query=OfFile, result=FileDiff)
def get_file_diff(call: ApiCall) -> FileDiff:
    """Return the diff of a file that a run and its descendants changed, from its first state to its last."""
    text = call.site.runtime.runs.file_diff(call.run, call.query.path)
    return FileDiff(call.query.path, text[:_DIFF_CHARS], len(text) > _DIFF_CHARS)


@operation("GET", "/api/runs/{run}/content/{hash}", "view", media_type="text/plain")
def get_content(call: ApiCall) -> Response:
    """Return content that an event of the run names by its hash, as plain text that no browser interprets."""
    runs, wanted = call.site.runtime.runs, call.path["hash"]
    if len(wanted) != 64 or not all(char in "0123456789abcdef" for char in wanted):
        raise RequestInvalid("a hash has 64 hexadecimal digits")
    quoting = (event for event in runs.events(call.run) if wanted.encode() in event.raw)
    if not any(wanted in content_hashes(decode(event)) for event in quoting):
        raise ResourceNotFound(f"no event of run `{call.run}` names `{wanted}`")
    return PlainTextResponse(runs.content(wanted), headers={"Content-Disposition": "inline"})
