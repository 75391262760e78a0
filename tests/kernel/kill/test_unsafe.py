"""What must not be done twice is not done twice: after a kill between its intent and its outcome, a person is asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from reyn import RunResult
from reyn.errors import WaitUnknown
from reyn.journal import decode, kinds
from reyn.testing.crash import KILLED, Failpoints, in_child
from tests.kernel.kill.scenario import Scenario
from tests.kernel.kill.scenarios import RUN, SENT, unsafe, unsafe_in_a_sub_run

NAME = Path(SENT).name
DOUBTFUL: dict[str, list[int]] = {}


@pytest.fixture
def scenario(arena: Path) -> Scenario:
    scenario = unsafe(arena / "unsafe")
    scenario.rehearse()
    return scenario


def is_in_doubt(scenario: Scenario) -> bool:
    """Whether the world has seen the intent of the write and not its outcome."""
    calls = [e.call for e in scenario.ledger.read() if e.what == "intended" and e.text.startswith(NAME)]
    return bool(calls) and not any(e.what == "done" and e.call == calls[0] for e in scenario.ledger.read())


def is_answered(scenario: Scenario) -> bool:
    """Whether an answer waits in the inbox; then the run continues with it, whoever executes it next."""
    with scenario.world(Failpoints()) as runtime:
        question = runtime.open_question(runtime.find(RUN))
        runtime.journal.close()
    return question is not None and question.is_answered


def changes(scenario: Scenario) -> list[str]:
    return [entry.text for entry in scenario.ledger.read() if entry.what in ("changing", "changed")]


def go_on(scenario: Scenario, told: str = "", kill_at: int = 0) -> RunResult:
    """Answer, if there is something to say, and continue without an operator."""

    async def work() -> RunResult:
        with scenario.world(Failpoints(kill_at)) as runtime:
            async with runtime:
                if not told:
                    return await runtime.run(scenario.skill, {"text": "in"}, run_id=RUN)
                with suppress(WaitUnknown):  # answered before the kill
                    runtime.answer(RUN, runtime.result(RUN).wait.id, told)
                return await runtime.resume(RUN)

    return asyncio.run(work())


def outcome(scenario: Scenario) -> kinds.OpCompleted:
    with scenario.world(Failpoints()) as runtime:
        found = [decode(event) for event in runtime.events(RUN)]
        runtime.journal.close()
    [started] = [body.call for body in found if isinstance(body, kinds.OpStarted) and body.op_kind == "send"]
    [completed] = [body for body in found if isinstance(body, kinds.OpCompleted) and body.call == started]
    return completed


def doubtful_points(scenario: Scenario) -> list[int]:
    """The points between the durable intent of the write and its durable outcome. Tried once: they stay the same."""
    if scenario.skill not in DOUBTFUL:
        found = DOUBTFUL[scenario.skill] = []
        for number in range(1, len(scenario.points) + 1):
            scenario.reset()
            assert scenario.execute_in_child(kill_at=number) == KILLED
            if is_in_doubt(scenario):
                found.append(number)
    return DOUBTFUL[scenario.skill]


def test_an_unsafe_op_with_unknown_outcome_asks_the_operator_first(scenario: Scenario):
    doubts = 0
    for number in range(1, len(scenario.points) + 1):
        scenario.reset()
        assert scenario.execute_in_child(kill_at=number) == KILLED
        was_in_doubt, before = is_in_doubt(scenario), changes(scenario)
        result = go_on(scenario)
        if not was_in_doubt:
            assert result.ok
            assert scenario.check(kills=1) == []
            continue
        doubts += 1
        assert (result.status, result.wait.reason) == ("waiting", "unsafe")
        assert NAME in result.wait.message
        assert changes(scenario) == before
        assert go_on(scenario) == result  # asking again changes nothing
    assert doubts > 15


@pytest.mark.parametrize("told", ["again", "done", "failed"])
def test_the_operators_resolution_is_applied(scenario: Scenario, told: str):
    for number in doubtful_points(scenario):
        scenario.reset()
        scenario.execute_in_child(kill_at=number)
        go_on(scenario)
        before, is_there = changes(scenario), (scenario.root / SENT).exists()
        result = go_on(scenario, told)
        assert result.ok, result
        done, others = outcome(scenario), [text for text in changes(scenario)[len(before) :] if NAME not in text]
        if told == "again":
            assert (done.status, done.changed) == ("ok", True)
            assert scenario.files_differ() == []
            continue
        assert (done.status, done.changed) == (("ok", True) if told == "done" else ("error", False))
        assert changes(scenario)[len(before) :] == others, "it was done, although nobody said so"
        assert (scenario.root / SENT).exists() == is_there


def test_a_kill_during_the_second_attempt_asks_again(scenario: Scenario):
    middle = doubtful_points(scenario)[0]
    asked = set()
    for number in range(1, len(scenario.points)):
        scenario.reset()
        scenario.execute_in_child(kill_at=middle)
        go_on(scenario)
        if in_child(lambda number=number: go_on(scenario, "again", kill_at=number)) != KILLED:
            break
        if is_in_doubt(scenario) and not is_answered(scenario):
            before, result = changes(scenario), go_on(scenario)
            assert (result.status, result.wait.reason) == ("waiting", "unsafe")
            assert changes(scenario) == before, "it was done a third time, and nobody was asked"
            asked.add(result.wait.id)
            assert go_on(scenario, "again").ok
        else:
            assert go_on(scenario).ok
        assert scenario.files_differ() == []
    assert len(asked) == 2


def test_the_question_of_a_sub_run_reaches_its_parent(arena: Path):
    scenario = unsafe_in_a_sub_run(arena / "unsafe")
    scenario.rehearse()
    for number in doubtful_points(scenario)[::3]:
        scenario.reset()
        scenario.execute_in_child(kill_at=number)
        before, result = changes(scenario), go_on(scenario)
        assert (result.status, result.wait.reason) == ("waiting", "unsafe")
        assert result.wait.run == f"{RUN}.1.1.1"
        assert changes(scenario) == before
        assert go_on(scenario, "again").ok
        assert scenario.files_differ() == []
