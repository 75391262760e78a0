"""Regression tests of bugs that were found in review and in use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import reyn.kernel.visit.phase_executor as executor
from reyn import SyncRuntime
from reyn.config import Sizes
from reyn.contract.parsing import parse
from reyn.errors import InternalError, QuestionUnknown, RunNotResumable
from reyn.journal import Answer, Cancel, MemoryJournal, RaiseLimit
from reyn.journal.cancellation import cancel_run
from tests.cost import LINEAR, growth
from tests.kernel.support import Project
from tests.support import act, file, finish, go, question, write_skill

RUN = {"kind": "run_skill", "skill": "inner", "input": {"text": "for inner"}}


def test_an_answer_after_a_cancellation_is_refused(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "ask_user"})
    project = Project(tmp_path)
    answers = [act(question("ok?")), finish()]
    project.run("s", answers)
    project.journal.post("k", Cancel("enough"))
    project.journal.post("k", Answer("1.1.1", "yes"))
    assert project.resume(answers).status == "cancelled"
    assert project.journal.find("k").status == "cancelled"
    assert [event["reason"] for event in project.events("message_refused")] == ["the run is cancelled"]
    assert project.is_sound()


def test_a_cancelled_run_takes_no_message_that_no_process_had_read(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "ask_user"})
    project = Project(tmp_path)
    project.run("s", [act(question("ok?")), finish()])
    for message in (Answer("1.1.1", "yes"), RaiseLimit("tokens", 9), Cancel("enough"), Cancel("twice")):
        project.journal.post("k", message)
    assert cancel_run(project.journal, project.journal.find("k"), "third", lambda: 0) == ["k"]
    assert project.journal.find("k").reason == "enough"
    refused = [(event["type"], event["reason"]) for event in project.events("message_refused")]
    assert refused == [(name, "the run is cancelled") for name in ("answer", "raise_limit", "cancel")]
    assert project.journal.drain("k", project.journal.find("k").messages_taken) == []
    assert project.is_sound()


def test_an_edit_that_would_exceed_the_file_limit_is_an_op_error(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "x.txt").write_text("x" * 100_000)
    project = Project(tmp_path)
    bomb = act(file("edit", "output/x.txt", old_string="x", new_string="y" * 90_000, replace_all=True))
    assert project.run("s", [bomb, finish()]).ok
    assert "would become larger" in project.model.turn_message(1)


HOSTILE: dict[str, Callable[[int], str]] = {
    "fences": lambda count: "```a\n" * count,
    "escapes in a string": lambda count: "[]" * 70 + '"' + '\\"' * count,
    "unclosed strings": lambda count: '"\\' * count + "[{" * 40,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_the_cost_of_rejecting_an_answer_is_linear(name: str):
    assert growth(lambda count: parse(HOSTILE[name](count), Sizes()), 20_000) < LINEAR


def test_an_internal_error_is_recorded_and_loses_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]})
    project = Project(tmp_path)
    commit = executor._commit

    def broken(*args: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(executor, "_commit", broken)
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        project.run("s", [go("b"), finish()])
    assert project.kinds()[-2:] == ["llm_responded", "run_broken"]
    assert project.journal.find("k").status == "failed"
    monkeypatch.setattr(executor, "_commit", commit)
    assert project.resume(["never asked", finish()], retry=True).ok
    assert len(project.model.requests) == 1
    assert project.is_sound()


def test_a_fork_of_an_imported_run_can_be_answered(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "ask_user"})
    answers = [act(question("one?")), act(question("two?")), finish()]
    here = Project(tmp_path)
    for _ in range(5):
        here.journal.post("other", Cancel())  # message ids are larger here
    here.run("s", answers)
    with here.open(answers) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").status == "waiting"
        lines = list(rt.runs.export("k"))
    there = Project(tmp_path / "there")
    there.root.mkdir()
    with there.open(answers) as rt:
        rt.runs.import_(lines)
        assert rt.fork("k", run_id="f").status == "waiting"
        rt.answer("f", "1.1.1", "yes")
        assert rt.resume("f").status == "waiting"
        rt.answer("f", "1.2.1", "yes")
        assert rt.resume("f").ok


def test_a_failing_fork_does_not_revert_the_changes_of_its_origin(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    project = Project(tmp_path)
    report = tmp_path / "output" / "report.md"
    write = act(file("write", "output/report.md", content="1"), file("write", "workspace:w.txt", content="1"))
    assert project.run("s", [write, finish()]).ok
    with project.open([write, "no", "no", "no"]) as rt:
        assert rt.fork("k", run_id="f").status == "failed"
    assert report.read_text() == "1"
    assert not (tmp_path / ".reyn/workspace/f/w.txt").exists()
    assert (tmp_path / ".reyn/workspace/k/w.txt").exists()


def test_changes_of_sub_runs_are_restored_when_the_visit_fails(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "file"})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill, file"})
    project = Project(tmp_path)
    answers = [
        act(file("write", "output/own.txt", content="1"), RUN),
        act(file("write", "output/sub.txt", content="2")),
        finish(),
        "no",
    ]
    assert project.run("outer", answers, max_phase_retries=0).status == "failed"
    assert not (tmp_path / "output/own.txt").exists()
    assert not (tmp_path / "output/sub.txt").exists()
    assert project.is_sound()


def test_undo_reverts_the_changes_of_a_family_newest_first(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "file"})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill, file"})
    project = Project(tmp_path)
    shared = tmp_path / "output" / "shared.txt"
    shared.parent.mkdir()
    shared.write_text("A")
    answers = [
        act(RUN),
        act(file("write", "output/shared.txt", content="B")),
        finish(),
        act(file("write", "output/shared.txt", content="C")),
        finish(),
    ]
    assert project.run("outer", answers).ok
    with project.open([]) as rt:
        assert rt.runs.undo("k").restored == ("output/shared.txt",)
        assert shared.read_text() == "A"
        assert rt.runs.undo("k").restored == ()


def test_an_unrelated_run_with_the_derived_id_is_not_used_as_sub_run(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    project.run("inner", [finish("not for you")], run_id="k.1.1.1")
    assert project.run("outer", [act(RUN), finish()]).ok
    assert "not for you" not in project.model.turn_message(1)
    assert "RYN409" in project.model.turn_message(1)


def test_raising_act_turns_applies_to_sub_runs(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "file"}, phase_keys={"x": "max_act_turns: 1\n"})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    glob = act({"kind": "file", "op": "glob", "pattern": "*"})
    answers = [act(RUN), glob, glob, finish(), finish()]
    assert project.run("outer", answers, limits={"on_limit": "stop"}).status == "limited"
    assert project.resume(answers, raise_limits={"max_act_turns": 5}).ok
    assert project.is_sound()


def test_truncated_content_can_be_read_without_act_turns(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, phase_keys={"a": "max_act_turns: 1\n"})
    (tmp_path / "long.txt").write_text("line\n" * 5000)
    project = Project(tmp_path)
    rest = file("read", "workspace:.full/1.1.1", start=8000, length=4000)
    assert project.run("s", [act(file("read", "long.txt")), act(rest), act(rest), finish()]).ok
    assert project.events("validation_error") == []
    assert len(project.events("content_truncated")) == 1
    assert project.is_sound()


def test_a_huge_rejected_answer_is_truncated_in_the_correction(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]})
    project = Project(tmp_path)
    assert project.run("s", ["x" * 5_000_000, finish()]).ok
    assert sum(len(message.text) for message in project.model.requests[1].messages) < 60_000
    assert project.is_sound()


def test_an_edited_configuration_does_not_change_a_waiting_run(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file, ask_user"})
    (tmp_path / "x.txt").write_text("x" * 5000)
    project = Project(tmp_path)
    answers = [act(question("ok?")), act(file("read", "x.txt")), finish()]
    project.run("s", answers)
    with project.open(answers, sizes={"file_bytes": 10}) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").ok
    assert project.results()[-1]["status"] == "ok"


def test_ops_cannot_read_secrets_even_if_the_project_is_the_home_folder(tmp_path: Path, monkeypatch):
    """A grant of the folder around them does not include them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    (tmp_path / ".config/reyn").mkdir(parents=True)
    (tmp_path / ".config/reyn/secrets.json").write_text("a key")
    (tmp_path / ".config/other.json").write_text("a key of another program")
    keys = "permissions: {file.read: [.config/]}\n"
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, skill_keys=keys)
    project = Project(tmp_path)
    grep = {"kind": "file", "op": "grep", "pattern": "a key", "path": ".config"}
    ops = (file("read", ".config/reyn/secrets.json"), file("read", ".config/other.json"), grep)
    grant = {"file.read": [{"allow": ".config/"}]}
    assert project.run("s", [act(*ops), finish()], permissions=grant).ok
    assert [result["status"] for result in project.results()] == ["denied", "ok", "ok"]
    shown = project.model.turn_message(1).split("# Results")[1]
    assert shown.count("a key of another program") == 2
    assert '"content":"a key"' not in shown


