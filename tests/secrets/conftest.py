from __future__ import annotations

import os
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail

from reyn.cli.app import run_app
from reyn.secrets.file import SecretsFile
from tests.cli.support import Output


class FakeKeyring(KeyringBackend):
    """A keyring in memory."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


KeyringBackend._classes.discard(FakeKeyring)  # nobody else shall find it


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No keyring, here and in other processes; no secrets in the environment; a home of our own."""
    monkeypatch.setattr("keyring.core._keyring_backend", fail.Keyring())
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    for variable in [name for name in os.environ if name.startswith("REYN_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def fake() -> FakeKeyring:
    """The keyring of this process is one that works."""
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
    """One command line; what it says, and its exit code."""

    def call(*words: str) -> Output:
        code = run_app(words)
        captured = capsys.readouterr()
        return Output(code, captured.out, captured.err)

    return call
