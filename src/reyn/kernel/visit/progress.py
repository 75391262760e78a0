"""The progress of one visit with a model: what it has used up, and the turn that it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import AnswersRejected, WorkNotDone
from reyn.kernel.visit.model_call import Targets
from reyn.kernel.visit.op_log import OpLog
from reyn.kernel.visit.turn import TurnContext
from reyn.kernel.visit.work import Work

if TYPE_CHECKING:
    from reyn.contract import Rejected
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.model_call import TurnSpec
    from reyn.kernel.visit.prompt_budget import TurnDraft
    from reyn.kernel.visit.turn import LlmPhaseResult

MAX_TRUNCATED_READS = 10
"""Turns in which a visit may read more of truncated content; they cost no act turns."""


class VisitProgress:
    """The progress of a visit.

    Attributes:
        calls: Model calls, compactions included.
        call: The id of the last one.
        turns: Turns in which the model acted.
        reads: Turns in which it only read truncated content.
        retries: Answers in a row that led nowhere.
        rejection: The last answer, if it was rejected.
        must_reply: Whether ops are not on offer any more, because the same op keeps failing.
        left: The act turns that are left in this turn.
        spec: What the model may answer in this turn.
    """

    spec: TurnSpec

    def __init__(self, phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
        self.phase = phase
        self.entry = entry
        self.tape = tape
        self.work = Work(phase, tape.content, entry.done) if phase.has_work else None
        self.log = OpLog(phase.vocabulary, self.work)
        self.context = TurnContext(phase, entry, self.log, tape)
        if self.context.is_conversation and tape.state.truncated:
            self.log.truncated.update(tape.state.truncated_in(entry.phase))  # its messages still show them
        self.calls = self.turns = self.reads = self.retries = self.left = 0
        self.call = f"{entry.step}.0"
        self.rejection: Rejected | None = None
        self.must_reply = False

    def use(self, phase: CompiledPhase) -> None:
        """Continue with the same phase with other candidates."""
        self.phase = self.context.phase = phase

    def count_calls(self, calls: int) -> None:
        """Count model calls."""
        self.calls += calls
        self.call = f"{self.entry.step}.{self.calls}"

    def draft(self, *, is_truncated: bool = False) -> TurnDraft:
        """Return what the model would be asked in this turn, without regard to a token budget."""
        phase, context, tape = self.phase, self.context, self.tape
        reads_left = MAX_TRUNCATED_READS - self.reads if is_truncated or self.log.truncated else 0
        named = context.overviews.targets if context.overviews is not None else None
        targets = Targets(named, tape.content) if named is not None else None
        spec = phase.turn_spec(
            phase.form(tape.state) if phase.model else tape.state.models.form,
            acting=self.left > 0,
            is_truncated=reads_left > 0,
            targets=targets,
            left=self.work.left if self.work is not None else (),
        )
        return context.draft(spec, self.left if phase.ops else reads_left or None)

    def correct(self, answer: LlmPhaseResult, path: str, message: str) -> None:
        """Let the next turn show an answer and what is wrong with it."""
        limit = self.phase.settings.sizes.input_bytes
        excerpt = self.log.truncate(f"{self.call}.answer", answer.reply.hash, limit, self.tape)
        self.context.correct(self.spec, answer, excerpt, path, message)

    @property
    def failure_code(self) -> str:
        """The code of a visit whose retries are used up: that of missing work if the model kept deciding without it."""
        is_about_exit = self.rejection is not None and self.rejection.rule == "candidate"
        return (WorkNotDone if is_about_exit and self.work and self.work.left else AnswersRejected).code

    def failure_reason(self) -> str:
        """Return why the visit has no decision."""
        phase, rejection = self.phase, self.rejection
        if rejection is None:
            return f"phase `{phase.name}`: no decision could be executed after {self.calls} answers"
        rejected = phase.max_retries + 1
        answers = "1 answer" if rejected == 1 else f"{rejected} answers"
        return f"phase `{phase.name}`: {answers} rejected, last at {rejection.path}: {rejection.message}"
