"""Check a recorded run: `replay` derives every event again and compares, `verify` checks the chain and the content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from reyn.errors import ChainBroken, HeadMismatch, HistoryInvalid, ReplayMismatch, RunNotFound
from reyn.journal import GENESIS, Body, Event, Journal, RunRow, canonical, decode, digest, kinds
from reyn.journal.lifecycle import project
from reyn.journal.registry import content_hashes, fixed_kinds
from reyn.kernel.core.driver import Driver
from reyn.kernel.core.effects import Effect, PerformOp
from reyn.kernel.core.run_state import EMPTY, apply
from reyn.kernel.core.tape import Tape
from reyn.kernel.runtime_types import ReplayReport, VerifyReport
from reyn.kernel.versions import SUPPORTED_RULES
from reyn.kernel.world.loading import check_executable, missing_ops
from reyn.kernel.world.op_outcomes import confirmed_result
from reyn.ops import Call, DerivableChanges, OpTable
from reyn.ops.op import DerivableResult, RecordedChanges
from reyn.runs.answers_check import KINDS, AnswersCheck
from reyn.workspace.paths import WORKSPACE

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.visit.compiled_skill import CompiledSkill


class Replayer:
    """Replays runs: no model, no effect, nothing written; only the recorded inputs and the rules."""

    def __init__(
        self,
        journal: Journal,
        compile_skill: Callable[[kinds.RunStarted], CompiledSkill],
        ops: OpTable,
        resolve: Callable[[str], str],
    ) -> None:
        self._journal = journal
        self._resolve = resolve
        self._compile_skill = compile_skill
        self._ops = ops
        self.environments: dict[kinds.EnvironmentRef, None] = {}
        """The environments with packages that code of the replayed run used."""

    async def replay(self, run_id: str) -> ReplayReport:
        """Derive a run again and compare every event with the recorded one.

        Derived texts of another wording are not compared; the report counts such events. A fork of a run whose rules
        are no longer supported is derived from the fork on; the report counts the events before it as inherited.

        Raises:
            ReplayMismatch: names the first event that differs.
            RunBlocked: the run's rules are not supported.
        """
        head = _row(self._journal, run_id)
        # A live run may append meanwhile, so the recording ends at the head that was read first.
        events = self._checked(islice(self._journal.read(run_id), head.seq))
        last, state = self._start(run_id, events)
        tape = Tape(
            run_id,
            state,
            seq=last.seq,
            hash=last.hash,
            ts=last.ts,
            recorded=events,
            content=self._journal.blob,
            is_read_only=True,
            check=self._underived,
        )
        state = await Driver(tape, self._compile_skill, None).execute()
        if (extra := tape.upcoming or _beyond(self._journal, head)) is not None:
            message = f"event {extra.seq} `{extra.kind}` is recorded; the rules derive no event after {tape.seq}"
            raise ReplayMismatch(message, seq=extra.seq, kind=extra.kind)
        _check_head(head, tape.seq, tape.hash)
        assert state.status is not None
        missing = missing_ops(self._compile_skill(state.started).skill, self._ops)
        inherited = last.seq - 1
        return ReplayReport(
            run_id, tape.seq, state.history.total_steps, state.status, tape.reworded, inherited, missing
        )

    def _checked(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events; check the replies of people, and that recorded changes of files follow from arguments."""
        fixed, answers = fixed_kinds() - KINDS, AnswersCheck(self._journal)
        for event in events:
            if event.kind not in fixed:
                self._check_event(event, answers)
            yield event

    def _check_event(self, event: Event, answers: AnswersCheck) -> None:
        is_op = event.v == kinds.OpStarted.version and event.kind.endswith(("_started", "_completed"))
        body = decode(event) if is_op or event.kind in KINDS else None
        if isinstance(body, kinds.OpCompleted) and body.environment is not None:
            self.environments[body.environment] = None
        wrong = "" if body is None else answers.error(event, body)
        if wrong:
            pass
        elif isinstance(body, kinds.OpCompleted) and _leaves_workspace(body):
            wrong = "a program changes no files outside its workspace"
        elif isinstance(body, kinds.OpStarted) and body.changes:
            wrong = self._unexplained(body)
        if wrong:
            raise ReplayMismatch(f"event {event.seq} `{event.kind}`: {wrong}", seq=event.seq, kind=event.kind)

    def _underived(self, effect: Effect[Any], outcome: Body) -> str:
        """Return why the outcome of an op does not follow from the reply of a person; empty if it does."""
        if not isinstance(effect, PerformOp) or not isinstance(outcome, kinds.OpCompleted):
            return ""
        call, started = Call("", effect.args), effect.started
        op: object = self._ops.get(started.op_kind)
        if effect.resolution in ("done", "failed"):
            known = self._journal.blob(started.result) if started.result else None
            expected = confirmed_result(effect, call, known)
        elif isinstance(op, DerivableResult):
            expected = op.result_of(call, effect.answer)
        else:
            return ""
        content = canonical(expected)
        derived = (digest(content), len(content), expected["status"])
        is_derived = derived == (outcome.result, outcome.bytes, outcome.status)
        return "" if is_derived else f"the result of op `{effect.key}` does not follow from the reply"

    def _unexplained(self, started: kinds.OpStarted) -> str:
        """Return why the changes of an op do not follow from its arguments; empty if they do, or if it is unknown."""
        op: object = self._ops.get(started.op_kind)
        if isinstance(op, DerivableChanges):
            try:
                call = Call(started.call, msgspec.json.decode(self._journal.blob(started.args), type=dict[str, Any]))
                return op.changes_error(call, RecordedChanges(started.changes, self._journal.blob, self._resolve))
            except (msgspec.MsgspecError, LookupError, ValueError, TypeError, AttributeError):
                return "its arguments are malformed"
        if op is not None and not self._ops.is_foreign(started.op_kind):
            return f"an op of kind `{started.op_kind}` changes no files"
        return ""

    def _start(self, run_id: str, events: Iterator[Event]) -> tuple[Event, RunState]:
        """Fold the first event; for a fork that moved to supported rules, fold everything up to the fork."""
        first = next(events, None)
        if first is None:
            raise RunNotFound(f"no run `{run_id}`")
        opening = decode(first)
        count = 1
        if isinstance(opening, kinds.RunStarted) and opening.rules not in SUPPORTED_RULES:
            count = self._first_supported(run_id) or 1
        state, last = EMPTY, first
        for last in chain([first], islice(events, count - 1)):
            state = apply(state, decode(last), last.ts)
        check_executable(run_id, state)
        return last, state

    def _first_supported(self, run_id: str) -> int:
        """Return the sequence number of the fork that moved a run to supported rules; 0 if there is none."""
        for event in self._journal.read(run_id):
            if event.kind == kinds.RunForked.kind:
                body = decode(event)
                if isinstance(body, kinds.RunForked) and body.rules in SUPPORTED_RULES:
                    return event.seq
        return 0


