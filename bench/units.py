"""What the basic activities cost, in figures that hold on a busy machine: `python -m bench.units` prints them.

Counts are exact: calls of functions of Reyn, JSON, hashes, validations, files, SQL and pages. CPU time is divided
by that of a fixed loop, the unit, which is measured alternately with it in the same process. The costs that
`tests/kernel/test_costs.py` allows are stored in `tests/costs.json`; `--write` stores the current ones, and lists the
places of the work in `docs/explanation/one-decision.md`. `--calls NAME` lists the functions that an activity calls.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import platform
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from types import SimpleNamespace
from typing import Any
from unittest import mock

from bench import chats, functions, ops, workload
from reyn import OSRuntime
from reyn.functions import use_runtime

ROOT = Path(__file__).parents[1]
STORED = ROOT / "tests" / "costs.json"
PAGE = ROOT / "docs" / "explanation" / "one-decision.md"
BEGIN, END = "<!-- bench.units -->", "<!-- end -->"
SMALL, LARGE = 5, 25
"""The two sizes whose difference is counted, so that what is done once does not count."""
LATE = (110, 140)
"""Two sizes of a run whose difference is late visits: work that begins after the first hundred is counted there."""
_SIZE = 40
_SIZES = {"function call": 4, "chat turn": 2}
"""Activities that need no start are measured in a few milliseconds: less than a busy machine gives at a time."""
_ROUNDS = 12
_COUNT_ROUNDS = 3
_PAGE_BYTES = 8192 + 24

Costs = dict[str, float]
Work = Callable[[], Awaitable[None]]
Activity = Callable[[Path, int], AbstractAsyncContextManager[Work]]

_KINDS = {
    "json_encode": "JSON encodes",
    "Encoder.encode": "JSON encodes",
    "json_decode": "JSON decodes",
    "Decoder.decode": "JSON decodes",
    "openssl_sha256": "hashes",
    "is_valid": "validations",
    "iter_errors": "validations",
    "lstat": "resolved names",
    "open": "opened files",
}
_LISTED = ("JSON decodes", "JSON encodes", "hashes", "validations")
_HELPERS = ("reyn.journal.canonical", "reyn.jsonschema.validation")


@asynccontextmanager
async def visit(root: Path, size: int) -> AsyncIterator[Work]:
    """Execute a run of so many visits."""
    workload.write_project(root)
    async with OSRuntime.open(root, model=workload.Answers(size), **workload.SETTINGS) as rt:

        async def work() -> None:
            assert (await rt.run("loop", workload.FIRST)).ok

        yield work


@asynccontextmanager
async def replayed_visit(root: Path, size: int) -> AsyncIterator[Work]:
    """Replay a run of so many visits."""
    workload.write_project(root)
    async with OSRuntime.open(root, model=workload.Answers(size), **workload.SETTINGS) as rt:
        assert (await rt.run("loop", workload.FIRST, run_id="recorded")).ok

        async def work() -> None:
            assert (await rt.runs.replay("recorded")).visits == size

        yield work


@asynccontextmanager
async def read_op(root: Path, size: int) -> AsyncIterator[Work]:
    """Execute so many ops of one turn that read a file."""
    async with _act(root, "read", size) as work:
        yield work


@asynccontextmanager
async def write_op(root: Path, size: int) -> AsyncIterator[Work]:
    """Execute so many ops of one turn that write a file."""
    async with _act(root, "write", size) as work:
        yield work


@asynccontextmanager
async def _act(root: Path, op: str, size: int) -> AsyncIterator[Work]:
    ops.write_project(root)
    async with OSRuntime.open(root, model=ops.ActingModel(op, 1, size)) as rt:

        async def work() -> None:
            assert (await rt.run("act", {})).ok

        yield work


@asynccontextmanager
async def function_call(root: Path, size: int) -> AsyncIterator[Work]:
    """Call an `@llm_function` so many times, one after the other."""
    async with OSRuntime.open(root, model=functions.Instant()) as rt:

        async def work() -> None:
            with use_runtime(rt):
                for number in range(size):
                    await functions.describe(f"city {number}")

        yield work


@asynccontextmanager
async def chat_turn(root: Path, size: int) -> AsyncIterator[Work]:
    """Hold so many turns of a conversation."""
    chats.write_project(root)
    async with OSRuntime.open(root, model=chats.Clerk(), trust=True) as rt, rt.chat("clerk") as chat:

        async def work() -> None:
            for _ in range(size):
                await chat.say(chats.TEXT)

        yield work


ACTIVITIES: dict[str, Activity] = {
    "visit": visit,
    "replayed visit": replayed_visit,
    "read op": read_op,
    "write op": write_op,
    "function call": function_call,
    "chat turn": chat_turn,
}


def in_memory() -> str | None:
    """Return a folder in memory, if the machine has one: system calls on a disk are not the subject."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def count(name: str) -> Costs:
    """Return the exact costs of one activity, by kind."""
    return count_of(ACTIVITIES[name])


