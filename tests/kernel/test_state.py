"""The state of a run: lists, sums and latest artifacts that the OS derives from what visits commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.journal import kinds
from reyn.kernel.core.history import History
from reyn.lint import lint_skill
from tests.kernel.support import Project
from tests.support import NOTE, go

RECEIPT = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "text": {"type": "string"}},
    "required": ["text"],
}
STATE = """\
state:
  last: {latest: receipt}
  receipts: {append: receipt, max: 3}
  spent: {sum: receipt.data.amount}
"""
RULES = """\
  decide:
    - {when: "state.spent >= 10.0", to: end, artifact: {type: note, data: {text: "${state.spent} in ${visits.buy}"}}}
    - {else: buy}
"""
BUY = "input: receipt\nreads: [state.receipts, state.spent]\n"


def write(
    root: Path,
    *,
    rules: str = RULES,
    state: str = STATE,
    buy: str = BUY,
    keys: str = "",
    graph: str = "",
    first: str = "decide",
) -> Path:
    """Write a skill that buys things until enough is spent."""
    folder = root / "reyn" / "project" / "shop"
    for name in ("phases", "artifacts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    front = f"type: skill\nname: shop\nentry: buy\nfinal_output: note\n{keys}{state}"
    (folder / "skill.md").write_text(f"---\n{front}graph:\n  buy: [{first}]\n{rules}{graph}---\n")
    write_phase(root, "buy", buy)
    (folder / "phases" / "decide.md").write_text("---\ntype: phase\nname: decide\ninput: receipt\n---\n")
    (folder / "artifacts" / "receipt.yaml").write_text(json.dumps(RECEIPT))
    (folder / "artifacts" / "note.yaml").write_text(json.dumps(NOTE))
    return folder


def write_phase(root: Path, name: str, keys: str) -> None:
    head = f"---\ntype: phase\nname: {name}\nallowed_ops: []\n{keys}---\nDo what {name} does.\n"
    (root / "reyn/project/shop/phases" / f"{name}.md").write_text(head)


def bought(text: str, amount: float | None = None, next_phase: str = "decide") -> dict[str, Any]:
    """An answer that goes on with a receipt."""
    answer = go(next_phase, type="receipt")
    answer["artifact"]["data"] = {"text": text} | ({} if amount is None else {"amount": amount})
    return answer


def stored_changes(project: Project, run_id: str = "k") -> list[Any]:
    return [event.get("state") for event in project.events("artifact_stored", run_id=run_id)]


def test_lists_and_sums_follow_what_visits_commit_and_rules_read_them(tmp_path: Path):
    write(tmp_path)
    project = Project(tmp_path)
    answers = [bought("a", 2), bought("b", 3.5), bought("c"), bought("d", 6)]
    result = project.run("shop", answers, {"text": "start", "amount": 100})
    assert result.status == "finished"
    assert result.artifact["data"]["text"] == "11.5 in 4"
    changes = stored_changes(project)
    assert changes[0] == {"items": {"receipts": 1}, "sums": {"spent": 2}}
    assert changes[1] is None  # what a rule passes on does not count again
    assert changes[4] == {"items": {"receipts": 3}}
    assert changes[6] == {"items": {"receipts": 3}, "sums": {"spent": 11.5}}
    assert project.is_sound()


def test_a_phase_sees_the_fields_that_it_reads_and_stores_no_item_again(tmp_path: Path):
    write(tmp_path)
    project = Project(tmp_path)
    project.run("shop", [bought(text, 2.5) for text in "abcd"], {"text": "start"})
    shown = [project.model.turn_message(call) for call in range(4)]
    assert "# Earlier receipts" not in shown[0]
    assert "# Earlier spent\n0" in shown[0]
    assert "# Earlier receipts 1\namount: 2.5\ntext: a" in shown[1]
    assert "# Earlier receipts 2\namount: 2.5\ntext: b" in shown[3]
    assert "# Earlier spent\n7.5" in shown[3]


def test_a_run_with_state_resumes_at_every_event_and_forks_with_the_state_of_the_point(tmp_path: Path):
    write(tmp_path)
    project = Project(tmp_path)
    answers = [bought("a", 4), bought("b", 4), bought("c", 4)]
    whole = project.run("shop", answers, {"text": "start"})
    second = [number for number, kind in enumerate(project.kinds(), start=1) if kind == "phase_completed"][1]
    with project.open([answers[0], bought("d", 7)]) as rt:
        forked = rt.fork("k", at=second, run_id="f")
    assert whole.artifact["data"]["text"] == "12 in 3"
    assert forked.status == "finished", forked.reason
    assert forked.artifact["data"]["text"] == "11 in 2"
    assert project.is_sound("f")


def test_an_imported_run_has_its_state_and_a_fork_goes_on_with_it(tmp_path: Path):
    write(tmp_path / "here")
    project, elsewhere = Project(tmp_path / "here"), Project(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    answers = [bought("a", 4), bought("b", 4), bought("c", 4)]
    project.run("shop", answers, {"text": "start"})
    second = [number for number, kind in enumerate(project.kinds(), start=1) if kind == "phase_completed"][1]
    with project.open([]) as rt:
        lines = list(rt.runs.export("k"))
    with elsewhere.open([answers[0], bought("d", 7)]) as rt:
        rt.runs.import_(lines)
        assert rt.runs.replay("k").events == len(project.kinds())
        assert rt.fork("k", at=second, run_id="f").artifact["data"]["text"] == "11 in 2"


def test_a_rollback_takes_back_what_the_discarded_visit_added(tmp_path: Path):
    write(tmp_path, keys="on_phase_failure: rollback\n", first="review", graph="  review: [decide]\n")
    write_phase(tmp_path, "review", "input: receipt\n")
    project = Project(tmp_path)
    answers = [bought("a", 5, "review"), *["no"] * 3, bought("b", 20, "review"), bought("c", 1)]
    result = project.run("shop", answers, {"text": "start"})
    assert "phase_rolled_back" in project.kinds()
    assert (result.status, result.artifact["data"]["text"]) == ("finished", "21 in 2")
    assert stored_changes(project)[1] == {"items": {"receipts": 1}, "sums": {"spent": 20}}
    assert project.is_sound()


def test_steps_and_the_postprocessor_read_the_state_and_the_result_does_not_have_it(tmp_path: Path):
    step = "python: {module: m.py, function: count, output_schema: {type: integer}, into: data.count"
    steps = (
        f"postprocessor:\n  output_schema: {{type: object}}\n  steps:\n    - {step}, reads: [state.receipts]}}\n"
        "    - validate: {schema: {type: array, maxItems: 3}, target: state.receipts}\n"
    )
    permissions = "permissions: {python: [{module: m.py, function: count}]}\n"
    folder = write(tmp_path, keys=permissions + steps)
    (folder / "m.py").write_text(
        "def count(artifact):\n    return len(artifact['state']['receipts']) * 10 + len(artifact['state'])\n"
    )
    project = Project(tmp_path)
    result = project.run("shop", [bought("a", 5), bought("b", 6)], {"text": "start"})
    assert result.artifact == {"type": "shop_result", "data": {"text": "11 in 2", "count": 21}}
    assert project.is_sound()


def test_a_step_that_reads_no_field_receives_none(tmp_path: Path):
    permissions = "permissions: {python: [{module: m.py, function: names}]}\n"
    step = "preprocessor: [{python: {module: m.py, function: names, into: data.text, output_schema: {type: string}}}]\n"
    folder = write(tmp_path, keys=permissions, buy=f"input: receipt\n{step}")
    (folder / "m.py").write_text("def names(artifact):\n    return ' '.join(sorted(artifact))\n")
    project = Project(tmp_path)
    project.run("shop", [bought("a", 50)], {"text": "start"})
    assert "data type" in project.model.turn_message(0)
    assert "receipts" not in project.model.turn_message(0)


def test_a_sum_that_no_journal_can_hold_fails_the_visit(tmp_path: Path):
    write(tmp_path)
    project = Project(tmp_path)
    result = project.run("shop", [bought("a", 1e308), bought("b", 1e308)], {"text": "start"})
    assert result.path[-1] == "decide"
    write(tmp_path, rules=RULES.replace(">= 10.0", ">= 1e308 && visits.buy > 5"))
    result = project.run("shop", [bought("a", 1e308), bought("b", 1e308)], {"text": "start"}, run_id="large")
    assert (result.status, result.code) == ("failed", "RYN211")
    assert "phase `buy`: `state.spent`: the sum of `receipt.data.amount` is too large" in result.reason
    assert project.is_sound("large")


def test_a_skill_without_state_records_nothing_of_it_and_a_long_list_costs_a_visit_nothing(tmp_path: Path):
    write(tmp_path, state=STATE.replace("max: 3", "max: 1000"), buy="input: receipt\n")
    project = Project(tmp_path)
    project.run("shop", [bought(f"{number:050}", 0.01) for number in range(60)], {"text": "s"}, max_phase_visits=200)
    sizes = [len(json.dumps(event)) for event in project.events("artifact_stored") if event.get("state")]
    assert len(sizes) >= 50
    assert max(sizes) - min(sizes) < 30


@pytest.mark.parametrize(
    ("state", "finding"),
    [
        ("all: {append: receipt}", "7:3 RYN185 `all` keeps every `receipt` of the run: its size has no bound"),
        ("all: {append: receipt, max: 0}", "7:26 RYN114 `state.all.max` must be an integer from 1 to 1000"),
        ("all: {append: receipt, max: 1001}", "7:26 RYN114 `state.all.max` must be an integer from 1 to 1000"),
        ("last: {latest: reciept}", "7:10 RYN117 unknown artifact `reciept`"),
        ("last: {latest: receipt, max: 3}", "7:27 RYN185 `max` of `last` has no effect"),
        ("last: {latest: receipt, sum: receipt.data.amount}", "7:3 RYN185 `last` has several of"),
        ("last: {}", "7:3 RYN185 `last` has none of"),
        ("la-st: {latest: receipt}", "7:3 RYN185 `la-st` is not a valid name"),
        ("spent: {sum: receipt.data.amont}", "7:11 RYN185 `receipt` has no `data.amont`"),
        ("spent: {sum: receipt.data.text}", "7:11 RYN185 `receipt.data.text` is a text; a sum needs a number"),
        ("spent: {sum: receipt.amount}", "7:11 RYN185 `receipt.amount` does not name a number"),
        ("spent: {total: receipt.data.amount}", "7:11 RYN112 unknown key `state.spent.total`"),
        ("spent: {sum: other.data.n}", "7:11 RYN186 no node produces `other`, so `state.spent` never changes"),
    ],
)
def test_lint_reports_a_field_that_is_not_valid_at_its_place(tmp_path: Path, state: str, finding: str):
    folder = write(tmp_path, state=f"state:\n  {state}\n", rules="  decide: [end]\n", buy="input: receipt\n")
    (folder / "artifacts" / "other.yaml").write_text('{"properties": {"n": {"type": "integer"}}}')
    (folder / "phases" / "decide.md").write_text("---\ntype: phase\nname: decide\ninput: receipt\n---\nDecide.\n")
    found = [f"{one.line}:{one.column} {one.code} {one.message}" for one in lint_skill(folder)]
    assert any(one.startswith(finding) for one in found), found


@pytest.mark.parametrize(
    ("buy", "rule", "finding"),
    [
        ("reads: [state.spend]\n", "", "RYN185 the skill has no `state.spend`"),
        (
            "preprocessor: [{validate: {schema: true, target: state.spend}}]\n",
            "",
            "RYN124 `state.spend` does not exist",
        ),
        (
            "preprocessor: [{validate: {schema: true, into: state.spent}}]\n",
            "",
            "RYN124 cannot bind `state.spent`: only artifacts change the state",
        ),
        ("", "state.spend > 1.0", "RYN181 column 7: `state` has no field `spend`"),
        ("", "state.last.amount > 1.0", "RYN182 column 12: `state.last.amount` may be missing"),
        ("", "size(state.receipts) > 'x'", "RYN181"),
    ],
)
def test_lint_reports_what_reads_a_field_that_does_not_exist(tmp_path: Path, buy: str, rule: str, finding: str):
    rules = f'  decide:\n    - {{when: "{rule}", to: buy}}\n    - {{else: buy}}\n' if rule else RULES
    folder = write(tmp_path, buy=f"input: receipt\n{buy}", rules=rules)
    found = [f"{one.code} {one.message}" for one in lint_skill(folder)]
    assert any(one.startswith(finding) for one in found), found


Artifacts = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(-5, 50)), max_size=30)


@given(Artifacts, st.integers(1, 5))
def test_the_fold_is_that_of_a_small_model(artifacts: list[tuple[str, int | None]], most: int):
    history = History()
    for number, (text, amount) in enumerate(artifacts):
        count = min(len(history.items("all")) + 1, most)
        sums = {} if amount is None else {"spent": history.sum("spent") + amount}
        reference = kinds.ArtifactRef("receipt", f"{number}{text}")
        history = history.with_state(reference, kinds.StateChange({"all": count}, sums))
    kept = [f"{number}{text}" for number, (text, _) in enumerate(artifacts)][-most:]
    assert list(history.items("all")) == kept
    assert history.sum("spent") == sum(amount or 0 for _, amount in artifacts)
