"""Operations that read runs: list, show, stream, compare, check."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.client.values import AskedQuestion, RunDetails, RunView
from reyn.gateway.operations import ApiCall, operation
from reyn.gateway.streams import WatchOptions, event_stream
from reyn.gateway.views import EventView, event_view, question_view, run_details, run_view
from reyn.journal.listing import RunQuery, ShownStatus
from reyn.journal.registry import Status
from reyn.kernel.runtime_types import VerifyReport
from reyn.runs.diff import DiffReport
from reyn.runs.usage import UsageReport
from reyn.skills.drawing import edges, node_kind, nodes
from reyn.skills.graph_layout import lay_out

if TYPE_CHECKING:
    from starlette.responses import Response

    from reyn.journal import RunRow
    from reyn.skills import Skill

_MAX_PAGE = 500


# -- listing -----------------------------------------------------------------------------


class RunFilter(msgspec.Struct):
    """Which runs to list, newest first. `after` is the id of the last run of the page before.

    `search` are words in the names, the input, the result or the reason of a run. `top` omits sub-runs.
    """

    status: tuple[Status | ShownStatus, ...] = ()
    skill: str | None = None
    since: int | None = None
    search: str = ""
    top: bool = False
    after: str = ""
    limit: int = 50


class ListedRuns(msgspec.Struct):
    """A page of runs. `next` is the value of `after` for the next page; null if there is none.

    `unindexed` is the number of runs, up to 100,000, that a search does not find yet: the oldest.
    """

    runs: list[RunView]
    next: str | None
    unindexed: int = 0


@operation("GET", "/api/runs", "view", query=RunFilter, result=ListedRuns)
def list_runs(call: ApiCall) -> ListedRuns:
    """List runs, newest first."""
    wanted, runtime = call.query, call.site.runtime
    limit = max(1, min(wanted.limit, _MAX_PAGE))
    query = RunQuery(wanted.status, wanted.skill, wanted.since, top=wanted.top, search=wanted.search)
    rows: list[RunRow] = []
    if wanted.after:
        call.site.run_for(wanted.after, call.principal)  # a run of another skill is none
    after: str | None = wanted.after
    unindexed = 0
    while after is not None and len(rows) <= limit:  # a token for some skills does not see every run
        page = runtime.runs.page(query, limit=limit + 1, after=after)
        rows += [row for row in page.rows if _is_visible(call, row)]
        after, unindexed = page.next, page.unindexed
    more = rows[limit - 1].run_id if len(rows) > limit else None
    return ListedRuns([run_view(runtime, row) for row in rows[:limit]], more, unindexed)


def _is_visible(call: ApiCall, row: RunRow) -> bool:
    return not call.principal.skills or call.principal.sees(call.site.runtime.runs.root_run(row).skill)


class QuestionFilter(msgspec.Struct):
    """Only the questions of a run and its sub-runs."""

    run: str = ""


@operation("GET", "/api/questions", "view", query=QuestionFilter, result=list[AskedQuestion])
def list_questions(call: ApiCall) -> list[AskedQuestion]:
    """List the open questions and approvals, the oldest first. What a conversation waits for is no question."""
    runtime = call.site.runtime
    return [
        question_view(runtime, asked)
        for asked in runtime.runs.open_questions(call.query.run)
        if call.principal.sees(runtime.runs.root_run(asked.row).skill)
    ]


# -- one run ------------------------------------------------------------------------------------------


@operation("GET", "/api/runs/{run}", "view", result=RunDetails)
def get_run(call: ApiCall) -> RunDetails:
    """Return a run with its result and its open question."""
    return run_details(call.site.runtime, call.site.runtime.runs.find(call.run))


class ChildrenFrom(msgspec.Struct):
    """Which descendants to return: those from an index on."""

    start: int = 0
    limit: int = _MAX_PAGE


@operation("GET", "/api/runs/{run}/children", "view", query=ChildrenFrom, result=list[RunView])
def list_children(call: ApiCall) -> list[RunView]:
    """Return the sub-runs of a run and theirs, each after its parent."""
    runtime, start = call.site.runtime, max(0, call.query.start)
    found = runtime.runs.descendants(call.run)
    return [run_view(runtime, row) for row in found[start : start + max(1, min(call.query.limit, _MAX_PAGE))]]


class After(msgspec.Struct):
    """Which events to return: those after a sequence number."""

    after: int = 0
    limit: int = _MAX_PAGE


@operation("GET", "/api/runs/{run}/events", "view", query=After, result=list[EventView])
def list_events(call: ApiCall) -> list[EventView]:
    """Return the events of a run after a sequence number."""
    events = call.site.runtime.runs.events(call.run, max(0, call.query.after))
    return [event_view(event) for event in islice(events, max(1, min(call.query.limit, 5_000)))]


class StreamAfter(msgspec.Struct):
    """Where a stream begins, and what it has. The header `Last-Event-ID` wins.

    Attributes:
        after: The last event that the client has.
        deltas: Also the pieces of the model's answers, while this server executes the run.
        follow: Go on when the run stops, until it ends for good.
        children: Also the events of the runs that it awaits. They have no `id`: a client that comes back gets those of
            a child in progress again.
    """

    after: int = 0
    deltas: bool = False
    follow: bool = False
    children: bool = False


@operation("GET", "/api/runs/{run}/stream", "view", query=StreamAfter, media_type="text/event-stream")
async def stream_run(call: ApiCall) -> Response:
    """Stream the events of a run as server-sent events until its end, whatever process executes it.

    `id` is the sequence number, so that `Last-Event-ID` continues without loss or repetition. The last event of the
    stream is `end`, with the status of the run.
    """
    last = call.request.headers.get("last-event-id", "")
    after = int(last) if last.isdecimal() and len(last) < 16 else call.query.after
    wanted = WatchOptions(call.run, max(0, after), call.query.deltas, call.query.follow, call.query.children)
    return event_stream(call.site, call.principal, wanted)


class GraphNode(msgspec.Struct):
    """A node of a skill's graph, and its place: the middle of its upper side, and its size.

    Attributes:
        name: The name of the node.
        kind: `phase`, `skill`, `end`, or another kind of node that the skill has.
        text: The name, truncated for the drawing.
        lines: What it runs, repeats and checks.
        instructions: Those of a phase.
    """

    name: str
    kind: str
    text: str
    lines: tuple[str, ...] = ()
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0
    instructions: str = ""


class GraphEdge(msgspec.Struct):
    """An edge of a skill's graph, and its place.

    Attributes:
        label: The type of the artifact, and when to choose the edge.
        text: The label, truncated for the drawing. It begins at `x` and `y`.
        curve: The line, as data of an SVG path.
        tip: The tip of the arrow, as data of an SVG path.
    """

    source: str
    target: str
    label: str
    is_loop: bool
    text: str = ""
    curve: str = ""
    tip: str = ""
    x: float = 0
    y: float = 0


class GraphView(msgspec.Struct):
    """The graph of a skill, with places in pixels. `width` is 0 if it is too large to be drawn."""

    skill: str
    entry: str
    width: float
    height: float
    nodes: list[GraphNode]
    edges: list[GraphEdge]


def graph_view(skill: Skill) -> GraphView:
    """Return the graph of a skill for clients."""
    layout = lay_out(skill)
    if layout is None:
        found = [GraphNode(name, node_kind(skill, name), name) for name in nodes(skill)]
        listed = [GraphEdge(edge.source, edge.target, edge.label, edge.is_loop) for edge in edges(skill)]
        view = GraphView(skill.name, skill.entry, 0, 0, found, listed)
    else:
        placed = [
            GraphEdge(one.edge.source, one.edge.target, one.edge.label, one.edge.is_loop, *one[1:])
            for one in layout.edges
        ]
        found = [GraphNode(*node) for node in layout.nodes]
        view = GraphView(skill.name, skill.entry, layout.width, layout.height, found, placed)
    for node in view.nodes:
        node.instructions = skill.phases[node.name].instructions if node.name in skill.phases else ""
    return view


@operation("GET", "/api/runs/{run}/graph", "view", result=GraphView)
def get_run_graph(call: ApiCall) -> GraphView:
    """Return the graph of the run's own copy of its skill."""
    runtime = call.site.runtime
    started = runtime.runs.state(call.run).started
    return graph_view(runtime.services.compile_skill(started).skill)


