"""Calls of MCP tools across crashes and processes: what may be repeated is, anything else asks the operator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reyn import RunResult
from reyn.runtime import SyncRuntime
from reyn.testing.crash import KILLED, in_child
from tests.mcp.test_mcp import SERVER
from tests.support import act, finish, write_skill

pytestmark = pytest.mark.sockets


class Desk:
    """A project that uses the server `desk` from several processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls = root / "calls"
        write_skill(
            root,
            "caller",
            {"a": ["end"]},
            ops={"a": "'mcp:desk/*'"},
            skill_keys="permissions: {mcp: [desk]}\n",
        )

    def configure(self, behavior: str, rule: str = "allow", *, client: int = 0, **server: Any) -> None:
        command = [sys.executable, str(SERVER), str(self.calls), behavior, str(client)]
        settings = {"mcp": {"servers": {"desk": {"command": command} | server}}, "permissions": {"mcp": rule}}
        (self.root / "reyn.yaml").write_text(json.dumps(settings))
        if not (self.root / "reyn/mcp/desk.json").exists():
            with self.open() as runtime:
                runtime.project.accept_mcp_tools(runtime.project.mcp_tools("desk"))

    def script(self, *ops: dict[str, Any]) -> None:
        answers = [act(*ops), finish()] if ops else [finish()]
        (self.root / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))

    def open(self) -> SyncRuntime:
        return SyncRuntime.open(self.root, model="scripted:answers.jsonl", trust=True)

    def run(self, run_id: str = "k") -> RunResult:
        with self.open() as runtime:
            return runtime.run("caller", {"text": "in"}, run_id=run_id)

    def called(self) -> list[str]:
        return self.calls.read_text().split() if self.calls.exists() else []

    def die_during_a_call(self, tool: str, behavior: str = "kill", **server: Any) -> None:
        """Execute a run in a process that the server kills when its tool is called."""
        self.configure("", **server)
        self.script({"kind": f"mcp:desk/{tool}"})

        def work() -> None:
            self.configure(behavior, client=os.getpid(), **server)
            self.run()

        assert in_child(work) == KILLED
        assert self.called() == [tool]
        self.configure("", **server)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def kinds(runtime: SyncRuntime, run_id: str) -> list[str]:
    return [event.kind for event in runtime.runs.events(run_id)]


@pytest.mark.parametrize("tool", ["look", "put"])
def test_a_repeatable_tool_of_a_trusted_server_is_called_again(desk: Desk, tool: str):
    """`look` is read-only, and `put` is idempotent."""
    desk.die_during_a_call(tool, trusted=True)
    with desk.open() as runtime:
        assert runtime.resume("k").ok
        assert runtime.runs.replay("k").status == "finished"
        found = kinds(runtime, "k")
    assert desk.called() == [tool, tool]
    assert found.count(f"mcp:desk/{tool}_started") == found.count(f"mcp:desk/{tool}_completed") == 1


@pytest.mark.parametrize(
    ("tool", "trusted", "resolution"), [("look", False, "again"), ("put", False, "done"), ("do", True, "failed")]
)
def test_any_other_tool_asks_the_operator(desk: Desk, tool: str, trusted: bool, resolution: str):
    desk.die_during_a_call(tool, trusted=trusted)
    with desk.open() as runtime:
        waiting = runtime.resume("k")
        assert (waiting.status, waiting.question.reason) == ("waiting", "unsafe")
        assert f"mcp:desk/{tool}" in waiting.question.message
        assert desk.called() == [tool]
        runtime.answer("k", waiting.question.id, resolution)
        assert runtime.resume("k").ok
        assert runtime.runs.replay("k").status == "finished"
        [completed] = [event for event in runtime.runs.events("k") if event.kind == f"mcp:desk/{tool}_completed"]
    assert desk.called() == [tool] * (2 if resolution == "again" else 1)
    assert completed.data["status"] == ("error" if resolution == "failed" else "ok")


def test_an_approval_in_another_process_continues_the_run(desk: Desk):
    desk.configure("", rule="ask")
    desk.script({"kind": "mcp:desk/do"})
    assert in_child(desk.run) == 0
    assert desk.called() == []

    def approve() -> None:
        with desk.open() as runtime:
            waiting = runtime.runs.result("k")
            assert (waiting.status, waiting.question.reason) == ("waiting", "approval")
            assert runtime.resume_answered(runtime.answer("k", waiting.question.id, "approve")).ok

    assert in_child(approve) == 0
    assert desk.called() == ["do"]
    with desk.open() as runtime:
        assert runtime.runs.result("k").status == "finished"
        assert runtime.runs.replay("k").status == "finished"


def test_an_approval_does_not_cover_a_definition_that_changed_meanwhile(desk: Desk):
    desk.configure("", rule="ask")
    desk.script({"kind": "mcp:desk/do"})
    with desk.open() as runtime:
        waiting = runtime.run("caller", {"text": "in"}, run_id="k")
        runtime.answer("k", waiting.question.id, "approve")
    desk.configure("changed", rule="ask")
    with desk.open() as runtime:
        assert runtime.resume("k").ok
        found = [
            json.loads(runtime.services.journal.blob(e.data["result"]))
            for e in runtime.runs.events("k")
            if "result" in e.data
        ]
    assert [one["status"] for one in found if one.get("kind") == "mcp:desk/do"] == ["denied"]
    assert desk.called() == []


def test_two_processes_have_a_server_each(desk: Desk):
    """Both use the project and its journal at the same time: each server waits until it has seen the other's call."""
    desk.configure("pid together")
    desk.script({"kind": "mcp:desk/do"}, {"kind": "mcp:desk/do", "args": {"again": 1}})
    command = [sys.executable, "-c", _RUN, str(desk.root)]
    processes = [subprocess.Popen([*command, f"run-{number}"]) for number in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    servers = []
    with desk.open() as runtime:
        for number in range(2):
            results = [
                json.loads(runtime.services.journal.blob(event.data["result"]))["content"]
                for event in runtime.runs.events(f"run-{number}")
                if event.kind == "mcp:desk/do_completed"
            ]
            assert results == [results[0]] * 2
            servers.append(int(results[0]))
            assert runtime.runs.replay(f"run-{number}").status == "finished"
    assert len(set(servers)) == 2
    for pid in servers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


_RUN = """
import sys
from reyn import SyncRuntime
with SyncRuntime.open(sys.argv[1], model="scripted:answers.jsonl", trust=True) as runtime:
    assert runtime.run("caller", {"text": "in"}, run_id=sys.argv[2]).ok
"""


def test_a_stubborn_server_ends_with_a_killed_process(desk: Desk):
    desk.die_during_a_call("do", "kill and stay")
    pid = int((desk.root / "calls.pid").read_text())
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)  # the reaper kills it
    raise AssertionError("the server outlives Reyn")
