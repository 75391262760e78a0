"""Kills around a journal that is replaced during a run, and around calls that name the same run."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import StoreUnavailable
from reyn.models import ModelAnswer, ModelRequest
from reyn.testing.crash import KILLED, Failpoints, in_child
from tests.kernel.kill.scenario import MeteredModel, Scenario, kill_points
from tests.kernel.kill.scenarios import pair, writing

STEP = 29


class ReplacingModel(MeteredModel):
    """Replaces the folder of the journal by a copy, as a restored backup does, before it gives its first answer."""

    def __init__(self, answers: list, state: Path) -> None:
        super().__init__(answers)
        self._state, self._before = state, state.with_name("before")

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if not self._before.exists():
            self._state.rename(self._before)
            shutil.copytree(self._before, self._state)
        return await super().complete(request)


def test_a_run_whose_journal_was_replaced_continues_in_the_one_that_it_had(arena: Path):
    scenario = writing(arena / "project")
    points, state = scenario.rehearse(), scenario.root / ".reyn"
    before = state.with_name("before")
    stopped = 0
    for number in kill_points(points, STEP):
        scenario.reset()
        if (code := in_child(lambda number=number: execute_replaced(scenario, number))) == 0:
            stopped += 1
        assert code in (0, KILLED)
        if before.exists():
            assert not list(state.glob("workspace/*/*")), "an effect followed the replacement"
            shutil.rmtree(state)
            before.rename(state)
        assert scenario.resume(kills=2) == [], points[number - 1]  # the answer to the replaced journal is lost
    assert stopped > 1


def execute_replaced(scenario: Scenario, kill_at: int) -> None:
    """Execute with a journal that is replaced; return if the run stops because of it."""
    scenario._model = lambda: ReplacingModel(scenario.answers, scenario.root / ".reyn")
    with pytest.raises(StoreUnavailable, match="deleted, moved or replaced"):
        asyncio.run(scenario.execute(Failpoints(kill_at)))


class Announced(Failpoints):
    """Writes a byte when a run is claimed."""

    def __init__(self, kill_at: int, pipe: int) -> None:
        super().__init__(kill_at)
        self._pipe = pipe

    def reach(self, name: str) -> None:
        if name == "journal.claim held":
            os.write(self._pipe, b".")
        super().reach(name)


def test_a_caller_who_waits_for_a_process_that_is_killed_gets_the_result_of_one_execution(arena: Path):
    scenario = writing(arena / "project")
    points = scenario.rehearse()
    for number in kill_points(points, STEP):
        scenario.reset()
        reading, writing_end = os.pipe()

        def call_too(reading: int = reading, writing_end: int = writing_end) -> None:
            os.close(writing_end)
            os.read(reading, 1)  # the other process has claimed the run, or has ended
            asyncio.run(scenario.execute(Failpoints()))

        work: Any = lambda number=number, pipe=writing_end: asyncio.run(scenario.execute(Announced(number, pipe)))  # noqa: E731 - binds the variables of the loop
        assert in_child(work, meanwhile=call_too) == KILLED
        os.close(reading)
        assert scenario.check(kills=1) == [], points[number - 1]


def test_calls_of_one_process_that_is_killed_get_the_result_of_one_execution(arena: Path):
    scenario = pair(arena / "project")
    scenario.runs *= 3
    assert scenario.kill_everywhere() == {}
