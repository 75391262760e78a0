"""What the server tells monitoring, what a look costs, and the submitted runs that it executes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import SyncRuntime
from reyn.api import ChatRuntime
from reyn.engines import Serving
from reyn.gateway.tallies import BOUNDS, CallTimes, ChargedSoFar
from reyn.gateway.work import execute_submitted
from reyn.journal import Event, MemoryJournal, RunRow
from reyn.journal.listing import RunQuery
from reyn.journal.spending import SpendRow
from reyn.runtime.notifying import Notifier
from reyn.testing import ScriptedModel
from tests.gateway.support import QUESTION, ended, run_async, served_on_socket, serving
from tests.gateway.test_api import Agent, Items
from tests.kernel.test_budgets import USAGE, Provider
from tests.support import finish, go, two_phases

_LINE = re.compile(r'([a-z_]+)(\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)+\})? (\S+)')


def figures(text: str) -> dict[str, float]:
    """Return the figures in the text format of Prometheus; every line must have it."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            match = _LINE.fullmatch(line)
            assert match is not None, line
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


class CountedJournal(MemoryJournal):
    """A journal whose list of all runs must not be read."""

    is_paging = False

    def page(self, query: RunQuery, limit: int, after: str = "") -> list[RunRow]:
        self.is_paging = True
        try:
            return super().page(query, limit, after)
        finally:
            self.is_paging = False

    def runs(self, prefix: str = "") -> list[RunRow]:
        assert self.is_paging or prefix, "read the list of all runs"
        return super().runs(prefix)


def _sum(found: dict[str, float], name: str) -> float:
    return sum(value for key, value in found.items() if key.startswith(f"{name}{{"))


def test_the_figures_of_runs_and_model_calls(tmp_path: Path):
    async def work() -> None:
        journal, model = CountedJournal(), Provider([QUESTION, *[{"no": "decision"}] * 2])
        async with serving(tmp_path, [], journal=journal, model=model) as served, served.http(served.token()) as http:
            for run, skill in (("q", "asker"), ("failed", "pair")):
                await http.post("/api/runs", json={"skill": skill, "input": {"text": "x"}, "run_id": run})
                await ended(http, run)
            async with open_elsewhere(tmp_path, journal) as other:
                assert (await other.run("pair", {"text": "in"})).ok
                other.submit("pair", {"text": "in"}, run_id="queued", queue="night")
            found = figures((await http.get("/metrics")).text)
        statuses = {key: value for key, value in found.items() if key.startswith("reyn_runs")}
        assert statuses == {f'reyn_runs{{status="{name}"}}': 1 for name in ("waiting", "finished", "failed", "queued")}
        assert found["reyn_open_questions"] == 1
        assert found['reyn_queued_runs{queue="night"}'] == 1
        assert _sum(found, "reyn_model_call_seconds_count") == 4
        assert _sum(found, "reyn_model_calls_total") == 4  # scripted models cost nothing
        assert _sum(found, "reyn_tokens_total") == 4 * (USAGE.input_tokens + USAGE.output_tokens)
        assert round(_sum(found, "reyn_cost_total") * 1e6) == 4 * (100 * 2 + 20 * 8)

    run_async(work)


def open_elsewhere(root: Path, journal: Any) -> ChatRuntime:
    model = ScriptedModel([go("second"), finish("done")])
    return ChatRuntime.open(root, journal=journal, trust=True, model=model)


def test_the_calls_of_conversations_and_of_submitted_runs_are_measured(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [], model=Agent()) as served, served.http(served.token()) as http:
            items = Items(served, "c")
            await http.post("/api/conversations", json={"text": "hi", "run_id": "c"})
            await items.next("reply")
            assert _sum(figures((await http.get("/metrics")).text), "reyn_model_call_seconds_count") == 1
        async with serving(tmp_path, [go("second"), finish("done")]) as served, served.http(served.token()) as http:
            site = served.site
            site.runtime.submit("pair", {"text": "in"}, run_id="a")
            once = Serving(queues=("default",), is_once=True, listener=site.changes.publish)
            await execute_submitted(site.runtime, once)
            assert _sum(figures((await http.get("/metrics")).text), "reyn_model_call_seconds_count") == 2

    run_async(work)


