"""Budgets under load: many runs in several processes against one cap, and the CPU that bookkeeping adds to a call.

`simulate` is also a test, with fewer calls.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.workload import FIRST, SETTINGS, Answers, write_project
from reyn import ModelAnswer, ModelRequest, OSRuntime, Usage
from reyn.config.budgets import PriceSettings
from reyn.journal.sqlite import SqliteJournal
from reyn.models.prices import prompt_bound


class RandomProvider(Answers):
    """A provider that reports random usage within what it was allowed, and answers after a random delay.

    A tenth of the answers report the most that was allowed. `used` is what it has really charged.
    """

    takes_time = True
    price = PriceSettings(3.0, 15.0)

    def __init__(self, visits: int, seed: int, *, is_slow: bool = True) -> None:
        super().__init__(visits)
        self._chance = random.Random(seed)
        self._is_slow = is_slow
        self.used = 0
        self.calls = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if self._is_slow:
            await asyncio.sleep(self._chance.random() * 0.002)
        most = prompt_bound(request.messages)
        share = 1.0 if self._chance.random() < 0.1 else self._chance.random()
        usage = Usage(max(1, int(most * share)), max(1, int(request.max_tokens * share)))
        self.used += usage.total
        self.calls += 1
        reply = await super().complete(request)
        return ModelAnswer(reply.text, usage)


class Simulated(NamedTuple):
    """The outcome of a simulation: the cap, what providers charged, what the journal charged, and how runs ended."""

    cap: int
    used: int
    charged: int
    reserved: int
    calls: int
    statuses: dict[str, int]


def simulate(root: Path, *, processes: int, runs: int, calls: int, cap: int, seed: int = 1) -> Simulated:
    """Execute concurrent runs of several processes against the budget of a day.

    Args:
        root: An empty folder for the project.
        processes: The number of processes.
        runs: The runs of each process, all at the same time.
        calls: The model calls of each run.
        cap: The tokens of the day.
        seed: The seed of the usage.
    """
    write_project(root)
    (root / "reyn.yaml").write_text(f"budgets: {{day: {{tokens: {cap}}}}}\n")
    SqliteJournal(root / ".reyn").close()  # created once, before the processes compete for it
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        parts = [(str(root), runs, calls, seed + number) for number in range(processes)]
        outcomes = pool.starmap(_execute, parts)
    journal = SqliteJournal(root / ".reyn")
    try:
        days = {row.day for row in journal.charges()}
        balances = [journal.balance(f"day:{day}") for day in days]
    finally:
        journal.close()
    statuses: dict[str, int] = {}
    for _, _, found in outcomes:
        for status in found:
            statuses[status] = statuses.get(status, 0) + 1
    return Simulated(
        cap,
        sum(used for used, _, _ in outcomes),
        sum(balance.tokens for balance in balances),
        sum(balance.reserved_tokens for balance in balances),
        sum(count for _, count, _ in outcomes),
        statuses,
    )


def _execute(root: str, runs: int, calls: int, seed: int) -> tuple[int, int, list[str]]:
    model = RandomProvider(calls, seed)

    async def execute() -> list[str]:
        async with OSRuntime.open(Path(root), model=model, trust=True, **SETTINGS) as rt:
            names = [f"p{seed}-{number}" for number in range(runs)]
            results = await asyncio.gather(*(rt.run("loop", FIRST, run_id=name) for name in names))
            return [str(result.status) for result in results]

    statuses = asyncio.run(execute())
    return model.used, model.calls, statuses


async def overhead(count: int) -> dict[str, float]:
    """Measure the CPU per call of reserving and settling: the same run with a budget and without.

    The smallest of several alternating rounds counts, because other programs only add to it.
    """
    pairs = [(await _cpu(count, {}), await _cpu(count, _BUDGETS)) for _ in range(5)]
    plain, budgeted = min(one for one, _ in pairs), min(one for _, one in pairs)
    added = max(1.0, budgeted - plain)  # a difference below a microsecond is noise
    return {"plain_us": plain, "budget_us": budgeted, "added_us": added}


_BUDGETS: dict[str, Any] = {"run": {"tokens": 10**12, "cost": 1_000_000}, "day": {"tokens": 10**12}}


class Instant(RandomProvider):
    """Answers at once, so that only budgets make a difference."""

    takes_time = False


async def _cpu(count: int, budgets: dict[str, Any]) -> float:
    root = Path(tempfile.mkdtemp(prefix="reyn-bench-"))
    try:
        write_project(root)
        model = Instant(count, 1, is_slow=False)
        async with OSRuntime.open(root, model=model, budgets=budgets, **SETTINGS) as rt:
            began = time.process_time()
            result = await rt.run("loop", FIRST, run_id="measured")
            assert result.ok, result
            return (time.process_time() - began) / count * 1e6
    finally:
        shutil.rmtree(root)


def long_simulation(count: int) -> dict[str, float]:
    """Execute `count` calls from 50 runs in two processes, until they reach the cap together."""
    calls = max(1, count * 11 // 500)
    root = Path(tempfile.mkdtemp(prefix="reyn-bench-"))
    try:
        began = time.monotonic()
        found = simulate(root, processes=2, runs=25, calls=calls, cap=count * 2600)
        assert found.used == found.charged, found
        assert found.reserved == 0, found
        return {
            "excess": float(max(0, found.used - found.cap)),
            "share": found.used / found.cap,
            "calls": float(found.calls),
            "limited": float(found.statuses.get("limited", 0)),
            "finished": float(found.statuses.get("finished", 0)),
            "seconds": time.monotonic() - began,
        }
    finally:
        shutil.rmtree(root)
