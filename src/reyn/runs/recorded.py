"""`Runs`: the recorded runs of a project, as `rt.runs`. Reads, checks, compares, exports and deletes them.

The other modules of this package implement the operations; this one binds them to the journal of a project. What
executes a run is in `reyn.runtime`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context.selfref import memory_text
from reyn.context.tokens import estimate_tokens
from reyn.errors import ChainBroken, ConversationInvalid, ResourceNotFound
from reyn.journal import ENDED, Status
from reyn.journal.family import check_not_imported
from reyn.kernel.core.conversations import ConversationSize
from reyn.kernel.core.run_state import EMPTY
from reyn.kernel.world.budgets import budgeted_run, runs_above
from reyn.kernel.world.environments import roots_of
from reyn.kernel.world.loading import load_state
from reyn.ops.preview import file_diff
from reyn.runs.archive import ImportLimits, export_runs, read_archive
from reyn.runs.decisions import RecordedDecision, read_decision
from reyn.runs.diff import DiffReport, compare, side_of
from reyn.runs.environments import environment_notes
from reyn.runs.frames import RecordedPrompt, VisitContext, read_handoffs, visit_contexts
from reyn.runs.importing import ImportReport, check_archive, import_runs
from reyn.runs.inspection import Inspections, RunInspection
from reyn.runs.preview import next_prompt, settled_state
from reyn.runs.prune import PruneReport, delete_runs, prune
from reyn.runs.reading import RecordedRuns
from reyn.runs.replayer import Replayer, verify
from reyn.runs.run_files import RunFiles, UndoReport
from reyn.runs.usage import BudgetStatus, run_budgets
from reyn.runs.watching import RunWatch, Tail, watched_events
from reyn.workspace import PathInvalid, locate
from reyn.workspace.restore import changed_images

if TYPE_CHECKING:
    from datetime import timedelta

    from reyn.context import NormalizedMessageList
    from reyn.context.budget import FrameSection
    from reyn.context.frame import ContextFrame
    from reyn.context.handoff import PhaseHandoff
    from reyn.context.messages import MemoryEntry
    from reyn.journal.summary import RunSummary
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.runtime_types import ReplayReport, VerifyReport
    from reyn.kernel.world.services import Services
    from reyn.kernel.world.watchers import OnDelta


_IMPORT_LIMITS = ImportLimits()


def last_conversation(state: RunState) -> str | None:
    """Return the phase of a run's conversation, the one that was visited last if there are several."""
    entered = (state.phase, *reversed(state.path), *reversed(state.history.visits))
    return next((name for name in entered if state.holds_conversation(name)), None)


