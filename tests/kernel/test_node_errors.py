"""Errors as data: a node repeats its visit, or the run goes on at the handler of its error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reyn.testing import SteppingClock
from tests.kernel.support import Project
from tests.support import abort, finish, go, write_skill

PAY = """\
def pay(artifact):
    text = artifact["data"]["text"]
    if text == "ok":
        return "paid"
    if text == "crash":
        raise ValueError("no such account")
    return {"error": {"name": text, "message": f"the bank says {text}"}}
"""
STEP = "preprocessor:\n  - python: {module: pay.py, function: pay, into: data.receipt}\n"
NOTE = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "receipt": {}},
    "required": ["text"],
}


def write_pay(root: Path, node: str, *, skill_keys: str = "", step: str = STEP) -> Path:
    """A node with rules whose step pays, then a phase; `ask` and `refund` handle errors."""
    folder = write_skill(
        root,
        "shop",
        {"pay": [{"else": "done"}], "done": ["end"], "ask": ["done"], "refund": ["end"]},
        inputs={"ask": "node_error", "refund": "node_error"},
        artifacts={"note": NOTE},
        skill_keys=(
            f"nodes: {{pay: {{{node}}}}}\npermissions: {{python: [{{module: pay.py, function: pay}}]}}\n{skill_keys}"
        ),
    )
    (folder / "phases" / "pay.md").write_text(f"---\ntype: phase\nname: pay\ninput: note\n{step}---\n")
    (folder / "pay.py").write_text(PAY)
    return folder


def stored(project: Project, name: str) -> Any:
    return json.loads(project.journal.blob(name))


def test_the_error_that_a_python_step_names_arrives_at_its_handler(tmp_path: Path):
    write_pay(tmp_path, "on_error: {payment_declined: ask, '*': refund}")
    project = Project(tmp_path)
    result = project.run("shop", [go("done"), finish()], {"text": "payment_declined"})
    assert (result.status, result.path) == ("finished", ("pay", "ask", "done"))
    [failed] = project.events("phase_failed")
    assert (failed["code"], failed["error_name"]) == ("RYN203", "payment_declined")
    [handled] = project.events("error_handled")
    assert (handled["phase"], handled["error"], handled["to"]) == ("pay", "payment_declined", "ask")
    assert stored(project, handled["artifact"]["hash"]) == {
        "type": "node_error",
        "data": {
            "error": "payment_declined",
            "message": failed["reason"],
            "code": "RYN203",
            "node": "pay",
            "attempts": 1,
            "input": {"type": "note", "data": {"text": "payment_declined"}},
        },
    }
    assert "the bank says payment_declined" in failed["reason"]
    assert project.is_sound()


def test_an_error_without_a_handler_of_its_own_goes_to_the_general_one(tmp_path: Path):
    write_pay(tmp_path, "on_error: {payment_declined: ask, '*': refund}")
    project = Project(tmp_path)
    assert project.run("shop", [finish()], {"text": "crash"}).path == ("pay", "refund")
    assert project.events("error_handled")[0]["error"] == "failed"
    assert project.is_sound()


def test_a_visit_without_an_error_is_as_before(tmp_path: Path):
    write_pay(tmp_path, "retry: {max: 2}, on_error: {'*': refund}")
    project = Project(tmp_path)
    assert project.run("shop", [finish()], {"text": "ok"}).path == ("pay", "done")
    assert not {"visit_retried", "error_handled"} & set(project.kinds())


def test_retry_comes_before_the_handler_and_is_counted_per_visit(tmp_path: Path):
    write_pay(tmp_path, "retry: {max: 2, on: [busy]}, on_error: {busy: ask}")
    project = Project(tmp_path)
    result = project.run("shop", [go("done"), finish()], {"text": "busy"})
    assert result.path == ("pay", "pay", "pay", "ask", "done")
    assert project.events("visit_retried") == [
        {"phase": "pay", "error": "busy", "attempt": 1, "max": 2},
        {"phase": "pay", "error": "busy", "attempt": 2, "max": 2},
    ]
    assert stored(project, project.events("error_handled")[0]["artifact"]["hash"])["data"]["attempts"] == 3
    assert project.is_sound()


def test_the_wait_before_a_repetition_is_recorded_and_doubles(tmp_path: Path):
    write_pay(tmp_path, "retry: {max: 2, backoff: 3s}")
    project = Project(tmp_path)
    project.clock = SteppingClock(step=1_000_000)
    result = project.run("shop", [], {"text": "busy"})
    assert (result.status, result.code) == ("failed", "RYN203")
    assert [event["wait_ms"] for event in project.events("visit_retried")] == [3_000, 6_000]
    waits = [event["wait"] for event in project.events("wait_opened")]
    assert [wait["reason"] for wait in waits] == ["retry", "retry"]
    assert len(project.events("wait_expired")) == 2
    assert project.is_sound()


def test_a_run_that_was_interrupted_in_the_wait_continues_with_what_is_left(tmp_path: Path):
    write_pay(tmp_path, "retry: {max: 1, backoff: 1h}, on_error: {'*': refund}")
    project = Project(tmp_path)
    with project.open([finish()]) as rt:
        rt.submit("shop", {"text": "busy"}, run_id="k")
    with project.open([finish()]) as rt:
        assert rt.resume("k").status == "waiting"
        row = rt.runs.find("k")
        assert row.wait is not None
        assert row.wait.is_timer
    project.clock.advance(3600)
    result = project.resume([finish()])
    assert result.path == ("pay", "pay", "refund")
    assert project.is_sound()


def test_a_person_can_end_the_wait(tmp_path: Path):
    write_pay(tmp_path, "retry: {max: 1, backoff: 1h}, on_error: {'*': refund}")
    project = Project(tmp_path)
    with project.open([finish()]) as rt:
        rt.submit("shop", {"text": "busy"}, run_id="k")
    with project.open([finish()]) as rt:
        assert rt.resume("k").status == "waiting"
        rt.answer("k", "now")
        assert rt.resume("k").path == ("pay", "pay", "refund")
    assert project.is_sound()


def test_on_phase_failure_comes_last(tmp_path: Path):
    write_pay(tmp_path, "on_error: {payment_declined: ask}", skill_keys="on_phase_failure: rollback\n")
    project = Project(tmp_path)
    result = project.run("shop", [], {"text": "crash"})
    assert (result.status, result.code) == ("failed", "RYN203")


def test_the_answers_of_a_model_that_are_rejected_and_its_abort_have_names(tmp_path: Path):
    write_skill(
        tmp_path,
        "talk",
        {"a": ["end"], "b": ["end"], "c": ["end"]},
        inputs={"b": "node_error", "c": "node_error"},
        skill_keys="nodes: {a: {on_error: {rejected: b, aborted: c}}}\n",
    )
    project = Project(tmp_path)
    assert project.run("talk", ["no", "no", "no", "no", finish()]).path == ("a", "b")
    result = project.run("talk", [abort(), finish()], run_id="aborted")
    assert (result.status, result.path) == ("finished", ("a", "c"))
    assert project.is_sound()
    assert project.is_sound("aborted")
