"""Edit the same files from several processes at once: an edit that reports `ok` is in the file, once, at the end.

`python -m tests.chaos.edits` makes 10,000 edits; it exits with 1 if one is lost or doubled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from reyn import ModelAnswer, ModelRequest, OSRuntime
from reyn.journal import MemoryJournal
from tests.support import act, file, finish, go, write_skill

EDITS_PER_TURN = 32
EDITS_PER_FILE = 500
"""Files stay small, so that a round costs little."""


class Editor:
    """A model that edits one file again and again."""

    name = "editor"
    takes_time = False

    def __init__(self, path: str, name: str, edits: int) -> None:
        marks = [f"<{name}.{number}>" for number in range(edits)]
        ops = [file("edit", path, old_string="END", new_string=f"{mark} END") for mark in marks]
        turns = [act(*ops[first : first + EDITS_PER_TURN]) for first in range(0, edits, EDITS_PER_TURN)]
        self._answers = [json.dumps(answer) for answer in (*turns, go("build"), finish())]

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(self._answers[request.answered])


class Counts(NamedTuple):
    """Edits that were made, refused because the file had changed, lost, and made twice."""

    made: int = 0
    refused: int = 0
    lost: int = 0
    doubled: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def write_project(root: Path) -> None:
    write_skill(
        root,
        "s",
        {"plan": ["build"], "build": ["end"]},
        ops={"plan": "file"},
        phase_keys={"plan": "max_act_turns: 1000\n"},
    )
    (root / "output").mkdir()


def edit_at_once(root: Path, round_number: int, processes: int, edits: int) -> Counts:
    """Let each process make so many edits of one file, and compare the file with what they report."""
    path = f"output/{round_number}.txt"
    (root / path).write_text("END")
    names = [f"{round_number}-{number}" for number in range(processes)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        reports = pool.starmap(edit, [(root, path, name, edits) for name in names], chunksize=1)
    text, counts = (root / path).read_text(), Counts()
    for name, statuses in zip(names, reports, strict=True):
        found = [(text.count(f"<{name}.{number}>"), status == "ok") for number, status in enumerate(statuses)]
        counts = counts.plus(
            Counts(
                made=sum(is_ok for _, is_ok in found),
                refused=sum(not is_ok for _, is_ok in found),
                lost=sum(is_ok and not count for count, is_ok in found),
                doubled=sum(count > is_ok for count, is_ok in found),
            )
        )
    return counts


def edit(root: Path, path: str, name: str, edits: int) -> list[str]:
    """Make edits in one run; return what each reported."""
    statuses: list[str] = []

    def listen(event: Any) -> None:
        if event.kind == "file_completed":
            statuses.append(event.data["status"])

    async def run() -> None:
        # Each process has a journal of its own: what is tested is the file.
        async with OSRuntime.open(root, model=Editor(path, name, edits), journal=MemoryJournal()) as runtime:
            result = await runtime.run("s", {"text": "in"}, run_id=f"r{name}", listener=listen)
            assert result.ok, result

    asyncio.run(run())
    return statuses


def edit_until(made: int, processes: int) -> Counts:
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_project(root)
        round_number = 0
        while counts.made < made:
            edits = min(EDITS_PER_FILE, max(1, (made - counts.made) // processes))
            counts = counts.plus(edit_at_once(root, round_number, processes, edits))
            round_number += 1
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.edits", description=__doc__)
    parser.add_argument("--edits", type=int, default=10_000, help="edits that report `ok`")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    counts = edit_until(options.edits, options.processes)
    if options.json:
        print(json.dumps(counts._asdict()))
    else:
        print(f"{counts.made} edits made, {counts.refused} refused, {counts.lost} lost, {counts.doubled} doubled")
    return 1 if counts.lost or counts.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
