"""Runs of several processes never exceed a shared budget together, and none of them waits forever."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.budgets import simulate
from bench.workload import FIRST, write_project
from reyn import SyncRuntime, Usage
from reyn.models.prices import usage_bound
from reyn.testing import ScriptedModel


def first_bound(root: Path) -> int:
    """Return the most tokens that the first call of the simulated skill can use."""
    bounds: list[Usage] = []

    class Probe(ScriptedModel):
        async def complete(self, request):
            bounds.append(usage_bound(self, request, None))
            return await super().complete(request)

    write_project(root)
    with SyncRuntime.open(root, model=Probe([])) as rt:
        rt.run("loop", FIRST)
    return bounds[0].total


@pytest.mark.slow
def test_concurrent_runs_of_two_processes_never_exceed_a_cap_by_a_token(tmp_path: Path):
    found = simulate(tmp_path, processes=2, runs=4, calls=6, cap=70_000)
    assert found.used <= found.cap
    assert found.used == found.charged, "what providers charged is what the journal counts"
    assert found.reserved == 0
    assert sum(found.statuses.values()) == 8
    assert found.statuses.keys() <= {"finished", "limited"}
    assert found.statuses["limited"] > 0
    assert found.used > found.cap // 2, "runs wait for each other instead of stopping early"


@pytest.mark.slow
def test_of_two_processes_at_the_last_cent_one_makes_the_call(tmp_path: Path):
    cap = first_bound(tmp_path / "probe")
    found = simulate(tmp_path / "project", processes=2, runs=1, calls=3, cap=cap)
    assert found.calls == 1
    assert found.used <= cap
    assert found.statuses == {"limited": 2}
