"""Loading a skill: values, error positions, name resolution, pins."""

from __future__ import annotations

import gc
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest

from reyn.errors import SkillInvalid, SkillNotFound
from reyn.journal import canonical
from reyn.lint import check_skill, lint_shared
from reyn.skills import Library, may_finish, pin, successors, unpin
from reyn.skills.cases import read_cases
from tests.support import NOTE, VOCABULARY, load_skill, read_skill, write_skill


def errors_of(folder: Path) -> list[tuple[str, int, str]]:
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


def test_load_reads_every_key(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "s",
        {"a": ["b", "b"], "b": []},
        skill_keys="description: d\nfinish_criteria: [x]\nrouting: {tier: 1}\nimported_from: elsewhere\n",
        phase_keys={"a": "role: cook\ncan_finish: true\nmax_act_turns: 3\n"},
    )
    skill = load_skill(folder)
    assert (skill.name, skill.entry, skill.description, skill.finish_criteria) == ("s", "a", "d", ("x",))
    assert skill.phases["a"].instructions == "Do what a does.\n"
    assert (skill.phases["a"].role, skill.phases["a"].max_act_turns) == ("cook", 3)
    assert skill.phases["a"].input_schema == skill.final_output_schema == NOTE
    assert successors(skill, "a") == ("b",)
    assert may_finish(skill, "a")
    assert may_finish(skill, "b")


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("skill.md", "entry: a", "entrance: a", [("skill.md", 4, "RYN112")]),
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
def test_each_error_is_reported_at_its_line(folder: Path, file: str, old: str, new: str, expected: list):
    edit(folder, file, old, new)
    assert errors_of(folder) == expected


def test_all_errors_are_reported_at_once(folder: Path):
    edit(folder, "skill.md", "final_output: note", "final_output: nothing\ncolour: red")
    edit(folder, "phases/a.md", "allowed_ops: []", "allowed_ops: [fiel]\npermissions: {}")
    (folder / "phases" / "b.md").unlink()
    assert errors_of(folder) == [
        ("phases/a.md", 5, "RYN122"),
        ("phases/a.md", 6, "RYN118"),
        ("skill.md", 5, "RYN117"),
        ("skill.md", 6, "RYN112"),
        ("skill.md", 7, "RYN116"),
    ]


def test_an_unknown_key_comes_with_a_suggestion(folder: Path):
    edit(folder, "phases/a.md", "allowed_ops: []", "alowed_ops: []")
    with pytest.raises(SkillInvalid, match="unknown key `alowed_ops`\n  did you mean `allowed_ops`"):
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
def test_malformed_files_are_errors_not_exceptions(folder: Path, content: bytes):
    (folder / "skill.md").write_bytes(content)
    assert errors_of(folder)
    (folder / "skill.md").unlink()
    assert errors_of(folder) == [("skill.md", 1, "RYN110")]


def test_crlf_and_byte_order_marks_are_accepted(folder: Path):
    path = folder / "phases" / "a.md"
    same = load_skill(folder)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_skill(folder) == same


def test_yaml_1_1_booleans_are_strings(folder: Path):
    edit(folder, "phases/a.md", "allowed_ops: []", "role: no")
    assert load_skill(folder).phases["a"].role == "no"


def test_a_skills_own_artifact_takes_precedence_over_a_shared_one(tmp_path: Path, folder: Path):
    shared = tmp_path / "reyn" / "shared"
    (shared / "artifacts").mkdir(parents=True)
    (shared / "artifacts" / "note.yaml").write_text("type: string")
    (shared / "artifacts" / "other.yaml").write_text("type: object")
    edit(folder, "phases/b.md", "input: note", "input: other")
    skill = load_skill(folder, Library(tmp_path))
    assert skill.phases["a"].input_schema == NOTE
    assert skill.phases["b"].input_schema == {"type": "object"}


def test_names_resolve_to_local_then_project_skills_and_paths_resolve_directly(tmp_path: Path, folder: Path):
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


def test_a_pin_depends_on_the_skill_and_not_on_its_location(tmp_path: Path):
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
def test_each_graph_error_is_reported_at_its_line(folder: Path, graph: str, expected: list):
    edit(folder, "skill.md", '{"a": ["b"], "b": ["a", "end"]}', graph)
    assert errors_of(folder) == expected


def test_a_schema_wrapper_gives_the_same_skill(folder: Path):
    same = load_skill(folder)
    (folder / "artifacts" / "note.yaml").write_text(f"name: note\nschema: {NOTE}\n".replace("'", '"'))
    assert load_skill(folder) == same
    (folder / "artifacts" / "note.yaml").write_text("name: other\nschema: {type: object}\n")
    assert errors_of(folder) == [("artifacts/note.yaml", 1, "RYN115")]