def count_of(activity: Activity) -> Costs:
    """Return the exact costs of an activity, by kind."""
    return _by_kind(places(activity))


def count_late(activity: Activity) -> Costs:
    """Return the costs of an activity late in a run, by kind; not the pages, which depend on checkpoints."""
    found = places(activity, LATE, rounds=1)
    return _by_kind({(kind, place): value for (kind, place), value in found.items() if kind != "pages"})


def _by_kind(places: dict[tuple[str, str], float]) -> Costs:
    found: Costs = {}
    for (kind, _), value in places.items():
        found[kind] = round(found.get(kind, 0.0) + value, 2)
    return dict(sorted(found.items()))


def places(
    activity: Activity, sizes: tuple[int, int] = (SMALL, LARGE), rounds: int = _COUNT_ROUNDS
) -> dict[tuple[str, str], float]:
    """Return the exact costs of one activity, by kind and the function that does the work.

    They are the difference between two sizes, the least of a few rounds. Rounds differ only in what depends on time,
    such as reading the inbox of a run that waits.
    """
    found, (first, last) = [], sizes
    for _ in range(rounds):
        small, large = (asyncio.run(_counted(activity, size)) for size in sizes)
        found.append({key: (large[key] - small[key]) / (last - first) for key in large})
    return {key: round(min(one.get(key, 0.0) for one in found), 2) for key in found[0]}


def table() -> str:
    """Return a Markdown table of the places that decode, encode, hash and validate values."""
    found = {name: places(activity) for name, activity in ACTIVITIES.items()}
    rows = sorted({key for one in found.values() for key, value in one.items() if key[0] in _LISTED and round(value)})
    lines = ["| | by | " + " | ".join(found) + " |", "|---|---|" + "---|" * len(found)]
    for kind, place in rows:
        cells = [f"{round(one.get((kind, place), 0)) or ''}" for one in found.values()]
        lines.append(f"| {kind} | `{place}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _kind(function: Any) -> str | None:
    """Return what a call of a built-in function counts as. Validators and connections can be of several classes."""
    if isinstance(getattr(function, "__self__", None), sqlite3.Connection | sqlite3.Cursor):
        return "SQL statements" if function.__name__ in ("execute", "executemany") else None
    return _KINDS.get(function.__qualname__) or _KINDS.get(function.__name__)


def _place(frame: Any) -> str:
    """Return the function that a call belongs to: not a helper that hashes or validates for others."""
    while frame.f_globals.get("__name__") in _HELPERS and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname.partition('.<locals>')[0]}"


def calls(activity: Activity) -> dict[str, float]:
    """Return the calls of functions of Reyn that one activity makes, by module and function.

    What is done once for all of them is not part of it.
    """

    def traced(size: int) -> Counter[str]:
        counts: Counter[str] = Counter()

        def profile(frame: Any, event: str, _: Any) -> None:
            if event == "call" and frame.f_globals.get("__name__", "").startswith("reyn."):
                counts[f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname.replace('.<locals>', '')}"] += 1

        asyncio.run(_profiled(activity, size, profile))
        return counts

    small, large = traced(SMALL), traced(LARGE)
    found = {name: round((large[name] - small[name]) / (LARGE - SMALL), 2) for name in sorted(large)}
    return {name: each for name, each in found.items() if each > 0}


async def _counted(activity: Activity, size: int) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":  # those of the standard library depend on its version
            counts["Python calls", ""] += frame.f_globals.get("__name__", "").startswith("reyn.")
        elif event == "c_call" and (kind := _kind(argument)) is not None:
            counts[kind, _place(frame)] += 1

    counts["pages", ""] = await _profiled(activity, size, profile)
    return counts


