"""`reyn usage`, and the costs that `runs`, `show` and `resume --raise` print."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from reyn import ModelAnswer, SyncRuntime, Usage
from reyn.cli.charts import usage_text
from reyn.config.budgets import PriceSettings, amount_text, money_text
from reyn.testing import ScriptedModel
from tests.support import finish, go, write_skill

DAY = 86_400_000_000
NO_COST = {"budgets": {"day": {"cost": None}}}
"""The price of the last model is unknown."""


class Clock:
    def __init__(self) -> None:
        self.time = 1_794_830_400_000_000  # 2026-11-16 12:00 UTC

    def now(self) -> int:
        self.time += 1000
        return self.time


class Priced(ScriptedModel):
    takes_time = True
    price = PriceSettings(2.0, 8.0, 1.0)

    async def complete(self, request):
        return ModelAnswer((await super().complete(request)).text, Usage(1000, 100, 400))


class Unpriced(ScriptedModel):
    takes_time = True

    async def complete(self, request):
        return ModelAnswer((await super().complete(request)).text, Usage(10, 5))


@pytest.fixture
def spent(here: Path) -> Path:
    """Two runs of `s` on two days, and one of `other` without a price."""
    write_skill(here, "s", {"a": ["b"], "b": ["end"]})
    write_skill(here, "other", {"a": ["end"]})
    (here / "reyn.yaml").write_text("budgets: {day: {cost: 1, tokens: 50000}, skill: {s: {day: {cost: 0.5}}}}\n")
    clock = Clock()
    for number in (1, 2):
        with SyncRuntime.open(here, model=Priced([go("b"), finish()]), clock=clock) as rt:
            assert rt.run("s", {"text": "in"}, run_id=f"day-{number}").ok
        clock.time += DAY
    with SyncRuntime.open(here, model=Unpriced([finish()], name="mystery"), clock=clock, **NO_COST) as rt:
        assert rt.run("other", {"text": "in"}, run_id="day-3").ok
    return here


COST = "0.0048 USD"
"""Twice 600 tokens at 2, 400 at 1 and 100 at 8 dollars a million."""


def test_spending_is_shown_by_day_skill_model_and_run(spent: Path, reyn):
    days = reyn("usage").out.splitlines()
    assert days[0].split() == ["DAY", "CALLS", "INPUT", "CACHED", "OUTPUT", "COST"]
    assert days[1].split() == ["2026-11-16", "2", "2,000", "800", "200", *COST.split()]
    assert days[3].split() == ["2026-11-18", "1", "10", "0", "5", "unknown"]
    assert days[4].split() == ["total", "5", "4,010", "1,600", "405", "0.0096", "USD", "+", "1", "unpriced"]
    skills = reyn("usage", "--by", "skill").out.splitlines()
    assert [line.split()[0] for line in skills[1:4]] == ["s", "other", "total"]
    assert "mystery" in reyn("usage", "--by", "model").out
    assert "day-2" in reyn("usage", "--by", "run").out
    assert "2026-11-16" not in reyn("usage", "--since", "2026-11-17").out
    assert "no usage recorded since then" in reyn("usage", "--since", "2030-01-01").out


class Thinking(Priced):
    async def complete(self, request):
        return ModelAnswer((await super().complete(request)).text, Usage(1000, 100, 400, thoughts=60))


@pytest.mark.parametrize("thinking_runs", [0, 1, 3])
def test_thoughts_have_a_column_if_there_are_some(here: Path, reyn, thinking_runs: int):
    write_skill(here, "s", {"one": ["end"]})
    for number in range(3):
        model = Thinking if number < thinking_runs else Priced
        with SyncRuntime.open(here, model=model([finish()]), clock=Clock()) as rt:
            assert rt.run("s", {"text": "in"}).ok
    header, *rows = reyn("usage", "--by", "run").out.splitlines()
    assert ("THOUGHTS" in header) is bool(thinking_runs)
    counts = [60] * thinking_runs + [0] * (3 - thinking_runs)
    total = json.loads(reyn("usage", "--by", "run", "--json").out)["total"]["thinking_tokens"]
    assert total == sum(counts)
    if thinking_runs:
        column = header.split().index("THOUGHTS")
        assert sorted(int(row.split()[column]) for row in rows[:3]) == sorted(counts)


def test_usage_as_json_has_exact_amounts(spent: Path, reyn):
    found = json.loads(reyn("usage", "--by", "run", "--json").out)
    assert [row["name"] for row in found["rows"]] == ["day-1", "day-2", "day-3"]
    assert found["rows"][0]["costs"] == {"USD": "0.0048"}
    assert found["total"] == {
        "name": "total", "calls": 5, "input_tokens": 4010, "cached_tokens": 1600, "output_tokens": 405,
        "thinking_tokens": 0,         "costs": {"USD": "0.0096"}, "unpriced": 1, "assumed": 0,
    }  # fmt: skip
    assert {(one["limit"], one["skill"], one["cap"]) for one in found["budgets"]} == {
        ("day_tokens", None, 50000), ("day_cost", None, "1"), ("skill_day_cost", "s", "0.5"),
    }  # fmt: skip


def test_usage_is_drawn_on_a_terminal_and_as_svg(spent: Path, reyn):
    plot = reyn("usage", "--format", "plot").out
    assert "cost in USD by day" in plot
    assert plot.count("█" * 40) == 2
    assert "budget of a day: 1.00 USD" in plot
    root = ET.fromstring(reyn("usage", "--format", "svg", "--by", "skill").out)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "Cost in USD by skill"
    assert "0.0096 USD" in texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 2


def test_an_empty_project_has_no_spending(here: Path, reyn):
    (here / "reyn.yaml").write_text("")
    assert reyn("usage").out.startswith("no usage recorded; ")
    assert "no usage recorded" in reyn("usage", "--format", "svg").out


def test_runs_and_show_have_the_cost(spent: Path, reyn):
    lines = reyn("runs").out.splitlines()
    assert lines[0].split()[:5] == ["RUN", "SKILL", "STATUS", "SINCE", "COST"]
    assert "0.0048 USD" in next(line for line in lines if line.startswith("day-1"))
    assert "unknown" in next(line for line in lines if line.startswith("day-3"))
    [run] = [row for row in json.loads(reyn("runs", "--json").out) if row["run_id"] == "day-1"]
    assert (run["cost"]["amount"], run["cost"]["currency"]) == ("0.0048", "USD")
    shown = reyn("show", "day-1").out
    assert shown.count("cost 0.0024 USD · 1,100 tokens · 1 call") == 2, "one line for each visit"
    assert "used: 2,200 tokens (2,000 in, 800 cached, 200 out), 0.0048 USD" in shown
    costs = [step for step in json.loads(reyn("show", "day-1", "--json").out)["steps"] if step["type"] == "visit_end"]
    assert [(step["cost"], step["currency"]) for step in costs] == [("0.0024", "USD")] * 2


def test_a_budget_in_money_is_raised_in_units_of_its_currency(here: Path, reyn):
    write_skill(here, "s", {"a": ["b"], "b": ["end"]})
    (here / "answers.jsonl").write_text("\n".join(map(json.dumps, (go("b"), finish()))))
    (here / "reyn.yaml").write_text(
        "model: m\nmodels: {m: {model: 'scripted:answers.jsonl', price: {input: 1, output: 1}}}\n"
        "budgets: {run: {cost: 0.00001}}\n"
    )
    stopped = reyn("run", "s", '{"text": "in"}', "--run-id", "k")
    assert stopped.code == 3
    assert "of 0.00001 USD (`run_cost`) is left" in stopped.out
    assert "next: reyn resume k --raise run_cost=0.00" in stopped.out
    refused = reyn("resume", "k", "--raise", "run_cost=many")
    assert refused.code != 0
    assert reyn("resume", "k", "--raise", "run_cost=1.50").code == 0
    assert "limit `run_cost` raised to 1.5" in reyn("show", "k").out


@pytest.mark.parametrize(
    ("nano", "text", "plain"),
    [
        (0, "0.00 USD", "0"),
        (1, "0.000000001 USD", "0.000000001"),
        (1_500_000_000, "1.50 USD", "1.5"),
        (1_234_567_000_000_000, "1,234,567.00 USD", "1234567"),
    ],
)
def test_amounts_are_written_exactly(nano: int, text: str, plain: str):
    assert money_text(nano, "USD") == text
    assert amount_text(nano) == plain


class Dying(Priced):
    async def complete(self, request):
        raise KeyboardInterrupt


def test_interrupted_calls_are_listed_with_the_commands_that_settle_them(here: Path, reyn):
    write_skill(here, "s", {"a": ["end"]})
    with SyncRuntime.open(here, model=Dying([])) as rt, pytest.raises(KeyboardInterrupt):
        rt.run("s", {"text": "in"}, run_id="dead")
    text = reyn("usage").out
    assert "reserved: run dead: " in text
    assert "(its process ended during a call, which is charged in full)" in text
    assert "next: reyn resume dead, or reyn cancel dead" in text
    [reserved] = reyn("usage", "--json").json["reserved"]
    assert (reserved["run"], reserved["is_executing"], reserved["currency"]) == ("dead", False, "USD")
    [check] = [one for one in reyn("doctor", "--json").json["checks"] if one["name"] == "budgets"]
    assert check["health"] == "warning"
    assert "`dead`" in check["text"]
    assert reyn("cancel", "dead").code == 0
    assert "reserved" not in reyn("usage").out
    assert "1 call without a reported usage, charged in full" in reyn("usage").out


def test_the_limit_leaves_out_groups_but_not_the_total(spent: Path, reyn):
    full, limited = reyn("usage", "--json").json, reyn("usage", "--limit", "1", "--json").json
    assert limited["rows"] == full["rows"][-1:], "the last day"
    assert limited["total"] == full["total"]
    assert reyn("usage", "--limit", "1").out.splitlines()[2].split()[0] == "total"
    assert reyn("usage", "--by", "run", "--limit", "1", "--json").json["rows"][0]["name"].startswith("day-")


@pytest.mark.parametrize("columns", [0, 20, 45, 200])
def test_a_plot_fits_the_terminal_if_its_bars_can_be_short_enough(spent: Path, columns: int):
    with SyncRuntime.open(spent) as rt:
        report = rt.runs.usage("run")
    lines = usage_text(report, columns).splitlines()[1:-1]
    assert all("█" in line for line in lines if "unknown" not in line and "0.00 USD" not in line)
    if columns >= 45:
        assert max(map(len, lines)) <= columns


def test_a_table_that_is_wider_than_the_terminal_is_printed_as_blocks(
    spent: Path, reyn, monkeypatch: pytest.MonkeyPatch
):
    table = reyn("usage").out
    monkeypatch.setattr("reyn.cli.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    assert reyn("usage").out == table
    monkeypatch.setenv("COLUMNS", "30")
    lines = reyn("usage").out.splitlines()
    assert lines[:6] == [
        "2026-11-16",
        "  calls   2",
        "  input   2,000",
        "  cached  800",
        "  output  200",
        f"  cost    {COST}",
    ]
    assert "total" in lines
    assert all(len(line) <= 30 for line in lines if not line.startswith("today: ") and "unpriced" not in line)
