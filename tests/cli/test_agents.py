"""Agents at the command line: their errors have positions, and their permissions can be explained."""

from __future__ import annotations

from pathlib import Path

import pytest

BAD = """\
---
type: agent
name: bad
skills: [pare, pair]
allowed_ops: [fil, file]
permissions: {file.raed: [x], file.write: 3}
---
Hello.
"""


def write_agent(folder: Path, name: str, text: str) -> None:
    (folder / "reyn/agents").mkdir(parents=True, exist_ok=True)
    (folder / f"reyn/agents/{name}.md").write_text(text)


def test_lint_checks_agents_with_positions_and_near_names(here: Path, reyn):
    write_agent(here, "bad", BAD)
    output = reyn("lint", "agent:bad")
    assert output.code == 1
    assert output.out.splitlines() == [
        "agent:bad: 3 errors, 1 warning",
        "reyn/agents/bad.md:4:10: RYN101 warning: no skill matches `pare`",
        "  did you mean `pair`?",
        "reyn/agents/bad.md:5:15: RYN122 unknown op `fil`",
        "  did you mean `file`?",
        "reyn/agents/bad.md:6:15: RYN137 unknown permission `file.raed`",
        "  did you mean `file.read`?",
        "reyn/agents/bad.md:6:31: RYN114 `permissions.file.write`: 3 is neither a path nor `{path, scope}`",
    ]
    assert "agent:bad: 3 errors, 1 warning" in reyn("lint").out
    assert {finding["skill"] for finding in reyn("lint", "agent:bad", "--json").json} == {"agent:bad"}


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("skills: pair", "4:1: RYN114 `skills` must be a list of strings or `null`, not 'pair'"),
        ("memory: owm", "4:1: RYN114 `memory` must be `shared`, `own` or `none`, not 'owm'\n    did you mean `own`?"),
        ("budget: {token: 3}", "4:10: RYN112 unknown key `budget.token`\n    did you mean `tokens`?"),
        ("budget: {tokens: 0}", "4:10: RYN114 `budget.tokens` must be an integer greater than 0 or `null`, not 0"),
        ("allowed_ops: [1]", "4:15: RYN114 `allowed_ops[0]` must be a string, not 1"),
        ("allowed_ops: [fil]", "4:15: RYN122 unknown op `fil`\n    did you mean `file`?"),
    ],
)
def test_chat_reports_an_error_of_an_agent_at_its_position(line: str, finding: str, here: Path, reyn):
    write_agent(here, "bad", f"---\ntype: agent\nname: bad\n{line}\n---\nHello.\n")
    output = reyn("chat", "bad")
    assert (output.code, f"  reyn/agents/bad.md:{finding}\n" in output.err) == (2, True)


def test_permissions_explain_an_agent_with_the_file_of_each_request(here: Path, reyn):
    write_agent(here, "clerk", "---\ntype: agent\nname: clerk\npermissions: {file.read: [/srv/]}\n---\nHello.\n")
    output = reyn("permissions", "explain", "agent:clerk").out
    assert output.startswith("skill: agent:clerk\n")
    assert "  deny  file.read /srv/ (reyn/agents/clerk.md:4)\n" in output
    assert "  allow  memory clerk (chat/skill.md:" in output
    assert reyn("permissions", "explain", "agent:default").code == 0


def test_a_budget_for_a_misspelt_skill_is_a_warning_with_the_near_name(here: Path, reyn):
    config = "model: scripted:answers.jsonl\nbudgets: {skill: {pairr: {day: {tokens: 9}}}}\n"
    (here / "reyn.yaml").write_text(config)
    warning = "`budgets.skill` has a budget for `pairr`, but there is no such skill; did you mean `pair`?"
    assert f"warning: {warning}\n" in reyn("run", "pair", '{"text": "in"}').out
    assert f"warning  config   {warning}\n" in reyn("doctor").out


def test_doctor_prints_an_error_of_the_configuration_in_one_line(here: Path, reyn):
    (here / "reyn.yaml").write_text("modle: x\n")
    assert "broken   config   reyn.yaml:1:1: RYN701 unknown key `modle`: did you mean `model`?\n" in reyn("doctor").out


def test_lint_reports_the_model_class_of_an_agent_that_is_not_configured(here: Path, reyn):
    write_agent(here, "poet", "---\ntype: agent\nname: poet\nmodel_class: strnog\n---\nWrite verses.\n")
    (here / "reyn.yaml").write_text("models: {strong: local}\n")
    output = reyn("lint", "agent:poet")
    assert output.code == 0
    assert "poet.md:4:1: RYN524 warning: model class `strnog` is not configured" in output.out
    (here / "reyn.yaml").write_text("models: {strnog: local}\n")
    assert "RYN524" not in reyn("lint", "agent:poet").out


def test_the_default_agent_has_a_description_without_a_file(here: Path, reyn):
    built_in = "The built-in agent, which can run all skills; reyn/agents/default.md replaces it"
    assert reyn("agent", "list").out == f"default  {built_in}\n"
    assert reyn("agent", "list", "--json").json == [{"name": "default", "description": built_in, "error": ""}]
    assert f"about     {built_in}\n" in reyn("agent", "show").out
    write_agent(here, "default", "---\ntype: agent\nname: default\ndescription: Mine\n---\nHello.\n")
    assert reyn("agent", "list").out == "default  Mine\n"
