"""The rates of an endpoint that all processes of a journal share: `requests_per_minute` and `tokens_per_minute`.

A call that `Endpoint` and `call_slot` have admitted is the last to ask, because it has to start before its slice ends.
What a process leased beyond one call admits the next ones without asking. Calls of a process ask in order.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, ref

from reyn.config.models import EndpointSettings
from reyn.journal import digest
from reyn.journal.rates import MAX_SLICE_SECONDS, SLICE_SECONDS, RateChange, RateLimits, RateNeed, RateRefusal
from reyn.kernel.world.budgets import MAX_USAGE
from reyn.models.endpoints import Endpoint

if TYPE_CHECKING:
    from reyn.journal import Journal
    from reyn.journal.kinds import Usage
    from reyn.journal.rates import RateReason, RateSlice
    from reyn.models.endpoints import Wait

    OnRateWait = Callable[[RateReason, int], Awaitable[None]]

R = TypeVar("R")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
"""Seconds before a process asks again. Others may give back what they have not used at any time."""
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A slice also ends while the machine is suspended."""
_sleep = asyncio.sleep


def _boot_time() -> float:
    return time.clock_gettime(_BOOT_CLOCK)


class RatedCall:
    """A call that the rates admit."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def settle(self, usage: Usage | None) -> None:
        """Replace the estimated tokens by those that the call has used, unless their number is implausible."""
        counts: tuple[Any, ...] = () if usage is None else (usage.input_tokens, usage.output_tokens)
        # A plugin, or a server, may report anything.
        if counts and all(isinstance(count, int) and 0 <= count <= MAX_USAGE for count in counts):
            self.tokens = sum(counts)


class CallRate:
    """What this process leased of the rates of one endpoint. Its methods can be called from any thread."""

    def __init__(self, journal: Journal, endpoint: str, clock: Callable[[], float] = _boot_time) -> None:
        self._journal = ref(journal)
        self._name = digest(endpoint.encode())[:16]
        self._clock = clock
        self._owner = uuid.uuid4().hex[:12]
        self._lock = threading.Lock()
        self._line = Endpoint(endpoint, EndpointSettings(concurrency=1, failures=None))
        self._slice: RateSlice | None = None
        self._until = 0.0
        self._refusal: RateRefusal | None = None
        self._changes: dict[int, tuple[int, int]] = {}
        self._recent: deque[float] = deque()
        self._seconds = SLICE_SECONDS

    @asynccontextmanager
    async def call(self, tokens: int, limits: RateLimits, on_wait: OnRateWait) -> AsyncIterator[RatedCall]:
        """Wait until the rates admit a call, which begins with the block.

        Args:
            tokens: The tokens that the call may use.
            limits: The rates.
            on_wait: Called once, before the call waits: with the limit, and the number of calls that are ahead.
        """
        call = RatedCall(tokens)
        if limits == (None, None):
            yield call
            return
        number = await self._admit(tokens, limits, on_wait)
        try:
            yield call
        finally:
            if call.tokens != tokens and limits.tokens is not None:
                with self._lock:
                    self._change(number, 0, call.tokens - tokens)

    async def _admit(self, tokens: int, limits: RateLimits, on_wait: OnRateWait) -> int:
        """Wait until a slice admits a call; return the number of the slice."""
        is_reported = False

        async def report(reason: RateReason, ahead: int) -> None:
            nonlocal is_reported
            if not is_reported:
                is_reported = True
                await on_wait(reason, ahead)

        async def on_line(wait: Wait) -> None:
            if (refusal := self._refusal) is not None:  # otherwise the first call only asks
                await report(refusal.reason, wait.ahead + 1)

        async with self._line.slot(on_line):
            try:
                while (found := self._use(tokens)) is None:
                    journal = self._journal()
                    assert journal is not None
                    self._refusal = await call_journal(journal, self._lease, journal, tokens, limits)
                    if self._refusal is not None:
                        await report(self._refusal.reason, 0)
                        pause = min(max(self._refusal.seconds, _SHORTEST_PAUSE), _LONGEST_PAUSE)
                        await _sleep(pause * random.uniform(0.8, 1.0))  # noqa: S311 - not a secret
                return found
            finally:
                self._refusal = None

    def _use(self, tokens: int) -> int | None:
        """Use a part of the slice; return its number, or `None` if it has ended or is too small."""
        with self._lock:
            now, found = self._clock(), self._slice
            if found is None or now >= self._until or found.requests < 1 or found.tokens < tokens:
                return None
            self._slice = found._replace(requests=found.requests - 1, tokens=found.tokens - tokens)
            self._recent.append(now)
            return found.end

    def _lease(self, journal: Journal, tokens: int, limits: RateLimits) -> RateRefusal | None:
        """Exchange the slice for one that admits a call; return the refusal if there is none."""
        with self._lock:
            asked, rest, self._slice = self._clock(), self._slice, None
            if rest is not None:
                self._change(rest.end, -rest.requests, -rest.tokens)
            while self._recent and self._recent[0] < asked - SLICE_SECONDS:
                self._recent.popleft()
            changes = [RateChange(end, *counts) for end, counts in self._changes.items()]
            self._changes = {}
            need = RateNeed(self._owner, limits, tokens, len(self._recent), self._seconds, changes)
        found = journal.take_rate(self._name, need)
        if isinstance(found, RateRefusal):
            return found
        with self._lock:
            self._slice, self._until = found, asked + found.seconds
            is_late = self._clock() >= self._until  # on a slow machine, or after an outage of the server
            self._seconds = min(2 * self._seconds, MAX_SLICE_SECONDS) if is_late else SLICE_SECONDS
        return None

    def _change(self, number: int, requests: int, tokens: int) -> None:
        known = self._changes.get(number, (0, 0))
        self._changes[number] = known[0] + requests, known[1] + tokens


_rates: WeakKeyDictionary[Journal, dict[str, CallRate]] = WeakKeyDictionary()
_rates_lock = threading.Lock()


def call_rate(journal: Journal, endpoint: str) -> CallRate:
    """Return what this process leased of an endpoint's rates in a journal."""
    with _rates_lock:
        known = _rates.setdefault(journal, {})
        if endpoint not in known:
            known[endpoint] = CallRate(journal, endpoint)
        return known[endpoint]


async def call_journal(journal: Journal, call: Callable[..., R], *arguments: Any) -> R:
    """Call a function; if it waits for a server, in a thread, which ends before a cancellation goes on."""
    if not journal.is_remote:
        return call(*arguments)
    calling = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        await asyncio.wait([calling])
        raise
