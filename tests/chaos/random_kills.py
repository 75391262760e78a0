"""Kill one run at random moments, again and again, until it finishes."""

from __future__ import annotations

import random
from typing import NamedTuple

from reyn.testing.crash import KILLED
from tests.kernel.kill.scenario import Scenario

MAX_KILLS = 25
"""After so many kills a run is left alone, so that it can finish."""
ATTEMPTS = 30


class KilledRun(NamedTuple):
    """The number of kills of a run, whether it got stuck, and its violations."""

    kills: int
    is_stuck: bool
    wrong: list[str]


def kill_at_random(scenario: Scenario, chance: random.Random) -> KilledRun:
    """Execute a rehearsed scenario to its end, killing each execution at a random moment before it can finish."""
    seconds = scenario.seconds
    scenario.reset()
    kills = 0
    for attempt in range(ATTEMPTS):
        after = chance.uniform(0, seconds) if attempt < MAX_KILLS else None
        status = scenario.execute_in_child(kill_after=after)
        if status == 0:
            return KilledRun(kills, is_stuck=False, wrong=scenario.check(kills, by_chance=True))
        if status != KILLED:
            return KilledRun(kills, is_stuck=True, wrong=[f"a resume exited with status {status}"])
        kills += 1
    return KilledRun(kills, is_stuck=True, wrong=["the run never finished"])
