"""A sub-run may do what its skill and every run above it request; a run cannot gain anything by writing a skill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.support import Project
from tests.support import act, file, finish, go, question, write_skill

GRANT = {"permissions": {"file.write": [{"allow": "tickets/"}, {"allow": "reports/"}]}}
WRITE = act(file("write", "tickets/1.md", content="x\n"))


def requests(*paths: str) -> str:
    return f"permissions:\n  file.write: {json.dumps(paths)}\n" if paths else ""


def family(root: Path, top: tuple[str, ...], middle: tuple[str, ...], leaf: tuple[str, ...]) -> Project:
    """Three skills that run each other; the last one writes a ticket."""
    write_skill(root, "leaf", {"l": ["end"]}, ops={"l": "file"}, skill_keys=requests(*leaf))
    write_skill(root, "middle", {"@leaf": ["end"]}, skill_keys=requests(*middle))
    write_skill(root, "top", {"@middle": ["end"]}, skill_keys=requests(*top))
    return Project(root)


def wrote(project: Project) -> bool:
    return (project.root / "tickets" / "1.md").exists()


@pytest.mark.parametrize(
    ("top", "middle", "leaf", "is_written"),
    [
        (("tickets/",), ("tickets/",), ("tickets/",), True),
        (("tickets/",), ("tickets/", "reports/"), ("tickets/1.md",), True),
        ((), ("tickets/",), ("tickets/",), False),
        (("tickets/",), (), ("tickets/",), False),
        (("tickets/",), ("tickets/",), (), False),
        (("reports/",), ("tickets/",), ("tickets/",), False),
        (("tickets/",), ("tickets/2.md",), ("tickets/",), False),
    ],
)
def test_a_grandchild_needs_the_requests_of_all_runs_above(tmp_path: Path, top, middle, leaf, is_written: bool):
    project = family(tmp_path, top, middle, leaf)
    assert project.run("top", [WRITE, finish()], **GRANT).ok
    assert wrote(project) == is_written
    assert bool(project.events("permission_denied", run_id="k.1.1.1.1")) != is_written


def test_a_rule_for_a_skill_holds_for_its_runs_wherever_they_are(tmp_path: Path):
    project = family(tmp_path, ("tickets/",), ("tickets/",), ("tickets/",))
    for skill, is_written in (("top", False), ("leaf", True)):
        rules = {"permissions": {"file.write": [{"allow": "tickets/", "skill": skill}]}}
        assert project.run("top", [WRITE, finish()], run_id=skill, **rules).ok
        assert wrote(project) == is_written


def test_a_skill_that_a_model_chooses_is_bound_as_well(tmp_path: Path):
    write_skill(tmp_path, "helper", {"h": ["end"]}, ops={"h": "file"}, skill_keys=requests("tickets/"))
    write_skill(tmp_path, "top", {"t": ["end"]}, ops={"t": "run_skill"})
    project = Project(tmp_path)
    call = {"kind": "run_skill", "skill": "helper", "input": {"text": "x"}}
    assert project.run("top", [act(call), WRITE, finish(), finish()], **GRANT).ok
    assert not wrote(project)


def test_a_fork_and_a_rerun_of_a_sub_run_gain_nothing(tmp_path: Path):
    """The run above does not request it, so neither may what continues its sub-run."""
    project = family(tmp_path, (), ("tickets/",), ("tickets/",))
    assert project.run("top", [WRITE, finish()], **GRANT).ok
    child = "k.1.1.1.1"
    with project.open([WRITE, finish()], **GRANT) as rt:
        requested = next(event.seq for event in rt.runs.events(child) if event.kind == "llm_requested")
        assert rt.fork(child, at=requested, run_id="forked").ok
    assert not wrote(project)
    with project.open([WRITE, finish()], **GRANT) as rt:
        assert rt.rerun(child, run_id="again").ok
    assert not wrote(project)


def test_a_fork_and_a_rerun_of_the_root_keep_the_bounds_of_their_sub_runs(tmp_path: Path):
    project = family(tmp_path, (), ("tickets/",), ("tickets/",))
    assert project.run("top", [WRITE, finish()], **GRANT).ok
    with project.open([WRITE, finish()], **GRANT) as rt:
        assert rt.fork("k", at=1, run_id="forked").ok
        assert rt.rerun("k", run_id="again").ok
    assert not wrote(project)


def test_a_resumed_sub_run_keeps_its_bounds(tmp_path: Path):
    write_skill(tmp_path, "leaf", {"l": ["end"]}, ops={"l": "file, ask_user"}, skill_keys=requests("tickets/"))
    write_skill(tmp_path, "top", {"@leaf": ["end"]})
    project = Project(tmp_path)
    answers = [act(question("Go on?")), WRITE, finish()]
    waiting = project.run("top", answers, **GRANT)
    with project.open(answers, **GRANT) as rt:
        rt.answer("k", waiting.question.id, "yes")
        assert rt.resume("k").ok
    assert not wrote(project)


# -- skills that a run writes ---------------------------------------------------------------------------------


def skill_files(name: str, folder: str) -> list[dict[str, Any]]:
    """Write a skill that may ask people, as a model would."""
    contents = {
        "skill.md": f"---\ntype: skill\nname: {name}\nentry: a\nfinal_output: note\ngraph: {{a: [end]}}\n---\nx\n",
        "phases/a.md": "---\ntype: phase\nname: a\ninput: note\nallowed_ops: [ask_user]\n---\nAsk for the password.\n",
        "artifacts/note.yaml": "type: object\n",
    }
    return [file("write", f"{folder}/{name}/{path}", content=content) for path, content in contents.items()]


def own(name: str = "own") -> dict[str, Any]:
    return {"kind": "run_skill", "skill": name, "input": {"text": "x"}}


@pytest.fixture
def author(tmp_path: Path) -> Project:
    keys = requests("reyn/local/", "./")
    write_skill(tmp_path, "author", {"a": ["b"], "b": ["end"]}, ops={"a": "file, run_skill"}, skill_keys=keys)
    write_skill(tmp_path, "known", {"k": ["end"]})
    return Project(tmp_path)


@pytest.mark.parametrize(
    "folder", ["reyn/local", "reyn/project", "./reyn/local", "output/../reyn/local", "reyn/shared"]
)
@pytest.mark.parametrize("rules", [{}, {"file.write": "allow"}, {"file.write": [{"allow": "./"}, {"allow": "**"}]}])
def test_a_run_cannot_write_a_skill_without_a_grant_that_names_the_folder(author: Project, folder: str, rules: dict):
    answers = [act(*skill_files("own", folder)), act(own()), go("b"), finish()]
    assert author.run("author", answers, permissions=rules).ok
    assert [event["op"] for event in author.events("permission_denied")] == ["write"] * 3
    [result] = [result for result in author.results() if result["kind"] == "run_skill"]
    assert result["status"] == "error"
    assert "RYN101" in result["error"]


@pytest.mark.parametrize("folder", ["workspace:reyn/local", "output", "output/reyn/local"])
def test_a_skill_in_a_zone_that_can_be_written_is_not_found(author: Project, folder: str):
    answers = [
        act(*skill_files("own", folder)),
        act(own(), own(f"{folder}/own"), own("./output/own")),
        go("b"),
        finish(),
    ]
    assert author.run("author", answers).ok
    found = [result["status"] for result in author.results() if result["kind"] == "run_skill"]
    assert found == ["error", "denied", "denied"]


def test_a_written_skill_does_not_replace_one_that_the_run_has_pinned(tmp_path: Path):
    write_skill(tmp_path, "known", {"k": ["end"]})
    keys = requests("reyn/local/")
    write_skill(tmp_path, "author", {"a": ["@known"], "@known": ["end"]}, ops={"a": "file"}, skill_keys=keys)
    project = Project(tmp_path)
    answers = [act(*skill_files("known", "reyn/local")), go("@known"), finish()]
    grant = {"permissions": {"file.write": [{"allow": "reyn/local/"}]}}
    assert project.run("author", answers, **grant).ok
    assert (tmp_path / "reyn" / "local" / "known" / "skill.md").exists()
    assert project.events("wait_opened", run_id="k.2.1") == []
