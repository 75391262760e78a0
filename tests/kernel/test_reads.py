"""What a phase is given: its input with type and fields, and the latest artifact of each type that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.config import Sizes
from reyn.journal import MemoryJournal
from reyn.journal.kinds import AnswerForm
from reyn.testing import ScriptedModel
from reyn.workspace.paths import RECORDED
from tests.kernel.support import IN, Project
from tests.support import NOTE, finish, go, write_skill

READS = {"write": "reads: [request, draft]\n", "check": "reads: [request]\n"}
INPUTS = {"write": "request | remark", "check": "draft"}


def make(root: Path, skill_keys: str = "", reads: dict[str, str] = READS) -> Project:
    write_skill(
        root,
        "loop",
        {"write": ["check"], "check": ["write", "end"]},
        artifacts={name: NOTE | {"description": f"A {name}."} for name in ("request", "remark", "draft")},
        inputs=INPUTS,
        phase_keys=reads,
        skill_keys=skill_keys,
    )
    return Project(root)


def draft(text: str) -> dict:
    return go("check", text, "draft")


def remark(text: str) -> dict:
    return go("write", text, "remark")


REQUEST = {"type": "request", "data": {"text": "please"}}
SHOWN = "# Earlier request\nplease\n"
ANSWERS = [draft("one"), remark("longer"), draft("two"), remark("shorter"), draft("three"), finish()]


def test_a_phase_sees_the_latest_artifact_of_each_type_that_it_reads(tmp_path: Path):
    project = make(tmp_path)
    assert project.run("loop", ANSWERS, REQUEST).ok
    turn = project.model.turn_message
    assert turn(0) == "# Input request\nplease"  # the input itself is not repeated
    assert SHOWN in turn(1)
    assert "Earlier draft" not in turn(1)
    assert SHOWN in turn(2)
    assert "# Earlier draft\none\n" in turn(2)
    assert "# Earlier draft\ntwo\n" in turn(4)
    assert "one" not in turn(4).partition("# Notes")[0]
    assert project.is_sound()


def test_a_phase_that_declares_nothing_sees_its_input_alone(tmp_path: Path):
    project = make(tmp_path, reads={})
    assert project.run("loop", ANSWERS, REQUEST).ok
    assert not any("# Earlier" in project.model.turn_message(call) for call in range(6))


def test_a_large_artifact_is_truncated_and_can_be_read_in_parts(tmp_path: Path):
    project = make(tmp_path)
    large = {"type": "request", "data": {"text": "x" * 3000}}
    assert project.run("loop", [draft("one"), finish()], large, sizes=Sizes(input_bytes=1000)).ok
    text = project.model.turn_message(1)
    assert "x" * 1001 not in text
    assert f'"path": "{RECORDED}2.read1"' in text
    read = {"kind": "file", "op": "read", "path": f"{RECORDED}2.read1", "start": 2000}
    with project.open([draft("one"), {"control_ir": [read]}, finish()], sizes=Sizes(input_bytes=1000)) as rt:
        assert rt.run("loop", large, run_id="again").ok
    assert "x" * 1000 in json.dumps(project.results("again")[0])
    assert project.is_sound("again")


def test_a_run_that_is_resumed_reads_the_same(tmp_path: Path):
    project = make(tmp_path)
    assert project.run("loop", ANSWERS[:4], REQUEST).status == "failed"  # the script ends
    assert project.resume(ANSWERS, retry=True).ok
    assert "# Earlier draft\ntwo\n" in project.model.turn_message(0)
    assert project.is_sound()


def test_after_a_rollback_a_phase_reads_what_it_read_before(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    answers = [draft("one"), remark("longer"), draft("two"), "no", draft("three"), finish()]
    assert project.run("loop", answers, REQUEST, max_phase_retries=0).ok
    before, again = project.model.turn_message(2), project.model.turn_message(4)
    section = "# Earlier draft\n"
    assert before.split(section)[1].split("\n")[0] == again.split(section)[1].split("\n")[0]
    assert again.split(section)[1].split("\n")[0] == "one"
    assert project.is_sound()


def test_a_fork_reads_the_artifacts_of_its_origin_and_its_own_input(tmp_path: Path):
    project = make(tmp_path)
    assert project.run("loop", ANSWERS, REQUEST).ok
    at = [event.seq for event in project.journal.read("k") if event.kind == "phase_completed"][1]
    with project.open([*ANSWERS[:2], draft("other"), finish()]) as rt:
        assert rt.fork("k", at=at, input={"type": "remark", "data": {"text": "new"}}, run_id="f").ok
    assert project.model.turn_message(0).startswith("# Input remark\nnew\n")
    assert "# Earlier draft\none\n" in project.model.turn_message(0)
    assert SHOWN in project.model.turn_message(0)
    assert project.is_sound("f")


def test_the_preview_of_a_frame_has_the_artifacts_that_the_phase_reads(tmp_path: Path):
    project = make(tmp_path)
    with project.open([]) as rt:
        frame = rt.project.first_frame("loop", {"type": "draft", "data": IN}, phase="check")
        plain = rt.project.first_frame("loop", REQUEST)
    assert frame.as_json()["read_artifacts"] == [{"type": "request", "data": {}}]
    assert "# Earlier request\n" in frame.messages[-1][1]
    assert frame.warnings == ("the artifacts that phase `check` reads are empty in a preview",)
    assert [one["type"] for one in plain.as_json()["read_artifacts"]] == ["draft"]


# -- what an input is ---------------------------------------------------------------------------------------

PAIR = {"type": "object", "properties": {"text": {"type": "string"}, "tone": {"type": "string"}}}
OTHER = {"reason": "x", "choice": "end", "confidence": 1, "data": {"text": "done"}}


@pytest.mark.parametrize("form", ["full", "short", "tools"])
@pytest.mark.parametrize(
    ("inputs", "value", "shown"),
    [
        ("note", {"type": "note", "data": {"text": "hi"}}, "hi"),
        ("pair", {"type": "pair", "data": {"text": "hi"}}, "text: hi"),
        ("pair", {"type": "pair", "data": {"tone": "hi"}}, "tone: hi"),
        ("pair", {"type": "pair", "data": {"text": "hi", "tone": "dry"}}, "text: hi\ntone: dry"),
        ("note | pair", {"type": "note", "data": {"text": "hi"}}, "# Input note\nhi"),
        ("note | pair", {"type": "pair", "data": {"tone": "hi"}}, "# Input pair\ntone: hi"),
    ],
)
def test_the_prompt_says_which_type_and_which_field_arrived(
    tmp_path: Path, form: AnswerForm, inputs: str, value: dict, shown: str
):
    write_skill(tmp_path, "s", {"a": ["end"]}, inputs={"a": inputs}, artifacts={"pair": PAIR})
    model = ScriptedModel([finish() if form == "full" else OTHER], answer_form=form)
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
        assert rt.run("s", value, run_id="k").ok
        assert rt.runs.prompt_at("k")[1] == ("user", shown)
        assert rt.runs.context_frame("k").input_artifact == value
        assert form == "tools" or rt.runs.prompt_sections("k")[1].name == "input"
        assert rt.runs.replay("k").events == rt.runs.verify("k").events


def test_a_long_input_of_several_types_keeps_its_type_when_it_is_truncated(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, inputs={"a": "note | pair"}, artifacts={"pair": PAIR})
    project = Project(tmp_path)
    value = {"type": "note", "data": {"text": "The quick brown fox. " * 800}}
    (tmp_path / "reyn.yaml").write_text("context: {max_prompt_tokens: 600}\n")
    assert project.run("s", [finish()], value).ok
    assert project.model.turn_message(0).startswith("# Input note\nThe quick")
    with project.open([]) as rt:
        assert rt.runs.context_frame("k").input_artifact == value
    (tmp_path / "reyn.yaml").write_text("context: {max_prompt_tokens: 10}\n")
    assert project.run("s", [finish()], value, run_id="tight").status == "limited"
