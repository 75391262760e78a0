"""A project whose runs are executed with scripted answers, and helpers to inspect what they recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reyn import RunResult, SyncRuntime
from reyn.journal import Journal, MemoryJournal
from reyn.jsonschema import compile_schema
from reyn.testing import CountingIds, ScriptedModel, SteppingClock
from tests.support import VOCABULARY

IN = {"text": "in"}


class RecordingModel:
    """A scripted model that records its requests. It answers no call without a durable reservation of its budget."""

    def __init__(self, answers: list, journal: Journal | None = None) -> None:
        self.name = "scripted"
        self.requests: list = []
        self._model = ScriptedModel(answers)
        self._journal = journal

    async def complete(self, request):
        self.requests.append(request)
        if self._journal is not None:
            row = self._journal.find(request.run_id)
            assert row is not None
            assert row.reserved is not None, f"call {request.call} has no reservation"
            assert row.reserved.call == request.call
        return await self._model.complete(request)

    def turn_message(self, call: int) -> str:
        """The part of a prompt that changes with every turn."""
        return self.requests[call].messages[1].text

    def system_message(self, call: int) -> str:
        """The static part of a prompt."""
        return self.requests[call].messages[0].text


class Project:
    """A project folder with a journal that outlives each runtime."""

    def __init__(self, root: Path, journal: Journal | None = None) -> None:
        self.root = root
        self.journal = journal or MemoryJournal()
        self.ids = CountingIds()
        self.clock = SteppingClock()
        self.model = RecordingModel([])

    def open(self, answers: list, **options: Any) -> SyncRuntime:
        self.model = RecordingModel(answers, self.journal)
        ports: dict[str, Any] = {"journal": self.journal, "ids": self.ids, "clock": self.clock}
        return SyncRuntime.open(self.root, **({"model": self.model, "trust": True} | ports | options))

    def run(self, skill: str, answers: list, value: Any = None, *, run_id: str = "k", **options: Any) -> RunResult:
        with self.open(answers, **options) as rt:
            return rt.run(skill, IN if value is None else value, run_id=run_id)

    def resume(self, answers: list, *, run_id: str = "k", **how: Any) -> RunResult:
        """Resume a run; `answers` starts with the first answer of the run, because a script has no cursor."""
        with self.open(answers) as rt:
            return rt.resume(run_id, **how)

    def events(self, *wanted: str, run_id: str = "k") -> list[dict[str, Any]]:
        found = [event for event in self.journal.read(run_id) if not wanted or event.kind in wanted]
        return [event.data for event in found]

    def kinds(self, run_id: str = "k") -> list[str]:
        return [event.kind for event in self.journal.read(run_id)]

    def results(self, run_id: str = "k") -> list[dict[str, Any]]:
        """Return the results of all ops, each validated against the schema of its form."""
        found = []
        for event in self.journal.read(run_id):
            kind = event.kind.removesuffix("_completed")
            if event.kind == "permission_denied" or (kind != event.kind and VOCABULARY.op(kind) is not None):
                result = json.loads(self.journal.blob(event.data["result"]))
                form = VOCABULARY.form_of(result)
                assert form is not None
                error = compile_schema(form.result).first_error(result)
                assert error is None, (result, error)
                found.append(result)
        return found

    def is_sound(self, run_id: str = "k") -> bool:
        """Whether the run verifies and replays completely."""
        self.results(run_id)
        with self.open([]) as rt:
            rt.runs.verify(run_id)
            return rt.runs.replay(run_id).events == len(self.kinds(run_id))
