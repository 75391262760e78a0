"""Effects that are in progress before a visit awaits them: sub-runs and ops; and background runs.

A run has a journal of its own, so one that is interrupted continues when it is awaited again. A background run begins
when a process that holds its conversation, or `reyn resume`, executes it; until then only the journal of the
conversation knows of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import ENDED, Body, Journal, ReportRun, kinds
from reyn.journal.submission import post_message
from reyn.kernel.core.child_effects import AwaitFirst, CancelChild, ExecuteChild, SubRunsAwaited
from reyn.kernel.world.child_spec import STOPPED
from reyn.kernel.world.loading import first_event, load_state

if TYPE_CHECKING:
    from reyn.journal.commits import SharedCommits
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.runtime_types import RunResult
    from reyn.kernel.world.children import Children
    from reyn.kernel.world.inbox import InboxPolling

_MAX_RESULT_CHARS = 8_000
"""What a message quotes of a result; `reyn show RUN` has all of it."""


# -- sub-runs and ops that a visit awaits ---------------------------------------------------------------


class TasksAhead:
    """The sub-runs and ops of one run that are performed now, and whose outcomes its visit awaits later.

    Their intents are durable. The outcomes of ops become durable as they arrive, so that neither a slower op, an abort
    nor a kill loses them; the visit still takes them in order. A sub-run has a journal of its own, so its outcome is
    recorded when the visit awaits it.
    """

    def __init__(self, children: Children, commits: SharedCommits, flush: Callable[[Tape], Awaitable[None]]) -> None:
        self._children = children
        self._commits = commits
        self.flush = flush
        """Makes the buffered events of a tape durable."""
        self.ahead: dict[str, asyncio.Future[Any]] = {}
        """What was started and is not awaited yet, by call."""
        self._executing: set[str] = set()
        self._arrived: dict[str, None] = {}
        """The children whose outcomes nothing has taken, in the order in which they ended or stopped."""
        self._tokens: dict[str, int] = {}
        """Tokens of sub-runs whose outcomes are not recorded yet, by call: their shares, then what they have used."""
        self.elsewhere: dict[str, int] = {}
        """Tokens of submitted sub-runs whose outcomes are not recorded yet, by call."""
        self._slots: tuple[int, asyncio.Semaphore] | None = None

    async def arrived(self, calls: Collection[str]) -> tuple[str, EventWithBlobs | None]:
        """Wait until one of some children has ended or stopped. Returns its call and its outcome; `None` if it waits
        for sub-runs that workers execute."""
        tasks = {self.ahead[call]: call for call in calls}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        call = next(call for task, call in tasks.items() if task.done())
        if not isinstance(self.ahead[call].exception(), SubRunsAwaited):
            return call, self._take(call)
        self._tokens.pop(call, None)
        self._arrived.pop(call, None)
        del self.ahead[call]
        return call, None

    async def together(self, work: Collection[Awaitable[None]]) -> None:
        """Await commits that share a transaction."""
        with self._commits.active_run():
            await asyncio.gather(*work)

    def start_ops(self, work: dict[str, Coroutine[Any, Any, EventWithBlobs | None]]) -> None:
        """Start to perform ops, by call, whose intents are durable."""
        for call, performing in work.items():
            self.ahead[call] = asyncio.ensure_future(performing)

    async def outcome(self, call: str, tape: Tape) -> EventWithBlobs | None:
        """Return the outcome of an op that was started; `None` if it was abandoned because the run was cancelled.

        Outcomes of the others that arrive before it are made durable meanwhile.
        """
        own = self.ahead[call]
        while not own.done():
            self._record_arrived(tape)
            if tape.pending:
                await self.flush(tape)  # others may arrive meanwhile
            else:
                running = [task for task in self.ahead.values() if not task.done()]
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        outcome: EventWithBlobs | None = self.ahead.pop(call).result()
        if outcome is None:  # the others are abandoned as well, unless they have ended
            await asyncio.gather(*self.ahead.values(), return_exceptions=True)
            self._record_arrived(tape)
        return outcome

    def _record_arrived(self, tape: Tape) -> None:
        """Record the outcomes of ops that have ended. An error is raised where the visit awaits the op."""
        for call, task in [*self.ahead.items()]:
            if task.done() and not task.cancelled() and task.exception() is None and task.result() is not None:
                body, blobs = self.ahead.pop(call).result()
                tape.record_early(call, body, self._children.services.clock.now(), *blobs)

    async def execute(self, effect: ExecuteChild, tape: Tape) -> EventWithBlobs:
        """Execute a sub-run, and meanwhile those that are awaited next."""
        await self.start((effect.started, *effect.ahead), effect.concurrency, tape)
        if not self.ahead[effect.key].done():
            await self.flush(tape)  # what is known before a wait
        await asyncio.wait([self.ahead[effect.key]])
        outcome = self._take(effect.key)
        if isinstance(outcome[0], kinds.ChildStopped) and outcome[0].limit == "tokens":
            # It has used its share. Once it is known what the others need, it may use all that is left.
            await self._finish_executing()
            outcome = await self._children.execute(effect, tape, self.tokens_left(tape))
        return outcome

    async def first(self, effect: AwaitFirst, tape: Tape) -> EventWithBlobs:
        """Execute children, and return the outcome of the first that ends; that of a stopped one if none is left."""
        if not any(isinstance(self._ended(one.call), kinds.ChildStopped) for one in effect.started):
            await self.start(effect.started, effect.concurrency, tape)
        await self.flush(tape)
        while True:
            arrived = [call for call in self._arrived if (task := self.ahead.get(call)) is not None and task.done()]
            for call in arrived:
                if isinstance(self._ended(call), kinds.ChildEnded):
                    return self._take(call)
            if arrived:
                await self._drop_queued()
            running = [task for task in self.ahead.values() if not task.done()]
            if running:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            else:
                return await self._stopped(next(one for one in effect.started if one.call == arrived[0]), tape)

    def _ended(self, call: str) -> Body | None:
        """Return the outcome of a child that was started; `None` while it executes."""
        task = self.ahead.get(call)
        return task.result()[0] if task is not None and task.done() else None

    def _take(self, call: str) -> EventWithBlobs:
        """Return the outcome of a child that ended or stopped, which counts from now on in its parent."""
        self._tokens.pop(call, None)
        self._arrived.pop(call, None)
        outcome: EventWithBlobs = self.ahead.pop(call).result()
        return outcome

    async def _stopped(self, started: kinds.ChildStarted, tape: Tape) -> EventWithBlobs:
        """Return the outcome of a child that stopped; one that has used its share of the tokens may use the rest."""
        outcome = self._take(started.call)
        if isinstance(outcome[0], kinds.ChildStopped) and outcome[0].limit == "tokens":
            # What the others need is known now.
            outcome = await self._children.execute(ExecuteChild(started.call, started), tape, self.tokens_left(tape))
        return outcome

    async def cancel(self, effect: CancelChild, tape: Tape) -> EventWithBlobs:
        """Cancel children, and return how one of them ended."""
        for one in (effect.started, *effect.others):
            self._children.cancel(one, effect.reason, tape)
        await self._drop_queued()
        if (task := self.ahead.get(effect.key)) is not None:
            await asyncio.wait([task])
            outcome = self._take(effect.key)
            if isinstance(outcome[0], kinds.ChildEnded):
                return outcome
        await self.flush(tape)
        return await self._children.end(effect, tape)

    async def _drop_queued(self) -> None:
        """Do not begin the children that wait for a place."""
        queued = {call: task for call, task in self.ahead.items() if call not in self._executing and not task.done()}
        for task in queued.values():
            task.cancel()
        await asyncio.gather(*queued.values(), return_exceptions=True)
        self.ahead = {call: task for call, task in self.ahead.items() if call not in queued}

    async def start(self, sub_runs: tuple[kinds.ChildStarted, ...], concurrency: int, tape: Tape) -> None:
        """Start the sub-runs that were not started before, once their intents are durable."""
        known = self.ahead.keys() | tape.state.recovery.children.keys()
        new = [started for started in sub_runs if started.call not in known]
        if not new:
            return
        await self.flush(tape)
        for started in new:
            work = self._execute_one(ExecuteChild(started.call, started), concurrency, tape)
            self.ahead[started.call] = asyncio.ensure_future(work)
        await asyncio.sleep(0)  # they reach their first commit, or the model

    async def _execute_one(self, effect: ExecuteChild, concurrency: int, tape: Tape) -> EventWithBlobs:
        if self._slots is None or self._slots[0] != concurrency:
            self._slots = (concurrency, asyncio.Semaphore(concurrency))
        async with self._slots[1]:
            self._executing.add(effect.key)
            try:
                left = self.tokens_left(tape)
                share = left and max(1, left // (concurrency - len(self._executing) + 1))
                self._tokens[effect.key] = share or 0
                with self._commits.active_run():  # shares its commits with those that execute beside it
                    outcome = await self._children.execute(effect, tape, share)
                self._tokens[effect.key] = self._tokens_of(outcome[0])
                return outcome
            finally:
                self._executing.discard(effect.key)
                self._arrived[effect.key] = None

    def tokens_left(self, tape: Tape) -> int | None:
        """Return the tokens that no sub-run has used or may use; `None` if they are not limited."""
        left = self._children.settings_left(tape).limits.tokens
        return None if left is None else max(0, left - sum(self._tokens.values()) - sum(self.elsewhere.values()))

    def _tokens_of(self, outcome: Body) -> int:
        """Return the tokens that a sub-run has used."""
        match outcome:
            case kinds.ChildEnded():
                return outcome.usage.total
            case kinds.ChildStopped() if outcome.limit == "tokens":
                return load_state(self._children.journal, outcome.run).usage.total
        return 0

    async def _finish_executing(self) -> None:
        """Let the sub-runs in progress end or stop, and start no others."""
        await self._drop_queued()
        await asyncio.gather(*self.ahead.values(), return_exceptions=True)

    async def settle(self, *, is_finishing: bool = False) -> None:
        """End the sub-runs that nothing awaits any more: interrupt them, or let those in progress end or stop.

        A run that waits or has reached a limit lets them finish, because the answers that they wait for are paid.
        """
        self._arrived.clear()
        if not self.ahead:
            self._tokens.clear()
            return
        if is_finishing:
            await self._finish_executing()
        tasks = [*self.ahead.values()]
        self.ahead.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tokens.clear()


# -- background runs ----------------------------------------------------------------------------------


def unreported(journal: Journal, state: RunState) -> list[str]:
    """Return the background runs of a conversation whose last report is missing or older than their status.

    One that was reported as failed and retried since can be waiting or interrupted.
    """
    rows = []
    for run_id, report in state.inbox.background.items():
        row = journal.find(run_id)
        if report is None or (row is not None and row.status != report.status):
            rows.append(run_id)
    return rows


def report_end(journal: Journal, polling: InboxPolling, result: RunResult) -> None:
    """Post a message to the conversation that started a background run, if the run has ended or stopped."""
    started = first_event(journal, result.run_id) if "." in result.run_id else None
    parent = started.parent if started is not None else None
    if started is None or parent is None or not parent.background or result.status not in STOPPED:
        return
    row = journal.find(parent.run)
    if row is None or row.status in ENDED:
        return
    who = f"The background run `{result.run_id}` of the skill `{started.skill}`"
    if result.status == "finished":
        data = msgspec.json.encode((result.artifact or {}).get("data")).decode()
        excerpt = data if len(data) <= _MAX_RESULT_CHARS else f"{data[:_MAX_RESULT_CHARS]} … ({len(data)} characters)"
        text = f"{who} has finished. Its result: {excerpt}"
    else:
        text = f"{who} is {result.status}: {result.reason or 'no reason was recorded'}"
    answers = load_state(journal, result.run_id).models.answers
    post_message(journal, row, ReportRun(result.run_id, str(result.status), text, result.usage, answers))
    polling.notify(parent.run)
