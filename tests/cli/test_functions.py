"""`reyn run module:function` and `reyn new function`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of a module that no other test imports."""
    return f"made_{abs(hash(request.node.nodeid)):x}"[:30]


@pytest.fixture(autouse=True)
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_new_function_runs_with_its_scripted_answers(reyn, name: str, tmp_path: Path):
    created = reyn("new", "function", name)
    assert created.code == 0
    assert f"next: reyn run {name}:{name} " in created.out
    model = f"scripted:{name}_answers.jsonl"
    found = reyn("run", f"{name}:{name}", '{"text": "The bridge is open again."}', "--model", model, "--json")
    assert found.json["artifact"]["data"] == {"text": "Bridge open again", "words": 5}
    assert reyn("runs").out.count(name) == 1
    assert reyn("replay", found.json["run_id"]).code == 0


def test_text_is_the_only_argument(reyn, name: str):
    reyn("new", "function", name)
    found = reyn("run", f"{name}:{name}", "Some text.", "--model", f"scripted:{name}_answers.jsonl", "--json")
    assert found.code == 0
    events = [json.loads(line) for line in reyn("events", found.json["run_id"], "--json").out.splitlines()]
    assert events


def test_a_run_id_continues_the_run_of_a_function(reyn, name: str):
    reyn("new", "function", name)
    command = ("run", f"{name}:{name}", "Text.", "--model", f"scripted:{name}_answers.jsonl", "--run-id", "k", "--json")
    assert reyn(*command).json == reyn(*command).json


@pytest.mark.parametrize(
    ("target", "argument", "code"),
    [
        ("{name}:missing", "{{}}", "RYN161"),
        ("{name}:count_words", "{{}}", "RYN161"),
        ("no_such_module:function", "{{}}", "RYN730"),
        ("broken:function", "{{}}", "RYN730"),
        ("{name}:{name}", "{{}}", "RYN201"),
        ("{name}:{name}", '{{"text": 5}}', "RYN201"),
        ("{name}:{name}", '{{"text": "x", "more": 1}}', "RYN201"),
    ],
)
def test_what_cannot_be_run_says_why(reyn, name: str, target: str, argument: str, code: str, tmp_path: Path):
    reyn("new", "function", name)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    found = reyn("run", target.format(name=name), argument.format(), "--model", f"scripted:{name}_answers.jsonl")
    assert found.code == 2
    assert code in found.err
    assert reyn("runs", "--json").json == []


@pytest.mark.parametrize("bad", ["Upper", "class", "a-b", "1st", "a.b", "end"])
def test_a_name_that_no_module_can_have_is_refused(reyn, bad: str, tmp_path: Path):
    found = reyn("new", "function", bad)
    assert found.code == 2
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_not_replaced(reyn, name: str, tmp_path: Path):
    (tmp_path / f"{name}.py").write_text("mine")
    assert reyn("new", "function", name).code == 2
    assert (tmp_path / f"{name}.py").read_text() == "mine"
