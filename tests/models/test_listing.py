"""`reyn models` and `reyn config` with a key from an environment variable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reyn.cli.app import run_app
from tests.models.calling import KEY
from tests.models.fake_server import FakeServer, status, whole

pytest.importorskip("openai")
pytestmark = pytest.mark.sockets


@pytest.mark.parametrize(
    ("behavior", "is_reachable"),
    [
        (whole("application/json", b'{"data": [{"id": "m"}]}'), True),
        (status(401, lambda request: f"bad key {request.key}"), False),
    ],
)
def test_the_value_of_a_key_is_never_printed(
    tmp_path: Path,
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    behavior,
    is_reachable: bool,
):
    monkeypatch.setenv("MY_PROVIDER_KEY", KEY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    settings = f"{{model: openai:m, base_url: '{server.url}', key: env://MY_PROVIDER_KEY}}"
    (tmp_path / "reyn.yaml").write_text(f"model: far\nmodels: {{far: {settings}}}\n")
    server.then(behavior)
    for command in (("models",), ("models", "--json"), ("config", "explain"), ("config", "explain", "--json")):
        assert run_app(command) == 0
        output = "".join(capsys.readouterr())
        assert "env://MY_PROVIDER_KEY" in output
        assert KEY not in output
        if command == ("models", "--json"):
            assert json.loads(output)[0]["is_reachable"] == is_reachable
    assert {request.key for request in server.requests} == {KEY}


def test_a_missing_key_is_listed_with_the_setting_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reyn.yaml").write_text("model: standard\nmodels: {standard: {model: openai:m}}\n")
    assert run_app(("models", "--json")) == 0
    model = json.loads(capsys.readouterr().out)[0]
    assert model["why"] == (
        "no API key for model `standard`. "
        "`OPENAI_API_KEY` is set: add `key: env://OPENAI_API_KEY` to `models.standard` in reyn.yaml."
    )
