"""`reyn serve` under load. `make bench OF=bench.gateway`.

200 runs are watched by 200 streams while the server is killed five times: each stream must have every event once, in
order. Then: the memory of 2,000 open streams, the time from the commit of an event to its stream, and what a stream
costs beside the run that it watches. `--short` is a quick pass.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from reyn.gateway.streams import MAX_STREAMS_OF_ONE

_HEADERS = {"Content-Type": "application/json"}
_PAUSE = 0.05
_EVENTS_OF_A_VISIT = 7
_SKILL = "---\ntype: skill\nname: loop\nentry: a\nfinal_output: note\ngraph: {a: [b], b: [a, end]}\n---\n"
_PHASE = "---\ntype: phase\nname: {0}\ninput: note\nallowed_ops: []\n---\nDo {0}.\n"
_ASKER = "---\ntype: skill\nname: asker\nentry: ask\nfinal_output: note\ngraph: {ask: [{else: end}]}\n---\n"
_ASK = (
    "---\ntype: phase\nname: ask\ninput: note\npreprocessor: [{ask_user: {question: Which?, into: data.text}}]\n---\n"
)
_NOTE = '{"type": "object", "properties": {"text": {"type": "string"}}}'
_CONFIG = "model: scripted:answers.jsonl\nmax_phase_visits: null\n"


def write_project(root: Path, visits: int) -> None:
    """Write a project with a skill whose runs visit so many phases, an even number."""
    assert visits % 2 == 0
    folder = root / "reyn/project/loop"
    for name in ("phases", "artifacts"):
        (folder / name).mkdir(parents=True)
    (folder / "skill.md").write_text(_SKILL)
    for phase in "ab":
        (folder / f"phases/{phase}.md").write_text(_PHASE.format(phase))
    (folder / "artifacts/note.yaml").write_text(_NOTE)
    asker = root / "reyn/project/asker"
    for name in ("phases", "artifacts"):
        (asker / name).mkdir(parents=True)
    (asker / "skill.md").write_text(_ASKER)
    (asker / "phases/ask.md").write_text(_ASK)
    (asker / "artifacts/note.yaml").write_text(_NOTE)
    (root / "reyn.yaml").write_text(_CONFIG)
    lines = []
    for number in range(visits):
        target = None if number == visits - 1 else "ba"[number % 2]
        control = {
            "type": "transition" if target else "finish",
            "decision": "continue" if target else "finish",
            "next_phase": target,
            "confidence": 1,
            "reason": {"summary": "next"},
        }
        lines.append(json.dumps({"control": control, "artifact": {"type": "note", "data": {"text": f"{number}"}}}))
    (root / "answers.jsonl").write_text("\n".join(lines) + "\n")


def _free_port() -> int:
    """Return a free port below those of outgoing connections: one of these may take it while the server is down."""
    for port in range(20_000 + os.getpid() % 5_000, 30_000):
        with suppress(OSError), socket.socket() as found:
            found.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


class Server:
    """`reyn serve` in a process that can be killed. It keeps its port."""

    def __init__(self, root: Path) -> None:
        self._command = [sys.executable, "-m", "reyn", "--project", str(root)]
        self._environment = dict(os.environ) | {"XDG_CONFIG_HOME": str(root / "config")}
        self.token = self.new_token("load")
        self.port = _free_port()
        self.start()

    def new_token(self, name: str) -> str:
        """Return the secret of a token that may do everything."""
        arguments = [*self._command, "token", "new", name, "--scope", "admin"]
        done = subprocess.run(arguments, env=self._environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def start(self) -> None:
        """Start the server, and wait until it takes requests."""
        arguments = [*self._command, "serve", "--port", str(self.port), "--json"]
        self._process = subprocess.Popen(arguments, env=self._environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        started = json.loads(self._process.stdout.readline())
        assert started.get("url") == self.url, started

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the server with a signal."""
        self._process.send_signal(number)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def megabytes(self) -> float:
        """The resident memory of the process."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1_024

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(visits: int) -> Iterator[Server]:
    """Serve a new project."""
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder), visits)
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.end()


class Stream:
    """A reader of the stream of one run that comes back after its last event. It looks at sequence numbers alone.

    Attributes:
        last: The last event.
        faults: Events that were lost, or came twice.
        delays: The time from the commit to the arrival of each event since the connection was opened, in seconds.
    """

    def __init__(self, server: Server, run: str) -> None:
        self._server = server
        self.run = run
        self.last = 0
        self.faults: list[str] = []
        self.delays: list[float] = []

    async def read(self) -> None:
        """Read until the run has ended."""
        while True:
            if await self._read_once():
                return
            await asyncio.sleep(_PAUSE)

    async def _read_once(self) -> bool:
        """Read one connection; return whether the run has ended."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        except OSError:
            return False
        try:
            head = f"GET /api/runs/{self.run}/stream?follow=true HTTP/1.0\r\nHost: 127.0.0.1:{self._server.port}\r\n"
            last = f"Authorization: Bearer {self._server.token}\r\nLast-Event-ID: {self.last}\r\n\r\n"
            writer.write((head + last).encode())
            if b" 200 " not in await reader.readline():
                return False  # not recorded yet
            kind, opened = "", time.time()
            while line := await reader.readline():
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name == "id":
                    self._take(int(value))
                elif name == "event":
                    kind = value
                elif name == "data" and kind == "event":
                    committed = json.loads(value)["ts"] / 1e6
                    self.delays += [time.time() - committed] if committed >= opened else []
                if kind == "end":
                    return True
        except (OSError, ValueError, asyncio.IncompleteReadError):
            return False  # killed in the middle of a line
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        return False

    def _take(self, seq: int) -> None:
        if seq != self.last + 1:
            self.faults.append(f"{self.run}: event {seq} after {self.last}")
        self.last = seq


