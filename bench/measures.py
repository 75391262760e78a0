"""One benchmark per function, run in a fresh process: `python -m bench.measures NAME N` prints JSON.

Each function imports what it measures, because the memory of a run is measured, too.
"""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.workload import FIRST, SETTINGS, Answers, answer, item, write_chain, write_project
from reyn import ModelAnswer, ModelRequest, OSRuntime
from reyn.errors import ModelError
from reyn.journal.sqlite import SqliteJournal

Results = dict[str, float]


@contextmanager
def project() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="reyn-bench-"))
    try:
        write_project(root)
        yield root
    finally:
        shutil.rmtree(root)


class TimedAnswers(Answers):
    """Records the CPU time at every tenth of a run."""

    def __init__(self, visits: int) -> None:
        super().__init__(visits)
        self._tenth = max(1, visits // 10)
        self.marks: list[float] = []

    async def complete(self, request: Any) -> Any:
        if request.answered % self._tenth == 0:
            self.marks.append(time.process_time())
        return await super().complete(request)


async def visits(count: int) -> Results:
    """Measure one run and its replay: CPU per visit, drift, bytes per visit."""
    with project() as root:
        model = TimedAnswers(count)
        async with OSRuntime.open(root, model=model, **SETTINGS) as rt:
            await rt.run("loop", FIRST, run_id="warm-up") if count < 100 else None
            model.marks.clear()
            started = time.process_time()
            result = await rt.run("loop", FIRST, run_id="measured")
            cpu = time.process_time() - started
            assert result.ok, result
            started = time.process_time()
            report = await rt.runs.replay("measured")
            replay_seconds = time.process_time() - started
            assert report.visits == count
        marks = [*model.marks, model.marks[0] + cpu]
        tenths = [after - before for before, after in pairwise(marks)]
        content = len(answer(1, last=False)) + len(json.dumps(item(1), separators=(",", ":")))
        stored = (root / ".reyn" / "journal.db").stat().st_size / count
        return {
            "cpu_us": cpu / count * 1e6,
            "drift": tenths[9] / tenths[0] if len(tenths) > 9 else 1.0,
            "bytes_overhead": stored - content,
            "bytes_content": content,
            "replay_per_s": count / replay_seconds,
        }


class MadeAnswers(Answers):
    """Makes an answer when it is asked for, so that none of them is in memory before."""

    def __init__(self, visits: int) -> None:
        self._visits = visits

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(answer(request.answered, last=request.answered == self._visits - 1))


async def memory(count: int) -> Results:
    """Measure the memory of a process that executes one run."""
    with project() as root:
        async with OSRuntime.open(root, model=MadeAnswers(count), **SETTINGS) as rt:
            assert (await rt.run("loop", FIRST)).ok
    return {"rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


class AllButLast(Answers):
    """Fails on the last call."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.answered == len(self.texts) - 1:
            raise ModelError("last answer withheld")
        return await super().complete(request)


async def resume(count: int) -> Results:
    """Measure the CPU of `resume` before the last answer, from opening the project to the result."""
    with project() as root:
        async with OSRuntime.open(root, model=AllButLast(count), **SETTINGS) as rt:
            await rt.run("loop", FIRST, run_id="measured")
        model = Answers(count)
        started = time.process_time()
        async with OSRuntime.open(root, model=model, **SETTINGS) as rt:
            assert (await rt.resume("measured", retry=True)).ok
        return {"resume_s": time.process_time() - started}


async def one_run(count: int) -> Results:
    """Execute one run, to be traced from outside."""
    with project() as root:
        async with OSRuntime.open(root, model=Answers(count), **SETTINGS) as rt:
            assert (await rt.run("loop", FIRST)).ok
    return {"visits": count}


async def many_runs(count: int, runs: int = 200) -> Results:
    """Execute concurrent runs, which share commits, to be traced from outside."""
    visits_per_run = max(2, count // runs)
    with project() as root:
        async with OSRuntime.open(root, model=Answers(visits_per_run), **SETTINGS) as rt:
            results = await asyncio.gather(*(rt.run("loop", FIRST) for _ in range(runs)))
            assert all(result.ok for result in results)
    return {"visits": visits_per_run * runs}


class SlowCommits(SqliteJournal):
    """Adds a millisecond to every commit, like a slower disk."""

    def append_many(self, batches: Any) -> Any:
        time.sleep(0.001)
        return super().append_many(batches)


async def sharing(count: int, runs: int = 200) -> Results:
    """Measure visits per second of one run and of concurrent runs with 1 ms of extra commit latency."""
    rates = []
    for parallel in (1, runs):
        visits_per_run = max(2, count // parallel)
        with project() as root:
            journal = SlowCommits(root / ".reyn")
            async with OSRuntime.open(root, model=Answers(visits_per_run), journal=journal, **SETTINGS) as rt:
                started = time.perf_counter()
                await asyncio.gather(*(rt.run("loop", FIRST) for _ in range(parallel)))
                rates.append(visits_per_run * parallel / (time.perf_counter() - started))
    return {"one_per_s": rates[0], "many_per_s": rates[1], "ratio": rates[1] / rates[0]}


async def lint(count: int) -> Results:
    """Measure the CPU per phase of linting skills with 50 and `count` phases: minimum of five rounds.

    Each round has schemas of its own. Those of 50 phases would stay in the cache of compiled schemas, and 2,000 do not.
    """
    from reyn.lint import lint_skill

    costs = {}
    for phases in (50, count):
        rounds = []
        for number in range(5):
            with tempfile.TemporaryDirectory() as folder:
                write_chain(Path(folder), phases, phases + number)
                started = time.process_time()
                findings = lint_skill(Path(folder) / "chain")
                rounds.append((time.process_time() - started) / phases)
                assert all(finding.severity == "warning" for finding in findings)
        costs[phases] = min(rounds)
    return {"small_us": costs[50] * 1e6, "large_us": costs[count] * 1e6, "ratio": costs[count] / costs[50]}


async def ops(count: int) -> Results:
    """Measure CPU, without system calls, and commits of a small read and write: medians of five rounds."""
    from bench import ops as op_bench

    results: Results = {}
    for op in ("read", "write"):
        rounds = []
        for _ in range(5):
            with tempfile.TemporaryDirectory() as folder:
                op_bench.write_project(Path(folder))
                rounds.append(await op_bench.measure_op(Path(folder), op, max(1, count // 500)))
        median = sorted(rounds)[2]
        results |= {f"{op}_us": median.own_seconds * 1e6, f"{op}_whole_us": median.total_seconds * 1e6}
        results[f"{op}_commits"] = median.commits
    with tempfile.TemporaryDirectory() as folder:
        results["gate_us"] = await op_bench.measure_gate(Path(folder), max(100, count)) * 1e6
    return results


async def context(count: int) -> Results:
    """Measure truncation, handoffs, and the drift of visits whose prompts are truncated to a budget."""
    from bench import context as context_bench

    results = {"truncate_s": context_bench.measure_truncation()}
    for name, counter in context_bench.counters().items():
        results[f"handoffs_{name}_ms"] = context_bench.measure_handoffs(counter) * 1e3
    with project() as root:
        (root / "reyn.yaml").write_text("context: {max_prompt_tokens: 700}\n")
        model = TimedAnswers(count)
        async with OSRuntime.open(root, model=model, **SETTINGS) as rt:
            started = time.process_time()
            result = await rt.run("loop", FIRST, run_id="measured")
            cpu = time.process_time() - started
            assert result.ok, result
        marks = [*model.marks, model.marks[0] + cpu]
        tenths = [after - before for before, after in pairwise(marks)]
        results |= {"fitted_us": cpu / count * 1e6, "fitted_drift": tenths[9] / tenths[0] if len(tenths) > 9 else 1.0}
    return results


async def adapter(count: int) -> Results:
    """Measure the CPU of a model call with few and many chunks, and of the SDK alone."""
    from bench.adapter import measure_call

    results: Results = {}
    for pieces in (20, 150):
        ours, theirs = await measure_call(pieces, max(4, count // 50))
        results |= {f"ours_{pieces}_ms": ours * 1e3, f"sdk_{pieces}_ms": theirs * 1e3}
    return results


async def mcp(count: int) -> Results:
    """Measure the CPU of a call of an MCP tool over standard input and output."""
    from bench.tools import measure_mcp

    with tempfile.TemporaryDirectory() as folder:
        return await measure_mcp(Path(folder), count)


async def iteration(count: int) -> Results:
    """Measure an iteration over sub-runs, one after the other and ten at once."""
    from bench.tools import measure_iteration

    with tempfile.TemporaryDirectory() as folder:
        return await measure_iteration(Path(folder), count)


async def graph(count: int) -> Results:
    """Measure rules, expressions, branches, and the lint of many rules."""
    from bench import graph as graph_bench

    return await graph_bench.measure_graph(count)


async def sandboxes(count: int) -> Results:
    """Measure the time of python steps and programs in each sandbox."""
    from bench.sandbox import measure_calls

    return measure_calls(count)


async def functions(count: int) -> Results:
    """Measure calls of `@llm_function`, one after the other and together."""
    from bench import functions as function_bench

    return await function_bench.functions(count)


async def budgets(count: int) -> Results:
    """Measure what reserving and settling add to a call."""
    from bench.budgets import overhead

    return await overhead(count)


async def simulation(count: int) -> Results:
    """Execute runs of two processes against the budget of a day."""
    from bench.budgets import long_simulation

    return await asyncio.to_thread(long_simulation, count)


if __name__ == "__main__":
    measure = {
        "budgets": budgets,
        "simulation": simulation,
        "mcp": mcp,
        "iteration": iteration,
        "graph": graph,
        "sandboxes": sandboxes,
        "adapter": adapter,
        "context": context,
        "functions": functions,
        "ops": ops,
        "lint": lint,
        "memory": memory,
        "visits": visits,
        "resume": resume,
        "one_run": one_run,
        "many_runs": many_runs,
        "sharing": sharing,
    }[sys.argv[1]]
    print(json.dumps(asyncio.run(measure(int(sys.argv[2])))))
