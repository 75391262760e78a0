"""One measurement a function, each meant for a fresh process: `python -m bench.measures NAME N` prints JSON."""

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

from bench import adapter as calling
from bench import ops as acting
from bench.workload import FIRST, SETTINGS, Answers, answer, item, write_chain, write_project
from reyn import ModelReply, ModelRequest, OSRuntime
from reyn.errors import ModelError
from reyn.journal.sqlite import SqliteJournal
from reyn.lint import lint_skill

Figures = dict[str, float]


@contextmanager
def project() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="reyn-bench-"))
    try:
        write_project(root)
        yield root
    finally:
        shutil.rmtree(root)


class Timed(Answers):
    """Notes the CPU time at every tenth of the run, when the model is asked."""

    def __init__(self, visits: int) -> None:
        super().__init__(visits)
        self._tenth = max(1, visits // 10)
        self.marks: list[float] = []

    async def complete(self, request: Any) -> Any:
        if request.answered % self._tenth == 0:
            self.marks.append(time.process_time())
        return await super().complete(request)


async def visits(count: int) -> Figures:
    """One run: CPU a visit, drift between its ends, bytes a visit, memory; then its replay."""
    with project() as root:
        model = Timed(count)
        async with OSRuntime.open(root, model=model, **SETTINGS) as rt:
            await rt.run("loop", FIRST, run_id="warm-up") if count < 100 else None
            model.marks.clear()
            started = time.process_time()
            result = await rt.run("loop", FIRST, run_id="measured")
            cpu = time.process_time() - started
            assert result.ok, result
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            started = time.process_time()
            report = await rt.replay("measured")
            replayed = time.process_time() - started
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
            "rss_mb": memory,
            "replay_per_s": count / replayed,
        }


class Withheld(Answers):
    """Gives every answer but the last."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        if request.answered == len(self.texts) - 1:
            raise ModelError("not now")
        return await super().complete(request)


async def resume(count: int) -> Figures:
    """A run that stopped before its last answer: CPU of the whole `resume`, from opening the project to the result."""
    with project() as root:
        async with OSRuntime.open(root, model=Withheld(count), **SETTINGS) as rt:
            await rt.run("loop", FIRST, run_id="measured")
        model = Answers(count)
        started = time.process_time()
        async with OSRuntime.open(root, model=model, **SETTINGS) as rt:
            assert (await rt.resume("measured", retry=True)).ok
        return {"resume_s": time.process_time() - started}


async def one_run(count: int) -> Figures:
    """One run and nothing else: to be watched from outside."""
    with project() as root:
        async with OSRuntime.open(root, model=Answers(count), **SETTINGS) as rt:
            assert (await rt.run("loop", FIRST)).ok
    return {"visits": count}


async def many_runs(count: int, runs: int = 200) -> Figures:
    """Many runs at once, sharing commits: to be watched from outside."""
    each = max(2, count // runs)
    with project() as root:
        async with OSRuntime.open(root, model=Answers(each), **SETTINGS) as rt:
            results = await asyncio.gather(*(rt.run("loop", FIRST) for _ in range(runs)))
            assert all(result.ok for result in results)
    return {"visits": each * runs}


class SlowCommits(SqliteJournal):
    """Every commit takes a millisecond longer, as on a slower disk."""

    def append_many(self, batches: Any) -> Any:
        time.sleep(0.001)
        return super().append_many(batches)


async def sharing(count: int, runs: int = 200) -> Figures:
    """Visits a second of one run and of many at once, when a commit is given 1 ms of extra latency."""
    rates = []
    for parallel in (1, runs):
        each = max(2, count // parallel)
        with project() as root:
            journal = SlowCommits(root / ".reyn")
            async with OSRuntime.open(root, model=Answers(each), journal=journal, **SETTINGS) as rt:
                started = time.perf_counter()
                await asyncio.gather(*(rt.run("loop", FIRST) for _ in range(parallel)))
                rates.append(each * parallel / (time.perf_counter() - started))
    return {"one_per_s": rates[0], "many_per_s": rates[1], "ratio": rates[1] / rates[0]}


async def lint(count: int) -> Figures:
    """CPU of loading and linting a skill, by phase: one of 50 phases and one of `count`, the least of five rounds."""
    costs = {}
    for phases in (50, count):
        with tempfile.TemporaryDirectory() as folder:
            write_chain(Path(folder), phases)
            rounds = []
            for _ in range(5):
                started = time.process_time()
                found = lint_skill(Path(folder) / "chain")
                assert all(finding.severity == "warning" for finding in found)
                rounds.append((time.process_time() - started) / phases)
            costs[phases] = min(rounds)
    return {"small_us": costs[50] * 1e6, "large_us": costs[count] * 1e6, "ratio": costs[count] / costs[50]}


async def ops(count: int) -> Figures:
    """CPU and commits of a small read and a small write, the system calls apart: medians of five rounds."""
    figures: Figures = {}
    for op in ("read", "write"):
        rounds = []
        for _ in range(5):
            with tempfile.TemporaryDirectory() as folder:
                acting.write_project(Path(folder))
                rounds.append(await acting.cost(Path(folder), op, max(5, count // 100)))
        middle = sorted(rounds)[2]
        figures |= {f"{op}_us": middle.around * 1e6, f"{op}_whole_us": middle.whole * 1e6}
        figures[f"{op}_commits"] = middle.commits
    return figures


async def adapter(count: int) -> Figures:
    """CPU of a call to a server, its answer in few pieces and in many; and of the SDK alone."""
    figures: Figures = {}
    for pieces in (20, 150):
        ours, theirs = await calling.cost(pieces, max(4, count // 50))
        figures |= {f"ours_{pieces}_ms": ours * 1e3, f"sdk_{pieces}_ms": theirs * 1e3}
    return figures


if __name__ == "__main__":
    measure = {
        "adapter": adapter,
        "ops": ops,
        "lint": lint,
        "visits": visits,
        "resume": resume,
        "one_run": one_run,
        "many_runs": many_runs,
        "sharing": sharing,
    }[sys.argv[1]]
    print(json.dumps(asyncio.run(measure(int(sys.argv[2])))))
