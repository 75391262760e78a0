"""The tasks: skills, their items, and what a right answer is.

An item is one line of `items/<set>/<skill>.jsonl`: `{"input": ..., "expect": {"choice": ..., "fields": ..., "reads":
...}}`. `choice` is the next phase of the first decision, or `end`. `fields` are fields of its artifact: a value, a list
of accepted values, or `{"contains": [...]}`. `reads` lists the files that have to be read first.

Prompts are tuned on the set `tuning` alone; `held-back` gives the figures. `booking`, `vet`, `hotel`, `library`,
`tenants`, `bank`, `tracker`, `museum`, `gym`, `farm_shop`, `estate`, `dentist`, `energy`, `charity` and `kindergarten`
have no tuning items. All but the first two were written before any model had answered them; the last eight after the
prompts were final.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

HERE = Path(__file__).parent
ItemSet = Literal["held-back", "tuning"]
SETS: tuple[ItemSet, ...] = ("held-back", "tuning")


class Task(NamedTuple):
    """One skill of `skills/` and what it measures."""

    name: str
    measures: str


TASKS = (
    Task("parcel", "routing, 2 choices"),
    Task("helpdesk", "routing, 3 choices"),
    Task("newsroom", "routing, 3 choices"),
    Task("garage", "routing, 3 choices"),
    Task("college", "routing, 3 choices"),
    Task("webshop", "routing, 3 choices"),
    Task("airline", "routing, 3 choices"),
    Task("staff", "routing, 3 choices"),
    Task("insurer", "routing, 3 choices"),
    Task("festival", "routing, 3 choices"),
    Task("software", "routing, 3 choices"),
    Task("vet", "routing, 3 choices"),
    Task("hotel", "routing, 3 choices"),
    Task("library", "routing, 3 choices"),
    Task("tenants", "routing, 3 choices"),
    Task("bank", "routing, 3 choices"),
    Task("tracker", "routing, 3 choices"),
    Task("museum", "routing, 3 choices"),
    Task("gym", "routing, 3 choices"),
    Task("farm_shop", "routing, 3 choices"),
    Task("estate", "routing, 3 choices"),
    Task("dentist", "routing, 3 choices"),
    Task("energy", "routing, 3 choices"),
    Task("charity", "routing, 3 choices"),
    Task("kindergarten", "routing, 3 choices"),
    Task("council", "routing, 6 choices"),
    Task("claims", "gate"),
    Task("order", "extraction"),
    Task("booking", "extraction"),
    Task("lookup", "act or decide"),
    Task("checklist", "loop exit"),
)


class Expectation(NamedTuple):
    """The right answer to an item. `reads` is `None` if it does not matter which files are read."""

    choice: str
    fields: dict[str, Any]
    reads: frozenset[str] | None


class Item(NamedTuple):
    """One input with its right answer."""

    task: str
    number: int
    input: Any
    expect: Expectation


def items_of(task: str, item_set: ItemSet) -> list[Item]:
    """Return the items of a task; none if it has no items in this set."""
    path = HERE / "items" / item_set / f"{task}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Item(task, number, row["input"], _expectation(row["expect"])) for number, row in enumerate(rows)]


@cache
def files() -> dict[str, str]:
    """Return the files of the project in which the tasks run: name → text."""
    texts: dict[str, str] = json.loads((HERE / "items" / "files.json").read_text())
    return texts


def has_right_fields(expected: dict[str, Any], data: Any) -> bool:
    """Return whether an artifact has the expected fields."""
    return isinstance(data, dict) and all(_is_right(value, data.get(name)) for name, value in expected.items())


def expected_value(expected: Any) -> Any:
    """Return one value that `has_right_fields` accepts."""
    accepted = expected["contains"] if isinstance(expected, dict) else expected
    return accepted[0] if isinstance(accepted, list) else accepted


def _expectation(row: dict[str, Any]) -> Expectation:
    reads = row.get("reads")
    return Expectation(row["choice"], row.get("fields", {}), None if reads is None else frozenset(reads))


def _is_right(expected: Any, value: Any) -> bool:
    if isinstance(expected, dict):
        return any(part in str(value).casefold() for part in expected["contains"])
    if isinstance(expected, list):
        return any(_is_right(one, value) for one in expected)
    if isinstance(expected, str):
        return isinstance(value, str) and _normalized(expected) == _normalized(value)
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value - expected) < 1e-9


def _normalized(text: str) -> str:
    """Return a text without case, punctuation and a leading article."""
    words = re.sub(r"[^\w\s]", "", text.casefold()).split()
    return " ".join(words[1:] if words[:1] in (["a"], ["an"], ["the"]) else words)
