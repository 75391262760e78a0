"""Runs of small skills that act, driven by scripted answers."""

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


class Watched:
    """A scripted model that keeps what it was asked."""

    def __init__(self, answers: list) -> None:
        self.name = "scripted"
        self.requests: list = []
        self._model = ScriptedModel(answers)

    async def complete(self, request):
        self.requests.append(request)
        return await self._model.complete(request)

    def shown(self, call: int) -> str:
        """The changing message of a call."""
        return self.requests[call].messages[1].text

    def stable(self, call: int) -> str:
        return self.requests[call].messages[0].text


class Project:
    """A project folder with a journal that outlives each runtime."""

    def __init__(self, root: Path, journal: Journal | None = None) -> None:
        self.root = root
        self.journal = journal or MemoryJournal()
        self.ids = CountingIds()
        self.clock = SteppingClock()
        self.model = Watched([])

    def open(self, answers: list, **options: Any) -> SyncRuntime:
        self.model = Watched(answers)
        return SyncRuntime.open(
            self.root, model=self.model, journal=self.journal, ids=self.ids, clock=self.clock, **options
        )

    def run(self, skill: str, answers: list, given: Any = None, *, run_id: str = "k", **options: Any) -> RunResult:
        with self.open(answers, **options) as rt:
            return rt.run(skill, IN if given is None else given, run_id=run_id)

    def resume(self, answers: list, *, run_id: str = "k", **how: Any) -> RunResult:
        """`answers` from the run's first on: a script knows no cursor."""
        with self.open(answers) as rt:
            return rt.resume(run_id, **how)

    def events(self, *wanted: str, run_id: str = "k") -> list[dict[str, Any]]:
        found = [event for event in self.journal.read(run_id) if not wanted or event.kind in wanted]
        return [event.data for event in found]

    def kinds(self, run_id: str = "k") -> list[str]:
        return [event.kind for event in self.journal.read(run_id)]

    def results(self, run_id: str = "k") -> list[dict[str, Any]]:
        """What the ops of a run gave, each checked against the schema of its form."""
        found = []
        for event in self.journal.read(run_id):
            if event.kind in ("file_completed", "ask_user_completed", "run_skill_completed", "permission_denied"):
                result = json.loads(self.journal.blob(event.data["result"]))
                form = VOCABULARY.form_of(result)
                assert form is not None
                wrong = compile_schema(form.result).first_error(result)
                assert wrong is None, (result, wrong)
                found.append(result)
        return found

    def is_sound(self, run_id: str = "k") -> bool:
        """Chain and content are whole, and the rules derive every event again."""
        self.results(run_id)
        with self.open([]) as rt:
            rt.verify(run_id)
            return rt.replay(run_id).events == len(self.kinds(run_id))
