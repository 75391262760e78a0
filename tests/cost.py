"""Measure the cost of code without a clock, or relative to itself, so that tests pass on a busy machine."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

_FACTOR = 8
LINEAR = 24.0
"""Between the growth of linear (8) and of quadratic cost (64) when the size is eight times as large."""


def count_calls(work: Callable[[], Any]) -> int:
    """Return the number of calls, of Python functions and of built-in ones, that some work makes."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def growth(work: Callable[[int], Any], size: int, rounds: int = 3) -> float:
    """Return the CPU of some work at eight times a size, relative to the size: the best of interleaved rounds.

    Choose a size at which the work takes at least a millisecond.
    """
    spent: dict[int, float] = {}
    gc.collect()
    gc.freeze()  # collections must not search what earlier tests of this process left
    try:
        for _ in range(rounds):
            for count in (size, _FACTOR * size):
                started = time.process_time()
                work(count)
                spent[count] = min(spent.get(count, float("inf")), time.process_time() - started)
    finally:
        gc.unfreeze()
    return spent[_FACTOR * size] / spent[size]
