"""The decision benchmark: its skills and items are valid, right answers score as right, and a model can be measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.decisions.choices import request_of, score
from bench.decisions.measure import SCRIPTED, Bench, make_project, run_score
from bench.decisions.tasks import SETS, TASKS, has_right_fields, items_of
from reyn import SyncRuntime
from reyn.config import ModelSettings
from reyn.contract import candidates_of
from reyn.journal.kinds import Usage
from reyn.lint import lint_skill
from reyn.models import ModelRequest
from reyn.models.local import LocalModel
from reyn.models.scripted import ScriptedModel
from reyn.models.two_step import Choice, choice_prompt
from tests.models.small_model import real
from tests.test_programs import call

ITEMS = [item for task in TASKS for item_set in SETS for item in items_of(task.name, item_set)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("decisions")
    make_project(root)
    return root


@pytest.mark.parametrize("task", [task.name for task in TASKS])
def test_a_task_has_no_findings_and_its_items_can_be_answered(project: Path, task: str):
    with SyncRuntime.open(project) as rt:
        assert lint_skill(project / "reyn" / "project" / task) == []
        skill = rt.project.load(task)
        candidates = {candidate.next_phase: candidate for candidate in candidates_of(skill, skill.entry)}
        for item in (item for item in ITEMS if item.task == task):
            rt.project.first_frame(task, item.input)  # the input is valid
            fields = candidates[item.expect.choice].artifact_schema["properties"]
            assert set(item.expect.fields) <= set(fields)
            assert all((project / path).is_file() for path in item.expect.reads or ())


def test_the_held_back_items_are_many_and_none_is_used_for_tuning():
    inputs = {item_set: [json.dumps(i.input) for t in TASKS for i in items_of(t.name, item_set)] for item_set in SETS}
    assert len(inputs["held-back"]) == len(set(inputs["held-back"])) >= 100
    assert set(inputs["held-back"]).isdisjoint(inputs["tuning"])


@pytest.mark.parametrize("task", [task.name for task in TASKS if items_of(task.name, "held-back")])
def test_every_choice_is_expected_about_equally_often(task: str):
    expected = [item.expect.choice for item in items_of(task, "held-back")]
    assert max(map(expected.count, expected)) - min(map(expected.count, expected)) <= 4


def test_right_answers_score_as_right(tmp_path: Path):
    items = [item for task in TASKS for item in items_of(task.name, "held-back")[:2]]
    scores = [score for _, score in Bench(tmp_path, SCRIPTED, {}).scores(items)]
    assert all(score.has_right_choice and score.is_finished and score.valid == score.calls for score in scores)
    assert False not in {score.has_right_fields for score in scores}


def test_the_first_step_can_be_measured_alone(project: Path, monkeypatch: pytest.MonkeyPatch):
    """The examples choose wrongly, the topics rightly, and both together rightly."""

    async def choose(request: ModelRequest) -> Choice:
        assert choice_prompt(request) is not None
        labels = tuple(candidate.label for candidate in request.candidates)
        right = labels.index("billing")
        others = [float(number != right) / 2 for number in range(len(labels))]
        similarities = [0.9 if number == right else 0.1 for number in range(len(labels))]
        return Choice(labels, [max(value, 0.01) for value in others], similarities, Usage(30, 2, 0))

    model = LocalModel("local", project, ModelSettings("local"))
    monkeypatch.setattr(model, "choose", choose)
    item = next(item for item in items_of("helpdesk", "held-back") if item.expect.choice == "billing")
    scored = score(model, item, request_of(project, item))
    assert scored is not None
    assert (scored.by_examples, scored.by_topics, scored.by_both) == (False, True, True)
    assert (scored.input_tokens, scored.output_tokens) == (30, 2)
    order = items_of("order", "held-back")[0]
    assert score(model, order, request_of(project, order)) is None


def test_an_invalid_first_answer_and_a_wrong_field_are_counted(project: Path):
    item = items_of("order", "held-back")[0]
    control = {"type": "finish", "decision": "finish", "next_phase": None, "confidence": 1, "reason": {"summary": "-"}}
    data = {"product": "a book", "quantity": 5, "city": "Utrecht"}
    answers: list[dict[str, Any]] = [
        {"no": "decision"},
        {"control": control, "artifact": {"type": "order", "data": data}},
    ]
    with SyncRuntime.open(project, model=ScriptedModel(answers)) as rt:
        score = run_score(rt, item)
    assert (score.valid, score.calls, score.answers) == (0, 1, 2)
    assert (score.has_right_choice, score.has_right_fields, score.is_finished) == (True, False, True)


def test_fields_are_compared_without_case_punctuation_and_article():
    expected = items_of("order", "held-back")[0].expect.fields
    assert has_right_fields(expected, {"product": "The bicycle helmets.", "quantity": 5, "city": "utrecht"})
    assert not has_right_fields(expected, {"product": "bicycle helmets", "quantity": "5", "city": "Utrecht"})


def test_scores_are_stored_and_only_new_prompts_are_run(tmp_path: Path):
    items = items_of("order", "held-back")[:1]
    first = list(Bench(tmp_path, SCRIPTED, {}).scores(items))
    assert list(Bench(tmp_path, SCRIPTED, {}).scores(items)) == first
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 1


def test_the_report_is_printed_as_a_table_as_json_and_into_a_page(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench.decisions scripted -->\nold\n<!-- end -->\nafter\n")
    words = ("bench.decisions", "--model", "scripted", "--task", "order", "--items", "1", "--project", str(tmp_path))
    assert call(*words, "--write", str(page)).splitlines()[1].split()[:4] == ["order", "extraction", "1/1", "(21"]
    assert "| `order` | extraction | 1/1 (21 to 100 %) |" in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("<!-- end -->\nafter\n")
    assert "old" not in page.read_text()
    report = json.loads(call(*words, "--json"))
    assert report["tasks"]["order"]["right_fields"]["hits"] == report["all"]["finished"]["total"] == 1


@real
def test_the_small_model_gives_valid_answers_and_finishes(tmp_path: Path):
    words = ("bench.decisions", "--model", "local", "--task", "parcel", "--task", "order", "--items", "2")
    report = json.loads(call(*words, "--project", str(tmp_path), "--json"))
    assert report["all"]["valid"]["hits"] == report["all"]["valid"]["total"] == 6
    assert report["all"]["finished"]["hits"] == 4
    assert report["all"]["placeholders"] == 0
    assert report["all"]["output_tokens"] > 0
