"""A file that is replaced by a link between the plan of an op and its execution: the link is not followed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.testing import ScriptedModel
from tests.support import act, file, finish, write_skill

SECRET = "the content of a file outside"
OPS = [
    file("read", "output/sub/a.txt"),
    file("grep", "output/sub", pattern="."),
    file("write", "output/sub/a.txt", content="new"),
    file("edit", "output/sub/a.txt", old_string="old", new_string="new"),
    file("delete", "output/sub/a.txt"),
]


@pytest.mark.parametrize("swapped", ["output/sub", "output/sub/a.txt"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op["op"])
def test_a_link_that_appears_after_the_plan_is_not_followed(tmp_path: Path, op: dict[str, Any], swapped: str):
    root, outside = tmp_path / "project", tmp_path / "outside"
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "file"}, phase_keys={"a": "max_act_turns: 9\n"})
    for folder, text in ((root / "output/sub", "old"), (outside, SECRET)):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text(text)

    def swap(event: Any) -> None:
        if event.kind == "file_started":
            target = outside if swapped == "output/sub" else outside / "a.txt"
            (root / swapped).rename(root / "moved")
            (root / swapped).symlink_to(target)

    with SyncRuntime.open(root, model=ScriptedModel([act(op), finish()])) as rt:
        result = rt.run("s", {"text": "in"}, run_id="r", listener=swap)
        assert result.ok, result
        [outcome] = [
            json.loads(rt.runs.content(event.data["result"]))
            for event in rt.runs.events("r")
            if event.kind == "file_completed"
        ]
    assert SECRET not in json.dumps(outcome)
    assert outcome["status"] == "error" or outcome["count"] == 0
    assert [path.name for path in outside.iterdir()] == ["a.txt"]
    assert (outside / "a.txt").read_text() == SECRET
    assert (root / "moved").exists()