def test_an_invalid_schema_is_reported_at_its_line(folder: Path):
    (folder / "artifacts" / "note.yaml").write_text("type: object\nproperties:\n  text:\n    type: strang\n")
    assert errors_of(folder) == [("artifacts/note.yaml", 4, "RYN121")]
    (folder / "artifacts" / "note.yaml").write_text("type: object\n$schema: http://json-schema.org/draft-04/schema#\n")
    assert errors_of(folder) == [("artifacts/note.yaml", 2, "RYN121")]


def test_imported_keys_are_ignored_and_tags_are_errors(folder: Path):
    same = load_skill(folder)
    edit(folder, "skill.md", "name: s", "name: s\nimported_whatever: 3")
    assert load_skill(folder) == same
    edit(folder, "skill.md", "imported_whatever: 3", "description: !!str x")
    assert errors_of(folder) == [("skill.md", 4, "RYN111")]


@pytest.mark.parametrize("body", ["\n\n  Do it.  \n\n\t\n", "Do it.", "Do it.\n", "   \n# Title\n---\nmore\n \n"])
def test_instructions_are_verbatim(folder: Path, body: str):
    edit(folder, "phases/a.md", "Do what a does.\n", body)
    assert load_skill(folder).phases["a"].instructions == body


def test_only_line_ends_of_instructions_are_converted(folder: Path):
    path = folder / "phases" / "a.md"
    head = path.read_bytes().removesuffix(b"Do what a does.\n")
    path.write_bytes(head + b"  one \r\n\r\ntwo\rthree\t\r\n")
    assert load_skill(folder).phases["a"].instructions == "  one \n\ntwo\rthree\t\n"


@pytest.mark.parametrize("text_form", ["NFC", "NFD"])
@pytest.mark.parametrize("file_form", ["NFC", "NFD"])
def test_names_match_in_either_unicode_normalization_form(tmp_path: Path, text_form: str, file_form: str):
    def in_text(name: str) -> str:
        return unicodedata.normalize(text_form, name)

    def on_disk(name: str) -> str:
        return unicodedata.normalize(file_form, name)

    write_skill(tmp_path, on_disk("été"), {"x": ["end"]})
    edit(tmp_path / "reyn/project" / on_disk("été"), "skill.md", on_disk("name: été"), in_text("name: été"))
    call = in_text("  - run_skill: {skill: été, into: data.found}\n")
    python = in_text("  - python: {module: ./été.py, function: somme, into: data.sum}\n")
    folder = write_skill(
        tmp_path,
        "s",
        {in_text("réponse"): [in_text("@été")], in_text("@été"): [in_text("clôture")], in_text("clôture"): ["end"]},
        phase_keys={in_text("clôture"): f"preprocessor:\n{call}{python}"},
        artifacts={on_disk("reçu"): NOTE},
        inputs={in_text("réponse"): in_text("reçu")},
    )
    (folder / on_disk("été.py")).write_text("def somme(artifact):\n    return 1\n")
    for name in ("réponse", "clôture"):
        (folder / "phases" / in_text(f"{name}.md")).rename(folder / "phases" / on_disk(f"{name}.md"))
    skill = load_skill(folder, Library(tmp_path))
    assert [*skill.phases] == ["réponse", "clôture"]
    assert skill.entry_inputs[0].name == "reçu"
    assert load_skill(folder) == skill


def test_a_missing_phase_with_accents_is_still_reported(folder: Path):
    edit(folder, "skill.md", '"end"]', '"réponse"]')
    assert errors_of(folder) == [("skill.md", 6, "RYN116")]


def test_files_that_differ_only_in_normalization_are_reported(folder: Path):
    for form in ("NFC", "NFD"):
        path = folder / "artifacts" / unicodedata.normalize(form, "été.yaml")
        path.write_text("type: object\n")
    assert errors_of(folder) == [("artifacts/été.yaml", 1, "RYN136")]


OPEN_FILES = Path("/proc/self/fd")


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="the system does not list open files")
def test_no_folder_stays_open_after_it_was_read(tmp_path: Path):
    """Whatever refers to what was read, and whether or not the garbage collector comes."""
    shared = tmp_path / "reyn/shared/phases"
    shared.mkdir(parents=True)
    library, kept = Library(tmp_path), []
    names = [f"s{number}" for number in range(200)]
    for number, name in enumerate(names):
        folder = write_skill(tmp_path, name, {"a": ["end"]}, skill_keys="nonsense: 1\n" if number % 10 == 0 else "")
        if number % 15 == 0:
            (folder / "cases/one").mkdir(parents=True)
            (folder / "cases/one/input.json").write_text("{}")
    gc.disable()
    try:
        before = len([*OPEN_FILES.iterdir()])
        for number, name in enumerate(names):
            folder = library.find(name)
            with suppress(SkillInvalid):
                kept.append(load_skill(folder, library))
            if number % 5 == 0:
                kept += [found := read_skill(folder, library), check_skill(found, VOCABULARY), read_cases(folder)]
                kept.append(library.unchanged(folder, VOCABULARY))
        kept.append(lint_shared(library, VOCABULARY))
        assert len([*OPEN_FILES.iterdir()]) == before
    finally:
        gc.enable()
