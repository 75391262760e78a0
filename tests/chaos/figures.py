"""What an hour of kills amounts to: counted by what was killed, and written into the page that shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.torment import Ordeal

BEGIN, END = "<!-- figures: written by `python -m tests.chaos --write` -->", "<!-- end of figures -->"
_LOST = re.compile(r"was lost")
_DOUBLED = re.compile(
    r"took place \d+ times|took place, but nobody asked for it|asked again although|calls were asked again after"
)


class Tally(msgspec.Struct):
    """One scenario's ordeals, added up. `wrong` holds every line that speaks against it, counted or not."""

    scenario: str
    does: str
    runs: int = 0
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    wrong: list[str] = []

    def add(self, ordeal: Ordeal) -> None:
        self.runs += 1
        self.kills += ordeal.kills
        self.stuck += ordeal.is_stuck
        self.lost += sum(bool(_LOST.search(line)) for line in ordeal.wrong)
        self.doubled += sum(bool(_DOUBLED.search(line)) for line in ordeal.wrong)
        self.wrong = [*self.wrong, *ordeal.wrong]


class Figures(msgspec.Struct):
    seed: int
    tallies: list[Tally]

    def sum_of(self, name: str) -> int:
        return sum(getattr(tally, name) for tally in self.tallies)

    @property
    def wrong(self) -> list[str]:
        return [f"{tally.scenario}: {line}" for tally in self.tallies for line in tally.wrong]

    def as_json(self) -> dict[str, Any]:
        sums = {name: self.sum_of(name) for name in ("runs", "kills", "lost", "doubled", "stuck")}
        return {"seed": self.seed, **sums, "wrong": self.wrong, "scenarios": msgspec.to_builtins(self.tallies)}

    def words(self) -> str:
        return (
            f"{self.sum_of('kills')} kills in {self.sum_of('runs')} runs: {self.sum_of('lost')} lost, "
            f"{self.sum_of('doubled')} doubled, {self.sum_of('stuck')} stuck, {len(self.wrong)} things wrong "
            f"(seed {self.seed})"
        )

    def table(self) -> str:
        head = f"| what is killed | {' | '.join(_COLUMNS)} | wrong in any way |\n|{'---|' * (len(_COLUMNS) + 2)}\n"
        rows = [(tally.does, *(getattr(tally, name) for name in _COLUMNS), len(tally.wrong)) for tally in self.tallies]
        rows.append(("**all**", *(self.sum_of(name) for name in _COLUMNS), len(self.wrong)))
        return head + "".join("| " + " | ".join(_cell(value) for value in row) + " |\n" for row in rows)


_COLUMNS = ("runs", "kills", "lost", "doubled", "stuck")


def _cell(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def write_into(page: Path, figures: Figures) -> None:
    """Replace the figures of a page by these."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page} has no place for figures: {BEGIN} … {END}")
    told = f"\n\nSeed {figures.seed}.\n\n{figures.table()}\n"
    page.write_text(before + begin + told + end + after, encoding="utf-8")
