"""The operations of a runtime on recorded runs: read, replay, verify, compare, undo, prune, export and import them.

`reyn.runs` implements them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.journal import ENDED
from reyn.journal.family import root_run
from reyn.kernel.core.run_state import fold
from reyn.kernel.world.budgets import budgeted_run, runs_above
from reyn.runs.archive import ImportLimits, read_archive
from reyn.runs.importing import check_archive, check_not_imported, import_runs
from reyn.runs.next_action import next_action
from reyn.runs.prune import PruneReport, delete_runs, prune
from reyn.runs.questions import open_question, question_text
from reyn.runs.usage import BudgetStatus, run_budgets, usage_report
from reyn.runtime.base import RuntimeBase
from reyn.runtime.executor import ungranted_requests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import timedelta

    from reyn.context import NormalizedMessageList
    from reyn.context.budget import FrameSection
    from reyn.context.frame import ContextFrame
    from reyn.context.transcript import MemoryEntry
    from reyn.errors import NextAction
    from reyn.journal import Event, InboxMessage, RunRow, Status
    from reyn.kernel.core.conversations import ConversationSize
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.runtime_types import ReplayReport, RunResult, VerifyReport
    from reyn.runs.diff import DiffReport
    from reyn.runs.frames import VisitContext
    from reyn.runs.importing import ImportReport
    from reyn.runs.questions import OpenQuestion
    from reyn.runs.undo import UndoReport
    from reyn.runs.usage import Grouping, UsageReport

_IMPORT_LIMITS = ImportLimits()


class RecordedRuns(RuntimeBase):
    """The recorded runs of a project. A run is named by its id or by a unique prefix of it."""

    def is_recorded(self, run_id: str) -> bool:
        """Return whether a run of exactly this id exists."""
        return self._project.existing_journal.find(run_id) is not None

    def find(self, run: str) -> RunRow:
        """Return a run by its id, or by a unique prefix of it.

        Raises:
            RunNotFound: There is no such run, or the prefix is ambiguous.
        """
        return self._project.reader.find(run)

    def runs(self) -> list[RunRow]:
        """Return all runs, newest first."""
        return self._project.reader.runs()

    def root_run(self, row: RunRow) -> RunRow:
        """Return the root run of a sub-run, or the run itself."""
        return root_run(self._project.existing_journal, row)

    def display_status(self, row: RunRow) -> str:
        """Return the status of a run for users, including `running (interrupted)` and `blocked`."""
        return self._project.reader.display_status(row)

    def next_action(self, row: RunRow) -> NextAction | None:
        """Return the operation that continues a run; `None` if there is none, or if a live process executes the run."""
        return next_action(self._project.existing_journal, row)

    def open_question(self, row: RunRow) -> OpenQuestion | None:
        """Return the open question of a run or of one of its descendants."""
        return open_question(self._project.existing_journal, row)

    def question_text(self, question: OpenQuestion) -> str:
        """Return the text of a question. Unlike its `message`, the preview of an approval is not truncated."""
        return question_text(self._project.existing_journal, question)

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        """Yield the events of a run after a sequence number."""
        return self._project.reader.events(run, after)

    def inbox(self, run: str) -> list[InboxMessage]:
        """Return the messages to a run that it has not recorded yet."""
        row = self._project.reader.find(run)
        return self._project.existing_journal.drain(row.run_id, row.messages_taken)

    def content(self, hash: str) -> bytes:
        """Return content that an event refers to, by its hash."""
        return self._project.existing_journal.blob(hash)

    def state(self, run: str) -> RunState:
        """Return the state of a run: the fold of all its events."""
        return self._project.reader.state(run)

    def result(self, run: str) -> RunResult:
        """Return the result of a run as recorded so far."""
        return self._project.reader.result(run)

    def memory(self, run: str) -> tuple[MemoryEntry, ...]:
        """Return the memory of a run's conversation, the oldest entry first."""
        state = self._project.reader.state(run)
        return state.memory(state.phase).entries

    def conversation_size(self, run: str) -> ConversationSize:
        """Return how large the conversation of a run is, and at which size it is compacted."""
        return self._project.reader.conversation_size(self._project.reader.state(run))

    def prompt_at(self, run: str, seq: int | None = None) -> list[tuple[str, str]]:
        """Return role and text of the messages of a frame, by default the last one, and the model's answer."""
        return self._project.reader.prompt_at(run, seq)

    def transcript(self, run: str, phase: str | None = None) -> NormalizedMessageList:
        """Return the messages of a conversation with their texts, those of its history included.

        Args:
            run: The run.
            phase: The phase that is the conversation; by default the phase of the run's last visit.

        Raises:
            RunNotFound: The run has no conversation in this phase.
        """
        return self._project.reader.transcript(run, phase)

    async def next_prompt(self, run: str, answer: Any = None) -> list[tuple[str, str]]:
        """Return role and text of the messages that a stopped run would send next. Records nothing.

        Args:
            run: The run.
            answer: The answer to its open question; in a conversation, the user's next message.

        Raises:
            RunNotResumable: The run does not call its model next.
        """
        reader = self._executor.op_performer.read_overviews
        return await self._project.reader.next_prompt(run, answer, read_overviews=reader)

    def context_frame(self, run: str, seq: int | None = None) -> ContextFrame:
        """Return the frame at an event of a run, or the last one before it, as a value; by default the last frame."""
        return self._project.reader.context_frame(run, seq)

    def prompt_sections(self, run: str, seq: int | None = None) -> tuple[FrameSection, ...]:
        """Return the estimated tokens of each section of a frame, by default the last, before and after truncation."""
        return self._project.reader.prompt_sections(run, seq)

    def visit_contexts(self, run: str) -> Iterator[VisitContext]:
        """Yield the tokens of each visit's prompt by section, and the tokens that a prompt cache served."""
        return self._project.reader.visit_contexts(run)

    async def replay(self, run: str) -> ReplayReport:
        """Derive a run again from its recorded inputs and compare every event."""
        return await self._project.reader.replay(run)

    def verify(self, run: str, *, head: str | None = None) -> VerifyReport:
        """Check the hashes of all events and contents of a run, and of the sub-runs whose results it took.

        Args:
            run: The run.
            head: The hash of an event of the run, noted outside the journal. A user who can write the journal can
                compute new hashes for a changed history, but cannot make one of them equal to this hash.

        Raises:
            ChainBroken: An event is wrong or missing.
            BlobMissing: Content is missing or damaged.
            HeadMismatch: No event has the hash `head`.
        """
        return self._project.reader.verify(run, head)

    def diff(self, a: str, b: str) -> DiffReport:
        """Return the first decision in which two runs differ, and its cause."""
        return self._project.reader.diff(a, b)

    def permission_warnings(self, run: str) -> tuple[str, ...]:
        """Return a message for each request of a run and of its pinned sub-skills that no rule grants."""
        started = self._project.reader.state(run).started
        assert started is not None
        return ungranted_requests(self._project, started, self._project.existing_journal.blob)

    def undo(self, run: str, *, dry_run: bool = False) -> UndoReport:
        """Restore the files that a run and its descendants changed, newest change first.

        Leaves a file as it is if another program changed it since, or if the run may not write it now.

        Raises:
            RunImported: The run was imported.
        """
        check_not_imported(self._project.reader.find(run), "undone: its changes were made elsewhere")
        if not dry_run:
            self._project.check_owner()
        family = self._project.reader.family(run)
        return self._files.undo(family, dry_run=dry_run)

    def changed_files(self, run: str) -> dict[str, str]:
        """Return the files that a run and its descendants changed: `new`, `changed` or `deleted` by path."""
        family = self._project.reader.family(run)
        return self._files.changed_files(family)

    def prune(
        self, *, older_than: timedelta, statuses: Collection[Status] = ENDED, dry_run: bool = False
    ) -> PruneReport:
        """Delete recorded runs with their sub-runs, workspace folders and unshared content.

        A run stays if a fork that is not deleted continues from it, if an unfinished run uses it as its model
        (`recorded:RUN`), or if a process executes it.

        Args:
            older_than: The minimum time since the last event of a run or of its sub-runs.
            statuses: The statuses of the runs to delete; by default those that have ended.
            dry_run: Report only.
        """
        if not self._project.has_journal:  # perhaps it was moved: then no workspace folder is without a run
            return PruneReport(is_dry=dry_run)
        if not dry_run:
            self._project.check_owner()
        return prune(
            self._project.journal,
            self._project.state_folder / "workspace",
            now=self._project.clock.now(),
            older_than=older_than,
            statuses=statuses,
            dry_run=dry_run,
        )

    def delete(self, runs: Collection[str], *, dry_run: bool = False) -> PruneReport:
        """Delete runs with their sub-runs, background runs, workspace folders and unshared content.

        Args:
            runs: The runs, by id or by a unique prefix of it. A sub-run is deleted with its whole family.
            dry_run: Report only.

        Raises:
            RunNotFound: There is no such run.
            RunInUse: A run that is not deleted needs one of them. Nothing is deleted.
            RunBusy: A process executes one of them. Nothing is deleted.
        """
        names = [self._project.reader.find(run).run_id for run in runs]
        if not dry_run:
            self._project.check_owner()
        return delete_runs(self._project.journal, self._project.state_folder / "workspace", names, dry_run=dry_run)

    def usage(self, by: Grouping = "day", *, since: int | None = None) -> UsageReport:
        """Return what model calls were charged, and the budgets of today.

        Args:
            by: What to group by: `day`, `skill`, `model` or `run`.
            since: A time in microseconds since 1970; earlier days are left out.
        """
        project = self._project
        first = project.budgets.day(since) if since is not None else ""
        return usage_report(project.existing_journal, project.budgets, by, since=first, now=project.clock.now())

    def budgets(self, run: str) -> tuple[BudgetStatus, ...]:
        """Return the limit of tokens of a run, and the budgets that its next model call draws on.

        Those are the budgets of the run, of runs above it, of their skills, and of the day.
        """
        project = self._project
        state = project.reader.state(run)
        assert state.started is not None
        settings = project.reader.compile_skill(state.started).settings
        above = runs_above(
            project.existing_journal, state.started, lambda started, _: project.reader.compile_skill(started).settings
        )
        own = budgeted_run(state, settings)
        budgets = run_budgets(project.existing_journal, project.budgets, own, above, project.clock.now())
        limit = state.raised.get("tokens", settings.limits.tokens)
        return budgets if limit is None else (BudgetStatus("tokens", "", limit, state.models.usage.total, 0), *budgets)

    def export(self, run: str) -> Iterator[bytes]:
        """Yield the lines of an archive of a run, its origins and its sub-runs, for `import_`."""
        return self._project.reader.export(run)

    def import_(
        self, lines: Iterable[bytes], *, origin: str = "an archive", limits: ImportLimits = _IMPORT_LIMITS
    ) -> ImportReport:
        """Import exported runs, all of them or none, and recreate the files of their workspaces.

        Imported runs can be read, verified and replayed. `fork` and `rerun` continue them; nothing else does.

        Args:
            lines: The lines of an archive, or a binary file.
            origin: Where the archive comes from; `RunRow.imported` shows it.
            limits: The largest archive to read.

        Raises:
            ArchiveInvalid: The archive, or one of its runs, is invalid. Nothing was stored.
            ArchiveTooLarge: The archive exceeds the limits. Nothing was stored.
            RunIdTaken: A different run with the same id exists. Nothing was stored.
        """
        self._project.check_owner()
        checked = check_archive(read_archive(lines, limits), limits)
        report = import_runs(self._project.journal, checked, origin)
        for run in (*report.imported, *(run for run in report.known if self._project.reader.find(run).imported)):
            events = list(self._project.journal.read(run))
            if fold(events).workspace == run:
                self._files.recreate_workspace(run, run, events[-1])
        return report