@pytest.mark.slow
def test_derived_events_do_not_depend_on_set_order(tmp_path: Path):
    step = "run_op: {op: {kind: file, path: x}, args_from: {op: data.text}, into: data.found, on_error: skip}"
    write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": f"preprocessor:\n  - {step}\n"})
    script = (
        "import sys; from pathlib import Path; from reyn import SyncRuntime; from reyn.testing import ScriptedModel\n"
        "with SyncRuntime.open(sys.argv[1], model=ScriptedModel([])) as rt:\n"
        "    print(rt.run('s', {'text': 'in'}, run_id=sys.argv[2]).warnings)\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), f"r{seed}"],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(said) == 1


def test_an_upgrade_drops_rollback_targets_of_the_old_skill(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, skill_keys="on_phase_failure: rollback\n")
    journal = MemoryJournal()
    project = Project(tmp_path, journal)
    project.run("s", [go("b")], max_phase_retries=0)
    write_skill(tmp_path, "s", {"b": ["end"]}, skill_keys="on_phase_failure: rollback\n")
    with SyncRuntime.open(tmp_path, model=project.model, journal=journal) as rt:
        rt.fork("k", skill="s", run_id="f")
        assert rt.runs.result("f").status == "failed"
    with project.open([go("b"), "no"]) as rt:
        assert rt.resume("f", retry=True).status == "failed"


def test_waiting_for_an_answer_in_a_sub_run_costs_its_parent_no_time(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "ask_user"})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)

    class Slow:
        async def ask(self, run_id, wait):
            project.clock._now += 3_600_000_000
            return "yes"

    answers = [act(RUN), act(question("ok?")), finish(), finish()]
    result = project.run("outer", answers, people=Slow(), limits={"run_seconds": 600})
    assert result.ok, result


