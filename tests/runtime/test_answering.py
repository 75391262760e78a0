"""Two processes and one question: whenever the second one acts, no answer and no cancellation is lost.

One process passes through its journal calls; at one of them, the other one acts from beginning to end. Every call of
the first is tried in turn, so the interleavings are explicit and nothing depends on time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.errors import ModelUnavailable, NextAction, ReynError, RunBusy, RunNotResumable
from reyn.journal import Cancel, MemoryJournal
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.core import run_state
from reyn.kernel.core.run_state import apply
from reyn.kernel.world import loading
from reyn.kernel.world.inbox import pending_message
from reyn.testing import ScriptedModel
from tests.properties import ALL_CASES
from tests.support import act, file, finish, question, write_skill

IN = {"text": "in"}
RUN = "k"
SUB_RUN = {"kind": "run_skill", "skill": "asking", "input": IN}
OWN = [act(question("Which one?")), finish("done")]
BELOW = [act(SUB_RUN), act(question("Which one?")), finish("below"), finish("done")]
CASES = {"own": ("asking", OWN, "1.1.1"), "sub_run": ("calling", BELOW, "1.1.1/1.1.1")}


class Stage:
    """A project with one journal that several runtimes share, as processes share a database."""

    def __init__(self, root: Path, skill: str, answers: list[Any], wait: str) -> None:
        self.root, self.skill, self.answers, self.question = root, skill, answers, wait
        self.journal = MemoryJournal()

    def open(self, journal: Any = None, model: Any = None) -> SyncRuntime:
        return SyncRuntime.open(self.root, model=model or ScriptedModel(self.answers), journal=journal or self.journal)

    def start(self, journal: Any = None) -> str:
        with self.open(journal) as rt:
            return rt.run(self.skill, IN, run_id=RUN).status

    def answer(self, journal: Any = None) -> str:
        """Answer and resume, as `reyn answer` does; return the result."""
        with self.open(journal) as rt:
            try:
                posted = rt.answer(RUN, self.question, "red")
            except ReynError as error:
                return error.code
            result = rt.resume_answered(posted)
        return result.status if result else "elsewhere"

    def resume(self, journal: Any = None) -> str:
        with self.open(journal) as rt:
            try:
                return rt.resume(RUN).status
            except (RunNotResumable, RunBusy) as error:
                return error.code

    def cancel(self) -> str:
        with self.open() as rt:
            try:
                rt.cancel(RUN)
            except ReynError as error:
                return error.code
        return "posted"

    def status(self) -> str:
        row = self.journal.find(RUN)
        return row.status if row else ""

    def statuses(self) -> set[str]:
        return {row.status for row in self.journal.runs()}

    def is_sound(self) -> bool:
        with self.open() as rt:
            for row in rt.runs.all():
                rt.runs.verify(row.run_id)
                rt.runs.replay(row.run_id)
        taken = [event for row in self.journal.runs() for event in self.journal.read(row.run_id)]
        return sum(event.kind == "wait_answered" for event in taken) <= 1


class Interposed:
    """The journal of one process. At its n-th point (before or after a call), another process acts."""

    def __init__(self, journal: MemoryJournal, at: int, other: Callable[[], str]) -> None:
        self._journal, self._at, self._other = journal, at, other
        self.points: list[str] = []
        self.outcome = ""

    def _pass(self, point: str) -> None:
        self.points.append(point)
        if len(self.points) == self._at:
            in_another_process(self._act)

    def _act(self) -> None:
        self.outcome = self._other()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._journal, name)

        def call(*args: Any) -> Any:
            self._pass(f"before {name}")
            result = method(*args)
            self._pass(f"after {name}")
            return result

        return call

    @contextmanager
    def claim(self, run_id: str) -> Iterator[None]:
        self._pass("before claim")
        with self._journal.claim(run_id):
            self._pass("claimed")
            yield
            self._pass("before release")
        self._pass("released")


def in_another_process(work: Callable[[], None]) -> None:
    """Do the work in a thread with its own event loop while the first process is blocked."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def stages(root: Path, case: str) -> Callable[[], Stage]:
    write_skill(root, "asking", {"work": ["end"]}, ops={"work": "ask_user"})
    write_skill(root, "calling", {"call": ["end"]}, ops={"call": "run_skill"})
    return lambda: Stage(root, *CASES[case])


