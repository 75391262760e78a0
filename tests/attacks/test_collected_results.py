"""A skill multiplies what it makes: an iteration, or branches, put many results together, again and again.

Branches need no model: rules can make their artifacts. Each level multiplies the size, so only a bound on what is put
together ends it. The oracle is the size of the contents that the journal has, and the number of sub-runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn.kernel.visit import step_context
from tests.kernel.support import Project
from tests.kernel.test_fan_out import write_report
from tests.support import finish, write_skill

LIMIT = 4_000
TEXT = "x" * 500
ITEMS = [{"text": f"{number}"} for number in range(40)]


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_context, "MAX_COLLECTED", LIMIT)


def largest(project: Project) -> int:
    """Return the size of the largest content that an event of a run names as its artifact."""
    names = [event["result"] for event in project.events("step_completed") if event.get("result")]
    return max([len(project.journal.blob(name)) for name in names], default=0)


def branches(root: Path, more: str = "") -> dict[str, Any]:
    node = "{each: {in: data.items, do: write, output: note, max_parallel: 2}" + more + ", as: drafts}"
    write_report(root, node)
    return {"type": "plan", "data": {"items": ITEMS}}


def iteration(root: Path, more: str = "", concurrency: str = "") -> dict[str, Any]:
    bag = {"type": "object", "properties": {"items": {"type": "array"}, "all": {"type": "array"}}}
    write_skill(root, "leaf", {"work": ["end"]})
    inner = f"run_skill: {{skill: leaf, input: {{text: _iter.item.text}}{more}}}"
    step = f"preprocessor:\n  - iterate: {{over: data.items, {concurrency}into: data.all, apply: {{{inner}}}}}\n"
    write_skill(
        root, "report", {"work": ["end"]}, inputs={"work": "bag"}, artifacts={"bag": bag}, phase_keys={"work": step}
    )
    return {"type": "bag", "data": {"items": ITEMS}}


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "branches": branches,
    "branches whose failures are collected": lambda root: branches(root, ", on_item_error: collect"),
    "branches that are repeated": lambda root: branches(root, ", on_item_error: retry"),
    "an iteration": iteration,
    "an iteration that skips failures": lambda root: iteration(root, ", on_error: skip"),
    "an iteration that empties failures": lambda root: iteration(root, ", on_error: empty"),
    "a wide iteration": lambda root: iteration(root, concurrency="concurrency: 3, "),
}


@pytest.mark.parametrize("case", CASES)
def test_results_that_are_put_together_are_bounded(case: str, tmp_path: Path):
    value = CASES[case](tmp_path)
    project = Project(tmp_path)
    ended = project.run("report", [finish(TEXT)] * (len(ITEMS) + 1), value["data"])
    assert ended.status == "failed"
    assert f"the results are larger than {LIMIT:,} bytes together" in ended.reason
    assert largest(project) < LIMIT
    assert len(project.journal.runs()) < 30
    assert project.is_sound()


@pytest.mark.parametrize("case", ["branches", "an iteration", "a wide iteration"])
def test_results_below_the_bound_are_put_together(case: str, tmp_path: Path):
    value = CASES[case](tmp_path)
    project = Project(tmp_path)
    value["data"]["items"] = ITEMS[:5]
    assert project.run("report", [finish(TEXT)] * 6, value["data"]).status == "finished"
    assert project.is_sound()
