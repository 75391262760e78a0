"""What a program changes in the workspace is recorded, undone, rolled back and forked; other ops are named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import ReplayMismatch
from reyn.runtime import SyncRuntime
from reyn.sandbox.backends import BACKENDS
from reyn.testing import ScriptedModel
from reyn.testing.crash import KILLED, in_child
from tests.fuzz.archives import Archive
from tests.kernel.support import Project
from tests.ops.test_programs import command, shell
from tests.support import act, file, finish, go, write_skill

pytestmark = pytest.mark.skipif(all(backend.problem for backend in BACKENDS), reason="no process sandbox")
GRANTED = {"permissions": {"exec": [{"allow": "sh"}]}, "sandbox": {"processes": 20}}
WRITE = {"write_paths": ["workspace:"], "allow_subprocess": True}
OLD = [file("write", f"workspace:{name}.txt", content=f"{name}\n") for name in ("kept", "changed", "deleted")]
SCRIPT = "echo new > changed.txt; rm deleted.txt; mkdir -p a/b; echo x > a/b/c.txt; echo y > a/d.txt"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_skill(
        tmp_path,
        "s",
        {"a": ["b"], "b": ["end"]},
        ops={"a": "sandboxed_exec, shell, file", "b": "file, sandboxed_exec"},
        skill_keys="permissions: {exec: [sh], shell: true}\non_phase_failure: rollback\n",
    )
    return Project(tmp_path)


def files(project: Project, run_id: str = "k") -> dict[str, str]:
    folder = project.root / ".reyn/workspace" / run_id
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(project: Project, *ops: dict[str, Any], **settings: Any) -> Any:
    return project.run("s", [act(*ops), go("b"), finish()], **(GRANTED | settings))


BEFORE = {"kept.txt": "kept\n", "changed.txt": "changed\n", "deleted.txt": "deleted\n"}
AFTER = {"kept.txt": "kept\n", "changed.txt": "new\n", "a/b/c.txt": "x\n", "a/d.txt": "y\n"}


def test_changes_are_recorded(project: Project):
    assert run(project, *OLD, shell(SCRIPT, **WRITE)).ok
    assert files(project) == AFTER
    [completed] = project.events("sandboxed_exec_completed")
    assert [change["path"] for change in completed["changes"]] == [
        "workspace:deleted.txt",
        "workspace:a/b/c.txt",
        "workspace:a/d.txt",
        "workspace:changed.txt",
    ]
    with project.open([]) as runtime:
        assert runtime.runs.changed_files("k") == {f"workspace:{path}": "new" for path in AFTER}
    assert project.is_sound()


def test_an_undo_reverts_them(project: Project):
    assert run(project, *OLD, shell(SCRIPT, **WRITE)).ok
    with project.open([]) as runtime:
        report = runtime.runs.undo("k")
        assert (report.left, report.untracked) == ((), ())
    assert files(project) == {}
    assert not (project.root / ".reyn/workspace/k/a").exists()


def test_a_rollback_reverts_those_of_the_failed_visit(project: Project):
    answers = [act(*OLD), go("b", "first"), act(shell(SCRIPT, **WRITE)), "no", "no", go("b", "second"), finish()]
    assert project.run("s", answers, max_phase_retries=1, **GRANTED).ok
    assert files(project) == BEFORE
    assert project.is_sound()


def test_a_fork_has_the_files_of_programs(project: Project):
    assert run(project, *OLD, shell(SCRIPT, **WRITE)).ok
    with project.open([act(), go("b"), finish()]) as runtime:
        fork = runtime.fork("k")
        assert fork.ok
    assert files(project, fork.run_id) == AFTER


def test_a_program_that_changes_nothing_has_no_changes(project: Project):
    assert run(project, *OLD, shell("cat kept.txt; touch kept.txt", **WRITE)).ok
    [completed] = project.events("sandboxed_exec_completed")
    assert completed["changes"] == []


def test_files_that_cannot_be_recorded_are_named(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REYN_SECRET_TOKEN", "long-value-of-a-token")
    script = "head -c 5000 /dev/zero > large; ln -s kept.txt link; printf long-value-of-a- > s; printf token >> s"
    assert run(project, *OLD, shell(script, **WRITE), sizes={"file_bytes": 4_000}).ok
    [completed] = project.events("sandboxed_exec_completed")
    assert completed["changes"] == []
    assert sorted(completed["unrecorded"]) == ["workspace:large", "workspace:link", "workspace:s"]
    with project.open([]) as runtime:
        [named] = runtime.runs.undo("k").untracked
    assert (named.op, sorted(named.paths)) == ("sandboxed_exec", ["workspace:large", "workspace:link", "workspace:s"])


def test_more_than_a_visit_may_record_is_named(project: Project):
    script = "for n in 1 2 3 4 5 6 7 8; do head -c 1000 /dev/urandom > f$n; done"
    assert run(project, shell(script, **WRITE), sizes={"visit_recorded_bytes": 5_000}).ok
    [completed] = project.events("sandboxed_exec_completed")
    paths = [change["path"] for change in completed["changes"]] + completed["unrecorded"]
    assert paths == [f"workspace:f{number}" for number in range(1, 9)]
    assert completed["unrecorded"]


def test_a_shell_command_is_named_by_an_undo(project: Project):
    settings = {"permissions": {"shell": "allow"}, "allow_shell": True}
    assert run(project, command("echo x > made.txt"), file("write", "output/a.txt", content="a"), **settings).ok
    with project.open([]) as runtime:
        for _ in range(2):  # also if there is nothing left to restore
            [named] = runtime.runs.undo("k").untracked
            assert (named.run, named.call, named.op) == ("k", "1.1.1", "shell")
            assert "made.txt" in named.args
    assert (project.root / "made.txt").exists()
    assert not (project.root / "output/a.txt").exists()


def test_a_command_that_was_interrupted_is_named_by_an_undo(tmp_path: Path):
    """It kills the process that records, so its changes are in no event."""
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "shell"}, skill_keys="permissions: {shell: true}\n")
    settings = {"permissions": {"shell": "allow"}, "allow_shell": True, "trust": True}

    def work() -> None:
        script = f"echo x > made.txt; kill -9 {os.getpid()}"
        model = ScriptedModel([act(command(script)), finish()])
        with SyncRuntime.open(tmp_path, model=model, **settings) as runtime:
            runtime.run("s", {"text": "in"}, run_id="k")

    assert in_child(work) == KILLED
    with SyncRuntime.open(tmp_path, **settings) as runtime:
        [named] = runtime.runs.undo("k").untracked
    assert (named.op, (tmp_path / "made.txt").exists()) == ("shell", True)


def test_a_replay_rejects_a_program_that_changed_files_of_the_project(project: Project):
    assert run(project, *OLD, shell(SCRIPT, **WRITE)).ok
    with project.open([]) as runtime:
        archive = Archive(b"".join(runtime.runs.export("k")))
    [completed] = [event for event in archive.events if event["kind"] == "sandboxed_exec_completed"]
    completed["data"]["changes"][0]["path"] = "reyn.yaml"
    for event in archive.events:
        if event["kind"] == "workspace_updated" and event["data"]["call"] == completed["data"]["call"]:
            event["data"]["change"]["path"] = "reyn.yaml"
            break
    other = project.root / "other"
    other.mkdir()
    with SyncRuntime.open(other) as runtime:
        runtime.runs.import_(archive.lines())
        with pytest.raises(ReplayMismatch, match="outside its workspace"):
            runtime.runs.replay("k")
