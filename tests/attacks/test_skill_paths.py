"""Skills of a project that run other skills by path.

The attacker writes the skills and links of a clone, or is a model that writes below `output/`. The oracles are the
skills that were loaded, a text outside of the project that must appear nowhere, and the files that exist.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from reyn.errors import SkillInvalid, SkillNotFound
from reyn.skills.resolve import Library
from tests.kernel.support import Project
from tests.support import act, file, finish, read_skill, with_ops, write_skill

CANARY = "canary-of-another-project"
PLACES = {
    "preprocessor": "preprocessor:\n  - run_skill: {{skill: {path}}}\n",
    "run_op": "preprocessor:\n  - run_op: {{op: {{kind: run_skill, skill: {path}, input: {{text: x}}}}}}\n",
    "iterate": "preprocessor:\n  - iterate: {{over: data.list, apply: {{run_skill: {{skill: {path}}}}}}}\n",
}
POSTPROCESSOR = "postprocessor:\n  output_schema: note\n  steps:\n    - run_skill: {{skill: {path}}}\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project beside another one with a private skill, which `HOME` contains, too."""
    other = write_skill(tmp_path / "home", "private", {"a": ["end"]})
    (other / "phases" / "a.md").write_text((other / "phases" / "a.md").read_text() + CANARY)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "clone").mkdir()
    return tmp_path / "clone"


PATHS = [
    "../home/reyn/project/private", "{outside}", "{outside}/skill.md", "~/reyn/project/private", "./output/mine",
    "output/mine", "reyn/project/../../output/mine", "reyn/project/../../../home/reyn/project/private", "//output/mine",
    "reyn/project/linked", "reyn/local/written", ".reyn/workspace/mine", "reyn//project/mine", "reyn/shared/mine", "..",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("place", [*PLACES, "postprocessor"])
def test_a_step_runs_no_skill_outside_of_the_projects_folders_for_skills(root: Path, place: str, path: str):
    path = path.format(outside=root.parent / "home" / "reyn" / "project" / "private")
    for folder in ("output", ".reyn/workspace", "reyn/shared"):
        written = write_skill(root / "x", "mine", {"a": ["end"]})
        (root / folder).mkdir(parents=True)
        written.rename(root / folder / "mine")
    (root / "reyn" / "local").mkdir()
    (root / "reyn" / "local" / "written").symlink_to("../../output/mine")
    keys = PLACES.get(place, "").format(path=json.dumps(path))
    end = POSTPROCESSOR.format(path=json.dumps(path)) if place == "postprocessor" else ""
    folder = write_skill(root, "s", {"a": ["end"]}, phase_keys={"a": keys}, skill_keys=end)
    (root / "reyn" / "project" / "linked").symlink_to(root.parent / "home" / "reyn" / "project" / "private")
    loaded = read_skill(folder, Library(root))
    assert SkillNotFound.code in [finding.code for finding in loaded.findings], loaded.findings
    assert loaded.skill is None or not any(loaded.skill.skills.values())
    assert CANARY not in repr(loaded)


def test_a_step_names_a_skill_by_its_name_or_its_folder_in_the_project(root: Path):
    write_skill(root, "helper", {"a": ["end"]})
    for name in ("helper", "reyn/project/helper"):
        keys = PLACES["preprocessor"].format(path=name)
        skill = read_skill(write_skill(root, "s", {"a": ["end"]}, phase_keys={"a": keys}), Library(root)).skill
        assert skill is not None
        assert skill.skills[name].name == "helper"


@pytest.mark.parametrize("zone", ["output/", "drafts/*.md", "./notes/", "*"])
def test_a_name_that_links_to_files_that_runs_write_is_not_found(root: Path, zone: str):
    place = root / zone.partition("*")[0]
    place.mkdir(exist_ok=True)
    write_skill(root / "x", "weekly", {"a": ["end"]}).rename(place / "weekly")
    (root / "reyn" / "project").mkdir(parents=True)
    (root / "reyn" / "project" / "weekly").symlink_to(place / "weekly")
    library = Library(root, (zone,))
    with pytest.raises(SkillNotFound, match="files that runs write"):
        library.find("weekly")
    assert "weekly" not in [name for name, _, _ in library]


def test_no_rule_about_a_skill_applies_to_one_that_calls_itself_so(tmp_path: Path):
    """The rule grants `weekly`; the folder that the model of the attacker wrote, or a clone brought, is another one."""
    requests = "permissions: {file.write: [reports/]}\n"
    folder = write_skill(tmp_path, "weekly", {"a": ["end"]}, ops={"a": "file"}, skill_keys=requests)
    folder.rename(folder.with_name("other"))
    project = Project(tmp_path)
    rules = {"file.write": [{"allow": "reports/", "skill": "weekly"}]}
    with pytest.raises(SkillInvalid, match="the folder is `other`"):
        project.run("other", [act(file("write", path="reports/x.md", content="x")), finish()], permissions=rules)
    assert not (tmp_path / "reports").exists()


SPELLINGS = ("t", "linked", "t/skill.md", "linked/skill.md", "reyn/project/t", "reyn/project/linked/skill.md")
DENY_T = {"run_skill": [{"deny": "t"}]}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_rule_about_a_skill_holds_for_every_name_of_it(tmp_path: Path, name: str):
    write_skill(tmp_path, "t", {"a": ["end"]}, ops={"a": "file"})
    (tmp_path / "reyn" / "project" / "linked").symlink_to("t")
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "run_skill"})
    project, inner = Project(tmp_path), with_ops(finish(), file("write", "output/x", content="x"))
    op = {"kind": "run_skill", "skill": name, "input": {"text": "x"}}
    assert project.run("s", [act(op), finish(), finish(), inner], permissions=DENY_T).ok
    assert "child_started" not in project.kinds()
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("name", SPELLINGS[:2])
@pytest.mark.parametrize("place", [*PLACES, "node"])
def test_a_rule_about_a_skill_holds_for_steps_and_nodes_that_name_a_link(tmp_path: Path, name: str, place: str):
    write_skill(tmp_path, "t", {"a": ["end"]})
    (tmp_path / "reyn" / "project" / "linked").symlink_to("t")
    keys = PLACES[place].format(path=name) if place in PLACES else ""
    graph: dict[str, list[str]] = {"a": ["end"]} if keys else {f"@{name}": ["a"], "a": ["end"]}
    write_skill(tmp_path, "s", graph, phase_keys={"a": keys})
    project = Project(tmp_path)
    with suppress(SkillInvalid):
        assert project.run("s", [finish()] * 2, {"list": [{}], "text": "x"}, permissions=DENY_T).status == "failed"
        assert "child_started" not in project.kinds()
