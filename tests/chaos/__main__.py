"""Kill runs at random moments and print statistics; exit with 1 if there is any violation."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.conversations import conversation
from tests.chaos.figures import Figures, Tally, write_into
from tests.chaos.random_kills import kill_at_random
from tests.kernel.kill.scenario import Scenario
from tests.kernel.kill.scenarios import ACTING, rejected_and_looping

SCENARIOS = (rejected_and_looping, *ACTING, conversation)


def rehearsed_scenarios(folder: Path) -> list[tuple[Scenario, Tally]]:
    found = []
    for make in SCENARIOS:
        scenario = make(folder / make.__name__)
        scenario.rehearse()
        found.append((scenario, Tally(make.__name__, make.__doc__.strip().split("\n\n")[0].replace("\n    ", " "))))
    return found


def kill_until(kills: int, seed: int) -> Figures:
    """Execute one scenario after the other until there were enough kills."""
    chance, printed_at = random.Random(seed), time.monotonic()
    # On disk and not in memory, so that kills also come during fsync.
    with tempfile.TemporaryDirectory() as folder:
        scenarios = rehearsed_scenarios(Path(folder))
        figures = Figures(seed, [tally for _, tally in scenarios])
        for scenario, tally in itertools.cycle(scenarios):
            tally.add(kill_at_random(scenario, chance))
            if figures.sum_of("kills") >= kills:
                return figures
            if time.monotonic() - printed_at > 5:
                print(f"{figures.sum_of('kills')} kills …", file=sys.stderr)
                printed_at = time.monotonic()
    raise AssertionError("unreachable")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--kills", type=int, default=2000, help="minimum number of kills")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="update the figures of a page such as docs/explanation/chaos.md"
    )
    options = parser.parse_args()
    figures = kill_until(options.kills, options.seed)
    if options.write is not None:
        write_into(options.write, figures)
    if options.json:
        print(json.dumps(figures.as_json()))
    else:
        print(figures.summary())
        for line in figures.wrong:
            print(f"  {line}")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
