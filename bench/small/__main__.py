"""`python -m bench.small`: how often the embedded 135M model holds to a contract, with a grammar and without.

Five skills (a finish, a nested array, an act turn, a branch, a loop), twenty inputs each, run twice: constrained, and
the same inputs free. It takes an hour or so on two cores, and can be stopped at any time: every run is a Reyn run in
`.bench-small/`, under a name of its own, and goes on where it was. Runs of a skill follow upon each other, so that its
prefixes are read once.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import reyn.models
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
ADAPTER = ("local.py", "prompt_cache.py", "decoding/*.py")


class Share(NamedTuple):
    """So many of so many, with the 95 % interval after Wilson."""

    hits: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        if not self.of:
            return 0.0, 1.0
        z, n, p = 1.96, self.of, self.hits / self.of
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return max(0.0, middle - spread), min(1.0, middle + spread)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.hits}/{self.of} = {self.hits / max(1, self.of):.0%} ({low:.0%} to {high:.0%})"


class Counted(NamedTuple):
    """What one run shows: how many questions were answered validly at the first attempt, of how many; whether it
    finished; and whether it did what was meant, where that can be told: `None` where not."""

    valid: int
    questions: int
    is_finished: bool
    is_right: bool | None


def make_project(root: Path) -> None:
    target = root / "reyn" / "project"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(HERE / "skills", target)
    for name, fact in FACTS:
        (root / f"{name}.txt").write_text(fact + "\n")


def stamp(condition: str) -> str:
    """Of all that a figure depends on: another one means other runs."""
    models = Path(reyn.models.__file__).parent
    files = [*sorted((HERE / "skills").rglob("*.*")), HERE / "inputs.py"]
    files += [file for name in ADAPTER for file in sorted(models.glob(name))] if condition == "constrained" else []
    told = [str(RULES_VERSION), KNOWN_WEIGHTS[DEFAULT_WEIGHTS].sha256, json.dumps(MODELS[condition])]
    return digest("\n".join([*told, *(file.read_text() for file in files)]).encode())[:6]


def count(events: Iterable[Event], status: str, is_right: bool | None) -> Counted:
    """A first attempt is an answer to a question that is not asked again because of a rejection. It is valid if the OS
    did not reject it: it was held against the true schema."""
    valid = questions = 0
    is_again = False
    for event in events:
        if event.kind == "llm_responded":
            questions += not is_again
            valid += not is_again
            was_again, is_again = is_again, False
        elif event.kind == "validation_error":
            valid -= not was_again
            is_again = True
        elif event.kind == "phase_started":
            is_again = False
    return Counted(valid, questions, status == "finished", is_right)


def is_right(skill: str, number: int, events: list[Event], content: Callable[[str], bytes]) -> bool | None:
    """Did the model choose the branch that the message calls for, or read the sentence that the question is about?"""
    match skill:
        case "mail":
            phases = [event.data["phase"] for event in events if event.kind == "phase_started"]
            return phases[1:2] == ["thank" if number % 2 == 0 else "help"]
        case "lookup":
            wanted = FACTS[number][1].encode()
            given = [event.data["result"] for event in events if event.kind == "file_completed"]
            return any(wanted in content(name) for name in given)
    return None


def measure(root: Path, condition: str, skills: list[str], limit: int) -> dict[str, list[Counted]]:
    """Run what is missing, count all of it."""
    # Without a grammar only the first answer counts; asking again would take hours.
    retries = 2 if condition == "constrained" else 0
    found: dict[str, list[Counted]] = {}
    settings: dict[str, Any] = {"max_phase_retries": retries, "max_phase_visits": 6, "strict": True}
    with SyncRuntime.open(root, model=condition, models=MODELS, **settings) as rt:
        for skill in skills:
            for number, value in enumerate(inputs()[skill][:limit]):
                name, began = f"{condition}-{stamp(condition)}-{skill}-{number:02}", time.monotonic()
                result = rt.run(skill, value, run_id=name)
                events = list(rt.events(name))
                found.setdefault(skill, []).append(
                    count(events, result.status, is_right(skill, number, events, rt.content))
                )
                took = time.monotonic() - began
                if took > 0.5:
                    print(f"{name}: {result.status}, {took:.0f} s", file=sys.stderr, flush=True)
    return found


def summary(found: dict[str, list[Counted]]) -> dict[str, Share]:
    runs = [run for runs in found.values() for run in runs]
    judged = [run.is_right for run in runs if run.is_right is not None]
    shares = {
        "valid": Share(sum(run.valid for run in runs), sum(run.questions for run in runs)),
        "finished": Share(sum(run.is_finished for run in runs), len(runs)),
    }
    return shares | ({"right": Share(sum(judged), len(judged))} if judged else {})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.small")
    parser.add_argument("--inputs", type=int, default=20, metavar="N", help="of each skill, at most")
    parser.add_argument("--condition", choices=list(MODELS), action="append", help="only this one")
    parser.add_argument("--skill", choices=list(inputs()), action="append", help="only this one")
    parser.add_argument("--project", type=Path, default=PROJECT, help="where the runs are kept")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    make_project(options.project)
    told: dict[str, Any] = {}
    for condition in options.condition or MODELS:
        found = measure(options.project, condition, options.skill or list(inputs()), options.inputs)
        told[condition] = {skill: summary({skill: runs}) for skill, runs in found.items()} | {"all": summary(found)}
    if options.json:
        print(json.dumps(told))
        return 0
    for condition, skills in told.items():
        for skill, shares in skills.items():
            line = "  ".join(f"{name} {share!s:<30}" for name, share in shares.items())
            print(f"{condition:<12} {skill:<8} {line}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
