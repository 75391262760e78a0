"""Runs that continue histories have all content of them, whatever other runs of the journal have, or had."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.context import NormalizedMessageList
from reyn.context.histories import Histories
from reyn.context.messages import NormalizedMessage
from reyn.journal.kinds import HistoryPart
from reyn.journal.port import STATE
from reyn.journal.sqlite import SqliteJournal
from reyn.testing import ScriptedModel
from tests.kernel.test_conversations import write_talk
from tests.support import finish

TEXTS = ("Thanks", "more", "What now?")
SYSTEMS = (None, "Be short.", "Be kind.")


class Branches:
    """Conversations of two projects that continue each other's histories, while their runs are deleted.

    Each project is opened twice, so that deletions come from another connection, too. All texts are alike, so that
    unrelated conversations have the same content.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._ids = itertools.count()
        self._projects: list[list[SyncRuntime]] = []
        self._journals: list[SqliteJournal] = []
        for name in ("one", "two"):
            (root / name).mkdir()
            write_talk(root / name)
            model = ScriptedModel([finish("fine")] * 200)
            opened = [SqliteJournal(root / name / STATE) for _ in "12"]
            self._journals.append(opened[0])
            self._projects.append(
                [SyncRuntime.open(root / name, model=model, trust=True, journal=one) for one in opened]
            )
        self._histories = [NormalizedMessageList()]
        self._runs: dict[str, tuple[int, list[tuple[str, str]]]] = {}

    def step(self) -> None:
        number = self._random.randrange(2)
        rt = self._random.choice(self._projects[number])
        own = [run for run, (place, _) in self._runs.items() if place == number]
        if own and self._random.random() < 0.3:
            deleted = self._random.sample(own, self._random.randint(1, len(own)))
            rt.runs.delete(deleted)
            for run in deleted:
                del self._runs[run]
            return
        history = self._random.choice(self._histories[-8:])
        if self._random.random() < 0.2:
            system = self._random.choice(SYSTEMS)
            history = history.with_system(NormalizedMessage("system", system) if system else None)
        run = f"k{next(self._ids)}"
        assert rt.run("talk", self._random.choice(TEXTS), run_id=run, history=history).status == "finished"
        after = rt.runs.transcript(run)
        self._histories.append(after)
        self._runs[run] = number, [(message.role, message.text) for message in after]

    def check(self) -> None:
        for run, (number, expected) in self._runs.items():
            rt = self._projects[number][0]
            assert rt.runs.verify(run).events == rt.runs.replay(run).events
            assert [(message.role, message.text) for message in rt.runs.transcript(run)] == expected
            started = next(iter(rt.runs.events(run))).data
            parts = tuple(HistoryPart(**part) for part in started.get("history", ()))
            read = Histories().load(parts, self._journals[number].blob)
            listed = [pair for pair in expected if pair[0] != "system"]
            assert [(message.role, message.text) for message in read] == listed[: read.length]

    def close(self) -> None:
        for rt in itertools.chain.from_iterable(self._projects):
            rt.close()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(100))
def test_a_run_has_all_of_its_history(tmp_path: Path, seed: int):
    branches = Branches(tmp_path, seed)
    try:
        for _ in range(20):
            branches.step()
        branches.check()
    finally:
        branches.close()
