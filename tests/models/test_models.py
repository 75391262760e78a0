"""The scripted and the recorded model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from reyn import ModelRequest, OSRuntime, SyncRuntime
from reyn.errors import ModelUnknown, RunNotFound, ScriptExhausted, ScriptInvalid
from reyn.journal import MemoryJournal
from reyn.models.catalog import check_adapter
from reyn.models.roster import Roster
from reyn.models.scripted import ScriptedModel
from reyn.secrets import open_secrets
from reyn.testing import SteppingClock
from tests.support import finish, go, write_skill


def opened(name: str, root: Path, names: dict | None = None):
    return Roster(names or {}, root, MemoryJournal, open_secrets).open(name)


def ask(model, answered: int, request_hash: str = "") -> str:
    request = ModelRequest((), {}, "r", f"{answered}.1", request_hash, answered)
    return asyncio.run(model.complete(request)).text


def test_a_script_is_read_line_by_line(tmp_path: Path):
    script = '{"a": 1}\r\n\n"raw\\ntext \u2028"\n'
    (tmp_path / "answers.jsonl").write_bytes(b"\xef\xbb\xbf" + script.encode())
    model = opened("scripted:answers.jsonl", tmp_path)
    assert model.name == "scripted:answers.jsonl"
    assert (ask(model, 0), ask(model, 1), ask(model, 0)) == ('{"a":1}', "raw\ntext \u2028", '{"a":1}')
    with pytest.raises(ScriptExhausted, match=r"has 2 answers; the run needs answer 3"):
        ask(model, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", ":1:2: not valid JSON: expecting property name"),
        (b'"a"\n[1]', ":2: an answer must be"),
        (b"\xff", "cannot read"),
        (b'{"a":' * 9_000, "not valid JSON: it is nested more than 500 deep"),
    ],
)
def test_an_invalid_script_is_rejected_with_its_line(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(ScriptInvalid, match=message):
        ScriptedModel.from_file(tmp_path / "a.jsonl", "x")
    with pytest.raises(ScriptInvalid, match="cannot read"):
        ScriptedModel.from_file(tmp_path / "missing.jsonl", "x")


def test_an_unknown_adapter_names_the_similar_one():
    with pytest.raises(ModelUnknown) as caught:
        check_adapter("opnai:gpt-4o")
    assert str(caught.value.hint).startswith("Did you mean `openai`? Set `model:`")


@pytest.mark.parametrize("name", ["", "gpt", "scripted", "scripted:", "recorded:"])
def test_a_name_without_an_adapter_is_an_error(tmp_path: Path, name: str):
    with pytest.raises(ModelUnknown):
        opened(name, tmp_path)


def test_a_configured_name_is_an_alias(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('"hi"')
    model = opened("light", tmp_path, {"light": "scripted:a.jsonl"})
    assert model.name == "scripted:a.jsonl"


def test_a_recorded_run_answers_only_its_own_requests(tmp_path: Path):
    write_skill(tmp_path, "spin", {"turn": ["turn", "end"]})
    journal = MemoryJournal()
    script = ["nonsense", go("turn", "same"), go("turn", "same"), finish()]

    async def main():
        async with OSRuntime.open(tmp_path, model=ScriptedModel(script), journal=journal, clock=SteppingClock()) as rt:
            first = await rt.run("spin", {"text": "in"}, run_id="first")
        async with OSRuntime.open(tmp_path, model="recorded:first", journal=journal) as rt:
            again = await rt.run("spin", {"text": "in"}, run_id="again")
            assert again.artifact == first.artifact
            changed = await rt.run("spin", {"text": "another"}, run_id="other")
            assert changed.status == "failed"
            assert "has no answer" in changed.reason

    asyncio.run(main())
    answers = [[e.data["text"] for e in journal.read(run) if e.kind == "llm_responded"] for run in ("first", "again")]
    assert answers[0] == answers[1]


def test_an_unknown_recording_is_an_error(tmp_path: Path):
    with pytest.raises(RunNotFound, match="no recorded run"):
        opened("recorded:unknown", tmp_path)


def test_a_skill_chooses_a_class_for_its_phases_and_a_phase_its_own(tmp_path: Path):
    write_skill(
        tmp_path,
        "s",
        {"a": ["b"], "b": ["end"]},
        skill_keys="model_class: strong\n",
        phase_keys={"b": "model_class: light\n"},
    )
    for name, answer in (("strong", go("b")), ("light", finish())):
        line = json.dumps(answer)
        (tmp_path / f"{name}.jsonl").write_text(f"{line}\n{line}\n")
    (tmp_path / "reyn.yaml").write_text(
        "model: standard\nmodels: {standard: scripted:none.jsonl, strong: scripted:strong.jsonl, "
        "light: scripted:light.jsonl}\n"
    )
    (tmp_path / "none.jsonl").write_text("")
    with SyncRuntime.open(tmp_path) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").status == "finished"
        asked = [event.data["model"] for event in rt.runs.events("k") if event.kind == "llm_requested"]
    assert asked == ["scripted:strong.jsonl", "scripted:light.jsonl"]
