"""A driver polls the inbox between effects, and always reads it before the run stops and while it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.errors import ModelUnavailable
from reyn.journal import Cancel, MemoryJournal
from reyn.kernel.world.inbox import InboxPolling
from reyn.testing import ScriptedModel
from tests.support import finish, go, write_skill

IN = {"text": "in"}


class Counting(MemoryJournal):
    reads = 0

    def drain(self, run_id: str, after: int = 0) -> list[Any]:
        self.reads += 1
        return super().drain(run_id, after)


class Calling(ScriptedModel):
    """Does something during one of its calls."""

    def __init__(self, answers: list[Any], at: int, work: Any) -> None:
        super().__init__(answers)
        self.calls, self._at, self._work = 0, at, work

    async def complete(self, request: Any) -> Any:
        self.calls += 1
        if self.calls == self._at:
            self._work()
        return await super().complete(request)


def opened(root: Path, model: Any, journal: MemoryJournal) -> SyncRuntime:
    rt = SyncRuntime.open(root, model=model, journal=journal)
    rt.async_form.services.polling = InboxPolling(seconds=1e9)
    return rt


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    write_skill(tmp_path, "loop", {"a": ["a", "end"]})
    return tmp_path


def test_between_effects_the_inbox_is_read_once_per_interval(loop: Path):
    reads = []
    for visits in (2, 12):
        journal = Counting()
        with opened(loop, ScriptedModel([*(go("a", str(n)) for n in range(visits)), finish()]), journal) as rt:
            assert rt.run("loop", IN, run_id="k").ok
        reads.append(journal.reads)
    assert reads[0] == reads[1]


def test_a_message_from_this_process_is_read_before_the_next_effect(loop: Path):
    model = Calling([go("a")] * 5, 2, lambda: rt.cancel("k", "enough"))
    with opened(loop, model, MemoryJournal()) as rt:
        assert rt.run("loop", IN, run_id="k").status == "cancelled"
    assert model.calls == 2


def test_a_message_from_another_process_is_read_before_the_run_stops(loop: Path):
    def fail() -> None:
        journal.post("k", Cancel("enough"))
        raise ModelUnavailable("down")

    journal = MemoryJournal()
    model = Calling([go("a")] * 5, 3, fail)
    with opened(loop, model, journal) as rt:
        assert rt.run("loop", IN, run_id="k").status == "cancelled"
        kinds = [event.kind for event in rt.runs.events("k")]
    assert kinds[-2:] == ["run_failed", "run_cancelled"]
    assert "run_resumed" not in kinds


def test_a_resumed_run_reads_its_inbox_first(loop: Path):
    journal = MemoryJournal()

    class Down(ScriptedModel):
        async def complete(self, request: Any) -> Any:
            raise ModelUnavailable("down")

    with opened(loop, Down([]), journal) as rt:
        assert rt.run("loop", IN, run_id="k").status == "failed"
        journal.post("k", Cancel("enough"))
        rt.async_form.services.polling.is_due("k")  # starts the interval
        assert rt.resume("k", retry=True).status == "cancelled"
