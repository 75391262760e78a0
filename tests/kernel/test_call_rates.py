"""`requests_per_minute` and `tokens_per_minute` of an endpoint, as the calls of a process meet them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from reyn.journal import MemoryJournal
from reyn.journal.kinds import Usage
from reyn.journal.rates import RateLimits, RateNeed, RateRefusal, RateSlice, RateState, encode_rates, lease
from reyn.kernel.world import call_rates
from reyn.kernel.world.call_rates import CallRate, call_rate


class SteppedJournal(MemoryJournal):
    """A journal whose clock stands still, except that a pause lets its time pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 1000.0
        self.asked: list[RateNeed] = []
        self.state = RateState()
        self.delay = 0.0

    def take_rate(self, name: str, need: RateNeed) -> RateSlice | RateRefusal:
        self.asked.append(need)
        self.state, found = lease(self.state, need, round(self.time * 1_000_000))
        self.time += self.delay
        return found


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> SteppedJournal:
    stepped = SteppedJournal()
    pause = asyncio.sleep

    async def sleep(seconds: float) -> None:
        stepped.time += seconds
        await pause(0)

    monkeypatch.setattr(call_rates, "_sleep", sleep)
    return stepped


class Caller:
    """A process that calls an endpoint, and remembers why its calls waited."""

    def __init__(self, journal: SteppedJournal, requests: int | None = None, tokens: int | None = None) -> None:
        self.journal = journal
        self.rate = CallRate(journal, "e", lambda: journal.time)
        self.limits = RateLimits(requests, tokens)
        self.waits: list[tuple[str, int]] = []

    async def call(self, tokens: int = 0, usage: Usage | None = None) -> float:
        async def on_wait(reason: str, ahead: int) -> None:
            self.waits.append((reason, ahead))

        async with self.rate.call(tokens, self.limits, on_wait) as call:
            started = self.journal.time
            call.settle(usage)
        return started


def most_in_a_minute(times: list[float]) -> int:
    return max(sum(start <= one < start + 60 for one in times) for start in times)


def test_no_minute_has_more_requests_than_allowed(journal: SteppedJournal):
    async def main() -> list[float]:
        caller = Caller(journal, requests=3)
        times = [await caller.call() for _ in range(10)]
        assert set(caller.waits) == {("requests_per_minute", 0)}
        assert len(caller.waits) <= 9
        return times

    times = asyncio.run(main())
    assert most_in_a_minute(times) == 3
    assert times[-1] - times[0] < 3 * 64


def test_processes_share_a_limit_and_a_busy_one_asks_less_often_than_it_calls(journal: SteppedJournal):
    async def main() -> list[float]:
        callers = [Caller(journal, requests=200) for _ in range(4)]
        return [await callers[number // 5 % 4].call() for number in range(400)]

    times = asyncio.run(main())
    assert most_in_a_minute(times) <= 200
    granted = [need for need in journal.asked if need.spare]
    assert len(granted) < 300


def test_no_minute_has_more_tokens_than_allowed(journal: SteppedJournal):
    async def main() -> list[float]:
        caller = Caller(journal, tokens=1000)
        times = [await caller.call(400) for _ in range(4)]
        assert {reason for reason, _ in caller.waits} == {"tokens_per_minute"}
        return times

    times = asyncio.run(main())
    assert times[1] == 1000.0
    assert 1060 <= times[2] == times[3] < 1065


def test_what_a_call_did_not_use_is_free_for_others(journal: SteppedJournal):
    async def main() -> float:
        caller = Caller(journal, tokens=1000)
        await caller.call(900, usage=Usage(100, 50))
        return await caller.call(800)

    assert asyncio.run(main()) == 1000.0


@pytest.mark.parametrize("usage", [Usage(-5, 1), Usage("many", 1), None])
def test_absurd_counts_do_not_change_the_estimate(journal: SteppedJournal, usage: Usage | None):
    async def main() -> float:
        caller = Caller(journal, tokens=100)
        await caller.call(70, usage)
        return await caller.call(70)

    assert asyncio.run(main()) > 1060


def test_calls_of_a_process_are_admitted_in_order_and_a_cancelled_one_leaves_the_line(journal: SteppedJournal):
    async def main() -> list[int]:
        caller, order = Caller(journal, requests=2), list[int]()

        async def call(number: int) -> None:
            await caller.call()
            order.append(number)

        tasks = [asyncio.create_task(call(number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        await asyncio.wait(tasks)
        return order

    assert asyncio.run(main()) == [0, 1, 2, 4, 5]


def test_a_slice_that_comes_too_late_is_not_used(journal: SteppedJournal):
    journal.delay = 7.0

    async def main() -> None:
        await Caller(journal, requests=10).call()

    asyncio.run(main())
    assert [need.seconds for need in journal.asked] == [2.0, 4.0, 8.0]
    assert [change for need in journal.asked for change in need.changes if change.requests != -1] == []
    assert sum(requests for _, requests, _ in journal.state.slices) == 1


def test_without_rates_nothing_is_asked_and_a_closed_journal_is_forgotten(journal: SteppedJournal):
    asyncio.run(Caller(journal).call())
    assert journal.asked == []
    other = MemoryJournal()
    assert call_rate(other, "e") is call_rate(other, "e")
    seen = weakref.ref(other)
    del other
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("count", [2**63, 2**70, 10**40, 1e9, None])
def test_an_implausible_number_of_tokens_does_not_count(journal: SteppedJournal, count: Any):
    """It is what a server reported. It neither blocks the endpoint nor makes the stored rates unreadable."""

    async def main() -> None:
        caller = Caller(journal, tokens=1_000)
        for _ in range(3):
            await caller.call(10, Usage(count, 1))
            await caller.call(10, Usage(1, count))
        assert caller.waits == []
        encode_rates(journal.state)

    asyncio.run(main())
