"""The hostile project in `examples/adversarial` achieves nothing, and its journal records each attempt.

The files, the journal and the output are compared here, from outside, and not only by the program itself.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from tests.fuzz.oracles import World
from tests.journal.stored import editing

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "adversarial" / "attack.py"


@pytest.fixture(scope="module")
def attack() -> dict[str, Any]:
    return runpy.run_path(str(PROGRAM))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, attack: dict[str, Any]) -> tuple[Path, str, list[str]]:
    """The folder with everything around the project after the attack, what was printed, and the paths that changed."""
    before, around = tmp_path_factory.mktemp("before"), tmp_path_factory.mktemp("after")
    world = _paths(before, attack["make_world"](before))
    environ = os.environ | {"TMPDIR": str(around)}
    result = subprocess.run(
        [sys.executable, str(PROGRAM), str(around)], capture_output=True, text=True, env=environ, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    changed = sorted({name for name, _ in world.items() ^ _paths(around, around / "project").items()})
    return around, result.stdout, changed


def _paths(around: Path, root: Path) -> dict[str, str]:
    """Every path around the project and in it, except for its state, with a digest; links without their folder."""
    return {name: what.replace(str(around), "") for name, what in World(around, root)._seen().items()}


def test_no_file_changed_but_the_users_own_and_those_in_output(attacked: tuple[Path, str, list[str]]):
    around, _, changed = attacked
    own = [name for name in changed if name.startswith("home/.config/reyn/")]
    assert {Path(name).name for name in own} <= {"journal.key", ".journal.lock"}
    rest = [name for name in changed if name not in own]
    assert rest
    assert all(name.startswith("project/output") for name in rest), rest
    written = {path.name for path in (around / "project" / "output").rglob("*") if path.is_file()}
    assert written == {"skill.md", "text.md", "key.txt"}  # plain text, in a folder that no program executes
    assert (around / "project" / "output" / "key.txt").read_text() == "secret://OPENAI_API_KEY"
    assert not Path("/reyn-attack").exists()


def test_each_attempt_is_in_the_journal(attacked: tuple[Path, str, list[str]], attack: dict[str, Any]):
    root = attacked[0] / "project"
    with SyncRuntime.open(root, trust=False) as rt:
        events = list(rt.runs.events("attack"))
        answers = [rt.runs.content(event.data["text"]).decode() for event in events if event.kind == "llm_responded"]
        recorded = attack["outcomes"]([{"kind": event.kind, "data": event.data} for event in events])
        rt.runs.verify("attack")
        assert rt.runs.replay("attack").status == "finished"
    assert len(answers) == len(attack["ATTEMPTS"])
    for attempt, answer, outcomes in zip(attack["ATTEMPTS"], answers, recorded, strict=True):
        expected = attempt.answer if isinstance(attempt.answer, str) else json.dumps(attempt.answer)
        if attack["KEY"] not in expected:
            assert answer in (expected, json.loads(json.dumps(expected))) or json.loads(answer) == attempt.answer
        if "rejected" in attempt.outcomes:
            assert outcomes == ["rejected"], attempt.name
        elif attempt.outcomes:
            assert len(outcomes) == len(attempt.answer["control_ir"]), attempt.name
            assert attempt.outcomes.issuperset(outcomes), attempt.name
        else:
            assert outcomes == [], attempt.name
    denials = [event.data for event in events if event.kind == "permission_denied"]
    assert denials
    assert all(denial["rule"] for denial in denials)


def test_no_secret_was_recorded(attacked: tuple[Path, str, list[str]], attack: dict[str, Any]):
    database = attacked[0] / "project" / ".reyn" / "journal.db"
    with editing(database) as db:
        dump = "\n".join(db.iterdump()).lower()
    for canary in (attack["KEY"], attack["OUTSIDE"], attack["HIDDEN"]):
        assert canary.encode().hex() not in dump
        assert canary not in dump
    for path in (attacked[0] / "project" / "output").rglob("*.*"):
        assert attack["KEY"] not in path.read_text()


def test_no_line_of_a_prompt_was_forged(attacked: tuple[Path, str, list[str]], attack: dict[str, Any]):
    with SyncRuntime.open(attacked[0] / "project", trust=False) as rt:
        frames = [event.seq for event in rt.runs.events("attack") if event.kind == "frame_built"]
        texts = [
            text for seq in frames for role, text in rt.runs.prompt_at("attack", seq) if role in ("system", "user")
        ]
    assert any("FORGED" in text for text in texts)
    assert not [line for text in texts for line in text.splitlines() if line.startswith(attack["FORGED"])]


def test_nothing_that_is_printed_steers_a_terminal(attacked: tuple[Path, str, list[str]], attack: dict[str, Any]):
    for words in (("show", "attack"), ("events", "attack"), ("runs",)):
        printed = attack["reyn"](attacked[0] / "project", *words).stdout
        assert printed
        assert not {"\x07", "\x9d", "\x00"} & set(printed)
        assert "\x1b]" not in printed
