"""A folder becomes a skill, or every error in it at once, each at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.errors import SkillInvalid, SkillNotFound
from reyn.journal import canonical
from reyn.skills import Library, may_finish, pin, successors, unpin
from tests.support import NOTE, load_skill, write_skill


def broken(folder: Path) -> list[tuple[str, int, str]]:
    with pytest.raises(SkillInvalid) as caught:
        load_skill(folder)
    return [(finding.file, finding.line, finding.code) for finding in caught.value.findings]


def edit(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_skill(tmp_path, "s", {"a": ["b"], "b": ["a", "end"]})


def test_a_skill_is_loaded_whole(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "s",
        {"a": ["b", "b"], "b": []},
        skill_keys="description: d\nfinish_criteria: [x]\nrouting: {tier: 1}\nimported_from: elsewhere\n",
        phase_keys={"a": "role: cook\ncan_finish: true\nmax_act_turns: 3\n"},
    )
    skill = load_skill(folder)
    assert (skill.name, skill.entry, skill.description, skill.finish_criteria) == ("s", "a", "d", ("x",))
    assert skill.phases["a"].instructions == "Do what a does."
    assert (skill.phases["a"].role, skill.phases["a"].max_act_turns) == ("cook", 3)
    assert skill.phases["a"].input_schema == skill.final_output_schema == NOTE
    assert successors(skill, "a") == ("b",)
    assert may_finish(skill, "a")
    assert may_finish(skill, "b")


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("skill.md", "entry: a", "entrance: a", [("skill.md", 2, "RYN113"), ("skill.md", 4, "RYN112")]),
        ("skill.md", "entry: a", "entry: [a]", [("skill.md", 4, "RYN114")]),
        ("skill.md", "type: skill", "type: recipe", [("skill.md", 2, "RYN114")]),
        ("skill.md", "name: s", "name: a b", [("skill.md", 3, "RYN115")]),
        ("skill.md", "entry: a", "entry: c", [("skill.md", 4, "RYN116")]),
        ("skill.md", '"end"]', '"c"]', [("skill.md", 6, "RYN116")]),
        ("skill.md", '"end"]', '"@other"]', [("skill.md", 6, "RYN101")]),
        ("skill.md", ', "end"]', "]", [("skill.md", 6, "RYN119"), ("skill.md", 6, "RYN119")]),
        ("skill.md", "final_output: note", "final_output: nothing", [("skill.md", 5, "RYN117")]),
        ("skill.md", "---\ntype", "type", [("skill.md", 1, "RYN111")]),
        ("skill.md", "---\nFor", "For", [("skill.md", 1, "RYN111")]),
        ("skill.md", "name: s", "name: s\nname: s", [("skill.md", 4, "RYN111")]),
        ("skill.md", "name: s", "name: [s", [("skill.md", 4, "RYN111")]),
        ("phases/a.md", "input: note", "input: note\noutput: note", [("phases/a.md", 5, "RYN118")]),
        ("phases/a.md", "input: note", "input: note\nnext: [b]", [("phases/a.md", 5, "RYN118")]),
        ("phases/a.md", "input: note", "input: note | other", [("phases/a.md", 4, "RYN117")]),
        ("phases/a.md", "name: a", "name: aa", [("phases/a.md", 3, "RYN115")]),
        ("phases/a.md", "allowed_ops: []", "allowed_ops: [fiel]", [("phases/a.md", 5, "RYN122")]),
        ("phases/a.md", "allowed_ops: []", "max_act_turns: -1", [("phases/a.md", 5, "RYN114")]),
        ("phases/a.md", "Do what a does.", "", [("phases/a.md", 2, "RYN113")]),
        ("artifacts/note.yaml", '"string"', '"strang"', [("artifacts/note.yaml", 1, "RYN121")]),
        (
            "artifacts/note.yaml",
            '{"type": "string"}',
            '{"$ref": "https://example.org/x"}',
            [("artifacts/note.yaml", 1, "RYN121")],
        ),
        (
            "artifacts/note.yaml",
            '{"type": "string"}',
            '{"$ref": "file:///etc/hosts"}',
            [("artifacts/note.yaml", 1, "RYN121")],
        ),
    ],
)
def test_each_fault_is_found_where_it_stands(folder: Path, file: str, old: str, new: str, expected: list):
    edit(folder, file, old, new)
    assert broken(folder) == expected


def test_all_faults_come_at_once(folder: Path):
    edit(folder, "skill.md", "final_output: note", "final_output: nothing\ncolour: red")
    edit(folder, "phases/a.md", "allowed_ops: []", "allowed_ops: [fiel]\npermissions: {}")
    (folder / "phases" / "b.md").unlink()
    assert broken(folder) == [
        ("phases/a.md", 5, "RYN122"),
        ("phases/a.md", 6, "RYN118"),
        ("skill.md", 5, "RYN117"),
        ("skill.md", 6, "RYN112"),
        ("skill.md", 7, "RYN116"),
    ]


def test_an_unknown_word_comes_with_the_nearest_known_one(folder: Path):
    edit(folder, "phases/a.md", "allowed_ops: []", "alowed_ops: []")
    with pytest.raises(SkillInvalid, match="Did you mean `allowed_ops`"):
        load_skill(folder)


ALIAS_BOMB = b"---\na: &a [x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 8)) for name in b"bcdefg"
)
ALIAS_BOMB += b"---\n"


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"",
        b"---\n",
        b"---\n- a\n---\n",
        b"---\na: &a [*a]\n---\n",
        b"---\n" + b"a: " + b"[" * 500 + b"\n---\n",
        ALIAS_BOMB,
        b"---\na: !!python/object/apply:os.system [x]\n---\n",
        b"---\n? [a, b]\n: c\n---\n",
        b"---\na: .nan\n---\n",
        b"---\na: \x07\n---\n",
        b"---\na: 1\n--- \nb: 2\n---\n",
        b"x" * 2_000_000,
    ],
)
def test_any_bytes_give_findings_and_never_more(folder: Path, content: bytes):
    (folder / "skill.md").write_bytes(content)
    assert broken(folder)
    (folder / "skill.md").unlink()
    assert broken(folder) == [("skill.md", 1, "RYN110")]


def test_line_ends_and_marks_of_other_systems_are_read(folder: Path):
    path = folder / "phases" / "a.md"
    same = load_skill(folder)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_skill(folder) == same


def test_words_that_older_yaml_took_for_booleans_are_text(folder: Path):
    edit(folder, "phases/a.md", "allowed_ops: []", "role: no")
    assert load_skill(folder).phases["a"].role == "no"


def test_the_own_artifact_is_found_before_the_shared_one(tmp_path: Path, folder: Path):
    shared = tmp_path / "reyn" / "shared"
    (shared / "artifacts").mkdir(parents=True)
    (shared / "artifacts" / "note.yaml").write_text("type: string")
    (shared / "artifacts" / "other.yaml").write_text("type: object")
    edit(folder, "phases/b.md", "input: note", "input: other")
    skill = load_skill(folder, Library(tmp_path))
    assert skill.phases["a"].input_schema == NOTE
    assert skill.phases["b"].input_schema == {"type": "object"}


def test_local_skills_are_found_before_project_skills_and_paths_always(tmp_path: Path, folder: Path):
    local = tmp_path / "reyn" / "local" / "s"
    local.mkdir(parents=True)
    assert Library(tmp_path).find("s") == folder
    (local / "skill.md").write_text("")
    assert Library(tmp_path).find("s") == local
    assert Library(tmp_path).find("reyn/project/s") == folder
    assert Library(tmp_path).find(str(folder)) == folder
    with pytest.raises(SkillNotFound, match="`reyn/local/t/`"):
        Library(tmp_path).find("t")
    with pytest.raises(SkillNotFound):
        Library(tmp_path).find("./nowhere")


def test_a_pin_is_the_skill_and_nothing_of_the_place_it_lies_in(tmp_path: Path):
    graph = {"a": ["b"], "b": ["a", "end"]}
    here = load_skill(write_skill(tmp_path / "here", "s", graph))
    there = load_skill(write_skill(tmp_path / "there", "s", dict(reversed(graph.items())), entry="a"))
    assert pin(here) == pin(there)
    assert unpin(pin(here).content) == here
    assert str(tmp_path).encode() not in canonical(here)
    edit(tmp_path / "there/reyn/project/s", "phases/a.md", "Do", "Don't")
    assert pin(load_skill(tmp_path / "there/reyn/project/s")) != pin(here)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ('{"a": "end"}', [("skill.md", 6, "RYN114")]),
        ('{"a": [1, null, "end"]}', [("skill.md", 6, "RYN114"), ("skill.md", 6, "RYN114")]),
        ('{"aa": ["a"]}', [("skill.md", 6, "RYN116")]),
        ('{"a": ["end"], "b": ["zzz"]}', [("skill.md", 6, "RYN116")]),
        ("[a]", [("skill.md", 6, "RYN114")]),
    ],
)
def test_a_slip_in_the_graph_is_told_where_it_is(folder: Path, graph: str, expected: list):
    edit(folder, "skill.md", '{"a": ["b"], "b": ["a", "end"]}', graph)
    assert broken(folder) == expected


def test_a_schema_may_stand_under_its_own_key(folder: Path):
    same = load_skill(folder)
    (folder / "artifacts" / "note.yaml").write_text(f"name: note\nschema: {NOTE}\n".replace("'", '"'))
    assert load_skill(folder) == same
    (folder / "artifacts" / "note.yaml").write_text("name: other\nschema: {type: object}\n")
    assert broken(folder) == [("artifacts/note.yaml", 1, "RYN115")]


def test_a_bad_schema_is_told_where_it_is_bad(folder: Path):
    (folder / "artifacts" / "note.yaml").write_text("type: object\nproperties:\n  text:\n    type: strang\n")
    assert broken(folder) == [("artifacts/note.yaml", 4, "RYN121")]
    (folder / "artifacts" / "note.yaml").write_text("type: object\n$schema: http://json-schema.org/draft-04/schema#\n")
    assert broken(folder) == [("artifacts/note.yaml", 2, "RYN121")]


def test_provenance_is_passed_over_and_tags_are_not(folder: Path):
    same = load_skill(folder)
    edit(folder, "skill.md", "name: s", "name: s\nimported_whatever: 3")
    assert load_skill(folder) == same
    edit(folder, "skill.md", "imported_whatever: 3", "description: !!str x")
    assert broken(folder) == [("skill.md", 4, "RYN111")]
