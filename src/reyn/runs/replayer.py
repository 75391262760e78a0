"""The journal held against the rules: `replay` derives every event again, `verify` proves that nothing was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import ChainBroken, ReplayMismatch, RunNotFound
from reyn.journal import GENESIS, decode, kinds
from reyn.journal.projections import project
from reyn.journal.registry import content_of
from reyn.kernel.driver import Driver
from reyn.kernel.loading import check_chain, check_drivable
from reyn.kernel.run_state import EMPTY, apply
from reyn.kernel.runtime_types import ReplayReport, VerifyReport
from reyn.kernel.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.journal import Body, Event, Journal, RunRow
    from reyn.kernel.briefs import Briefs


class Replayer:
    """No model, no effect, nothing written: only the recorded inputs and the rules."""

    def __init__(self, journal: Journal, briefs_of: Callable[[kinds.RunStarted], Briefs]) -> None:
        self._journal = journal
        self._briefs_of = briefs_of

    async def replay(self, run_id: str) -> ReplayReport:
        """Derive the run again. `ReplayMismatch` names the first event that comes out otherwise."""
        events = iter(self._journal.read(run_id))
        first = next(events, None)
        if first is None:
            raise RunNotFound(f"no run `{run_id}`")
        body = decode(first)
        state = apply(EMPTY, body, first.ts)
        check_drivable(run_id, state)
        assert isinstance(body, kinds.RunStarted)
        tape = Tape(
            run_id,
            state,
            seq=first.seq,
            hash=next(iter(check_chain([first]))).hash,
            ts=first.ts,
            recorded=events,
            content=self._journal.blob,
            is_read_only=True,
        )
        state = await Driver(tape, self._briefs_of, None).drive()
        if (extra := tape.upcoming) is not None:
            message = f"event {extra.seq} `{extra.kind}` is recorded, but the rules derive nothing after {tape.seq}"
            raise ReplayMismatch(message, seq=extra.seq, kind=extra.kind)
        check_head(self._journal, run_id, tape.seq, tape.hash)
        assert state.status is not None
        return ReplayReport(run_id, tape.seq, state.total_steps, state.status)


def check_head(journal: Journal, run_id: str, seq: int, head: str) -> None:
    """A record that ends before the run's head was cut off."""
    row = journal.find(run_id)
    if row is None:
        raise RunNotFound(f"no run `{run_id}`")
    if (row.seq, row.hash) != (seq, head):
        raise ChainBroken(f"event {seq + 1} of run `{run_id}` is missing: its head is event {row.seq}")


def verify(journal: Journal, run_id: str) -> VerifyReport:
    """Read everything the run consists of. `ChainBroken` or `BlobMissing` names the first that is wrong."""
    head, count, seen = GENESIS, 0, set[str]()
    line: RunRow | None = None
    for event in check_chain(journal.read(run_id)):
        body = decode(event)
        if event.run_id == run_id:
            line = _projected(journal, line, event, body)
        for name in content_of(body):
            if name not in seen:
                journal.blob(name)
                seen.add(name)
        head, count = event.hash, event.seq
    check_head(journal, run_id, count, head)
    if line not in journal.runs(run_id):
        raise ChainBroken(f"what the list of runs says of run `{run_id}` is not what its {count} events say")
    return VerifyReport(run_id, count, len(seen), head)


def _projected(journal: Journal, line: RunRow | None, event: Event, body: Body) -> RunRow:
    """What a list of runs has to say of a run, one event later. The event that opens a run names it."""
    if isinstance(body, kinds.RunStarted | kinds.RunForked) and body.run_id != event.run_id:
        raise ChainBroken(f"event {event.seq} of run `{event.run_id}` opens a run `{body.run_id}`")
    origin = journal.find(body.point.run) if isinstance(body, kinds.RunForked) else None
    return project(line, [event], [body], origin)
