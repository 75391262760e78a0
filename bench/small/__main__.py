"""Measure how often the local 135M model satisfies a contract, with and without a grammar: `python -m bench.small`.

Five skills (a finish, a nested array, an act turn, a branch, a loop) run with twenty inputs each, constrained and free.
It takes about an hour on two cores. It can be interrupted: every run is recorded in `.bench-small/` and resumed. Runs
of one skill follow each other, so that the prompt cache is effective.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import reyn.models
from bench.scoring import Share, first_answers
from bench.small.inputs import FACTS, inputs
from reyn import SyncRuntime
from reyn.journal import Event, digest
from reyn.kernel.versions import RULES as RULES_VERSION
from reyn.models.weights import DEFAULT_WEIGHTS, KNOWN_WEIGHTS

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent / ".bench-small"
MODELS = {
    "constrained": {"model": "local", "timeout": 600},
    "free": {"model": "local", "max_tokens": 400, "timeout": 600, "mode": "free"},
}
ADAPTER = ("local.py", "local_engine.py", "two_step.py", "decoding.py", "narrowing.py")


class RunScore(NamedTuple):
    """The score of one run.

    Attributes:
        valid: Number of calls whose first answer was valid.
        calls: Number of calls, without retries.
        is_finished: Whether the run finished.
        is_correct: Whether it did what the input asks for; `None` if that cannot be checked.
    """

    valid: int
    calls: int
    is_finished: bool
    is_correct: bool | None


def make_project(root: Path) -> None:
    target = root / "reyn" / "project"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(HERE / "skills", target)
    for name, fact in FACTS:
        (root / f"{name}.txt").write_text(fact + "\n")


def stamp(condition: str) -> str:
    """Hash everything that the results depend on, so that a change leads to new runs."""
    models = Path(reyn.models.__file__).parent
    files = [*sorted((HERE / "skills").rglob("*.*")), HERE / "inputs.py"]
    files += [file for name in ADAPTER for file in sorted(models.glob(name))] if condition == "constrained" else []
    parts = [str(RULES_VERSION), KNOWN_WEIGHTS[DEFAULT_WEIGHTS].sha256, json.dumps(MODELS[condition])]
    return digest("\n".join([*parts, *(file.read_text() for file in files)]).encode())[:6]


def count(events: Iterable[Event], status: str, is_correct: bool | None) -> RunScore:
    """Score a run by its events."""
    return RunScore(*first_answers(events), status == "finished", is_correct)


def is_correct(skill: str, number: int, events: list[Event], content: Callable[[str], bytes]) -> bool | None:
    """Return whether the model chose the right branch (`mail`) or read the right file (`lookup`)."""
    match skill:
        case "mail":
            phases = [event.data["phase"] for event in events if event.kind == "phase_started"]
            return phases[1:2] == ["thank" if number % 2 == 0 else "help"]
        case "lookup":
            expected = FACTS[number][1].encode()
            results = [event.data["result"] for event in events if event.kind == "file_completed"]
            return any(expected in content(name) for name in results)
    return None


def measure(root: Path, condition: str, skills: list[str], limit: int) -> dict[str, list[RunScore]]:
    """Execute the missing runs and score all of them."""
    # Without a grammar only the first answer counts; retries would take hours.
    retries = 2 if condition == "constrained" else 0
    scores: dict[str, list[RunScore]] = {}
    settings: dict[str, Any] = {"max_phase_retries": retries, "max_phase_visits": 6, "strict": True}
    with SyncRuntime.open(root, model=condition, models=MODELS, **settings) as rt:
        for skill in skills:
            for number, value in enumerate(inputs()[skill][:limit]):
                name, started = f"{condition}-{stamp(condition)}-{skill}-{number:02}", time.monotonic()
                result = rt.run(skill, value, run_id=name)
                events = list(rt.runs.events(name))
                scores.setdefault(skill, []).append(
                    count(events, result.status, is_correct(skill, number, events, rt.runs.content))
                )
                seconds = time.monotonic() - started
                if seconds > 0.5:
                    print(f"{name}: {result.status}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return scores


def summary(scores: dict[str, list[RunScore]]) -> dict[str, Share]:
    runs = [run for runs in scores.values() for run in runs]
    checked = [run.is_correct for run in runs if run.is_correct is not None]
    shares = {
        "valid": Share(sum(run.valid for run in runs), sum(run.calls for run in runs)),
        "finished": Share(sum(run.is_finished for run in runs), len(runs)),
    }
    return shares | ({"correct": Share(sum(checked), len(checked))} if checked else {})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.small")
    parser.add_argument("--inputs", type=int, default=20, metavar="N", help="maximum number of inputs per skill")
    parser.add_argument("--condition", choices=list(MODELS), action="append", help="run only this one")
    parser.add_argument("--skill", choices=list(inputs()), action="append", help="run only this one")
    parser.add_argument("--project", type=Path, default=PROJECT, help="folder for the runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    make_project(options.project)
    report: dict[str, Any] = {}
    for condition in options.condition or MODELS:
        scores = measure(options.project, condition, options.skill or list(inputs()), options.inputs)
        report[condition] = {skill: summary({skill: runs}) for skill, runs in scores.items()} | {"all": summary(scores)}
    if options.json:
        print(json.dumps(report))
        return 0
    for condition, skills in report.items():
        for skill, shares in skills.items():
            line = "  ".join(f"{name} {share!s:<30}" for name, share in shares.items())
            print(f"{condition:<12} {skill:<8} {line}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
