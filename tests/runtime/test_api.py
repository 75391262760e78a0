"""Both runtimes have the same API, and errors carry actions instead of command lines."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import reyn
from reyn import OSRuntime, SyncRuntime
from reyn.testing import ScriptedModel
from tests.support import finish, go

IN = {"text": "in"}
RENAMED = {"aclose": "close"}
RETURNS = {"RunStream": "SyncRunStream", "Conversation": "SyncConversation"}


def public(cls: type) -> dict[str, object]:
    return {name: value for name, value in inspect.getmembers_static(cls) if not name.startswith("_")}


def methods(cls: type) -> dict[str, inspect.Signature]:
    found = {name: value for name, value in public(cls).items() if callable(value) or isinstance(value, classmethod)}
    return {name: inspect.signature(getattr(cls, name)) for name in found}


def test_both_runtimes_have_the_same_methods_parameters_and_return_types():
    expected = {RENAMED.get(name, name): signature for name, signature in methods(OSRuntime).items()}
    actual = methods(SyncRuntime)
    assert actual.pop("wait")  # executes coroutines of the other runtime
    assert actual.keys() == expected.keys()
    for name, signature in expected.items():
        returns = RETURNS.get(signature.return_annotation, signature.return_annotation)
        assert actual[name] == signature.replace(return_annotation=returns), name


def test_both_runtimes_have_the_same_attributes(project: Path):
    with SyncRuntime.open(project, model=ScriptedModel([])) as rt:
        names = {name for name in vars(rt.async_form) if not name.startswith("_")}
        names |= {name for name, value in public(OSRuntime).items() if not callable(value)} - {"open"}
        assert names == {name for name, value in public(SyncRuntime).items() if isinstance(value, property)}
        for name in names:
            assert getattr(rt, name) is getattr(rt.async_form, name), name


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
