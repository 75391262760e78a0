"""Measure how well a model decides: `python -m bench.decisions --model local`.

Every item is a real run of a skill in `skills/`. The report has one line per task: right choices, right fields, valid
first answers, finished runs, tokens and time. It can be interrupted: scores are stored in `.bench-decisions/`, and only
items whose prompt has changed are run again. The model `scripted` gives the right answers, to test the benchmark.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.decisions.measure import SCRIPTED, Bench, RunScore
from bench.decisions.tasks import SETS, TASKS, ItemSet, items_of
from bench.scoring import Share

ROOT = Path(__file__).parent.parent.parent
PROJECT = ROOT / ".bench-decisions"
COLUMNS = (
    "task",
    "measures",
    "right choice",
    "right fields",
    "valid first answers",
    "finished",
    "prompt tokens",
    "of them cached",
    "output tokens",
    "CPU s",
    "s",
)


class Summary(NamedTuple):
    """The figures of several runs. Tokens and times are means per answer of the model."""

    right_choice: Share
    right_fields: Share | None
    valid: Share
    finished: Share
    placeholders: int
    prompt_tokens: float
    cached_tokens: float
    output_tokens: float
    cpu: float
    wall: float

    @classmethod
    def of(cls, runs: Sequence[RunScore]) -> Summary:
        checked = [run.has_right_fields for run in runs if run.has_right_fields is not None]
        answers = max(1, sum(run.answers for run in runs))
        return cls(
            Share(sum(run.has_right_choice for run in runs), len(runs)),
            Share(sum(checked), len(checked)) if checked else None,
            Share(sum(run.valid for run in runs), sum(run.calls for run in runs)),
            Share(sum(run.is_finished for run in runs), len(runs)),
            sum(run.placeholders for run in runs),
            sum(run.input_tokens for run in runs) / answers,
            sum(run.cached_tokens for run in runs) / answers,
            sum(run.output_tokens for run in runs) / answers,
            sum(run.cpu for run in runs) / answers,
            sum(run.wall for run in runs) / answers,
        )

    def as_json(self) -> dict[str, Any]:
        shares = {
            name: share and {"hits": share.hits, "total": share.total, "interval": share.interval}
            for name, share in self._asdict().items()
            if share is None or isinstance(share, Share)
        }
        return self._asdict() | shares

    def cells(self) -> list[str]:
        shares = (self.right_choice, self.right_fields, self.valid, self.finished)
        tokens = (self.prompt_tokens, self.cached_tokens, self.output_tokens)
        return [
            *(_percentage(share) for share in shares),
            *(f"{number:.0f}" for number in tokens),
            f"{self.cpu:.2f}",
            f"{self.wall:.2f}",
        ]


def _percentage(share: Share | None) -> str:
    if share is None:
        return ""
    low, high = share.interval
    return f"{share.hits}/{share.total} ({100 * low:.0f} to {100 * high:.0f} %)"


def measure(bench: Bench, tasks: Sequence[str], item_set: ItemSet, limit: int | None) -> dict[str, list[RunScore]]:
    """Run the items and return the scores by task."""
    items = [item for task in tasks for item in items_of(task, item_set)[:limit]]
    scores: dict[str, list[RunScore]] = {}
    for item, score in bench.scores(items):
        scores.setdefault(item.task, []).append(score)
        if not score.has_right_choice or score.has_right_fields is False:
            wrong = "fields" if score.has_right_choice else f"chose `{score.choice}`, expected `{item.expect.choice}`"
            print(f"{item.task} {item.number}: {wrong}", file=sys.stderr, flush=True)
    return scores


def table(scores: dict[str, list[RunScore]]) -> list[list[str]]:
    """Return one row per task, and one for all of them."""
    measures = {task.name: task.measures for task in TASKS}
    rows = [[f"`{task}`", measures[task], *Summary.of(runs).cells()] for task, runs in scores.items()]
    every_run = [run for runs in scores.values() for run in runs]
    return [*rows, ["all", "", *Summary.of(every_run).cells()]] if every_run else []


def markdown(rows: list[list[str]]) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def plain(rows: list[list[str]]) -> str:
    lines = [list(COLUMNS), *[[cell.strip("`") for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(line.rstrip() + "\n" for line in padded)


def write_table(path: Path, name: str, text: str) -> None:
    """Replace the text between `<!-- bench.decisions NAME -->` and `<!-- end -->` in a page."""
    start, end = f"<!-- bench.decisions {name} -->\n", "<!-- end -->"
    page = path.read_text()
    before, found, rest = page.partition(start)
    if not found or end not in rest:
        sys.exit(f"{path}: no lines `{start.strip()}` and `{end}` between which the table belongs")
    path.write_text(before + start + "\n" + text + "\n" + end + rest.split(end, 1)[1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.decisions")
    parser.add_argument("--model", default="local", help=f"a model as in `reyn run --model`, or `{SCRIPTED}`")
    parser.add_argument("--task", choices=[task.name for task in TASKS], action="append", help="run only this one")
    parser.add_argument("--items", type=int, metavar="N", help="maximum number of items per task")
    parser.add_argument("--set", choices=SETS, default="held-back", dest="item_set")
    parser.add_argument("--project", type=Path, default=PROJECT, help="folder for the runs and their scores")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace the model's table in this Markdown page")
    parser.add_argument("--name", help="the name of that table; default: the name of the model")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bench = Bench(options.project, options.model, {})
    scores = measure(bench, options.task or [task.name for task in TASKS], options.item_set, options.items)
    if options.write:
        write_table(options.write, options.name or options.model, markdown(table(scores)))
    if options.json:
        every_run = [run for runs in scores.values() for run in runs]
        report = {task: Summary.of(runs).as_json() for task, runs in scores.items()}
        print(
            json.dumps(
                {
                    "model": options.model,
                    "set": options.item_set,
                    "tasks": report,
                    "all": Summary.of(every_run).as_json(),
                }
            )
        )
    else:
        print(plain(table(scores)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
