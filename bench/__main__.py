"""`python -m bench`: every measured target beside its figure of this run; exits with 1 if one is missed.

CPU times and ratios, each ratio taken from processes that ran side by side in this run. `--short` is a quick pass
without the comparison, for CI: figures of a few visits, printed but not held against the targets.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent
LANGGRAPH = ROOT / ".venv-langgraph"


class Target(NamedTuple):
    name: str
    figure: float | None
    bound: float
    at_most: bool = True
    note: str = ""
    is_aim: bool = False
    """An aim is told like a target, but missing it is no failure."""

    @property
    def is_met(self) -> bool:
        if self.figure is None:
            return False
        return self.figure <= self.bound if self.at_most else self.figure >= self.bound


def measure(name: str, count: int, *prefix: str) -> dict[str, float]:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "bench.measures", name, str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"bench.measures {name} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def fsyncs_a_visit(name: str, count: int) -> float | None:
    """Counted by strace, from outside; `None` where there is none."""
    if shutil.which("strace") is None:
        return None
    with tempfile.NamedTemporaryFile("r") as log:
        watch = ("strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", log.name)
        visits = measure(name, count, *watch)["visits"]
        calls = len(re.findall(r"f(?:data)?sync\(", log.read()))
    return calls / visits


def langgraph_python() -> Path:
    """An environment of LangGraph's own, made once."""
    python = LANGGRAPH / "bin" / "python"
    if not (LANGGRAPH / "ready").exists():
        print("making an environment for LangGraph …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", LANGGRAPH], check=True)
        requirements = ROOT / "requirements" / "bench-langgraph.txt"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        (LANGGRAPH / "ready").touch()
    return python


def against_langgraph(count: int, rounds: int) -> tuple[float, float, float]:
    """CPU a visit, CPU a step of LangGraph, and their ratio: medians over rounds in which both ran."""
    python = langgraph_python()
    ours, theirs, ratios = [], [], []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds} against LangGraph …", file=sys.stderr)
        done = subprocess.run(
            [python, HERE / "langgraph_steps.py", str(count)], capture_output=True, text=True, check=True
        )
        theirs.append(json.loads(done.stdout)["cpu_us"])
        ours.append(measure("visits", count)["cpu_us"])
        ratios.append(ours[-1] / theirs[-1])
    return statistics.median(ours), statistics.median(theirs), statistics.median(ratios)


def cpu_of(*command: str) -> float:
    """CPU seconds of one process, user and system."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def start_up(rounds: int) -> float:
    """CPU of `reyn --help` over that of importing click and rich, medians of interleaved rounds."""
    pairs = [
        (
            cpu_of(sys.executable, "-m", "reyn", "--help"),
            cpu_of(sys.executable, "-c", "import click, rich.console"),
        )
        for _ in range(rounds)
    ]
    return statistics.median(ours / theirs for ours, theirs in pairs)


def _lint_target(phases: int) -> Target:
    cost = measure("lint", phases)
    note = f"{cost['large_us']:.0f} µs / {cost['small_us']:.0f} µs"
    return Target(f"lint, CPU a phase: {phases} phases / 50", cost["ratio"], 1.5, note=note)


def targets(count: int, rounds: int, *, compare: bool) -> list[Target]:
    found = []
    if compare:
        ours, theirs, ratio = against_langgraph(count, rounds)
        found += [
            Target("CPU of a visit / LangGraph step", ratio, 0.5, note=f"{ours:.0f} µs / {theirs:.0f} µs"),
            Target("CPU of a visit, µs (aim)", ours, 500, is_aim=True),
        ]
    print("one run …", file=sys.stderr)
    one = measure("visits", count)
    found += [
        Target("fsyncs a visit, one run", fsyncs_a_visit("one_run", count), 1.1),
        Target("CPU of the last tenth / the first", one["drift"], 1.15),
        Target(
            "database bytes a visit beside content",
            one["bytes_overhead"],
            4096,
            note=f"content {one['bytes_content']:.0f}",
        ),
        Target("resume, s of CPU", measure("resume", count)["resume_s"], 0.3),
        Target("replay, visits a second", one["replay_per_s"], 5000, at_most=False),
        Target("memory of a run, MB", one["rss_mb"], 60),
    ]
    print("many runs …", file=sys.stderr)
    shared = measure("sharing", 2 * count)
    rates = f"{shared['many_per_s']:.0f}/s, one run {shared['one_per_s']:.0f}/s"
    found += [
        Target("fsyncs a visit, 200 runs at once", fsyncs_a_visit("many_runs", count), 0.05),
        Target("200 runs / one run, commits +1 ms", shared["ratio"], 3, at_most=False, note=rates),
        Target("CPU of `reyn --help` / click and rich", start_up(2 * rounds + 1), 2.5),
        _lint_target(500 if not compare else 2000),
    ]
    print("ops …", file=sys.stderr)
    ops = measure("ops", min(count, 2000))
    for op in ("read", "write"):
        whole = f"with its system calls {ops[f'{op}_whole_us']:.0f} µs"
        found.append(Target(f"CPU of a small {op} beside them, µs", ops[f"{op}_us"], 150, note=whole))
        found.append(Target(f"commits that a {op} adds", ops[f"{op}_commits"], 1))
    print("calls …", file=sys.stderr)
    calls = measure("adapter", min(count, 2000))
    for pieces in (20, 150):
        alone = f"the SDK alone {calls[f'sdk_{pieces}_ms']:.2f} ms"
        found.append(Target(f"CPU of a call, {pieces} pieces, ms", calls[f"ours_{pieces}_ms"], 3, note=alone))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--short", action="store_true", help="a quick pass that only shows that it works")
    parser.add_argument("--visits", type=int, default=3000)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = targets(400, 1, compare=False) if options.short else targets(options.visits, 5, compare=True)
    if options.json:
        print(json.dumps([target._asdict() | {"met": target.is_met} for target in found]))
    else:
        for target in found:
            figure = (
                "not measured (no strace)" if target.figure is None else f"{target.figure:.3f}".rstrip("0").rstrip(".")
            )
            sign = "≤" if target.at_most else "≥"
            verdict = "met" if target.is_met else "MISSED"
            print(f"{target.name:<40} {figure:>12}  {sign} {target.bound:<6g} {verdict:<7} {target.note}")
    return 0 if options.short or all(target.is_met or target.is_aim for target in found) else 1


if __name__ == "__main__":
    sys.exit(main())
