"""`RecordedRuns`: read, verify, replay and compare the runs of a project. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.kernel.op_performer import requests_above
from reyn.permissions.explain import explain_requests, ungranted
from reyn.runs.family import root_run
from reyn.runs.next_action import next_action
from reyn.runs.questions import open_question, question_text
from reyn.runtime.project import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.context import FrameSection
    from reyn.errors import NextAction
    from reyn.journal import Event, RunRow, kinds
    from reyn.kernel.run_state import RunState
    from reyn.kernel.runtime_types import ReplayReport, RunResult, VerifyReport
    from reyn.runs.diff import DiffReport
    from reyn.runs.frames import VisitContext
    from reyn.runs.questions import Question


class RecordedRuns(Project):
    """A project and the runs that it has recorded. A run is named by its id or by a unique prefix of it."""

    def is_recorded(self, run_id: str) -> bool:
        """Whether a run of exactly this id exists."""
        return self._existing_journal.find(run_id) is not None

    def find(self, run: str) -> RunRow:
        """Return a run by its id, or by a unique prefix of it.

        Raises:
            RunNotFound: There is no such run, or the prefix is ambiguous.
        """
        return self._reader.find(run)

    def runs(self) -> list[RunRow]:
        """Return all runs, newest first."""
        return self._reader.runs()

    def root_run(self, row: RunRow) -> RunRow:
        """Return the root run of a sub-run, or the run itself."""
        return root_run(self._existing_journal, row)

    def display_status(self, row: RunRow) -> str:
        """Return the status of a run for users, including `running (interrupted)` and `blocked`."""
        return self._reader.display_status(row)

    def next_action(self, row: RunRow) -> NextAction | None:
        """Return the operation that continues a run; `None` if there is none, or if a live process executes the run."""
        return next_action(self._existing_journal, row)

    def open_question(self, row: RunRow) -> Question | None:
        """Return the open question of a run or of one of its descendants."""
        return open_question(self._existing_journal, row)

    def question_text(self, question: Question) -> str:
        """Return the text of a question; unlike its `message`, with the whole preview of what is to be approved."""
        return question_text(self._existing_journal, question)

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        """Yield the events of a run after a sequence number."""
        return self._reader.events(run, after)

    def content(self, hash: str) -> bytes:
        """Return content that an event refers to, by its hash."""
        return self._existing_journal.blob(hash)

    def state(self, run: str) -> RunState:
        """Return the state of a run: the fold of all its events."""
        return self._reader.state(run)

    def result(self, run: str) -> RunResult:
        """Return the result of a run as recorded so far."""
        return self._reader.result(run)

    def frame_at(self, run: str, seq: int | None = None) -> list[tuple[str, str]]:
        """Return role and text of the messages of a frame, by default the last one, and the model's answer."""
        return self._reader.frame_at(run, seq)

    def frame_sections(self, run: str, seq: int | None = None) -> tuple[FrameSection, ...]:
        """Return the estimated tokens of each section of a frame, by default the last one, and of what was
        truncated."""
        return self._reader.frame_sections(run, seq)

    def visit_contexts(self, run: str) -> Iterator[VisitContext]:
        """Yield where the tokens of each visit's prompt went, and what a prompt cache served."""
        return self._reader.visit_contexts(run)

    async def replay(self, run: str) -> ReplayReport:
        """Derive a run again from its recorded inputs and compare every event."""
        return await self._reader.replay(run)

    def verify(self, run: str, *, head: str | None = None) -> VerifyReport:
        """Check the hashes of all events and contents of a run, and of the sub-runs whose results it took.

        Args:
            run: The run.
            head: The hash of an event of the run that was noted elsewhere. A user who can write the journal can compute
                all of its hashes, but not make another history end with this one.

        Raises:
            ChainBroken: An event is wrong or missing.
            BlobMissing: Content is missing or damaged.
            HeadMismatch: No event has the hash `head`.
        """
        return self._reader.verify(run, head)

    def diff(self, a: str, b: str) -> DiffReport:
        """Return the first decision in which two runs differ, and its cause."""
        return self._reader.diff(a, b)

    def export(self, run: str) -> Iterator[bytes]:
        """Yield the lines of an archive of a run, its origins and its sub-runs, for `import_`."""
        return self._reader.export(run)

    def permission_warnings(self, run: str) -> tuple[str, ...]:
        """Return a message for each request of a run and of its pinned sub-skills that no rule grants."""
        started = self.state(run).started
        assert started is not None
        return self._ungranted(started, self._existing_journal.blob)

    def _ungranted(self, started: kinds.RunStarted, content: Callable[[str], bytes]) -> tuple[str, ...]:
        skill = self._reader.compile_skill(started, content).skill
        above = requests_above(started, content)
        found = ungranted(skill.name, explain_requests(skill.name, skill.permissions, self._policy, above))
        for one in skill.skills.values():
            outer = (skill.permissions, *above)
            found += ungranted(one.name, explain_requests(one.name, one.permissions, self._policy, outer))
        return tuple(found)
