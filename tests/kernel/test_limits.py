"""Limits on time and tokens stop a run between two calls until they are raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.errors import LimitUnknown
from reyn.journal import MemoryJournal
from reyn.journal.kinds import Usage
from reyn.models import ModelAnswer
from reyn.testing import ScriptedModel
from tests.support import act, finish, go, question, write_skill

SECOND = 1_000_000


class World:
    """A clock that advances with every model call, and a model that reports tokens."""

    name = "scripted"

    def __init__(self, answers: list, seconds: float = 0, tokens: int = 0) -> None:
        self.time = 1000 * SECOND
        self._model = ScriptedModel(answers)
        self._seconds = seconds
        self._tokens = tokens

    def now(self) -> int:
        return self.time

    async def complete(self, request):
        self.time += int(self._seconds * SECOND)
        reply = await self._model.complete(request)
        return ModelAnswer(reply.text, Usage(self._tokens, 0))


def open_at(root: Path, world: World, journal, **limits) -> SyncRuntime:
    return SyncRuntime.open(root, model=world, clock=world, journal=journal, limits=limits)


@pytest.mark.parametrize(
    ("name", "value", "world", "expected"),
    [
        ("tokens", 250, {"tokens": 100}, "300 tokens used; `tokens` is 250"),
        ("run_seconds", 25, {"seconds": 10}, "30 seconds spent in the run; `run_seconds` is 25"),
    ],
)
def test_a_limit_stops_the_run_before_the_next_call_until_it_is_raised(
    tmp_path: Path, name: str, value: int, world: dict, expected: str
):
    write_skill(tmp_path, "spin", {"a": ["a", "end"]})
    answers = [go("a", "1"), go("a", "2"), go("a", "3"), go("a", "4"), finish()]
    journal, made = MemoryJournal(), World(answers, **world)
    with open_at(tmp_path, made, journal, **{name: value}) as rt:
        result = rt.run("spin", {"text": "in"}, run_id="k")
        assert (result.status, result.exit_code) == ("limited", 3)
        assert expected in result.reason
        with pytest.raises(LimitUnknown):
            rt.resume("k", raise_limits={name: value})
        assert rt.resume("k", raise_limits={name: 10_000}).ok
        assert rt.runs.replay("k").status == "finished"


def test_phase_seconds_limit_a_single_visit(tmp_path: Path):
    write_skill(tmp_path, "spin", {"a": ["a", "end"]}, ops={"a": "file"})
    glob = act({"kind": "file", "op": "glob", "pattern": "*"})
    world, journal = World([go("a"), go("a"), glob, glob, finish()], seconds=4), MemoryJournal()
    with open_at(tmp_path, world, journal, phase_seconds=7) as rt:
        result = rt.run("spin", {"text": "in"}, run_id="k")
        assert "8 seconds spent in the visit" in result.reason
        assert rt.resume("k", raise_limits={"phase_seconds": 60}).ok
        assert rt.runs.replay("k").status == "finished"


def test_time_spent_waiting_or_interrupted_does_not_count(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["a", "end"]}, ops={"a": "ask_user"})
    answers = [go("a"), act(question("ok?")), finish()]
    world, journal = World(answers, seconds=10), MemoryJournal()
    with open_at(tmp_path, world, journal, run_seconds=100) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").status == "waiting"
        world.time += 3600 * SECOND
        rt.answer("k", "2.1.1", "yes")
        world.time += 3600 * SECOND
        assert rt.resume("k").ok
        assert rt.runs.state("k").active == 30 * SECOND


def test_a_limit_that_is_not_set_cannot_be_raised(tmp_path: Path):
    write_skill(tmp_path, "spin", {"a": ["a", "end"]})
    world = World([go("a"), go("a"), finish()])
    with SyncRuntime.open(
        tmp_path, model=world, journal=MemoryJournal(), max_phase_visits=1, max_phase_retries=0
    ) as rt:
        rt.run("spin", {"text": "in"}, run_id="k")
        with pytest.raises(LimitUnknown, match="`tokens` is not set"):
            rt.resume("k", raise_limits={"tokens": 5})
        assert rt.resume("k", raise_limits={"max_phase_visits": None}).ok
