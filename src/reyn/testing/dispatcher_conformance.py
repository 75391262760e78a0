"""Conformance suite of the port of dispatchers. It runs under pytest but does not import it.

A dispatcher delivers each wake at least once, to any worker. That a wake too many does nothing is the part of
`reyn.runtime.submitting.drive`.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from reyn.engines import Serving
from reyn.journal import Wake, kinds
from reyn.runtime import OSRuntime
from reyn.runtime.submitting import MAX_TAKEOVERS
from reyn.testing.journal_suite import begin

if TYPE_CHECKING:
    from reyn.engines import Dispatcher
    from reyn.journal import Body, Journal
    from reyn.journal.results import RunResult

T = TypeVar("T")

_LONG = 60.0
"""Seconds after which a test has failed."""


class _Worker:
    """Serves until a condition holds. `driven` counts the calls by run."""

    def __init__(self, *, queues: tuple[str, ...] = ("default",), concurrency: int = 2) -> None:
        self.serving = Serving(queues=queues, concurrency=concurrency)
        self.driven: Counter[str] = Counter()
        self.most = 0
        self._changed = asyncio.Event()

    async def drive(self, run_id: str) -> float | None:
        """Do nothing, for a moment."""
        self.driven[run_id] += 1
        self.most = max(self.most, len(self.serving.active))
        self._changed.set()
        await asyncio.sleep(0)
        return None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is looked at again after each call."""
        async with asyncio.timeout(_LONG):
            while not condition():
                self._changed.clear()
                try:
                    async with asyncio.timeout(0.05):
                        await self._changed.wait()
                except TimeoutError:
                    continue


