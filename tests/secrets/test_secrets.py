"""Lookup, precedence and storage of secrets, with keyrings that work, fail or are missing."""

from __future__ import annotations

import sys
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import null
from keyring.backends.chainer import ChainerBackend
from keyring.errors import KeyringLocked

from reyn.config import Config
from reyn.config.load import load_config
from reyn.errors import SecretMissing, SecretNameInvalid, SecretStoreUnavailable, SecretValueInvalid
from reyn.secrets import (
    EnvironmentStore,
    FileStore,
    KeyringStore,
    MemoryStore,
    SecretEntry,
    Secrets,
    open_secrets,
)
from reyn.secrets.stores import SecretsFile
from tests.secrets.conftest import FakeKeyring

VALUE = "sk-test-0123456789"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


# -- lookup -------------------------------------------------------------------------


def test_a_secret_is_set_read_listed_and_removed():
    secrets = Secrets([MemoryStore()])
    assert secrets.set("TOKEN", VALUE).place == "memory"
    assert secrets.get("TOKEN") == VALUE
    assert secrets.names() == ["TOKEN"]
    assert secrets.remove("TOKEN") == ("memory",)
    assert secrets.names() == []


def test_the_hint_for_a_missing_secret_names_secret_and_variable():
    with pytest.raises(SecretMissing) as caught:
        Secrets([MemoryStore()]).get("TOKEN")
    assert "`TOKEN`" in caught.value.message
    assert "secret `TOKEN`" in caught.value.hint
    assert "REYN_SECRET_TOKEN" in caught.value.hint


def test_values_are_scrubbed_once_they_were_read_or_set():
    secrets = Secrets([MemoryStore({"TOKEN": VALUE, "OTHER": "other-value"})])
    text = f"Bearer {VALUE}, other-value"
    assert secrets.scrubber.scrub(text) == text
    secrets.get("TOKEN")
    assert secrets.scrubber.scrub(text) == "Bearer secret://TOKEN, other-value"
    secrets.set("NEW", "new-value")
    assert secrets.scrubber.scrub("new-value") == "secret://NEW"


def test_invalid_names_and_values_reach_no_store():
    store = MemoryStore()
    secrets = Secrets([store])
    for call in (lambda: secrets.set("lower", VALUE), lambda: secrets.get("lower"), lambda: secrets.remove("lower")):
        with pytest.raises(SecretNameInvalid):
            call()
    with pytest.raises(SecretValueInvalid):
        secrets.set("TOKEN", "short")
    assert store.names() == frozenset()


def test_a_variable_overrides_stores_unless_it_is_empty():
    environ = {"REYN_SECRET_TOKEN": "from-the-variable", "REYN_SECRET_EMPTY": "", "REYN_SECRET_low": "x" * 9}
    secrets = Secrets([MemoryStore({"TOKEN": VALUE, "EMPTY": VALUE})], EnvironmentStore(environ))
    assert secrets.get("TOKEN") == "from-the-variable"
    assert secrets.get("EMPTY") == VALUE
    assert secrets.entries() == [SecretEntry("EMPTY", "memory"), SecretEntry("TOKEN", "environment", ("memory",))]
    assert secrets.scrubber.scrub("from-the-variable") == "secret://TOKEN"


@pytest.mark.parametrize("value", ["short", "abcdef\udcff"])
def test_a_variable_with_an_invalid_value_is_rejected(value: str):
    with pytest.raises(SecretValueInvalid):
        Secrets([], EnvironmentStore({"REYN_SECRET_TOKEN": value})).get("TOKEN")


def test_a_secret_from_a_variable_cannot_be_removed():
    with pytest.raises(SecretMissing) as caught:
        Secrets([MemoryStore()], EnvironmentStore({"REYN_SECRET_TOKEN": VALUE})).remove("TOKEN")
    assert caught.value.hint == "Run: unset REYN_SECRET_TOKEN"
    with pytest.raises(SecretMissing, match="no secret `TOKEN`"):
        Secrets([MemoryStore()]).remove("TOKEN")


def test_configuration_ignores_the_variables_of_secrets(tmp_path: Path):
    assert load_config(tmp_path, environ={"REYN_SECRET_TOKEN": "{"}) == Config()


def test_without_a_store_nothing_can_be_set():
    secrets = Secrets([])
    assert secrets.place == "nowhere"
    with pytest.raises(SecretStoreUnavailable):
        secrets.set("TOKEN", VALUE)


