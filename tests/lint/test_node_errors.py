"""Findings about `retry` and `on_error` of nodes, and the types that arrive at handlers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reyn.lint import lint_skill
from reyn.skills.drawing import to_mermaid, to_text
from reyn.skills.graph_svg import to_svg
from tests.kernel.test_node_errors import write_pay
from tests.support import load_skill


def findings(folder: Path) -> list[str]:
    found = lint_skill(folder)
    return [
        f"{one.severity} {one.code} {one.message}" for one in found if one.file == "skill.md" and one.severity != "info"
    ]


def test_a_skill_with_handlers_has_no_findings(tmp_path: Path):
    assert (
        findings(
            write_pay(tmp_path, "retry: {max: 3, on: [timeout], backoff: 2s}, on_error: {failed: ask, '*': refund}")
        )
        == []
    )


@pytest.mark.parametrize(
    ("node", "finding"),
    [
        ("on_error: {failed: done}", "error RYN187 an error is a `node_error`, but `done` takes `note`"),
        ("on_error: {failed: end}", "error RYN187 an error is a `node_error`, but the run finishes with `note`"),
        ("on_error: {failed: pay}", "error RYN187 `pay` handles its own error"),
        ("on_error: {failed: nowhere}", "error RYN116 unknown phase `nowhere`: no file `phases/nowhere.md`"),
        ("on_error: {Failed: ask}", "error RYN187 `Failed` is not a valid name of an error"),
        ("on_error: {declined: ask}", "warning RYN187 nothing in `pay` names an error `declined`"),
        ("retry: {max: 1, on: [declined]}", "warning RYN187 nothing in `pay` names an error `declined`"),
        ("on_error: {aborted: ask}", "warning RYN187 no error of `pay` is `aborted`"),
        ("on_error: {rejected: ask}", "warning RYN187 no error of `pay` is `rejected`"),
        ("retry: {max: 0}", "error RYN114 `nodes.pay.retry.max` must be an integer"),
        ("retry: {max: 1, backoff: soon}", "error RYN114 "),
        ("retry: {max: 1, backof: 2s}", "error RYN112 unknown key `nodes.pay.retry.backof`"),
    ],
)
def test_what_is_wrong_is_reported(tmp_path: Path, node: str, finding: str):
    found = findings(write_pay(tmp_path, node))
    assert any(one.startswith(finding) for one in found), found


CHECK = "check: [{python: {module: rules.py, function: look}}], on_error: {out_of_stock: ask, rejected: ask}"


@pytest.mark.parametrize("has_model", [False, True])
def test_what_a_check_names_is_an_error_of_a_node_without_a_model_alone(tmp_path: Path, has_model: bool):
    folder = write_pay(tmp_path, CHECK)
    (folder / "rules.py").write_text("def look(artifact):\n    return {'error': {'name': 'out_of_stock'}}\n")
    text = (folder / "skill.md").read_text()
    text = text.replace("permissions: {python: [", "permissions: {python: [{module: rules.py, function: look}, ")
    if has_model:
        text = text.replace('"pay": [{"else": "done"}]', '"pay": ["done"]')
        (folder / "phases/pay.md").write_text((folder / "phases/pay.md").read_text() + "Pay it.\n")
    (folder / "skill.md").write_text(text)
    expected = ["warning RYN187 nothing in `pay` names an error `out_of_stock`"] if has_model else []
    assert findings(folder) == expected


@pytest.mark.parametrize(("name", "is_possible"), [("limit", True), ("failed", True), ("timeout", False)])
def test_rules_alone_fail_or_reach_a_limit(tmp_path: Path, name: str, is_possible: bool):
    folder = write_pay(tmp_path, f"on_error: {{{name}: ask}}", step="", skill_keys="")
    (folder / "skill.md").write_text((folder / "skill.md").read_text().replace("{module: pay.py, function: pay}", ""))
    expected = [] if is_possible else [f"warning RYN187 no error of `pay` is `{name}`"]
    assert [one for one in findings(folder) if "RYN187" in one] == expected


def test_a_name_in_the_source_of_a_step_is_known(tmp_path: Path):
    folder = write_pay(tmp_path, "on_error: {declined: ask, '*': refund}")
    (folder / "pay.py").write_text("def pay(artifact):\n    return {'error': {'name': 'declined', 'message': 'no'}}\n")
    assert findings(folder) == []


def test_expressions_of_a_handler_know_what_arrived_at_the_node(tmp_path: Path):
    folder = write_pay(tmp_path, "on_error: {'*': refund}")
    text = (folder / "skill.md").read_text()
    note = {"type": "note", "data": {"text": "no"}}
    for path in ("data.input.data.txt", "data.eror", "data.input.data.text"):
        rules = [{"when": f"{path} == 'busy'", "to": "end", "artifact": note}, {"else": "done", "artifact": note}]
        (folder / "skill.md").write_text(text.replace('"refund": ["end"]', f'"refund": {json.dumps(rules)}'))
        (folder / "phases" / "refund.md").unlink(missing_ok=True)
        found = findings(folder)
        assert any("RYN181" in one for one in found) == (not path.endswith(".text")), found


def test_handlers_are_drawn_and_no_model_is_offered_them(tmp_path: Path):
    folder = write_pay(
        tmp_path, "retry: {max: 2, backoff: 2s}, on_error: {payment_declined: ask, busy: ask, '*': refund}"
    )
    skill = load_skill(folder)
    assert "  │ retry up to 2 times on *, after 2s or more\n" in to_text(skill)
    assert "▶ ask (node_error): on error payment_declined, busy\n" in to_text(skill)
    assert "▶ refund (node_error): on error *\n" in to_text(skill)
    assert "node_error: on error *" in to_mermaid(skill)
    assert "node_error: on error *" in to_svg(skill)


def test_a_model_cannot_choose_a_node_that_takes_errors_alone(tmp_path: Path):
    folder = write_pay(tmp_path, "on_error: {'*': refund}")
    text = (folder / "skill.md").read_text()
    (folder / "skill.md").write_text(text.replace('"done": ["end"]', '"done": ["refund"]'))
    assert any("which the model of `done` cannot make" in one for one in findings(folder))
