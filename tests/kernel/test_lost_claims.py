"""A driver whose claim is lost between its last check and an effect, because a read waited for the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ClaimLost
from reyn.journal import MemoryJournal
from reyn.kernel.world.inbox import InboxPolling
from reyn.testing import ScriptedModel
from tests.chaos.cluster_worker import RingOp, Witness
from tests.support import act, finish, write_skill


class SlowReads(MemoryJournal):
    """A journal on a server. After `losing` is set, a read of the inbox takes longer than the lease."""

    is_remote = True

    def __init__(self, losing: str) -> None:
        super().__init__()
        self._losing = losing
        self.is_lost = False

    def peek(self, run_id: str, after: int = 0) -> Any:
        self.is_lost |= any(event.kind == self._losing for event in self.read(run_id))
        return super().peek(run_id, after)

    def check_claim(self, run_id: str) -> None:
        if self.is_lost:
            raise ClaimLost("lost")


def test_an_op_is_not_performed_if_the_claim_was_lost_after_its_intent_was_stored(tmp_path: Path):
    write_skill(tmp_path, "bell", {"ring": ["end"]}, ops={"ring": "ring"})
    witness, journal = Witness(tmp_path / "rings"), SlowReads("ring_started")
    (tmp_path / "rings").touch()

    async def scenario() -> None:
        model = ScriptedModel([act({"kind": "ring", "bell": 1}), finish("done")])
        async with OSRuntime.open(tmp_path, journal=journal, model=model, ops=[RingOp(witness)], trust=True) as rt:
            rt.services.polling = InboxPolling(seconds=0, busy_seconds=3600)  # it is read before every effect
            with pytest.raises(ClaimLost):
                await rt.run("bell", {"text": "in"}, run_id="r")
            assert journal.is_lost
            assert witness.lines() == []
            assert [event.kind for event in journal.read("r")][-1] == "ring_started"

    asyncio.run(scenario())