def test_repr_contains_no_value(environ: dict[str, str], fake: FakeKeyring, file: SecretsFile):
    secrets = open_secrets(environ | {"REYN_SECRET_OTHER": VALUE})
    secrets.set("TOKEN", VALUE)
    secrets.get("OTHER")
    things = [
        secrets,
        secrets.scrubber,
        secrets.entries(),
        secrets.set("TOKEN", VALUE),
        KeyringStore(file),
        FileStore(file),
        MemoryStore({"TOKEN": VALUE}),
        EnvironmentStore({"REYN_SECRET_TOKEN": VALUE}),
    ]
    for thing in things:
        assert VALUE not in repr(thing) + str(thing)
    assert "TOKEN" in repr(things[-1])


# -- stores --------------------------------------------------------------------------------------


def test_without_a_keyring_the_file_is_used_and_the_reason_reported(environ: dict[str, str], path: Path):
    secrets = open_secrets(environ)
    result = secrets.set("TOKEN", VALUE)
    assert result.place == secrets.place == f"{path} (no keyring: `keyring` recommends no available backend)"
    assert open_secrets(environ).get("TOKEN") == VALUE
    assert open_secrets(environ).entries() == [SecretEntry("TOKEN", "file")]


def test_with_a_keyring_the_file_contains_only_the_name(environ: dict[str, str], path: Path, fake: FakeKeyring):
    secrets = open_secrets(environ)
    assert secrets.set("TOKEN", VALUE).place == secrets.place == f"the keyring ({fake.name})"
    assert fake.passwords == {("reyn", "TOKEN"): VALUE}
    assert "TOKEN" in path.read_text()
    assert VALUE not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    again = open_secrets(environ)
    assert (again.get("TOKEN"), again.entries()) == (VALUE, [SecretEntry("TOKEN", "keyring")])
    assert again.remove("TOKEN") == (f"the keyring ({fake.name})",)
    assert (fake.passwords, again.names()) == ({}, [])


