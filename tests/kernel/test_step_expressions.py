"""Expressions in texts of steps, and values that only later steps see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn.lint import lint_skill
from tests.kernel.support import Project
from tests.support import NOTE, finish, write_skill

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "count": {"type": "integer"},
        "limit": {"type": "integer"},
        "part": {"type": "number"},
        "maybe": {"type": ["string", "null"]},
        "mode": {"enum": ["fast", "slow"]},
        "names": {"type": "array", "items": {"type": "string"}},
        "found": {},
    },
    "required": ["id", "count", "names", "part", "maybe", "mode"],
    "additionalProperties": False,
}
VALUE = {"id": "7", "count": 2, "names": ["a", "b"], "part": 0.5, "maybe": None, "mode": "fast"}


def write_order(root: Path, *steps: str, skill_keys: str = "") -> Path:
    listed = "".join(f"  - {step}\n" for step in steps)
    return write_skill(
        root,
        "order",
        {"work": ["end"]},
        inputs={"work": "order"},
        artifacts={"order": ORDER},
        phase_keys={"work": f"preprocessor:\n{listed}"},
        skill_keys=skill_keys,
    )


def findings(folder: Path) -> list[str]:
    return [f"{one.file} {one.code} {one.message}" for one in lint_skill(folder) if one.severity != "info"]


def args_of(project: Project, kind: str = "file_started") -> list[Any]:
    return [json.loads(project.journal.blob(event["args"])) for event in project.events(kind)]


WRITE = 'run_op: {op: {kind: file, op: write, path: "output/${data.id}.md", content: "${data.count} of ${data.id}"}}'


def test_arguments_of_an_op_have_expressions(tmp_path: Path):
    assert findings(write_order(tmp_path, WRITE)) == []
    project = Project(tmp_path)
    assert project.run("order", [finish()], VALUE).status == "finished"
    assert (tmp_path / "output" / "7.md").read_text() == "2 of 7"
    assert project.is_sound()


def test_an_argument_that_is_one_expression_has_its_type(tmp_path: Path):
    read = 'run_op: {op: {kind: file, op: read, path: "notes.txt", limit: "${data.count}"}, into: local.notes}'
    assert findings(write_order(tmp_path, read)) == []
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    project = Project(tmp_path)
    assert project.run("order", [finish()], VALUE).status == "finished"
    assert args_of(project) == [{"kind": "file", "op": "read", "path": "notes.txt", "limit": 2}]
    assert project.is_sound()


def test_what_a_step_binds_to_local_reaches_later_steps_and_not_the_model(tmp_path: Path):
    read = "run_op: {op: {kind: file, op: read, path: notes.txt}, into: local.notes}"
    write = 'run_op: {op: {kind: file, op: write, path: output/copy.md, content: "${local.notes.status}"}}'
    assert findings(write_order(tmp_path, read, write)) == []
    (tmp_path / "notes.txt").write_text("a secret plan\n")
    project = Project(tmp_path)
    assert project.run("order", [finish()], VALUE).status == "finished"
    assert (tmp_path / "output" / "copy.md").read_text() == "ok"
    assert "secret plan" not in project.model.turn_message(0)
    assert "local" not in project.model.turn_message(0)
    assert project.is_sound()


def test_items_of_an_iteration_have_expressions(tmp_path: Path):
    inner = 'run_op: {op: {kind: file, op: write, path: "output/${_iter.item}${_iter.index}.md", content: x}}'
    assert findings(write_order(tmp_path, f"iterate: {{over: data.names, apply: {{{inner}}}}}")) == []
    project = Project(tmp_path)
    assert project.run("order", [finish()], VALUE).status == "finished"
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["a0.md", "b1.md"]
    assert project.is_sound()


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_input_of_a_sub_run_has_expressions_whose_values_are_no_paths(tmp_path: Path, concurrency: int):
    write_skill(tmp_path, "child", {"c": ["end"]})
    inner = 'run_skill: {skill: child, input: {text: "${_iter.item}"}}'
    step = f"iterate: {{over: data.names, apply: {{{inner}}}, concurrency: {concurrency}, into: data.found}}"
    assert findings(write_order(tmp_path, step)) == []
    project = Project(tmp_path)
    value = VALUE | {"names": ["data.id", "hello"]}
    assert project.run("order", [finish("1"), finish("2"), finish()], value).status == "finished"
    inputs = [json.loads(project.journal.blob(event["input"]["hash"])) for event in project.events("child_started")]
    assert [one["data"]["text"] for one in inputs] == ["data.id", "hello"]
    assert project.is_sound()


def test_an_expression_without_a_value_fails_the_visit_whatever_the_step_says(tmp_path: Path):
    write = 'run_op: {op: {kind: file, op: read, path: "${data.names[5]}"}, into: data.found, on_error: empty}'
    write_order(tmp_path, write)
    project = Project(tmp_path)
    result = project.run("order", [finish()], VALUE)
    assert (result.status, result.code) == ("failed", "RYN203")
    assert "`op.path`, `${data.names[5]}`, column 15: " in result.reason
    assert "(`data.names[5]`" not in result.reason  # it has no value that could be named
    assert project.is_sound()


@pytest.mark.parametrize(
    ("step", "finding"),
    [
        (WRITE.replace("data.id}.md", "data.idd}.md"), "phases/work.md RYN181 column 15: `data` has no field `idd`"),
        (WRITE.replace("${data.count}", "${data.limit}"), "phases/work.md RYN182"),
        (WRITE.replace("${data.count}", "${data.names}"), "phases/work.md RYN181"),
        (WRITE.replace("${data.count}", "${local.x}"), "phases/work.md RYN181"),
        ("validate: {schema: {type: object}, into: local}", "phases/work.md RYN124"),
    ],
)
def test_expressions_of_steps_are_checked(tmp_path: Path, step: str, finding: str):
    found = findings(write_order(tmp_path, step))
    assert any(one.startswith(finding) for one in found), found


CASES = {
    '{kind: file, op: read, path: "${data.count}"}': "`path` of `file`: the value is an integer",
    '{kind: file, op: read, path: "${data.names}"}': "`path` of `file`: the value is a list",
    '{kind: file, op: read, path: a, limit: "${data.id}"}': "`limit` of `file`: the value is a text",
    '{kind: file, op: read, path: a, limit: "x${data.count}"}': "`limit` of `file`: the value is a text",
    '{kind: file, op: read, path: "${data.count}.md"}': "",
    '{kind: file, op: read, path: "${has(data.found) ? data.found : 1}"}': "",
    '{kind: file, op: read, path: a, limit: "${data.count}"}': "",
}
PATHS = {
    "{path: data.count}": "`path` of `file`: the value is an integer",
    "{path: data.id, limit: data.names}": "`limit` of `file`: the value is a list",
    "{path: data.id, limit: data.count}": "",
}
INPUTS = {
    '{text: "${data.count}"}': "the value is an integer, but the schema needs a text",
    "{text: data.count}": "the value is an integer, but the schema needs a text",
    "{text: 5}": "the value is an integer, but the schema needs a text",
    "{txt: data.id}": "the field `text` is missing",
    "data.count": "it is an integer; a run takes text or an object",
    "data.names": "it is a list; a run takes text or an object",
    "hello": "text is a `user_message`, but the skill takes `note`",
    "{type: nte, data: {text: x}}": "it is a `nte`, but the skill takes `note`",
    "{type: note, data: {text: x}}": "",
    '{text: "${data.id}", more: 1}': "",
    "data": "",
    "{text: x, size: small}": "the value is 'small', but the schema has 'large', 'huge'",
    "{text: x, size: data.mode}": "the value is 'fast' or 'slow', but the schema has 'large', 'huge'",
    "{text: x, size: large}": "",
}
DOUBTFUL = {
    'run_op: {op: {kind: file, op: read, path: "${data.maybe}"}}': "can be null, but the schema needs a text",
    "run_op: {op: {kind: file, op: read}, args_from: {path: data.maybe}}": "can be null, but the schema needs a text",
    'run_op: {op: {kind: file, op: read, path: a, limit: "${data.part}"}}': "the schema needs an integer",
    'run_skill: {skill: child, input: {text: "${data.maybe}"}}': "can be null, but the schema needs a text",
    "run_skill: {skill: child, input: {text: data.maybe}}": "can be null, but the schema needs a text",
}


@pytest.mark.parametrize("iterated", [False, True], ids=["step", "item"])
@pytest.mark.parametrize(
    ("step", "says"),
    [
        *((f"run_op: {{op: {op}}}", says) for op, says in CASES.items()),
        *((f"run_op: {{op: {{kind: file, op: read}}, args_from: {paths}}}", says) for paths, says in PATHS.items()),
        *((f"run_skill: {{skill: child, input: {value}}}", says) for value, says in INPUTS.items()),
    ],
)
def test_lint_compares_values_with_the_schema_of_the_op_or_the_skill(
    tmp_path: Path, step: str, says: str, iterated: bool
):
    sized = NOTE | {"properties": NOTE["properties"] | {"size": {"enum": ["large", "huge"]}}}
    write_skill(tmp_path, "child", {"c": ["end"]}, artifacts={"note": sized})
    found = findings(write_order(tmp_path, f"iterate: {{over: data.names, apply: {{{step}}}}}" if iterated else step))
    assert [says in one and "RYN181" in one for one in found] == ([True] if says else [])


@pytest.mark.parametrize("step", DOUBTFUL)
def test_a_value_that_fits_only_sometimes_is_a_warning(tmp_path: Path, step: str):
    write_skill(tmp_path, "child", {"c": ["end"]})
    [found] = lint_skill(write_order(tmp_path, step))
    assert (found.severity, found.code) == ("warning", "RYN182")
    assert DOUBTFUL[step] in found.message


def test_a_step_whose_failure_the_skill_accepts_has_a_warning(tmp_path: Path):
    step = 'run_op: {op: {kind: file, op: read, path: "${data.count}"}, on_error: skip}'
    [found] = lint_skill(write_order(tmp_path, step))
    assert (found.severity, found.code) == ("warning", "RYN181")
    assert Project(tmp_path).run("order", [finish()], VALUE).ok