class Runs(RecordedRuns):
    """The recorded runs of a project. A run is named by its id or by a unique prefix of it."""

    def __init__(self, services: Services) -> None:
        def now() -> int:
            return services.clock.now()

        super().__init__(lambda: services.existing_journal, lambda: services.budgets, now)
        self._services = services
        self._inspections = Inspections(lambda: services.existing_journal)

    # -- reading --------------------------------------------------------------------------------------

    def state(self, run: str) -> RunState:
        """Return the state of a run: the fold of all its events."""
        state = load_state(self._journal, self.find(run).run_id)
        if state is EMPTY:
            raise ChainBroken(f"event 1 of run `{run}` is missing")
        return state

    def summary(self, run: str) -> RunSummary:
        """Return the summary of a run: what its result and its limits depend on."""
        return self.state(run)

    def memory(self, run: str) -> tuple[MemoryEntry, ...]:
        """Return the memory of a run's conversation, the oldest entry first."""
        state = self.state(run)
        return state.memory(last_conversation(state) or state.phase).entries

    def conversation_size(self, run: str) -> ConversationSize:
        """Return how large the conversation of a run is, and at which size it is compacted."""
        state = self.state(run)
        compiled = self._services.compile_skill(state.started)
        name = last_conversation(state) or state.phase
        phase = compiled.phase(name, state) if name in compiled.skill.phases else None
        found = state.transcript(name)
        if phase is None or phase.conversation is None:
            return ConversationSize(found.tokens, 0, 0, 0)
        pinned = estimate_tokens(memory_text(state.memory(name).entries))
        return ConversationSize(
            found.tokens, phase.transcript_tokens(state), pinned, phase.memory_tokens(state), found.wants_compaction
        )

    def transcript(self, run: str, phase: str | None = None) -> NormalizedMessageList:
        """Return the messages of a conversation with their texts, those of its history included.

        A turn that has stopped has what it completed, and says which calls were not executed.

        Args:
            run: The run.
            phase: The phase that is the conversation; by default the last one that the run visited.

        Raises:
            ConversationInvalid: The run has no conversation, or none in this phase.
        """
        state = self.state(run)
        name = last_conversation(state) if phase is None else phase
        if name is None or not state.holds_conversation(name):
            where = f" in phase `{name}`" if name is not None else ""
            hint = "Use a run with a phase that is a conversation, and the name of this phase."
            raise ConversationInvalid(f"run `{state.run_id}` has no conversation{where}", hint=hint)
        state, content = settled_state(self._journal, state, self._services.compile_skill)
        return state.transcript(name).rendered(content)

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
        """Return an async iterator over the events of a run, the recorded ones and then new ones as they are committed.

        Any process may execute the run. It ends when the run ends or stops; leaving it does not interrupt the run. A
        reader that was cut off passes the last sequence number that it has, and misses and repeats nothing.

        Args:
            run: The run.
            after: The events after this sequence number.
            follow: Go on when the run stops, until it ends for good: it may be answered, resumed or retried.
            with_children: Also yield the events of the runs that it awaits, in the order of `listener`. Those of a
                child in progress at `after` are yielded from its first one.
            on_delta: A callback that receives the pieces of the model's answers while this process executes the run.
                A model call that has begun before may not stream.

        Raises:
            RunNotFound: There is no such run, or it is deleted meanwhile.
        """
        run_id = self.find(run).run_id
        tail = Tail(self._services, run_id, after, has_children=with_children, on_delta=on_delta)
        return RunWatch(watched_events(tail, follow=follow))

    def inspect(self, run: str) -> RunInspection:
        """Return a view of a run for pages: its lines, its spans and its state at any event, each event read once."""
        return self._inspections.of(self.find(run))

    # -- prompts --------------------------------------------------------------------------------------

    def prompt_at(self, run: str, seq: int | None = None) -> list[tuple[str, str]]:
        """Return role and text of the messages of a frame, by default the last one, and the model's answer."""
        return self._prompt(run, seq).with_answer

    def _prompt(self, run: str, seq: int | None) -> RecordedPrompt:
        row = self.find(run)
        return RecordedPrompt.at(row.run_id, self._journal.read(row.run_id), seq, self._journal.blob)

    def decision_at(self, run: str, seq: int | None = None) -> RecordedDecision:
        """Return the turn of an event, or the last one before it: prompt, answer, exits on offer, errors, tokens, cost.

        Raises:
            RunNotFound: There is no such run, or no turn at or before the event.
        """
        inspection = self.inspect(run)
        turn = inspection.turn_at(seq)
        return read_decision(turn, inspection.events_of(turn), self._journal.blob, self._services.compile_skill)

    async def next_prompt(self, run: str, answer: Any = None) -> list[tuple[str, str]]:
        """Return role and text of the messages that a stopped run would send next. Records nothing.

        Args:
            run: The run.
            answer: The answer to its open question; in a conversation, the user's next message.

        Raises:
            RunNotResumable: The run does not call its model next.
        """
        row, reader = self.find(run), self._services.performer.read_overviews
        return await next_prompt(self._journal, row.run_id, self._services.compile_skill, answer, read_overviews=reader)

    def context_frame(self, run: str, seq: int | None = None) -> ContextFrame:
        """Return the frame at an event of a run, or the last one before it, as a value; by default the last frame."""
        return self._prompt(run, seq).context_frame(self._services.compile_skill)

    def prompt_sections(self, run: str, seq: int | None = None) -> tuple[FrameSection, ...]:
        """Return the estimated tokens of each section of a frame, by default the last, before and after truncation."""
        return self._prompt(run, seq).sections

    def visit_contexts(self, run: str) -> Iterator[VisitContext]:
        """Yield the tokens of each visit's prompt by section, and the tokens that a prompt cache served."""
        return visit_contexts(self.events(run), self._journal.blob)

    def handoffs(self, run: str) -> tuple[PhaseHandoff, ...]:
        """Return the handoffs of a run in the order of the visits, also those that a rollback discarded later."""
        return tuple(read_handoffs(self.events(run), self._journal.blob))

    # -- checking -------------------------------------------------------------------------------------

    async def replay(self, run: str) -> ReplayReport:
        """Derive a run again from its recorded inputs and compare every event."""
        services = self._services
        replayer = Replayer(self._journal, services.compile_skill, services.ops, self._resolve_links)
        report = await replayer.replay(self.find(run).run_id)
        return msgspec.structs.replace(
            report, notes=environment_notes(services.performer.environments.packages, replayer.environments)
        )

    def _resolve_links(self, path: str) -> str:
        """Return the path that a change of a file records for the path in an op's arguments."""
        try:
            return locate(path, roots_of(self._services.root, self._services.state_folder, "")).display_path
        except PathInvalid:
            return path

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
        return verify(self._journal, self.find(run).run_id, head)

    def diff(self, a: str, b: str) -> DiffReport:
        """Return the first decision in which two runs differ, and its cause."""
        content = self._journal.blob
        one, other = (side_of(row.run_id, self.events(row.run_id), content) for row in map(self.find, (a, b)))
        return compare(one, other, content)

    def budgets(self, run: str) -> tuple[BudgetStatus, ...]:
        """Return the limit of tokens of a run, and the budgets that its next model call draws on.

        Those are the budgets of the run, of runs above it, of their skills, and of the day.
        """
        services, state = self._services, self.state(run)
        settings = services.settings_of(state.started)
        above = runs_above(self._journal, state.started, services.settings_of)
        own = budgeted_run(state, settings)
        budgets = run_budgets(self._journal, services.budgets, own, above, services.clock.now())
        limit = state.raised.get("tokens", settings.limits.tokens)
        return budgets if limit is None else (BudgetStatus("tokens", "", limit, state.usage.total, 0), *budgets)

    # -- files, archives, deletion --------------------------------------------------------------------

    @cached_property
    def files(self) -> RunFiles:
        """The files that runs changed, behind the permission gate."""
        services = self._services
        return RunFiles(
            services.root,
            services.state_folder,
            services.journal,
            services.clock,
            services.config.sizes.file_bytes,
            services.read_policy,
            services.performer.environments.gate_of,
        )

    def file_diff(self, run: str, path: str) -> str:
        """Return the diff of a file that a run and its descendants changed, from its first state to its last.

        Raises:
            ResourceNotFound: They did not change it.
        """
        images = changed_images(self._journal, self._family(run))
        if path not in images:
            raise ResourceNotFound(f"run `{run}` changed no file {path!r}")
        before, after = (self._journal.blob(name) if name is not None else None for name in images[path])
        return file_diff(path, before, after)

    def undo(self, run: str, *, dry_run: bool = False) -> UndoReport:
        """Restore the files that a run and its descendants changed, newest change first.

        Leaves a file as it is if another program changed it since, or if the run may not write it now.

        Raises:
            RunImported: The run was imported.
        """
        check_not_imported(self.find(run), "undone: its changes were made elsewhere")
        if not dry_run:
            self._services.check_owner()
        return self.files.undo(self._family(run), dry_run=dry_run)

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
        services = self._services
        if not services.has_journal:  # perhaps it was moved: then no workspace folder is without a run
            return PruneReport(is_dry=dry_run)
        if not dry_run:
            services.check_owner()
        return prune(
            services.journal,
            services.state_folder,
            now=services.clock.now(),
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
        names, services = [self.find(run).run_id for run in runs], self._services
        if not dry_run:
            services.check_owner()
        return delete_runs(services.journal, services.state_folder, names, dry_run=dry_run)

    def export(self, run: str) -> Iterator[bytes]:
        """Yield the lines of an archive of a run, its origins and its sub-runs, for `import_`."""
        return export_runs(self._journal, self.find(run).run_id)

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
        services = self._services
        services.check_owner()
        checked = check_archive(read_archive(lines, limits), limits)
        report = import_runs(services.journal, checked, origin)
        for row in map(self.find, (*report.imported, *report.known)):
            if row.imported and self.state(row.run_id).workspace == row.run_id:
                self.files.recreate_workspace(row.run_id, row.run_id, row.seq, row.updated)
        return report
