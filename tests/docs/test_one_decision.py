"""The table of the page on one decision is compared with a trace of a run.

The table must list exactly the public functions of its modules that the answer passes through, in the order of the
trace. Only the helpers in `OMITTED` are left out.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from reyn import OSRuntime, SyncRuntime
from reyn.testing import ScriptedModel
from tests.support import finish, go, two_phases

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "one-decision.md"
MODEL = "reyn.models.scripted.ScriptedModel.complete"
WAITING = 3
"""The first calls of the page are waiting for the model: they have begun before it answers."""

OMITTED = {
    "reyn.kernel.world.live.LiveWorld.now": "reads the clock",
    "reyn.kernel.world.live.LiveWorld.external_events": "reads the inbox before the next effect",
    "reyn.kernel.world.inbox.InboxPolling.is_due": "reads the inbox before the next effect",
    "reyn.journal.sqlite.SqliteJournal.drain": "reads the inbox before the next effect",
    "reyn.kernel.core.tape.Tape.take_external": "reads recorded inbox messages",
    "reyn.kernel.core.tape.Tape.content": "looks up content",
    "reyn.kernel.core.tape.Tape.drop_content": "frees content of the last visit",
    "reyn.kernel.core.tape.Tape.pending": "looks for standing approvals to store",
    "reyn.kernel.visit.phase_executor.VisitProgress.draft": "builds the next prompt",
    "reyn.kernel.visit.phase_executor.VisitProgress.count_calls": "counts the next call",
    "reyn.kernel.visit.model_call.ask": "is part of the visit",
    "reyn.kernel.world.llm_call_recorder.LlmCallRecorder.request": "prepares the next call",
    "reyn.kernel.world.llm_call_recorder.LlmCallRecorder.begin": "prepares the next call",
}


class Trace(NamedTuple):
    waiting: list[str]
    """The functions that wait for the model when it is called, the innermost first."""
    calls: list[str]
    """The functions that begin or continue after the model was called, until the commit that stores its answer."""


def documented() -> list[str]:
    return re.findall(r"^\| \d+ \| `([\w.]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def module_of(name: str) -> str:
    return ".".join(part for part in name.split(".")[:-1] if not part[0].isupper())


def name_of(frame: Any) -> str:
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"


def traced(root: Path) -> Trace:
    waiting: list[str] = []
    calls: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event != "call" or not name_of(frame).startswith("reyn."):
            return
        if name_of(frame) == MODEL and not waiting:
            outer = frame.f_back
            while outer is not None:
                waiting.append(name_of(outer))
                outer = outer.f_back
            calls.clear()
        calls.append(name_of(frame))

    two_phases(root)
    runtime = OSRuntime.open(root, model=ScriptedModel([go("second"), finish()]))
    with asyncio.Runner() as runner, SyncRuntime(runtime, runner) as rt:  # in this thread, which is traced
        sys.setprofile(note)
        try:
            assert rt.run("pair", {"text": "in"}).ok
        finally:
            sys.setprofile(None)
    return Trace(waiting, calls[: calls.index("reyn.journal.sqlite.SqliteJournal.append") + 1])


def is_on_the_page(name: str, modules: set[str]) -> bool:
    is_public = not any(part.startswith(("_", "<")) for part in name.split("."))
    return is_public and module_of(name) in modules and name not in OMITTED


def test_the_table_lists_every_call_that_carries_the_answer_in_order(tmp_path: Path):
    path, trace = documented(), traced(tmp_path)
    modules = {module_of(name) for name in path}
    assert len(path) <= 12
    assert len(modules) <= 8
    assert [name for name in trace.waiting if name in path] == path[:WAITING]
    after = [name for name in trace.calls if is_on_the_page(name, modules)]
    assert list(dict.fromkeys(after)) == path[WAITING:]


def test_the_omitted_helpers_exist(tmp_path: Path):
    # The inbox is read at most every 20 ms, so `drain` need not be in a trace.
    assert set(OMITTED) - {"reyn.journal.sqlite.SqliteJournal.drain"} <= set(traced(tmp_path).calls)
