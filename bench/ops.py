"""What an op costs beside the system calls that it cannot do without, and how many commits it adds.

Runs of the same number of model calls, with one op a turn and with eleven: the difference is ten ops a turn. The
journal is in memory, so that the CPU is that of the kernel and the op; the commits are counted. The CPU inside the
system calls on files is measured in the same run and taken off.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from reyn import ModelReply, ModelRequest, OSRuntime
from reyn.journal import MemoryJournal

TEXT = "a line of a file that an op reads or writes\n" * 20


class Counting(MemoryJournal):
    appends = 0

    def append(self, *batch: Any, **more: Any) -> int:
        self.appends += 1
        return super().append(*batch, **more)


class Acting:
    """A model that acts so many times, each time with so many ops, and then finishes."""

    name = "bench"
    takes_time = False

    def __init__(self, op: str, turns: int, ops: int) -> None:
        self._texts = [
            json.dumps({"control_ir": [_op(op, turn * ops + number) for number in range(ops)]}) for turn in range(turns)
        ]
        reason = {"summary": "done"}
        control = {"type": "finish", "decision": "finish", "next_phase": None, "confidence": 1, "reason": reason}
        self._texts.append(json.dumps({"control": control, "artifact": {"type": "note", "data": {}}}))

    async def complete(self, request: ModelRequest) -> ModelReply:
        return ModelReply(self._texts[request.answered])


def _op(op: str, number: int) -> dict[str, Any]:
    if op == "read":
        return {"kind": "file", "op": "read", "path": "notes.txt"}
    return {"kind": "file", "op": "write", "path": f"workspace:{number % 7}.txt", "content": f"{number}\n{TEXT}"}


def write_project(root: Path) -> None:
    folder = root / "reyn" / "project" / "act"
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    (folder / "skill.md").write_text(
        "---\ntype: skill\nname: act\nentry: a\nfinal_output: note\ngraph:\n  a: [end]\n---\n"
    )
    (folder / "phases" / "a.md").write_text(
        "---\ntype: phase\nname: a\ninput: note\nallowed_ops: [file]\nmax_act_turns: 1000\n---\nWork.\n"
    )
    (folder / "artifacts" / "note.yaml").write_text('{"type": "object"}')
    (root / "notes.txt").write_text(TEXT)


class SystemCalls:
    """The CPU that is spent inside system calls on files, while it is entered."""

    NAMES = ("open", "close", "read", "write", "fsync", "rename", "unlink", "mkdir", "stat", "lstat", "fstat", "fchmod")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._kept = {name: getattr(os, name) for name in self.NAMES}

    def __enter__(self) -> Self:
        for name, call in self._kept.items():
            setattr(os, name, self._timed(call))
        return self

    def __exit__(self, *_: object) -> None:
        for name, call in self._kept.items():
            setattr(os, name, call)

    def _timed(self, call: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            started = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - started

        return timed

    def overhead(self) -> float:
        """What measuring itself cost: the calls that were made, of a function that does nothing."""
        probe = SystemCalls()
        nothing = probe._timed(lambda: None)
        started = time.process_time()
        for _ in range(self.calls):
            nothing()
        return time.process_time() - started - probe.seconds


class Cost(NamedTuple):
    """What one op adds, on the average."""

    around: float
    whole: float
    commits: float


async def cost(root: Path, op: str, turns: int) -> Cost:
    """The difference between runs with one op a turn and with eleven."""
    around, whole, commits = [], [], []
    for ops in (1, 11):
        journal = Counting()
        async with OSRuntime.open(root, model=Acting(op, turns, ops), journal=journal) as rt:
            with SystemCalls() as calls:
                started = time.process_time()
                result = await rt.run("act", {})
                spent = time.process_time() - started
        assert result.ok, result
        watching = calls.overhead()
        whole.append(spent - watching)
        around.append(spent - calls.seconds - watching)
        commits.append(journal.appends)
    return Cost(*((many - one) / (10 * turns) for one, many in (around, whole, commits)))
