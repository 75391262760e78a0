"""Skills as nodes and in steps: found, fitting, pinned, and never in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.errors import SkillInvalid
from reyn.skills import Library, pin
from reyn.skills.flow import enrich
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


def test_a_skill_can_be_a_node(root: Path):
    outer(root, {"a": ["@inner"], "@inner": ["b"], "b": ["end"]})
    skill = load(root, "outer")
    assert skill.skills["inner"].name == "inner"
    assert skill.inputs_of("@inner")[0].name == "note"
    assert set(skill.phases) == {"a", "b"}


def test_a_skill_that_is_the_entry_takes_what_the_run_takes(root: Path):
    outer(root, {"@inner": ["end"]})
    assert load(root, "outer").entry_inputs[0].schema == NOTE


def test_what_it_gives_must_be_what_the_next_node_takes(root: Path):
    artifacts = {"other": OTHER}
    outer(root, {"a": ["@inner"], "@inner": ["b"], "b": ["end"]}, artifacts=artifacts, inputs={"b": "other"})
    assert codes(root, "outer") == [(6, "RYN133")]
    outer(root, {"a": ["@inner"], "@inner": ["end"]}, artifacts=artifacts, final_output="other")
    assert codes(root, "outer") == [(6, "RYN133")]


def test_nobody_decides_after_a_skill_so_one_successor_is_all_it_may_have(root: Path):
    outer(root, {"a": ["@inner"], "@inner": ["a", "end"]})
    assert codes(root, "outer") == [(6, "RYN133")]


def test_a_node_must_be_a_skill_that_exists_and_is_sound(root: Path):
    outer(root, {"a": ["@iner"], "@iner": ["end"]})
    assert codes(root, "outer") == [(6, "RYN101")]
    outer(root, {"a": ["@in ner"], "@in ner": ["end"]})
    assert codes(root, "outer") == [(6, "RYN115")]
    outer(root, {"a": ["@inner"], "@inner": ["end"]})
    (root / "reyn/project/inner/phases/x.md").write_text("broken")
    assert codes(root, "outer") == [(6, "RYN102")]


def test_skills_in_a_circle_are_named(tmp_path: Path):
    for name, other in (("one", "two"), ("two", "three"), ("three", "one")):
        folder = write_skill(tmp_path, name, {"a": [f"@{other}"], f"@{other}": ["end"]})
        for file in (folder / "phases").glob("@*"):
            file.unlink()
    with pytest.raises(SkillInvalid, match="in a circle: one → two → three → one"):
        load(tmp_path, "one")


def test_a_step_that_runs_a_skill_binds_what_that_one_gives(root: Path):
    steps = "preprocessor:\n  - run_skill: {skill: inner, input: {text: x}, into: data.first}\n"
    folder = write_skill(root, "outer", {"a": ["end"]}, phase_keys={"a": steps})
    skill = load(root, "outer")
    phase = skill.phases["a"]
    schema, slips = enrich(phase.inputs[0], phase.preprocessor, lambda name: skill.skills[name].final_output)
    assert slips == []
    assert schema["properties"]["first"]["properties"]["data"] == NOTE
    path = folder / "phases" / "a.md"
    more = "  - validate: {schema: {}, target: data.first.data.nothing}\n"
    path.write_text(path.read_text().replace("data.first}\n", f"data.first}}\n{more}"))
    assert codes(root, "outer") == [(8, "RYN124")]


def test_a_change_in_a_skill_that_it_runs_changes_the_pin(root: Path):
    outer(root, {"a": ["@inner"], "@inner": ["end"]})
    before = pin(load(root, "outer"))
    path = root / "reyn/project/inner/phases/x.md"
    path.write_text(path.read_text().replace("Do what", "Do not what"))
    assert pin(load(root, "outer")) != before


def test_the_standard_library_is_found_last(tmp_path: Path):
    library = Library(tmp_path)
    assert library.find("direct_llm").parent.name == "skills"
    assert {shelf for _, shelf, _ in library} == {"stdlib"}
    mine = write_skill(tmp_path, "direct_llm", {"a": ["end"]})
    assert library.find("direct_llm") == mine


def test_a_circle_by_path_is_a_circle(tmp_path: Path):
    for name, other in (("one", "two"), ("two", "one")):
        steps = f"preprocessor:\n  - run_skill: {{skill: reyn/project/{other}}}\n"
        write_skill(tmp_path, name, {"a": ["end"]}, phase_keys={"a": steps})
    with pytest.raises(SkillInvalid, match="in a circle: one → two → one"):
        load(tmp_path, "one")


def test_a_long_chain_is_told_and_a_wide_one_is_quick(tmp_path: Path):
    import time

    for level in range(30):
        steps = f"preprocessor:\n  - run_skill: {{skill: s{level + 1}}}\n" if level < 29 else ""
        write_skill(tmp_path, f"s{level}", {"a": ["end"]}, phase_keys={"a": steps})
    with pytest.raises(SkillInvalid, match="16 deep"):
        load(tmp_path, "s0")
    for level in range(14):
        for side in "lr":
            steps = "preprocessor:\n" + "".join(f"  - run_skill: {{skill: {below}{level + 1}}}\n" for below in "lr")
            write_skill(tmp_path, f"{side}{level}", {"a": ["end"]}, phase_keys={"a": steps if level < 13 else ""})
    started = time.process_time()
    skill = load(tmp_path, "l0")
    assert time.process_time() - started < 2
    assert len(skill.skills) == 26
    assert all(not one.skills for one in skill.skills.values())


def test_what_the_postprocessor_makes_is_what_a_skill_gives(root: Path):
    after = "postprocessor: {output_schema: other}\n"
    write_skill(root, "inner", {"x": ["end"]}, artifacts={"other": OTHER}, skill_keys=after)
    outer(root, {"a": ["@inner"], "@inner": ["b"], "b": ["end"]}, artifacts={"other": OTHER}, inputs={"b": "other"})
    assert load(root, "outer").skills["inner"].result.name == "other"
    outer(root, {"a": ["@inner"], "@inner": ["b"], "b": ["end"]})
    assert codes(root, "outer") == [(6, "RYN133")]


def test_a_skill_run_by_an_op_is_pinned_too(root: Path):
    steps = "preprocessor:\n  - {type: run_op, op: {kind: run_skill, skill: inner}, into: data.r}\n"
    write_skill(root, "outer", {"a": ["end"]}, phase_keys={"a": steps})
    assert set(load(root, "outer").skills) == {"inner"}


def test_the_enriched_input_is_known(root: Path):
    from reyn.skills.flow import enriched_input_schema

    steps = "preprocessor:\n  - validate: {schema: {}, into: data.findings}\n"
    write_skill(root, "outer", {"a": ["end"]}, phase_keys={"a": steps})
    schema = enriched_input_schema(load(root, "outer"), "a")
    assert set(schema["properties"]) == {"text", "findings"}
