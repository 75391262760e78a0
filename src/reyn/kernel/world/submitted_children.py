"""The branches of a submitted run: they are submitted, too, so that any worker executes them.

A run that can only go on when one of them has ended is suspended: it gives its place at a worker back, and the end of
each branch wakes it. Nothing is remembered between two drives of the run; the rows of its branches say where they are.
A branch that had stopped when the run was resumed is continued by the run itself, as in a run that was not submitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.errors import InternalError
from reyn.journal import ENDED, Wake, kinds
from reyn.journal.cancellation import cancel_runs
from reyn.journal.family import descendants
from reyn.journal.outside import wakes_of_parent
from reyn.journal.submission import is_left_to_workers
from reyn.journal.summary import limit_of
from reyn.kernel.core.child_effects import ExecuteChild, SubRunsAwaited
from reyn.kernel.world.child_spec import is_final
from reyn.kernel.world.loading import load_state

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from reyn.journal import Blob, Body, Event, Journal, RunRow
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.child_effects import AwaitFirst, CancelChild, StartChildren
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.child_tasks import TasksAhead
    from reyn.kernel.world.children import Children

    Branches = Collection[kinds.ChildStarted]


class _Standing(NamedTuple):
    """Where branches are, by call: not begun, in progress, continued here, ended in this order, or stopped."""

    new: dict[str, kinds.ChildStarted]
    running: dict[str, kinds.ChildStarted]
    continued: dict[str, kinds.ChildStarted]
    ended: dict[str, kinds.ChildStarted]
    stopped: dict[str, kinds.ChildStarted]

    @property
    def in_progress(self) -> tuple[str, ...]:
        return tuple(one.run for one in self.running.values())


def is_in_progress(journal: Journal, row: RunRow | None) -> bool:
    """Return whether a submitted sub-run goes on without its parent: workers execute it, now or at a time."""
    if row is None or not row.queue:
        return False
    return is_left_to_workers(journal, row) or (row.status == "waiting" and row.wait is not None and row.wait.is_timer)


def are_submitted(effect: AwaitFirst | ExecuteChild | StartChildren, tape: Tape) -> bool:
    """Return whether workers execute children: branches of a submitted run that may be in progress together."""
    return bool(tape.state.queue) and effect.concurrency > 1


class SubmittedChildren:
    """The branches of one submitted run, in one drive of it."""

    def __init__(self, children: Children, tasks: TasksAhead, *, was_suspended: bool) -> None:
        """Create it.

        Args:
            children: The children of the run.
            tasks: Those that the run executes itself.
            was_suspended: Whether the run waited for branches before this drive; otherwise it was interrupted or had
                stopped, and continues those that have stopped.
        """
        self._children = children
        self._journal = children.journal
        self._tasks = tasks
        self._was_suspended = was_suspended
        self._seen: set[str] = set()
        """The branches that this drive has looked at or submitted, by call."""
        self._continued: set[str] = set()
        """The branches that this drive continues."""

    async def start(self, branches: Branches, concurrency: int, tape: Tape) -> None:
        """Submit as many branches as may be in progress, unless one has stopped."""
        standing = self._standing(branches, tape)
        free = concurrency - len(standing.running) - len(standing.continued)
        new = [*standing.new.values()][: max(0, free)]
        if standing.stopped or not new:
            return
        await self._tasks.flush(tape)  # their intents
        shares = self._shares(standing, new, concurrency, tape)
        self._seen.update(one.call for one in new)
        await self._tasks.together([self._children.submit(one, tape, shares.get(one.call)) for one in new])

    async def first(self, effect: AwaitFirst, tape: Tape) -> EventWithBlobs:
        """Return the outcome of the branch that ended first; that of a stopped one if none is in progress.

        Raises:
            SubRunsAwaited: The run has to wait.
        """
        while True:
            await self.start(effect.started, effect.concurrency, tape)
            standing = self._standing(effect.started, tape)
            if standing.ended:
                return self._children.settled(next(iter(standing.ended.values())), tape)
            if standing.continued:
                if (outcome := await self._continue(standing, effect.concurrency, tape)) is not None:
                    return outcome
            elif standing.running:
                raise SubRunsAwaited(standing.in_progress)
            else:
                return await self._stopped(standing, tape)

    async def execute(self, effect: ExecuteChild, tape: Tape) -> EventWithBlobs:
        """Return the outcome of a branch, while those that are awaited next are in progress, too.

        Raises:
            SubRunsAwaited: The run has to wait.
        """
        own, branches = effect.key, (effect.started, *effect.ahead)
        while True:
            await self.start(branches, effect.concurrency, tape)
            standing = self._standing(branches, tape)
            if own in standing.ended:
                return self._children.settled(effect.started, tape)
            if own in standing.continued:
                await self._continue(standing._replace(continued={own: effect.started}), effect.concurrency, tape)
            elif own in standing.stopped and not (standing.running and self._is_short_of_tokens(effect.started)):
                return await self._stopped(standing._replace(stopped={own: effect.started}), tape)
            elif standing.running:
                raise SubRunsAwaited(standing.in_progress)
            else:  # others stopped before it began
                return await self._stopped(standing, tape)

    async def cancel(self, effect: CancelChild, tape: Tape) -> EventWithBlobs:
        """Cancel branches, and return how one of them ended.

        Raises:
            SubRunsAwaited: A worker executes it.
        """
        branches = (effect.started, *effect.others)
        if any(one.call in self._tasks.ahead for one in branches):
            return await self._tasks.cancel(effect, tape)
        for one in branches:
            self._children.cancel(one, effect.reason, tape)
        rows = [self._journal.find(one.run) for one in branches]
        if rows[0] is not None and rows[0].queue and rows[0].status not in ENDED:
            raise SubRunsAwaited(tuple(row.run_id for row in rows if row is not None and row.status not in ENDED))
        return await self._children.end(effect, tape)

    def abort(self, events: Collection[Body], state: RunState) -> None:
        """Cancel the branches of a turn that one of these events aborts."""
        for turn in events:
            if isinstance(turn, kinds.TurnAborted) and state.queue:
                rows = [row for run in state.visit.children.values() if (row := self._journal.find(run)) and row.queue]
                below = [one for row in rows for one in descendants(self._journal, row.run_id)]
                now = self._children.services.clock.now
                cancel_runs(self._journal, [*rows, *below], "the turn of its parent was aborted", now)

    async def append(
        self, state: RunState, run_id: str, seq: int, events: Sequence[Event], blobs: Sequence[Blob]
    ) -> int:
        """Append events of the run, which is then in this state. If it is a branch that ends or stops, its parent is
        woken."""
        parent, wakes = state.started.parent, tuple[Wake, ...]()
        if parent is not None and state.queue and state.status != "running":
            wakes = wakes_of_parent(self._journal, parent.run)
        return await self._children.services.commits.append(run_id, seq, events, blobs, wakes)

    # -- where they are -------------------------------------------------------------------------------

    def _standing(self, branches: Branches, tape: Tape) -> _Standing:
        standing, ends = _Standing({}, {}, {}, {}, {}), dict[str, int]()
        for one in branches:
            if one.call in tape.state.recovery.children:
                continue  # of the origin of a fork
            row = self._journal.find(one.run)
            self._look_at(one, row)
            if row is None:
                place = standing.new
            elif one.call in self._continued:
                place = standing.continued
            elif self._has_ended(row):
                place, ends[one.call] = standing.ended, row.updated
            else:
                place = standing.running if is_in_progress(self._journal, row) else standing.stopped
            place[one.call] = one
        ordered = sorted(standing.ended, key=ends.__getitem__)
        return standing._replace(ended={call: standing.ended[call] for call in ordered})

    def _look_at(self, started: kinds.ChildStarted, row: RunRow | None) -> None:
        """Decide what becomes of a branch that has begun before this drive."""
        if started.call in self._seen:
            return
        self._seen.add(started.call)
        if row is None or self._has_ended(row):
            return
        if not row.queue or not (self._was_suspended or is_in_progress(self._journal, row)):
            self._continued.add(started.call)
        elif not self._was_suspended and self._is_lost(row):
            self._journal.append(row.run_id, row.seq, [], [], [Wake(row.run_id, 0, row.queue, row.priority)])

    def _is_lost(self, row: RunRow) -> bool:
        """Return whether no worker knows of a branch: a drive that continued it itself was interrupted."""
        if row.status != "running" or row.is_suspended or self._journal.is_claimed(row.run_id):
            return False
        return not self._journal.wakes(row.run_id)

    def _has_ended(self, row: RunRow) -> bool:
        """Return whether there is a result: an end, or a failure that is one."""
        return row.status in ENDED or (row.status == "failed" and is_final(load_state(self._journal, row.run_id)))

    # -- tokens ---------------------------------------------------------------------------------------

    def _shares(
        self, standing: _Standing, new: Collection[kinds.ChildStarted], concurrency: int, tape: Tape
    ) -> dict[str, int]:
        """Return the tokens that new branches may use, by call; nothing if tokens are not limited."""
        self._count_tokens(standing, tape)
        shares: dict[str, int] = {}
        for number, one in enumerate(new):
            left = self._tasks.tokens_left(tape)
            if left is None:
                return {}
            executing = len(standing.running) + len(standing.continued) + number
            shares[one.call] = self._tasks.elsewhere[one.call] = left and max(1, left // (concurrency - executing))
        return shares

    def _count_tokens(self, standing: _Standing, tape: Tape) -> None:
        """Count what branches have used, or may use, that the run has not counted yet."""
        self._tasks.elsewhere = {}
        if self._tasks.tokens_left(tape) is None:
            return
        services, found = self._children.services, {}
        for one in (*standing.running.values(), *standing.stopped.values(), *standing.ended.values()):
            state = load_state(self._journal, one.run)
            settings = services.settings_of(state.started, self._journal.blob)
            cap = limit_of(state, settings, "tokens") if one.call in standing.running else None
            found[one.call] = max(cap or 0, state.usage.total)
        self._tasks.elsewhere = found

    def _is_short_of_tokens(self, started: kinds.ChildStarted) -> bool:
        stop = load_state(self._journal, started.run).stop
        return stop.limit is not None and stop.limit[0] == "tokens"

    # -- branches that stopped ------------------------------------------------------------------------

    async def _continue(self, standing: _Standing, concurrency: int, tape: Tape) -> EventWithBlobs | None:
        """Continue branches that had stopped, until one of them ends, which is returned, or stops again."""
        self._count_tokens(standing, tape)
        await self._tasks.start(tuple(standing.continued.values()), concurrency, tape)
        call, outcome = await self._tasks.arrived(standing.continued)
        self._continued.discard(call)
        return outcome if outcome is not None and isinstance(outcome[0], kinds.ChildEnded) else None

    async def _stopped(self, standing: _Standing, tape: Tape) -> EventWithBlobs:
        """Return the outcome of a branch that stopped; one that has used its share of the tokens may use the rest."""
        if not standing.stopped:
            raise InternalError(f"no branch of run `{tape.run_id}` is in progress")
        call, started = next(iter(standing.stopped.items()))
        if not self._is_short_of_tokens(started):
            return self._children.settled(started, tape)
        others = {name: one for name, one in standing.stopped.items() if name != call}
        self._count_tokens(standing._replace(stopped=others), tape)
        return await self._children.execute(ExecuteChild(call, started), tape, self._tasks.tokens_left(tape))
