"""A journal becomes a tape: whole visits are folded into the state, the visit in flight is left to be driven again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import ChainBroken, RunBlocked, RunNotFound
from reyn.journal import GENESIS, decode, link
from reyn.kernel.run_orchestrator import CARRIED
from reyn.kernel.run_state import EMPTY, RunState, apply
from reyn.kernel.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.journal import Event, Journal


def new_tape(journal: Journal, run_id: str) -> Tape:
    """The tape of a run that does not exist yet, or of one that is to be replayed from its first event."""
    return Tape(run_id, EMPTY, seq=0, hash=GENESIS, ts=0, recorded=(), content=journal.blob)


def load_tape(journal: Journal, run_id: str) -> Tape:
    """The tape of a run as far as it is recorded."""
    before: RunState = EMPTY
    opened: list[Event] = []
    state, seq, hashed, ts = EMPTY, 0, GENESIS, 0
    for event in check_chain(journal.read(run_id)):
        body = decode(event)
        after = apply(state, body)
        if after.visit_open and not state.visit_open:
            before, opened = state, []
        if after.visit_open:
            opened.append(event)
        else:
            before, opened, seq, hashed, ts = after, [], event.seq, event.hash, event.ts
        state = after
    check_drivable(run_id, state)
    return Tape(run_id, before, seq=seq, hash=hashed, ts=ts, recorded=opened, content=journal.blob)


def check_chain(events: Iterable[Event]) -> Iterable[Event]:
    """The same events, each proven to follow the one before."""
    prev = GENESIS
    for seq, event in enumerate(events, start=1):
        if event.seq != seq or link(seq, event.ts, event.kind, event.v, event.raw, prev) != event.hash:
            raise ChainBroken(f"event {seq} `{event.kind}` of run `{event.run_id}` does not give its recorded hash")
        prev = event.hash
        yield event


def check_drivable(run_id: str, state: RunState) -> None:
    if state.started is None:
        raise RunNotFound(f"no run `{run_id}`")
    if state.started.rules not in CARRIED:
        raise RunBlocked(
            f"run `{run_id}` follows rules version {state.started.rules}; this version drives {sorted(CARRIED)}"
        )
