"""Functions in a process that is killed: their runs continue, by the function itself or by a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.cli.app import run_app
from reyn.permissions.trust import load_project, store_decision
from tests.functions.support import act, finish, kinds, results, reyn

MODULE = '''
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from reyn import llm_function, tool


@dataclass
class Receipt:
    item: str
    price: int


def die(place: str) -> None:
    if os.environ.get("DIE_IN") == place:
        os.kill(os.getpid(), signal.SIGKILL)


@llm_function
def name_of(item: str) -> str:
    """Name the item."""


@tool(effect="idempotent")
def price_of(item: str) -> int:
    """Return the price of an item."""
    with open("calls.txt", "a") as file:
        file.write(item + "\\n")
    name = name_of(item)
    die("price_of")
    return len(name)


@tool
def charge(amount: int) -> str:
    """Charge the customer."""
    die("charge")
    return "charged"


@llm_function(toolkit=[price_of, charge])
def buy(item: str) -> Receipt:
    """Buy the item."""
'''
CONFIG = "model: scripted:answers.jsonl\ntools: [kiosk:price_of, kiosk:charge]\npermissions: {tool: allow}\n"
PLAIN_TEXT = {"value": "bread"}


@pytest.fixture
def kiosk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kiosk.py").write_text(MODULE)
    (tmp_path / "reyn.yaml").write_text(CONFIG)
    answers = [act("price_of", item="bread"), finish(PLAIN_TEXT), act("charge", amount=5)]
    answers.append(finish({"item": "bread", "price": 5}))
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    monkeypatch.chdir(tmp_path)
    store_decision(load_project(tmp_path.resolve()))
    return tmp_path


def call(folder: Path, place: str = "") -> subprocess.CompletedProcess[str]:
    code = "import kiosk; print(kiosk.buy.options(run_id='k')('bread'))"
    env = os.environ | {"DIE_IN": place, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, env=env)


def test_a_call_that_is_killed_in_a_tool_continues_with_the_same_call(kiosk: Path):
    assert call(kiosk, "price_of").returncode == -signal.SIGKILL
    again = call(kiosk)
    assert again.stdout == "Receipt(item='bread', price=5)\n", again.stderr
    with SyncRuntime.open(kiosk) as rt:
        assert results(rt, "k", "price_of")[0]["result"] == 5
        [child] = [row for row in rt.runs.all() if row.parent == "k"]
        assert kinds(rt, child.run_id).count("llm_responded") == 1  # the second attempt found the answer
        for run in ("k", child.run_id):
            assert rt.runs.replay(run).events == len(kinds(rt, run))
            rt.runs.verify(run)
    assert (kiosk / "calls.txt").read_text() == "bread\nbread\n"


def test_a_call_that_is_killed_in_a_tool_continues_with_a_command(kiosk: Path):
    assert call(kiosk, "price_of").returncode == -signal.SIGKILL
    assert "running (interrupted)" in reyn("runs").stdout
    resumed = reyn("resume", "k", "--json")
    assert json.loads(resumed.stdout)["artifact"]["data"] == {"item": "bread", "price": 5}, resumed.stderr
    assert call(kiosk).stdout == "Receipt(item='bread', price=5)\n"


def test_an_unsafe_tool_that_was_killed_asks_an_operator(kiosk: Path):
    assert call(kiosk, "charge").returncode == -signal.SIGKILL
    resumed = reyn("resume", "k", "--no-input", "--json")
    assert resumed.returncode == 4, resumed.stderr
    wait = json.loads(resumed.stdout)["question"]
    assert wait["reason"] == "unsafe"
    answered = reyn("answer", "k", wait["id"], "done", "--json")
    assert answered.returncode == 0, answered.stderr
    with SyncRuntime.open(kiosk) as rt:
        assert results(rt, "k", "charge")[0]["note"] == "the op took effect, as an operator confirmed"


def test_without_the_tools_in_the_configuration_no_module_is_imported(kiosk: Path):
    """The journal names the function's module; a command must not import it."""
    assert call(kiosk, "price_of").returncode == -signal.SIGKILL
    (kiosk / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    (kiosk / "kiosk.py").write_text("open('imported', 'w').close()\n")
    resumed = reyn("resume", "k")
    assert resumed.returncode == 7
    assert "RYN419" in resumed.stderr
    for command in ("show", "replay", "verify", "events"):
        assert run_app((command, "k")) == 0
    assert not (kiosk / "imported").exists()


INTERRUPTED = '''
import os
import signal
import threading
from pathlib import Path

from reyn import llm_function, tool


@tool(effect="pure", permission=None)
def ask() -> str:
    """Ask."""
    if not Path("interrupted").exists():
        Path("interrupted").touch()
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait()
    return "yes"


@llm_function(toolkit=[ask], llm_interface="scripted:answers.jsonl")
def agree() -> str:
    """Ask, then agree."""


print(agree.options(run_id="a")())
'''


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_interrupts_a_call_without_further_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(INTERRUPTED)
    answers = [act("ask"), finish({"value": "agreed"})]
    Path("answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    command = [sys.executable, "program.py"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "RuntimeError" not in found.stderr
    assert subprocess.run(command, capture_output=True, text=True).stdout == "agreed\n"
