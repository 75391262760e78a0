"""What the steps of a list share: the run, its ops so far, and what an earlier attempt has done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.expressions import SharedWork
from reyn.journal import Blob, kinds
from reyn.kernel.core.errors_of_nodes import VisitFault
from reyn.kernel.visit.completed_steps import CompletedSteps
from reyn.kernel.visit.op_log import TOOK_EFFECT, OpLog, OpOutcome
from reyn.vocabulary.error_names import FAILED

if TYPE_CHECKING:
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.run_context import RunContext


MAX_COLLECTED = 64_000_000
"""The bytes of all results of an iteration, or of the branches of a node."""


class StepFault(Exception):
    """A step failed. Its `on_error` decides what follows.

    `error_name` is the name of the error; empty if it has none of its own. `is_final` if no `on_error` of a step
    applies: an expression without a value is never an empty result.
    """

    def __init__(
        self, message: str, call: str = "", step: str = "", error_name: str = "", *, is_final: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.call = call
        self.step = step
        self.error_name = "" if error_name == FAILED else error_name
        self.is_final = is_final

    def describe(self, place: str) -> str:
        return f"`{place}`: step {self.call} `{self.step}`: {self.message}"

    def ending(self, node: str, code: str) -> VisitFault:
        """Return the failure of the visit of a node that this ends."""
        reason = self.describe(node) if self.step else f"node `{node}`: {self.message}"
        return VisitFault(code, reason, self.error_name)


class CollectedResults:
    """Bounds the results that one step or node puts together: those of many sub-runs are one value in memory."""

    def __init__(self) -> None:
        self._left = MAX_COLLECTED

    def add(self, size: int) -> None:
        """Count the bytes of a result.

        Raises:
            StepFault: There are too many.
        """
        self._left -= size
        if self._left < 0:
            raise StepFault(f"the results are larger than {MAX_COLLECTED:,} bytes together", is_final=True)


def _steps_of(log: OpLog, tape: Tape, phase: str) -> CompletedSteps:
    """Return what the steps of a visit have done so far, and what those of the attempts before it have."""
    if log.steps is None:
        earlier = tape.state.history.steps.get(phase)
        log.steps = CompletedSteps() if earlier is None else CompletedSteps(tape.content(earlier))
    return log.steps


class StepContext:
    """The context of one list of steps, or of the branches of a node after its steps."""

    def __init__(self, run: RunContext, log: OpLog, tape: Tape, phase: str, *, is_check: bool = False) -> None:
        self.run = run
        self.is_check = is_check
        self.templates = run.step_templates
        self.log = log
        self.tape = tape
        self.work = SharedWork()
        self.completed = CompletedSteps() if is_check else _steps_of(log, tape, phase)
        """A check judges what is proposed now, so that none takes over the result of an earlier check."""

    def taken_over(self, args: dict[str, Any], call: str) -> tuple[Any] | str:
        """Return the value of what an earlier attempt has done with the same arguments.

        If it has no value that can be taken over, the unsafe ops of its children are returned; empty if there is none.
        """
        found = self.completed.take(args, call)
        if found is None or not found.result:
            return found.acted if found is not None else ""
        return (msgspec.json.decode(self.tape.content(found.result)),)

    def add_done(self, args: dict[str, Any], call: str, outcome: OpOutcome, *, is_usable: bool = True) -> None:
        """Add an op that must not be performed twice.

        One whose files are restored has no result to take over, nor has one whose result the step cannot use.
        """
        is_done = outcome.status == "ok" and not outcome.changes
        acted = outcome.acted
        if is_done and not is_usable and self.log.is_unsafe(args):
            acted = f"{TOOK_EFFECT} {acted}".rstrip()
        if acted or (is_done and self.log.is_unsafe(args)):
            self.completed.add(args, call, outcome.result if is_done and is_usable else "", acted)

    def add_child(self, args: dict[str, Any], ended: kinds.ChildEnded) -> Any:
        """Return the artifact of a sub-run that ended. If it acted, a later attempt does not start it again by itself.

        Raises:
            StepFault: It has no artifact.
        """
        self.add_end(args, ended)
        if ended.artifact is None:
            raise StepFault(ended.error, error_name=ended.error_name)
        return msgspec.json.decode(self.tape.content(ended.artifact.hash))

    def add_end(self, args: dict[str, Any], ended: kinds.ChildEnded) -> None:
        """Add what a sub-run did, whether or not it has a result."""
        self.log.add_changes(ended.changes, self.tape)
        if ended.acted:
            self.completed.add_child(args, ended)

    def keep_result(self, args: dict[str, Any], ended: kinds.ChildEnded) -> None:
        """Let a later attempt take over the result of a sub-run without unsafe ops; its files are restored."""
        if ended.artifact is not None and not ended.changes:
            self.completed.keep_child(args, ended)

    def end_step(self, call: str, kind: str, into: str | None = None, result: Blob | None = None) -> str | None:
        """Record that a step succeeded; return the hash of the result, as it is recorded."""
        source = self.completed.sources.pop(call, "")
        name, blobs = (None, ()) if result is None else (result.hash, (result,))
        event = kinds.StepCompleted(call, kind, "ok", into, name, result_of=source)
        return self.tape.emit(event, *blobs).result
