"""Sub-skills as nodes and in steps: resolution, type checks, pins, cycles."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

from reyn.errors import SkillInvalid
from reyn.skills import Library, pin
from reyn.skills.flow import follow, schema_at
from tests.cost import count_calls
from tests.support import NOTE, load_skill, write_skill

OTHER = {"type": "object", "properties": {"count": {"type": "integer"}}}


def load(root: Path, name: str):
    return load_skill(Library(root).find(name), Library(root))


def codes(root: Path, name: str) -> list[tuple[int, str]]:
    with pytest.raises(SkillInvalid) as caught:
        load(root, name)
    return [(finding.line, finding.code) for finding in caught.value.findings]


def outer(root: Path, graph: dict, **more) -> Path:
    """A skill whose graph may name `@` nodes, which have no files."""
    folder = write_skill(root, "outer", graph, **more)
    for file in (folder / "phases").glob("@*"):
        file.unlink()
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_skill(tmp_path, "inner", {"x": ["end"]})
    return tmp_path


def test_a_graph_node_can_be_a_skill(root: Path):
    outer(root, {"a": ["@inner"], "@inner": ["b"], "b": ["end"]})
    skill = load(root, "outer")
    assert skill.skills["inner"].name == "inner"
    assert skill.inputs_of("@inner")[0].name == "note"
    assert set(skill.phases) == {"a", "b"}


def test_a_sub_skill_as_entry_defines_the_input_of_the_run(root: Path):
    outer(root, {"@inner": ["end"]})
    assert load(root, "outer").entry_inputs[0].schema == NOTE


def test_a_sub_skills_result_must_match_the_next_input(root: Path):
    artifacts = {"other": OTHER}
    outer(root, {"a": ["@inner"], "@inner": ["b"], "b": ["end"]}, artifacts=artifacts, inputs={"b": "other"})
    assert codes(root, "outer") == [(6, "RYN133")]
    outer(root, {"a": ["@inner"], "@inner": ["end"]}, artifacts=artifacts, final_output="other")
    assert codes(root, "outer") == [(6, "RYN133")]


def test_a_result_of_the_same_name_with_another_schema_is_named_as_such(root: Path):
    outer(root, {"@inner": ["b"], "b": ["end"]}, artifacts={"note": {"type": "object"}})
    with pytest.raises(SkillInvalid, match="`@inner` returns `note`, but `b` takes `note` with another schema"):
        load(root, "outer")


def test_a_sub_skill_node_has_one_successor(root: Path):
    outer(root, {"a": ["@inner"], "@inner": ["a", "end"]})
    assert codes(root, "outer") == [(6, "RYN133")]


def test_a_sub_skill_must_exist_and_load(root: Path):
    outer(root, {"a": ["@iner"], "@iner": ["end"]})
    assert codes(root, "outer") == [(6, "RYN101")]
    outer(root, {"a": ["@in ner"], "@in ner": ["end"]})
    assert codes(root, "outer") == [(6, "RYN115")]
    outer(root, {"a": ["@inner"], "@inner": ["end"]})
    (root / "reyn/project/inner/phases/x.md").write_text("broken")
    assert codes(root, "outer") == [(6, "RYN102")]


def test_a_cycle_of_skills_is_an_error_that_names_them(tmp_path: Path):
    for name, other in (("one", "two"), ("two", "three"), ("three", "one")):
        folder = write_skill(tmp_path, name, {"a": [f"@{other}"], f"@{other}": ["end"]})
        for file in (folder / "phases").glob("@*"):
            file.unlink()
    with pytest.raises(SkillInvalid, match="in a cycle: one → two → three → one"):
        load(tmp_path, "one")


def test_a_run_skill_step_binds_the_final_artifact(root: Path):
    steps = "preprocessor:\n  - run_skill: {skill: inner, input: {text: x}, into: data.first}\n"
    folder = write_skill(root, "outer", {"a": ["end"]}, phase_keys={"a": steps})
    skill = load(root, "outer")
    phase = skill.phases["a"]
    whole, errors = follow(phase.inputs[0], phase.preprocessor, lambda name: skill.skills[name].final_output)
    schema = schema_at(whole, "data")
    assert errors == []
    assert schema["properties"]["first"]["properties"]["data"] == NOTE
    path = folder / "phases" / "a.md"
    more = "  - validate: {schema: {}, target: data.first.data.nothing}\n"
    path.write_text(path.read_text().replace("data.first}\n", f"data.first}}\n{more}"))
    assert codes(root, "outer") == [(8, "RYN124")]


def test_a_change_in_a_sub_skill_changes_the_pin(root: Path):
    outer(root, {"a": ["@inner"], "@inner": ["end"]})
    before = pin(load(root, "outer"))
    path = root / "reyn/project/inner/phases/x.md"
    path.write_text(path.read_text().replace("Do what", "Do not what"))
    assert pin(load(root, "outer")) != before


def test_the_standard_library_is_searched_last(tmp_path: Path):
    library = Library(tmp_path)
    assert library.find("direct_llm").parent.name == "skills"
    assert {shelf for _, shelf, _ in library} == {"stdlib"}
    mine = write_skill(tmp_path, "direct_llm", {"a": ["end"]})
    assert library.find("direct_llm") == mine


def test_a_cycle_by_path_is_an_error(tmp_path: Path):
    for name, other in (("one", "two"), ("two", "one")):
        steps = f"preprocessor:\n  - run_skill: {{skill: reyn/project/{other}}}\n"
        write_skill(tmp_path, name, {"a": ["end"]}, phase_keys={"a": steps})
    with pytest.raises(SkillInvalid, match="in a cycle: one → two → one"):
        load(tmp_path, "one")


@pytest.mark.slow
def test_deep_nesting_is_an_error_and_shared_sub_skills_load_once(tmp_path: Path):
    for level in range(30):
        steps = f"preprocessor:\n  - run_skill: {{skill: s{level + 1}}}\n" if level < 29 else ""
        write_skill(tmp_path, f"s{level}", {"a": ["end"]}, phase_keys={"a": steps})
    with pytest.raises(SkillInvalid, match="16 deep"):
        load(tmp_path, "s0")
    for level in range(14):
        for side in "lr":
            steps = "preprocessor:\n" + "".join(f"  - run_skill: {{skill: {below}{level + 1}}}\n" for below in "lr")
            write_skill(tmp_path, f"{side}{level}", {"a": ["end"]}, phase_keys={"a": steps if level < 13 else ""})
    # 26 sub-skills; without sharing, thousands of copies would be loaded.
    assert count_calls(lambda: load(tmp_path, "l0")) < 100 * count_calls(lambda: load(tmp_path, "l13"))
    skill = load(tmp_path, "l0")
    assert len(skill.skills) == 26
    assert all(not one.skills for one in skill.skills.values())


def test_a_postprocessor_defines_the_result_of_a_skill(root: Path):
    after = "postprocessor: {output_schema: other}\n"
    write_skill(root, "inner", {"x": ["end"]}, artifacts={"other": OTHER}, skill_keys=after)
    outer(root, {"a": ["@inner"], "@inner": ["b"], "b": ["end"]}, artifacts={"other": OTHER}, inputs={"b": "other"})
    assert load(root, "outer").skills["inner"].result.name == "other"
    outer(root, {"a": ["@inner"], "@inner": ["b"], "b": ["end"]})
    assert codes(root, "outer") == [(6, "RYN133")]


def test_a_skill_run_by_an_op_step_is_pinned(root: Path):
    steps = "preprocessor:\n  - {type: run_op, op: {kind: run_skill, skill: inner}, into: data.r}\n"
    write_skill(root, "outer", {"a": ["end"]}, phase_keys={"a": steps})
    assert set(load(root, "outer").skills) == {"inner"}


def replace_same_size(root: Path) -> None:
    file = root / "reyn/project/inner/phases/x.md"
    before = file.stat()
    file.write_text(file.read_text().replace("Do what x does.", "Do what X does."))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def add_shared_artifact(root: Path) -> None:
    (root / "reyn/shared/artifacts").mkdir(parents=True)
    (root / "reyn/shared/artifacts/more.yaml").write_text("type: object\n")


@pytest.mark.parametrize(
    "change",
    [
        replace_same_size,
        lambda root: (root / "reyn/project/outer/phases/c.md").write_text("---\ntype: phase\nname: c\n---\nC.\n"),
        lambda root: copytree(root / "reyn/project/inner", root / "reyn/local/inner"),
        add_shared_artifact,
    ],
)
def test_a_library_loads_a_skill_again_when_one_of_its_files_changes(root: Path, change: Callable[[Path], object]):
    folder, library = outer(root, {"a": ["@inner"], "@inner": ["end"]}), Library(root)
    first = load_skill(folder, library)
    assert load_skill(folder, library) is first
    change(root)
    changed = load_skill(folder, library)
    assert changed is not first
    assert changed == load_skill(folder, Library(root))


def test_a_library_reports_errors_of_a_skill_that_it_has_loaded(root: Path):
    folder, library = outer(root, {"a": ["@inner"], "@inner": ["end"]}), Library(root)
    load_skill(folder, library)
    (root / "reyn/project/inner/phases/x.md").unlink()
    for _ in range(2):
        with pytest.raises(SkillInvalid):
            load_skill(folder, library)