def interleavings(
    make: Callable[[], Stage], first: Callable[[Stage, Any], str], other: Callable[[Stage], str]
) -> Iterator[tuple[Stage, str, str, str]]:
    """Yield stage, point and the results of both processes for every point of the first one."""
    at = 1
    while True:
        stage = make()
        journal = Interposed(stage.journal, at, lambda stage=stage: other(stage))
        outcome = first(stage, journal)
        if len(journal.points) < at:
            assert at > 10
            return
        yield stage, f"{at} {journal.points[at - 1]}", outcome, journal.outcome
        at += 1 if ALL_CASES else 3


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_taken_at_any_point_of_the_driver(tmp_path: Path, case: str):
    seen = set()
    for stage, point, outcome, answered in interleavings(stages(tmp_path, case), Stage.start, Stage.answer):
        seen.add((outcome, answered))
        if answered.startswith("RYN"):  # the question was not open yet
            assert (stage.status(), stage.answer()) == ("waiting", "finished"), point
        assert stage.status() == "finished", (point, outcome, answered)
        assert stage.is_sound(), point
    # The driver continued with the answer, or it stopped and the answerer resumed the run.
    assert {("finished", "elsewhere"), ("waiting", "finished")} <= seen


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_taken_at_any_point_of_a_refused_resume(tmp_path: Path, case: str):
    def waiting() -> Stage:
        stage = stages(tmp_path, case)()
        assert stage.start() == "waiting"
        return stage

    seen = set()
    for stage, point, outcome, answered in interleavings(waiting, Stage.resume, Stage.answer):
        seen.add((outcome, answered))
        assert stage.status() == "finished", (point, outcome, answered)
        assert stage.is_sound(), point
    assert {("finished", "elsewhere"), ("RYN410", "finished")} <= seen


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_a_resume_at_any_point_of_the_answerer_does_no_harm(tmp_path: Path, case: str):
    def waiting() -> Stage:
        stage = stages(tmp_path, case)()
        assert stage.start() == "waiting"
        return stage

    seen = set()
    for stage, point, outcome, resumed in interleavings(waiting, Stage.answer, Stage.resume):
        seen.add((outcome, resumed))
        assert stage.status() == "finished", (point, outcome, resumed)
        assert stage.is_sound(), point
    assert {("finished", "RYN410"), ("finished", "RYN402"), ("finished", "finished")} <= seen


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_a_driver_that_stops_at_any_point_of_the_answerer_strands_no_answer(tmp_path: Path, case: str):
    """A driver that stops releases its claim and then reads the inbox."""
    claims: list[ExitStack] = []

    def stopping() -> Stage:
        stage = stages(tmp_path, case)()
        assert stage.start() == "waiting"
        claims.append(ExitStack())
        claims[-1].enter_context(stage.journal.claim(RUN))
        return stage

    def stop(stage: Stage) -> str:
        claims[-1].close()
        return stage.resume() if pending_message(stage.journal, RUN) else "nothing"

    seen = set()
    for stage, point, outcome, stopped in interleavings(stopping, Stage.answer, stop):
        seen.add((outcome, stopped))
        assert stage.status() == "finished", (point, outcome, stopped)
        assert stage.is_sound(), point
    assert {("finished", "nothing"), ("elsewhere", "finished")} <= seen


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_a_cancellation_at_any_point_of_the_driver_ends_the_whole_family(tmp_path: Path, case: str):
    for stage, point, outcome, cancelled in interleavings(stages(tmp_path, case), Stage.start, Stage.cancel):
        if cancelled.startswith("RYN"):  # there was no run yet
            continue
        assert stage.statuses() == {"cancelled"}, (point, outcome)
        assert stage.is_sound(), point


@pytest.mark.sampled
def test_a_run_that_fails_during_its_cancellation_is_cancelled(tmp_path: Path):
    class Down:
        name = "scripted"

        async def complete(self, request: Any) -> Any:
            raise ModelUnavailable("down")

    def start(stage: Stage, journal: Any) -> str:
        with stage.open(journal, Down()) as rt:
            return rt.run(stage.skill, IN, run_id=RUN).status

    seen = set()
    for stage, point, outcome, cancelled in interleavings(stages(tmp_path, "own"), start, Stage.cancel):
        if cancelled.startswith("RYN"):
            continue
        seen.add(outcome)
        assert stage.status() == "cancelled", (point, outcome)
    assert seen == {"cancelled", "failed"}


