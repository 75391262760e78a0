"""`first_frame` shows the text that a run sends, and the documented JSON object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.errors import InputInvalid
from reyn.journal import MemoryJournal
from reyn.testing import ScriptedModel
from tests.kernel.test_fan_out import LIST, write_report
from tests.support import act, file, finish, go, write_skill

KEYS = [
    "current_phase",
    "current_phase_role",
    "instructions",
    "input_artifact",
    "execution",
    "candidate_outputs",
    "finish_criteria",
    "constraints",
    "available_control_ops",
    "output_language",
]
LONG = {"text": "long " * 200}
OTHER = {"type": "object", "properties": {"zeta": {"type": "string"}, "alpha": {"type": "integer"}}}
VALIDATE = "preprocessor:\n  - validate: {schema: {type: object}, target: data, into: data.findings}\n"
READ = "preprocessor:\n  - run_op: {op: {kind: file, op: read, path: a.md}, into: data.file}\n"


def project(root: Path, **keys: Any) -> Path:
    write_skill(root, "s", {"write": ["check"], "check": ["write", "end"]}, **keys)
    return root


def open_runtime(root: Path, **settings: Any) -> SyncRuntime:
    model = ScriptedModel([go("check"), finish()])
    return SyncRuntime.open(root, model=model, journal=MemoryJournal(), **settings)


def recorded_frame(rt: SyncRuntime, input: Any) -> list[tuple[str, str]]:
    """The messages of the first frame of a run, without the answer."""
    result = rt.run("s", input)
    seq = next(event.seq for event in rt.runs.events(result.run_id) if event.kind == "frame_built")
    return rt.runs.prompt_at(result.run_id, seq)[:-1]


CASES: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "plain": ({}, {"text": "in"}, {}),
    "ops": ({"ops": {"write": "file, ask_user"}}, {"text": "in"}, {}),
    "ops_capped": ({"ops": {"write": "file"}}, {"text": "in"}, {"max_act_turns": 0}),
    "no_act_turns": (
        {"ops": {"write": "file"}, "phase_keys": {"write": "max_act_turns: 0\n"}},
        {"text": "in"},
        {},
    ),
    "union": (
        {"inputs": {"write": "note | other"}, "artifacts": {"other": OTHER}},
        {"type": "other", "data": {"zeta": "z", "alpha": 1}},
        {},
    ),
    "large": ({}, LONG, {"sizes": {"input_bytes": 200}}),
    "large_with_ops": ({"ops": {"write": "file"}}, LONG, {"sizes": {"input_bytes": 200}}),
    "large_with_other_ops": ({"ops": {"write": "ask_user"}}, LONG, {"sizes": {"input_bytes": 200}}),
    "criteria": (
        {"skill_keys": "finish_criteria: [it is short]\n", "phase_keys": {"write": "can_finish: true\n"}},
        {"text": "in"},
        {},
    ),
    "language": ({"phase_keys": {"write": "role: author\n"}}, {"text": "in"}, {"output_language": "fr"}),
    "visits": ({}, {"text": "in"}, {"max_phase_visits": 7}),
    "no_visit_cap": ({}, {"text": "in"}, {"max_phase_visits": None}),
    "preprocessor": ({"phase_keys": {"write": VALIDATE}}, {"text": "in"}, {}),
    "token_limit": ({}, {"text": "in"}, {"limits": {"tokens": 1}}),
    "unicode": ({}, {"text": "åé\u2028\n\n"}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_first_frame_is_the_frame_that_a_run_records(tmp_path: Path, case: str):
    keys, data, settings = CASES[case]
    with open_runtime(project(tmp_path, **keys), **settings) as rt:
        frame = rt.project.first_frame("s", data)
        assert list(frame.messages) == recorded_frame(rt, data)
        assert frame.warnings == ()


def test_first_frame_records_nothing(tmp_path: Path):
    with open_runtime(project(tmp_path)) as rt:
        rt.project.first_frame("s", {"text": "in"})
        assert rt.runs.all() == []
    assert not (tmp_path / ".reyn").exists()


@pytest.mark.parametrize("case", CASES)
def test_frame_json_has_the_documented_keys_and_agrees_with_the_text(tmp_path: Path, case: str):
    keys, data, settings = CASES[case]
    with open_runtime(project(tmp_path, **keys), **settings) as rt:
        frame = rt.project.first_frame("s", data)
    value, (_, system), *_, (_, user) = frame.as_json(), *frame.messages
    has_turns = "remaining_act_turns" in value
    assert list(value) == [*KEYS, *(["remaining_act_turns"] if has_turns else [])]
    assert ("Turns with ops left" in user) == has_turns
    assert not has_turns or f"Turns with ops left: {value['remaining_act_turns']}." in user
    assert value["execution"] == {"path": ("write",), "current_visit": 1, "total_steps": 1}
    assert bool(value["available_control_ops"]) == (
        "If something has to be looked up, changed or stored first:" in system
    )
    assert all(set(op) == {"kind", "description", "example"} for op in value["available_control_ops"])


def test_frame_json_holds_a_large_input_whole(tmp_path: Path):
    with open_runtime(project(tmp_path), sizes={"input_bytes": 200}) as rt:
        frame = rt.project.first_frame("s", LONG)
    assert frame.as_json()["input_artifact"] == {"type": "note", "data": LONG}
    assert "workspace:.full/1.input" in frame.messages[1][1]


def test_frame_json_holds_the_enriched_input(tmp_path: Path):
    with open_runtime(project(tmp_path, phase_keys={"write": VALIDATE})) as rt:
        assert rt.project.first_frame("s", {"text": "in"}).input_artifact["data"] == {"text": "in", "findings": []}


STEPS = {
    "read": "run_op: {op: {kind: file, op: read, path: a.md}, into: data.found}",
    "glob": 'run_op: {op: {kind: file, op: glob, pattern: "*.md"}, into: data.found}',
    "grep": 'run_op: {op: {kind: file, op: grep, pattern: hours, path: "."}, into: data.found}',
    "recall": "run_op: {op: {kind: recall, query: hours}, into: data.found}",
    "python": "python: {module: ./m.py, function: f, into: data.found, output_schema: {type: integer}}",
}


@pytest.mark.parametrize("step", STEPS)
def test_preprocessor_steps_that_only_read_are_executed(tmp_path: Path, step: str):
    permissions = "permissions: {python: [{module: ./m.py, function: f}]}\n" if step == "python" else ""
    keys = {"write": f"preprocessor:\n  - {STEPS[step]}\n"}
    project(tmp_path, phase_keys=keys, skill_keys=permissions)
    (tmp_path / "reyn/project/s/m.py").write_text("def f(artifact):\n    return 7\n")
    (tmp_path / "a.md").write_text("the hours")
    data = {"text": "in"}
    with open_runtime(tmp_path) as rt:
        frame = rt.project.first_frame("s", data)
        assert frame.warnings == ()
        assert "found" in frame.input_artifact["data"]
        assert rt.runs.all() == []
        assert list(frame.messages) == recorded_frame(rt, data)
    assert not (tmp_path / ".reyn/journal.db").exists()


def test_a_preview_reads_what_the_gate_allows(tmp_path: Path):
    project(tmp_path, phase_keys={"write": READ})
    (tmp_path / "a.md").write_text("the hours")
    for rule, reason in (("deny", "op status `denied`"), ("ask", "a step asks a person")):
        with open_runtime(tmp_path, permissions={"file.read": [{rule: "./a.md"}]}) as rt:
            frame = rt.project.first_frame("s", {"text": "in"})
        [warning] = frame.warnings
        assert reason in warning
        assert "the hours" not in frame.messages[1][1]


def test_a_preview_opens_no_journal(tmp_path: Path):
    project(tmp_path, phase_keys={"write": READ})
    (tmp_path / "a.md").write_text("the hours")
    with SyncRuntime.open(tmp_path, model=ScriptedModel([])) as rt:
        assert rt.project.first_frame("s", {"text": "in"}).warnings == ()
    assert not (tmp_path / ".reyn").exists()


def test_a_preprocessor_with_side_effects_is_not_executed_and_warned_about(tmp_path: Path):
    write = READ.replace("read, path: a.md", "write, path: output/a.md, content: x")
    with open_runtime(project(tmp_path, phase_keys={"write": write})) as rt:
        frame = rt.project.first_frame("s", {"text": "in"})
    assert not (tmp_path / "output").exists()
    assert frame.input_artifact == {"type": "note", "data": {"text": "in"}}
    assert frame.warnings == ("the preprocessor of phase `write` was not executed: a step has side effects",)


def test_a_preprocessor_that_fails_on_the_input_is_warned_about(tmp_path: Path):
    keys = {"write": "preprocessor:\n  - validate: {schema: {required: [text]}, target: data}\n"}
    with open_runtime(project(tmp_path, phase_keys=keys)) as rt:
        [warning] = rt.project.first_frame("s").warnings
    assert warning.startswith("the preprocessor of phase `write` was not executed: ")
    assert "data" in warning


def test_first_frame_of_another_phase(tmp_path: Path):
    write_skill(
        tmp_path,
        "s",
        {"write": ["check"], "check": ["end"]},
        artifacts={"other": OTHER},
        inputs={"check": "other"},
    )
    with open_runtime(tmp_path) as rt:
        frame = rt.project.first_frame("s", {"zeta": "z"}, phase="check")
        assert frame.stable.current_phase == "check"
        assert frame.input_artifact == {"type": "other", "data": {"zeta": "z"}}
        assert frame.execution.path == ("check",)
        with pytest.raises(InputInvalid):
            rt.project.first_frame("s", {"type": "note", "data": {"text": "in"}}, phase="check")
        with pytest.raises(InputInvalid, match="skill `s`: there is no phase `chek`") as error:
            rt.project.first_frame("s", {"zeta": "z"}, phase="chek")
        assert error.value.hint == "Its phases are: write, check."


def test_a_node_that_runs_a_skill_has_no_frame(tmp_path: Path):
    project(tmp_path)
    write_skill(tmp_path, "outer", {"@s": ["last"], "last": ["end"]})
    with open_runtime(tmp_path) as rt, pytest.raises(InputInvalid, match="node `@s` runs another skill"):
        rt.project.first_frame("outer", {"text": "in"})


@pytest.mark.parametrize(
    "node", ["{each: {in: data.items, do: write, output: note}, as: drafts}", "{all: {one: '@t'}, as: drafts}"]
)
def test_a_node_that_runs_branches_has_no_frame(tmp_path: Path, node: str):
    write_skill(tmp_path, "t", {"t": ["end"]}, inputs={"t": "plan"}, artifacts={"plan": LIST})
    write_report(tmp_path, node)
    with open_runtime(tmp_path) as rt:
        for phase in (None, "sections"):
            with pytest.raises(InputInvalid, match="node `sections` runs branches and calls no model") as error:
                rt.project.first_frame("report", phase=phase)
            assert "sections" not in (error.value.hint or "")
        assert rt.project.first_frame("report", phase="assemble").stable.current_phase == "assemble"


# -- frames of runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_the_frame_of_a_run_is_the_frame_of_the_preview(tmp_path: Path, case: str):
    keys, data, settings = CASES[case]
    with open_runtime(project(tmp_path, **keys), **settings) as rt:
        preview = rt.project.first_frame("s", data)
        run = rt.run("s", data).run_id
        seq = next(event.seq for event in rt.runs.events(run) if event.kind == "frame_built")
        assert rt.runs.context_frame(run, seq) == preview


def test_the_frame_after_an_act_turn_has_the_results(tmp_path: Path):
    write_skill(tmp_path, "s", {"write": ["end"]}, ops={"write": "file"})
    (tmp_path / "a.md").write_text("x" * 500)
    model = ScriptedModel([act(file("read", "a.md")), finish()])
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), sizes={"result_bytes": 200}) as rt:
        run = rt.run("s", {"text": "in"}).run_id
        first, second = (rt.runs.context_frame(run, seq).as_json() for seq in frames_of(rt, run))
    assert "control_ir_results" not in first
    [result] = second["control_ir_results"]
    assert (result["status"], result["content"]) == ("ok", "x" * 500)
    assert (first["remaining_act_turns"], second["remaining_act_turns"]) == (10, 9)


def test_the_frame_after_a_rollback_has_the_rejected_artifact(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, skill_keys="on_phase_failure: rollback\n")
    model = ScriptedModel([go("b", "one"), "nonsense", go("b", "two"), finish()])
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), max_phase_retries=0) as rt:
        run = rt.run("s", {"text": "in"}).run_id
        frame = rt.runs.context_frame(run, frames_of(rt, run)[2]).as_json()
    assert frame["rollback"]["rejected_artifact"]["data"] == {"text": "one"}
    assert frame["rollback"]["reason"].startswith("phase `b`: ")
    assert frame["execution"] == {
        "path": ("a", "b", "a"),
        "current_visit": 2,
        "total_steps": 3,
        "remaining_visits": {"b": 24},
    }


def frames_of(rt: SyncRuntime, run: str) -> list[int]:
    return [event.seq for event in rt.runs.events(run) if event.kind == "frame_built"]


def test_a_conversation_has_a_preview_without_the_list_of_what_its_ops_can_act_on(tmp_path: Path):
    with SyncRuntime.open(tmp_path, model=ScriptedModel([])) as rt:
        frame = rt.project.first_frame("chat", "hi")
    assert frame.warnings == ("what the ops of phase `converse` can act on is not listed in a preview",)
