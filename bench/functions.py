"""The cost of `@llm_function` calls, durable, with a model that answers at once."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reyn import ModelAnswer, ModelRequest, OSRuntime, llm_function
from reyn.functions import use_runtime
from reyn.journal.sqlite import SqliteJournal

_CONTROL = {
    "type": "finish",
    "decision": "finish",
    "next_phase": None,
    "confidence": 1,
    "reason": {"summary": "known"},
}
_ANSWER = json.dumps({"control": _CONTROL, "artifact": {"type": "result", "data": {"name": "Oslo", "people": 700_000}}})


@dataclass
class City:
    name: str
    people: int


@llm_function
async def describe(name: str) -> City:
    """Describe the city."""
    raise NotImplementedError


class Instant:
    """A model that answers at once."""

    name = "instant"
    takes_time = False

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(_ANSWER)


class _CountingJournal(SqliteJournal):
    """Counts commits."""

    commits = 0

    def append_many(self, batches: Any) -> Any:
        type(self).commits += 1
        return super().append_many(batches)


async def functions(count: int) -> dict[str, float]:
    """Measure calls one after the other, and together."""
    with tempfile.TemporaryDirectory(prefix="reyn-bench-") as folder:
        journal = _CountingJournal(Path(folder) / ".reyn")
        async with OSRuntime.open(folder, model=Instant(), journal=journal) as rt:
            with use_runtime(rt):
                assert (await describe("warm-up")).people == 700_000
                started = time.process_time()
                for number in range(count):
                    await describe(f"city {number}")
                single = (time.process_time() - started) / count
                before, started = _CountingJournal.commits, time.process_time()
                await asyncio.gather(*(describe(f"town {number}") for number in range(count)))
                together = (time.process_time() - started) / count
                commits = _CountingJournal.commits - before
        journal.close()
    return {"call_ms": single * 1000, "together_ms": together * 1000, "commits_per_call": commits / count}
