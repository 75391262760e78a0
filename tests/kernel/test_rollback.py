"""A failed visit restores its files; with `on_phase_failure: rollback`, the previous phase is visited again."""

from __future__ import annotations

from pathlib import Path

from tests.kernel.support import Project
from tests.support import act, file, finish, go, write_skill

WRITE = act(file("write", "workspace:a.txt", content="new"), file("write", "output/notes/deep/b.txt", content="b"))


def make(root: Path, keys: str = "") -> Project:
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file", "b": "file"}, skill_keys=keys)
    return Project(root)


def test_the_files_of_a_failed_visit_are_restored(tmp_path: Path):
    project = make(tmp_path)
    keep = tmp_path / "output" / "keep.txt"
    keep.parent.mkdir()
    keep.write_text("old")
    keep.chmod(0o640)
    change = act(file("edit", "output/keep.txt", old_string="old", new_string="new"), file("delete", "output/keep.txt"))
    result = project.run("s", [go("b"), WRITE, change, "no", "no"], max_phase_retries=1)
    assert result.status == "failed"
    assert keep.read_text() == "old"
    assert keep.stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "output/notes").exists()
    assert not (tmp_path / ".reyn/workspace/k/a.txt").exists()
    assert project.kinds()[-4:] == ["restore_started", "workspace_restored", "phase_failed", "run_failed"]
    with project.open([]) as rt:
        assert rt.runs.changed_files("k") == {}
    assert project.is_sound()


def test_a_file_that_was_changed_since_is_not_restored_and_is_a_warning(tmp_path: Path):
    project = make(tmp_path)

    class Meddling:
        name = "scripted"

        async def complete(self, request):
            if request.answered == 2:
                (tmp_path / "output/notes/deep/b.txt").write_text("mine")
            return await project.model.complete(request)

    with project.open([go("b"), WRITE, "no", "no"], max_phase_retries=1) as rt:
        rt.async_form.services.model = Meddling()
        result = rt.run("s", {"text": "in"}, run_id="k")
    assert result.status == "failed"
    assert (tmp_path / "output/notes/deep/b.txt").read_text() == "mine"
    assert "`output/notes/deep/b.txt` was not restored" in result.warnings[0]
    assert project.is_sound()


def test_after_a_failure_the_previous_phase_is_visited_again_with_the_reason(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    answers = [go("b", "first"), WRITE, "no", "no", "x", go("b", "second"), finish()]
    result = project.run("s", answers, max_phase_retries=1)
    assert result.ok
    assert result.path == ("a", "b", "a", "b")
    [back] = project.events("phase_rolled_back")
    assert (back["phase"], back["to"]) == ("b", "a")
    shown = [request.messages[1].text for request in project.model.requests]
    assert "# Rejected" not in shown[0]
    for attempt in (4, 5):  # every attempt of the visit
        assert "produced before:\nfirst" in shown[attempt]
        assert "2 answers rejected" in shown[attempt]
    assert "# Rejected" not in shown[6]
    assert shown[4].startswith("in\n")
    assert project.is_sound()


def test_the_same_artifact_after_a_rollback_aborts_the_run(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    result = project.run("s", [go("b", "same"), "no", "no", go("b", "same")], max_phase_retries=1)
    assert (result.status, result.exit_code) == ("aborted", 5)
    assert "no progress" in result.reason
    assert project.is_sound()


def test_the_entry_phase_has_nothing_to_roll_back_to(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    assert project.run("s", ["no", "no"], max_phase_retries=1).status == "failed"
    assert project.resume(["no", "no", go("b"), finish()], retry=True).ok


def test_rollbacks_can_go_back_several_phases(tmp_path: Path):
    write_skill(tmp_path, "t", {"a": ["b"], "b": ["c"], "c": ["end"]}, skill_keys="on_phase_failure: rollback\n")
    project = Project(tmp_path)
    answers = [go("b", "1"), go("c", "2"), "no", "no", go("b", "3"), go("c", "4"), finish()]
    result = project.run("t", answers, max_phase_retries=0)
    assert result.ok
    assert result.path == ("a", "b", "c", "b", "a", "b", "c")
    assert [event["to"] for event in project.events("phase_rolled_back")] == ["b", "a"]
    assert project.is_sound()


def test_rollbacks_are_limited_by_phase_visits(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    answers = [answer for number in range(5) for answer in (go("b", str(number)), "no")]
    result = project.run("s", answers, max_phase_retries=0, max_phase_visits=2)
    assert result.status == "limited"
    assert project.is_sound()
