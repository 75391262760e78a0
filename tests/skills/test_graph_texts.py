"""Edge texts: the graph says when to choose each successor. Choice labels are unique, and two names are reserved."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.contract import candidates_of
from reyn.skills import Skill, pin, unpin
from tests.support import NOTE, load_skill, read_skill, write_skill

DESCRIBED = {"bill": NOTE | {"description": "A bill."}, "fault": NOTE | {"description": "A fault."}}


def make(root: Path, sort: str, *, inputs: dict[str, str] | None = None, **keys) -> Path:
    """Write a skill whose phase `sort` is followed by `sort` as written in YAML."""
    graph = {"sort": ["pay", "fix", "end"], "pay": ["end"], "fix": ["end"]}
    inputs = inputs or {"pay": "bill", "fix": "fault"}
    folder = write_skill(root, "desk", graph, artifacts=DESCRIBED, inputs=inputs, **keys)
    path = folder / "skill.md"
    path.write_text(path.read_text().replace('"sort": ["pay", "fix", "end"]', f'"sort": {sort}'))
    return folder


def texts_of(skill: Skill, phase: str = "sort") -> dict[str, str]:
    return {candidate.label: candidate.description for candidate in candidates_of(skill, phase)}


def test_the_text_of_an_edge_is_the_description_of_its_candidate(tmp_path: Path):
    skill = load_skill(make(tmp_path, "{pay: charges or refunds, fix: something is broken, end: nothing to do}"))
    assert skill.graph["sort"] == ("pay", "fix", "end")
    assert texts_of(skill) == {"pay": "charges or refunds", "fix": "something is broken", "end": "nothing to do"}


@pytest.mark.parametrize("sort", ["[pay, fix, end]", "{pay: , fix: null, end: '  '}"])
def test_without_a_text_the_artifact_describes_the_candidate(tmp_path: Path, sort: str):
    skill = load_skill(make(tmp_path, sort, skill_keys="final_output_description: The result.\n"))
    assert skill.edge_texts == {}
    assert texts_of(skill) == {"pay": "A bill.", "fix": "A fault.", "end": "The result."}


def test_the_list_form_and_the_mapping_form_are_the_same_graph(tmp_path: Path):
    assert load_skill(make(tmp_path / "a", "[pay, fix, end]")).graph == (
        load_skill(make(tmp_path / "b", "{pay: x, fix: y, end: z}")).graph
    )


def test_the_older_form_has_edge_texts_as_well(tmp_path: Path):
    folder = make(tmp_path, "{pay: charges, fix: faults, end: nothing}")
    (folder / "artifacts" / "bill.yaml").write_text("name: bill\nschema: {type: object}\n")
    assert read_skill(folder).folder.is_older
    assert texts_of(load_skill(folder))["pay"] == "charges"


def test_a_finish_beside_other_edges_can_have_a_text(tmp_path: Path):
    keys = {"sort": "can_finish: true\n"}
    skill = load_skill(make(tmp_path, "{pay: charges, fix: faults, end: nothing}", phase_keys=keys))
    assert texts_of(skill)["end"] == "nothing"


def test_each_member_of_a_union_is_a_candidate_with_its_own_label_and_text(tmp_path: Path):
    inputs = {"pay": "bill | fault", "fix": "fault"}
    skill = load_skill(make(tmp_path, "{pay: about money., fix: broken, end: nothing}", inputs=inputs))
    assert texts_of(skill) == {
        "pay:bill": "about money: A bill.",
        "pay:fault": "about money: A fault.",
        "fix": "broken",
        "end": "nothing",
    }
    assert [(one.label, one.schema_name) for one in candidates_of(skill, "sort")] == [
        ("pay:bill", "bill"),
        ("pay:fault", "fault"),
        ("fix", "fault"),
        ("end", "note"),
    ]


def test_the_copy_of_a_run_has_the_texts_and_its_hash_covers_them(tmp_path: Path):
    one = load_skill(make(tmp_path / "a", "{pay: x, fix: y, end: z}"))
    other = load_skill(make(tmp_path / "b", "{pay: x, fix: y, end: other}"))
    assert pin(one).hash != pin(other).hash
    assert unpin(pin(one).content) == one
    without = load_skill(make(tmp_path / "c", "[pay, fix, end]"))
    assert b"edge_texts" not in pin(without).content


@pytest.mark.parametrize("text", ["3", "[a]", "true"])
def test_a_text_that_is_no_text_is_an_error_at_its_line(tmp_path: Path, text: str):
    folder = make(tmp_path, "{pay: x, fix: y, end: z}")
    path = folder / "skill.md"
    path.write_text(path.read_text().replace("fix: y", f"fix: {text}"))
    [finding] = read_skill(folder).findings
    assert (finding.code, finding.file, finding.line) == ("RYN114", "skill.md", 6)
    assert "does not say when to choose `fix`" in finding.message


def test_an_unknown_phase_in_a_mapping_is_reported_at_its_key(tmp_path: Path):
    findings = read_skill(make(tmp_path, "{pay: x, fixx: y, end: z}")).findings
    [finding] = [finding for finding in findings if finding.code == "RYN116"]
    text = (tmp_path / "reyn/project/desk/skill.md").read_text().split("\n")[finding.line - 1]
    assert text[finding.column - 1 :].startswith("fixx")


@pytest.mark.parametrize("name", ["abort", "end", "Abort", "ｅｎｄ"])  # noqa: RUF001 - looks like `end`
def test_a_phase_cannot_have_the_name_of_a_choice(tmp_path: Path, name: str):
    folder = write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]})
    (folder / "phases" / "b.md").rename(folder / "phases" / f"{name}.md")
    skill, phase = folder / "skill.md", folder / "phases" / f"{name}.md"
    skill.write_text(skill.read_text().replace('"b"', f'"{name}"'))
    phase.write_text(phase.read_text().replace("name: b", f"name: {name}"))
    found = {(finding.file, finding.line) for finding in read_skill(folder).findings if finding.code == "RYN143"}
    assert (f"phases/{name}.md", 3) in found
    assert name == "end" or ("skill.md", 6) in found


def test_names_in_a_mapping_are_compared_in_one_normalization_form(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["caf\u00e9"], "caf\u00e9": ["end"]})
    path = folder / "skill.md"
    path.write_text(path.read_text().replace('"a": ["caf\\u00e9"]', '"a": {"cafe\u0301": x}'))
    assert load_skill(folder).edge_texts == {"a": {"caf\u00e9": "x"}}
