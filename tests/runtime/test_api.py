"""Streams of events, and errors that carry actions instead of command lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reyn
from reyn import SyncRuntime
from reyn.testing import ScriptedModel
from tests.support import finish, go

IN = {"text": "in"}


def test_synchronous_code_can_stream_events(project: Path):
    with SyncRuntime.open(project, model=ScriptedModel([go("second"), finish("end")])) as rt:
        stream = rt.stream("pair", IN)
        with pytest.raises(reyn.ReynError, match="has not ended"):
            _ = stream.result
        seen = [event.kind for event in stream]
        assert stream.result.ok
        assert seen == [event.kind for event in rt.runs.events(stream.result.run_id)]


def test_a_stream_that_is_closed_early_leaves_a_run_that_can_be_resumed(project: Path):
    with SyncRuntime.open(project, model=ScriptedModel([go("second"), finish("end")])) as rt:
        stream = rt.stream("pair", IN, run_id="k")
        next(stream)
        stream.close()
        assert rt.runs.find("k").status in ("running", "finished")
        assert rt.resume("k").ok


def test_an_interrupt_without_a_run_does_nothing(project: Path):
    with SyncRuntime.open(project, model=ScriptedModel([])) as rt:
        assert not rt.interrupt()


def test_only_the_cli_renders_command_lines():
    verbs = "answer|cancel|events|export|fork|frame|replay|rerun|resume|run|show|undo|verify"
    made = re.compile(rf"reyn ({verbs}) \{{")
    package = Path(reyn.__file__).parent
    found = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] != "cli"
        for line in path.read_text().splitlines()
        if made.search(line)
    ]
    assert found == []