async def _profiled(activity: Activity, size: int, profile: Callable[[Any, str, Any], None]) -> int:
    """Profile an activity; return the number of pages that it writes to the database."""
    # A driver reads its inbox, lets other tasks work, and looks at files at intervals of time.
    still = SimpleNamespace(monotonic=lambda: 0.0)
    with (
        tempfile.TemporaryDirectory(prefix="reyn-units-", dir=in_memory()) as folder,
        mock.patch("reyn.kernel.world.inbox.time", still),
        mock.patch("reyn.journal.commits.time", still),
        mock.patch("reyn.documents.document.time", still),
    ):
        async with activity(Path(folder), size) as work:
            await work()  # everything is loaded and compiled
            log = Path(folder) / ".reyn" / "journal.db-wal"
            before = log.stat().st_size
            sys.setprofile(profile)
            try:
                await work()
            finally:
                sys.setprofile(None)
            return (log.stat().st_size - before) // _PAGE_BYTES


def measure(names: tuple[str, ...] = tuple(ACTIVITIES), rounds: int = _ROUNDS) -> Costs:
    """Return the CPU of activities in units, from many short measurements of each, alternated with the unit."""
    return asyncio.run(_measured(names, rounds))


async def _measured(names: tuple[str, ...], rounds: int) -> Costs:
    found: Costs = {}
    for name in names:
        size = _SIZES.get(name, _SIZE)
        with tempfile.TemporaryDirectory(prefix="reyn-units-", dir=in_memory()) as folder:
            async with ACTIVITIES[name](Path(folder), size) as work:
                await work()
                units, spent = [unit(size)], []
                gc.collect()
                gc.freeze()
                try:
                    for _ in range(rounds * _SIZE // size):
                        started = time.process_time()
                        await work()
                        spent.append((time.process_time() - started) / size)
                        units.append(unit(size))
                finally:
                    gc.unfreeze()
                found[name] = round(_in_units(spent, units), 2)
    return found


def _in_units(spent: Sequence[float], units: Sequence[float]) -> float:
    """Return a CPU time in units, from measurements with one of the unit before and after each.

    Other processes slow down neighbours alike, so that their ratio holds, but not the least of all measurements, which
    may come from different moments. The first quartile leaves out ratios in which only the activity was disturbed.
    """
    pairs = zip(spent, pairwise(units), strict=True)
    return quantiles([2 * time / (before + after) for time, (before, after) in pairs], n=4)[0]


def _call(depth: int) -> int:
    return depth and _call(depth - 1) + 1


def unit(loops: int = _SIZE) -> float:
    """Return the CPU seconds of one unit: JSON, a hash, a row in a database, and forty calls."""
    document = {
        "step": 1,
        "lines": [{"what": f"ingredient {number}, finely chopped", "grams": number * 2.5} for number in range(30)],
    }
    store = sqlite3.connect(":memory:")
    store.execute("create table rows (id integer primary key, content text)")
    started = time.process_time()
    for _ in range(loops):
        text = json.dumps(json.loads(json.dumps(document)), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        store.execute("insert into rows (content) values (?)", (digest + text,))
        _call(40)
    spent = (time.process_time() - started) / loops
    store.close()
    return spent


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.units", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"store the figures in {STORED.name}")
    parser.add_argument("--calls", choices=ACTIVITIES, help="print the functions that one activity calls, and stop")
    options = parser.parse_args()
    if options.calls:
        for name, each in calls(ACTIVITIES[options.calls]).items():
            print(f"{each:8.2f} {name}")
        return 0
    counts, units = {name: count(name) for name in ACTIVITIES}, measure()
    for name in ACTIVITIES:
        listed = ", ".join(f"{value:g} {kind}" for kind, value in counts[name].items())
        print(f"{name}: {units[name]:.2f} units; {listed}")
    if options.write:
        stored = json.loads(STORED.read_text()) if STORED.exists() else {"counts": {}, "units": {}}
        stored["counts"][python_version()], stored["units"][platform.machine()] = counts, units
        STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
        text = PAGE.read_text(encoding="utf-8")
        before, after = text[: text.index(BEGIN)], text[text.index(END) :]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
