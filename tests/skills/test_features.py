"""Unavailable features: what prevents a run from starting, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.context import static_text
from reyn.context.frame import stable_frame
from reyn.contract import candidates_of
from reyn.errors import OpInvalid, SkillUnsupported
from reyn.ops import standard_ops
from reyn.skills.inputs import unavailable_features
from reyn.testing import MemoryJournal, ScriptedModel
from tests.support import VOCABULARY, act, file, finish, load_skill, write_skill

IN = {"text": "in"}


@pytest.mark.parametrize("kind", ["index_merge", "index_sort"])
def test_a_phase_that_allows_a_reserved_op_runs_and_the_op_is_rejected_when_used(tmp_path: Path, kind: str):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": f"file, {kind}"}, skill_keys="permissions: {web: {}}\n")
    (tmp_path / "notes.txt").write_text("hello")
    model = ScriptedModel([act({"kind": kind}), act(file("read", "notes.txt")), finish()])
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
        result = rt.run("s", IN)
        assert result.ok
        [rejection] = [event.data for event in rt.runs.events(result.run_id) if event.kind == "validation_error"]
        assert (rejection["class"], rejection["path"]) == ("ops", "$.control_ir[0].kind")
        assert f"{kind!r} is not offered here" in rejection["message"]
        assert rt.runs.replay(result.run_id).status == "finished"


def test_a_phase_that_allows_only_a_reserved_op_runs_without_ops(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "index_merge"})
    with SyncRuntime.open(tmp_path, model=ScriptedModel([finish()]), journal=MemoryJournal()) as rt:
        assert rt.run("s", IN).ok


def test_a_run_op_step_of_a_reserved_op_prevents_the_run(tmp_path: Path):
    steps = "preprocessor: [{run_op: {op: {kind: index_merge, texts: [x]}}}]\n"
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": steps})
    [feature] = unavailable_features(load_skill(folder), VOCABULARY)
    assert str(feature) == "a `run_op` step of `index_merge` in phase `a`"
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal()) as rt:
        with pytest.raises(SkillUnsupported, match="the op `index_merge` is reserved for a later version"):
            rt.run("s", IN)
        assert rt.runs.all() == []


def test_an_optional_run_op_step_of_a_reserved_op_is_skipped(tmp_path: Path):
    steps = "preprocessor: [{run_op: {op: {kind: index_merge, texts: [x]}, on_error: skip}}]\n"
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": steps})
    [feature] = unavailable_features(load_skill(folder), VOCABULARY)
    assert feature.is_optional
    with SyncRuntime.open(tmp_path, model=ScriptedModel([finish()]), journal=MemoryJournal()) as rt:
        result = rt.run("s", IN)
        [step] = [event.data for event in rt.runs.events(result.run_id) if event.kind == "step_completed"]
        assert (result.status, step["status"]) == ("finished", "skipped")
        assert rt.runs.replay(result.run_id).status == "finished"


@pytest.mark.parametrize("kind", ["index_docs", "mcp"])
def test_a_package_cannot_register_a_reserved_kind(kind: str):
    class Op:
        spec = standard_ops().vocabulary.op("file")
        plan = perform = staticmethod(lambda *_: None)

    import msgspec

    op = Op()
    op.spec = msgspec.structs.replace(op.spec, kind=kind)
    with pytest.raises(OpInvalid, match="the name is reserved"):
        standard_ops().with_ops(op)


def test_the_prompt_contains_the_instructions_verbatim(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["end"]})
    path = folder / "phases" / "a.md"
    path.write_text(path.read_text().replace("Do what a does.\n", "\n  Do it.  \n\n \n"))
    skill = load_skill(folder)
    frame = stable_frame(skill, "a", candidates_of(skill, "a"), max_phase_visits=None, output_language=None)
    assert frame.instructions == "\n  Do it.  \n\n \n"
    assert static_text(frame, "short").startswith(frame.instructions)
