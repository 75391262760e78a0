"""A conversation that is killed at random moments loses no message, reply, report or effect, and doubles none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reyn.testing.crash import Entry
from tests.chaos.conversations import RUN, KilledConversation, conversation
from tests.chaos.figures import Tally
from tests.chaos.random_kills import KilledRun, kill_at_random
from tests.kernel.kill.conftest import arena  # noqa: F401 - a fixture


@pytest.fixture
def talk(arena: Path) -> KilledConversation:  # noqa: F811 - the fixture
    scenario = conversation(arena / "talk")
    scenario.rehearse()
    return scenario


def test_random_kills_of_a_conversation_lose_and_double_nothing(talk: KilledConversation):
    chance = random.Random(20261116)
    for _ in range(2):
        run = kill_at_random(talk, chance)
        assert not run.is_stuck
        assert run.wrong == []


@pytest.mark.parametrize(
    ("entry", "count"),
    [
        (Entry("said", RUN, "", "never recorded"), "lost"),
        (Entry("changed", "", "t", "/p/output/report.txt 00"), None),
        (Entry("asked", RUN, "1.1"), "doubled"),
    ],
)
def test_a_witness_who_saw_something_else_is_a_violation(talk: KilledConversation, entry: Entry, count: str | None):
    assert talk.check(0) == []
    talk.ledger.write(entry)
    if entry.what == "changed":
        talk.ledger.write(entry)
    wrong = talk.check(0)
    assert wrong
    tally = Tally("s", "It does.")
    tally.add(KilledRun(0, is_stuck=False, wrong=wrong))
    if count is not None:
        assert getattr(tally, count) >= 1


def test_a_reply_that_is_missing_is_a_violation(talk: KilledConversation):
    from reyn import OSRuntime

    runtime = OSRuntime.open(talk.root)
    messages = talk._messages(runtime)
    runtime.services.journal.close()
    last = messages[-1]
    assert talk._message_violations(messages, []) == []
    assert talk._message_violations(messages[:-1], []) == [f"the reply to message {last.number} was lost"]
    assert talk._message_violations([*messages, last], []) == [f"the reply to message {last.number} took place 2 times"]
