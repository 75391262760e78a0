"""Measure the first step of decisions alone: `python -m bench.decisions.choices --model local`.

Asks a local model for the choice of the first decision of each item, without the answer that follows it. The report has
one line per task: the right choices by the examples alone, by the topics alone, and by both, which is what the adapter
does. It takes about a fifth of the time of `bench.decisions`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.decisions.__main__ import PROJECT
from bench.decisions.measure import SETTINGS, make_project
from bench.decisions.tasks import SETS, TASKS, Item, items_of
from bench.scoring import Share
from reyn import SyncRuntime
from reyn.config import ModelSettings
from reyn.errors import ModelBroken
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ModelRequest
from reyn.models.local import LocalModel
from reyn.models.two_step import Choice, choice_prompt


class _Catcher:
    """A model that keeps the request and does not answer."""

    name = "catcher"
    answer_form = "short"
    request: ModelRequest | None = None

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.request = request
        raise ModelBroken("the benchmark needs no answer")


class Score(NamedTuple):
    """Whether each way to choose is right, and what the choice cost."""

    by_examples: bool
    by_topics: bool
    by_both: bool
    input_tokens: int
    output_tokens: int
    cpu: float


def request_of(project: Path, item: Item) -> ModelRequest:
    """Return the first request of a run."""
    catcher = _Catcher()
    with SyncRuntime.open(project, model=catcher, journal=MemoryJournal(), **SETTINGS) as rt:
        rt.run(item.task, item.input)
    assert catcher.request is not None
    return catcher.request


def score(model: LocalModel, item: Item, request: ModelRequest) -> Score | None:
    """Ask for the choice; `None` if the phase decides in one step."""
    if choice_prompt(request) is None:
        return None
    cpu = time.process_time()
    choice: Choice = asyncio.run(model.choose(request))
    cpu = time.process_time() - cpu
    right = choice.labels.index(item.expect.choice)

    def is_right(values: list[float]) -> bool:
        return max(range(len(values)), key=values.__getitem__) == right

    return Score(
        is_right(choice.by_examples),
        is_right(choice.similarities),
        choice.label == item.expect.choice,
        choice.usage.input_tokens,
        choice.usage.output_tokens,
        cpu,
    )


def line(name: str, scores: list[Score]) -> str:
    """Return one line of the report."""

    def share(hits: int) -> str:
        low, high = Share(hits, len(scores)).interval
        return f"{hits}/{len(scores)} ({100 * low:.0f} to {100 * high:.0f} %)"

    cells = (share(sum(column)) for column in list(zip(*scores, strict=True))[:3])
    tokens = sum(one.input_tokens for one in scores) / len(scores)
    cpu = sum(one.cpu for one in scores) / len(scores)
    return f"{name:<12}" + "".join(f"{cell:<24}" for cell in cells) + f"{tokens:>8.0f}{cpu:>8.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.decisions.choices")
    parser.add_argument("--model", default="local", help="a local model as in `reyn run --model`")
    parser.add_argument("--task", choices=[task.name for task in TASKS], action="append", help="run only this one")
    parser.add_argument("--set", choices=SETS, default="held-back", dest="item_set")
    parser.add_argument("--project", type=Path, default=PROJECT, help="folder for the skills")
    options = parser.parse_args()
    options.project.mkdir(parents=True, exist_ok=True)
    make_project(options.project)
    source = options.model.partition(":")[2]
    model = LocalModel.locate(options.model, source, ModelSettings(options.model), options.project)
    print(f"{'task':<12}" + "".join(f"{name:<24}" for name in ("examples", "topics", "both")) + "  prompt     CPU")
    every: list[Score] = []
    for task in options.task or [task.name for task in TASKS]:
        found = [score(model, item, request_of(options.project, item)) for item in items_of(task, options.item_set)]
        scores = [one for one in found if one is not None]
        if scores:
            print(line(task, scores), flush=True)
            every += scores
    if every:
        print(line("all", every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
