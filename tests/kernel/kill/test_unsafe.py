"""An unsafe op is never repeated silently: after a kill between intent and outcome, the operator is asked."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from reyn import RunResult
from reyn.errors import QuestionUnknown
from reyn.journal import Event, decode, kinds
from reyn.testing.crash import KILLED, Failpoints, in_child
from tests.kernel.kill.scenario import KILL_STEP, Scenario, kill_points
from tests.kernel.kill.scenarios import (
    RUN,
    SENT,
    unsafe,
    unsafe_after_a_question,
    unsafe_in_a_sub_run,
    unsafe_together,
)

NAME = Path(SENT).name
STEP = min(KILL_STEP, 3)
"""The window between intent and outcome is short, so the default run kills at one point in three."""
DOUBTFUL: dict[str, list[int]] = {}


@pytest.fixture
def scenario(arena: Path) -> Scenario:
    scenario = unsafe(arena / "unsafe")
    scenario.rehearse()
    return scenario


def is_outcome_unknown(scenario: Scenario) -> bool:
    """Whether the ledger contains the intent of the write and not its outcome."""
    calls = [e.call for e in scenario.ledger.read() if e.what == "intended" and e.text.startswith(NAME)]
    return bool(calls) and not any(e.what == "done" and e.call == calls[0] for e in scenario.ledger.read())


def is_answered(scenario: Scenario) -> bool:
    """Whether an answer is in the inbox; the next execution of the run continues with it."""
    with scenario.world(Failpoints()) as runtime:
        question = runtime.runs.open_question(runtime.runs.find(RUN))
        runtime.services.journal.close()
    return question is not None and question.is_answered


def changes(scenario: Scenario) -> list[str]:
    return [entry.text for entry in scenario.ledger.read() if entry.what in ("changing", "changed")]


def resume(scenario: Scenario, resolution: str = "", kill_at: int = 0) -> RunResult:
    """Post a resolution, if there is one, and resume the run without an operator."""

    async def work() -> RunResult:
        with scenario.world(Failpoints(kill_at)) as runtime:
            async with runtime:
                if not resolution:
                    return await runtime.run(scenario.skill, {"text": "in"}, run_id=RUN)
                with suppress(QuestionUnknown):  # answered before the kill
                    runtime.answer(RUN, runtime.runs.result(RUN).question.id, resolution)
                return await runtime.resume(RUN)

    return asyncio.run(work())


def outcome(scenario: Scenario) -> kinds.OpCompleted:
    with scenario.world(Failpoints()) as runtime:
        found = [decode(event) for event in runtime.runs.events(RUN)]
        runtime.services.journal.close()
    [started] = [body.call for body in found if isinstance(body, kinds.OpStarted) and body.op_kind == "send"]
    [completed] = [body for body in found if isinstance(body, kinds.OpCompleted) and body.call == started]
    return completed


def points_with_unknown_outcome(scenario: Scenario) -> list[int]:
    """Return points between the durable intent of the write and its durable outcome. Determined once."""
    if scenario.skill not in DOUBTFUL:
        found = DOUBTFUL[scenario.skill] = []
        for number in kill_points(scenario.points, STEP):
            scenario.reset()
            assert scenario.execute_in_child(kill_at=number) == KILLED
            if is_outcome_unknown(scenario):
                found.append(number)
    return DOUBTFUL[scenario.skill]


def test_an_unsafe_op_with_unknown_outcome_asks_the_operator_first(scenario: Scenario):
    doubts = 0
    for number in kill_points(scenario.points, STEP):
        scenario.reset()
        assert scenario.execute_in_child(kill_at=number) == KILLED
        was_in_doubt, before = is_outcome_unknown(scenario), changes(scenario)
        result = resume(scenario)
        if not was_in_doubt:
            assert result.ok
            assert scenario.check(kills=1) == []
            continue
        doubts += 1
        assert (result.status, result.question.reason) == ("waiting", "unsafe")
        assert NAME in result.question.message
        assert changes(scenario) == before
        assert resume(scenario) == result  # asking again changes nothing
    assert doubts > 15 // STEP


@pytest.mark.parametrize("resolution", ["again", "done", "failed"])
def test_the_operators_resolution_is_applied(scenario: Scenario, resolution: str):
    for number in points_with_unknown_outcome(scenario):
        scenario.reset()
        scenario.execute_in_child(kill_at=number)
        resume(scenario)
        before, is_there = changes(scenario), (scenario.root / SENT).exists()
        result = resume(scenario, resolution)
        assert result.ok, result
        done, others = outcome(scenario), [text for text in changes(scenario)[len(before) :] if NAME not in text]
        if resolution == "again":
            assert (done.status, done.changed) == ("ok", True)
            assert scenario.files_differ() == []
            continue
        assert (done.status, done.changed) == (("ok", True) if resolution == "done" else ("error", False))
        assert changes(scenario)[len(before) :] == others, "the op was executed against the operator's decision"
        assert (scenario.root / SENT).exists() == is_there


def test_a_kill_during_the_second_attempt_asks_again(scenario: Scenario):
    middle = points_with_unknown_outcome(scenario)[0]
    asked = set()
    for number in range(1, len(scenario.points), STEP):
        scenario.reset()
        scenario.execute_in_child(kill_at=middle)
        resume(scenario)
        if in_child(lambda number=number: resume(scenario, "again", kill_at=number)) != KILLED:
            break
        if is_outcome_unknown(scenario) and not is_answered(scenario):
            before, result = changes(scenario), resume(scenario)
            assert (result.status, result.question.reason) == ("waiting", "unsafe")
            assert changes(scenario) == before, "the op was repeated without asking the operator"
            asked.add(result.question.id)
            assert resume(scenario, "again").ok
        else:
            assert resume(scenario).ok
        assert scenario.files_differ() == []
    assert len(asked) == 2


def test_the_question_of_a_sub_run_reaches_its_parent(arena: Path):
    scenario = unsafe_in_a_sub_run(arena / "unsafe")
    scenario.rehearse()
    for number in points_with_unknown_outcome(scenario):
        scenario.reset()
        scenario.execute_in_child(kill_at=number)
        before, result = changes(scenario), resume(scenario)
        assert (result.status, result.question.reason) == ("waiting", "unsafe")
        assert result.question.run == f"{RUN}.1.1.1"
        assert changes(scenario) == before
        assert resume(scenario, "again").ok
        assert scenario.files_differ() == []


def test_an_unsafe_op_that_asks_a_person_first_is_performed_once(arena: Path):
    """Its request is fulfilled durably before it is performed; between both and the outcome, the operator is asked."""
    scenario = unsafe_after_a_question(arena / "unsafe")
    calls = scenario.ops[0].calls
    scenario.rehearse()
    doubts = 0
    for number in kill_points(scenario.points, STEP):
        scenario.reset()
        calls.unlink(missing_ok=True)
        assert scenario.execute_in_child(kill_at=number) == KILLED
        result = resume(scenario)
        while result.status == "waiting":
            made = calls.exists()
            doubts += result.question.reason == "unsafe"
            answer = ("done" if made else "again") if result.question.reason == "unsafe" else "yes"
            result = resume(scenario, answer)
        assert result.ok
        assert calls.read_text() == "called\n", f"{number} {scenario.points[number - 1]}"
        assert scenario.files_differ() == []
        with scenario.world(Failpoints()) as runtime:
            found = [event.kind for event in runtime.runs.events(RUN)]
            runtime.services.journal.close()
        assert found.count("request_fulfilled") == 1
    assert doubts > 1


def test_unsafe_tools_that_are_performed_at_the_same_time_are_each_performed_once(arena: Path):
    """After a kill in the middle of them, the operator is asked about each that has no recorded outcome."""
    scenario, calls = unsafe_together(arena / "unsafe")
    scenario.rehearse()
    most = 0
    for number in kill_points(scenario.points, STEP):
        scenario.reset()
        calls.unlink(missing_ok=True)
        assert scenario.execute_in_child(kill_at=number) == KILLED
        result, questions = resume(scenario), 0
        while result.status == "waiting":
            made = calls.read_text().splitlines() if calls.exists() else []
            [name] = [name for name in ("one", "two", "three") if f'"{name}"' in result.question.message]
            questions += 1
            result = resume(scenario, "done" if name in made else "again")
        most = max(most, questions)
        assert result.ok
        assert sorted(calls.read_text().splitlines()) == ["one", "three", "two"], scenario.points[number - 1]
        with scenario.world(Failpoints()) as runtime:
            runtime.runs.verify(RUN)
            assert asyncio.run(runtime.runs.replay(RUN)).status == "finished"
            runtime.services.journal.close()
    assert most == 3


@pytest.mark.parametrize("endless", [["one"], ["one", "two"], ["one", "three"], ["two"]])
def test_an_outcome_survives_a_kill_while_a_slower_tool_is_still_running(arena: Path, endless: list[str]):
    """The operator is asked about the tools without an outcome only."""
    scenario, calls = unsafe_together(arena / "unsafe", *endless)
    scenario.reset()
    expected, ended = 3 - len(endless), list[Event]()

    def kill(event: Event) -> None:
        ended.extend([event] if event.kind == "post_completed" else [])
        if len(ended) == expected:
            os.kill(os.getpid(), signal.SIGKILL)

    async def work() -> None:
        with scenario.world(Failpoints()) as runtime:
            async with runtime, asyncio.timeout(30):
                await runtime.run(scenario.skill, {"text": "in"}, run_id=RUN, listener=kill)

    assert in_child(lambda: asyncio.run(work())) == KILLED
    result, asked = resume(scenario), []
    while result.status == "waiting":
        asked += [name for name in ("one", "two", "three") if f'"{name}"' in result.question.message]
        result = resume(scenario, "done")
    assert result.ok
    assert asked == endless
    assert sorted(calls.read_text().splitlines()) == ["one", "three", "two"]
    with scenario.world(Failpoints()) as runtime:
        runtime.runs.verify(RUN)
        assert asyncio.run(runtime.runs.replay(RUN)).status == "finished"
        runtime.services.journal.close()
