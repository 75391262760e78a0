"""Errors as data: a node repeats its visit, or the run goes on at the handler of its error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import KeyRejected, ModelTimeout, RateLimited
from reyn.models import ModelAnswer, ModelRequest
from reyn.testing import ScriptedModel, SteppingClock
from tests.kernel.kill.scenario import MeteredModel
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
FORKED_AT = ("phase_started", "llm_requested", "visit_retried")
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


@pytest.mark.parametrize("name", ["Bad Name", "PaymentDeclined", "", "x" * 300, "é"])
def test_an_error_with_an_invalid_name_is_an_error(tmp_path: Path, name: str):
    write_pay(tmp_path, "on_error: {payment_declined: ask, '*': refund}")
    project = Project(tmp_path)
    result = project.run("shop", [finish()], {"text": name})
    assert result.path == ("pay", "refund")
    [handled] = project.events("error_handled")
    assert handled["error"] == "failed"
    assert project.is_sound()


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
        rt.answer("k", rt.runs.find("k").wait.id, "now")
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


def write_parent(root: Path, node: str, *, graph: dict[str, Any] | None = None, more: str = "") -> None:
    """A skill whose node `@shop` has a child that pays; `mend` handles its errors."""
    write_pay(root, "")
    write_skill(
        root,
        "parent",
        graph or {"@shop": ["use"], "use": ["end"], "mend": ["end"]},
        inputs={"mend": "node_error"},
        artifacts={"note": NOTE},
        skill_keys=f"nodes: {{{node}}}\n{more}",
    )


def test_the_error_of_a_sub_run_reaches_the_node_that_runs_it(tmp_path: Path):
    write_parent(tmp_path, "'@shop': {on_error: {payment_declined: mend}}")
    project = Project(tmp_path)
    result = project.run("parent", [finish()], {"text": "payment_declined"})
    assert (result.status, result.path) == ("finished", ("@shop", "mend"))
    [ended] = project.events("child_ended")
    assert (ended["state"], ended["error_name"]) == ("failed", "payment_declined")
    assert project.events("error_handled")[0]["error"] == "payment_declined"
    assert project.is_sound()


def test_a_node_that_runs_a_skill_is_repeated_with_a_new_sub_run(tmp_path: Path):
    write_parent(tmp_path, "'@shop': {retry: {max: 1}, on_error: {'*': mend}}")
    project = Project(tmp_path)
    result = project.run("parent", [finish()], {"text": "busy"})
    assert result.path == ("@shop", "@shop", "mend")
    assert len({event["run"] for event in project.events("child_ended")}) == 2
    assert project.is_sound()


class FailingModel:
    """A model whose calls of some phases fail with an error; the others are scripted."""

    name = "failing"

    def __init__(self, error: Exception, *answers: Any, phases: tuple[str, ...] = ("a",), times: int = 99) -> None:
        self._error, self._phases, self._left = error, phases, times
        self._scripted = ScriptedModel([*answers])
        self.calls: list[str] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.calls.append(request.phase)
        if request.phase in self._phases and self._left:
            self._left -= 1
            raise self._error
        return await self._scripted.complete(request)


def write_talk(root: Path, node: str) -> None:
    write_skill(
        root,
        "talk",
        {"a": ["end"], "b": ["end"]},
        inputs={"b": "node_error"},
        skill_keys=f"nodes: {{a: {{{node}}}}}\n",
    )


@pytest.mark.parametrize(
    ("error", "name"),
    [(ModelTimeout("slow"), "timeout"), (RateLimited("busy"), "rate_limited"), (KeyRejected("no"), "failed")],
)
def test_a_model_that_fails_is_an_error_of_the_node_that_handles_it(tmp_path: Path, error: Exception, name: str):
    write_talk(tmp_path, f"on_error: {{{name}: b}}")
    project = Project(tmp_path)
    with project.open([], model=FailingModel(error, finish())) as rt:
        result = rt.run("talk", {"text": "in"}, run_id="k")
    assert (result.status, result.path) == ("finished", ("a", "b"))
    assert project.events("error_handled")[0]["error"] == name
    assert "run_failed" not in project.kinds()
    assert project.is_sound()


def test_a_model_that_fails_stops_the_run_if_the_node_names_another_error(tmp_path: Path):
    write_talk(tmp_path, "retry: {max: 1, on: [rejected]}, on_error: {timeout: b}")
    project = Project(tmp_path)
    with project.open([], model=FailingModel(RateLimited("busy"))) as rt:
        result = rt.run("talk", {"text": "in"}, run_id="k")
    assert (result.status, result.code, result.path) == ("failed", "RYN507", ("a",))
    assert "phase_failed" not in project.kinds()


def test_a_model_that_fails_once_is_asked_again_in_another_visit(tmp_path: Path):
    write_talk(tmp_path, "retry: {max: 2, on: [timeout]}")
    project = Project(tmp_path)
    with project.open([], model=FailingModel(ModelTimeout("slow"), finish(), times=1)) as rt:
        result = rt.run("talk", {"text": "in"}, run_id="k")
    assert (result.status, result.path) == ("finished", ("a", "a"))
    assert project.is_sound()


@pytest.mark.parametrize(("node", "status"), [("'*': b", "limited"), ("limit: b", "finished")])
def test_a_limit_goes_to_a_handler_only_by_its_name(tmp_path: Path, node: str, status: str):
    rules = {"a": [{"when": "visits.a < 9", "to": "a"}, {"else": "end"}], "b": ["end"]}
    keys = f"nodes: {{a: {{on_error: {{{node}}}}}}}\n"
    folder = write_skill(tmp_path, "loop", rules, inputs={"b": "node_error"}, skill_keys=keys)
    (folder / "phases" / "a.md").write_text("---\ntype: phase\nname: a\ninput: note\n---\n")
    project = Project(tmp_path)
    result = project.run("loop", [finish()], max_phase_visits=2)
    assert result.status == status
    assert result.path == (("a", "a", "b") if status == "finished" else ("a", "a"))
    assert project.is_sound()


def test_the_tokens_of_the_run_are_a_limit_that_a_handler_cannot_exceed(tmp_path: Path):
    write_talk(tmp_path, "on_error: {limit: b}")
    project = Project(tmp_path)
    with project.open([], model=MeteredModel(["no", finish()]), limits={"tokens": 1}) as rt:
        result = rt.run("talk", {"text": "in"}, run_id="k")
    assert (result.status, result.path) == ("limited", ("a", "b"))
    assert project.events("phase_failed")[0]["error_name"] == "limit"
    assert project.is_sound()


def write_branches(root: Path, node: str) -> None:
    write_pay(root, "")
    folder = write_skill(
        root,
        "parent",
        {"fan": ["use"], "use": ["end"], "mend": ["end"]},
        inputs={"use": "answers", "mend": "node_error"},
        artifacts={"list": {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}},
        skill_keys=f"nodes: {{fan: {{each: {{in: data.items, do: '@shop', max_parallel: 1}}, as: answers, {node}}}}}\n",
    )
    (folder / "phases" / "fan.md").write_text("---\ntype: phase\nname: fan\ninput: list\n---\n")


def test_of_several_branches_that_fail_the_first_one_names_the_error(tmp_path: Path):
    write_branches(tmp_path, "need: any, on_error: {payment_declined: mend}")
    project = Project(tmp_path)
    items = {"items": [{"text": "payment_declined"}, {"text": "busy"}, {"text": "crash"}]}
    result = project.run("parent", [finish()], items)
    assert (result.status, result.path) == ("finished", ("fan", "mend"))
    assert project.events("phase_failed")[0]["error_name"] == "payment_declined"
    assert project.is_sound()


def test_another_attempt_of_a_fan_out_executes_only_the_branches_that_failed(tmp_path: Path):
    write_branches(tmp_path, "retry: {max: 1}, on_error: {'*': mend}")
    project = Project(tmp_path)
    items = {"items": [{"text": "ok"}, {"text": "busy"}]}
    result = project.run("parent", [finish("paid"), finish()], items)
    assert result.path == ("fan", "fan", "mend")
    ended = [event["call"] for event in project.events("child_ended")]
    assert len(ended) == 3, ended
    assert project.is_sound()


def test_a_branch_whose_model_fails_is_ended_and_joined_as_failed(tmp_path: Path):
    write_skill(tmp_path, "talk", {"a": ["end"]})
    folder = write_skill(
        tmp_path,
        "parent",
        {"fan": ["use"], "use": ["end"]},
        inputs={"use": "answers"},
        skill_keys="nodes: {fan: {all: {one: '@talk'}, as: answers, on_item_error: collect, retry: {max: 1}}}\n",
    )
    (folder / "phases" / "fan.md").write_text("---\ntype: phase\nname: fan\ninput: note\n---\n")
    project = Project(tmp_path)
    with project.open([], model=FailingModel(RateLimited("busy"), finish())) as rt:
        result = rt.run("parent", {"text": "in"}, run_id="k")
    assert (result.status, result.path) == ("finished", ("fan", "use"))
    [ended] = project.events("child_ended")
    assert ended["state"] == "canceled"
    assert project.journal.find(ended["run"]).status == "cancelled"
    assert project.is_sound()


def test_a_fork_inside_a_retry_executes_only_what_follows(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, skill_keys="nodes: {a: {retry: {max: 2}}}\n")
    project = Project(tmp_path)
    answers = ["no", "no", go("b", "1"), finish("2")]
    assert project.run("s", answers, max_phase_retries=0).path == ("a", "a", "a", "b")
    events = list(project.journal.read("k"))
    with project.open(answers, max_phase_retries=0) as rt:
        for event in [one for one in events if one.kind in FORKED_AT]:
            answered = sum(one.kind == "llm_responded" for one in events[: event.seq])
            began = len(project.model.requests)
            forked = rt.fork("k", at=event.seq)
            assert forked.ok, (event.kind, forked.reason)
            assert forked.path == ("a", "a", "a", "b")
            assert len(project.model.requests) - began == 4 - answered, event.kind
            assert rt.runs.replay(forked.run_id).status == "finished"
    retried = [event["attempt"] for event in project.events("visit_retried")]
    assert retried == [1, 2]


def test_a_fork_in_the_wait_before_a_repetition_waits_for_what_is_left(tmp_path: Path):
    write_pay(tmp_path, "retry: {max: 1, backoff: 3s}, on_error: {'*': refund}")
    project = Project(tmp_path)
    project.clock = SteppingClock(step=1_000_000)
    assert project.run("shop", [finish()], {"text": "busy"}).path == ("pay", "pay", "refund")
    opened = next(event.seq for event in project.journal.read("k") if event.kind == "wait_opened")
    with project.open([finish()]) as rt:
        forked = rt.fork("k", at=opened)
        assert forked.path == ("pay", "pay", "refund")
        assert rt.runs.replay(forked.run_id).status == "finished"
    kinds = [event.kind for event in project.journal.read(forked.run_id)]
    assert kinds.count("visit_retried") == 1
    assert kinds.count("step_started") == 2


def test_a_condition_without_a_value_in_a_sub_run_arrives_at_the_handler_of_its_node(tmp_path: Path):
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "amount": {"type": "number"}}}
    rule = {"when": "has(data.amount) && 100.0 / data.amount > 1.0", "to": "done"}
    graph: Any = {"decide": [rule, {"else": "done"}], "done": ["end"]}
    below = write_skill(tmp_path, "below", graph, artifacts={"note": schema})
    (below / "phases" / "decide.md").write_text("---\ntype: phase\nname: decide\ninput: note\n---\n")
    write_skill(
        tmp_path,
        "above",
        {"@below": ["use"], "use": ["end"], "refund": ["end"]},
        inputs={"refund": "node_error"},
        artifacts={"note": schema},
        skill_keys="nodes: {'@below': {on_error: {'*': refund}}}\n",
    )
    project = Project(tmp_path)
    assert project.run("above", [finish()], {"text": "x", "amount": 0}).path == ("@below", "refund")
    assert "division by zero" in project.events("phase_failed")[0]["reason"]
    assert project.is_sound()
