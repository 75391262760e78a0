"""What the ops of one visit have done: their results as the model sees them, their work, and what is not repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.context.frame import Repetition
from reyn.context.render import next_digest, truncate
from reyn.journal import Blob, canonical, digest, kinds
from reyn.kernel.core.effects import Restore

if TYPE_CHECKING:
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.completed_steps import CompletedSteps
    from reyn.kernel.visit.work import Work
    from reyn.vocabulary import OpForm, Vocabulary


_MAX_DONE = 200
"""The bytes of the arguments of an op that the prompt of another attempt shows."""
_MAX_ACTED = 2_000
"""The bytes of what its children did."""
TOOK_EFFECT, UNKNOWN_EFFECT = "It took effect.", "It may have taken effect."
_RESTORED = "The files that it changed were restored."
"""What another attempt is told about an op that has no usable result."""


class OpOutcome(NamedTuple):
    """The outcome of an op. `result` is the hash of the whole result."""

    kind: str
    status: kinds.OpStatus
    result: str
    bytes: int
    changes: tuple[kinds.Change, ...] = ()
    asked_user: bool = False
    """Whether the op asked the user a question."""
    compacts: bool = False
    """Whether the op asked for a compaction of the conversation."""
    args: dict[str, Any] | None = None
    """The arguments of an op that was performed, which a person may have edited."""
    acted: str = ""
    """The unsafe ops that children which it started have completed or begun; or that it may have taken effect itself,
    although it has no usable result."""


class Completed(NamedTuple):
    """What another attempt of a visit must not repeat: ops of the model, the steps as content, and the contents."""

    ops: tuple[kinds.DoneOp, ...] = ()
    steps: str | None = None
    blobs: tuple[Blob, ...] = ()


class PerformedAct(NamedTuple):
    """An op of a visit, with the hash of its result as a frame contains it."""

    args: dict[str, Any]
    shown: str
    is_ok: bool
    outcome: OpOutcome


class OpLog:
    """The ops of one visit so far: their results as the model sees them, and the files they changed."""

    def __init__(self, vocabulary: Vocabulary, work: Work | None = None) -> None:
        self._vocabulary = vocabulary
        self.work = work
        """The work that the visit must do or that fills its artifact, if there is any."""
        self.work_note = work.note if work is not None else ""
        self.results: list[str] = []
        """Hashes of the results, each as a frame contains it."""
        self.calls: list[str] = []
        """The calls of these results."""
        self.performed: list[PerformedAct] = []
        self.digest: str | None = None
        self.truncated: set[str] = set()
        """The names under which ops can read content that the visit's frames truncate."""
        self.failure: Repetition | None = None
        """The op of the last turn that failed most often with the same arguments."""
        self._failures: dict[str, int] = {}
        self._changes: list[tuple[str, kinds.Change]] = []
        self.steps: CompletedSteps | None = None
        """What the steps of the visit have done, if there are steps."""
        self.verdicts: dict[str, str] = {}
        """The verdicts of gates, the latest of each."""

    @property
    def truncation_reader(self) -> OpForm | None:
        """The form of the op that reads content which a frame truncates."""
        return self._vocabulary.truncation_reader

    def add_changes(self, changes: tuple[kinds.Change, ...], tape: Tape) -> None:
        self._changes += [(tape.state.run_id, change) for change in changes]

    def add_verdict(self, args: dict[str, Any], outcome: OpOutcome, tape: Tape) -> None:
        """Add the verdict of a gate, if it reached one."""
        has_passed = msgspec.json.decode(tape.content(outcome.result)).get("passed")
        if isinstance(has_passed, bool):
            self.verdicts[str(args[self._vocabulary.gates[outcome.kind]])] = "passed" if has_passed else "failed"

    def changes_of(self, run_id: str) -> tuple[kinds.Change, ...]:
        """Return the changes that a run has to restore, newest first.

        Changes that a fork inherited belong to its origin, except in the workspace, of which the fork has a copy.
        """
        own = [change for run, change in self._changes if run == run_id or change.path.startswith("workspace:")]
        return tuple(reversed(own))

    async def restore_files(self, call: str, tape: Tape) -> None:
        """Restore the files that the visit changed."""
        changes = self.changes_of(tape.state.run_id)
        if changes:
            tape.emit(kinds.RestoreStarted(call, changes))
            await Restore(call, changes)

    def add(self, args: dict[str, Any], outcome: OpOutcome, call: str, limit: int, tape: Tape) -> None:
        """Add an op. Its result is part of the following frames; a large one is truncated and names the whole."""
        if outcome.changes:
            self.add_changes(outcome.changes, tape)
        if outcome.kind in self._vocabulary.gates:
            self.add_verdict(args, outcome, tape)
        if self.work is not None:
            self.work.add(outcome.args or args, outcome.status, outcome.result)
            self.work_note = self.work.note
        name = self.truncate(call, outcome.result, limit, tape) if outcome.bytes > limit else outcome.result
        self.results.append(name)
        self.calls.append(call)
        self.performed.append(PerformedAct(args, name, outcome.status == "ok", outcome))
        self.digest = next_digest(self.digest, name)
        if outcome.status != "ok" or self._failures:
            self._count_failure(args, outcome)

    def harmless_results(self) -> frozenset[str]:
        """Return the hashes of the results of ops that succeeded and do no harm if they are repeated."""
        harmless: dict[str, bool] = {}
        for args, name, is_ok, outcome in self.performed:
            form = self._vocabulary.form_of(args)
            is_safe = is_ok and not outcome.acted and form is not None and form.effect_of(args) != "unsafe"
            harmless[name] = is_safe and harmless.get(name, True)
        return frozenset(name for name, is_safe in harmless.items() if is_safe)

    def completed(self, *, is_restored: bool = False) -> Completed:
        """Return what another attempt must not repeat, given whether the files that the visit changed were restored.

        These are the model's ops that succeeded and are unsafe, those whose children did something unsafe, and what the
        steps have done.
        """
        acts = [act for act in self.performed if act.outcome.acted or (act.is_ok and self.is_unsafe(act.args))]
        done = self._as_done(acts, is_restored=is_restored)
        steps = self.steps.content() if self.steps is not None else None
        return done if steps is None else Completed(done.ops, steps.hash, (*done.blobs, steps))

    def completed_turn(self) -> Completed:
        """Return the work that a repetition of a turn need not do: the transcript has its ops, and the files stay."""
        return self._as_done([act for act in self.performed if act.is_ok] if self.work is not None else [])

    def _as_done(self, acts: list[PerformedAct], *, is_restored: bool = False) -> Completed:
        done, blobs = [], []
        for args, _, is_ok, outcome in acts:
            args, is_undone = outcome.args or args, is_restored and bool(outcome.changes)
            text = Blob.of(_in_short(args, f"{outcome.acted} {_RESTORED}".lstrip() if is_undone else outcome.acted))
            blobs.append(text)
            if is_ok and not is_undone:
                blobs.append(whole := Blob.of(canonical(args)))
                done.append(kinds.DoneOp(text.hash, self._vocabulary.name_of(args), whole.hash, outcome.result))
            else:
                done.append(kinds.DoneOp(text.hash))
        return Completed(tuple(done), None, tuple(blobs))

    def is_unsafe(self, args: dict[str, Any]) -> bool:
        """Return whether an op is unsafe by its specification."""
        form = self._vocabulary.form_of(args)
        return form is not None and form.effect_of(args) == "unsafe"

    def results_since(self, first: int, call: str, limit: int, tape: Tape) -> dict[int, str]:
        """Return the results after the first ones by the positions of their ops in the answer of a call.

        Those of ops that ended before slower ones, and were not awaited, are taken from the tape.
        """
        results = dict(enumerate(self.results[first:]))
        for name, outcome in tape.early.items():
            assert isinstance(outcome, kinds.OpCompleted | kinds.PermissionDenied)
            results[int(name.removeprefix(f"{call}.")) - 1] = self.truncate(name, outcome.result, limit, tape)
        tape.early.clear()
        return dict(sorted(results.items()))

    def _count_failure(self, args: dict[str, Any], outcome: OpOutcome) -> None:
        """Count how often an op failed with the same arguments. A success resets the count."""
        key = digest(canonical(args))
        if outcome.status == "ok":
            self._failures.pop(key, None)
            return
        times = self._failures[key] = self._failures.get(key, 0) + 1
        if self.failure is None or times > self.failure.times:
            self.failure = Repetition("op", outcome.kind, times)

    def truncate(self, name: str, whole: str, limit: int, tape: Tape) -> str:
        """Return the hash of some content, or of its beginning if it is larger than `limit` bytes."""
        return self.truncate_blob(name, Blob(whole, tape.content(whole)), limit, tape)

    def truncate_blob(self, name: str, whole: Blob, limit: int, tape: Tape) -> str:
        if len(whole.content) <= limit:
            return whole.hash
        part = Blob.of(truncate(whole.content, limit, name, self.truncation_reader))
        self.truncated.add(name)
        truncation = kinds.ContentTruncated(name, whole.hash, part.hash, len(whole.content))
        return tape.emit(truncation, whole, part).part


def _in_short(args: dict[str, Any], acted: str) -> bytes:
    """Return what another attempt is told about an op: its arguments, and what it or its children have done."""
    more = f" ({_shortened(acted.encode(), _MAX_ACTED).decode()})" if acted else ""
    return _shortened(canonical(args), _MAX_DONE) + more.encode()


def _shortened(content: bytes, limit: int) -> bytes:
    """Return UTF-8 text without its middle if it is too long: its end may be what tells two ops apart."""
    if len(content) <= limit:
        return content
    first, last = content[: limit // 2], content[-limit // 2 :]
    return f"{first.decode(errors='ignore')}…{last.decode(errors='ignore')}".encode()
