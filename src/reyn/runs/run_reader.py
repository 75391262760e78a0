"""Read recorded runs: find, list, fold, replay, verify, compare and export them. Changes nothing.

The other modules of this package implement the operations; this one binds them to a journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import RunSettings
from reyn.context.selfref import memory_text
from reyn.context.tokens import estimate_tokens
from reyn.errors import BlobMissing, ChainBroken, RunBlocked, RunNotFound, hint_of
from reyn.journal.family import descendants
from reyn.kernel.core.conversations import ConversationSize
from reyn.kernel.runtime_types import Cost, ReplayReport, RunResult, VerifyReport, display_status
from reyn.kernel.visit.compiled_skill import CompiledSkill
from reyn.kernel.world.loading import load_state, unpin_ops
from reyn.runs.archive import export_runs
from reyn.runs.context_frames import context_frame
from reyn.runs.diff import Side, compare, side_of
from reyn.runs.frames import prompt_at, prompt_sections, visit_contexts
from reyn.runs.preview import next_prompt
from reyn.runs.replayer import Replayer, verify
from reyn.skills import unpin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.context import NormalizedMessageList
    from reyn.context.budget import FrameSection
    from reyn.context.frame import ContextFrame
    from reyn.journal import Event, Journal, RunRow, kinds
    from reyn.kernel.core.snapshot import RunState
    from reyn.ops import OpTable
    from reyn.runs.diff import DiffReport
    from reyn.runs.frames import VisitContext
    from reyn.runs.preview import OverviewReader


_MAX_LISTED = 5
_CACHED_SKILLS = 64
"""The number of compiled skills to cache; the oldest is dropped first."""


class RunReader:
    """The recorded runs of one journal. `OSRuntime` has most of these methods and documents them."""

    def __init__(self, journal: Journal, ops: Callable[[], OpTable], resolve: Callable[[str], str] = str) -> None:
        """Read the runs of a journal.

        Args:
            journal: The journal.
            ops: Returns the installed ops. Called on first use, because loading the tools of a project runs its code.
            resolve: Follows the symbolic links of a path in the project; by default paths are taken as they are.
        """
        self.journal = journal
        self._resolve = resolve
        self._ops = ops
        self._skills: dict[tuple[str, str, str | None], CompiledSkill] = {}

    def find(self, run: str) -> RunRow:
        row = self.journal.find(run)
        if row is not None:
            return row
        rows = [row for row in self.journal.runs(run) if not row.parent.startswith(run)] if run else []
        if len(rows) == 1:
            return rows[0]
        if not rows:
            raise RunNotFound(f"no run `{run}`")
        ids = [f"`{row.run_id}`" for row in rows[:_MAX_LISTED]]
        more = [f"{len(rows) - _MAX_LISTED} more"] if len(rows) > _MAX_LISTED else []
        raise RunNotFound(f"`{run}` is the beginning of {len(rows)} run ids: {', '.join([*ids, *more])}")

    def runs(self) -> list[RunRow]:
        return self.journal.runs()

    def display_status(self, row: RunRow) -> str:
        return display_status(row, is_claimed=self.journal.is_claimed(row.run_id))

    def family(self, run: str) -> list[str]:
        """Return the ids of a run and its descendants."""
        row = self.find(run)
        return [row.run_id, *(child.run_id for child in descendants(self.journal, row.run_id))]

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        return self.journal.read(self.find(run).run_id, after)

    def state(self, run: str) -> RunState:
        state = load_state(self.journal, self.find(run).run_id)
        if state.started is None:
            raise ChainBroken(f"event 1 of run `{run}` is missing")
        return state

    def result(self, run: str) -> RunResult:
        return self.to_result(self.state(run))

    async def replay(self, run: str) -> ReplayReport:
        return await Replayer(self.journal, self.compile_skill, self._ops(), self._resolve).replay(
            self.find(run).run_id
        )

    def verify(self, run: str, head: str | None = None) -> VerifyReport:
        return verify(self.journal, self.find(run).run_id, head)

    def diff(self, a: str, b: str) -> DiffReport:
        return compare(self._side(a), self._side(b), self.journal.blob)

    def _side(self, run: str) -> Side:
        row = self.find(run)
        return side_of(row.run_id, tuple(self.journal.read(row.run_id)))

    def prompt_at(self, run: str, seq: int | None = None) -> list[tuple[str, str]]:
        row = self.find(run)
        return prompt_at(row.run_id, self.journal.read(row.run_id), seq, self.journal.blob)

    def transcript(self, run: str, phase: str | None = None) -> NormalizedMessageList:
        state = self.state(run)
        name = state.phase if phase is None else phase
        conversation = state.conversations.get(name)
        if conversation is None or conversation.visit:
            raise RunNotFound(f"run `{state.run_id}` has no conversation in phase `{name}`")
        return conversation.rendered(self.journal.blob)

    def conversation_size(self, state: RunState) -> ConversationSize:
        """Return how large the conversation of a run's phase is."""
        assert state.started is not None
        compiled = self.compile_skill(state.started)
        phase = compiled.phase(state.phase, state) if state.phase in compiled.skill.phases else None
        found = state.transcript(state.phase)
        if phase is None or phase.conversation is None:
            return ConversationSize(found.tokens, 0, 0, 0)
        pinned = estimate_tokens(memory_text(state.memory(state.phase).entries))
        return ConversationSize(
            found.tokens, phase.transcript_tokens(state), pinned, phase.memory_tokens(state), found.wants_compaction
        )

    async def next_prompt(
        self, run: str, answer: Any = None, *, read_overviews: OverviewReader | None = None
    ) -> list[tuple[str, str]]:
        row = self.find(run)

        def compile_skill(started: kinds.RunStarted) -> CompiledSkill:
            return self.compile_skill(started, self.journal.blob)

        return await next_prompt(self.journal, row.run_id, compile_skill, answer, read_overviews=read_overviews)

    def context_frame(self, run: str, seq: int | None = None) -> ContextFrame:
        row = self.find(run)
        return context_frame(row.run_id, self.journal.read(row.run_id), seq, self.journal.blob, self.compile_skill)

    def prompt_sections(self, run: str, seq: int | None = None) -> tuple[FrameSection, ...]:
        row = self.find(run)
        return prompt_sections(row.run_id, self.journal.read(row.run_id), seq, self.journal.blob)

    def visit_contexts(self, run: str) -> Iterator[VisitContext]:
        row = self.find(run)
        return visit_contexts(self.journal.read(row.run_id), self.journal.blob)

    def export(self, run: str) -> Iterator[bytes]:
        return export_runs(self.journal, self.find(run).run_id)

    def compile_skill(self, started: kinds.RunStarted, content: Callable[[str], bytes] | None = None) -> CompiledSkill:
        """Return the compiled skill of a run, from the run's own copies and never from the current files.

        Args:
            started: The first event of the run, which names the copies.
            content: Where to read the copies of a run that is not in the journal yet.
        """
        key = (started.skill_hash, started.settings, started.ops)
        if key not in self._skills:
            content = content or self.journal.blob
            try:
                copies = content(started.skill_hash), content(started.settings)
                specs = content(started.ops) if started.ops else None
            except BlobMissing as error:
                raise RunBlocked(f"the run's own copy of its skill or settings is missing: {error}") from error
            while len(self._skills) >= _CACHED_SKILLS:
                self._skills.pop(next(iter(self._skills)))
            vocabulary = unpin_ops(specs) if specs is not None else self._ops().vocabulary
            self._skills[key] = CompiledSkill(unpin(copies[0]), _to_settings(copies[1]), vocabulary)
        return self._skills[key]

    def to_result(
        self, state: RunState, warnings: tuple[str, ...] = (), content: Callable[[str], bytes] | None = None
    ) -> RunResult:
        """Return the result of a run in this state, with further warnings.

        `content` returns recorded content by its hash; by default, the journal does.
        """
        assert state.started is not None
        assert state.status is not None
        artifact = None
        final = state.final_artifact
        if state.status == "finished" and final is not None:
            stored = msgspec.json.decode((content or self.journal.blob)(final.hash))
            artifact = {"type": stored["type"], "data": stored["data"]}
        switches = (
            f"model `{name}` was replaced by its fallback `{other}`" for name, other in state.models.switched.items()
        )
        code = state.stop.code if state.status == "failed" else ""
        return RunResult(
            state.run_id,
            state.status,
            state.reason,
            artifact,
            state.models.usage,
            state.history.path,
            warnings=(*state.warnings, *switches, *warnings),
            question=state.wait,
            code=code,
            hint=(state.stop.hint or hint_of(code)) if code else "",
            cost=Cost.of(state.charge),
        )


def _to_settings(content: bytes) -> RunSettings:
    try:
        return msgspec.json.decode(content, type=RunSettings)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RunBlocked(f"the run's own copy of its settings cannot be read: {error}") from error
