"""A kill of `reyn chat` while two skills run in the background: `reyn resume --all` and `reyn chat` complete them.

The commands are real processes, and the model is a server on loopback whose answers the test controls.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.chat.services.snapshot_journal import read_messages
from tests.chat.support import recorded_replies, reply
from tests.models.fake_server import Connection, FakeServer, Request, chunk, event, good, silence
from tests.support import act, finish, write_skill

ASK = "preprocessor:\n  - ask_user: {question: Which colour?, into: data.colour}\n"


def start(skill: str) -> dict[str, Any]:
    return {"kind": "start_skill", "skill": skill, "input": {"text": "x"}}


def mark(name: str) -> dict[str, Any]:
    """Add a stroke to a file. An edit that is done twice adds two."""
    return act({"kind": "file", "op": "edit", "path": f"output/{name}.txt", "old_string": "end", "new_string": "| end"})


class Server:
    """Answers by phase. The second answer of `write` stops in the middle until `release` is called."""

    def __init__(self) -> None:
        self._is_held = True
        self.in_answer = 0

    def release(self) -> None:
        self._is_held = False

    async def __call__(self, request: Request, connection: Connection) -> None:
        text = json.dumps(self._answer(request))
        if self._is_held and "Do what write does." in str(request.body["messages"]) and "finish" in text:
            await connection.begin_stream()
            await connection.piece(event(chunk(text[: len(text) // 2])))
            self.in_answer += 1
            await silence(request, connection)
        await good(text)(request, connection)

    def _answer(self, request: Request) -> dict[str, Any]:
        messages, last = str(request.body["messages"]), request.body["messages"][-1]["content"]
        for name in ("draw", "write"):
            if f"Do what {name} does." in messages:
                return finish(f"{name} is done") if "replacements" in messages else mark(name)
        if "both of them" in last:
            return act(start("poster"), start("report"))
        if "has finished" in last:
            return reply("One of them is ready.")
        return reply("Both have started.")


def reyn(here: Path, *arguments: str) -> str:
    """Run a command that must succeed; return what it prints."""
    command = [sys.executable, "-m", "reyn", *arguments]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def chat(here: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "reyn", "chat", "--json", *arguments]
    with subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def say(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{text}\n")
    child.stdin.flush()


def read_until(child: subprocess.Popen[str], is_enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Read items until a condition holds; the test's timeout bounds it."""
    items: list[dict[str, Any]] = []
    while not is_enough(items):
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, f"the process ended after {items}"
        items.append(json.loads(line))
    return items


def has(*kinds: str) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda items: set(kinds) <= {item["item"] for item in items}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for skill, phase, keys in (("poster", "draw", ASK), ("report", "write", "")):
        write_skill(
            tmp_path, skill, {phase: ["end"]}, inputs={phase: "user_message"}, phase_keys={phase: keys},
            ops={phase: "file"}, skill_keys=f"description: Make a {skill}\n",
        )  # fmt: skip
        (tmp_path / "output").mkdir(exist_ok=True)
        (tmp_path / f"output/{phase}.txt").write_text("end")
    return tmp_path


@pytest.mark.slow
@pytest.mark.sockets
def test_two_skills_of_a_killed_chat_end_once_and_are_reported_once(here: Path):
    answers = Server()
    with FakeServer(answers) as server:
        model = f"{{model: openai:m, base_url: '{server.url}', answer_form: full}}"
        (here / "reyn.yaml").write_text(f"model: far\nmodels:\n  far: {model}\n")
        reyn(here, "trust", "--yes")
        with chat(here, "--run-id", "c") as child:
            say(child, "make both of them")
            read_until(child, has("reply", "question"))
            server.wait_for(lambda: answers.in_answer == 1)  # the other one is in the middle of its answer
            child.kill()
            assert child.wait() == -9
        assert (here / "output/write.txt").read_text() == "| end"
        answers.release()
        resumed = reyn(here, "resume", "--all")
        assert "finished" in resumed
        with chat(here, "--continue") as child:
            read_until(child, has("question"))
            say(child, "/answer blue")
            read_until(child, lambda items: [one["run"] for one in items if one["item"] == "reply"][-1:] == ["c.1.1.1"])
            assert child.stdin is not None
            child.stdin.close()
            assert child.wait() == 0
    assert {path.name: path.read_text() for path in (here / "output").iterdir()} == {
        "draw.txt": "| end",
        "write.txt": "| end",
    }
    with SyncRuntime.open(here) as rt:
        messages = read_messages(rt.runs.events("c"), rt.runs.content)
        assert sorted(one.role for one in messages) == ["agent"] * 3 + ["run"] * 2 + ["user"]
        for run in ("c.1.1.1", "c.1.1.2"):
            assert sum(f"`{run}` of the skill" in one.text for one in messages if one.role == "run") == 1
        statuses = {row.run_id: row.status for row in rt.runs.all()}
        assert statuses == {"c": "waiting", "c.1.1.1": "finished", "c.1.1.2": "finished"}
        assert recorded_replies(rt, "c.1.1.1") == ["blue"]
        for run in statuses:
            rt.runs.verify(run)
            rt.runs.replay(run)
