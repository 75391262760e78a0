"""How many cases of a test are executed: few by `make quick`, some by `make test`, all with `ALL_CASES=1`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TypeVar

from hypothesis import HealthCheck, settings

Case = TypeVar("Case")
ALL_CASES = "ALL_CASES" in os.environ
"""Whether tests that are marked `sampled` have all of their cases, as in `make test-all`."""
_MIN_EXAMPLES = 10


def examples(count: int, *, allow: Collection[HealthCheck] = ()) -> settings:
    """Return the settings of a property: a quarter of its examples in `make test`, a tenth in `make quick`.

    Args:
        count: The number of all examples.
        allow: Health checks that the property fails on purpose.
    """
    is_quick = settings.get_current_profile_name() == "quick"
    share = 10 if is_quick else 1 if ALL_CASES else 4
    tried = min(count, max(_MIN_EXAMPLES, count // share))
    return settings(max_examples=tried, suppress_health_check=[*settings().suppress_health_check, *allow])


def some(points: Sequence[int], step: int) -> list[int]:
    """Return every point at which something can happen, or in `make test` the first, the last and each `step`th."""
    return sorted({*points[:: 1 if ALL_CASES else step], *points[-1:]})


def spread(cases: Sequence[Case], count: int) -> list[Case]:
    """Return so many cases: the first, the last, and others at regular distances."""
    count = min(count, len(cases))
    return [cases[place * (len(cases) - 1) // max(1, count - 1)] for place in range(count)]
