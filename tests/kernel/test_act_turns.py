"""Act turns, ops in decisions, results in frames, truncation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kernel.support import Project
from tests.support import abort, act, file, finish, go, question, with_ops, write_skill


@pytest.fixture
def acting(tmp_path: Path) -> Project:
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file, ask_user"})
    (tmp_path / "prices.csv").write_text("noodles,3.1\n")
    return Project(tmp_path)


def test_an_act_turn_executes_its_ops_and_the_next_frame_contains_the_results(acting: Project):
    result = acting.run("s", [act(file("read", "prices.csv")), go("b"), finish()])
    assert result.ok
    assert "# Results" not in acting.model.turn_message(0)
    assert "Turns with ops left: 10." in acting.model.turn_message(0)
    assert '"content":"noodles,3.1\\n"' in acting.model.turn_message(1)
    assert "Turns with ops left: 9." in acting.model.turn_message(1)
    assert "Turns with ops" not in acting.model.turn_message(2)
    assert acting.model.system_message(0) == acting.model.system_message(1)
    assert acting.kinds()[1:16] == [
        "phase_started",
        "frame_built",
        "llm_requested",
        "budget_reserved",
        "budget_settled",
        "llm_responded",
        "file_started",
        "file_completed",
        "frame_built",
        "llm_requested",
        "budget_reserved",
        "budget_settled",
        "llm_responded",
        "control_decided",
        "artifact_stored",
    ]
    assert acting.is_sound()


def test_the_frame_lists_only_the_ops_of_the_phase(acting: Project):
    acting.run("s", [go("b"), finish()])
    first, second = (acting.model.system_message(number) for number in range(2))
    assert {"- file", "- ask_user"} <= {line.partition(":")[0] for line in first.splitlines()}
    assert "To act" in first
    assert "To act" not in second


def test_a_denied_op_is_a_result_and_the_phase_continues(acting: Project):
    result = acting.run(
        "s", [act(file("write", "out.txt", content="x"), file("read", "prices.csv")), go("b"), finish()]
    )
    assert result.ok
    [denied] = acting.events("permission_denied")
    assert denied["rule"] == "default: no write outside the zones"
    assert '"status":"denied"' in acting.model.turn_message(1)
    assert "noodles" in acting.model.turn_message(1)
    assert not (acting.root / "out.txt").exists()
    assert acting.is_sound()


@pytest.mark.parametrize(
    "path",
    [
        ".reyn/journal.db",
        "./x/../.reyn/journal.db",
        "workspace:../../journal.db",
        "/etc/passwd",
        "../../etc/passwd",
        "~",
    ],
)
def test_paths_outside_the_allowed_zones_are_not_read(acting: Project, path: str):
    (acting.root / ".reyn").mkdir(exist_ok=True)
    (acting.root / ".reyn" / "journal.db").write_text("secret records")
    (acting.root / "x").mkdir()
    assert acting.run("s", [act(file("read", path)), go("b"), finish()]).ok
    assert "secret" not in acting.model.turn_message(1)
    assert "root:" not in acting.model.turn_message(1)
    assert '"status":"ok"' not in acting.model.turn_message(1)


def test_a_decision_is_committed_only_after_its_ops_succeeded(acting: Project):
    good = with_ops(go("b"), file("write", "workspace:a.txt", content="x"))
    assert acting.run("s", [good, finish()]).ok
    kinds = acting.kinds()
    assert kinds.index("workspace_updated") < kinds.index("control_decided")
    assert (acting.root / ".reyn/workspace/k/a.txt").read_text() == "x"


def test_a_failing_op_defers_the_decision_and_keeps_earlier_results(acting: Project):
    bad = with_ops(
        go("b", "first"),
        file("write", "workspace:a.txt", content="x"),
        file("read", "nowhere.txt"),
        file("write", "workspace:b.txt", content="never"),
    )
    assert acting.run("s", [bad, go("b", "second"), finish()]).ok
    assert [event["op"] for event in acting.events("decision_deferred")] == ["1.1.2"]
    assert len(acting.events("control_decided")) == 2
    message = acting.model.turn_message(1)
    assert message.count('"status":"ok"') == 1
    assert message.count('"status":"error"') == 1
    assert "Turns with ops left: 9." in message
    folder = acting.root / ".reyn/workspace/k"
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert acting.is_sound()


def test_without_an_act_turn_left_a_deferred_decision_costs_a_retry(acting: Project):
    folder = acting.root / "reyn/project/s/phases/a.md"
    folder.write_text(folder.read_text().replace("allowed_ops", "max_act_turns: 1\nallowed_ops"))
    bad = with_ops(go("b"), file("read", "nowhere.txt"))
    result = acting.run("s", [bad, act(file("read", "prices.csv")), "no", go("b"), finish()])
    # One turn is used by the deferred decision; then no ops are offered, and acting is rejected.
    assert result.status == "finished"
    classes = [event["class"] for event in acting.events("validation_error")]
    assert classes == ["ops", "not_json"]
    assert "Turns with ops left: 0." in acting.model.turn_message(1)
    assert "To act" not in acting.model.system_message(1)


@pytest.mark.parametrize("turns", [0, 2])
def test_at_the_act_limit_the_frame_offers_no_ops(tmp_path: Path, turns: int):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, phase_keys={"a": f"max_act_turns: {turns}\n"})
    project = Project(tmp_path)
    glob = act({"kind": "file", "op": "glob", "pattern": "*.md"})
    assert project.run("s", [*[glob] * (turns + 1), finish()]).ok
    assert [event["class"] for event in project.events("validation_error")] == ["ops"]
    assert len(project.events("file_completed")) == turns
    assert project.run("s", [*[glob] * turns, finish()], run_id="other").ok
    assert len(project.events("llm_requested", run_id="other")) == turns + 1


def test_the_configured_cap_on_act_turns_overrides_the_phase(acting: Project):
    read = act(file("read", "prices.csv"))
    assert acting.run("s", [read, read, go("b"), finish()], max_act_turns=1).ok
    assert [event["class"] for event in acting.events("validation_error")] == ["ops"]


def test_with_on_limit_stop_the_act_limit_stops_the_run_until_it_is_raised(acting: Project):
    read = act(file("read", "prices.csv"))
    answers = [read, read, read, go("b"), finish()]
    result = acting.run("s", answers, max_act_turns=2, limits={"on_limit": "stop"})
    assert result.status == "limited"
    assert "2 act turns" in result.reason
    assert acting.resume(answers, raise_limits={"max_act_turns": 4}).ok
    assert len(acting.events("file_completed")) == 3
    assert acting.is_sound()


def test_results_stay_in_the_frame_after_a_rejected_answer(acting: Project):
    acting.run("s", [act(file("read", "prices.csv")), "nonsense", go("b"), finish()])
    assert "noodles" in acting.model.turn_message(2)
    assert len(acting.model.requests[2].messages) == 4
    assert "Turns with ops left: 9." in acting.model.turn_message(2)


def test_an_abort_executes_no_ops(acting: Project):
    bad = with_ops(abort(), file("write", "workspace:a.txt", content="x"))
    result = acting.run("s", [bad, abort()])
    assert result.status == "aborted"
    assert [event["class"] for event in acting.events("validation_error")] == ["ops"]
    assert acting.events("file_started") == []


def test_too_many_ops_are_rejected_before_any_effect(acting: Project):
    flood = act(*[file("write", f"workspace:{n}.txt", content="x") for n in range(65)])
    assert acting.run("s", [flood, go("b"), finish()]).ok
    assert [event["class"] for event in acting.events("validation_error")] == ["size"]
    assert acting.events("file_started") == []


# -- sizes --------------------------------------------------------------------------------------------


def test_a_large_result_is_truncated_and_the_rest_can_be_read(acting: Project):
    text = "".join(f"line {number} of a long file\n" for number in range(1000))
    (acting.root / "long.txt").write_text(text)
    rest = file("read", "workspace:.full/1.1.1", start=8000, length=3000)
    assert acting.run("s", [act(file("read", "long.txt")), act(rest), go("b"), finish()]).ok
    [cut] = acting.events("content_truncated")
    assert (cut["name"], cut["bytes"]) == ("1.1.1", len(acting.journal.blob(cut["content"])))
    assert "line 999" not in acting.model.turn_message(1)
    assert 'workspace:.full/1.1.1", "start": 8000' in acting.model.turn_message(1)
    whole = acting.journal.blob(cut["content"]).decode()
    results = [acting.journal.blob(event["result"]) for event in acting.events("file_completed")]
    assert json.loads(results[1])["content"] == whole[8000:11000]
    assert acting.is_sound()


def test_a_truncated_input_can_be_read_in_a_phase_without_ops(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]})
    project = Project(tmp_path)
    rest = file("read", "workspace:.full/1.input", start=30000, length=100)
    outside = file("read", "reyn/project/s/skill.md")
    answers = [act(outside), act(rest), finish()]
    assert project.run("s", answers, {"text": "y" * 40_000}).ok
    assert [event["class"] for event in project.events("validation_error")] == ["ops"]
    assert "y" * 24_000 not in project.model.turn_message(0)
    assert "y" * 100 in project.model.turn_message(2).split("# Results")[1]
    assert "Turns with ops left: 10." in project.model.turn_message(0)
    assert project.is_sound()


def test_a_run_cannot_read_the_truncated_content_of_another_run(acting: Project):
    (acting.root / "long.txt").write_text("z" * 20_000)
    acting.run("s", [act(file("read", "long.txt")), go("b"), finish()])
    acting.run("s", [act(file("read", "workspace:.full/1.1.1")), go("b"), finish()], run_id="other")
    assert "zzz" not in acting.model.turn_message(1)


def test_frame_at_returns_exactly_what_the_model_received(acting: Project):
    (acting.root / "long.txt").write_text("z\n" * 20_000)
    answers = [act(file("read", "prices.csv"), file("read", "long.txt")), "no", act(question("ok?")), go("b"), finish()]
    acting.run("s", answers)
    with acting.open(answers) as rt:
        rt.answer("k", "1.3.1", "yes")
        rt.resume("k")
        seen = [[(m.role, m.text) for m in request.messages] for request in acting.model.requests]
        asked = [event.seq for event in acting.journal.read("k") if event.kind == "llm_requested"]
        frames = [rt.runs.prompt_at("k", seq) for seq in asked[3:]]
        assert [frame[:-1] for frame in frames] == seen
        assert [json.loads(frame[-1][1]) for frame in frames] == answers[3:]
        assert {frame[-1][0] for frame in frames} == {"answer"}
        assert rt.runs.prompt_at("k") == frames[-1]
