"""A simulation of many workers on one database: `python -m bench.scaling`, and `--check` against four real workers.

A closed queueing network: each slot of a worker executes one visit after the other. A visit waits for the model, then
needs its worker's core, then a commit. The database stores the commits that have arrived together (group commit), and
its cores execute their statements. Idle workers poll, all renew leases and report; that is work of the database, too.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import time
from dataclasses import dataclass, replace

DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Site:
    """Workers, a database, and what a visit costs. Seconds, unless the name says otherwise."""

    workers: int
    slots: int
    model: float = 0.05
    visit_cpu: float = 0.0029
    """CPU of a worker for a visit, with its commit."""
    statement_cpu: float = 0.0007
    """CPU of the server for the commit of a visit: 0.33 ms were measured for four events without content."""
    flush: float = 0.0023
    """Time to write the log to the disk."""
    server_cores: float = 4.0
    databases: int = 1
    """Databases among which runs are divided by the hash of their root's id."""

    @property
    def upkeep(self) -> float:
        """Statements a second that workers send beside their visits: reports, leases, looks for wakes and messages."""
        return self.workers * (1 / 1.5 + 3 / 10 + 1 / 0.25 + 1 / 0.5)

    @property
    def capacity(self) -> float:
        """Visits a second that the cores of the databases can store."""
        return (self.databases * self.server_cores / self.statement_cpu) - self.upkeep * self.databases

    @property
    def demand(self) -> dict[str, float]:
        """The highest rate of visits a second that each part permits."""
        return {
            "slots": self.workers * self.slots / (self.model + self.visit_cpu + self.statement_cpu + 1.5 * self.flush),
            "cores of the workers": self.workers / self.visit_cpu,
            "cores of the database": self.capacity,
        }


def simulate(site: Site, visits: int, seed: int = 1) -> tuple[float, float]:
    """Return visits a second, and the 99th percentile of the time that a commit takes."""
    chance = random.Random(seed)
    core_free = [0.0] * site.workers
    flushed = [0.0] * site.databases
    stored = [0.0] * site.databases
    slowed = max(0.05, 1 - site.upkeep * site.statement_cpu / site.server_cores)
    number = itertools.count()
    waiting: list[tuple[float, int, int]] = []
    for worker in range(site.workers):
        for _ in range(site.slots):
            heapq.heappush(waiting, (chance.uniform(0, site.model), next(number), worker))
    commits, now = [], 0.0
    for _ in range(visits):
        now, _, worker = heapq.heappop(waiting)
        core_free[worker] = max(now, core_free[worker]) + site.visit_cpu * chance.uniform(0.8, 1.2)
        asked, database = core_free[worker], chance.randrange(site.databases)
        stored[database] = max(asked, stored[database]) + site.statement_cpu / site.server_cores / slowed
        executed = max(stored[database], asked + site.statement_cpu)
        # A flush that is under way does not have this commit: it is in the next one, with all that arrive meanwhile.
        if executed > flushed[database]:
            flushed[database] = executed + site.flush
        elif executed > flushed[database] - site.flush:
            flushed[database] += site.flush
        commits.append(flushed[database] - asked)
        heapq.heappush(waiting, (flushed[database] + site.model, next(number), worker))
    commits.sort()
    return visits / now, commits[round(0.99 * (len(commits) - 1))]


def slowdown() -> float:
    """Return the time that a second of CPU takes at present: other programs use this machine, too."""
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.2:
        pass
    return (time.monotonic() - began) / (time.process_time() - used)


def check(visits: int) -> dict[str, float]:
    """Measure one and four workers of this machine, and simulate the same."""
    from bench.cluster import measured_rates

    figures: dict[str, float] = {}
    before = slowdown()
    rates, visit_cpu = measured_rates(visits)
    factor = (before + slowdown()) / 2
    for workers, rate in rates.items():
        site = Site(
            workers=workers,
            slots=1,
            visit_cpu=visit_cpu * factor,
            statement_cpu=0.0007 * factor,
            server_cores=2,
        )
        simulated, _ = simulate(site, 20_000)
        figures |= {f"{workers} workers, measured": rate, f"{workers} workers, simulated": simulated}
    return figures | {"seconds of a CPU second": factor}


RUNS, VISITS, PEAK = 1_000_000, 10, 5
"""Runs a day, visits a run, and how much higher the highest rate is than the mean."""


def plan() -> list[tuple[str, Site]]:
    """Return the sites of the estimate: 100 workers whose model takes 2 s, with and without partitions."""
    base = Site(workers=100, slots=20, model=2.0)
    return [
        ("100 workers", base),
        ("100 workers, 50 slots", replace(base, slots=50)),
        ("400 workers, 50 slots", replace(base, workers=400, slots=50)),
        ("400 workers, 50 slots, 4 databases", replace(base, workers=400, slots=50, databases=4)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling")
    parser.add_argument("--check", action="store_true", help="compare with workers of this machine")
    parser.add_argument("--visits", type=int, default=100_000, help="visits to simulate")
    options = parser.parse_args()
    if options.check:
        for name, value in check(200).items():
            print(f"{name:40} {value:8.3g}")
        return
    print(f"needed: {RUNS * VISITS / DAY:.0f} visits/s on average, {PEAK * RUNS * VISITS / DAY:.0f} at the peak")
    for name, site in plan():
        rate, slowest = simulate(site, options.visits)
        first = min(site.demand, key=lambda part: site.demand[part])
        print(f"{name:40} {rate:8,.0f} visits/s, commit p99 {slowest * 1000:6.1f} ms, first limit: {first}")


if __name__ == "__main__":
    main()
