"""A refused call leaves no state behind: no `.reyn` folder, no run."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.errors import (
    ArchiveInvalid,
    BlobMissing,
    InputInvalid,
    ModelError,
    ReynError,
    RunIdInvalid,
    RunNotFound,
    ScriptInvalid,
    SkillInvalid,
    SkillNotFound,
    SkillUnsupported,
)
from reyn.testing import ScriptedModel
from tests.support import finish, write_skill

IN = {"text": "in"}


def open_project(root: Path, *, model: object = "scripted:answers.jsonl", **settings: object) -> SyncRuntime:
    (root / "answers.jsonl").write_text("")
    return SyncRuntime.open(root, model=model, **settings)


@pytest.mark.parametrize(
    ("skill", "value", "options", "error"),
    [
        ("missing", IN, {}, SkillNotFound),
        ("./missing", IN, {}, SkillNotFound),
        ("broken", IN, {}, SkillInvalid),
        ("missing-op", IN, {}, SkillInvalid),
        ("unsupported", IN, {}, SkillUnsupported),
        ("pair", {"text": 1}, {}, InputInvalid),
        ("pair", [1], {}, InputInvalid),
        ("pair", {"text": float("nan")}, {}, InputInvalid),
        ("pair", IN, {"model": "nonsense"}, ModelError),
        ("pair", IN, {"model": ""}, ModelError),
        ("pair", IN, {"model": "scripted:missing.jsonl"}, ScriptInvalid),
        ("pair", IN, {"model": "local:missing.gguf"}, ModelError),
        ("pair", IN, {"model": "recorded:missing"}, RunNotFound),
        ("pair", IN, {"run_id": "../up"}, RunIdInvalid),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_refused_run_creates_no_state_folder(
    project: Path, skill: str, value: object, options: dict[str, str], error: type[ReynError]
):
    broken = write_skill(project, "broken", {"a": ["end"]})
    (broken / "phases" / "a.md").unlink()
    write_skill(project, "missing-op", {"a": ["end"]}, ops={"a": "teleport"})
    step = "preprocessor: [{run_op: {op: {kind: index_merge, source: x}}}]\n"
    write_skill(project, "unsupported", {"a": ["end"]}, phase_keys={"a": step})
    run_id = options.pop("run_id", None)
    with open_project(project, **options) as rt, pytest.raises(error):
        rt.run(skill, value, run_id=run_id)
    assert not (project / ".reyn").exists()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda rt: rt.resume("missing"), RunNotFound),
        (lambda rt: rt.fork("missing"), RunNotFound),
        (lambda rt: rt.rerun("missing"), RunNotFound),
        (lambda rt: rt.answer("missing", "1.1.1", "yes"), RunNotFound),
        (lambda rt: rt.cancel("missing"), RunNotFound),
        (lambda rt: rt.runs.undo("missing"), RunNotFound),
        (lambda rt: rt.runs.changed_files("missing"), RunNotFound),
        (lambda rt: rt.runs.replay("missing"), RunNotFound),
        (lambda rt: rt.runs.content("0" * 64), BlobMissing),
        (lambda rt: rt.runs.import_([b"not an archive\n"]), ArchiveInvalid),
    ],
)
def test_an_operation_on_a_missing_run_creates_no_state_folder(
    project: Path, call: Callable[[SyncRuntime], object], error: type[ReynError]
):
    with open_project(project) as rt, pytest.raises(error):
        call(rt)
    assert not (project / ".reyn").exists()


def test_reading_a_project_without_runs_creates_no_state_folder(project: Path):
    with open_project(project) as rt:
        assert rt.runs.all() == []
        assert not rt.runs.is_recorded("missing")
        rt.project.models()
    assert not (project / ".reyn").exists()


def test_runs_are_readable_by_the_runtime_that_recorded_the_first_one(project: Path):
    with SyncRuntime.open(project, model=ScriptedModel([])) as rt:
        assert rt.runs.all() == []
        assert rt.run("pair", IN, run_id="k").status == "failed"
        assert [row.run_id for row in rt.runs.all()] == ["k"]


def test_a_traceback_shows_the_code_and_the_hint_of_an_error():
    error = InputInvalid("the input is not a valid `note`", hint="Pass text.")
    assert traceback.format_exception(error)[-3:] == [
        "reyn.errors.InputInvalid: the input is not a valid `note`\n",
        "code: RYN201\n",
        "fix: Pass text.\n",
    ]
    error.set_hint("Pass a note.")
    assert traceback.format_exception(error)[-1] == "fix: Pass a note.\n"
    assert str(error) == "the input is not a valid `note`"


def test_a_misspelt_optional_field_of_the_input_is_a_warning(tmp_path: Path):
    guest = {"type": "object", "properties": {"name": {"type": "string"}, "occasion": {"type": "string"}}}
    write_skill(tmp_path, "greet", {"a": ["end"]}, inputs={"a": "guest"}, artifacts={"guest": guest})
    with open_project(tmp_path, model=ScriptedModel([finish()])) as rt:
        result = rt.run("greet", {"name": "Ada", "ocasion": "harvest", "x": 1})
    assert result.warnings == (
        "the input has the field `ocasion`, which `guest` does not declare; did you mean `occasion`?",
    )
