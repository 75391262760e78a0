"""Errors of lint stop a run; findings of one file do not hide those of another; shared files are checked."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import SkillInvalid
from reyn.lint import lint_shared, lint_skill
from reyn.ops import standard_ops
from reyn.skills import Library
from tests.kernel.support import Project
from tests.support import NOTE, VOCABULARY, finish, write_skill

EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/graphs/reyn/project/*"))
STEP = "preprocessor:\n  - run_op: {op: {kind: file, op: read, pth: x}}\n"
SAME_SCHEMAS = {"artifacts": {"other": NOTE}, "inputs": {"b": "note | other"}}

LINT_ERRORS = {
    "an argument that an op does not have": {"phase_keys": {"b": STEP}},
    "a permission that does not exist": {"skill_keys": "permissions: {teleport: true}\n"},
    "a request that is not understood": {"skill_keys": "permissions: {file.read: 5}\n"},
    "an op without its request": {"ops": {"b": "sandboxed_exec"}},
    "a step without its request": {"phase_keys": {"b": "preprocessor:\n  - run_op: {op: {kind: shell, cmd: x}}\n"}},
    "union members that nothing distinguishes": SAME_SCHEMAS,
    "an artifact that no path produces": {"phase_keys": {"b": "reads: [thing]\n"}, "artifacts": {"thing": NOTE}},
    "a schema below `schema`": {"artifacts": {"note": {"schema": NOTE, "type": "object"}}},
}


@pytest.mark.parametrize("what", LINT_ERRORS)
@pytest.mark.parametrize("place", ["the skill", "its sub-skill"])
def test_every_error_of_lint_stops_a_run_before_the_first_model_call(tmp_path: Path, what: str, place: str):
    folder = write_skill(tmp_path, "wrong", {"a": ["b"], "b": ["end"]}, **LINT_ERRORS[what])
    name = "wrong"
    if place == "its sub-skill":
        folder, name = write_skill(tmp_path, "outer", {"a": ["@wrong"], "@wrong": ["end"]}), "outer"
    errors = [finding for finding in lint_skill(folder) if finding.severity == "error"]
    assert errors
    project = Project(tmp_path)
    with pytest.raises(SkillInvalid) as refused:
        project.run(name, [finish()])
    assert refused.value.findings == errors
    assert not project.model.requests
    assert not list(project.journal.read("k"))


FAULTS = {
    "skill.md": ("final_output: note", "final_output: [note]"),
    "phases/a.md": ("type: phase", "typ: phase"),
    "phases/b.md": ("input: note", "input: nothing"),
    "phases/c.md": ("allowed_ops: []", "allowed_ops: [teleport]"),
    "artifacts/note.yaml": ('"type": "object"', '"type": "objekt"'),
    "artifacts/memo.yaml": ('"type": "object"', '"type": 5'),
}
UNREADABLE = ("\n", "\n\t: [\n")


@pytest.mark.parametrize(("first", "second"), list(permutations(FAULTS, 2)))
@pytest.mark.parametrize("is_readable", [True, False])
def test_findings_of_one_file_do_not_hide_those_of_another(
    tmp_path: Path, first: str, second: str, *, is_readable: bool
):
    """`first` has an error in its values, or cannot be parsed; `second` has an error in its values."""
    graph = {"a": ["b"], "b": ["c"], "c": ["end"]}
    folder = write_skill(tmp_path, "s", graph, artifacts={"memo": NOTE}, inputs={"c": "memo"})
    for file, (old, new) in {first: FAULTS[first] if is_readable else UNREADABLE, second: FAULTS[second]}.items():
        text = (folder / file).read_text()
        assert old in text + "\n"
        (folder / file).write_text((text + "\n").replace(old, new, 1))
    found = {finding.file for finding in lint_skill(folder, Library(tmp_path)) if finding.severity == "error"}
    assert {first, second} <= found


def test_phases_that_nothing_reaches_do_not_stop_a_valid_skill(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["end"]})
    (folder / "phases" / "draft.md").write_text("---\ntype: phase\nname: draft\ninput: nothing\n---\nLater.\n")
    assert Project(tmp_path).run("s", [finish()]).ok


# -- shared files -----------------------------------------------------------------------------------------------------

SHARED = "---\ntype: phase\nname: review\ninput: note\nallowed_ops: [{ops}]\n{keys}---\n{body}\n"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"body": "Then emit control_ir."}, "RYN130"),
        ({"keys": STEP}, "RYN123"),
        ({"ops": "teleport"}, "RYN122"),
        ({"ops": "sandboxed_exec"}, "RYN127"),
        ({"keys": "colour: red\n"}, "RYN112"),
    ],
)
def test_phases_in_the_shared_folder_are_checked(tmp_path: Path, change: dict[str, str], code: str):
    folder = write_skill(tmp_path, "s", {"a": ["review"], "review": ["end"]})
    (folder / "phases" / "review.md").unlink()
    shared = tmp_path / "reyn" / "shared" / "phases"
    shared.mkdir(parents=True)
    (shared / "review.md").write_text(SHARED.format(**{"ops": "", "keys": "", "body": "Review it."} | change))
    found = {finding.file for finding in lint_skill(folder, Library(tmp_path)) if finding.code == code}
    assert found == {"shared/phases/review.md"}


def test_a_shared_phase_may_name_the_artifacts_of_the_skills_that_use_it(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, inputs={"b": "own"}, artifacts={"own": NOTE})
    shared = tmp_path / "reyn" / "shared" / "phases"
    shared.mkdir(parents=True)
    (folder / "phases" / "b.md").rename(shared / "b.md")
    for name in ("c", "d"):
        text = (shared / "b.md").read_text()
        (shared / f"{name}.md").write_text(text.replace("name: b", f"name: {name}").replace("own", "missing"))
    assert [one.code for one in lint_skill(folder) if one.severity == "error"] == []
    found = lint_shared(Library(tmp_path), VOCABULARY)
    assert [(one.code, one.file.rpartition("/")[2]) for one in found if one.severity == "error"] == [
        ("RYN117", "c.md"),
        ("RYN117", "d.md"),
    ]


@pytest.mark.parametrize("name", ["out", "note"])
def test_an_artifact_that_cannot_be_read_hides_no_finding_about_the_phases(tmp_path: Path, name: str):
    inputs = {"a": "note", "b": "out"}
    folder = write_skill(
        tmp_path,
        "s",
        {"a": ["b"], "b": ["end"]},
        inputs=inputs,
        artifacts={"out": NOTE},
        ops=dict.fromkeys(inputs, "web_fetch"),
    )
    (folder / "artifacts" / f"{name}.yaml").write_text("type: [object")
    codes = [(one.code, one.file.rpartition("/")[2]) for one in lint_skill(folder) if one.severity == "error"]
    assert sorted(codes) == [("RYN111", f"{name}.yaml"), ("RYN127", "a.md"), ("RYN127", "b.md")]


EXPRESSIONS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a rule": ({"route": [{"when": "data.nope > 1", "to": "b"}, {"else": "end"}]}, {}),
    "an edge": ({"a": {"b": {"text": "go", "when": "data.nope > 1"}, "end": "stop"}}, {}),
    "a step": ({}, {"b": "preprocessor:\n  - expression: {condition: data.nope > 1}\n"}),
}
BROKEN = {
    "YAML": "---\nname: [z\n---\n",
    "input": "---\ntype: phase\nname: NAME\ninput: nothing\nallowed_ops: []\n---\nDo.\n",
    "one of several inputs": "---\ntype: phase\nname: NAME\ninput: note | nothing\nallowed_ops: []\n---\nDo.\n",
}


@pytest.mark.parametrize("what", EXPRESSIONS)
@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("broken", ["first", "last"])
def test_a_phase_that_cannot_be_read_hides_no_finding_about_expressions_elsewhere(
    tmp_path: Path, what: str, text: str, broken: str
):
    changed, keys = EXPRESSIONS[what]
    target = "route" if "route" in changed else "b"
    graph: dict[str, Any] = {"first": ["a"], "a": [target, "end"], "b": ["last"], "last": ["end"]} | changed
    folder = write_skill(tmp_path, "s", graph, phase_keys=keys)
    if "route" in graph:
        (folder / "phases" / "route.md").write_text("---\ntype: phase\nname: route\ninput: note\n---\n")
    (folder / "phases" / f"{broken}.md").write_text(BROKEN[text].replace("NAME", broken))
    codes = [one.code for one in lint_skill(folder) if one.severity == "error"]
    assert sorted(codes) == sorted(["RYN111" if text == "YAML" else "RYN117", "RYN181"])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_file_of_a_skill_can_be_broken(tmp_path: Path, example: Path):
    for file in sorted(example.rglob("*")):
        if file.suffix not in (".md", ".yaml") or file.name == "skill.md":
            continue
        root = tmp_path / file.name
        shutil.copytree(example.parents[2], root, ignore=shutil.ignore_patterns(".reyn"))
        broken = root / file.relative_to(example.parents[2])
        broken.write_text("---\nname: [x\n---\n" if file.suffix == ".md" else "type: [object\n")
        found = lint_skill(root / example.relative_to(example.parents[2]))
        assert [one.file.rpartition("/")[2] for one in found if one.severity == "error"] == [file.name]


def test_shared_files_are_checked_even_if_no_skill_uses_them(tmp_path: Path):
    shared = tmp_path / "reyn" / "shared"
    for folder in ("phases", "artifacts"):
        (shared / folder).mkdir(parents=True)
    (shared / "phases" / "review.md").write_text(SHARED.format(ops="teleport", keys="", body="Call file.read()."))
    (shared / "artifacts" / "note.yaml").write_text("type: objekt\n")
    found = lint_shared(Library(tmp_path), standard_ops().vocabulary)
    assert {(finding.file, finding.code) for finding in found} >= {
        ("phases/review.md", "RYN122"),
        ("phases/review.md", "RYN130"),
        ("artifacts/note.yaml", "RYN121"),
    }
    assert not any(finding.file == "skill.md" for finding in found)


# -- op syntax in instructions ----------------------------------------------------------------------------------------

SPELLINGS = [
    '{"kind": "file", "op": "read"}', "{'kind': 'file'}", "{kind: file, op: write}", "kind: file", "KIND = FILE",
    "- **kind**: `file`", "“kind”: “web_fetch”", '{\\"kind\\": \\"shell\\"}', '<op kind="file">', '<file op="read">',
    "op: read", "`op`: `glob`", "op=delete", "file.read", "file_write", "file::grep", "file->edit", "fileRead(x)",
    "file(path)", "lint(skill)", "ask_user", "`run_skill`", "Run_Skill", "web_fetch(url)", "the `file` op",
    "the op file",
    "control_ir", "Control IR", "control-ir", "controlIR", "nextPhase", "next_phase", "candidateOutputs", '"ops": [',
    "ops = [",
]  # fmt: skip
PROSE = [
    "Open the file and read it.", "Ask the user for the date.", "List the file(s) that matter.",
    "Say what kind of file it is.",
    "Choose the next phase of the project.", "The output of the candidate counts.",
    "Recall what was said. Search the web.",
    "`kind`: is it a bug or a question?", "Drop, delete or edit what is wrong.",
    "Have the shell scrubbed; remember the lint.",
    "read the file a.txt", "Read the file; write a summary.", "Every file read counts, as does a file edit.",
    "Compact the text and recall why.", "Say of which kind it is: file or folder.", "Be kind to file clerks who read.",
    "The path of the file is output. Limit: 5 lines.", "Delete the file path from the text.",
    "Use python if it is safe.",
    "The shell was closed; the query = nothing new.",
    "Read (slowly) what the file (a text) says.", "Call the shop; use the file that was sent.",
    "Search for the kind of file.",
    "The operation was read aloud: it is safe.", "Which kind, file or folder, is the file for? Kind of both.",
    "Read file after file; a file-based tool edits.", "Options: read, write, edit.",
    "The file is the kind of text to edit.",
]  # fmt: skip


@pytest.fixture(scope="module")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_skill(tmp_path_factory.mktemp("prose"), "s", {"a": ["end"]})


def findings_in(folder: Path, text: str) -> list[str]:
    (folder / "phases" / "a.md").write_text(
        f"---\ntype: phase\nname: a\ninput: note\nallowed_ops: []\n---\nBefore. {text} After.\n"
    )
    return [finding.message for finding in lint_skill(folder) if finding.code == "RYN130"]


@pytest.mark.parametrize("text", SPELLINGS)
def test_op_syntax_in_instructions_is_found_in_every_spelling(prose: Path, text: str):
    assert findings_in(prose, text)


OPS = [("file", "read", "path"), ("file", "grep", "pattern"), ("python", "safe", "module")]
SIGNS = [
    ":", ": ", "=", " = ", "==", ":=", "->", " -> ", " --> ", " => ", " \u2192 ", " \u21d2 ", " \u279c ", " > ",
    " | ", "\uff1a",
    " \uff1d ", " ", " is ", " set to ", " must be ", " equals ",
    "::", " <- ", " \u2254 ", " \u2208 ", " needs to be ", " has to be ", " shall be ", " being ", " equal to ",
    " named ", " has the value ",
]  # fmt: skip
COMMANDS = [
    "{kind} {form} {argument}=a", "{kind} {form} {argument} = a", "{kind} {form} {argument}: a",
    "{kind} {form} --{argument} a",
    "{kind} {form} a.txt", "{kind}, {form}, {argument}=a", "{kind} with op {form} and {argument}=a",
    "{kind} with {argument}=a",
    "{form} {argument}=a", "{form} --{argument} a", "{kind} {form} {argument} \u2192 a", "{kind}/{form}",
    "{kind}.{form}",
    "{kind}__{form}", "{form}_{kind}", "{form}{kind}", "`{kind} {form}`", "`{kind}-{form}`", "'{kind}', '{form}'",
    "`{kind}` `{form}`", "{kind}-{form}",
    "{kind} > {form} {argument}=a", "the {kind} op", "op {form}", "{kind}(", "set kind to {kind}",
    "set `op` to `{form}`",
    "kind({kind})", "op[{form}]", "{form}({argument})", "`{form}`({argument}='a')", "{kind}[{form}]",
    '{kind}["{form}"]',
    "{kind}={form}", "{kind}#{form}", "{kind}@{form}", "the {form} op", "the `{form}` operation", "the `{kind}` tool",
    "call `{kind}`", "operation: {form}", "tool = `{kind}`", '"tool": "{kind}"', "ops: {kind}", "op_kind: {kind}",
    "opKind={kind}", "op name: {form}", "{kind}-op", "{kind}Op", "op_{kind}", "{kind} {{{argument}: a}}",
    '{form} {{"{argument}": "a"}}', "{kind} -{argument} a", "{form}.{kind}", "{form}-{kind}", "`{kind}` as `kind`",
    "{kind} for the kind", "{form} as op", "k\u200bind: {kind}",
]  # fmt: skip


KIND_SPELLINGS: list[Callable[[str], str]] = [
    str, str.upper, lambda kind: kind.replace("_", "-"), lambda kind: kind.replace("_", ""),
    lambda kind: re.sub(r"_(.)", lambda found: found[1].upper(), kind), lambda kind: kind.title().replace("_", ""),
]  # fmt: skip


def generated_spellings() -> list[str]:
    keys = [
        f"{mark}{key}{mark}{sign}{mark}{value}{mark}"
        for kind, form, _ in [*OPS, ("shell", "", ""), ("recall", "", "")]
        for key, value in [("kind", kind), ("op", form or kind)]
        for sign in SIGNS
        for mark in ["", '"', "'", "`", "**", "_", '\\"', "&quot;", "\u201c"]
    ]
    commands = [text.format(kind=kind, form=form, argument=name) for text in COMMANDS for kind, form, name in OPS]
    return [
        *keys,
        *(text.upper() for text in keys),
        *(
            spelled(kind)
            for kind in VOCABULARY.op_kinds
            if kind.isidentifier() and "_" in kind
            for spelled in KIND_SPELLINGS
        ),
        "mcp:git/log",
        *commands,
        "shell cmd=ls",
        "recall with query = x",
        "lint skill_path=a",
    ]


def test_op_syntax_is_found_whatever_the_signs_marks_and_order(prose: Path):
    spellings = generated_spellings()
    (prose / "phases" / "a.md").write_text(
        "---\ntype: phase\nname: a\ninput: note\nallowed_ops: []\n---\n"
        + "".join(f"Do {one} now.\n" for one in spellings)
    )
    found = {finding.line for finding in lint_skill(prose) if finding.code == "RYN130"}
    assert [one for line, one in enumerate(spellings, start=7) if line not in found] == []


@pytest.mark.parametrize("text", PROSE)
def test_plain_words_are_no_op_syntax(prose: Path, text: str):
    assert not findings_in(prose, text)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("way", ["a step", "a node", "branches"])
def test_skills_that_begin_with_sub_skills_are_linted(tmp_path: Path, depth: int, way: str):
    write_skill(tmp_path, "leaf0", {"a": ["end"]})
    for number in range(1, depth + 1):
        inner = f"@leaf{number - 1}"
        write_skill(tmp_path, f"leaf{number}", {inner: ["a"], "a": ["end"]})
    name = f"leaf{depth}"
    step = f"preprocessor:\n  - run_skill: {{skill: {name}, input: {{text: x}}, into: data.found}}\n"
    each = f"nodes: {{b: {{each: {{in: data.texts, do: '@{name}'}}, as: found}}}}\n"
    graph = {"a": [f"@{name}"], f"@{name}": ["end"]} if way == "a node" else {"a": ["b"], "b": ["end"]}
    keys = {"a step": {"phase_keys": {"b": step}}, "branches": {"skill_keys": each}}.get(way, {})
    findings = lint_skill(write_skill(tmp_path, "outer", graph, **keys))
    assert [finding for finding in findings if finding.severity == "error" and name in finding.message] == []
