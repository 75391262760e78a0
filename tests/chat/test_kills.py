"""A conversation that is killed at any port call loses no message and answers none twice.

The conversation has a message that arrives while the agent is busy, a sub-run and a background run.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.chat.services.snapshot_journal import read_messages
from reyn.journal import Say, decode, kinds
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.world.inbox import InboxPolling
from reyn.testing.crash import KILLED, Failpoints, in_child
from tests.chat.support import Agent, reply, run_skill, skills, start_skill
from tests.chat.test_conversations import reach
from tests.kernel.kill.conftest import arena  # noqa: F401 - a fixture
from tests.properties import ALL_CASES

MESSAGES = ("write a report", "draw a poster", "and a last word")
SHARES = 3
KILLS = 8 if ALL_CASES else 3
"""Kills per share."""


class Counted(Agent):
    """Counts its calls in a file, across all processes."""

    def __init__(self, calls: Path) -> None:
        super().__init__(finished=reply("It is ready."), report=start_skill("report"), poster=run_skill("poster"))
        self._calls = calls

    async def complete(self, request):
        answer = await super().complete(request)
        with self._calls.open("a") as file:
            file.write(f"{request.run_id} {request.call}\n")
        return answer


class Talk:
    """A project, and a user who says every message once."""

    def __init__(self, folder: Path) -> None:
        self.seed, self.root, self.calls = folder / "seed", folder / "project", folder / "calls"
        skills(self.seed, "report", "poster")

    def reset(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.seed, self.root)
        self.calls.write_text("")

    async def hold(self, points: Failpoints) -> None:
        """Say what has not been said yet, and wait until everything is answered and reported."""
        journal = points.wrap(SqliteJournal(self.root / ".reyn"), "journal")
        runtime = OSRuntime.open(self.root, journal=journal, model=points.wrap(Counted(self.calls), "model"))
        runtime.services.polling = InboxPolling(seconds=0, busy_seconds=3600)
        async with runtime as rt, rt.chat(run_id="c") as chat:
            said = self._said(rt)
            for text in MESSAGES:
                if text not in said:
                    chat.post(text)
            await reach(lambda: self._is_done(rt))

    def _said(self, rt: OSRuntime) -> set[str]:
        if not rt.runs.is_recorded("c"):
            return set()
        texts = {rt.runs.content(body.text).decode() for body in _bodies(rt) if isinstance(body, kinds.MessageQueued)}
        texts |= {
            message.text for message in read_messages(rt.runs.events("c"), rt.runs.content) if message.role == "user"
        }
        return texts | {
            one.payload.text for one in rt.services.journal.drain("c", self._taken(rt)) if isinstance(one.payload, Say)
        }

    def _taken(self, rt: OSRuntime) -> int:
        ids = (getattr(body, "message", None) for body in _bodies(rt))
        return max((one for one in ids if isinstance(one, int)), default=0)

    def _is_done(self, rt: OSRuntime) -> bool:
        if not rt.runs.is_recorded("c") or rt.runs.find("c").status != "waiting":
            return False
        messages = read_messages(rt.runs.events("c"), rt.runs.content)
        roles = Counter(message.role for message in messages)
        return (roles["user"], roles["run"], roles["agent"]) == (len(MESSAGES), 1, len(MESSAGES) + 1)

    def violations(self, kills: int) -> list[str]:
        """Return what is wrong after the end."""

        async def check() -> list[str]:
            async with OSRuntime.open(self.root, model=Agent()) as rt:
                wrong = []
                for row in rt.runs.all():
                    rt.runs.verify(row.run_id)
                    await rt.runs.replay(row.run_id)
                    if row.status != ("waiting" if row.run_id == "c" else "finished"):
                        wrong.append(f"{row.run_id} is {row.status}")
                if Counter(row.skill for row in rt.runs.all()) != {"agent:default": 1, "report": 1, "poster": 1}:
                    wrong.append(f"runs: {[row.run_id for row in rt.runs.all()]}")
                messages = read_messages(rt.runs.events("c"), rt.runs.content)
                said = [message.text for message in messages if message.role == "user"]
                if said != list(MESSAGES):
                    wrong.append(f"said: {said}")
                replies = Counter(message.number for message in messages if message.role == "agent")
                if set(replies.values()) != {1}:
                    wrong.append(f"replies: {replies}")
                repeated = sum(count - 1 for count in Counter(self.calls.read_text().splitlines()).values())
                if repeated > 2 * kills:  # the conversation and its background run may each lose one answer
                    wrong.append(f"{repeated} calls were repeated")
                return wrong

        return asyncio.run(check())


def _bodies(rt: OSRuntime):
    return (decode(event) for event in rt.runs.events("c"))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_kill_at_any_point_of_a_conversation_loses_nothing(arena: Path, share: int):  # noqa: F811 - the fixture
    talk = Talk(arena)
    talk.reset()
    points = Failpoints()
    asyncio.run(talk.hold(points))
    assert talk.violations(0) == []
    count = len(points.reached)
    assert count > 100
    step = max(SHARES, count // KILLS)
    killed = 0
    for number in range(1 + share * (step // SHARES), count + 1, step):
        talk.reset()
        code = in_child(lambda number=number: asyncio.run(talk.hold(Failpoints(number))))
        assert code in (0, KILLED)
        killed += code == KILLED
        asyncio.run(asyncio.wait_for(talk.hold(Failpoints()), 60))
        assert talk.violations(1) == [], f"{number} {points.reached[number - 1]}"
    assert killed
