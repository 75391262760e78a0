"""Statistics of kills by scenario, and the table of them on the documentation page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.random_kills import KilledRun

BEGIN, END = "<!-- figures: written by `python -m tests.chaos --write` -->", "<!-- end of figures -->"
_LOST = re.compile(r"was lost")
_DOUBLED = re.compile(
    r"took place \d+ times|took place, but was not requested|asked again although|calls were asked again after"
)


class Tally(msgspec.Struct):
    """The sums of one scenario. `wrong` lists every violation, including those of no category."""

    scenario: str
    does: str
    runs: int = 0
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    wrong: list[str] = []

    def add(self, run: KilledRun) -> None:
        self.runs += 1
        self.kills += run.kills
        self.stuck += run.is_stuck
        self.lost += sum(bool(_LOST.search(line)) for line in run.wrong)
        self.doubled += sum(bool(_DOUBLED.search(line)) for line in run.wrong)
        self.wrong = [*self.wrong, *run.wrong]


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

    def summary(self) -> str:
        return (
            f"{self.sum_of('kills')} kills in {self.sum_of('runs')} runs: {self.sum_of('lost')} lost, "
            f"{self.sum_of('doubled')} doubled, {self.sum_of('stuck')} stuck, {len(self.wrong)} violations "
            f"(seed {self.seed})"
        )

    def table(self) -> str:
        head = f"| scenario | {' | '.join(_COLUMNS)} | violations |\n|{'---|' * (len(_COLUMNS) + 2)}\n"
        rows = [(tally.does, *(getattr(tally, name) for name in _COLUMNS), len(tally.wrong)) for tally in self.tallies]
        rows.append(("**all**", *(self.sum_of(name) for name in _COLUMNS), len(self.wrong)))
        return head + "".join("| " + " | ".join(_cell(value) for value in row) + " |\n" for row in rows)


_COLUMNS = ("runs", "kills", "lost", "doubled", "stuck")


def _cell(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def write_into(page: Path, figures: Figures) -> None:
    """Replace the figures between the markers of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page} has no markers for figures: {BEGIN} … {END}")
    text = f"\n\nSeed {figures.seed}.\n\n{figures.table()}\n"
    page.write_text(before + begin + text + end + after, encoding="utf-8")
