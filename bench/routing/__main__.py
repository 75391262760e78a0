"""Measure routing in conversations: `python -m bench.routing --model local`.

An agent with six skills gets one message in each conversation. For most messages, one of the skills is right; for the
others, the agent should reply without a skill. With `--choices`, a local model is asked for the choice alone, which
takes a fraction of the time and gives the same choices.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.routing.measure import SETS, Item, Score, choices, items_of, make_project, turns
from bench.scoring import Share
from reyn.config import ModelSettings
from reyn.models.local import LocalModel

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parent.parent.parent / ".bench-routing"


def report(scores: list[tuple[Item, Score]]) -> dict[str, Share]:
    """Return the figures of all items."""
    asked = [(item, score) for item, score in scores if item.skill is not None]
    others = [score for item, score in scores if item.skill is None]
    inputs = [score.has_valid_input for _, score in scores if score.has_valid_input is not None]
    every = [score for _, score in scores]
    return {
        "right skill": Share(sum(score.is_right for _, score in asked), len(asked)),
        "reply where no skill fits": Share(sum(score.is_right for score in others), len(others)),
        "all right choices": Share(sum(score.is_right for score in every), len(every)),
        "some skill where one fits": Share(sum(score.skill is not None for _, score in asked), len(asked)),
        "valid inputs": Share(sum(inputs), len(inputs)),
        "turns with a reply": Share(sum(score.has_replied for score in every), len(every)),
        "conversations open": Share(sum(score.is_open for score in every), len(every)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.routing")
    parser.add_argument("--model", default="local", help="a model as in `reyn chat --model`")
    parser.add_argument("--set", choices=SETS, default="held-back", dest="item_set")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every Nth message")
    parser.add_argument("--choices", action="store_true", help="ask a local model for the choice alone")
    parser.add_argument("--project", type=Path, default=PROJECT, help="folder for the skills and conversations")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.project.mkdir(parents=True, exist_ok=True)
    make_project(options.project, options.item_set)
    items = items_of(options.item_set)[:: options.every]
    if options.choices:
        source = options.model.partition(":")[2]
        model = LocalModel.locate(options.model, source, ModelSettings(options.model), options.project)
        found = choices(options.project, model, items)
    else:
        found = turns(options.project, options.model, items)
    scores = list(_shown(found))
    shares = report(scores)
    count = max(1, len(scores))
    means = {
        "prompt tokens": sum(score.prompt_tokens for _, score in scores) / count,
        "output tokens": sum(score.output_tokens for _, score in scores) / count,
        "CPU s": sum(score.cpu for _, score in scores) / count,
        "rejected answers": sum(score.rejected for _, score in scores) / count,
    }
    if options.json:
        figures = {
            name: {"hits": one.hits, "total": one.total, "interval": one.interval} for name, one in shares.items()
        }
        print(json.dumps({"model": options.model, "set": options.item_set, **figures, **means}))
    else:
        for name, share in shares.items():
            print(f"{name:<27}{share}")
        for name, mean in means.items():
            print(f"{name:<27}{mean:.1f} per message")
    return 0


def _shown(scores: Iterator[tuple[Item, Score]]) -> Iterator[tuple[Item, Score]]:
    """Print each wrong choice as soon as it is known."""
    for item, score in scores:
        if not score.is_right or not score.has_replied:
            text = f"{item.message[:60]!r}: {score.skill}, expected {item.skill}"
            print(text, file=sys.stderr, flush=True)
        yield item, score


if __name__ == "__main__":
    sys.exit(main())