@pytest.mark.parametrize("case", CASES)
def test_posting_an_answer_reads_no_events(tmp_path: Path, case: str):
    stage = stages(tmp_path, case)()
    stage.start()
    journal = Interposed(stage.journal, 0, stage.resume)
    with stage.open(journal) as rt:
        rt.answer(RUN, stage.question, "red")
    assert journal.points.count("before read") == 0
    assert journal.points.count("before post") == 1


def test_answering_a_long_run_folds_its_journal_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_skill(tmp_path, "asking", {"work": ["end"]}, ops={"work": "ask_user, file"})
    looks = [act(file("glob", "*.md"), file("glob", "*.txt")) for _ in range(9)]
    stage = Stage(tmp_path, "asking", [*looks, act(question("Which one?")), finish()], "1.10.1")
    with stage.open(SqliteJournal(tmp_path / "state")) as rt:
        assert rt.run(stage.skill, IN, run_id=RUN).status == "waiting"
        recorded = rt.runs.find(RUN).seq
    assert recorded > 64
    folded: list[int] = []

    def counting(state: Any, body: Any, ts: int) -> Any:
        folded.append(ts)
        return apply(state, body, ts)

    for module in (loading, run_state):
        monkeypatch.setattr(module, "apply", counting)
    with stage.open(SqliteJournal(tmp_path / "state")) as rt:  # another process
        assert rt.resume_answered(rt.answer(RUN, stage.question, "red")).ok
        assert rt.permissions.warnings(RUN) == ()
        assert rt.runs.changed_files(RUN) == {}
    assert len(folded) == recorded


def test_a_process_that_claims_the_run_between_check_and_resume_continues_it(tmp_path: Path):
    stage = stages(tmp_path, "own")()
    stage.start()
    with stage.open() as rt:
        posted = rt.answer(RUN, stage.question, "red")
        assert not posted.is_claimed
        with stage.journal.claim(RUN):
            assert rt.resume_answered(posted) is None
        assert rt.resume_answered(posted).ok


def test_an_answer_that_another_process_took_is_no_error(tmp_path: Path):
    write_skill(tmp_path, "asking", {"work": ["end"]}, ops={"work": "ask_user"})
    answers = [act(question("One?")), act(question("Two?")), finish()]
    stage = Stage(tmp_path, "asking", answers, "1.1.1")
    stage.start()
    with stage.open() as rt:
        posted = rt.answer(RUN, "1.1.1", "red")
        assert rt.resume(RUN).reason == "Two?"
        assert rt.resume_answered(posted) is None


def test_a_message_that_cannot_continue_a_run_is_handled_once(tmp_path: Path):
    """The parent has continued without its failed sub-run, so the sub-run cannot be resumed."""
    stage = stages(tmp_path, "sub_run")()
    stage.answers = [act(SUB_RUN), "no", "no", finish()]
    with SyncRuntime.open(
        tmp_path, model=ScriptedModel(stage.answers), journal=stage.journal, max_phase_retries=1
    ) as rt:
        assert rt.run("calling", IN, run_id=RUN).ok
        sub_run = f"{RUN}.1.1.1"
        assert rt.runs.find(sub_run).status == "failed"
        stage.journal.post(sub_run, Cancel())
        with pytest.raises(RunNotResumable, match="has continued without") as refused:
            rt.resume(sub_run)
    assert refused.value.action == NextAction("fork", sub_run)


def test_a_model_error_after_an_answer_reports_that_the_answer_is_stored(tmp_path: Path):
    stage = stages(tmp_path, "own")()
    stage.start()
    with SyncRuntime.open(stage.root, journal=stage.journal, model="nowhere:x") as rt:
        posted = rt.answer(RUN, stage.question, "red")
        with pytest.raises(ReynError) as failed:
            rt.resume_answered(posted)
    assert failed.value.action == NextAction("resume", RUN)
    assert failed.value.hint.startswith("The reply is stored")
