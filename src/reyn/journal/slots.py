"""Slots: limits on how many submitted runs are executed at once, or calls made, by all processes of a journal together.

A limit of N has N slots. A slot is a claim, so it is free when its process has died. A run that gets no slot waits in
line: a wake in the queue of the limit, which no worker serves. The driver that gives a slot back calls the next run, by
a wake in the run's own queue; workers also look from time to time, because drivers die.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from reyn.errors import AppendConflict, RunBusy
from reyn.journal.lifecycle import ENDED
from reyn.journal.wakes import Wake, microseconds

if TYPE_CHECKING:
    from reyn.journal.lifecycle import RunRow
    from reyn.journal.port import Journal
    from reyn.journal.wakes import PendingWake

SlotLimits = Mapping[str, int]
"""The number of slots of each limit, by its key: `queue:NAME` or `skill:NAME`."""
_SEPARATOR = ":"
"""No name of a queue and no id of a run has it, so lines and slots cannot be confused with them."""
_CALLING_SECONDS, _CALLED_SECONDS = 5.0, 86_400.0
"""How long a wake in a line is held while its run is called, and afterwards, so that the run is called once."""
_COMING_SECONDS = 5.0
"""How long a slot is left for a run that was called. It may come later, because its workers are busy."""


def limit_key(kind: str, name: str) -> str:
    """Return the key of the limit of a queue or a skill, which is also the name of its line."""
    return f"{kind}{_SEPARATOR}{name}"


def limit_name(line: str) -> str:
    """Return a limit as users read it; empty if a queue is not the line of a limit."""
    kind, separator, name = line.partition(_SEPARATOR)
    return f"{kind} `{name}`" if separator else ""


@contextmanager
def slots_of(journal: Journal, row: RunRow, limits: SlotLimits) -> Iterator[str]:
    """Hold a slot of each limit during the block.

    Args:
        journal: The journal.
        row: The submitted run to execute.
        limits: Its limits.

    Yields:
        The key of the limit that has no slot for the run, which now waits in line; empty if the slots are held.

    Raises:
        AppendConflict: There is no slot, and the run has changed meanwhile.
    """
    with ExitStack() as held:
        for key, count in limits.items():
            held.callback(call_next, journal, key, count)  # after all slots are given back
        missing = next((key for key, count in limits.items() if not _enter(journal, row.run_id, key, count, held)), "")
        if missing:
            _wait_in_line(journal, row, missing)
            held.close()
        else:
            leave_lines(journal, row.run_id)
        yield missing


def call_next(journal: Journal, key: str, count: int) -> None:
    """Call as many runs of a line as there are free slots, less those that were called and are coming."""
    if not (first := journal.first_wakes(key, count)):
        return
    now = microseconds()
    coming = sum(one.held_until > now and not _is_late(one, now) for one in first)
    free = len(_free_slots(journal, key, count)) - coming
    called = journal.take_wakes([key], free, _CALLING_SECONDS) if free > 0 else []
    journal.hold_wakes([one.seq for one in called if _call(journal, one)], _CALLED_SECONDS)


def call_others(journal: Journal, limits: SlotLimits) -> None:
    """Call the runs in the lines of limits that do not exist any more."""
    for wake in journal.wakes():
        if limit_name(wake.queue) and wake.queue not in limits and _call(journal, wake):
            journal.finish_wakes([wake.seq])


def leave_lines(journal: Journal, run_id: str) -> None:
    """Let a run wait in no line any more."""
    if seqs := [one.seq for one in journal.wakes(run_id) if limit_name(one.queue)]:
        journal.finish_wakes(seqs)


def _enter(journal: Journal, run_id: str, key: str, count: int, held: ExitStack) -> bool:
    """Take a slot, unless all are taken or left for the runs that are ahead in line."""
    ahead, now = 0, microseconds()
    for wake in journal.first_wakes(key, count):
        if wake.run_id == run_id:
            break
        ahead += not _is_late(wake, now)
    return claim_slot(journal, key, count, held, left=ahead)


def claim_slot(journal: Journal, key: str, count: int, held: ExitStack, *, left: int = 0) -> bool:
    """Claim a slot of a limit until `held` is closed, if more than `left` are free. Returns whether it was claimed."""
    free = _free_slots(journal, key, count)
    random.shuffle(free)  # workers that look at the same time try different ones first
    for name in free[left:]:
        try:
            held.enter_context(journal.claim(name))
        except RunBusy:
            continue
        return True
    return False


def _free_slots(journal: Journal, key: str, count: int) -> list[str]:
    names = [f"{key}{_SEPARATOR}{number}" for number in range(count)]
    taken = journal.claimed(names)
    return [name for name in names if name not in taken]


def _is_late(wake: PendingWake, now: int) -> bool:
    """Return whether a run was called and has not come: no slot is left for it."""
    held = (wake.held_until - now) / 1_000_000
    return _CALLING_SECONDS < held <= _CALLED_SECONDS - _COMING_SECONDS


def _wait_in_line(journal: Journal, row: RunRow, key: str) -> None:
    if seqs := [one.seq for one in journal.wakes(row.run_id) if one.queue == key]:
        journal.hold_wakes(seqs, 0)  # it was called, and can be called again
    else:
        journal.append(row.run_id, row.seq, [], [], [Wake(row.run_id, 0, key, row.priority)])


def _call(journal: Journal, waiting: PendingWake) -> bool:
    """Wake a run that waits in line. Returns whether that was done; one that ended leaves its lines."""
    row = journal.find(waiting.run_id)
    if row is None or row.status in ENDED:
        journal.finish_wakes([waiting.seq])
        return False
    try:
        journal.append(row.run_id, row.seq, [], [], [Wake(row.run_id, 0, row.queue, row.priority)])
    except AppendConflict:  # it has changed meanwhile, so a driver has it
        return False
    return True
