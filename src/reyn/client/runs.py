"""`RemoteRuns`: the recorded runs of a server, with the names of `Runs`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from reyn.client.transport import decoded
from reyn.client.values import EventFields, RunDetails
from reyn.context.frame import ContextFrame
from reyn.context.handoff import PhaseHandoff
from reyn.context.messages import MemoryEntry
from reyn.errors import GatewayError, NextAction, RunNotFound
from reyn.journal import ENDED, Event, InboxMessage, RunRow
from reyn.journal.family import OpenQuestion
from reyn.journal.listing import RunQuery
from reyn.journal.summary import RunSummary
from reyn.kernel.core.conversations import ConversationSize
from reyn.kernel.runtime_types import ReplayReport, VerifyReport
from reyn.models import Delta
from reyn.runs.decisions import PromptMessage, RecordedDecision
from reyn.runs.diff import DiffReport
from reyn.runs.frames import VisitContext
from reyn.runs.prune import PruneReport
from reyn.runs.reading import RunPage
from reyn.runs.run_files import UndoReport
from reyn.runs.usage import BudgetStatus, UsageReport
from reyn.runs.watching import RunWatch

if TYPE_CHECKING:
    from datetime import timedelta

    from reyn.client.transport import ServerSentEvent, Transport
    from reyn.context.budget import FrameSection
    from reyn.journal import Status
    from reyn.journal.results import RunResult
    from reyn.kernel.world.watchers import OnDelta
    from reyn.runs.usage import Grouping

T = TypeVar("T")
_PAGE = 500
_ALL = RunQuery()


class _ListedRuns(msgspec.Struct, frozen=True):
    runs: list[RunRow]
    next: str | None
    unindexed: int


class _DiffText(msgspec.Struct, frozen=True):
    text: str


def run_address(run: str, rest: str = "") -> str:
    """Return the address of a run, or of something about it."""
    return f"/api/runs/{quote(run, safe='')}{rest}"


class RemoteRuns:
    """The recorded runs of a server. The methods are those of `Runs`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    # -- reading --------------------------------------------------------------------------------------

    async def is_recorded(self, run_id: str) -> bool:
        """Return whether there is a run with this id."""
        try:
            return (await self.find(run_id)).run_id == run_id
        except RunNotFound:
            return False

    async def find(self, run: str) -> RunRow:
        """Return a run by its id, or by a unique prefix of it."""
        return (await self._details(run)).run.row

    async def all(self) -> list[RunRow]:
        """Return all runs, newest first. `page` and `select` do not read all of them."""
        return [row async for row in self.select()]

    async def page(self, query: RunQuery = _ALL, *, limit: int = 50, after: str = "") -> RunPage:
        """Return a page of the list of runs, newest first.

        Args:
            query: Which runs to list; by default all. `prefix` is ignored.
            limit: The number of runs, at most 500.
            after: The id of the last run of the page before.
        """
        wanted: dict[str, Any] = {"limit": limit, "after": after, "top": str(query.top).lower()}
        wanted |= {"status": list(query.statuses), "skill": query.skill, "since": query.since, "search": query.search}
        page = await self._transport.call("GET", "/api/runs", _ListedRuns, query=wanted)
        return RunPage(page.runs, page.next, page.unindexed)

    async def select(self, query: RunQuery = _ALL) -> AsyncIterator[RunRow]:
        """Yield the runs of a query, newest first, reading them page by page."""
        after: str | None = ""
        while after is not None:
            page = await self.page(query, limit=_PAGE, after=after)
            for row in page.rows:
                yield row
            if page.next == after or not (page.rows or page.next is None):
                raise GatewayError("the server sent a page again")
            after = page.next

    async def descendants(self, run: str) -> list[RunRow]:
        """Return the sub-runs of a run and theirs, each after its parent."""
        found: dict[str, RunRow] = {}
        while True:
            page = await self._read(run, "/children", list[RunRow], {"start": len(found)})
            if not page:
                return [*found.values()]
            if any(row.run_id in found for row in page):
                raise GatewayError("the server sent a run again")
            found |= {row.run_id: row for row in page}

    async def root_run(self, row: RunRow) -> RunRow:
        """Return the run that started a run and the runs above it."""
        root = (await self._details(row.run_id)).run.root_run
        return row if root == row.run_id else await self.find(root)

    async def display_status(self, row: RunRow) -> str:
        """Return the status of a run that users see."""
        return (await self._details(row.run_id)).run.display_status

    async def next_action(self, row: RunRow) -> NextAction | None:
        """Return the operation that continues a run."""
        return (await self._details(row.run_id)).run.next

    async def open_question(self, row: RunRow) -> OpenQuestion | None:
        """Return the open question of a run or of one of its descendants."""
        asked = (await self._details(row.run_id)).run.question
        if asked is None:
            return None
        return OpenQuestion(await self.find(asked.run_id), asked.question, asked.is_answered)

    async def question_text(self, question: OpenQuestion) -> str:
        """Return the whole text of a question: of an approval, what exactly will be executed."""
        asked = (await self._details(question.run_id)).run.question
        return asked.text if asked is not None else question.question.message

    async def events(self, run: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events of a run after a sequence number."""
        while True:
            found = await self._read(run, "/events", list[EventFields], {"after": after})
            for fields in found:
                event = fields.event
                if event.seq <= after:
                    raise GatewayError("the server sent an event again")
                after = event.seq
                yield event
            if not found:
                return

    async def inbox(self, run: str) -> list[InboxMessage]:
        """Return the messages to a run that it has not taken yet."""
        return await self._read(run, "/inbox", list[InboxMessage])

    async def summary(self, run: str) -> RunSummary:
        """Return what the result of a run and its limits depend on."""
        return await self._read(run, "/summary", RunSummary)

    async def result(self, run: str) -> RunResult:
        """Return the result of a run as recorded so far."""
        return (await self._details(run)).result

    async def changed_files(self, run: str) -> dict[str, str]:
        """Return the files that a run and its descendants changed."""
        return await self._read(run, "/files", dict[str, str])

    async def usage(self, by: Grouping = "day", *, since: int | None = None) -> UsageReport:
        """Return what model calls were charged, and the budgets of today."""
        query = {"by": by, "since": since}
        return await self._transport.call("GET", "/api/usage", UsageReport, query=query)

    async def memory(self, run: str) -> tuple[MemoryEntry, ...]:
        """Return the memory of a run's conversation, the oldest entry first."""
        path = f"/api/conversations/{quote(run, safe='')}/memory"
        return await self._transport.call("GET", path, tuple[MemoryEntry, ...])

    async def conversation_size(self, run: str) -> ConversationSize:
        """Return how large the conversation of a run is, and at which size it is compacted."""
        return await self._read(run, "/size", ConversationSize)

    # -- watching -------------------------------------------------------------------------------------

    def watch(
        self,
        run: str,
        after: int = 0,
        *,
        follow: bool = False,
        with_children: bool = False,
        on_delta: OnDelta | None = None,
    ) -> RunWatch:
        """Return an async iterator over the events of a run. The arguments are those of `Runs.watch`.

        A connection that breaks is opened again after the last event: no event is lost or repeated. Leaving the
        iterator never ends the run.
        """
        return RunWatch(self._watched(run, after, follow, with_children, on_delta))

    async def _watched(
        self, run: str, after: int, follow: bool, with_children: bool, on_delta: OnDelta | None
    ) -> AsyncGenerator[Event]:
        query = {"follow": follow, "children": with_children, "deltas": on_delta is not None}
        seen: dict[str, int] = {}

        def take(sent: ServerSentEvent) -> Event | None:
            if sent.event == "delta" and on_delta is not None:
                on_delta(decoded(sent.data, Delta))
            if sent.event != "event":
                return None
            event = decoded(sent.data, EventFields).event
            if event.seq <= seen.get(event.run_id, 0):  # a child's events may come again with a new connection
                return None
            seen[event.run_id] = event.seq
            return event

        async for event in self._transport.events(run_address(run, "/stream"), take, after, query):
            yield event

    # -- prompts --------------------------------------------------------------------------------------

    async def prompt_at(self, run: str, seq: int | None = None) -> list[tuple[str, str]]:
        """Return role and text of the messages of a frame, by default the last one, and the model's answer."""
        return [(one.role, one.text) for one in (await self.decision_at(run, seq)).messages]

    async def next_prompt(self, run: str, answer: Any = None) -> list[tuple[str, str]]:
        """Return role and text of the messages that a stopped run would send next. Records nothing."""
        body = {"answer": answer}
        found = await self._transport.call("POST", run_address(run, "/prompt"), list[PromptMessage], body)
        return [(one.role, one.text) for one in found]

    async def context_frame(self, run: str, seq: int | None = None) -> ContextFrame:
        """Return the frame at an event of a run, or the last one before it, as a value."""
        return await self._read(run, "/frame", ContextFrame, {"at": seq})

    async def prompt_sections(self, run: str, seq: int | None = None) -> tuple[FrameSection, ...]:
        """Return the estimated tokens of each section of a frame, before and after truncation."""
        return (await self.decision_at(run, seq)).sections

    async def decision_at(self, run: str, seq: int | None = None) -> RecordedDecision:
        """Return the turn of an event, or the last one before it, with everything that is recorded about it."""
        return await self._read(run, "/decision", RecordedDecision, {"at": seq})

    async def visit_contexts(self, run: str) -> AsyncIterator[VisitContext]:
        """Yield the tokens of each visit's prompt by section."""
        for one in await self._read(run, "/contexts", list[VisitContext]):
            yield one

    async def handoffs(self, run: str) -> tuple[PhaseHandoff, ...]:
        """Return the handoffs of a run in the order of the visits."""
        return await self._read(run, "/handoffs", tuple[PhaseHandoff, ...])

    # -- checking -------------------------------------------------------------------------------------

    async def replay(self, run: str) -> ReplayReport:
        """Derive a run again from its recorded inputs and compare every event."""
        return await self._transport.call("POST", run_address(run, "/replay"), ReplayReport, {})

    async def verify(self, run: str, *, head: str | None = None) -> VerifyReport:
        """Check the hashes of all events and contents of a run."""
        return await self._transport.call("POST", run_address(run, "/verify"), VerifyReport, {"head": head})

    async def diff(self, a: str, b: str) -> DiffReport:
        """Return the first decision in which two runs differ, and its cause."""
        return await self._read(a, "/diff", DiffReport, {"other": b})

    async def budgets(self, run: str) -> tuple[BudgetStatus, ...]:
        """Return the limit of tokens of a run, and the budgets that its next model call draws on."""
        return await self._read(run, "/budgets", tuple[BudgetStatus, ...])

    # -- files, archives, deletion --------------------------------------------------------------------

    async def file_diff(self, run: str, path: str) -> str:
        """Return the diff of a file that a run and its descendants changed, from its first state to its last."""
        return (await self._read(run, "/file-diff", _DiffText, {"path": path})).text

    async def undo(self, run: str, *, dry_run: bool = False) -> UndoReport:
        """Restore the files that a run and its descendants changed, newest change first."""
        return await self._transport.call("POST", run_address(run, "/undo"), UndoReport, {"dry_run": dry_run})

    async def prune(
        self, *, older_than: timedelta, statuses: Collection[Status] = ENDED, dry_run: bool = False
    ) -> PruneReport:
        """Delete recorded runs with their sub-runs, workspace folders and unshared content."""
        body = {"older_than": older_than.total_seconds(), "statuses": sorted(statuses), "dry_run": dry_run}
        return await self._transport.call("POST", "/api/prunings", PruneReport, body)

    async def delete(self, runs: Collection[str], *, dry_run: bool = False) -> PruneReport:
        """Delete runs with their sub-runs, background runs, workspace folders and unshared content."""
        body = {"runs": list(runs), "dry_run": dry_run}
        return await self._transport.call("POST", "/api/deletions", PruneReport, body)

    async def export(self, run: str) -> AsyncIterator[bytes]:
        """Yield the lines of an archive of a run, its origins and its sub-runs, for `reyn import`."""
        async for line in self._transport.lines(run_address(run, "/export")):
            yield line

    async def _details(self, run: str) -> RunDetails:
        return await self._transport.call("GET", run_address(run), RunDetails)

    async def _read(self, run: str, rest: str, result: type[T], query: dict[str, Any] | None = None) -> T:
        return await self._transport.call("GET", run_address(run, rest), result, query=query)
