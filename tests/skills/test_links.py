"""The files of a skill are read inside its folder only, and references of schemas are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import FixImpossible, SkillNotFound
from reyn.jsonschema import ReferencesExpand, SchemaInvalid, compile_schema
from reyn.lint import fix_skill
from reyn.skills import Library
from tests.cost import count_calls
from tests.skills.test_dialects import MODULE, PAIRS, WRAPPED, write
from tests.support import read_skill, write_skill

SECRET = "type: object\ndescription: token-1234\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "phases").mkdir(parents=True)
    (folder / "note.yaml").write_text(SECRET)
    (folder / "helper.py").write_text("TOKEN = 'token-1234'\n")
    (folder / "phases" / "plan.md").write_text("---\ntype: phase\nname: plan\ninput: note\n---\ntoken-1234\n")
    (folder / "skill.md").write_text(
        "---\ntype: skill\nname: s\ngraph: {plan: [end]}\nentry: plan\nfinal_output: note\n---\ntoken-1234\n"
    )
    return folder


def link(place: Path, target: Path) -> None:
    if place.is_dir():
        place.rename(place.with_name("before"))
    place.unlink(missing_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize(
    ("file", "target"),
    [
        ("artifacts/note.yaml", "note.yaml"),
        ("phases/plan.md", "phases/plan.md"),
        ("skill.md", "skill.md"),
        ("phases", "phases"),
    ],
)
def test_a_link_out_of_the_folder_is_an_error_that_names_it(tmp_path: Path, outside: Path, file: str, target: str):
    folder = write_skill(tmp_path, "s", {"plan": ["end"]})
    link(folder / file, outside / target)
    result = read_skill(folder)
    found = [finding for finding in result.findings if finding.code == "RYN138"]
    assert result.skill is None
    assert found[0].file.startswith(file)
    assert "leads out of `s`" in found[0].message
    assert "token-1234" not in repr(result.partial)


def test_a_link_out_of_the_shared_folder_is_an_error(tmp_path: Path, outside: Path):
    folder = write_skill(tmp_path, "s", {"plan": ["end"]})
    (folder / "artifacts" / "note.yaml").unlink()
    shared = tmp_path / "reyn" / "shared" / "artifacts"
    shared.mkdir(parents=True)
    (shared / "note.yaml").symlink_to(outside / "note.yaml")
    found = [(finding.code, finding.file) for finding in read_skill(folder).findings]
    assert ("RYN138", "shared/artifacts/note.yaml") in found


def test_a_module_that_is_a_link_out_of_the_folder_is_an_error(tmp_path: Path, outside: Path):
    folder = write(tmp_path, older=True, files={**WRAPPED, **MODULE, **PAIRS["steps with a type"][0]})
    (folder / "other.py").symlink_to(outside / "helper.py")
    assert ("RYN138", "other.py") in [(finding.code, finding.file) for finding in read_skill(folder).findings]


def test_links_inside_the_folder_and_a_linked_folder_are_read(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"plan": ["end"]})
    (folder / "artifacts" / "note.yaml").rename(folder / "real.yaml")
    (folder / "artifacts" / "note.yaml").symlink_to("../real.yaml")
    (tmp_path / "elsewhere").mkdir()
    folder.rename(tmp_path / "elsewhere" / "s")
    folder.symlink_to(tmp_path / "elsewhere" / "s")
    library = Library(tmp_path)
    assert read_skill(library.find("s"), library).skill is not None
    assert [name for name, shelf, _ in library if shelf == "project"] == ["s"]


def test_a_skill_or_shared_folder_that_leads_out_of_the_project_is_not_read(tmp_path: Path):
    root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    folder = write_skill(root, "s", {"plan": ["end"]})
    elsewhere.mkdir()
    (folder / "artifacts").rename(elsewhere / "artifacts")
    (root / "reyn" / "shared").symlink_to(elsewhere)
    findings = read_skill(folder, Library(root)).findings
    assert ("RYN138", "shared/artifacts/note.yaml") in [(finding.code, finding.file) for finding in findings]
    folder.rename(elsewhere / "s")
    folder.symlink_to(elsewhere / "s")
    with pytest.raises(SkillNotFound, match="points outside the project"):
        Library(root).find("s")
    assert [name for name, shelf, _ in Library(root) if shelf == "project"] == []
    assert Library(root).find("../elsewhere/s") == elsewhere / "s"


def test_fix_writes_neither_through_a_planted_temporary_name_nor_through_a_link(tmp_path: Path):
    folder = write(tmp_path, older=True, files={**WRAPPED, **MODULE, **PAIRS[next(iter(PAIRS))][0]})
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    for path in list(folder.rglob("*.*")):
        (path.parent / f".{path.name}.new").symlink_to(victim)
    assert fix_skill(folder, Library(tmp_path))
    assert victim.read_text() == "precious"
    assert not [path for path in folder.rglob(".*") if not path.is_symlink()]


def test_fix_refuses_a_skill_that_leads_out_of_its_folder(tmp_path: Path):
    folder = write(tmp_path, older=True, files={**WRAPPED, **MODULE, **PAIRS[next(iter(PAIRS))][0]})
    target = tmp_path / "skill.md"
    (folder / "skill.md").rename(target)
    (folder / "skill.md").symlink_to(target)
    before = target.read_bytes()
    with pytest.raises(FixImpossible):
        fix_skill(folder, Library(tmp_path))
    assert target.read_bytes() == before


# -- references ---------------------------------------------------------------------------------------


def doubling(times: int, keyword: str = "allOf") -> dict[str, Any]:
    def twice(target: str) -> Any:
        parts = [{"$ref": target}, {"$ref": target}]
        return {"properties": dict(zip("ab", parts, strict=True))} if keyword == "properties" else {keyword: parts}

    definitions = {f"d{number}": twice(f"#/$defs/d{number + 1}") for number in range(times)}
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{times}": {"type": "string"}}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "properties"])
def test_references_that_double_are_refused_at_once(keyword):
    def refuse() -> None:
        with pytest.raises(ReferencesExpand, match="expand to more than 10000"):
            compile_schema(doubling(26, keyword))

    assert count_calls(refuse) < 1_000_000
    compile_schema(doubling(10, keyword))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"node": {"properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$anchor": "x", "type": "string"}}, "anyOf": [{"$ref": "#x"}, {"$ref": "#/$defs/a"}]},
        {"properties": {str(number): {"$ref": "#/$defs/a"} for number in range(2_000)}, "$defs": {"a": {}}},
        {"enum": [{"$ref": "#/nowhere"}]},
    ],
)
def test_recursive_and_repeated_references_are_accepted(schema):
    compile_schema(schema)


@pytest.mark.parametrize("hidden", ["if", "not", "contains", "propertyNames"])
def test_references_are_counted_below_every_keyword(hidden):
    schema = doubling(26)
    with pytest.raises(ReferencesExpand):
        compile_schema({hidden: {"$ref": "#/$defs/d0"}, "$defs": schema["$defs"]})


def test_doubling_by_anchor_is_counted():
    definitions = {
        f"d{number}": {"$anchor": f"a{number}", "allOf": [{"$ref": f"#a{number + 1}"}] * 2} for number in range(26)
    }
    with pytest.raises(ReferencesExpand):
        compile_schema({"$defs": definitions | {"end": {"$anchor": "a26"}}, "$ref": "#a0"})


def test_a_long_chain_of_references_is_counted_without_recursion():
    chain = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(5_000)}
    compile_schema({"$ref": "#/$defs/d0", "$defs": chain | {"d5000": {"type": "string"}}})


def test_an_artifact_with_doubling_references_is_an_error_with_its_line(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"plan": ["end"]}, artifacts={"note": doubling(26)})
    text = (folder / "artifacts" / "note.yaml").read_text().replace('"d', '\n "d')
    (folder / "artifacts" / "note.yaml").write_text(text)
    [finding] = [finding for finding in read_skill(folder).findings if finding.code == "RYN139"]
    assert (finding.file, finding.line > 1) == ("artifacts/note.yaml", True)


def test_a_reference_elsewhere_is_an_invalid_schema():
    with pytest.raises(SchemaInvalid):
        compile_schema(json.loads('{"$ref": "https://example.com/a"}'))
