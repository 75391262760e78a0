"""The page on one decision lists what really happens: it is compared with a trace of a run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from reyn import SyncRuntime
from reyn.testing import ScriptedModel
from tests.support import finish, go, two_phases

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "one-decision.md"


def documented() -> list[str]:
    return re.findall(r"^\| \d+ \| `([\w.]+)` \|", PAGE.read_text(), re.MULTILINE)


def traced(root: Path) -> list[str]:
    """The functions that run from the first call of the model to the commit that stores its answer."""
    calls: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("reyn."):
            calls.append(f"{module}.{frame.f_code.co_qualname}")

    two_phases(root)
    with SyncRuntime.open(root, model=ScriptedModel([go("second"), finish()])) as rt:
        sys.setprofile(note)
        try:
            assert rt.run("pair", {"text": "in"}).ok
        finally:
            sys.setprofile(None)
    first = calls.index("reyn.models.scripted.ScriptedModel.complete")
    last = calls.index("reyn.journal.sqlite.SqliteJournal.append", first)
    return calls[first : last + 1]


def test_an_answer_reaches_the_journal_by_the_documented_path(tmp_path: Path):
    path = documented()
    assert len(path) <= 12
    assert len({name.rsplit(".", 2 if name.split(".")[-2][0].isupper() else 1)[0] for name in path}) <= 8
    # The first calls began before the model answered and continue after it; a trace shows a call when it begins.
    rest = iter(traced(tmp_path))
    for name in path[3:]:
        assert name in rest, f"{name} is not called at this point"