def _row(journal: Journal, run_id: str) -> RunRow:
    row = journal.find(run_id)
    if row is None:
        raise RunNotFound(f"no run `{run_id}`")
    return row


def _beyond(journal: Journal, row: RunRow) -> Event | None:
    """Return an event after the head of a run. The run did not append it, because an append also moves the head."""
    extra = next(iter(journal.read(row.run_id, row.seq)), None)
    now = journal.find(row.run_id)
    return extra if extra is not None and now is not None and now.seq < extra.seq else None


def _check_head(row: RunRow, seq: int, head: str) -> None:
    """Check that the events end at the run's head; otherwise the last ones are missing."""
    if (row.seq, row.hash) != (seq, head):
        raise ChainBroken(f"event {seq + 1} of run `{row.run_id}` is missing: its head is event {row.seq}")


def verify(journal: Journal, run_id: str, noted: str | None = None) -> VerifyReport:
    """Check the hashes of all events and contents of a run, and of the sub-runs whose results it took.

    A run can be executed at the same time; the events that are recorded when the check begins are verified.

    Args:
        journal: The journal of the run.
        run_id: The run.
        noted: The hash of an event of the run that was noted elsewhere.

    Raises:
        ChainBroken: names the first event that is wrong, or a sub-run that is not the one whose result was taken.
        BlobMissing: names the first content that is missing or damaged.
        HistoryInvalid: a reply, or an effect that needed one, is not one that the run can have recorded.
        HeadMismatch: no event has the noted hash.
    """
    expected = _row(journal, run_id)
    head, count, seen, noted_at = GENESIS, 0, set[str](), None
    row: RunRow | None = None
    children: dict[str, str] = {}
    answers = AnswersCheck(journal)
    for event in islice(journal.read(run_id), expected.seq):
        body = decode(event)
        row = _advance_row(row, event, body)
        if wrong := answers.error(event, body):
            raise HistoryInvalid(f"event {event.seq} `{event.kind}` of run `{run_id}`: {wrong}")
        for name in content_hashes(body):
            if name not in seen:
                journal.blob(name)
                seen.add(name)
        if isinstance(body, kinds.ChildEnded) and body.head is not None:
            own = f"{event.run_id}.{body.call}" if body.type == "skill" else f"{event.run_id}."
            if body.run != own and (body.type == "skill" or not body.run.startswith(own)):
                raise ChainBroken(f"event {event.seq} of run `{run_id}` names `{body.run}` as its sub-run {body.call}")
            children[body.run] = body.head
        head, count = event.hash, event.seq
        noted_at = event.seq if event.hash == noted else noted_at
    _check_head(expected, count, head)
    if (extra := _beyond(journal, expected)) is not None:
        raise ChainBroken(f"event {extra.seq} of run `{run_id}` is behind its head, event {count}")
    if row is None or replace(row, imported=expected.imported) != expected:
        raise ChainBroken(f"the row of run `{run_id}` in the list of runs does not match its {count} events")
    for child, taken in children.items():
        _verify_child(journal, run_id, child, taken)
    if noted is not None and noted_at is None:
        raise HeadMismatch(f"no event of run `{run_id}` has the hash `{noted}`; its head is `{head}`")
    return VerifyReport(run_id, count, len(seen), head, len(children), noted_at, tuple(answers.unchecked))


def _verify_child(journal: Journal, parent: str, child: str, taken: str) -> None:
    """Check a sub-run, and that it still has the events that it had when its parent took its result."""
    if journal.find(child) is None:
        raise ChainBroken(f"sub-run `{child}` of run `{parent}` is missing")
    try:
        verify(journal, child, taken)
    except HeadMismatch as error:
        message = f"sub-run `{child}` is not the one whose result run `{parent}` took: none of its events has the hash"
        raise ChainBroken(f"{message} `{taken}`") from error


def _advance_row(row: RunRow | None, event: Event, body: Body) -> RunRow:
    """Advance the row of a run by one event. The event that opens a run must name it."""
    if isinstance(body, kinds.RunStarted | kinds.RunForked) and body.run_id != event.run_id:
        raise ChainBroken(f"event {event.seq} of run `{event.run_id}` opens a run `{body.run_id}`")
    if isinstance(body, kinds.RunForked):
        return project(None, [event], [body], row)
    return project(row, [event], [body])


def _leaves_workspace(completed: kinds.OpCompleted) -> bool:
    """Return whether a recorded outcome has changes of files that no program can change."""
    return any(not change.path.startswith(WORKSPACE) for change in completed.changes or ())
