from __future__ import annotations

import os
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail

from reyn.cli.app import run_app
from reyn.secrets.stores import SecretsFile
from tests.cli.support import Output


class FakeKeyring(KeyringBackend):
    """A keyring in memory."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.passwords: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.passwords.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.passwords[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.passwords[service, username]


KeyringBackend._classes.discard(FakeKeyring)  # keep it out of keyring's discovery


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the keyring, here and in subprocesses; remove secrets from the environment; use a temporary home."""
    monkeypatch.setattr("keyring.core._keyring_backend", fail.Keyring())
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    for variable in [name for name in os.environ if name.startswith("REYN_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def fake() -> FakeKeyring:
    """Install a working keyring in this process."""
    backend = FakeKeyring()
    keyring.set_keyring(backend)
    return backend


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "reyn" / "secrets.json"


@pytest.fixture
def file(path: Path) -> SecretsFile:
    return SecretsFile(path)


@pytest.fixture
def reyn(capsys: pytest.CaptureFixture[str]):
    """Run one command; return its output and exit code."""

    def call(*words: str) -> Output:
        code = run_app(words)
        captured = capsys.readouterr()
        return Output(code, captured.out, captured.err)

    return call
