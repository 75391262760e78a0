"""Listings send no key; runs send a key to allowed origins only."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from reyn.cli.app import run_app
from tests.models.calling import KEY
from tests.models.fake_server import Connection, FakeServer, Request, good, silence, status
from tests.support import finish, go, two_phases

pytest.importorskip("openai")
pytestmark = pytest.mark.sockets


def configure(root: Path, server: FakeServer, key: str = "env://MY_PROVIDER_KEY") -> None:
    settings = f"{{model: openai:m, base_url: '{server.url}', key: {key}}}"
    (root / "reyn.yaml").write_text(f"model: far\nmodels: {{far: {settings}}}\n")


@pytest.fixture
def cloned(tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's project whose server asks for the user's key."""
    monkeypatch.setenv("MY_PROVIDER_KEY", KEY)
    monkeypatch.setenv("REYN_SECRET_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    root = tmp_path / "cloned"
    two_phases(root)
    configure(root, server)
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize("is_trusted", [False, True])
def test_listing_sends_nothing_and_prints_no_value(
    cloned: Path, server: FakeServer, capsys: pytest.CaptureFixture[str], is_trusted: bool
):
    if is_trusted:
        assert run_app(("trust", "--yes")) == 0
    for command in (("models",), ("models", "--json"), ("config", "explain"), ("doctor",), ("trust", "--json")):
        capsys.readouterr()
        assert run_app(command) == 0
        output = "".join(capsys.readouterr())
        assert KEY not in output
        if command == ("models", "--json"):
            [far] = [model for model in json.loads(output) if "model" in model["names"]]
            assert far["is_available"] == is_trusted
            assert ("Trust the project" in far["why"]) != is_trusted
    assert server.requests == []


@pytest.mark.parametrize(
    "key", ["env://MY_PROVIDER_KEY", "secret://OPENAI_API_KEY", "env://REYN_SECRET_OPENAI_API_KEY"]
)
def test_a_cloned_project_does_not_get_the_key(
    cloned: Path, server: FakeServer, capsys: pytest.CaptureFixture[str], key: str
):
    configure(cloned, server, key)
    assert run_app(("run", "pair", '{"text": "x"}')) == 2
    output = capsys.readouterr().err
    assert f"needs trust: send {key} to {server.url.removesuffix('/v1')} (reyn.yaml:" in output
    assert "`reyn trust` lists what the project asks for" in output
    assert server.requests == []


def test_a_run_of_a_trusted_project_does_not_go_on_after_the_trust_is_revoked(
    cloned: Path, server: FakeServer, capsys: pytest.CaptureFixture[str]
):
    configure(cloned, server, key="null")
    assert run_app(("trust", "--yes")) == 0
    server.then(status(401, "no"))
    assert run_app(("run", "pair", '{"text": "x"}', "--run-id", "r")) == 1
    seen = len(server.requests)
    assert run_app(("trust", "--revoke")) == 0
    assert run_app(("resume", "r", "--retry")) == 2
    assert run_app(("rerun", "r")) == 2
    assert len(server.requests) == seen


def test_a_bound_secret_is_not_sent_elsewhere_even_by_a_trusted_project(
    cloned: Path, server: FakeServer, capsys: pytest.CaptureFixture[str]
):
    configure(cloned, server, "secret://OPENAI_API_KEY")
    assert run_app(("secret", "allow", "OPENAI_API_KEY", "https://api.openai.com")) == 0
    assert run_app(("trust", "--yes")) == 0
    origin = server.url.removesuffix("/v1")
    assert f"reyn secret allow OPENAI_API_KEY {origin}" in capsys.readouterr().out
    assert run_app(("run", "pair", '{"text": "x"}', "--run-id", "r")) == 1
    assert "(RYN311)" in capsys.readouterr().out
    assert server.requests == []
    assert run_app(("secret", "allow", "OPENAI_API_KEY", origin)) == 0
    server.then(good(go("second")), good(finish()))
    assert run_app(("resume", "r", "--retry")) == 0
    assert {request.key for request in server.requests} == {KEY}


def test_trust_sends_the_key_to_the_origin_that_was_shown_and_to_no_other(
    cloned: Path, server: FakeServer, capsys: pytest.CaptureFixture[str]
):
    assert run_app(("trust", "--yes")) == 0
    server.then(good(go("second")), good(finish()))
    assert run_app(("run", "pair", '{"text": "x"}')) == 0
    assert {request.key for request in server.requests} == {KEY}
    with FakeServer(silence) as other:
        configure(cloned, other)
        assert run_app(("run", "pair", '{"text": "x"}')) == 2
        assert other.requests == []
    assert "RYN523" in capsys.readouterr().err


def test_the_key_does_not_reach_the_logs_of_the_sdk(
    cloned: Path, server: FakeServer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    async def echo(asked: Request, line: Connection) -> None:
        await line.whole(400, "text/plain", asked.key.encode(), {"x-request-id": asked.key})

    assert run_app(("trust", "--yes")) == 0
    server.then(echo)
    with caplog.at_level(logging.DEBUG):
        assert run_app(("run", "pair", '{"text": "x"}')) == 1
    assert {request.key for request in server.requests} == {KEY}
    assert "x-request-id" in caplog.text  # the libraries do log headers
    assert KEY not in caplog.text
    assert KEY not in "".join(capsys.readouterr())


def test_a_missing_key_is_listed_with_the_setting_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reyn.yaml").write_text("model: standard\nmodels: {standard: {model: openai:m}}\n")
    assert run_app(("models", "--json")) == 0
    model = json.loads(capsys.readouterr().out)[0]
    assert model["why"] == (
        "no API key for model `standard`. "
        "`OPENAI_API_KEY` is set: add `key: env://OPENAI_API_KEY` to `models.standard` in reyn.yaml."
    )