def test_without_the_extra_the_file_is_used(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "the extra `secrets` is not installed" in open_secrets(environ).set("TOKEN", VALUE).place


class Plaintext(FakeKeyring):
    priority = 0.5


class ReadOnly(FakeKeyring):
    """A backend that cannot store, like those of package registries."""

    priority = 9

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


class Locked(FakeKeyring):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("the keyring is locked")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(f"cannot store {password}")


class Broken(FakeKeyring):
    @property
    def priority(self):
        raise RuntimeError("no bus")


for _cls in (Plaintext, ReadOnly, Locked, Broken):
    KeyringBackend._classes.discard(_cls)  # keep them out of keyring's discovery


@pytest.mark.parametrize("backend", [null.Keyring, Plaintext, Broken, ReadOnly])
def test_an_unsuitable_keyring_is_not_used(environ: dict[str, str], path: Path, backend):
    keyring.set_keyring(backend())
    secrets = open_secrets(environ)
    assert secrets.set("TOKEN", VALUE).place.startswith(f"{path} (no keyring: ")
    assert secrets.entries() == [SecretEntry("TOKEN", "file")]
    assert secrets.place.startswith(str(path))


def test_unsuitable_backends_of_a_chain_are_skipped(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    read_only, fake, plain = ReadOnly(), FakeKeyring(), Plaintext()
    monkeypatch.setattr(ChainerBackend, "backends", [read_only, fake, plain])
    keyring.set_keyring(ChainerBackend())
    secrets = open_secrets(environ)
    secrets.set("TOKEN", VALUE)
    assert (read_only.passwords, fake.passwords, plain.passwords) == ({}, {("reyn", "TOKEN"): VALUE}, {})
    assert secrets.get("TOKEN") == VALUE
    secrets.remove("TOKEN")
    assert fake.passwords == {}


def test_a_locked_keyring_is_an_error_without_fallback_to_the_file(environ: dict[str, str], fake: FakeKeyring):
    open_secrets(environ).set("TOKEN", VALUE)
    keyring.set_keyring(Locked())
    secrets = open_secrets(environ)
    for call in (lambda: secrets.get("TOKEN"), lambda: secrets.remove("TOKEN")):
        with pytest.raises(SecretStoreUnavailable, match="the keyring is locked"):
            call()
    for name in ("TOKEN", "OTHER"):
        with pytest.raises(SecretStoreUnavailable, match="KeyringLocked") as caught:
            secrets.set(name, "another-value")
        assert "another-value" not in caught.value.message
        assert caught.value.__cause__ is None
    assert secrets.entries() == [SecretEntry("TOKEN", "keyring")]


def test_a_secret_in_a_keyring_that_is_gone_is_not_reported_as_missing(
    environ: dict[str, str], path: Path, fake: FakeKeyring
):
    open_secrets(environ).set("TOKEN", VALUE)
    keyring.set_keyring(null.Keyring())
    secrets = open_secrets(environ)
    assert secrets.names() == ["TOKEN"]
    with pytest.raises(SecretStoreUnavailable, match="`TOKEN` is in the keyring, which is not usable"):
        secrets.get("TOKEN")
    result = secrets.set("TOKEN", "another-value")
    assert result.place.startswith(str(path))
    assert "the keyring is not usable" in result.removed[0]
    assert secrets.get("TOKEN") == "another-value"
    assert fake.passwords == {("reyn", "TOKEN"): VALUE}


def test_a_name_without_a_value_in_the_keyring_is_missing(environ: dict[str, str], fake: FakeKeyring):
    open_secrets(environ).set("TOKEN", VALUE)
    fake.passwords.clear()
    with pytest.raises(SecretMissing):
        open_secrets(environ).get("TOKEN")
    assert open_secrets(environ).remove("TOKEN")
    assert open_secrets(environ).names() == []


def test_setting_a_secret_again_moves_it_from_the_file_to_the_keyring(environ: dict[str, str], path: Path):
    open_secrets(environ).set("TOKEN", VALUE)
    open_secrets(environ).set("OTHER", "other-value")
    keyring.set_keyring(FakeKeyring())
    secrets = open_secrets(environ)
    assert secrets.get("TOKEN") == VALUE
    assert secrets.set("TOKEN", "another-value").removed == (str(path),)
    assert secrets.get("TOKEN") == "another-value"
    assert VALUE not in path.read_text()
    assert secrets.entries() == [SecretEntry("OTHER", "file"), SecretEntry("TOKEN", "keyring")]


def test_variables_and_listings_do_not_load_the_keyring(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    def fail() -> None:
        raise AssertionError("the keyring was loaded")

    monkeypatch.setattr(keyring, "get_keyring", fail)
    secrets = open_secrets(environ | {"REYN_SECRET_TOKEN": VALUE})
    assert secrets.get("TOKEN") == VALUE
    assert secrets.names() == ["TOKEN"]


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REYN_SECRET_TOKEN", VALUE)
    assert open_secrets().get("TOKEN") == VALUE


def test_without_xdg_config_home_the_home_folder_is_used(tmp_path: Path):
    open_secrets({}, tmp_path).set("TOKEN", VALUE)
    assert (tmp_path / ".config" / "reyn" / "secrets.json").is_file()


# -- handles ------------------------------------------------------------------------------------------


def test_a_handle_resolves_to_a_stored_value_or_to_a_variable():
    secrets = Secrets([MemoryStore({"TOKEN": VALUE})], EnvironmentStore({"OPENAI_API_KEY": "sk-from-a-variable"}))
    assert secrets.resolve("secret://TOKEN") == VALUE
    assert secrets.resolve("env://OPENAI_API_KEY") == "sk-from-a-variable"
    scrubbed = secrets.scrubber.scrub(f"{VALUE} sk-from-a-variable")
    assert scrubbed == "secret://TOKEN env://OPENAI_API_KEY"
    assert secrets.names() == ["TOKEN"]


def test_a_variable_is_read_when_its_handle_is_resolved():
    environ = {"KEY": "first-value"}
    secrets = Secrets([], EnvironmentStore(environ))
    assert secrets.resolve("env://KEY") == "first-value"
    environ["KEY"] = "second-value"
    assert secrets.resolve("env://KEY") == "second-value"
    assert secrets.scrubber.scrub("first-value, second-value") == "env://KEY, env://KEY"


@pytest.mark.parametrize("environ", [{}, {"MY_KEY": ""}])
def test_an_unset_variable_is_missing(environ: dict[str, str]):
    with pytest.raises(SecretMissing, match="the environment variable `MY_KEY` is not set") as caught:
        Secrets([], EnvironmentStore(environ)).resolve("env://MY_KEY")
    assert "secret://NAME" in caught.value.hint


def test_a_variable_whose_value_cannot_be_scrubbed_is_rejected():
    with pytest.raises(SecretValueInvalid, match="`env://MY_KEY` has fewer than 6"):
        Secrets([], EnvironmentStore({"MY_KEY": "12345"})).resolve("env://MY_KEY")


def test_text_that_is_not_a_handle_is_rejected_and_not_quoted():
    with pytest.raises(SecretNameInvalid) as caught:
        Secrets([]).resolve(VALUE)
    assert VALUE not in str(caught.value) + caught.value.hint
