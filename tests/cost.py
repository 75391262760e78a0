"""Measure the cost of code without a clock, or relative to itself, so that tests pass on a busy machine."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
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


def count_work(work: Callable[[], Any]) -> Counter[str]:
    """Return how often some work calls each built-in function, by its name, and functions of each package of Reyn."""
    counts: Counter[str] = Counter()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            package = frame.f_code.co_filename.rpartition("/src/reyn/")[2].partition("/")[0]
            counts[f"reyn.{package}"] += 1
        elif event == "c_call":
            counts[argument.__qualname__] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counts


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
