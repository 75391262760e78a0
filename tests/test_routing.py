"""The benchmark of routing: its messages, and what it reports about a turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.routing.__main__ import report
from bench.routing.measure import AGENT, SETS, Item, Score, items_of, make_project, request_of, turns
from reyn import SyncRuntime
from tests.chat.support import reply, run_skill


def test_no_message_and_no_skill_is_in_both_sets(tmp_path: Path):
    messages = [{item.message for item in items_of(one)} for one in SETS]
    skills = [{item.skill for item in items_of(one)} - {None} for one in SETS]
    assert not messages[0] & messages[1]
    assert not skills[0] & skills[1]
    assert [len(one) for one in skills] == [6, 6]


@pytest.mark.parametrize("item_set", SETS)
def test_the_agent_is_offered_the_six_skills_of_a_set(tmp_path: Path, item_set):
    make_project(tmp_path, item_set)
    [run_skill_op] = [spec for spec in request_of(tmp_path, "Hello").ops if spec.kind == "run_skill"]
    assert {target.name for target in run_skill_op.targets} == {item.skill for item in items_of(item_set)} - {None}
    with SyncRuntime.open(tmp_path, model="light") as rt:
        assert rt.chat(AGENT).agent.name == AGENT


def test_a_turn_is_scored_by_what_the_model_did(tmp_path: Path):
    make_project(tmp_path, "tuning")
    # The answer of the sub-run counts, too.
    answers = [run_skill("find_recipe", ingredients="eggs"), reply("unused"), reply("An omelette.")]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    items = [Item("What can I cook?", "find_recipe"), Item("Hello", None)]
    scores = list(turns(tmp_path, "scripted:answers.jsonl", items))
    assert [score.skill for _, score in scores] == ["find_recipe", "find_recipe"]
    assert [score.is_right for _, score in scores] == [True, False]
    assert all(score.has_valid_input and score.has_replied and score.is_open for _, score in scores)


def test_an_input_that_the_skill_does_not_accept_is_reported(tmp_path: Path):
    make_project(tmp_path, "tuning")
    answers = [run_skill("find_recipe", quantity=1), reply("Sorry.")]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    [(_, score)] = turns(tmp_path, "scripted:answers.jsonl", [Item("What can I cook?", "find_recipe")])
    assert (score.is_right, score.has_valid_input, score.has_replied) == (True, False, True)


def test_the_report_counts_messages_for_skills_and_others_apart():
    scores = [
        (Item("a", "one"), Score("one", is_right=True, has_valid_input=True)),
        (Item("b", "one"), Score(None, is_right=False)),
        (Item("c", None), Score(None, is_right=True)),
    ]
    figures = {name: (share.hits, share.total) for name, share in report(scores).items()}
    assert figures["right skill"] == (1, 2)
    assert figures["reply where no skill fits"] == (1, 1)
    assert figures["all right choices"] == (2, 3)
    assert figures["valid inputs"] == (1, 1)