class DispatcherConformance:
    """Tests of the dispatcher that a subclass makes."""

    def make_journal(self, folder: Path) -> Journal:
        raise NotImplementedError  # the subclass creates the journal whose wakes are delivered

    def make_dispatcher(self, journal: Journal) -> Dispatcher:
        raise NotImplementedError  # the subclass creates the dispatcher under test, with a lease of at most 2 seconds

    def lose_wakes(self, journal: Journal) -> None:
        """Let the engine forget what it was given, as after a loss of its data. The journal has it still."""
        journal.hold_wakes([one.seq for one in journal.wakes()], 0)

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        with tempfile.TemporaryDirectory() as folder, closing(self.make_journal(Path(folder))) as journal:
            yield journal

    def _run(self, scenario: Callable[[Journal], Awaitable[None]]) -> None:
        with self.journal() as journal:
            asyncio.run(_within(scenario(journal)))

    @staticmethod
    def _wake(journal: Journal, *runs: str, due: int = 0, queue: str = "default", priority: int = 0) -> None:
        for run_id in runs:
            row = journal.find(run_id)
            if row is None:
                begin(journal, run_id)
                row = journal.find(run_id)
            assert row is not None
            journal.append(run_id, row.seq, [], [], [Wake(run_id, due, queue, priority)])

    async def _serve(
        self, journal: Journal, worker: _Worker, condition: Callable[[], bool], drive: _Drive | None = None
    ) -> None:
        serving = asyncio.ensure_future(self.make_dispatcher(journal).serve(drive or worker.drive, worker.serving))
        try:
            waiting = asyncio.ensure_future(worker.until(condition))
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            await waiting
        finally:
            worker.serving.stop.set()
            await serving

    def test_every_wake_is_delivered_and_none_is_left(self) -> None:
        async def scenario(journal: Journal) -> None:
            runs = [f"r{number}" for number in range(20)]
            self._wake(journal, *runs)
            worker = _Worker()
            await self._serve(journal, worker, lambda: not journal.wakes())
            assert sorted(worker.driven) == sorted(runs)
            assert worker.most <= 2

        self._run(scenario)

    def test_a_doubled_wake_is_delivered_once_or_twice(self) -> None:
        async def scenario(journal: Journal) -> None:
            self._wake(journal, "a", "a")
            worker = _Worker()
            await self._serve(journal, worker, lambda: not journal.wakes())
            assert 1 <= worker.driven["a"] <= 2

        self._run(scenario)

    def test_a_delayed_wake_is_delivered_when_it_is_due(self) -> None:
        async def scenario(journal: Journal) -> None:
            due = time.time_ns() // 1000 + 300_000
            self._wake(journal, "late", due=due)
            self._wake(journal, "now")
            worker = _Worker()
            await self._serve(journal, worker, lambda: not journal.wakes())
            assert set(worker.driven) == {"late", "now"}
            assert time.time_ns() // 1000 >= due

        self._run(scenario)

    def test_a_run_that_has_something_to_do_later_is_delivered_again(self) -> None:
        async def scenario(journal: Journal) -> None:
            self._wake(journal, "a")
            worker = _Worker()

            async def drive(run_id: str) -> float | None:
                await worker.drive(run_id)
                return None if worker.driven[run_id] == 3 else 0.01

            await self._serve(journal, worker, lambda: not journal.wakes(), drive)
            assert worker.driven["a"] == 3

        self._run(scenario)

    def test_a_wake_is_delivered_again_if_its_driver_fails(self) -> None:
        async def scenario(journal: Journal) -> None:
            self._wake(journal, "a")
            worker = _Worker()

            async def drive(run_id: str) -> float | None:
                await worker.drive(run_id)
                if worker.driven[run_id] == 1:
                    raise OSError("the driver broke")
                return None

            await self._serve(journal, worker, lambda: not journal.wakes(), drive)
            assert worker.driven["a"] == 2

        self._run(scenario)

    def test_a_worker_that_drains_gives_its_runs_to_another_one(self) -> None:
        async def scenario(journal: Journal) -> None:
            self._wake(journal, "a")
            first, second, cancelled = _Worker(), _Worker(), list[str]()

            async def drive(run_id: str) -> float | None:
                await first.drive(run_id)
                try:
                    await asyncio.sleep(_LONG)
                finally:
                    cancelled.append(run_id)
                return None

            await self._serve(journal, first, lambda: bool(first.driven), drive)
            assert cancelled == ["a"]
            assert not first.serving.active
            await self._serve(journal, second, lambda: not journal.wakes())
            assert second.driven["a"] == 1

        self._run(scenario)

    def test_the_wakes_of_a_worker_that_dies_go_to_another_one_and_nothing_changes_when_it_comes_back(self) -> None:
        with self.journal() as journal, closing(asyncio.new_event_loop()) as stopped:
            self._wake(journal, "a", "b")
            first, second = _Worker(concurrency=1), _Worker()

            async def drive(run_id: str) -> float | None:
                await first.drive(run_id)
                if first.driven.total() == 1:
                    stopped.stop()  # this worker gets no more time, like a killed or a paused process
                return None

            serving = stopped.create_task(self._serving(journal, first, drive))
            stopped.run_forever()
            assert first.driven.total() == 1
            asyncio.run(_within(self._serve(journal, second, lambda: not journal.wakes())))
            assert second.driven == {"a": 1, "b": 1}
            first.serving.stop.set()
            stopped.run_until_complete(serving)
            assert not journal.wakes()

    async def _serving(self, journal: Journal, worker: _Worker, drive: _Drive) -> None:
        await self.make_dispatcher(journal).serve(drive, worker.serving)

    def test_a_wake_that_the_engine_lost_is_delivered_again(self) -> None:
        async def scenario(journal: Journal) -> None:
            self._wake(journal, "first")
            before, after = _Worker(), _Worker()
            await self._serve(journal, before, lambda: not journal.wakes())
            self._wake(journal, "a", "b")
            self.lose_wakes(journal)
            await self._serve(journal, after, lambda: not journal.wakes())
            assert (before.driven, after.driven) == ({"first": 1}, {"a": 1, "b": 1})

        self._run(scenario)

    def test_a_run_that_is_woken_while_it_is_executed_is_delivered_a_second_time(self) -> None:
        async def scenario(journal: Journal) -> None:
            self._wake(journal, "a")
            workers, is_active, refused = [_Worker(), _Worker()], False, asyncio.Event()

            async def drive(run_id: str) -> float | None:
                nonlocal is_active
                if is_active:
                    refused.set()
                    return 0.05  # another driver has the claim
                is_active = True
                if not workers[0].driven:
                    self._wake(journal, "a")  # a message arrives
                    await refused.wait()
                await workers[0].drive(run_id)
                is_active = False
                return None

            await asyncio.gather(*(self._serve(journal, one, lambda: not journal.wakes(), drive) for one in workers))
            assert workers[0].driven["a"] >= 2

        self._run(scenario)

    def test_a_cancelled_run_is_not_executed(self) -> None:
        self._submit_and_serve([], lambda rt: rt.cancel("a", "not needed"), "cancelled")

    def test_a_run_whose_drivers_die_is_set_aside(self) -> None:
        died = [kinds.RunResumed(f"d{number}") for number in range(MAX_TAKEOVERS)]
        result = self._submit_and_serve(died, lambda rt: None, "failed")
        assert result.code == "RYN441"

    def _submit_and_serve(self, bodies: Sequence[Body], act: Callable[[OSRuntime], object], status: str) -> RunResult:
        """Let a worker of a runtime take a submitted run, until it has a status."""

        async def scenario() -> RunResult:
            with self.journal() as journal, tempfile.TemporaryDirectory() as folder:
                begin(journal, "a", kinds.RunSubmitted("default"), *bodies)
                self._wake(journal, "a")
                async with OSRuntime.open(folder, journal=journal, trust=True) as runtime:
                    act(runtime)
                    worker = _Worker()
                    dispatcher = self.make_dispatcher(journal)
                    serving = asyncio.ensure_future(
                        runtime.workers.serve(serving=worker.serving, dispatcher=dispatcher)
                    )
                    await worker.until(lambda: serving.done() or not journal.wakes())
                    worker.serving.stop.set()
                    await serving
                    assert runtime.runs.find("a").status == status
                    return runtime.runs.result("a")

        return asyncio.run(_within(scenario()))

    def test_workers_share_the_wakes_and_serve_their_queues_only(self) -> None:
        async def scenario(journal: Journal) -> None:
            runs = [f"r{number}" for number in range(12)]
            self._wake(journal, *runs)
            self._wake(journal, "other", queue="other")
            workers = [_Worker(concurrency=1) for _ in range(3)]

            def is_done() -> bool:
                return all(one.queue == "other" for one in journal.wakes())

            await asyncio.gather(*(self._serve(journal, one, is_done) for one in workers))
            total = sum((one.driven for one in workers), Counter[str]())
            assert sorted(total) == sorted(runs)
            assert max(one.most for one in workers) == 1
            last = _Worker(queues=("default", "other"))
            await self._serve(journal, last, lambda: not journal.wakes())
            assert last.driven == {"other": 1}

        self._run(scenario)


_Drive = Callable[[str], Awaitable[float | None]]


async def _within(scenario: Awaitable[T]) -> T:
    async with asyncio.timeout(2 * _LONG):
        return await scenario
