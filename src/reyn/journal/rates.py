"""Rates: limits on the requests and tokens a minute of an endpoint, for all processes of a journal together.

A process leases a slice of the minute: requests that it may start until the slice ends. A slice counts until a minute
after its end, whenever its requests start, so no minute has more than the limit. What was not used is given back with
the next request for a slice. `lease` is the rule; a journal stores the state of each endpoint, in a row that appends
never touch, and passes the time of its clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

MINUTE = 60_000_000
SLICE_SECONDS, MAX_SLICE_SECONDS = 2.0, 30.0
"""How long a slice can be used: usually, and at most."""
_STEP = 500_000
"""Slices end at multiples of it, in microseconds, so that the state stays small."""
_SLACK = 8
"""One part in so many of what is left is leased beyond the next request."""
_PATIENCE = 3_000_000
"""The microseconds after which a process that does not ask again has left the line."""

RateReason = Literal["requests_per_minute", "tokens_per_minute"]


class RateLimits(NamedTuple):
    """The limits of an endpoint; `None` where there is none."""

    requests: int | None
    tokens: int | None


class RateChange(NamedTuple):
    """What a slice is to count more, or less: requests that were not made, tokens that a request used."""

    end: int
    requests: int
    tokens: int


class RateNeed(NamedTuple):
    """A request for a slice.

    Attributes:
        owner: The process.
        limits: The limits of the endpoint.
        tokens: The tokens that the next request may use.
        spare: How many requests of this size the process will probably make soon after.
        seconds: How long it can use the slice.
        changes: What its earlier slices are to count more or less.
    """

    owner: str
    limits: RateLimits
    tokens: int = 0
    spare: int = 0
    seconds: float = SLICE_SECONDS
    changes: Sequence[RateChange] = ()

    def repeated(self) -> RateNeed:
        """Return what to ask if the first request may have succeeded: nothing is given back twice."""
        changes = [RateChange(one.end, max(0, one.requests), max(0, one.tokens)) for one in self.changes]
        return self._replace(changes=changes)


class RateSlice(NamedTuple):
    """Requests and tokens that a process may start within some seconds of its request for them. `end` names it."""

    end: int
    requests: int
    tokens: int
    seconds: float


class RateRefusal(NamedTuple):
    """The limit that is reached, and after how many seconds that may be over."""

    reason: RateReason
    seconds: float


class _Queued(NamedTuple):
    """A process in the line of an endpoint: the tokens that it needs, and when it asked last."""

    owner: str
    tokens: int
    seen: int


class RateState(msgspec.Struct, frozen=True, array_like=True):
    """The slices that count, by the step of their end, and the processes that wait, in order."""

    slices: tuple[tuple[int, int, int], ...] = ()
    waiting: tuple[_Queued, ...] = ()


encode_rates = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RateState).decode


def decode_rates(content: bytes | str | None) -> RateState:
    """Return a stored state. One that is damaged counts as empty."""
    try:
        return RateState() if content is None else _decode(content)
    except msgspec.MsgspecError:
        return RateState()


def lease(state: RateState, need: RateNeed, now: int) -> tuple[RateState, RateSlice | RateRefusal]:
    """Return the next state, and the slice or why there is none.

    Processes that wait come first: a request is granted if it fits beside what those before it in line need. One that
    is larger than the limit on tokens is granted when nothing else counts.

    Args:
        state: The state of the endpoint.
        need: The request.
        now: The time, in microseconds since 1970.
    """
    slices = _current(state, need, now)
    waiting = [one for one in state.waiting if abs(now - one.seen) < _PATIENCE]
    place = next((at for at, one in enumerate(waiting) if one.owner == need.owner), len(waiting))
    ahead = waiting[:place]
    refusal = _refusal(slices, need, ahead, now)
    if refusal is not None:
        waiting[place : place + 1] = [_Queued(need.owner, need.tokens, now)]
        return _state(slices, waiting), refusal
    del waiting[place : place + 1]
    count = 1 + (0 if waiting else _spare(slices, need))
    end = _end(now, need.seconds)
    requests, tokens = slices.get(end, (0, 0))
    slices[end] = requests + count, tokens + count * need.tokens
    return _state(slices, waiting), RateSlice(end, count, count * need.tokens, (end * _STEP - now) / 1_000_000)


def _state(slices: dict[int, tuple[int, int]], waiting: list[_Queued]) -> RateState:
    return RateState(tuple((end, *counts) for end, counts in sorted(slices.items())), tuple(waiting))


def _end(now: int, seconds: float) -> int:
    """Return the step at which a slice ends that can be used for some seconds."""
    return -(-(now + round(min(seconds, MAX_SLICE_SECONDS) * 1_000_000)) // _STEP)


def _current(state: RateState, need: RateNeed, now: int) -> dict[int, tuple[int, int]]:
    """Return the slices that count now, after the changes that a process reports."""
    latest = _end(now, MAX_SLICE_SECONDS)  # the clock may have been set back
    changes = {one.end: one for one in need.changes}
    slices: dict[int, tuple[int, int]] = {}
    for end, requests, tokens in state.slices:
        if end * _STEP + MINUTE > now:
            _, more_requests, more_tokens = changes.get(end, (end, 0, 0))
            known = slices.get(min(end, latest), (0, 0))
            slices[min(end, latest)] = (
                known[0] + max(0, requests + more_requests),
                known[1] + max(0, tokens + more_tokens),
            )
    return slices


def _refusal(
    slices: dict[int, tuple[int, int]], need: RateNeed, ahead: Sequence[_Queued], now: int
) -> RateRefusal | None:
    """Return why a request does not fit beside what counts, and beside what those ahead of it in line need."""
    requests = sum(counts[0] for counts in slices.values()) + len(ahead) + 1
    tokens = sum(counts[1] for counts in slices.values()) + sum(one.tokens for one in ahead) + need.tokens
    limits = need.limits
    if limits.requests is not None and requests > limits.requests:
        return RateRefusal("requests_per_minute", _wait(slices, 0, requests - limits.requests, now))
    if limits.tokens is not None and tokens > max(limits.tokens, 0 if ahead else need.tokens):
        return RateRefusal("tokens_per_minute", _wait(slices, 1, tokens - limits.tokens, now))
    return None


def _wait(slices: dict[int, tuple[int, int]], at: int, excess: int, now: int) -> float:
    """Return the seconds after which so many requests (0) or tokens (1) do not count any more."""
    until = now
    for end, counts in sorted(slices.items()):
        if excess <= 0:
            break
        excess -= counts[at]
        until = end * _STEP + MINUTE
    return max(0, until - now) / 1_000_000


def _spare(slices: dict[int, tuple[int, int]], need: RateNeed) -> int:
    """Return how many requests to lease beyond the next one."""
    count, limits = need.spare, need.limits
    if limits.requests is not None:
        left = limits.requests - 1 - sum(counts[0] for counts in slices.values())
        count = min(count, max(0, left) // _SLACK)
    if limits.tokens is not None and need.tokens:
        left = limits.tokens - need.tokens - sum(counts[1] for counts in slices.values())
        count = min(count, max(0, left) // (_SLACK * need.tokens))
    return count
