"""One run, killed at random moments again and again until it gets through."""

from __future__ import annotations

import random
from typing import NamedTuple

from reyn.testing.crash import KILLED
from tests.kernel.kill.scenario import Scenario

RELENTING = 25
"""After so many kills a run is left alone, to get through."""
ATTEMPTS = 30


class Ordeal(NamedTuple):
    """How often a run was killed, whether it got stuck, and what speaks against it."""

    kills: int
    is_stuck: bool
    wrong: list[str]


def torment(scenario: Scenario, chance: random.Random) -> Ordeal:
    """A rehearsed scenario from its beginning to its end, each drive killed before it can be through."""
    scenario.forget()
    kills = 0
    for attempt in range(ATTEMPTS):
        after = chance.uniform(0, scenario.seconds) if attempt < RELENTING else None
        status = scenario.drive_in_child(kill_after=after)
        if status == 0:
            return Ordeal(kills, is_stuck=False, wrong=scenario.check(kills, by_chance=True))
        if status != KILLED:
            return Ordeal(kills, is_stuck=True, wrong=[f"a resume ended with {status}"])
        kills += 1
    return Ordeal(kills, is_stuck=True, wrong=["the run never got through"])
