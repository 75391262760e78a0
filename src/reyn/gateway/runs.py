"""Operations that read runs: list, show, stream, compare, check."""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.responses import PlainTextResponse, Response

from reyn.context.budget import FrameSection
from reyn.errors import RequestInvalid, ResourceNotFound
from reyn.gateway.operations import ApiCall, operation
from reyn.gateway.streams import WatchOptions, event_stream
from reyn.gateway.views import (
    AskedQuestion,
    EventView,
    RunDetails,
    RunView,
    event_view,
    question_view,
    run_details,
    run_view,
)
from reyn.journal.listing import RunQuery
from reyn.journal.registry import Event, Status
from reyn.journal.summary import summarize
from reyn.kernel.runtime_types import VerifyReport
from reyn.runs.diff import DiffReport
from reyn.runs.spans import Span, read_spans
from reyn.runs.timeline import Timeline
from reyn.runs.usage import UsageReport
from reyn.skills.drawing import edges, node_kind, nodes

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.skills import Skill

_MAX_PAGE = 500


# -- listing -----------------------------------------------------------------------------


class RunFilter(msgspec.Struct):
    """Which runs to list, newest first. `after` is the id of the last run of the page before.

    `search` are words in the names, the input, the result or the reason of a run. `top` omits sub-runs.
    """

    status: tuple[Status, ...] = ()
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


@operation("GET", "/api/questions", "view", result=list[AskedQuestion])
def list_questions(call: ApiCall) -> list[AskedQuestion]:
    """List the open questions and approvals, the oldest first. What a conversation waits for is no question."""
    runtime = call.site.runtime
    found = []
    for row in runtime.runs.select(RunQuery(("waiting",))):
        if row.wait is None or row.wait.run is not None or row.wait.is_message:
            continue
        asked = runtime.runs.open_question(row)
        if asked is not None and call.principal.sees(runtime.runs.root_run(row).skill):
            found.append(question_view(runtime, asked))
    return sorted(found, key=lambda one: one.since)


# -- one run ------------------------------------------------------------------------------------------


@operation("GET", "/api/runs/{run}", "view", result=RunDetails)
def get_run(call: ApiCall) -> RunDetails:
    """Return a run with its result, its open question and its sub-runs."""
    return run_details(call.site.runtime, call.site.runtime.runs.find(call.run))


class After(msgspec.Struct):
    """Which events to return: those after a sequence number."""

    after: int = 0
    limit: int = _MAX_PAGE


@operation("GET", "/api/runs/{run}/events", "view", query=After, result=list[EventView])
def list_events(call: ApiCall) -> list[EventView]:
    """Return the events of a run after a sequence number."""
    events = call.site.runtime.runs.events(call.run, max(0, call.query.after))
    return [event_view(event) for event in islice(events, max(1, min(call.query.limit, 5_000)))]


class AfterEvent(msgspec.Struct):
    """The event after which to begin."""

    after: int = 0


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
    return event_stream(call.site, wanted)


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


@operation("GET", "/api/runs/{run}/timeline", "view", query=AfterEvent, result=list[TimelineLine])
def get_timeline(call: ApiCall) -> list[TimelineLine]:
    """Return what a run did as readable lines, those of events after a sequence number."""
    runs = call.site.runtime.runs
    timeline = Timeline(runs.content)
    entries = (timeline.add(event) for event in runs.events(call.run))
    return [
        TimelineLine(one.seq, one.ts, one.level, one.type, one.text, dict(one.data), one.is_decision, one.is_warning)
        for one in entries
        if one is not None and one.seq > call.query.after
    ]


@operation("GET", "/api/runs/{run}/spans", "view", result=list[Span])
def get_spans(call: ApiCall) -> list[Span]:
    """Return what took time in a run: model calls, ops, steps, children and waits."""
    return read_spans(call.site.runtime.runs.events(call.run))


