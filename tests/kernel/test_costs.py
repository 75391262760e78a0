"""The cost of a visit, its replay, an op, a function call and a chat turn does not grow unnoticed.

Counts are compared exactly, for each version of Python; CPU in units of the machine, for each architecture. Where no
figures are stored, the current ones are only reported. `python -m bench.units --write` stores them.
"""

from __future__ import annotations

import json
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench import units, workload
from bench.units import ACTIVITIES, Costs, Work
from reyn import OSRuntime
from reyn.context.field_order import FieldOrder
from reyn.kernel.world.live import LiveWorld

pytestmark = pytest.mark.slow
MOST = 1.4
"""The CPU of an activity may be this many times the stored one: more than noise, less than a mistake."""
STORED = json.loads(units.STORED.read_text())


def excess(found: Costs, stored: Costs) -> list[str]:
    """Return the counts that are larger than the stored ones."""
    kinds = sorted(found.keys() | stored.keys())
    pairs = [(kind, found.get(kind, 0), stored.get(kind, 0)) for kind in kinds]
    return [f"{now:g} {kind}, stored are {before:g}" for kind, now, before in pairs if now > before]


@pytest.mark.parametrize("name", ACTIVITIES)
def test_an_activity_does_no_more_than_is_stored(name: str):
    found, stored = units.count(name), STORED["counts"].get(units.python_version())
    if stored is None:
        pytest.skip(f"no counts are stored for Python {units.python_version()}; a {name} has {found}")
    assert not excess(found, stored[name]), f"a {name} does more than `tests/costs.json` allows"


def late_excess(stored: Costs) -> list[str]:
    """Return the counts of a late visit that are larger than those of an early one, by half or more."""
    return excess({kind: float(round(each)) for kind, each in units.count_late(ACTIVITIES["visit"]).items()}, stored)


def test_a_late_visit_of_a_run_does_no_more_than_an_early_one():
    stored = STORED["counts"].get(units.python_version())
    if stored is None:
        pytest.skip(f"no counts are stored for Python {units.python_version()}")
    assert not late_excess(stored["visit"])


def test_work_that_begins_after_a_hundred_model_calls_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """A run that compared each call with a bound, from the hundredth on, once went unnoticed."""
    monkeypatch.setattr(LiveWorld, "_count_at", property(lambda _: 100, lambda *_: None), raising=False)
    assert late_excess(units.count("visit"))


def test_cpu_in_units_is_at_most_that_of_the_stored_figures():
    stored = STORED["units"].get(platform.machine())
    if stored is None:
        pytest.skip(f"no figures are stored for {platform.machine()}; they are {units.measure(rounds=3)}")
    found = units.measure()
    for _ in range(6):  # a measurement can be disturbed, but not made too small
        late = tuple(name for name in found if found[name] > MOST * stored[name])
        found |= {name: min(found[name], again) for name, again in (units.measure(late) if late else {}).items()}
    slower = [
        f"{name}: {found[name]} units, stored are {stored[name]}" for name in found if found[name] > MOST * stored[name]
    ]
    assert not slower


def test_work_for_every_nested_value_of_an_artifact_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """Sorting the fields of each nested value on its own once cost a quarter of a visit."""
    monkeypatch.setattr(FieldOrder, "apply", FieldOrder._apply_slowly)
    stored = STORED["counts"].get(units.python_version(), {"visit": {"Python calls": 400}})
    assert units.count("visit")["Python calls"] > 1.2 * stored["visit"]["Python calls"]


@asynccontextmanager
async def visits_with_new_content(root: Path, size: int) -> AsyncIterator[Work]:
    """Execute runs of so many visits, none of whose answers and artifacts was stored before."""
    workload.write_project(root)
    model = workload.Answers(size)
    async with OSRuntime.open(root, model=model, **workload.SETTINGS) as rt:

        async def work() -> None:
            assert (await rt.run("loop", workload.FIRST)).ok
            model.texts = [text.replace("of step", "of the step") for text in model.texts]

        yield work


def test_the_commit_of_a_visit_writes_few_pages():
    """Its events are one row, its run another one; 5 KB of new content are two pages, with what indexes them."""
    costs = units.count_of(visits_with_new_content)
    assert costs["pages"] <= 5.5
    assert costs["SQL statements"] <= 6


def test_the_page_on_a_decision_lists_where_values_are_decoded_encoded_hashed_and_validated():
    text = units.PAGE.read_text(encoding="utf-8")
    listed = text[text.index(units.BEGIN) + len(units.BEGIN) : text.index(units.END)].strip()
    if units.python_version() not in STORED["counts"]:
        pytest.skip(f"the page lists another version than Python {units.python_version()}")
    assert listed == units.table()
