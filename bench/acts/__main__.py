"""Measure how a model acts: `python -m bench.acts --model local`.

Every item is a real run of a skill, or a turn of a conversation with an agent. Half of the items need an op. The report
has proportions with 95 % intervals. It can be interrupted: scores are stored in `.bench-acts/`, and only items whose
prompt has changed are run again. The model `scripted` does what is right, to test the benchmark.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.acts.measure import SCRIPTED, Bench, RunScore
from bench.acts.tasks import TASK_SETS, Item, tasks_of
from bench.scoring import Share

PROJECT = Path(__file__).parent.parent.parent / ".bench-acts"
Scores = Sequence[tuple[Item, RunScore]]


def shares(scores: Scores) -> dict[str, Share]:
    """Return the proportions of a report."""
    runs = [score for _, score in scores]
    needing = [score for score in runs if score.needs]
    others = [score for score in runs if not score.needs]
    several = [score for score in needing if score.needs > 1]
    acted = [score for score in needing if score.first_op is not None]
    right = [score for score in acted if score.first_args is not None]
    acts, faulty = sum(len(score.calls) for score in runs), sum(score.faulty for score in runs)
    checked = [score.has_right_fields for score in runs if score.has_right_fields is not None]
    return {
        "acts where needed": Share(len(acted), len(needing)),
        "answers where not needed": Share(sum(not score.calls for score in others), len(others)),
        "right op, of acts": Share(len(right), len(acted)),
        "right arguments, of right ops": Share(sum(bool(score.first_args) for score in right), len(right)),
        "valid arguments, of all acts": Share(max(0, acts - faulty), acts),
        "valid first answers": Share(sum(score.valid for score in runs), sum(score.answered for score in runs)),
        "several acts, all done": Share(sum(score.complete == score.needs for score in several), len(several)),
        "no repeated act": Share(sum(not score.repeated for score in runs), len(runs)),
        "right exit": Share(sum(score.has_right_exit for score in runs), len(runs)),
        "right fields": Share(sum(map(bool, checked)), len(checked)),
    }


def means(scores: Scores) -> dict[str, float]:
    """Return tokens and times per answer of the model."""
    runs = [score for _, score in scores]
    answers = max(1, sum(score.answered for score in runs))
    return {
        "prompt tokens": sum(score.input_tokens for score in runs) / answers,
        "of them cached": sum(score.cached_tokens for score in runs) / answers,
        "output tokens": sum(score.output_tokens for score in runs) / answers,
        "CPU s": sum(score.cpu for score in runs) / answers,
    }


def measure(bench: Bench, items: list[Item], *, verbose: bool) -> Scores:
    """Run the items, and print each that went wrong."""
    found = []
    for number, (item, score) in enumerate(bench.scores(items), start=1):
        found.append((item, score))
        if score.complete < score.needs or bool(score.calls) != bool(score.needs):
            text = f"{number}/{len(items)} {item.task} {item.number}: {len(score.calls)} acts, {score.needs} needed"
            print(f"{text}; {' '.join(score.calls)[:150]}" if verbose else text, file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.acts")
    parser.add_argument("--model", default="local", help=f"a model as in `reyn run --model`, or `{SCRIPTED}`")
    parser.add_argument("--set", choices=TASK_SETS, default="held2", dest="task_set")
    parser.add_argument("--task", action="append", help="run only this one")
    parser.add_argument("--limit", type=int, metavar="N", help="maximum number of items per task")
    parser.add_argument("--project", type=Path, default=PROJECT, help="folder for the runs and their scores")
    parser.add_argument("--acts-only", action="store_true", help="a local model generates no answers but acts")
    parser.add_argument("--verbose", action="store_true", help="print the ops of items that went wrong")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tasks = tasks_of(options.task_set)
    bench = Bench(options.project, options.model, tasks, acts_only=options.acts_only)
    chosen = [task for task in tasks if not options.task or task.name in options.task]
    scores = measure(bench, [item for task in chosen for item in task.items[: options.limit]], verbose=options.verbose)
    figures, costs = shares(scores), means(scores)
    if options.json:
        report: dict[str, Any] = {
            name: {"hits": one.hits, "total": one.total, "interval": one.interval} for name, one in figures.items()
        }
        print(json.dumps({"model": options.model, "set": options.task_set, **report, **costs}))
        return 0
    for name, share in figures.items():
        print(f"{name:<31}{share}")
    for name, mean in costs.items():
        print(f"{name:<31}{mean:.1f} per answer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