class AtEvent(msgspec.Struct):
    """The event to look at; by default the last one."""

    at: int | None = None


class RunStateView(msgspec.Struct):
    """The state of a run at an event."""

    seq: int
    ts: int
    status: Status | None
    reason: str
    phase: str
    path: tuple[str, ...]
    tokens: int
    question: str


@operation("GET", "/api/runs/{run}/state", "view", query=AtEvent, result=RunStateView)
def get_state(call: ApiCall) -> RunStateView:
    """Return the state of a run as it was at an event: the fold of the events up to it."""
    at = call.query.at
    seen: list[Event] = []

    def upto() -> Any:
        for event in takewhile(lambda one: at is None or one.seq <= at, call.site.runtime.runs.events(call.run)):
            seen[:] = [event]
            yield event

    state = summarize(upto())
    last = seen[0] if seen else None
    question = state.wait.message if state.wait is not None else ""
    return RunStateView(
        last.seq if last else 0,
        last.ts if last else 0,
        state.status,
        state.reason,
        state.phase,
        state.path,
        state.usage.total,
        question,
    )


class PromptMessage(msgspec.Struct):
    """A message of a prompt, or the model's answer."""

    role: str
    text: str


class DecisionView(msgspec.Struct):
    """A decision of a model: its prompt, its answer, and the size of each section of the prompt."""

    messages: list[PromptMessage]
    sections: tuple[FrameSection, ...]


@operation("GET", "/api/runs/{run}/decision", "view", query=AtEvent, result=DecisionView)
def get_decision(call: ApiCall) -> DecisionView:
    """Return the prompt and the answer of the model call at an event, or of the last one before it."""
    runs, run = call.site.runtime.runs, call.run
    messages = runs.prompt_at(run, call.query.at)
    sections = runs.prompt_sections(run, call.query.at)
    return DecisionView(
        [PromptMessage(role, text) for role, text in messages],
        sections,
    )


class GraphNode(msgspec.Struct):
    """A node of a skill's graph. `kind` is `phase`, `skill`, `end`, or another kind of node that the skill has. A phase
    has its `instructions`."""

    name: str
    kind: str
    instructions: str = ""


class GraphEdge(msgspec.Struct):
    """An edge of a skill's graph. `label` has the type of the artifact, and when to choose the edge."""

    source: str
    target: str
    label: str
    is_loop: bool


class GraphView(msgspec.Struct):
    """The graph of a skill."""

    skill: str
    entry: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]


def graph_view(skill: Skill) -> GraphView:
    """Return the graph of a skill for clients."""
    return GraphView(
        skill.name,
        skill.entry,
        [
            GraphNode(name, node_kind(skill, name), skill.phases[name].instructions if name in skill.phases else "")
            for name in nodes(skill)
        ],
        [GraphEdge(edge.source, edge.target, edge.label, edge.is_loop) for edge in edges(skill)],
    )


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


@operation("GET", "/api/runs/{run}/content/{hash}", "view", media_type="text/plain")
def get_content(call: ApiCall) -> Response:
    """Return content that an event of the run names by its hash, as plain text that no browser interprets."""
    runs, wanted = call.site.runtime.runs, call.path["hash"]
    if len(wanted) != 64 or not all(char in "0123456789abcdef" for char in wanted):
        raise RequestInvalid("a hash has 64 hexadecimal digits")
    if not any(wanted.encode() in event.raw for event in runs.events(call.run)):
        raise ResourceNotFound(f"no event of run `{call.run}` names `{wanted}`")
    return PlainTextResponse(runs.content(wanted), headers={"Content-Disposition": "inline"})


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


RUN_OPERATIONS = (
    list_runs,
    list_questions,
    get_run,
    list_events,
    stream_run,
    get_timeline,
    get_spans,
    get_state,
    get_decision,
    get_run_graph,
    list_files,
    get_content,
    diff_runs,
    verify_run,
    usage,
)