def test_run_skill_accepts_names_and_no_paths(tmp_path: Path):
    outside = write_skill(tmp_path / "outside", "inner", {"x": ["end"]})
    root = tmp_path / "project"
    write_skill(root, "outer", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(root)
    places = [str(outside), "../outside/reyn/project/inner", "./.reyn/workspace/k/evil", "/etc"]
    asked = act(*[RUN | {"skill": place} for place in places])
    assert project.run("outer", [asked, finish()]).ok
    assert len(project.events("permission_denied")) == len(places)
    assert project.model.turn_message(1).count('"status":"denied"') == len(places)
    assert len(project.journal.runs()) == 1
    assert project.is_sound()


def test_an_answer_does_not_reach_a_question_of_another_run(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "ask_user"})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill, ask_user"})
    project = Project(tmp_path)
    answers = [act(question("the cache?"), RUN), act(question("the database?")), finish(), finish()]
    project.run("outer", answers)
    with project.open(answers) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").reason == "the database?"
        with pytest.raises(QuestionUnknown):
            rt.answer("k", "1.1.1", "yes")


def test_a_recorded_model_answers_sub_runs(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    assert project.run("outer", [act(RUN), finish("inner"), finish("outer")], run_id="first").ok
    with SyncRuntime.open(tmp_path, model="recorded:first", journal=project.journal) as rt:
        again = rt.run("outer", {"text": "in"}, run_id="second")
        assert again.artifact == {"type": "note", "data": {"text": "outer"}}


def test_a_run_continues_after_its_failed_sub_run_was_resumed(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["x", "end"]})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    answers = [act(RUN), go("x"), go("x"), finish(), finish()]
    assert project.run("outer", answers, max_phase_visits=2, max_phase_retries=0).status == "limited"
    assert project.resume(answers, run_id="k.1.1.1", raise_limits={"max_phase_visits": 9}).ok
    assert project.resume(answers).ok
    with pytest.raises(RunNotResumable):
        project.resume(answers, run_id="k.1.1.1", retry=True)


def test_an_unconfigured_model_class_is_a_warning(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": "model_class: strong\n"})
    result = Project(tmp_path).run("s", [finish()])
    assert "phase `a` requests model class `strong`" in result.warnings[0]
