"""The ops `lint` and `skill_resolve`: what a run may learn about the skills of its project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn.runtime import SyncRuntime
from reyn.testing import ScriptedModel
from tests.support import act, file, finish, write_skill


def result_of(project: Path, *ops: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Run ops in one act turn, and return the result of the last."""
    write_skill(project, "librarian", {"look": ["end"]}, ops={"look": "file, lint, skill_resolve"})
    with SyncRuntime.open(project, model=ScriptedModel([act(*ops), finish()]), **settings) as runtime:
        run = runtime.run("librarian", {"text": "x"})
        events = [event for event in runtime.runs.events(run.run_id) if "result" in event.data and "call" in event.data]
        assert runtime.runs.replay(run.run_id).status == "finished"
        return json.loads(runtime.services.journal.blob(events[-1].data["result"]))


@pytest.mark.parametrize(("folder", "source"), [("local", "local"), ("project", "project")])
def test_a_skill_is_found_by_its_name(tmp_path: Path, folder: str, source: str):
    write_skill(tmp_path, "tea", {"brew": ["end"]})
    if folder == "local":
        (tmp_path / "reyn/local").mkdir()
        (tmp_path / "reyn/project/tea").rename(tmp_path / "reyn/local/tea")
    found = result_of(tmp_path, {"kind": "skill_resolve", "name": "tea"})
    assert found == {
        "kind": "skill_resolve",
        "status": "ok",
        "name": "tea",
        "resolved": True,
        "source": source,
        "skill_dir": f"reyn/{folder}/tea",
        "skill_md_path": f"reyn/{folder}/tea/skill.md",
    }


def test_an_unknown_skill_is_a_result(tmp_path: Path):
    found = result_of(tmp_path, {"kind": "skill_resolve", "name": "nothing"})
    assert (found["status"], found["resolved"], found["skill_dir"]) == ("ok", False, None)


@pytest.mark.parametrize("name", ["../x", "/etc", "a/b", ".."])
def test_a_path_is_not_resolved(tmp_path: Path, name: str):
    assert result_of(tmp_path, {"kind": "skill_resolve", "name": name})["status"] == "denied"


@pytest.mark.parametrize("place", ["tea", "reyn/project/tea", "reyn/project/tea/skill.md", "./reyn/project/tea/"])
def test_a_skill_is_linted_by_name_or_path(tmp_path: Path, place: str):
    folder = write_skill(tmp_path, "tea", {"brew": ["end"]})
    good = result_of(tmp_path, {"kind": "lint", "skill_path": place})
    assert (good["status"], good["passed"], good["error_count"]) == ("ok", True, 0)
    (folder / "phases/brew.md").write_text("---\ntype: phase\nname: brew\ninput: nothing\n---\nx\n")
    bad = result_of(tmp_path, {"kind": "lint", "skill_path": place})
    assert (bad["passed"], bad["error_count"]) == (False, 1)
    assert "RYN117" in bad["issues"][0]


def test_a_skill_that_the_run_wrote_into_its_workspace_can_be_linted(tmp_path: Path):
    text = "---\ntype: skill\nname: made\nentry: a\nfinal_output: user_message\ngraph: {a: [end]}\n---\n"
    written = file("write", "workspace:made/skill.md", content=text)
    found = result_of(tmp_path, written, {"kind": "lint", "skill_path": "workspace:made"})
    assert (found["status"], found["passed"]) == ("ok", False)
    assert "RYN116" in found["issues"][0]


def test_a_missing_skill_is_an_error_result(tmp_path: Path):
    found = result_of(tmp_path, {"kind": "lint", "skill_path": "reyn/project/none"})
    assert (found["status"], found["passed"], found["error_count"]) == ("error", False, 1)


@pytest.mark.parametrize("place", ["/etc", "../outside", ".reyn/x", ".git/x"])
def test_a_folder_that_may_not_be_read_is_not_linted(tmp_path: Path, place: str):
    assert result_of(tmp_path, {"kind": "lint", "skill_path": place})["status"] == "denied"
