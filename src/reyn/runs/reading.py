"""`RecordedRuns`: what the journal alone shows of runs. `Runs` adds what executes, compares or changes them.

Imports no kernel, so that a program that only looks starts fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.errors import RunNotFound
from reyn.journal.family import OpenQuestion, descendants, find_run, open_question, root_run
from reyn.journal.indexing import index_runs
from reyn.journal.listing import RECORDED_AS, RunQuery
from reyn.journal.results import RunResult, display_status, has_shown_status
from reyn.journal.summary import RunSummary, summarize, to_result
from reyn.runs.next_action import edit_draft, next_action, question_text
from reyn.runs.usage import Grouping, UsageReport, usage_report
from reyn.workspace.restore import changed_files

if TYPE_CHECKING:
    from reyn.config.budgets import DayBudgets
    from reyn.errors import NextAction
    from reyn.journal import Event, InboxMessage, Journal, RunRow


_ALL = RunQuery()
_PAGE = 200


class RunPage(NamedTuple):
    """A page of the list of runs.

    Attributes:
        rows: The runs.
        next: The id to pass as `after` for the next page; `None` if there is none.
        unindexed: The number of runs that a search does not find yet, up to 100,000: the oldest.
    """

    rows: list[RunRow]
    next: str | None
    unindexed: int = 0


class RecordedRuns:
    """The runs of a journal. A run is named by its id or by a unique prefix of it."""

    def __init__(self, journal: Callable[[], Journal], days: Callable[[], DayBudgets], now: Callable[[], int]) -> None:
        """Read the runs of a journal.

        Args:
            journal: Returns the journal.
            days: Returns the budgets of the project.
            now: Returns the time, in microseconds since 1970.
        """
        self._open_journal = journal
        self._days = days
        self._now = now

    @property
    def _journal(self) -> Journal:
        return self._open_journal()

    def is_recorded(self, run_id: str) -> bool:
        """Return whether a run of exactly this id exists."""
        return self._journal.find(run_id) is not None

    def find(self, run: str) -> RunRow:
        """Return a run by its id, or by a unique prefix of it.

        Raises:
            RunNotFound: There is no such run, or the prefix is ambiguous.
        """
        return find_run(self._journal, run)

    def all(self) -> list[RunRow]:
        """Return all runs, newest first. `page` and `select` do not read all of them."""
        return self._journal.runs()

    def page(self, query: RunQuery = _ALL, *, limit: int = 50, after: str = "") -> RunPage:
        """Return a page of the list of runs, newest first.

        With a search, first stores the words of runs that are not indexed yet, for about a second.

        Args:
            query: Which runs to list; by default all.
            limit: The number of runs.
            after: The id of the last run of the page before.

        Raises:
            RunNotFound: There is no run `after`, maybe not any more.
            StoreUnavailable: Runs are not indexed, and the journal cannot be written.
        """
        if after and self._journal.find(after) is None:
            raise RunNotFound(f"no run `{after}` to continue the list after; begin with the first page again")
        unindexed = index_runs(self._journal) if query.search else 0
        rows = self._rows(query, limit + 1, after)
        return RunPage(rows[:limit], rows[limit - 1].run_id if len(rows) > limit else None, unindexed)

    def _rows(self, query: RunQuery, count: int, after: str) -> list[RunRow]:
        """Return the first runs of a query. What is shown of a run is asked for as many rows as have its status."""
        if not any(status in RECORDED_AS for status in query.statuses):
            return self._journal.page(query, count, after)
        recorded = dict.fromkeys(one for status in query.statuses for one in RECORDED_AS.get(status, (status,)))
        wide, is_last = replace(query, statuses=tuple(recorded)), False
        found: list[RunRow] = []
        while len(found) < count and not is_last:
            rows = self._journal.page(wide, _PAGE, after)
            claimed = self._journal.claimed([row.run_id for row in rows])
            found += [row for row in rows if has_shown_status(row, query.statuses, is_claimed=row.run_id in claimed)]
            is_last, after = len(rows) < _PAGE, rows[-1].run_id if rows else ""
        return found[:count]

    def select(self, query: RunQuery = _ALL) -> Iterator[RunRow]:
        """Yield the runs of a query, newest first, reading them page by page."""
        after: str | None = ""
        while after is not None:
            page = self.page(query, limit=_PAGE, after=after)
            yield from page.rows
            after = page.next

    def descendants(self, run: str) -> list[RunRow]:
        """Return the sub-runs of a run and theirs, each after its parent."""
        return descendants(self._journal, self.find(run).run_id)

    def index(self, *, seconds: float = 1.0) -> int:
        """Store the words that runs are searched by; return the number of runs that are still to be indexed.

        Searches and idle workers do the same, so that only a program with very many runs calls it.

        Args:
            seconds: Stop after this time.
        """
        return index_runs(self._journal, seconds=seconds)

    def root_run(self, row: RunRow) -> RunRow:
        """Return the root run of a sub-run, or the run itself."""
        return root_run(self._journal, row)

    def display_status(self, row: RunRow) -> str:
        """Return the status of a run for users, including `running (interrupted)`, `queued` and `blocked`."""
        return display_status(row, is_claimed=self._journal.is_claimed(row.run_id))

    def next_action(self, row: RunRow) -> NextAction | None:
        """Return the operation that continues a run; `None` if there is none, or if a live process executes the run."""
        return next_action(self._journal, row)

    def open_question(self, row: RunRow) -> OpenQuestion | None:
        """Return the open question of a run or of one of its descendants."""
        return open_question(self._journal, row)

    def open_questions(self, run: str = "") -> list[OpenQuestion]:
        """Return the open questions and approvals, the oldest first. What a conversation waits for is no question.

        Args:
            run: Only those of this run and the runs below it.
        """
        found = []
        for row in self.select(RunQuery(("waiting",), prefix=run)):
            is_own = row.wait is not None and row.wait.run is None and not row.wait.is_message
            if is_own and (not run or f"{row.run_id}.".startswith(f"{run}.")):
                found += [one for one in (self.open_question(row),) if one is not None]
        return sorted(found, key=lambda one: one.row.updated)

    def question_text(self, question: OpenQuestion) -> str:
        """Return the text of a question. Unlike its `message`, the preview of an approval is not truncated."""
        return question_text(self._journal, question)

    def edit_draft(self, question: OpenQuestion) -> dict[str, Any] | None:
        """Return the reply `edit` with the op or the artifact that was proposed; `None` if it takes no such reply."""
        return edit_draft(self._journal, question)

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        """Yield the events of a run after a sequence number."""
        return self._journal.read(self.find(run).run_id, after)

    def inbox(self, run: str) -> list[InboxMessage]:
        """Return the messages to a run that it has not recorded yet."""
        row = self.find(run)
        return self._journal.drain(row.run_id, row.messages_taken)

    def content(self, hash: str) -> bytes:
        """Return content that an event refers to, by its hash."""
        return self._journal.blob(hash)

    def summary(self, run: str) -> RunSummary:
        """Return the summary of a run: what its result and its limits depend on."""
        return summarize(self.events(run))

    def result(self, run: str) -> RunResult:
        """Return the result of a run as recorded so far."""
        return to_result(self.summary(run), self._journal.blob)

    def _family(self, run: str) -> list[str]:
        """Return the ids of a run and its descendants."""
        return [self.find(run).run_id, *(child.run_id for child in self.descendants(run))]

    def changed_files(self, run: str) -> dict[str, str]:
        """Return the files that a run and its descendants changed: `new`, `changed` or `deleted` by path."""
        return changed_files(self._journal, self._family(run))

    def usage(self, by: Grouping = "day", *, since: int | None = None) -> UsageReport:
        """Return what model calls were charged, and the budgets of today.

        Args:
            by: What to group by: `day`, `skill`, `model` or `run`.
            since: A time in microseconds since 1970; earlier days are left out.
        """
        days = self._days()
        first = days.day(since) if since is not None else ""
        return usage_report(self._journal, days, by, since=first, now=self._now())
