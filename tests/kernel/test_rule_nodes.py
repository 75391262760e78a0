"""Nodes whose rules decide: no model, no frame; recorded, resumed, replayed, forked, compared and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reyn.skills.drawing import to_mermaid, to_text
from reyn.skills.graph_svg import to_svg
from tests.kernel.support import Project
from tests.rules import claim, write_rules
from tests.support import finish, load_skill

FOOD = {"amount": 80, "kind": "food"}
TRAVEL = {"amount": 80, "kind": "travel"}


def text_of(result: Any) -> str:
    return str(result.artifact["data"]["text"])


def test_the_first_rule_that_matches_decides_without_a_model(tmp_path: Path):
    write_rules(tmp_path)
    project = Project(tmp_path)
    result = project.run("claims", [], FOOD)
    assert (result.status, result.path) == ("finished", ("decide",))
    assert text_of(result) == "food: 80 after 0 reviews"
    assert not project.model.requests
    assert project.kinds() == [
        "run_started",
        "phase_started",
        "rule_matched",
        "artifact_stored",
        "phase_completed",
        "skill_completed",
    ]
    assert project.events("rule_matched") == [
        {
            "phase": "decide",
            "visit": 1,
            "rule": 3,
            "when": "",
            "to": "end",
            "read": {"data.amount": 80, "data.kind": "food", "visits.review": 0},
        }
    ]
    assert project.is_sound()


def test_what_arrived_goes_on_and_visits_count(tmp_path: Path):
    write_rules(tmp_path)
    project = Project(tmp_path)
    result = project.run("claims", [claim(**TRAVEL), claim(**TRAVEL)], TRAVEL)
    assert result.path == ("decide", "review", "decide", "review", "decide")
    assert text_of(result) == "travel: 80 after 2 reviews"
    stored = [event["artifact"] for event in project.events("artifact_stored")]
    assert stored[0] == project.events("run_started")[0]["input"]
    assert [event["rule"] for event in project.events("rule_matched")] == [2, 2, 3]
    assert project.is_sound()
    assert project.run("claims", [finish()], {"amount": 3, "kind": "food"}, run_id="small").path == ("decide", "pay")


def test_steps_of_the_node_run_first_and_what_they_bind_goes_on(tmp_path: Path):
    artifacts = {"claim": {"type": "object", "properties": {"amount": {"type": "number"}, "tax": {"type": "number"}}}}
    node = (
        "type: phase\nname: decide\ninput: claim\npreprocessor:\n"
        "  - python: {module: tax.py, function: tax, into: data.tax, output_schema: {type: number}}\n"
    )
    rules = '    - {when: "data.tax > 9.0", to: review}\n    - {else: pay}\n'
    permissions = "permissions: {python: [{module: tax.py, function: tax}]}\n"
    files = {"tax.py": "def tax(artifact):\n    return artifact['data']['amount'] / 5\n"}
    review = {"review": "input: claim\ncan_finish: true\n"}
    write_rules(
        tmp_path, rules, node_file=node, artifacts=artifacts, skill_keys=permissions, files=files, phases=review
    )
    project = Project(tmp_path)
    result = project.run("claims", [finish()], {"amount": 50})
    assert result.path == ("decide", "review")
    [stored, *_] = project.events("artifact_stored")
    assert json.loads(project.journal.blob(stored["artifact"]["hash"]))["data"] == {"amount": 50, "tax": 10.0}
    assert project.events("rule_matched")[0]["read"] == {"data.tax": 10.0}
    assert project.is_sound()


def test_an_error_of_evaluation_fails_the_visit_with_position_and_values(tmp_path: Path):
    rules = '    - {when: "100.0 / data.amount > 1.0", to: pay}\n    - {else: review}\n'
    write_rules(tmp_path, rules)
    project = Project(tmp_path)
    result = project.run("claims", [], {"amount": 0, "kind": "food"})
    assert (result.status, result.code) == ("failed", "RYN210")
    assert "node `decide`, rule 1, `100.0 / data.amount > 1.0`, column 7: division by zero (`data.amount` is 0)" in (
        result.reason
    )
    assert project.is_sound()
    assert project.resume([], retry=True).status == "failed"


def test_an_artifact_that_is_not_made_has_read_nothing(tmp_path: Path):
    note = '{type: note, data: {text: "${run.started}"}}'
    rules = f'    - {{when: "data.amount < 1.0", to: end, artifact: {note}}}\n    - {{else: pay}}\n'
    write_rules(tmp_path, rules, graph="  pay: [end]\n")
    project = Project(tmp_path)
    assert project.run("claims", [finish()], FOOD).ok
    assert project.events("rule_matched")[0]["read"].keys() == {"data.amount"}
    assert project.run("claims", [], {"amount": 0, "kind": "food"}, run_id="none").ok
    assert project.events("rule_matched", run_id="none")[0]["read"].keys() == {"data.amount", "run.started"}


def test_an_artifact_without_a_value_names_the_text_the_position_and_the_values(tmp_path: Path):
    data = '{text: "${data.kind}", more: ["x", "costs ${100.0 / data.amount}"]}'
    note = {"type": "object", "properties": {"text": {"type": "string"}, "more": {"type": "array"}}}
    rules = f"    - {{else: end, artifact: {{type: note, data: {data}}}}}\n"
    write_rules(tmp_path, rules, graph="", artifacts={"note": note})
    project = Project(tmp_path)
    result = project.run("claims", [], {"amount": 0, "kind": "food"})
    assert (result.status, result.code) == ("failed", "RYN210")
    place = (
        "node `decide`, rule 1, `artifact.data.more[1]`, `costs ${100.0 / data.amount}`, column 15: division by zero"
    )
    assert f'{place} (`data.kind` is "food", `data.amount` is 0)' in result.reason
    assert project.is_sound()


def test_what_a_rule_makes_is_validated_before_it_is_stored(tmp_path: Path):
    rules = '    - {else: pay, artifact: {type: claim, data: {amount: "${data.amount - 5.0}", kind: food}}}\n'
    write_rules(tmp_path, rules, graph="  pay: [end]\n")
    project = Project(tmp_path)
    assert project.run("claims", [finish()], FOOD).status == "finished"
    result = project.run("claims", [], {"amount": 1, "kind": "food"}, run_id="low")
    assert (result.status, result.code) == ("failed", "RYN210")
    assert "not a valid `claim`: data.amount" in result.reason
    assert not project.events("artifact_stored", run_id="low")


def test_a_node_needs_no_file_where_its_input_follows_from_the_nodes_before_it(tmp_path: Path):
    first = '    - {when: "data.amount > 10.0", to: second, artifact: {type: note, data: {text: "${data.kind}"}}}\n'
    second = "  second:\n    - {when: \"data.text == 'food'\", to: end}\n    - {else: pay}\n"
    phases = {"pay": "input: note | claim\n"}
    folder = write_rules(tmp_path, first + "    - {else: pay}\n", graph=f"{second}  pay: [end]\n", phases=phases)
    assert load_skill(folder).phases["second"].input_name == "note"
    project = Project(tmp_path)
    assert project.run("claims", [], FOOD).path == ("decide", "second")
    assert project.run("claims", [finish()], TRAVEL, run_id="b").path == ("decide", "second", "pay")


def test_a_run_with_rules_resumes_at_every_event_forks_and_differs_by_what_was_read(tmp_path: Path):
    write_rules(tmp_path)
    project = Project(tmp_path)
    answers = [claim(**TRAVEL), claim(amount=20, kind="travel"), finish()]
    assert project.run("claims", answers, TRAVEL).path == ("decide", "review", "decide", "review", "decide", "pay")
    seq = next(at for at, kind in enumerate(project.kinds(), start=1) if kind == "phase_completed")
    with project.open([claim(amount=20, kind="travel"), finish()]) as rt:
        fork = rt.fork("k", at=seq, run_id="fork")
        assert fork.path[-2:] == ("decide", "pay")
        rt.run("claims", {"amount": 49, "kind": "food"}, run_id="cheap")
        report = rt.runs.diff("k", "cheap")
        assert report.cause == "condition"
        assert report.detail == "`data.amount` is 80 and 49"
        assert rt.runs.diff("k", "k").is_same


def test_a_rollback_goes_back_beyond_a_node_that_would_decide_the_same_again(tmp_path: Path):
    write_rules(
        tmp_path,
        "    - {else: pay}\n",
        entry="review",
        graph="  review: [decide]\n  pay: [end]\n",
        skill_keys="on_phase_failure: rollback\n",
    )
    project = Project(tmp_path)
    answers = [claim(**FOOD), "no", "no", "no", claim(amount=20, kind="travel"), finish()]
    result = project.run("claims", answers, FOOD)
    assert result.status == "finished"
    assert [(event["phase"], event["to"]) for event in project.events("phase_rolled_back")] == [
        ("pay", "decide"),
        ("decide", "review"),
    ]
    assert project.is_sound()


def test_a_loop_of_rules_is_stopped_by_the_cap_on_visits(tmp_path: Path):
    rules = "    - {when: \"data.kind == 'food'\", to: again}\n    - {else: pay}\n"
    made = "artifact: {type: note, data: {text: x}}"
    again = f'  again:\n    - {{when: "visits.decide < 1000", to: decide}}\n    - {{else: end, {made}}}\n'
    write_rules(tmp_path, rules, graph=f"{again}  pay: [end]\n")
    project = Project(tmp_path)
    result = project.run("claims", [], FOOD)
    assert result.status == "limited"
    assert not project.model.requests


def test_the_run_and_its_input_can_be_read(tmp_path: Path):
    rules = (
        "    - {when: \"run.started > '2020' && run.input.amount > 50.0 && type == 'claim'\", to: end, artifact: "
        '{type: note, data: {text: "${run.started}"}}}\n    - {else: pay}\n'
    )
    write_rules(tmp_path, rules)
    project = Project(tmp_path)
    result = project.run("claims", [], FOOD)
    assert text_of(result).endswith("Z")
    assert project.is_sound()


def test_a_graph_shows_rules_in_every_format(tmp_path: Path):
    skill = load_skill(write_rules(tmp_path))
    text = to_text(skill)
    assert "  ├─▶ pay (claim): [1. data.amount < 50.0]" in text
    assert "  └─▶ ◉ end (note): [3. else]" in text
    mermaid = to_mermaid(skill)
    assert 'n0{"decide"}' in mermaid
    assert 'n0 -->|"claim: [1. data.amount #lt; 50.0]"| n1' in mermaid
    assert "decide (rules)</title>" in to_svg(skill)


PAY = (
    '  review: {pay: {text: it is clear, when: "data.amount <= 500.0"}, refuse: it is not}\n'
    "  pay: [end]\n  refuse: [end]\n"
)
EDGES: dict[str, Any] = {
    "rules": "",
    "entry": "review",
    "node_file": None,
    "graph": PAY,
    "phases": {"refuse": "input: claim\n"},
}


def test_a_condition_removes_a_candidate_of_the_model(tmp_path: Path):
    write_rules(tmp_path, **EDGES)
    project = Project(tmp_path)
    assert project.run("claims", [claim("pay", **FOOD), finish()], FOOD).path == ("review", "pay")
    assert project.events("conditions_checked") == [{"phase": "review", "visit": 1, "read": {"data.amount": 80}}]
    large = {"amount": 800, "kind": "food"}
    result = project.run("claims", [claim("pay", **large), claim("refuse", **large), finish()], large, run_id="large")
    assert result.path == ("review", "refuse")
    assert [event["class"] for event in project.events("validation_error", run_id="large")] == ["candidate"]
    assert project.events("conditions_checked", run_id="large")[0]["removed"] == ["pay"]
    assert "it is clear" not in project.model.system_message(0)
    assert project.is_sound("k")
    assert project.is_sound("large")
    with project.open([]) as rt:
        report = rt.runs.diff("k", "large")
        assert (report.cause, report.detail) == ("condition", "`data.amount` is 80 and 800")


def test_a_phase_without_any_allowed_edge_fails_before_the_model_is_called(tmp_path: Path):
    graph = '  review: {pay: {when: "data.amount <= 500.0"}, refuse: {when: "data.kind == \'travel\'"}}\n'
    write_rules(tmp_path, **EDGES | {"graph": f"{graph}  pay: [end]\n  refuse: [end]\n"})
    project = Project(tmp_path)
    result = project.run("claims", [], {"amount": 800, "kind": "food"})
    assert (result.status, result.code) == ("failed", "RYN210")
    assert "has no edge left: `pay` needs `data.amount <= 500.0`" in result.reason
    assert not project.model.requests


def test_a_skill_without_expressions_records_nothing_new(tmp_path: Path):
    write_rules(tmp_path, rules="", entry="pay", node_file=None, graph="  pay: [end]\n")
    project = Project(tmp_path)
    project.run("claims", [finish()], FOOD)
    assert not {"rule_matched", "conditions_checked"} & set(project.kinds())
