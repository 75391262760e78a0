"""The reader of recorded runs: states and turns by event. The views of a run are tested where they are used."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from reyn.errors import ChainBroken
from reyn.journal import kinds
from reyn.kernel.core.run_state import EMPTY, fold
from reyn.runs.reader import read_run, turn_at
from tests.kernel.support import Project
from tests.support import act, file, finish, go, write_skill

READ = file("read", "notes.txt")
STEP = "preprocessor:\n  - run_op: {op: {kind: file, op: read, path: notes.txt}, into: data.notes}\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "notes.txt").write_text("one\n")
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file"}, phase_keys={"a": STEP})
    return Project(tmp_path)


def test_each_event_comes_with_the_states_around_it(project: Project):
    assert project.run("s", [act(READ), go("b"), finish()]).ok
    events = list(project.journal.read("k"))
    reads = list(read_run(events))
    assert [read.event for read in reads] == events
    assert reads[0].before is EMPTY
    for earlier, later in pairwise(reads):
        assert later.before is earlier.after
    assert reads[-1].after == fold(events)


def test_a_turn_has_its_answer_and_the_results_before_it(project: Project):
    assert project.run("s", [act(READ), act(READ, READ), "no decision", go("b"), finish()]).ok
    turns = {read.turn.seq: read.turn for read in read_run(project.journal.read("k")) if read.turn is not None}
    assert [len(turn.results) for turn in turns.values()] == [0, 1, 3, 3, 0]  # the step's result is part of the input
    assert [turn.state.phase for turn in turns.values()] == ["a"] * 4 + ["b"]
    assert all(turn.request is not None and turn.answer is not None for turn in turns.values())
    assert len({turn.answer_seq for turn in turns.values()}) == 5


def test_a_turn_whose_call_failed_has_no_answer(project: Project):
    assert project.run("s", [act(READ)]).status == "failed"  # the script has no second answer
    turn = turn_at("k", project.journal.read("k"), None)
    assert turn.request is not None
    assert turn.answer is None


def test_the_turn_of_an_event_is_the_last_one_before_it(project: Project):
    assert project.run("s", [go("b"), finish()]).ok
    frames = [event.seq for event in project.journal.read("k") if event.kind == kinds.FrameBuilt.kind]
    for seq, found in ((frames[0], 0), (frames[1] - 1, 0), (frames[1], 1), (None, 1)):
        assert turn_at("k", project.journal.read("k"), seq).seq == frames[found]


def test_a_missing_event_is_reported(project: Project):
    assert project.run("s", [go("b"), finish()]).ok
    events = [event for event in project.journal.read("k") if event.seq != 4]
    with pytest.raises(ChainBroken, match="event 4 of run `k` is missing"):
        list(read_run(events))


def test_a_node_that_runs_a_skill_is_a_decision_of_its_own(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(tmp_path, "outer", {"a": ["@inner"], "@inner": ["end"]})
    project = Project(tmp_path)
    assert project.run("outer", [go("@inner"), finish("one")]).ok
    assert project.run("outer", [go("@inner"), finish("two")], run_id="l").ok
    with project.open([]) as rt:
        report = rt.runs.diff("k", "l")
    assert report.in_a is not None
    assert report.in_a.what.startswith("finish → end with ")
    assert (report.in_a.phase, report.in_a.call, report.cause) == ("@inner", "", "outside")
