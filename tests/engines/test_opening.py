"""The key `engine`: trust, what is printed of it, and values that name no engine."""

import json
from pathlib import Path

import pytest

from reyn.cli.app import run_app
from reyn.engines import Outbox, open_engine
from reyn.errors import EngineUnavailable
from reyn.testing import MemoryJournal

KEY = "hidden-key-of-temporal"
URL = f"temporal://127.0.0.1:1/ns?api_key={KEY}&tls=false"


def checks(capsys: pytest.CaptureFixture) -> dict:
    capsys.readouterr()
    run_app(("doctor", "--json"))
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_an_engine_needs_trust_and_its_key_is_never_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reyn.yaml").write_text(f"engine: {URL}\n")
    before = checks(capsys)
    assert before["engine"]["text"] == "outbox, in the journal"
    assert "engine: connect to temporal://127.0.0.1:1/ns" in before["trust"]["text"]
    printed = ""
    for words in (("trust", "--json"), ("trust", "--yes"), ("config",), ("config", "--json"), ("worker", "--once")):
        run_app(words)
        captured = capsys.readouterr()
        printed += captured.out + captured.err
    assert "temporal://127.0.0.1:1/ns" in printed
    assert "RYN444" in printed
    after = checks(capsys)
    assert after["engine"]["health"] == "broken"
    assert KEY not in printed + json.dumps([before, after])


def test_absurd_needs_a_journal_on_postgres(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REYN_ENGINE", "absurd")
    found = checks(capsys)["engine"]
    assert (found["health"], found["text"]) == ("broken", "the engine `absurd` needs a journal on PostgreSQL")


def test_a_secret_that_names_no_engine_is_refused_and_not_printed():
    values = {"secret://ENGINE": "no engine", "secret://OUTBOX": "outbox"}
    assert isinstance(open_engine("secret://OUTBOX", MemoryJournal(), "p", values.__getitem__), Outbox)
    with pytest.raises(EngineUnavailable) as caught:
        open_engine("secret://ENGINE", MemoryJournal(), "p", values.__getitem__)
    assert "no engine" not in str(caught.value)
