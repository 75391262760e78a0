"""Check a recorded run: `replay` derives every event again and compares, `verify` checks the chain and the content."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from reyn.errors import ChainBroken, ReplayMismatch, RunNotFound
from reyn.journal import GENESIS, decode, kinds
from reyn.journal.projections import project
from reyn.journal.registry import content_hashes, decode_stored
from reyn.kernel.driver import Driver
from reyn.kernel.loading import check_chain, check_executable, missing_ops
from reyn.kernel.run_state import EMPTY, apply
from reyn.kernel.runtime_types import ReplayReport, VerifyReport
from reyn.kernel.tape import Tape
from reyn.kernel.versions import SUPPORTED_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.journal import Body, Event, Journal, RunRow
    from reyn.kernel.compiled_skill import CompiledSkill
    from reyn.kernel.run_state import RunState
    from reyn.ops import OpTable


class Replayer:
    """Replays runs: no model, no effect, nothing written; only the recorded inputs and the rules."""

    def __init__(
        self, journal: Journal, compile_skill: Callable[[kinds.RunStarted], CompiledSkill], ops: OpTable
    ) -> None:
        self._journal = journal
        self._compile_skill = compile_skill
        self._ops = ops

    async def replay(self, run_id: str) -> ReplayReport:
        """Derive a run again and compare every event with the recorded one.

        Derived texts of another wording are not compared; the report counts such events. A fork of a run whose rules
        are not supported any more is derived from the fork on; the report counts the events before it as inherited.

        Raises:
            ReplayMismatch: names the first event that differs.
            RunBlocked: the run's rules are not supported.
        """
        events = iter(self._journal.read(run_id))
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
        )
        state = await Driver(tape, self._compile_skill, None).drive()
        if (extra := tape.upcoming) is not None:
            message = f"event {extra.seq} `{extra.kind}` is recorded; the rules derive no event after {tape.seq}"
            raise ReplayMismatch(message, seq=extra.seq, kind=extra.kind)
        check_head(self._journal, run_id, tape.seq, tape.hash)
        assert state.status is not None
        assert state.started is not None
        missing = missing_ops(self._compile_skill(state.started).skill, self._ops)
        inherited = last.seq - 1
        return ReplayReport(
            run_id, tape.seq, state.history.total_steps, state.status, tape.reworded, inherited, missing
        )

    def _start(self, run_id: str, events: Iterator[Event]) -> tuple[Event, RunState]:
        """Fold the first event, or of a fork that moved to supported rules, everything up to the fork."""
        first = next(events, None)
        if first is None:
            raise RunNotFound(f"no run `{run_id}`")
        opening = decode(first)
        count = 1
        if isinstance(opening, kinds.RunStarted) and opening.rules not in SUPPORTED_RULES:
            count = self._first_supported(run_id) or 1
        state, last = EMPTY, first
        for last in check_chain(chain([first], islice(events, count - 1))):
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


def check_head(journal: Journal, run_id: str, seq: int, head: str) -> None:
    """Check that the events end at the run's head; otherwise the last ones are missing."""
    row = journal.find(run_id)
    if row is None:
        raise RunNotFound(f"no run `{run_id}`")
    if (row.seq, row.hash) != (seq, head):
        raise ChainBroken(f"event {seq + 1} of run `{run_id}` is missing: its head is event {row.seq}")


def verify(journal: Journal, run_id: str) -> VerifyReport:
    """Check the hashes of all events and contents of a run.

    Raises:
        ChainBroken: names the first event that is wrong.
        BlobMissing: names the first content that is missing or damaged.
    """
    head, count, seen = GENESIS, 0, set[str]()
    row: RunRow | None = None
    for event in check_chain(journal.read(run_id)):
        body = decode(event)
        row = _advance_row(row, event, body)
        for name in content_hashes(decode_stored(event)):
            if name not in seen:
                journal.blob(name)
                seen.add(name)
        head, count = event.hash, event.seq
    check_head(journal, run_id, count, head)
    if row not in journal.runs(run_id):
        raise ChainBroken(f"the row of run `{run_id}` in the list of runs does not match its {count} events")
    return VerifyReport(run_id, count, len(seen), head)


def _advance_row(row: RunRow | None, event: Event, body: Body) -> RunRow:
    """Advance the row of a run by one event. The event that opens a run must name it."""
    if isinstance(body, kinds.RunStarted | kinds.RunForked) and body.run_id != event.run_id:
        raise ChainBroken(f"event {event.seq} of run `{event.run_id}` opens a run `{body.run_id}`")
    if isinstance(body, kinds.RunForked):
        return project(None, [event], [body], row)
    return project(row, [event], [body])