@operation("GET", "/api/runs/{run}/files", "view", result=dict[str, str])
def list_files(call: ApiCall) -> dict[str, str]:
    """Return the files that a run and its descendants changed: `new`, `changed` or `deleted` by path."""
    return call.site.runtime.runs.changed_files(call.run)


# -- checking -----------------------------------------------------------------------------------------


class Against(msgspec.Struct):
    """The run to compare with."""

    other: str


@operation("GET", "/api/runs/{run}/diff", "view", query=Against, result=DiffReport)
def diff_runs(call: ApiCall) -> DiffReport:
    """Return the first decision in which two runs differ, and its cause."""
    other = call.site.run_for(call.query.other, call.principal).run_id
    return call.site.runtime.runs.diff(call.run, other)


class Verify(msgspec.Struct, forbid_unknown_fields=True):
    """The hash of an event, noted outside the journal."""

    head: str | None = None


@operation("POST", "/api/runs/{run}/verify", "view", body=Verify, result=VerifyReport)
def verify_run(call: ApiCall) -> VerifyReport:
    """Check the hash chain of a run and of its sub-runs, and all content that their events name."""
    return call.site.runtime.runs.verify(call.run, head=call.body.head)


class UsageQuery(msgspec.Struct):
    """How to group usage, and since when, in microseconds since 1970."""

    by: Literal["day", "skill", "model", "run"] = "day"
    since: int | None = None


@operation("GET", "/api/usage", "view", query=UsageQuery, result=UsageReport)
def usage(call: ApiCall) -> UsageReport:
    """Return what model calls used and cost, and the budgets of today."""
    call.principal.check_all_skills()
    return call.site.runtime.runs.usage(call.query.by, since=call.query.since)