async def _start_all(server: Server, runs: list[str]) -> None:
    """Start the runs that are not recorded, and continue those that were interrupted."""
    headers = _HEADERS | {"Authorization": f"Bearer {server.token}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=300) as http:
        for run in runs:
            with suppress(httpx2.HTTPError):  # the server is killed meanwhile
                body = {"skill": "loop", "input": {"text": "in"}, "run_id": run}
                started = await http.post("/api/runs", json=body)
                if started.json().get("display_status") == "running (interrupted)":
                    await http.post(f"/api/runs/{run}/resume", json={})


async def _until(streams: list[Stream], events: int) -> None:
    """Wait until the streams have so many events."""
    while True:
        if sum(stream.last for stream in streams) >= events:
            return
        await asyncio.sleep(_PAUSE)


async def watched_under_kills(server: Server, runs: int, visits: int, kills: int) -> list[Stream]:
    """Watch runs while the server is killed and started again; return the streams, which have all ended."""
    names = [f"r{number}" for number in range(runs)]
    streams = [Stream(server, name) for name in names]
    reading = [asyncio.ensure_future(stream.read()) for stream in streams]
    whole = runs * visits * _EVENTS_OF_A_VISIT
    starting = asyncio.ensure_future(_start_all(server, names))
    for number in range(kills):
        await _until(streams, whole * (number + 1) // (kills + 1))
        await asyncio.to_thread(server.end, signal.SIGKILL)
        await starting
        await asyncio.to_thread(server.start)
        starting = asyncio.ensure_future(_start_all(server, names))
    await starting
    await asyncio.gather(*reading)
    return streams


async def check(server: Server, streams: list[Stream]) -> int:
    """Check that each stream has all events of its run; return their number."""
    headers = {"Authorization": f"Bearer {server.token}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=300) as http:
        for stream in streams:
            row = (await http.get(f"/api/runs/{stream.run}")).json()["run"]
            assert row["status"] == "finished", row
            assert not stream.faults, stream.faults[:5]
            assert stream.last == row["seq"], (stream.run, stream.last, row["seq"])
    return sum(stream.last for stream in streams)


# -- figures ------------------------------------------------------------------------------------------


async def memory_of_streams(server: Server, count: int) -> float:
    """Open streams, of the feed and of a run that has not ended in turn; return the memory of the server in MB."""
    await _start_all(server, ["short"])
    headers = _HEADERS | {"Authorization": f"Bearer {server.token}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=300) as http:
        await _ended(server, "short")
        waiting = await http.post("/api/runs", json={"skill": "asker", "input": {"text": "in"}, "run_id": "waits"})
        assert waiting.status_code == 202, waiting.text
    opened = []
    tokens = [server.new_token(f"streams {number}") for number in range(-(-count // MAX_STREAMS_OF_ONE))]
    streams = (("/api/stream", b"event: ready"), ("/api/runs/waits/stream?follow=true", b"id: 1"))
    for number in range(count):
        path, first = streams[number % 2]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        writer.write(f"{head}Authorization: Bearer {tokens[number % len(tokens)]}\r\n\r\n".encode())
        assert b" 200 " in await reader.readline()
        await reader.readuntil(first)
        opened.append(writer)
    used = server.megabytes
    for writer in opened:
        writer.close()
    return used


async def cpu_of_a_run(server: Server, names: list[str], watched: int) -> tuple[float, list[float]]:
    """Execute runs one after the other, each with so many streams; return the CPU time and the delays of events."""
    before, delays = server.cpu_seconds, list[float]()
    for name in names:
        streams = [Stream(server, name) for _ in range(watched)]
        await _start_all(server, [name])  # a stream of a run that is not recorded would be refused, and come back
        if watched:
            await asyncio.gather(*(stream.read() for stream in streams))
            delays += [delay for stream in streams for delay in stream.delays]
        else:
            await _ended(server, name)
    return server.cpu_seconds - before, delays


async def costs_of_streams(server: Server, rounds: int) -> tuple[dict[int, list[float]], list[float]]:
    """Execute runs alone, with a stream and with eleven, in turn; return the CPU times, and the delays with one."""
    await cpu_of_a_run(server, ["warm"], 1)
    costs: dict[int, list[float]] = {0: [], 1: [], 11: []}
    delays: list[float] = []
    for number in range(rounds):
        for watched, times in costs.items():
            spent, found = await cpu_of_a_run(server, [f"r{number}-{watched}-{one}" for one in "ab"], watched)
            times.append(spent / 2)
            delays += found if watched == 1 else []
    return costs, delays


async def _ended(server: Server, run: str) -> None:
    """Wait until a run has ended, without a stream."""
    headers = {"Authorization": f"Bearer {server.token}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=300) as http:
        while True:
            if (await http.get("/api/runs?limit=1")).json()["runs"][0]["status"] == "finished":
                return
            await asyncio.sleep(0.5)


def main() -> None:
    """Measure, print, and fail if an event was lost or doubled, or if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--short", action="store_true")
    is_short = parser.parse_args().short
    runs, visits, kills = (20, 20, 2) if is_short else (200, 60, 5)
    with served(visits) as server:
        began = time.monotonic()
        streams = asyncio.run(watched_under_kills(server, runs, visits, kills))
        events = asyncio.run(check(server, streams))
        took = time.monotonic() - began
        print(f"{runs} runs, {runs} streams, {kills} kills: {events:,} events, none lost or doubled, {took:.0f} s")
    count = 200 if is_short else 2_000
    with served(visits) as server:
        idle = server.megabytes
        used = asyncio.run(memory_of_streams(server, count))
        print(f"{count} open streams: {used:.0f} MB, {idle:.0f} MB without; target 300 MB for 2,000")
    with served(200) as server:
        costs, delays = asyncio.run(costs_of_streams(server, rounds=2 if is_short else 8))
        alone, once, many = (statistics.median(times) for times in costs.values())
        print(f"from commit to stream: p50 {statistics.median(delays) * 1_000:.0f} ms; target 50 ms")
        print(f"CPU of a run: {alone:.3f} s alone, {once:.3f} s with a stream, {many:.3f} s with 11;")
        print(f"a stream costs {(many - alone) / 11 / alone:.1%} of its run; target 10 %")


if __name__ == "__main__":
    main()
