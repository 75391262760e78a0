"""Answers for functions, and a runtime whose model gives them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from reyn import OSRuntime, SyncRuntime
from reyn.models import ModelAnswer
from reyn.testing import CountingIds, MemoryJournal, SteppingClock


def finish(data: Any) -> dict[str, Any]:
    """The answer of a model that finishes with the data of a result."""
    return {
        "control": {
            "type": "finish",
            "decision": "finish",
            "next_phase": None,
            "confidence": 1,
            "reason": {"summary": "done"},
        },
        "artifact": {"type": "result", "data": data},
    }


def value(data: Any) -> dict[str, Any]:
    """The answer with a value that is not an object."""
    return finish({"value": data})


def act(kind: str, **args: Any) -> dict[str, Any]:
    """The answer of a model that calls a tool."""
    return {"control_ir": [{"kind": kind, **args}]}


class Answers:
    """A model that gives answers in turn, by the number of answers in the run, and keeps the requests."""

    takes_time = False

    def __init__(self, *answers: Any, name: str = "answers") -> None:
        self.name = name
        self.requests: list[Any] = []
        self._answers = answers

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        found = self._answers[min(request.answered, len(self._answers) - 1)]
        return ModelAnswer(found if isinstance(found, str) else json.dumps(found))

    def prompt(self, call: int = 0) -> str:
        return "\n".join(message.text for message in self.requests[call].messages)


def sync_runtime(root: Path, *answers: Any, **options: Any) -> SyncRuntime:
    return SyncRuntime.open(root, **_ports(answers), **options)


def async_runtime(root: Path, *answers: Any, **options: Any) -> OSRuntime:
    return OSRuntime.open(root, **_ports(answers), **options)


def _ports(answers: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "model": Answers(*answers),
        "journal": MemoryJournal(),
        "ids": CountingIds(),
        "clock": SteppingClock(),
        "trust": True,
    }


def kinds(rt: Any, run_id: str) -> list[str]:
    return [event.kind for event in rt.runs.events(run_id)]


def results(rt: Any, run_id: str, kind: str) -> list[dict[str, Any]]:
    """The results of the calls of a tool."""
    events = [event for event in rt.runs.events(run_id) if event.kind == f"{kind}_completed"]
    return [json.loads(rt.runs.content(event.data["result"])) for event in events]


def reyn(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the current folder, in a process of its own."""
    return subprocess.run([sys.executable, "-m", "reyn", *arguments], capture_output=True, text=True)
