"""Links in a clone from what defines a project to files that runs write: agents, shared parts, tools, settings.

The attacker plants the links, and a model writes the definitions later. The oracle is what the files say: none of it is
in effect.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reyn.config.load import load_sources
from reyn.config.values import Config
from reyn.errors import AgentNotFound, ConfigInvalid, McpDefinitionsInvalid, SkillInvalid, SkillNotFound
from reyn.ops.mcp.connections import read_definitions
from reyn.permissions.policy import written_places
from reyn.skills.agents import Agents
from reyn.skills.resolve import Library
from tests.kernel.support import Project
from tests.support import act, file, finish, read_skill, write_skill

WRITTEN = "written-by-a-model"
AGENT = f"---\ntype: agent\nname: helper\nagents: ['*']\ndescription: {WRITTEN}\n---\n{WRITTEN}\n"
TOOLS = json.dumps({"server": "desk", "tools": [{"name": "wipe", "description": WRITTEN, "inputSchema": {}}]})
SETTINGS = f"output_language: {WRITTEN}\n"
FILES = {
    "reyn/agents/helper.md": AGENT,
    "reyn/mcp/desk.json": TOOLS,
    "reyn.yaml": SETTINGS,
    "reyn.local.yaml": SETTINGS,
}
PLACES = ["output", "output/deep", "docs", ".reyn/workspace/k"]


def read(root: Path) -> str:
    """Return what is in effect of the definitions of a project; an error counts as nothing."""
    found = []
    for look in (
        lambda: Agents(root).load("helper"),
        lambda: Agents(root).description("helper"),
        lambda: read_definitions(root, "desk"),
        lambda: load_sources(root, None, {}).merged,
    ):
        try:
            found.append(repr(look()))
        except (AgentNotFound, SkillInvalid, McpDefinitionsInvalid, ConfigInvalid) as error:
            found.append(type(error).__name__)
    return " ".join(found)


def plant(root: Path, definition: str, place: str, depth: int) -> None:
    """Put a definition below a place, and a link to it, or to a folder above it, where the project has it."""
    whole = root / definition
    moved = root / place / definition
    moved.parent.mkdir(parents=True)
    moved.write_text(FILES[definition])
    linked, target = whole, moved
    for _ in range(depth):
        linked, target = linked.parent, target.parent
    linked.parent.mkdir(parents=True, exist_ok=True)
    linked.symlink_to(os.path.relpath(target, linked.parent))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("definition", "depth"), [(file, depth) for file in FILES for depth in range(file.count("/") + 1)]
)
def test_no_definition_is_read_through_a_link_out_of_its_folder(
    tmp_path: Path, definition: str, depth: int, place: str
):
    plant(tmp_path, definition, place, depth)
    assert (tmp_path / definition).read_text() == FILES[definition]
    assert WRITTEN not in read(tmp_path)


@pytest.mark.parametrize("definition", FILES)
def test_definitions_are_read_from_their_place_and_through_links_below_it(tmp_path: Path, definition: str):
    path = tmp_path / definition
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FILES[definition])
    assert WRITTEN in read(tmp_path)
    (tmp_path / "reyn/kept").mkdir(parents=True)
    path.rename(tmp_path / "reyn/kept/x")
    path.symlink_to(os.path.relpath(tmp_path / "reyn/kept/x", path.parent))
    assert WRITTEN in read(tmp_path)


@pytest.mark.parametrize("linked", ["reyn/shared", "reyn/shared/artifacts", "reyn/shared/artifacts/note.yaml"])
def test_no_shared_part_is_read_through_a_link_out_of_its_folder(tmp_path: Path, linked: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]})
    target = tmp_path / "output" / linked
    part = tmp_path / "output/reyn/shared/artifacts/note.yaml"
    part.parent.mkdir(parents=True)
    (folder / "artifacts/note.yaml").rename(part)
    (tmp_path / linked).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / linked).symlink_to(os.path.relpath(target, (tmp_path / linked).parent))
    assert read_skill(folder, Library(tmp_path)).skill is None


def test_an_agent_that_a_model_writes_through_a_link_is_not_asked(tmp_path: Path):
    (tmp_path / "reyn/agents").mkdir(parents=True)
    (tmp_path / "reyn/agents/helper.md").symlink_to("../../output/helper.md")
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    project = Project(tmp_path)
    assert project.run("s", [act(file("write", path="output/helper.md", content=AGENT)), finish()]).ok
    assert (tmp_path / "output/helper.md").read_text() == AGENT
    with project.open([finish()]) as rt, pytest.raises(SkillInvalid, match="leads out of `reyn`"):
        rt.run("agent:helper", "hello")


@pytest.mark.parametrize(
    "rules",
    [
        {"file.write": [{"allow": "docs/"}]},
        {"file.write": [{"allow": "docs/x/skill.md", "skill": "other"}]},
        {"file.write": [{"deny": "docs/private/"}, {"allow": ["notes/", "docs/*.md"]}]},
        {"file.write": "allow"},
    ],
)
def test_a_skill_that_links_to_files_that_a_rule_lets_runs_write_is_not_found(tmp_path: Path, rules: dict[str, object]):
    (tmp_path / "docs").mkdir()
    write_skill(tmp_path, "x", {"a": ["end"]}).rename(tmp_path / "docs/x")
    (tmp_path / "reyn/project/x").symlink_to("../../docs/x")
    write_skill(tmp_path, "y", {"a": ["end"]}).rename(tmp_path / "reyn/y")
    (tmp_path / "reyn/project/y").symlink_to("../y")
    assert Library(tmp_path).find("x")
    library = Library(tmp_path, written_places(Config(permissions=rules)))
    with pytest.raises(SkillNotFound, match="files that runs write"):
        library.find("x")
    assert library.find("y")
    assert [name for name, shelf, _ in library if shelf == "project"] == ["y"]
