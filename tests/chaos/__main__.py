"""Kill runs at random moments until enough were killed; the figures, and exit 1 if anything speaks against them."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.figures import Figures, Tally, write_into
from tests.chaos.torment import torment
from tests.kernel.kill.scenario import Scenario
from tests.kernel.kill.scenarios import ACTING, rejected_and_looping

SCENARIOS = (rejected_and_looping, *ACTING)


def prepared(folder: Path) -> list[tuple[Scenario, Tally]]:
    found = []
    for make in SCENARIOS:
        scenario = make(folder / make.__name__)
        scenario.rehearse()
        found.append((scenario, Tally(make.__name__, make.__doc__.strip().split("\n\n")[0].replace("\n    ", " "))))
    return found


def kill_until(kills: int, seed: int) -> Figures:
    """One scenario after the other, round and round, until enough were killed."""
    chance, told = random.Random(seed), time.monotonic()
    # On a disk and not in memory: kills shall fall into the waits for it, too.
    with tempfile.TemporaryDirectory() as folder:
        torments = prepared(Path(folder))
        figures = Figures(seed, [tally for _, tally in torments])
        for scenario, tally in itertools.cycle(torments):
            tally.add(torment(scenario, chance))
            if figures.sum_of("kills") >= kills:
                return figures
            if time.monotonic() - told > 5:
                print(f"{figures.sum_of('kills')} kills …", file=sys.stderr)
                told = time.monotonic()
    raise AssertionError("unreachable")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--kills", type=int, default=2000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="rewrite the figures of a page, as docs/explanation/chaos.md"
    )
    options = parser.parse_args()
    figures = kill_until(options.kills, options.seed)
    if options.write is not None:
        write_into(options.write, figures)
    if options.json:
        print(json.dumps(figures.as_json()))
    else:
        print(figures.words())
        for line in figures.wrong:
            print(f"  {line}")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