def _event(kind: str, call: str, ts: int, **more: Any) -> Event:
    raw = msgspec.json.encode({"call": call} | more)
    return Event(seq=1, run_id="r", ts=ts, kind=kind, v=1, raw=raw, prev="", hash="")


@given(st.lists(st.tuples(st.sampled_from(["small", 'a"\\b\n']), st.integers(-1, 400_000_000)), max_size=30))
def test_a_histogram_has_every_call_once(calls: list[tuple[str, int]]):
    times = CallTimes()
    for number, (model, duration) in enumerate(calls):
        times.observe(_event("llm_requested", str(number), 5, model=model))
        times.observe(_event("llm_responded" if number % 2 else "llm_failed", str(number), 5 + duration))
        times.observe(_event("llm_responded", str(number), 5 + duration))
    found = times.found()
    assert sum(sum(counts) for _, counts, _ in found) == len(calls)
    for index, bound in enumerate(BOUNDS):
        expected = sum(duration <= bound * 1e6 for _, duration in calls)
        assert sum(sum(counts[: index + 1]) for _, counts, _ in found) == expected
    assert round(sum(seconds for _, _, seconds in found) * 1e6) == sum(max(0, duration) for _, duration in calls)


class _Charges:
    """The part of a journal that has charges."""

    def __init__(self) -> None:
        self.rows: list[SpendRow] = []
        self.asked: list[str] = []

    def charges(self, since: str = "") -> list[SpendRow]:
        self.asked.append(since)
        return [row for row in self.rows if row.day >= since]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b"]), st.integers(0, 9)), max_size=40))
def test_totals_are_those_of_all_charges_and_earlier_days_are_read_once(steps: list[tuple[int, str, int]]):
    today, journal = 10, _Charges()
    spending = ChargedSoFar(lambda days: f"2026-01-{today - days:02}")
    for advance, skill, tokens in steps:
        today = min(28, today + advance)
        row = SpendRow(f"2026-01-{today:02}", "r", "m", "USD", skill, 1, tokens, 1, 0, 0, 7)
        journal.rows.append(row)
        found = spending.totals(journal)  # type: ignore[arg-type]
        for name in ("a", "b"):
            own = [one for one in journal.rows if one.skill == name]
            assert found["reyn_tokens_total", name, "m", ""] == sum(one.input_tokens + 1 for one in own)
            assert found["reyn_cost_total", name, "m", "USD"] == 7 * len(own)
    assert [since for since in journal.asked[1:] if since < f"2026-01-{10 - 2:02}"] == []


def test_a_look_for_notifications_does_not_read_the_list_of_all_runs(tmp_path: Path):
    async def work() -> None:
        (tmp_path / "reyn.yaml").write_text("notify: {command: ['true']}\n")
        journal = CountedJournal()
        async with serving(tmp_path, [QUESTION, *[{"no": "decision"}] * 2], journal=journal) as served:
            runtime = served.site.runtime
            notifier = Notifier(runtime.services, "http://127.0.0.1:8300")
            async with open_elsewhere(tmp_path, journal) as other:
                await other.run("pair", {"text": "in"})
            assert notifier._due() == []
            await runtime.run("asker", {"text": "in"}, run_id="q")
            await runtime.run("pair", {"text": "in"}, run_id="failed")
            assert {one.id.partition("/")[0]: one.event for one in notifier._due()} == {
                "q": "question",
                "failed": "failed",
            }
            assert notifier._due() == []

    run_async(work)


@pytest.mark.sockets
def test_a_server_with_an_engine_executes_submitted_runs(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("engine: outbox\n")
    with served_on_socket(tmp_path, ScriptedModel([go("second"), finish("done")])) as (url, secret):
        two_phases(tmp_path)
        with SyncRuntime.open(tmp_path, trust=True, model=ScriptedModel([])) as elsewhere:
            elsewhere.submit("pair", {"text": "in"}, run_id="a")
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=120) as http:
            with http.stream("GET", "/api/runs/a/stream") as response:
                response.read()
            assert http.get("/api/runs/a").json()["run"]["status"] == "finished"
