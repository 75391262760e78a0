"""Attack workers on PostgreSQL with kills, pauses, partitions and crashes of the server; exit with 1 on a violation.

Each run rings two bells, which are unsafe to repeat, and asks a question. Files outside of the journal note each ring
and each call of the model. An operator answers the questions; asked about a ring of unknown outcome, it looks into the
file. Afterwards each bell was rung once, no recorded answer was requested again, and each run is finished and verified.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from reyn.errors import QuestionUnknown, ReynError
from reyn.journal import ENDED, decode, kinds
from tests.chaos.cluster_worker import (
    ENGINES,
    LEASE_SECONDS,
    PROJECT,
    RINGS,
    SKILL,
    UNREACHABLE,
    Witness,
    open_cluster,
    work,
)
from tests.chaos.partitions import Network, Proxy
from tests.engines.temporal_server import development_server, free_port
from tests.postgres.server import Server

IN_FLIGHT = 6
WORKERS = 3
PATIENCE = 180.0
"""Seconds without any progress after which the runs that are left count as stuck."""
_TICK = 0.02
FAULTS = ("kills", "restarts", "pauses", "partitions")


class Tally(msgspec.Struct):
    """What was done, and what went wrong."""

    seed: int
    kills: int = 0
    restarts: int = 0
    pauses: int = 0
    partitions: int = 0
    runs: int = 0
    takeovers: int = 0
    repeated_calls: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    wrong: list[str] = []

    def blame(self, category: str, text: str) -> None:
        if category:
            setattr(self, category, getattr(self, category) + 1)
        self.wrong = [*self.wrong, text]


class Machine:
    """A worker in a process of its own, behind a proxy. It is started again when it is gone."""

    def __init__(self, number: int, root: Path, server: Path, network: Network, engine: str) -> None:
        self._engine = engine
        self.name, self._root = f"w{number}", root
        self._is_elsewhere = number > 0
        self.proxy = Proxy(root / f"net{number}", server, network)
        self._context = multiprocessing.get_context("forkserver")
        self.wakes_at = 0.0
        self.start()

    def start(self) -> None:
        url = address(self.proxy.folder)
        arguments: dict[str, Any] = {"engine": self._engine, "is_elsewhere": self._is_elsewhere}
        self.process = self._context.Process(target=work, args=(self._root, self.name, url), kwargs=arguments)
        self.process.start()
        self.killed = False

    def kill(self) -> None:
        self.process.kill()
        self.killed = True
        self.wakes_at = 0.0

    def pause(self, seconds: float) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        self.wakes_at = time.monotonic() + seconds

    def wake(self) -> None:
        if self.wakes_at and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGCONT)
        self.wakes_at = 0.0

    def stop(self) -> None:
        self.wake()
        self.process.terminate()
        self.process.join(PATIENCE)


def address(socket: Path) -> str:
    host = quote(str(socket), safe="")
    return f"postgresql://postgres@/postgres?host={host}&project={PROJECT}&lease={LEASE_SECONDS:g}"


class Attack:
    """Runs and faults until there were enough of them, then no faults until all runs have finished."""

    def __init__(self, root: Path, server: Server, machines: list[Machine], wanted: dict[str, int], seed: int) -> None:
        self.root, self.server, self.machines = root, server, machines
        self.chance, self.tally = random.Random(seed), Tally(seed)
        self.wanted = wanted
        self.rings, self.calls = Witness(root / "rings"), Witness(root / "calls")
        self.open: dict[str, int] = {}
        """The runs that have not ended, each with its last event."""
        self.names: list[str] = []
        self.progress_at = time.monotonic()
        self.grown, self.next_fault = 0, 1

    @property
    def left(self) -> list[str]:
        return [fault for fault in FAULTS for _ in range(self.wanted[fault] - getattr(self.tally, fault))]

    def execute(self, socket: Path) -> Tally:
        runtime = open_cluster(self.root, "desk", address(socket))
        journal = runtime.services.journal
        printed_at = time.monotonic()
        while self.left or self.open:
            while self.left and len(self.open) < IN_FLIGHT:
                self.names.append(f"r{len(self.names):05}")
                runtime.submit(SKILL, {"text": "in"}, run_id=self.names[-1])
                self.open[self.names[-1]] = 0
            for name in list(self.open):
                self._look_after(runtime, name)
            self._restart_workers()
            if self.grown >= self.next_fault or time.monotonic() - self.progress_at > 5:
                self._strike()
            if time.monotonic() - self.progress_at > PATIENCE:
                break
            if time.monotonic() - printed_at > 10:
                print(", ".join(f"{getattr(self.tally, one)} {one}" for one in FAULTS), file=sys.stderr)
                printed_at = time.monotonic()
            time.sleep(_TICK)
        for machine in self.machines:
            machine.stop()
        for name in self.names:
            self._check(runtime, name)
        journal.close()
        return self.tally

    def _look_after(self, runtime: Any, name: str) -> None:
        """Notice progress; act as the operator of a run that waits."""
        row = runtime.services.journal.find(name)
        if row.seq != self.open[name]:
            self.grown += row.seq - self.open[name]
            self.open[name], self.progress_at = row.seq, time.monotonic()
        if row.status in ENDED:
            del self.open[name]
        elif row.status == "waiting" and row.wait is not None:
            asked = runtime.runs.open_question(row)
            if asked is None or asked.is_answered:
                return
            with suppress(QuestionUnknown):
                runtime.answer(name, row.wait.id, self._answer(runtime, name, row.wait.reason))
        elif row.status not in ("running", "waiting"):
            self.tally.blame("stuck", f"{name} is {row.status}: {row.reason}")
            del self.open[name]

    def _answer(self, runtime: Any, name: str, reason: str) -> str:
        if reason != "unsafe":
            return "yes"
        events = [decode(event) for event in runtime.runs.events(name)]
        completed = {event.call for event in events if isinstance(event, kinds.OpCompleted)}
        begun = [event.call for event in events if isinstance(event, kinds.OpStarted) and event.op_kind == "ring"]
        bell = RINGS[len(completed.intersection(begun))]
        return "done" if f"{name} {bell}" in self.rings.lines() else "again"

    def _strike(self) -> None:
        self.grown, self.next_fault = 0, self.chance.randint(1, 12)
        self.progress_at = time.monotonic()
        if not (left := self.left):
            return
        time.sleep(self.chance.uniform(0, _TICK))
        fault, machine = self.chance.choice(left), self.chance.choice(self.machines)
        if fault == "restarts":
            self.server.stop(self.chance.choice(("immediate", "fast")))
            time.sleep(self.chance.uniform(0, 0.5))
            self.server.start()
        elif machine.killed or machine.wakes_at:
            return
        elif fault == "kills":
            machine.kill()
        elif fault == "pauses":
            machine.pause(self.chance.uniform(1.2, 2.5) * LEASE_SECONDS)
        elif self.chance.random() < 0.7:
            machine.proxy.drop(self.chance.uniform(0.1, 2.5) * LEASE_SECONDS)
        else:
            machine.proxy.slow(2 * LEASE_SECONDS, self.chance.uniform(0.01, 0.3))
        setattr(self.tally, fault, getattr(self.tally, fault) + 1)

    def _restart_workers(self) -> None:
        for machine in self.machines:
            if machine.wakes_at and time.monotonic() >= machine.wakes_at:
                machine.wake()
            if not machine.process.is_alive():
                if not machine.killed and machine.process.exitcode != UNREACHABLE:
                    self.tally.blame("", f"a worker ended by itself with status {machine.process.exitcode}")
                machine.start()

    # -- afterwards -----------------------------------------------------------------------------------

    def _check(self, runtime: Any, name: str) -> None:
        """Compare a run with what the witnesses noted."""
        self.tally.runs += 1
        if name in self.open:
            row = runtime.services.journal.find(name)
            self.tally.blame("stuck", f"{name} is {row.status}: {row.reason or runtime.workers.reason(row)}")
            return
        try:
            runtime.runs.verify(name)
        except ReynError as error:
            self.tally.blame("lost", f"{name} is damaged: {error.message}")
        if (status := runtime.runs.result(name).status) != "finished":
            self.tally.blame("", f"{name} is {status}: {runtime.runs.result(name).reason}")
        rung = Counter(line for line in self.rings.lines() if line.startswith(f"{name} "))
        for bell in RINGS:
            if (count := rung[f"{name} {bell}"]) != 1:
                self.tally.blame("doubled" if count else "lost", f"{name}: bell {bell} was rung {count} times")
        drivers = sum(isinstance(event, kinds.RunResumed) for event in map(decode, runtime.runs.events(name)))
        called = Counter(line for line in self.calls.lines() if line.startswith(f"{name} "))
        self.tally.takeovers += max(0, drivers - 2)
        self.tally.repeated_calls += called.total() - len(called)
        if called.total() - len(called) > drivers:
            self.tally.blame("doubled", f"{name}: {dict(called)} with {drivers} drivers")


def attack(wanted: dict[str, int], seed: int, engine: str) -> Tally:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.chaos.cluster_worker", "reyn.runtime.workers", "psycopg"])
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reyn-cluster-")))
        server = Server(f"cluster-{os.getpid()}", fsync=True)
        stack.callback(server.close)
        network = Network()
        stack.callback(network.close)
        socket = Path(str(server._server.get_postmaster_info().socket_dir))
        open_cluster(root, "desk", address(socket)).services.journal.close()
        if engine == "temporal":
            engine = stack.enter_context(development_server(free_port()))
        machines = [Machine(number, root, socket, network, engine) for number in range(WORKERS)]
        stack.callback(lambda: [machine.process.kill() for machine in machines])
        return Attack(root, server, machines, wanted, seed).execute(socket)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster")
    for fault, number in zip(FAULTS, (2000, 100, 50, 50), strict=True):
        parser.add_argument(f"--{fault}", type=int, default=number)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--engine", choices=ENGINES, default="absurd")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    tally = attack({fault: getattr(options, fault) for fault in FAULTS}, options.seed, options.engine)
    figures = msgspec.to_builtins(tally)
    if options.json:
        print(json.dumps(figures))
    else:
        wrong = figures.pop("wrong")
        print(", ".join(f"{value} {name.replace('_', ' ')}" for name, value in figures.items()))
        print("\n".join(wrong))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
