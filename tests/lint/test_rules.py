"""Every lint rule has a failing example with the expected file, line and code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reyn.documents.checking import fields_of
from reyn.lint import lint_skill
from reyn.skills import Library
from reyn.skills.front_matter import FOREIGN_IN_PHASE, FOREIGN_IN_SKILL, PhaseFrontMatter, SkillFrontMatter
from tests.support import NOTE, write_skill

TALLY = "def tally(artifact):\n    return {'lines': 1}\n\n\ndef other(artifact):\n    return 2\n"
PYTHON = "preprocessor:\n  - python:\n      module: ./tally.py\n      function: tally\n      into: data.tally\n"
POSTPROCESSOR = "postprocessor:\n  output_schema: note\n  steps:\n    - python: {module: ./tally.py, function: tally}\n"
PERMISSION = "permissions:\n  python:\n    - {module: ./tally.py, function: tally}\n"

UNMATCHED = [("skill.md", 8, "RYN126"), ("skill.md", 9, "RYN128")]
"""Findings for a permission that does not match the called function."""


def lint(folder: Path) -> list[tuple[str, int, str]]:
    """Return the findings, except those about unavailable features and sandboxes, which have their own tests."""
    library = Library(folder.parent.parent.parent)
    return [
        (finding.file, finding.line, finding.code)
        for finding in lint_skill(folder, library)
        if finding.code not in ("RYN103", "RYN170")
    ]


def make(tmp_path: Path, *, phase: str = "", skill: str = "", body: str = "", graph=None, **more) -> Path:
    folder = write_skill(
        tmp_path, "s", graph or {"a": ["b"], "b": ["end"]}, phase_keys={"a": phase}, skill_keys=skill, **more
    )
    (folder / "tally.py").write_text(TALLY)
    if body:
        path = folder / "phases" / "a.md"
        path.write_text(path.read_text().replace("Do what a does.", body))
    return folder


def test_a_valid_skill_has_no_findings(tmp_path: Path):
    assert lint(make(tmp_path, phase=PYTHON, skill=PERMISSION)) == []


@pytest.mark.parametrize("where", ["branch", "step"])
def test_permissions_cover_those_of_the_skills_that_a_skill_runs(where: str, tmp_path: Path):
    write_skill(tmp_path, "writer", {"w": ["end"]}, skill_keys="permissions: {shell: {}}\n", ops={"w": "shell"})
    nodes = "nodes: {a: {all: {one: '@writer'}, as: both}}\n" if where == "branch" else ""
    step = "" if nodes else "preprocessor: [{run_skill: {skill: writer}}]\n"
    for requests, expected in (("permissions: {shell: {}}\n", []), ("", ["RYN127"])):
        folder = make(tmp_path, skill=nodes + requests, phase=step, inputs={"b": "both"} if nodes else None)
        if nodes:
            (folder / "phases" / "a.md").write_text("---\ntype: phase\nname: a\ninput: note\n---\n")
        findings = [one for one in lint_skill(folder, Library(tmp_path)) if one.code in ("RYN127", "RYN128")]
        assert [(one.code, one.severity) for one in findings] == [(code, "warning") for code in expected]


@pytest.mark.parametrize(
    ("phase", "skill", "expected"),
    [
        # steps
        ("preprocessor: [{pythn: {}}]\n", "", [("phases/a.md", 6, "RYN123")]),
        ("preprocessor: [python]\n", "", [("phases/a.md", 6, "RYN123")]),
        ("preprocessor:\n  - python: {module: ./tally.py}\n", "", [("phases/a.md", 7, "RYN113")]),
        ("preprocessor:\n  - lint_plan: {ovr: data}\n", "", [("phases/a.md", 7, "RYN112")]),
        ("preprocessor:\n  - validate:\n      schema: {type: strang}\n", "", [("phases/a.md", 8, "RYN121")]),
        ("preprocessor:\n  - validate: {schema: {}, target: data.nothing}\n", "", [("phases/a.md", 7, "RYN124")]),
        ("preprocessor:\n  - validate: {schema: {}, into: data.a.b}\n", "", [("phases/a.md", 7, "RYN124")]),
        ("preprocessor:\n  - validate: {schema: {}, into: data.text.b}\n", "", [("phases/a.md", 7, "RYN124")]),
        (
            "preprocessor:\n  - run_op:\n      op: {kind: file, op: read}\n      args_from: {path: data.where}\n",
            "",
            [("phases/a.md", 9, "RYN124")],
        ),
        (
            "preprocessor:\n  - iterate: {over: data.text, apply: {run_op: {op: {kind: lint, skill_path: a}}}}\n",
            "",
            [("phases/a.md", 7, "RYN124")],
        ),
        (
            "preprocessor:\n  - iterate:\n      over: data\n      apply: {validate: {schema: {}}}\n",
            "",
            [("phases/a.md", 9, "RYN123")],
        ),
        # questions
        ("preprocessor:\n  - ask_user: {question: 'Sure?', show: data, into: data.sure}\n", "", []),
        ("preprocessor:\n  - ask_user: {into: data.sure}\n", "", [("phases/a.md", 7, "RYN113")]),
        ("preprocessor:\n  - ask_user: {question: ''}\n", "", [("phases/a.md", 7, "RYN114")]),
        ("preprocessor:\n  - ask_user: {questin: 'Sure?'}\n", "", [("phases/a.md", 7, "RYN112")]),
        (
            "preprocessor:\n  - ask_user:\n      question: a\n      schema: {type: strang}\n",
            "",
            [("phases/a.md", 9, "RYN121")],
        ),
        ("preprocessor:\n  - ask_user: {question: a, schema: text}\n", "", [("phases/a.md", 7, "RYN114")]),
        (
            "preprocessor:\n  - ask_user:\n      question: a\n      show: data.nothing\n",
            "",
            [("phases/a.md", 9, "RYN124")],
        ),
        (
            "preprocessor:\n  - ask_user: {question: a, into: data.n}\n  - lint_plan: {over: data.n.m}\n",
            "",
            [("phases/a.md", 8, "RYN124")],
        ),
        ("requires_approval: true\n", "", []),
        ("requires_approval: 1\n", "", [("phases/a.md", 6, "RYN114")]),
        ("requires_aproval: true\n", "", [("phases/a.md", 6, "RYN112")]),
        # python
        (PYTHON.replace("tally.py", "gone.py"), PERMISSION, [("phases/a.md", 8, "RYN125"), *UNMATCHED]),
        (PYTHON.replace("./tally.py", "../../x.py"), PERMISSION, [("phases/a.md", 8, "RYN125"), *UNMATCHED]),
        (PYTHON.replace("function: tally", "function: tall"), PERMISSION, [("phases/a.md", 7, "RYN125"), *UNMATCHED]),
        (PYTHON, "", [("skill.md", 2, "RYN126")]),
        (PYTHON.replace("into", "mode: unsafe\n      into"), PERMISSION, [("skill.md", 8, "RYN126")]),
        (
            PYTHON,
            PERMISSION.replace("tally}", "tally, mode: unsafe}"),
            [("skill.md", 9, "RYN129")],
        ),
        # requests
        ("", "permissions: {shel: {}}\n", [("skill.md", 7, "RYN137")]),
        ("", "permissions: {shell: {}}\n", [("skill.md", 7, "RYN128")]),
        ("", "permissions: {python: []}\n", [("skill.md", 7, "RYN128")]),
        # the postprocessor
        ("", "postprocessor: {output_schema: nothing}\n", [("skill.md", 7, "RYN117")]),
        ("", "postprocessor: {output_schema: {type: 3}}\n", [("skill.md", 7, "RYN121")]),
        (
            "",
            "postprocessor:\n  output_schema: note\n  steps:\n    - validate: {schema: {}, target: data.x}\n",
            [("skill.md", 10, "RYN124")],
        ),
    ],
)
def test_errors_in_steps_and_permissions_are_reported(tmp_path: Path, phase: str, skill: str, expected: list):
    assert lint(make(tmp_path, phase=phase, skill=skill)) == expected


def test_an_op_needs_a_permission_request(tmp_path: Path):
    folder = make(tmp_path)
    path = folder / "phases" / "a.md"
    path.write_text(path.read_text().replace("allowed_ops: []", "allowed_ops: [file, web_fetch]"))
    assert lint(folder) == [("phases/a.md", 5, "RYN127")]
    (tmp_path / "two").mkdir()
    folder = make(tmp_path / "two", skill="permissions: {web: {}}\n")
    path = folder / "phases" / "a.md"
    path.write_text(path.read_text().replace("allowed_ops: []", "allowed_ops: [file, web_fetch]"))
    assert lint(folder) == []


@pytest.mark.parametrize(
    ("body", "line", "code"),
    [
        ('Emit {"kind": "file"}.', 7, "RYN130"),
        ("Set next_phase: b.", 7, "RYN130"),
        ("Fill in:\n\n- `text`: the text\n- name: none\n- `other`: x\n- `text` (again)", 9, "RYN130"),
        ("Look at <base_commit> first.", 7, "RYN131"),
        ("Fetch https://example.org/page now.", 7, "RYN131"),
        ("Write to someone@example.org.", 7, "RYN131"),
        ("Read /home/me/notes.txt.", 7, "RYN131"),
        ("Use 3f786850e387550fdab836ed7e6dc881de23001b.", 7, "RYN131"),
        ("It happened on 2026-01-02.", 7, "RYN131"),
        ('Say {"text": "hello"}.', 7, "RYN131"),
    ],
)
def test_contract_syntax_and_literals_in_instructions_are_warnings(tmp_path: Path, body: str, line: int, code: str):
    folder = make(tmp_path, body=body)
    findings = lint_skill(folder)
    assert (findings[0].file, findings[0].line, findings[0].severity) == ("phases/a.md", line, "warning")
    assert code in {finding.code for finding in findings}


def test_plain_prose_has_no_findings(tmp_path: Path):
    body = (
        "Read the note.\n\n- Keep names as they are.\n- If a/b is unclear, or 3 > 2, say so.\n\nBe brief (1-2 lines)."
    )
    assert lint(make(tmp_path, body=body)) == []


def test_an_unreachable_phase_is_a_warning(tmp_path: Path):
    folder = make(tmp_path)
    text = (folder / "phases" / "a.md").read_text()
    (folder / "phases" / "lost.md").write_text(text.replace("name: a", "name: lost"))
    [finding] = lint_skill(folder)
    assert (finding.file, finding.code, finding.severity) == ("phases/lost.md", "RYN120", "warning")


def test_identical_union_members_are_reported(tmp_path: Path):
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    folder = make(tmp_path, artifacts={"one": schema, "two": schema | {"title": "Two"}}, inputs={"b": "one | two"})
    assert lint(folder) == [("phases/b.md", 4, "RYN132")]
    (tmp_path / "2").mkdir()
    described = {"one": schema | {"description": "the first"}, "two": schema | {"description": "the second"}}
    assert lint(make(tmp_path / "2", artifacts=described, inputs={"b": "one | two"})) == []


def test_names_that_differ_only_in_case_are_reported(tmp_path: Path):
    folder = make(tmp_path)
    text = (folder / "phases" / "a.md").read_text()
    (folder / "phases" / "A.md").write_text(text.replace("name: a", "name: A"))
    assert ("phases/a.md", 2, "RYN136") in lint(folder)


def test_the_older_form_is_a_warning(tmp_path: Path):
    folder = make(tmp_path, phase="preprocessor:\n  - {type: lint_plan, over: data}\n")
    assert lint(folder) == [("phases/a.md", 7, "RYN135")]
    (folder / "artifacts" / "note.yaml").write_text("name: note\nschema: {type: object}\n")
    assert lint(folder) == [("artifacts/note.yaml", 2, "RYN135"), ("phases/a.md", 7, "RYN135")]


@pytest.mark.parametrize("content", ["", "\n", " \n\n", "# a comment\n", "---\n", "null\n", "~\n"])
def test_a_file_of_the_older_form_without_a_value_has_the_findings_of_any_other(tmp_path: Path, content: str):
    steps = "preprocessor:\n  - {type: lint_plan, over: data}\n"
    for file, text in [("artifacts/note.yaml", content), ("phases/b.md", f"---\n{content}---\nDo.\n")]:
        folders = make(tmp_path / "documented" / file), make(tmp_path / "older" / file, phase=steps)
        for folder in folders:
            (folder / file).write_text(text)
        documented, older = ([code for name, _, code in lint(folder) if name == file] for folder in folders)
        assert documented
        assert older == documented


def test_one_error_does_not_hide_others(tmp_path: Path):
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    folder = make(
        tmp_path,
        phase=PYTHON,
        skill="descripton: x\n",
        artifacts={"one": schema, "two": schema},
        inputs={"b": "one | two"},
    )
    (folder / "phases" / "lost.md").write_text(
        (folder / "phases" / "b.md").read_text().replace("name: b", "name: lost")
    )
    assert {code for _, _, code in lint(folder)} == {"RYN112", "RYN120", "RYN126", "RYN132"}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("[{}, {python: {module: ./tally.py, function: gone}}]", [(6, "RYN123"), (6, "RYN125")]),
        ("[5, {python: {module: ./tally.py, function: tally}}]", [(6, "RYN123")]),
        ("\n  - {pyton: {}}\n  - {python: {module: ./tally.py, function: gone}}", [(7, "RYN123"), (8, "RYN125")]),
        ("[{run_op: {op: {kind: nonsense}}}]", [(6, "RYN122")]),
        ("[{run_op: {op: {kind: ask_user}}}]", [(6, "RYN123")]),
        ("[{run_op: {op: {kind: run_skill, skill: nonesuch, input: {}}}}]", [(6, "RYN101")]),
        ("[{run_op: {op: {kind: file, op: read}}}]", [(6, "RYN123")]),
        ("[{run_op: {op: {kind: file, op: read}, args_from: {path: data.text}}}]", []),
        ("[{run_op: {op: {kind: file, op: glob}, args_from: {pattern: data.text}}}]", []),
        ("[{run_op: {op: {kind: file, op: glob, path: docs}, args_from: {pattern: data.text}}}]", []),
        ("[{run_op: {op: {kind: file, op: read, path: PLACEHOLDER}, args_from: {path: data.text}}}]", []),
        ("[{run_op: {op: {kind: file, op: read, path: a, pth: b}}}]", [(6, "RYN123")]),
        ("[{run_op: {op: {kind: file, op: read, path: 5}}}]", [(6, "RYN123")]),
        ("[{run_op: {op: {kind: file, op: reed, path: a}}}]", [(6, "RYN123")]),
        ("[{run_op: {op: {kind: lint}, args_from: {skill: data.text}}}]", [(6, "RYN123"), (6, "RYN123")]),
        ('[{run_skill: {skill: "\\0/"}}]', [(6, "RYN101")]),
    ],
)
def test_invalid_steps_are_reported_at_their_line(tmp_path: Path, steps: str, expected: list):
    found = lint(make(tmp_path, phase=f"preprocessor: {steps}\n"))
    assert [(line, code) for file, line, code in found if file == "phases/a.md"] == expected


def test_an_op_step_needs_a_permission_request_and_uses_it(tmp_path: Path):
    steps = "preprocessor: [{run_op: {op: {kind: shell, cmd: x}}}]\n"
    assert lint(make(tmp_path, phase=steps)) == [("skill.md", 2, "RYN127")]
    (tmp_path / "2").mkdir()
    assert lint(make(tmp_path / "2", phase=steps, skill="permissions: {shell: {}}\n")) == []


def test_a_misspelt_schema_keyword_is_a_warning(tmp_path: Path):
    schema = {"type": "object", "proprties": {}, "properties": {"x": {"typ": 1, "maxlength": 3}}}
    folder = make(tmp_path, artifacts={"note": schema})
    assert [finding.message for finding in lint_skill(folder)] == [
        "`proprties` is not a JSON Schema keyword",
        "`maxlength` is not a JSON Schema keyword",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "State your confidence: high or low.",
        "Keep x<y and z>w. Use a line break <br> where needed.",
        "- x-ray films\n- y-axis labels",
        "The number 1234567890123 is fine.",
    ],
)
def test_ordinary_english_has_no_findings(tmp_path: Path, body: str):
    fields = {"type": "object", "properties": {"x": {}, "y": {}}}
    assert lint(make(tmp_path, body=body, artifacts={"note": fields})) == []


def test_positions_in_instructions_include_indentation_and_blank_lines(tmp_path: Path):
    folder = make(tmp_path, body="   \n    see 2024-01-01")
    [finding] = lint_skill(folder)
    assert (finding.line, finding.column) == (8, 9)


def test_a_skill_given_by_path_uses_the_project_around_it(tmp_path: Path):
    folder = make(tmp_path)
    shared = tmp_path / "reyn" / "shared" / "phases"
    shared.mkdir(parents=True)
    (folder / "phases" / "b.md").rename(shared / "b.md")
    assert lint_skill(folder) == []


def unsupported(folder: Path) -> list[tuple[str, int, str, str]]:
    library = Library(folder.parent.parent.parent)
    findings = [finding for finding in lint_skill(folder, library) if finding.code == "RYN103"]
    return [(finding.file, finding.line, finding.severity, finding.message) for finding in findings]


@pytest.mark.parametrize(
    ("phase", "skill", "expected"),
    [
        (
            "preprocessor:\n  - validate: {schema: {}}\n  - run_op: {op: {kind: index_merge, source: x}}\n",
            "",
            (
                "phases/a.md",
                8,
                "a `run_op` step of `index_merge` cannot run: the op `index_merge` is reserved for a later version",
            ),
        ),
    ],
)
def test_a_feature_that_no_run_can_execute_is_an_error_at_its_line(
    tmp_path: Path, phase: str, skill: str, expected: tuple[str, int, str]
):
    file, line, message = expected
    assert unsupported(make(tmp_path, phase=phase, skill=skill)) == [(file, line, "error", message)]


def test_an_unavailable_feature_of_a_sub_skill_is_an_error_at_its_reference(tmp_path: Path):
    step = "preprocessor:\n  - run_op: {op: {kind: index_merge, source: x}}\n"
    write_skill(tmp_path, "inner", {"x": ["end"]}, phase_keys={"x": step})
    folder = write_skill(tmp_path, "s", {"a": ["@inner"], "@inner": ["end"]})
    message = "skill `inner` cannot run: the op `index_merge` is reserved for a later version"
    assert unsupported(folder) == [("skill.md", 6, "error", message)]


@pytest.mark.parametrize(("kind", "why"), [("mcp", "no op itself"), ("index_merge", "reserved for a later version")])
def test_a_reserved_op_in_allowed_ops_is_a_warning(tmp_path: Path, kind: str, why: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": f"file, {kind}"})
    message = f"op `{kind}` is {why}; Reyn does not offer it to the model"
    assert unsupported(folder) == [("phases/a.md", 5, "warning", message)]
    assert "RYN122" not in {finding.code for finding in lint_skill(folder)}


def test_a_form_of_an_op_is_no_op_and_the_fix_names_the_op(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file.write"})
    [finding] = lint_skill(folder)
    assert (finding.code, finding.fix) == (
        "RYN122", "write `file`, which allows all of its forms; permissions limit what they may act on",
    )  # fmt: skip


def test_an_unknown_permission_without_a_similar_one_names_all(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, skill_keys="permissions:\n  network: true\n")
    [finding] = lint_skill(folder)
    assert finding.code == "RYN137"
    assert {"`file.read`", "`web`"} <= set(str(finding.fix).removeprefix("use one of ").split(", "))


def test_a_missing_output_schema_does_not_hide_errors_in_the_steps(tmp_path: Path):
    skill = (
        "postprocessor:\n  steps:\n    - python: {module: ./gone.py, function: tally}\n"
        "    - validate: {schema: {type: strang}}\n    - validate: {schema: {}, target: data.nothing}\n"
    )
    assert lint(make(tmp_path, skill=skill)) == [
        ("skill.md", 2, "RYN126"),
        ("skill.md", 7, "RYN113"),
        ("skill.md", 9, "RYN125"),
        ("skill.md", 10, "RYN121"),
        ("skill.md", 11, "RYN124"),
    ]


def test_an_invalid_step_does_not_hide_path_errors_of_later_steps(tmp_path: Path):
    phase = (
        "preprocessor:\n"
        "  - python: {module: ./tally.py, into: data.tally}\n"
        "  - validate: {schema: {}, target: data.tally.lines}\n"
        "  - validate: {schema: {}, target: data.nothing}\n"
    )
    assert lint(make(tmp_path, phase=phase)) == [("phases/a.md", 7, "RYN113"), ("phases/a.md", 9, "RYN124")]


def test_nested_file_permissions_come_with_a_fix(tmp_path: Path):
    folder = make(tmp_path, skill="permissions: {file: {read: [{path: notes}]}}\n")
    [finding] = [finding for finding in lint_skill(folder) if finding.code == "RYN137"]
    assert (finding.severity, finding.fix) == ("error", "write `file.read:`")


def test_a_finding_has_the_conventional_format(tmp_path: Path):
    folder = make(tmp_path)
    path = folder / "phases" / "a.md"
    path.write_text(path.read_text().replace("allowed_ops", "allowed_op"))
    [finding] = lint_skill(folder)
    assert str(finding) == "phases/a.md:5:1: RYN112 unknown key `allowed_op`\n  did you mean `allowed_ops`?"


def test_a_name_that_differs_from_the_folder_is_a_warning(tmp_path: Path):
    folder = make(tmp_path)
    path = folder / "skill.md"
    path.write_text(path.read_text().replace("name: s", "name: other"))
    assert lint(folder) == [("skill.md", 3, "RYN115")]


def test_an_invalid_graph_gives_no_unreachable_phases(tmp_path: Path):
    folder = make(tmp_path)
    path = folder / "skill.md"
    path.write_text(path.read_text().replace('"b": ["end"]', '"b": "end"'))
    assert lint(folder) == [("skill.md", 6, "RYN114")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("Set `next_phase` to the writer.", "RYN130"),
        ("Set next_phase to the writer.", "RYN130"),
        ("Fill in the candidate_outputs.", "RYN130"),
        ("Then go to `b`.", "RYN130"),
        ("Write it to reports/summary.md.", "RYN131"),
        ("Dear [NAME], welcome.", "RYN131"),
        ("Dear {name}, welcome.", "RYN131"),
    ],
)
def test_each_literal_gives_one_finding(tmp_path: Path, body: str, code: str):
    assert [finding for _, _, finding in lint(make(tmp_path, body=body))] == [code]


TEXTS = {"a": NOTE | {"description": "one"}, "b": NOTE | {"description": "two"}}


def with_graph(tmp_path: Path, graph: str, phases: dict[str, str]) -> Path:
    """Write a skill whose graph is written as in a file."""
    folder = write_skill(tmp_path, "s", {name: ["end"] for name in phases}, artifacts=TEXTS, inputs=phases)
    path = folder / "skill.md"
    head, _, rest = path.read_text().partition("graph: ")
    path.write_text(f"{head}graph:\n{graph}---{rest.partition('---')[2]}")
    return folder


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ("  go: [x]\n", []),
        ("  go: {x: first, y: second}\n", []),
        ("  go: {x: first, y: second, end: third}\n", []),
        ("  go: [x, y]\n", [("skill.md", 7, "RYN144")]),
        ("  go:\n    - x\n    - y\n", [("skill.md", 8, "RYN144")]),
        ("  go:\n    x: first\n    y:\n", [("skill.md", 9, "RYN144")]),
        ("  go: [x, y]\n  x: [y, end]\n", [("skill.md", 7, "RYN144"), ("skill.md", 8, "RYN144")]),
        ("  go:\n    x: The  first!\n    y: the first\n", [("skill.md", 9, "RYN145")]),
        ("  go:\n    x: first\n    y: second\n    end: SECOND.\n", [("skill.md", 10, "RYN145")]),
        ("  go:\n    x: first\n    y: ｆｉｒｓｔ\n", [("skill.md", 9, "RYN145")]),  # noqa: RUF001 - looks like `first`
    ],
)
def test_each_of_several_candidates_needs_a_text_of_its_own(tmp_path: Path, graph: str, expected):
    folder = with_graph(tmp_path, graph, {"go": "note", "x": "a", "y": "b"})
    assert [finding for finding in lint(folder) if finding[2] != "RYN120"] == expected


def test_a_finish_that_is_not_in_the_graph_needs_a_text(tmp_path: Path):
    folder = with_graph(tmp_path, "  go: {x: first}\n", {"go": "note", "x": "a"})
    path = folder / "phases" / "go.md"
    path.write_text(path.read_text().replace("input:", "can_finish: true\ninput:"))
    assert lint(folder) == [("skill.md", 7, "RYN144")]


def test_members_of_a_union_need_descriptions_that_tell_them_apart(tmp_path: Path):
    folder = with_graph(tmp_path, "  go: {x: first, end: second}\n", {"go": "note", "x": "a | note"})
    assert lint(folder) == []
    (folder / "artifacts" / "a.yaml").write_text("{type: object, properties: {n: {type: integer}}}")
    assert lint(folder) == [("skill.md", 7, "RYN145")]


def test_members_of_a_union_that_is_the_only_successor_need_descriptions_as_well(tmp_path: Path):
    folder = with_graph(tmp_path, "  go: [x]\n", {"go": "note", "x": "a | b"})
    assert lint(folder) == []
    for name in "ab":
        (folder / "artifacts" / f"{name}.yaml").write_text(
            f"{{type: object, properties: {{{name}: {{type: integer}}}}}}"
        )
    assert lint(folder) == [("skill.md", 7, "RYN145")]


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ("[note, a]", []),
        ("[b]", [("phases/y.md", 6, "RYN146")]),  # only its own input, and there is no loop
        ("[note, b]", [("phases/y.md", 6, "RYN146")]),
        ("[user_message]", [("phases/y.md", 6, "RYN146")]),
        ("[nothing]", [("phases/y.md", 6, "RYN117"), ("phases/y.md", 6, "RYN146")]),
        ("a", [("phases/y.md", 6, "RYN114")]),
    ],
)
def test_a_phase_reads_what_a_path_to_it_produces(tmp_path: Path, reads: str, expected):
    graph = {"go": ["x"], "x": ["y"], "y": ["end"]}
    inputs = {"x": "a", "y": "b"}
    folder = write_skill(tmp_path, "s", graph, artifacts=TEXTS, inputs=inputs, phase_keys={"y": f"reads: {reads}\n"})
    assert lint(folder) == expected


def test_in_a_loop_a_phase_can_read_its_own_earlier_input(tmp_path: Path):
    graph = {"go": ["x"], "x": ["y"], "y": ["x"]}
    keys = {"y": "reads: [b]\ncan_finish: true\n"}
    folder = write_skill(tmp_path, "s", graph, artifacts=TEXTS, inputs={"x": "a", "y": "b"}, phase_keys=keys)
    assert [finding for finding in lint(folder) if finding[2] == "RYN146"] == []


HANDOFF = "context: {handoff_fields: [%s], narrative_cap: 100}\n"
RISKS = {"type": "object", "properties": {"open_risks": {"type": "array"}}}


@pytest.mark.parametrize(
    ("fields", "first", "warned"),
    [
        ("goal, decisions_made, narrative", "", []),
        ("open_risks", "", ["open_risks"]),
        ("goal, epic_id, verdicts, artifacts_produced", "", ["epic_id", "verdicts", "artifacts_produced"]),
        ("verdicts", "requires_approval: true\n", []),
        ("open_risks, epic_id", "context: {ask_handoff: true}\n", []),
    ],
)
def test_a_selected_handoff_field_needs_a_producer(tmp_path: Path, fields: str, first: str, warned: list[str]):
    folder = make(tmp_path, phase=first)
    page = folder / "phases" / "b.md"
    page.write_text(page.read_text().replace("name: b\n", f"name: b\n{HANDOFF % fields}"))
    found = [one for one in lint_skill(folder) if one.code == "RYN152"]
    assert [one.message for one in found] == [f"no earlier phase can produce `{field}`" for field in warned]
    assert {one.severity for one in found} <= {"warning"}


@pytest.mark.parametrize(("limit", "file"), [(3, "phases/b.md"), (3, "skill.md"), (500, "")])
def test_instructions_must_fit_into_the_prompt(tmp_path: Path, limit: int, file: str):
    folder = make(tmp_path)
    page = folder / (file or "phases/b.md")
    page.write_text(page.read_text().replace("\n---\n", f"\ncontext: {{max_prompt_tokens: {limit}}}\n---\n", 1))
    found = [one for one in lint_skill(folder) if one.code == "RYN154"]
    assert {Path(one.file).name for one in found} == ({Path(file).name} if file else set())
    assert all(f"`max_prompt_tokens` is {limit}" in one.message and one.severity == "warning" for one in found)


def test_artifacts_with_a_field_and_writing_ops_produce_it(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "s",
        {"a": ["b"], "b": ["end"]},
        artifacts={"plan": RISKS},
        inputs={"b": "plan"},
        ops={"a": "file"},
        phase_keys={"b": HANDOFF % "open_risks, artifacts_produced"},
    )
    assert [one for one in lint_skill(folder) if one.code == "RYN152"] == []


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ("{handoff_fields: [goals]}", [("RYN151", "no handoff field `goals`", "did you mean `goal`?")]),
        ("{max_token: 5}", [("RYN112", "unknown key `max_token`", "did you mean `max_tokens`?")]),
        (
            "{handoff_fields: [goal, narrative]}",
            [("RYN153", "`narrative` is omitted: `narrative_cap` is 0", "set `narrative_cap`")],
        ),
    ],
)
def test_a_context_that_selects_nothing_is_reported_at_its_place(
    tmp_path: Path, context: str, found: list[tuple[str, str, str]]
):
    folder = write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, phase_keys={"b": f"context: {context}\n"})
    findings = [one for one in lint_skill(folder) if one.file == "phases/b.md"]
    assert [(one.code, one.message, one.fix) for one in findings] == found
    assert findings[0].line == 6


@pytest.mark.parametrize("context", ["every", "[goal]", "{max_tokens: -1}", "{ask_handoff: 3}"])
def test_a_malformed_context_is_an_error(tmp_path: Path, context: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": f"context: {context}\n"})
    assert [(one.code, one.line) for one in lint_skill(folder) if one.severity == "error"] == [("RYN114", 6)]


@pytest.mark.parametrize(
    ("source", "where"),
    [
        (TALLY, "runs in Monty"),
        (f"import csv, statistics\n{TALLY}", "because it imports `statistics`"),
    ],
)
def test_the_sandbox_of_a_python_step_is_reported(tmp_path: Path, source: str, where: str):
    folder = make(tmp_path, phase=PYTHON, skill=PERMISSION)
    (folder / "tally.py").write_text(source)
    [finding] = lint_skill(folder, Library(tmp_path))
    assert (finding.code, finding.severity) == ("RYN170", "info")
    assert finding.message.startswith("`tally` of `./tally.py` in the preprocessor of `a` runs in")
    assert where in finding.message
    assert " info: " in str(finding)


def test_a_model_class_that_is_not_configured_is_reported_where_it_is_written(tmp_path: Path):
    folder = make(tmp_path, phase="model_class: strnog\n", skill="model_class: light\n")
    found = lint_skill(folder, Library(tmp_path), classes=["standard", "strong"])
    reported = {(one.file.rpartition("/")[2], one.code, one.severity, one.fix) for one in found}
    add = "add `light` to `models` in reyn.yaml, such as `light: openai:NAME`"
    assert ("skill.md", "RYN524", "warning", add) in reported
    assert any(code == "RYN524" and "strong" in fix for _, code, _, fix in reported)
    assert all(one.code != "RYN524" for one in lint_skill(folder, Library(tmp_path))), "no configuration is known"
    assert all(one.code != "RYN524" for one in lint_skill(folder, Library(tmp_path), classes=["light", "strnog"]))


@pytest.mark.parametrize(
    ("keys", "shape", "start"),
    [(FOREIGN_IN_PHASE, PhaseFrontMatter, "phase"), (FOREIGN_IN_SKILL, SkillFrontMatter, "skill")],
)
def test_keys_of_other_programs_have_a_fix_of_their_own(tmp_path: Path, keys: dict[str, str], shape: type, start: str):
    known = {field.encode_name for field in fields_of(shape)}
    assert known.isdisjoint(keys)
    file = "phases/a.md" if start == "phase" else "skill.md"
    folder = write_skill(tmp_path, "s", {"a": ["end"]})
    text = (folder / file).read_text()
    for key, fix in keys.items():
        (folder / file).write_text(text.replace("\n---", f"\n{key}: x\n---", 1))
        [finding] = [one for one in lint_skill(folder) if one.code == "RYN112"]
        assert (finding.file, finding.message, finding.fix) == (file, f"unknown key `{key}`", fix)


@pytest.mark.parametrize("key", [field.encode_name for field in fields_of(PhaseFrontMatter)])
def test_a_longer_name_of_a_key_suggests_the_key(tmp_path: Path, key: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": f"my_own_{key}_here: x\n"})
    [finding] = [one for one in lint_skill(folder) if one.code == "RYN112"]
    assert finding.fix == f"did you mean `{key}`?"


@pytest.mark.parametrize(
    ("file", "fix"),
    [
        ("artifacts/a.md", "write its schema to `artifacts/a.yaml`; Reyn does not read `artifacts/a.md`"),
        ("artifacts/a.yml", "rename `artifacts/a.yml` to `artifacts/a.yaml`"),
        ("artifacts/a.json", "rename `artifacts/a.json` to `artifacts/a.yaml`"),
        ("artifacts/a", "write its schema to `artifacts/a.yaml`; Reyn does not read `artifacts/a`"),
        ("phases/b.txt", "write its front matter and instructions to `phases/b.md`; Reyn does not read `phases/b.txt`"),
        ("phases/b.markdown", "rename `phases/b.markdown` to `phases/b.md`"),
        ("artifacts/.a.yaml.swp", ""),
        ("phases/a.md~", ""),
    ],
)
def test_a_file_that_is_not_read_is_named(tmp_path: Path, file: str, fix: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, inputs={"a": "a" if file.startswith("art") else "note"})
    (folder / file).write_text("---\nname: a\n---\n")
    found = [(one.file, one.severity, one.fix) for one in lint_skill(folder) if one.code == "RYN188"]
    assert found == ([(file, "warning", fix)] if fix else [])
    unknown = [one.fix for one in lint_skill(folder) if one.code == "RYN117"]
    assert not fix or not unknown or unknown == [fix]


ARROWS = ("->", "-->", "=>", "==>", "\u2192", "\u21d2", "\u279c", "-->|if so|")


@pytest.mark.parametrize("arrow", ARROWS)
@pytest.mark.parametrize("quote", ["", "`", "**", '"'])
def test_an_edge_that_the_text_draws_and_the_graph_does_not_have_is_named(tmp_path: Path, arrow: str, quote: str):
    folder = write_skill(tmp_path, "s", {"draft": ["review"], "review": ["end"]})
    drawn = f"{arrow}".join(f"{quote}{name}{quote} " for name in ("draft", "review", "draft"))
    skill = folder / "skill.md"
    skill.write_text(f"{skill.read_text()}\nFlow: {drawn}, review {arrow} end, note {arrow} draft\n")
    [finding] = [one for one in lint_skill(folder) if one.code == "RYN189"]
    assert finding.message == "the text draws an edge that `graph` does not have: `review -> draft`"
    assert finding.fix == "add it under `graph`: `review: [draft]`; Reyn does not read the text"
    phase = folder / "phases/draft.md"
    phase.write_text(f"{phase.read_text()}Then {quote}draft{quote} {arrow} {quote}review{quote}.\n")
    drawing = "the instructions draw the graph: `draft -> review`"
    assert [one.message for one in lint_skill(folder) if "draw the graph" in one.message] == [drawing]


def test_a_skill_without_a_graph_has_its_drawing_named(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"draft": ["review"], "review": ["end"]})
    skill = folder / "skill.md"
    skill.write_text(re.sub("graph: .*\n", "", skill.read_text()) + "draft -> review -> end\n")
    assert [one.message for one in lint_skill(folder) if one.code == "RYN189"] == [
        f"the text draws an edge that `graph` does not have: `{edge}`" for edge in ("draft -> review", "review -> end")
    ]


@pytest.mark.parametrize(
    ("yaml", "splits"),
    [
        ("{description: Index, starting with 0}", ["'Index, starting with 0'"]),
        ("{description: Index, starting with 0, type: integer}", ["'Index, starting with 0'"]),
        ("{type: integer, description: Index, starting, with 0}", ["'Index, starting'", "'Index, with 0'"]),
        ("{description: It's new, or old}", ['"It\'s new, or old"']),
        ("{description: 'Index, starting with 0'}", []),
        ("{description: 'Index', title}", []),
        ("{description: Index, title: }", []),
        ("{description: Index, title: null}", []),
        ("{type: integer, description: Index}", []),
        ("{enum: [a, b, c]}", []),
        ("{description: Index}", []),
    ],
)
def test_a_comma_that_splits_a_text_in_braces_is_a_warning(tmp_path: Path, yaml: str, splits: list[str]):
    folder = write_skill(tmp_path, "s", {"a": ["end"]})
    (folder / "artifacts/note.yaml").write_text(f"type: object\nproperties:\n  n: {yaml}\n")
    found = [one for one in lint_skill(folder) if one.code == "RYN190"]
    assert [(one.file, one.line, one.severity) for one in found] == [("artifacts/note.yaml", 3, "warning")] * len(
        splits
    )
    assert [one.fix for one in found] == [f"quote the text: `description: {text}`" for text in splits]


@pytest.mark.parametrize("key", ["fields", "parameters", "input_schema", "output_schema"])
def test_other_names_of_properties_are_named(tmp_path: Path, key: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, artifacts={"note": {"type": "object", key: {"text": {}}}})
    [finding] = [one for one in lint_skill(folder) if one.code == "RYN112"]
    assert finding.message == f"`{key}` is not a JSON Schema keyword"
    assert finding.fix in ("write `properties`", "write the schema itself")
