"""A run killed at any port call, or during any file change, loses nothing and repeats nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from reyn.testing.crash import KILLED
from tests.chaos.random_kills import kill_at_random
from tests.kernel.kill.scenario import KILL_STEP, Scenario
from tests.kernel.kill.scenarios import (
    ACTING,
    PLAIN,
    racing,
    rejected_and_looping,
    rolled_back,
    stopping_sub_runs,
    sub_runs,
)
from tests.properties import ALL_CASES

SHARES = {sub_runs: 8, stopping_sub_runs: 7, rolled_back: 4, racing: 6} if KILL_STEP == 1 else {}
"""The number of tests among which the kills of a long scenario are divided, so that processes share them."""
EVERYWHERE = [
    pytest.param(make, share, SHARES.get(make, 1), id=f"{make.__name__}-{share + 1}")
    for make in (*ACTING, *PLAIN)
    for share in range(SHARES.get(make, 1))
]


@pytest.mark.parametrize(("make", "share", "of"), EVERYWHERE)
def test_a_kill_at_any_point_loses_nothing(arena: Path, make: Callable[[Path], Scenario], share: int, of: int):
    assert make(arena / "project").kill_everywhere(share, of) == {}


@pytest.mark.parametrize("make", [rejected_and_looping, rolled_back, sub_runs])
def test_a_kill_during_the_resume_loses_nothing(arena: Path, make: Callable[[Path], Scenario]):
    scenario = make(arena / "project")
    count = len(scenario.rehearse())
    chance = random.Random(7)
    for _ in range(30 if KILL_STEP == 1 else 10 if ALL_CASES else 3):
        scenario.reset()
        kills = 0
        for at in (chance.randrange(1, count), chance.randrange(1, count // 2), chance.randrange(1, count // 2)):
            kills += scenario.execute_in_child(kill_at=at) == KILLED
        assert scenario.resume(kills) == []


@pytest.mark.parametrize("make", [rejected_and_looping, rolled_back, sub_runs])
def test_kills_at_random_moments_lose_nothing(arena: Path, make: Callable[[Path], Scenario]):
    scenario, chance = make(arena / "project"), random.Random(11)
    scenario.rehearse()
    ordeals = [kill_at_random(scenario, chance) for _ in range(8 if ALL_CASES else 3)]
    assert [run.wrong for run in ordeals if run.wrong] == []
    assert sum(run.kills for run in ordeals)


def test_the_scenarios_have_many_failpoints(arena: Path):
    points = [point for make in (*ACTING, *PLAIN) for point in make(arena / make.__name__).rehearse()]
    assert len(points) > 1_400
    assert sum(point.startswith("os.") for point in points) > 400  # during file changes
