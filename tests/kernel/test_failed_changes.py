"""A change that is in a file is recorded, whatever the system reports about it, and `undo` reverts it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from reyn import ModelAnswer, SyncRuntime
from reyn.ops import Call, Denied, Env, OpForm, OpSpec, Plan, Result
from reyn.vocabulary.schemas import arguments, result
from reyn.workspace import Change, changes
from tests.support import act, file, finish, write_skill


class FailingFsync:
    """`os`, whose `fsync` fails from a certain call on."""

    def __init__(self, first: int) -> None:
        self._left = first

    def fsync(self, handle: int) -> None:
        self._left -= 1
        if self._left <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(handle)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class Scripted:
    name = "scripted"
    takes_time = False

    def __init__(self, *answers: Any) -> None:
        self._answers = [json.dumps(answer) for answer in answers]

    async def complete(self, request: Any) -> ModelAnswer:
        return ModelAnswer(self._answers[request.answered])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_skill(tmp_path, "s", {"plan": ["end"]}, ops={"plan": "file"}, phase_keys={"plan": "max_act_turns: 9\n"})
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "a.txt").write_text("END\n")
    return tmp_path


def results(rt: SyncRuntime) -> list[dict[str, Any]]:
    return [
        json.loads(rt.runs.content(event.data["result"]))
        for event in rt.runs.events("r")
        if event.kind.endswith("_completed") and "call" in event.data and "bytes" in event.data
    ]


def test_an_edit_whose_folder_cannot_be_synced_is_recorded_and_undone(root: Path, monkeypatch: pytest.MonkeyPatch):
    edit = act(file("edit", "output/a.txt", old_string="END", new_string="one END"))
    with SyncRuntime.open(root, model=Scripted(edit, finish())) as rt:
        monkeypatch.setattr(changes, "os", FailingFsync(2))  # the first is of the file, the second of its folder
        assert rt.run("s", {"text": "in"}, run_id="r").ok
        monkeypatch.undo()
        [done] = results(rt)
        assert (done["status"], "system reported an error" in done["note"]) == ("ok", True)
        assert (root / "output/a.txt").read_text() == "one END\n"
        assert [event.kind for event in rt.runs.events("r")].count("workspace_updated") == 1
        assert rt.runs.undo("r").restored == ("output/a.txt",)
        assert rt.runs.replay("r").events
    assert (root / "output/a.txt").read_text() == "END\n"


def test_a_write_that_fails_leaves_no_folder(root: Path, monkeypatch: pytest.MonkeyPatch):
    write = act(file("write", "output/x/y/b.txt", content="b"))
    with SyncRuntime.open(root, model=Scripted(write, finish())) as rt:
        monkeypatch.setattr(changes, "os", FailingFsync(1))
        assert rt.run("s", {"text": "in"}, run_id="r").ok
        monkeypatch.undo()
        assert results(rt)[0]["status"] == "error"
    assert sorted(path.name for path in (root / "output").iterdir()) == ["a.txt"]


class WriteTwo:
    """Changes two files, the second of which is in conflict by the time it is applied."""

    spec = OpSpec(
        "two",
        "Write two files.",
        "reconcilable",
        forms=(
            OpForm(
                None,
                "Write two files.",
                arguments("two", None, {}),
                "reconcilable",
                result("two", None, {}),
                {"kind": "two"},
            ),
        ),
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        from reyn.journal import Blob

        new, other = Blob.of(b"new"), Blob.of(b"something else")
        both = (Change("output/b.txt", None, new.hash, None), Change("output/a.txt", other.hash, new.hash, 0o644))
        return Plan("own", both, call.ok(), (new, other))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        raise AssertionError


def test_of_several_changes_those_before_a_conflict_are_recorded_and_undone(root: Path):
    write_skill(root, "s", {"plan": ["end"]}, ops={"plan": "two"}, phase_keys={"plan": "max_act_turns: 9\n"})
    with SyncRuntime.open(root, model=Scripted(act({"kind": "two"}), finish()), ops=[WriteTwo()]) as rt:
        assert rt.run("s", {"text": "in"}, run_id="r").ok
        assert "changed by another program or run" in results(rt)[0]["error"]
        updated = [event.data["change"]["path"] for event in rt.runs.events("r") if event.kind == "workspace_updated"]
        assert updated == ["output/b.txt"]
        assert rt.runs.undo("r").restored == ("output/b.txt",)
        assert rt.runs.replay("r").events
    assert sorted(path.name for path in (root / "output").iterdir()) == ["a.txt"]
