"""Run all benchmarks and compare them with their targets: `python -m bench` exits with 1 if a target is missed.

Results are CPU times and ratios; the two sides of a ratio are measured in the same session. `--short` is a quick pass
for CI without LangGraph; it prints results but does not enforce targets. `--write` puts the table into
`docs/explanation/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.sandbox import FILES
from bench.units import unit

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "explanation" / "benchmarks.md"
BEGIN, END = "<!-- bench -->", "<!-- end -->"
LANGGRAPH = ROOT / ".venv-langgraph"
FUNCTIONS = ROOT / ".venv-functions" / "bin" / "python"
"""The Python of an environment with other libraries for typed calls, if there is one."""
LIBRARIES = ("pydantic-ai", "instructor")


class Target(NamedTuple):
    """A benchmark result with its bound."""

    name: str
    value: float | None
    bound: float
    at_most: bool = True
    note: str = ""
    is_goal: bool = False
    """A goal is printed like a target, but missing it is not a failure."""
    is_optional: bool = False
    """Some machines cannot measure it; they skip it."""

    @property
    def is_skipped(self) -> bool:
        return self.value is None and self.is_optional

    @property
    def shown(self) -> str:
        if self.value is None:
            return "-" if self.is_skipped else "not measured (no strace)"
        return f"{self.value:.3g}" if self.value < 1000 else f"{self.value:,.0f}"

    @property
    def sign(self) -> str:
        return "≤" if self.at_most else "≥"

    @property
    def verdict(self) -> str:
        return "met" if self.is_met else "skipped" if self.is_skipped else "MISSED"

    @property
    def is_met(self) -> bool:
        if self.value is None:
            return False
        return self.value <= self.bound if self.at_most else self.value >= self.bound


def measure(name: str, count: int, *prefix: str) -> dict[str, float]:
    """Run one benchmark in a fresh process."""
    process = subprocess.run(
        [*prefix, sys.executable, "-m", "bench.measures", name, str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        sys.exit(f"bench.measures {name} failed:\n{process.stderr}")
    results: dict[str, float] = json.loads(process.stdout)
    return results


def fsyncs_per_visit(name: str, count: int) -> float | None:
    """Count fsyncs with strace; `None` if strace is not installed."""
    if shutil.which("strace") is None:
        return None
    with tempfile.NamedTemporaryFile("r") as log:
        strace = ("strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", log.name)
        visits = measure(name, count, *strace)["visits"]
        calls = len(re.findall(r"f(?:data)?sync\(", log.read()))
    return calls / visits


def langgraph_python() -> Path:
    """Return the Python of a separate environment with LangGraph, created on first use."""
    python = LANGGRAPH / "bin" / "python"
    if not (LANGGRAPH / "ready").exists():
        print("creating an environment for LangGraph …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", LANGGRAPH], check=True)
        requirements = ROOT / "requirements" / "bench-langgraph.txt"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        (LANGGRAPH / "ready").touch()
    return python


def compare_with_langgraph(count: int, rounds: int) -> tuple[float, float, float]:
    """Return CPU per visit, CPU per LangGraph step, and their ratio: medians of interleaved rounds."""
    python = langgraph_python()
    ours, theirs, ratios = [], [], []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds} against LangGraph …", file=sys.stderr)
        process = subprocess.run(
            [python, HERE / "langgraph_steps.py", str(count)], capture_output=True, text=True, check=True
        )
        theirs.append(json.loads(process.stdout)["cpu_us"])
        ours.append(measure("visits", count)["cpu_us"])
        ratios.append(ours[-1] / theirs[-1])
    return statistics.median(ours), statistics.median(theirs), statistics.median(ratios)


def cpu_of(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> float:
    """Return the CPU seconds of one process, user and system."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True, cwd=cwd, env=env)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def command_targets(rounds: int) -> list[Target]:
    """Measure the CPU of commands, with bytecode: medians of interleaved rounds."""
    commands = {
        "`reyn --help`": (("--help",), 0.15),
        "`reyn run --help`": (("run", "--help"), 0.15),
        "`reyn runs`": (("runs",), 0.25),
        "`reyn lint hello`": (("lint", "hello"), 0.4),
        "`reyn run` of a scripted visit (report)": (("run", "hello", '{"name": "Ada"}'), 1.0),
    }
    spent: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory(prefix="reyn-bench-") as folder:
        project, env = Path(folder) / "project", os.environ | {"PYTHONPYCACHEPREFIX": folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        project.mkdir()
        cpu_of(sys.executable, "-m", "reyn", "init", cwd=project, env=env)
        for number in range(rounds + 1):
            for name, (arguments, _) in commands.items():
                used = cpu_of(sys.executable, "-m", "reyn", *arguments, cwd=project, env=env)
                spent[name] += [used] if number else []  # the first round writes the bytecode
    return [
        Target(f"CPU of {name}, s", statistics.median(spent[name]), bound, is_goal=name.endswith("(report)"))
        for name, (_, bound) in commands.items()
    ]


def chat_targets(turns: int) -> list[Target]:
    """Measure the turns of a conversation, alone and with many skills and memories."""
    process = subprocess.run(
        [sys.executable, "-m", "bench.chats", "--json", "--turns", str(turns), "--resumed", str(turns)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(process.stdout)
    note = f"{found['crowded_turn_ms']:.1f} ms"
    return [
        Target("CPU of a chat turn, ms", found["turn_ms"], 2.5),
        Target("with 100 skills and 1,000 memories / without", found["crowded"], 1.5, note=note),
        Target(f"after {turns:,} turns / after 10", found["growth"], 1.5),
    ]


def other_functions(count: int) -> dict[str, float]:
    """Return the CPU of a typed call of other libraries in milliseconds; those that are not installed are left out."""
    python = FUNCTIONS if FUNCTIONS.exists() else Path(sys.executable)
    process = subprocess.run(
        [python, HERE / "functions_others.py", str(count)], capture_output=True, text=True, check=False
    )
    return json.loads(process.stdout) if process.returncode == 0 else {}


def function_targets(count: int, rounds: int) -> list[Target]:
    """Measure calls of functions beside other libraries: medians of interleaved rounds."""
    ours: list[dict[str, float]] = []
    theirs: dict[str, list[float]] = {}
    for _ in range(rounds):
        ours.append(measure("functions", count))
        for name, value in other_functions(count).items():
            theirs.setdefault(name, []).append(value)
    others = "; ".join(
        f"{name} {statistics.median(theirs[name]):.2f} ms" if name in theirs else f"{name} skipped"
        for name in LIBRARIES
    )
    skipped = [name for name in LIBRARIES if name not in theirs]
    if skipped:
        advice = "install requirements/bench-functions.txt in .venv-functions to measure it"
        print("\n".join(f"{name} is not installed and is skipped; {advice}" for name in skipped), file=sys.stderr)
    single, together, commits = (
        statistics.median(one[key] for one in ours) for key in ("call_ms", "together_ms", "commits_per_call")
    )
    return [
        Target("CPU of an @llm_function call, durable, ms", single, 1.2, note=f"not durable: {others}"),
        Target("CPU of a call among concurrent ones, ms", together, 0.8),
        Target("commits per call, concurrent", commits, 0.1),
    ]


def _lint_target(phases: int) -> Target:
    cost = measure("lint", phases)
    note = f"{cost['large_us']:.0f} µs / {cost['small_us']:.0f} µs"
    return Target(f"lint, CPU per phase: {phases} phases / 50", cost["ratio"], 1.5, note=note)


def budget_targets(count: int, calls: int) -> list[Target]:
    """Measure what budgets add to a call, and whether concurrent runs of two processes exceed a cap."""
    cost, found = measure("budgets", count), measure("simulation", calls)
    note = f"{cost['plain_us']:.0f} µs / {cost['budget_us']:.0f} µs a visit"
    ends = f"{found['finished']:.0f} runs finished, {found['limited']:.0f} limited, {found['seconds']:.0f} s"
    return [
        Target("CPU of reserving and settling a call, µs", cost["added_us"], 80, note=note),
        Target(f"share of the cap used by {found['calls']:.0f} calls", found["share"], 1, note=ends),
    ]


def graph_targets(count: int) -> list[Target]:
    """Measure decisions without a model, expressions, branches that execute together, and the lint of many rules."""
    found = measure("graph", count)
    rules, branches = min(count, 1000), min(count, 100)
    note = f"{found['decides_us']:.0f} µs / {found['empty_us']:.0f} µs"
    times = f"{found['parallel_1_s']:.1f} s / {found['parallel_10_s']:.1f} s, CPU {found['branch_ms']:.1f} ms a branch"
    return [
        Target("CPU of a decision by rules beyond an empty visit, µs", found["added_us"], 150, note=note),
        Target("CPU of an expression, µs", found["expression_us"], 20),
        Target(f"{branches} branches, concurrency 1 / 10", found["ratio"], 8, at_most=False, note=times),
        Target(f"lint of {rules:,} rules, CPU seconds", found["lint_s"], 1),
    ]


def run_benchmarks(count: int, rounds: int, *, compare: bool) -> list[Target]:
    """Run every benchmark and return the results with their bounds."""
    results = []
    if compare:
        ours, theirs, ratio = compare_with_langgraph(count, rounds)
        results += [
            Target("CPU of a visit / LangGraph step", ratio, 0.33, note=f"{ours:.0f} µs / {theirs:.0f} µs"),
            Target("CPU of a visit / LangGraph step (goal)", ratio, 0.25, is_goal=True),
        ]
    print("one run …", file=sys.stderr)
    one = measure("visits", count)
    results += [
        Target("fsyncs per visit, one run", fsyncs_per_visit("one_run", count), 1.1),
        Target("CPU of the last tenth / first tenth", one["drift"], 1.15),
        Target(
            "database bytes per visit, without content",
            one["bytes_overhead"],
            4096,
            note=f"content {one['bytes_content']:.0f}",
        ),
        Target("resume, CPU seconds", measure("resume", count)["resume_s"], 0.3),
        Target("replay, visits per second", one["replay_per_s"], 9000, at_most=False),
        Target("memory of a run, MB", measure("memory", count)["rss_mb"], 50),
    ]
    print("many runs …", file=sys.stderr)
    shared = measure("sharing", 2 * count)
    rates = f"{shared['many_per_s']:.0f}/s, one run {shared['one_per_s']:.0f}/s"
    results += [
        Target("fsyncs per visit, 200 concurrent runs", fsyncs_per_visit("many_runs", count), 0.05),
        Target("200 runs / one run, 1 ms commit latency", shared["ratio"], 4, at_most=False, note=rates),
        _lint_target(2000 if compare else 100),
    ]
    print("commands …", file=sys.stderr)
    results += command_targets(2 * rounds + 1 if compare else 1)
    print("ops …", file=sys.stderr)
    ops = measure("ops", min(count, 2000))
    for op, most in (("read", 120), ("write", 220)):
        note = f"with system calls {ops[f'{op}_whole_us']:.0f} µs"
        results.append(Target(f"CPU of a small {op}, no system calls, µs", ops[f"{op}_us"], most, note=note))
        results.append(Target(f"commits per {op}", ops[f"{op}_commits"], 1))
    results.append(Target("CPU of gate and dispatch per op, µs", ops["gate_us"], 60))
    print("context …", file=sys.stderr)
    context = measure("context", min(count, 1000))
    note = f"{context['fitted_us']:.0f} µs a visit"
    results += [
        Target("truncation of 5 MB, CPU seconds", context["truncate_s"], 0.3),
        Target("CPU of 100 handoffs, `chars`, ms", context["handoffs_chars_ms"], 5),
        Target("CPU of 100 handoffs, exact, ms", context["handoffs_exact_ms"], 50),
        Target("truncated prompts: last tenth / first", context["fitted_drift"], 1.15, note=note),
    ]
    print("sandboxes …", file=sys.stderr)
    sandboxes = measure("sandboxes", 100 if compare else 10)
    results.append(Target("python step in Monty, ms", sandboxes["monty_step_ms"], 1))
    for name in ("bubblewrap", "landlock"):
        step, program = sandboxes.get(f"{name}_step_ms"), sandboxes.get(f"{name}_program_ms", 0.0)
        note = "not available on this machine" if step is None else f"a program {program:.0f} ms"
        results.append(Target(f"python step in {name}, warm, ms", step, 40, note=note, is_optional=True))
    slower, note = sandboxes.get("environment_ratio"), f"{FILES} files; {sandboxes.get('environment_ms', 0.0):.0f} ms"
    results.append(Target("CPU of a step in an environment / without", slower, 1.5, note=note, is_optional=True))
    print("functions …", file=sys.stderr)
    results += function_targets(min(count, 1000), rounds)
    print("model calls …", file=sys.stderr)
    calls = measure("adapter", min(count, 2000))
    for pieces, longest in ((20, 2.5), (150, 3.5)):
        note = f"the SDK alone {calls[f'sdk_{pieces}_ms']:.2f} ms"
        results.append(
            Target(f"CPU of a model call, {pieces} chunks, ms", calls[f"ours_{pieces}_ms"], longest, note=note)
        )
    print("conversations …", file=sys.stderr)
    results += chat_targets(2000 if compare else 60)
    print("budgets …", file=sys.stderr)
    results += budget_targets(count, 10_000 if compare else 50)
    print("tools and sub-runs …", file=sys.stderr)
    results.append(Target("CPU of an MCP call over stdio, ms", measure("mcp", min(count, 400))["call_ms"], 5))
    print("graph …", file=sys.stderr)
    results += graph_targets(min(count, 1000))
    many = measure("iteration", 20)
    note = f"{many['one_s']:.2f} s / {many['ten_s']:.2f} s"
    results.append(Target("20 sub-runs, concurrency 1 / 10", many["ratio"], 8, at_most=False, note=note))
    return results


def _unit() -> float:
    return min(unit() for _ in range(10))


def write_page(results: list[Target], units: tuple[float, float]) -> None:
    """Replace the table of the page on benchmarks.

    Args:
        results: The measurements.
        units: The CPU seconds of the reference loop of `bench.units`, before and after them.
    """
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    machine = f"{os.cpu_count()} cores of a virtual machine, {platform.machine()}, Python {platform.python_version()}"
    loop = f"a unit was {min(units) * 1e6:.0f} to {max(units) * 1e6:.0f} µs"
    lines = [f"{machine}, commit {commit}; {loop}:", "", "| measurement | result | target |", "|---|---|---|"]
    for target in results:
        note = f" ({target.note})" if target.note else ""
        missed = "" if target.is_met or target.is_skipped else ", not reached" if target.is_goal else ", **missed**"
        lines.append(f"| {target.name} | {target.shown}{note} | {target.sign} {target.bound:g}{missed} |")
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN)], text[text.index(END, text.index(BEGIN)) :]
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{after}", encoding="utf-8")


def main() -> int:
    """Run the benchmarks and print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--short", action="store_true", help="run a quick pass without enforcing targets")
    parser.add_argument("--visits", type=int, default=3000)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    before = _unit()
    results = run_benchmarks(60, 1, compare=False) if options.short else run_benchmarks(options.visits, 5, compare=True)
    if options.write:
        write_page(results, (before, _unit()))
    if options.json:
        print(json.dumps([target._asdict() | {"met": target.is_met} for target in results]))
    else:
        for target in results:
            print(
                f"{target.name:<46} {target.shown:>12}  {target.sign} {target.bound:<6g} "
                f"{target.verdict:<7} {target.note}"
            )
    return 0 if options.short or all(target.is_met or target.is_goal or target.is_skipped for target in results) else 1


if __name__ == "__main__":
    sys.exit(main())
