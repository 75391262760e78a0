"""The rule of rates: no minute has more than the limit, however processes ask, pause, die and report."""

from __future__ import annotations

import random

import pytest

from reyn.journal.rates import (
    MINUTE,
    RateChange,
    RateLimits,
    RateNeed,
    RateRefusal,
    RateSlice,
    RateState,
    decode_rates,
    encode_rates,
    lease,
)

SECOND = 1_000_000


class Machine:
    """A process that leases slices, and starts calls at any time until they end."""

    def __init__(self, name: str, rng: random.Random, limits: RateLimits) -> None:
        self.name, self.rng, self.limits = name, rng, limits
        self.slice: RateSlice | None = None
        self.asked = self.resumes_at = 0
        self.changes: list[RateChange] = []
        self.calls: list[tuple[int, int, int]] = []

    def step(self, state: RateState, now: int) -> RateState:
        rng = self.rng
        if now < self.resumes_at:
            return state
        if rng.random() < 0.02:  # paused, or killed: what it has leased is lost
            self.resumes_at = now + rng.randrange(20 * SECOND)
            self.slice = self.slice if rng.random() < 0.5 else None
            return state
        tokens = rng.choice((1, 20, 60)) if self.limits.tokens else 0
        held = self.slice
        if held is None or now >= self.asked + held.seconds * SECOND or not held.requests or held.tokens < tokens:
            if held is not None:
                self.changes.append(RateChange(held.end, -held.requests, -held.tokens))
                self.slice = None
            need = RateNeed(self.name, self.limits, tokens, rng.randrange(6), changes=self.changes)
            state, found = lease(decode_rates(encode_rates(state)), need, now)
            self.changes = []
            if isinstance(found, RateRefusal):
                self.resumes_at = now + min(round(found.seconds * SECOND), rng.randrange(1, 2 * SECOND))
                return state
            self.slice, self.asked = found, now
            self.resumes_at = now + rng.randrange(SECOND)  # the answer takes its time
            return state
        used = rng.randrange(tokens + 1)
        self.slice = held._replace(requests=held.requests - 1, tokens=held.tokens - tokens)
        self.changes.append(RateChange(held.end, 0, used - tokens))
        self.calls.append((now, 1, used))
        return state


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(60))
def test_no_minute_has_more_than_the_limits(seed: int):
    rng = random.Random(seed)
    limits = RateLimits(rng.choice((None, 1, 5, 60)), rng.choice((None, 60, 400)))
    if limits == (None, None):
        limits = RateLimits(30, None)
    machines = [Machine(str(number), rng, limits) for number in range(4)]
    state, now = RateState(), 10**15
    for _ in range(3000):
        now += rng.randrange(SECOND // 4)
        state = rng.choice(machines).step(state, now)
    calls = sorted(call for machine in machines for call in machine.calls)
    assert len(state.slices) < 200
    first, requests, tokens = 0, 0, 0
    for at, count, used in calls:
        requests, tokens = requests + count, tokens + used
        while calls[first][0] <= at - MINUTE:
            requests, tokens = requests - calls[first][1], tokens - calls[first][2]
            first += 1
        assert limits.requests is None or requests <= limits.requests
        assert limits.tokens is None or tokens <= limits.tokens
    assert calls


def ask(state: RateState, now: float, owner: str = "a", tokens: int = 0, **need: object) -> tuple[RateState, object]:
    limits = RateLimits(need.pop("requests", None), need.pop("most", None))
    state, found = lease(state, RateNeed(owner, limits, tokens, **need), round(now * SECOND))
    return state, found


def test_a_limit_is_used_up_to_a_few_percent():
    state, made, now = RateState(), 0, 0.0
    while now < 600:
        state, found = ask(state, now, requests=30)
        made += isinstance(found, RateSlice)
        now += 0 if isinstance(found, RateSlice) else min(found.seconds, 1.0)
    assert 285 <= made <= 300


def test_a_process_that_waits_is_not_overtaken_by_smaller_calls():
    state, _ = ask(RateState(), 0, tokens=80, most=100)
    state, refused = ask(state, 1, "large", tokens=90, most=100)
    assert isinstance(refused, RateRefusal)
    assert 60 <= refused.seconds <= 62
    state, overtaking = ask(state, 2, "small", tokens=15, most=100)
    assert isinstance(overtaking, RateRefusal)
    state, later = ask(state, 6, "small", tokens=15, most=100)
    assert isinstance(later, RateSlice)  # the other one has not asked for a while


def test_a_call_beyond_the_limit_is_made_when_nothing_else_counts():
    state, first = ask(RateState(), 0, tokens=10, most=100)
    state, refused = ask(state, 1, "large", tokens=5000, most=100)
    state, granted = ask(state, 63, "large", tokens=5000, most=100)
    state, after = ask(state, 64, tokens=10, most=100)
    assert [type(one) for one in (first, refused, granted, after)] == [RateSlice, RateRefusal, RateSlice, RateRefusal]


def test_a_clock_that_was_set_back_does_not_stop_the_calls_for_longer():
    state, _ = ask(RateState(), 10_000, requests=1)
    state, refused = ask(state, 100, requests=1)
    assert isinstance(refused, RateRefusal)
    assert refused.seconds <= 95
    assert isinstance(ask(state, 196, requests=1)[1], RateSlice)


def test_what_is_reported_again_after_a_lost_connection_gives_nothing_back():
    need = RateNeed("a", RateLimits(5, 5), changes=[RateChange(1, -2, 3), RateChange(2, 0, -9)])
    assert need.repeated().changes == [RateChange(1, 0, 3), RateChange(2, 0, 0)]


@pytest.mark.parametrize("content", [None, b"", b"[", b'{"a":1}', b"[[[1]]]"])
def test_a_damaged_state_counts_as_empty(content: bytes | None):
    assert decode_rates(content) == RateState()
