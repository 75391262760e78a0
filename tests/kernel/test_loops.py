"""Loops end by themselves: visits that are used up are not offered, and repetition stops the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.journal import MemoryJournal
from reyn.kernel.core.history import MAX_DECISIONS
from reyn.kernel.core.run_state import fold
from reyn.testing import ScriptedModel
from tests.kernel.support import IN, Project
from tests.support import act, file, finish, go, question, write_skill

LOOP = {"write": ["check"], "check": ["write", "end"]}
SPIN = {"turn": ["turn", "end"]}
MISSING = file("read", "missing.txt")
COUNT = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]}
STATE = "state: {points: {sum: note.data.n}}\n"
PYTHON = "permissions: {python: [{module: ./m.py, function: f}]}\n"
WEIGH = 'graph:\n  roll: [weigh]\n  weigh: [{{when: "{rule}", to: roll}}, {{else: end}}]'


def make(root: Path, graph: dict[str, list[str]], **keys) -> Project:
    write_skill(root, "loop", graph, **keys)
    return Project(root)


def offered(project: Project, call: int) -> set[str]:
    return {candidate.next_phase for candidate in project.model.requests[call].candidates}


# -- visits -------------------------------------------------------------------------------------------


def test_a_program_can_remove_the_limit_of_visits(tmp_path: Path):
    project = make(tmp_path, SPIN)
    (tmp_path / "reyn.yaml").write_text("max_phase_visits: 2\n")
    answers = [*(go("turn", str(number)) for number in range(40)), finish()]
    assert project.run("loop", answers, max_phase_visits=None).ok
    assert project.run("loop", answers, run_id="limited").status == "limited"


def test_a_phase_whose_visits_are_used_up_is_not_offered(tmp_path: Path):
    project = make(tmp_path, LOOP)
    answers = [go("check", "1"), go("write", "2"), go("check", "3"), go("write", "4"), finish()]
    assert project.run("loop", answers, max_phase_visits=2).ok
    assert [offered(project, call) for call in (1, 3)] == [{"write", "end"}, {"end"}]
    [error] = project.events("validation_error")
    assert "'write' is not offered here" in error["message"]
    assert project.is_sound()


def test_the_frame_says_how_many_visits_remain(tmp_path: Path):
    project = make(tmp_path, LOOP)
    answers = [go("check", "1"), go("write", "2"), go("check", "3"), finish()]
    assert project.run("loop", answers, max_phase_visits=3).ok
    turn = project.model.turn_message
    assert "can be visited" not in turn(0)  # no candidate was visited before
    assert "`write` can be visited 2 more times." in turn(1)
    assert "`check` can be visited 2 more times." in turn(2)
    assert "`write` can be visited 1 more time." in turn(3)


def test_without_a_limit_the_frame_counts_no_visits(tmp_path: Path):
    project = make(tmp_path, LOOP)
    (tmp_path / "reyn.yaml").write_text("max_phase_visits: null\n")
    assert project.run("loop", [go("check", "1"), go("write", "2"), go("check"), finish()]).ok
    assert not any("can be visited" in project.model.turn_message(call) for call in range(4))


def test_a_run_without_a_candidate_left_is_limited_before_the_model_is_called(tmp_path: Path):
    project = make(tmp_path, {"a": ["b", "end"], "b": ["a"]})
    answers = [go("b", "1"), go("a", "2"), finish()]
    result = project.run("loop", answers, max_phase_visits=1)
    assert (result.status, len(project.model.requests)) == ("limited", 1)
    assert result.reason == "phase `b` has no successor left: `a` reached `max_phase_visits`, which is 1"
    assert project.resume(answers, raise_limits={"max_phase_visits": 2}).ok
    assert project.is_sound()


def test_a_run_whose_model_insists_is_limited_and_continues_in_the_same_visit(tmp_path: Path):
    project = make(tmp_path, SPIN)
    answers = [go("turn", str(number)) for number in range(4)] + [go("turn", "more"), finish()]
    result = project.run("loop", answers, max_phase_visits=1)
    assert (result.status, len(project.model.requests)) == ("limited", 3)
    assert "3 answers rejected" in result.reason
    assert "`turn` reached `max_phase_visits`, which is 1" in result.reason
    again = project.resume(answers, raise_limits={"max_phase_visits": 3})
    assert (again.ok, again.path) == (True, ("turn", "turn", "turn"))
    assert offered(project, 0) == {"turn", "end"}
    assert "`turn` can be visited 2 more times." in project.model.turn_message(0)
    assert project.is_sound()


def test_a_phase_that_the_model_made_up_is_an_error_and_no_limit(tmp_path: Path):
    project = make(tmp_path, SPIN)
    assert project.run("loop", [go("nowhere")] * 3).status == "failed"


# -- decisions ----------------------------------------------------------------------------------------


def test_the_same_artifact_for_the_same_input_stops_the_run_the_third_time(tmp_path: Path):
    project = make(tmp_path, LOOP)
    answers = [go("check", "same"), go("write", "again")] * 5 + [finish()]
    result = project.run("loop", answers)
    assert (result.status, result.exit_code) == ("limited", 3)
    assert result.reason == "no progress: phase `check` gave the same artifact for the same input 3 times"
    turns = [project.model.turn_message(call) for call in range(6)]
    assert ["same a" in turn for turn in turns] == [False] * 5 + [True]
    assert "For this input you chose `write` with the same artifact 2 times." in turns[5]
    assert project.is_sound()


def test_a_run_without_progress_continues_once_the_limit_is_raised(tmp_path: Path):
    project = make(tmp_path, SPIN)
    answers = [go("turn", "in")] * 4 + [finish()]
    assert project.run("loop", answers).reason.startswith("no progress: ")
    assert len(project.model.requests) == 3
    assert project.resume(answers, raise_limits={"no_progress": 4}).status == "limited"
    result = project.resume(answers, raise_limits={"no_progress": None})
    assert (result.ok, len(result.path)) == (True, 5)
    assert project.is_sound()


def test_the_limit_is_configurable(tmp_path: Path):
    project = make(tmp_path, SPIN)
    (tmp_path / "reyn.yaml").write_text("limits: {no_progress: 2}\n")
    assert project.run("loop", [go("turn", "in")] * 4).status == "limited"
    assert len(project.model.requests) == 2
    (tmp_path / "reyn.yaml").write_text("limits: {no_progress: null}\n")
    assert project.run("loop", [*[go("turn", "in")] * 8, finish()], run_id="off").ok
    assert "8 times" not in project.model.turn_message(1)
    assert "with the same artifact 7 times" in project.model.turn_message(7)


def test_other_artifacts_and_other_inputs_are_progress(tmp_path: Path):
    project = make(tmp_path, LOOP)
    answers = [answer for n in range(6) for answer in (go("check", str(n)), go("write", "again"))]
    assert project.run("loop", [*answers, go("check"), finish()]).ok  # the remark is the same, the draft is not


def test_alternating_answers_are_no_progress_either(tmp_path: Path):
    project = make(tmp_path, {"a": ["b"], "b": ["a", "end"]})
    answers = [go("b", "x"), go("a", "in"), go("b", "y"), go("a", "in")] * 4
    assert "no progress" in project.run("loop", answers).reason


def test_an_answer_of_the_user_is_progress(tmp_path: Path):
    project = make(tmp_path, SPIN, ops={"turn": "ask_user"})
    answers = [answer for _ in range(5) for answer in (act(question("More?")), go("turn", "in"))] + [finish()]
    result = project.run("loop", answers)
    for _ in range(5):
        assert result.question is not None
        with project.open(answers) as rt:
            rt.answer("k", result.question.id, "yes")
            result = rt.resume("k")
    assert result.ok
    assert project.is_sound()


def test_other_results_of_ops_are_progress(tmp_path: Path):
    project = make(tmp_path, SPIN, ops={"turn": "file"})
    writes = [act(file("write", "workspace:n.txt", content=str(number))) for number in range(5)]
    answers = [answer for write in writes for answer in (write, go("turn", "in"))] + [finish()]
    assert project.run("loop", answers).ok
    same = [answer for _ in range(5) for answer in (writes[0], go("turn", "in"))]
    assert "no progress" in project.run("loop", same, run_id="same").reason


def test_values_that_rules_read_are_progress_of_the_whole_loop(tmp_path: Path):
    folder = write_skill(tmp_path, "loop", {"roll": ["weigh"]}, artifacts={"note": COUNT}, skill_keys=STATE)
    (folder / "phases" / "weigh.md").write_text("---\ntype: phase\nname: weigh\ninput: note\n---\n")
    text, two = (folder / "skill.md").read_text(), {"text": "six", "n": 2}
    project, answers = Project(tmp_path), [go("weigh") | {"artifact": {"type": "note", "data": two}}] * 9
    for run, rule in (("state", "state.points < 16"), ("visits", "visits.weigh < 8")):
        (folder / "skill.md").write_text(text.replace('graph: {"roll": ["weigh"]}', WEIGH.format(rule=rule)))
        result = project.run("loop", answers, two, run_id=run)
        assert (result.reason, len(result.path)) == ("", 16)
        assert project.is_sound(run)
    (folder / "skill.md").write_text(text.replace('graph: {"roll": ["weigh"]}', WEIGH.format(rule="data.n < 5")))
    result = project.run("loop", answers, two, run_id="stuck")
    assert result.reason == "no progress: phase `roll` gave the same artifact for the same input 3 times"


def test_a_phase_may_repeat_itself_while_another_one_makes_progress(tmp_path: Path):
    project = make(tmp_path, LOOP, ops={"write": "file"})
    writes = [act(file("write", "workspace:n.txt", content=str(number))) for number in range(5)]
    answers = [answer for write in writes for answer in (write, go("check", "done"), go("write", "more"))]
    assert project.run("loop", [*answers, go("check", "done"), finish()], {"text": "more"}).ok
    turns = [project.model.turn_message(call) for call in range(16)]
    assert not any("same artifact" in turn for turn in turns)
    stuck = [answer for _ in range(5) for answer in (go("check", "done"), go("write", "more"))]
    late = project.run("loop", [*answers[:6], *stuck, finish()], {"text": "more"}, run_id="late")
    assert late.reason == "no progress: phase `check` gave the same artifact for the same input 3 times"
    assert project.is_sound()
    assert project.is_sound("late")


def test_a_python_step_that_returns_the_same_is_no_progress(tmp_path: Path):
    step = "preprocessor: [{python: {module: ./m.py, function: f, into: local.n}}]\n"
    project = make(tmp_path, LOOP, phase_keys={"write": step}, skill_keys=PYTHON)
    (tmp_path / "reyn/project/loop/m.py").write_text("def f(artifact):\n    return len(artifact['data']['text'])\n")
    answers = [go("check", "done"), go("write", "more")] * 5
    result = project.run("loop", answers, {"text": "more"})
    assert result.reason == "no progress: phase `write` gave the same artifact for the same input 3 times"


def test_another_model_starts_over(tmp_path: Path):
    project = make(tmp_path, SPIN)
    answers = [go("turn", "in")] * 3
    project.run("loop", answers)
    with SyncRuntime.open(tmp_path, model=ScriptedModel([go("turn", "in")] * 8), journal=project.journal) as rt:
        result = rt.fork("k", at=len(project.kinds()), model="other", run_id="f")
    assert (result.status, len(result.path)) == ("limited", 6)


def test_a_sub_run_without_progress_stops_its_parent_which_can_raise_the_limit(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["x", "end"]})
    project = make(tmp_path, {"a": ["end"]}, ops={"a": "run_skill"})
    run = {"kind": "run_skill", "skill": "inner", "input": IN}
    answers = [act(run), *[go("x", "in")] * 4, finish(), finish()]
    result = project.run("loop", answers)
    assert (result.status, "sub-run `k.1.1.1`: no progress" in result.reason) == ("limited", True)
    assert project.resume(answers, raise_limits={"no_progress": 9}).ok
    assert project.is_sound()
    assert project.is_sound("k.1.1.1")


def test_the_state_of_a_long_run_is_bounded(tmp_path: Path):
    project = make(tmp_path, SPIN)
    answers = [*(go("turn", str(number)) for number in range(3 * MAX_DECISIONS)), finish()]
    (tmp_path / "reyn.yaml").write_text("max_phase_visits: null\n")
    assert project.run("loop", answers).ok
    history = fold(project.journal.read("k")).history
    assert (len(history.decisions), len(history.latest)) == (MAX_DECISIONS, 1)


# -- ops ----------------------------------------------------------------------------------------------


def test_the_same_failing_op_stops_the_run_the_third_time(tmp_path: Path):
    project = make(tmp_path, SPIN, ops={"turn": "file"})
    answers = [*[act(MISSING)] * 4, finish()]
    result = project.run("loop", answers)
    assert (result.status, len(project.model.requests)) == ("limited", 3)
    assert result.reason == "no progress: phase `turn` called `file` 3 times with the same arguments; it failed"
    turns = [project.model.turn_message(call) for call in range(3)]
    assert ["same a" in turn for turn in turns] == [False, False, True]
    assert "You called `file` 2 times with the same arguments; it failed each time." in turns[2]
    assert project.resume(answers, raise_limits={"no_progress": 5}).ok
    assert project.is_sound()


@pytest.mark.parametrize(
    "second", [file("read", "other.txt"), file("write", "workspace:a.txt", content="x")], ids=["other", "ok"]
)
def test_another_op_is_progress_and_the_failing_one_still_counts(tmp_path: Path, second: dict):
    project = make(tmp_path, SPIN, ops={"turn": "file"})
    answers = [act(MISSING), act(second), act(MISSING), act(second), finish()]
    assert project.run("loop", answers).ok
    assert "You called `file` 2 times" in project.model.turn_message(3)


def test_an_op_that_succeeds_in_between_starts_over(tmp_path: Path):
    project = make(tmp_path, SPIN, ops={"turn": "file"})
    read = act(file("read", "workspace:a.txt"))
    write = act(file("write", "workspace:a.txt", content="x"))
    delete = act(file("delete", "workspace:a.txt"))
    assert project.run("loop", [read, read, write, read, delete, read, read, finish()]).ok
    assert project.is_sound()


def test_a_failing_op_of_a_decision_counts_as_well(tmp_path: Path):
    project = make(tmp_path, SPIN, ops={"turn": "file"})
    result = project.run("loop", [go("turn") | {"control_ir": [MISSING]}] * 4)
    assert (result.status, len(project.model.requests)) == ("limited", 3)
    assert project.is_sound()


def test_a_new_visit_counts_anew(tmp_path: Path):
    project = make(tmp_path, SPIN, ops={"turn": "file"})
    answers = [act(MISSING), act(MISSING), go("turn", "2"), act(MISSING), act(MISSING), finish()]
    assert project.run("loop", answers).ok


def test_a_replay_needs_no_model_and_derives_the_limit(tmp_path: Path):
    write_skill(tmp_path, "loop", SPIN)
    journal = MemoryJournal()
    with SyncRuntime.open(tmp_path, model=ScriptedModel([go("turn", "in")] * 3), journal=journal) as rt:
        assert rt.run("loop", IN, run_id="k").status == "limited"
        assert rt.runs.replay("k").status == "limited"
