"""The table of the page on one decision is compared with a trace of a run.

The table lists every call on the way of the answer: each one is made by the call before it on the page, by another one
of the table, or by a function that waited for the model. So no call between two rows is left out. The coroutines of a
visit that continue after the answer wait, too, but are not on the stack: `CONTINUED` names them.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from reyn import OSRuntime
from reyn.testing import ScriptedModel
from tests.support import finish, go, two_phases

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "one-decision.md"
MODEL = "reyn.models.scripted.ScriptedModel.complete"
COMMIT = "reyn.journal.stored.StoredJournal.append"
MAX_HOPS = 20
CONTINUED = {"reyn.kernel.visit.phase_executor._take_turns", "reyn.kernel.visit.turn.execute_single_llm_phase"}


class Trace(NamedTuple):
    waiting: set[str]
    """The functions that wait for the model when it is called; coroutines continue from there."""
    calls: list[tuple[str, str]]
    """The functions that are called after that with their callers, until the commit that stores the answer."""


def documented() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## A reply to a question")[0]
    return re.findall(r"^\| \d+ \| `([\w.]+)` \|", section, re.MULTILINE)


def name_of(frame: Any) -> str:
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"


def traced(root: Path) -> Trace:
    waiting: set[str] = set()
    calls: list[tuple[str, str]] = []

    def note(frame: Any, event: str, _: Any) -> None:
        name = name_of(frame)
        if event != "call" or not name.startswith("reyn."):
            return
        outer = frame.f_back
        callers = []
        while outer is not None:
            callers.append(name_of(outer))
            outer = outer.f_back
        if name == MODEL and not waiting:
            waiting.update(callers)
            calls.clear()
        calls.append((name, next((caller for caller in callers if caller.startswith("reyn.")), "")))

    async def run() -> None:
        async with OSRuntime.open(root, model=ScriptedModel([go("second"), finish()])) as rt:
            sys.setprofile(note)
            try:
                assert (await rt.run("pair", {"text": "in"})).ok
            finally:
                sys.setprofile(None)

    two_phases(root)
    asyncio.run(run())
    end = next(number for number, (name, _) in enumerate(calls) if name == COMMIT)
    return Trace(waiting, calls[: end + 1])


def test_the_table_lists_every_call_on_the_way_of_the_answer(tmp_path: Path):
    rows, trace = documented(), traced(tmp_path)
    assert len(rows) <= MAX_HOPS
    assert [name for name in dict.fromkeys(name for name, _ in trace.calls) if name in rows] == rows
    known = {*rows, *trace.waiting, *CONTINUED}
    for row in rows:
        assert any(caller in known for name, caller in trace.calls if name == row), row
