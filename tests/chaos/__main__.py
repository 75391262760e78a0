"""Kill runs at random moments until enough were killed; the figures, and exit 1 if anything was lost or doubled."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from reyn.testing.crash import Failpoints, in_child
from tests.kernel.test_kill import KILLED, Scenario, rejected_and_looping


def torment(scenario: Scenario, chance: random.Random) -> tuple[int, bool, list[str]]:
    """One run, killed again and again until it gets through: kills, whether it got stuck, what was wrong."""
    scenario.forget()
    kills = 0
    for attempt in range(100):
        after = chance.uniform(0, 0.03) if attempt < 20 else None
        status = in_child(lambda: asyncio.run(scenario.drive(Failpoints())), kill_after=after)
        if status == 0:
            return kills, False, scenario.check(kills)
        if status != KILLED:
            return kills, True, [f"a resume ended with {status}"]
        kills += 1
    return kills, True, ["the run never got through"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    kills = runs = stuck = 0
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        scenario = rejected_and_looping(Path(folder))
        told = time.monotonic()
        while kills < options.kills:
            more, is_stuck, found = torment(scenario, chance)
            kills, runs, stuck, wrong = kills + more, runs + 1, stuck + is_stuck, wrong + found
            if time.monotonic() - told > 2:
                print(f"{kills} kills …", file=sys.stderr)
                told = time.monotonic()
    lost = sum("lost" in line or "knows nothing" in line for line in wrong)
    figures = {"seed": options.seed, "runs": runs, "kills": kills, "lost": lost, "stuck": stuck, "wrong": wrong}
    figures["doubled"] = sum("asked again although" in line for line in wrong)
    if options.json:
        print(json.dumps(figures))
    else:
        print(
            f"{kills} kills in {runs} runs: {lost} answers lost, {figures['doubled']} asked for twice, "
            f"{stuck} runs stuck (seed {options.seed})"
        )
        for line in wrong:
            print(f"  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
