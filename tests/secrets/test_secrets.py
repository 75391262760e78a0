"""Where a secret comes from, where it goes, and what keyrings do to it."""

from __future__ import annotations

import sys
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import null
from keyring.backends.chainer import ChainerBackend
from keyring.errors import KeyringLocked

from reyn.config import Config, load_config
from reyn.errors import SecretMissing, SecretNameInvalid, SecretStoreUnavailable, SecretValueInvalid
from reyn.secrets import (
    EnvironmentStore,
    FileStore,
    Held,
    KeyringStore,
    MemoryStore,
    Secrets,
    open_secrets,
)
from reyn.secrets.file import SecretsFile
from tests.secrets.conftest import FakeKeyring

VALUE = "sk-test-0123456789"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


# -- a name becomes its value -------------------------------------------------------------------------


def test_what_was_set_is_got_listed_and_removed():
    secrets = Secrets([MemoryStore()])
    assert secrets.set("TOKEN", VALUE).place == "memory"
    assert secrets.get("TOKEN") == VALUE
    assert secrets.names() == ["TOKEN"]
    assert secrets.remove("TOKEN") == ("memory",)
    assert secrets.names() == []


def test_a_missing_one_names_the_command_that_sets_it():
    with pytest.raises(SecretMissing) as caught:
        Secrets([MemoryStore()]).get("TOKEN")
    assert "`TOKEN`" in caught.value.message
    assert "reyn secret set TOKEN" in caught.value.hint
    assert "REYN_SECRET_TOKEN" in caught.value.hint


def test_only_what_was_read_is_scrubbed():
    secrets = Secrets([MemoryStore({"TOKEN": VALUE, "OTHER": "other-value"})])
    text = f"Bearer {VALUE}, other-value"
    assert secrets.scrubber.scrub(text) == text
    secrets.get("TOKEN")
    assert secrets.scrubber.scrub(text) == "Bearer secret://TOKEN, other-value"
    secrets.set("NEW", "new-value")
    assert secrets.scrubber.scrub("new-value") == "secret://NEW"


def test_names_and_values_that_do_not_do_reach_no_store():
    store = MemoryStore()
    secrets = Secrets([store])
    for call in (lambda: secrets.set("lower", VALUE), lambda: secrets.get("lower"), lambda: secrets.remove("lower")):
        with pytest.raises(SecretNameInvalid):
            call()
    with pytest.raises(SecretValueInvalid):
        secrets.set("TOKEN", "short")
    assert store.names() == frozenset()


def test_a_variable_wins_and_an_empty_one_does_not_count():
    environ = {"REYN_SECRET_TOKEN": "from-the-variable", "REYN_SECRET_EMPTY": "", "REYN_SECRET_low": "x" * 9}
    secrets = Secrets([MemoryStore({"TOKEN": VALUE, "EMPTY": VALUE})], EnvironmentStore(environ))
    assert secrets.get("TOKEN") == "from-the-variable"
    assert secrets.get("EMPTY") == VALUE
    assert secrets.held() == [Held("EMPTY", "memory"), Held("TOKEN", "environment", ("memory",))]
    assert secrets.scrubber.scrub("from-the-variable") == "secret://TOKEN"


@pytest.mark.parametrize("value", ["short", "abcdef\udcff"])
def test_a_variable_that_could_not_be_scrubbed_is_refused(value: str):
    with pytest.raises(SecretValueInvalid):
        Secrets([], EnvironmentStore({"REYN_SECRET_TOKEN": value})).get("TOKEN")


def test_what_comes_from_a_variable_cannot_be_removed():
    with pytest.raises(SecretMissing) as caught:
        Secrets([MemoryStore()], EnvironmentStore({"REYN_SECRET_TOKEN": VALUE})).remove("TOKEN")
    assert caught.value.hint == "Run: unset REYN_SECRET_TOKEN"
    with pytest.raises(SecretMissing, match="no secret `TOKEN`"):
        Secrets([MemoryStore()]).remove("TOKEN")


def test_the_configuration_passes_over_the_variables_of_secrets(tmp_path: Path):
    from reyn.config.load import SECRETS
    from reyn.secrets.stores import PREFIX

    assert SECRETS == PREFIX
    assert load_config(tmp_path, environ={"REYN_SECRET_TOKEN": "{"}) == Config()


def test_without_a_store_nothing_is_kept():
    secrets = Secrets([])
    assert secrets.place == "nowhere"
    with pytest.raises(SecretStoreUnavailable):
        secrets.set("TOKEN", VALUE)


def test_nobody_sees_a_value_by_looking(environ: dict[str, str], fake: FakeKeyring, file: SecretsFile):
    secrets = open_secrets(environ | {"REYN_SECRET_OTHER": VALUE})
    secrets.set("TOKEN", VALUE)
    secrets.get("OTHER")
    things = [
        secrets,
        secrets.scrubber,
        secrets.held(),
        secrets.set("TOKEN", VALUE),
        KeyringStore(file),
        FileStore(file),
        MemoryStore({"TOKEN": VALUE}),
        EnvironmentStore({"REYN_SECRET_TOKEN": VALUE}),
    ]
    for thing in things:
        assert VALUE not in repr(thing) + str(thing)
    assert "TOKEN" in repr(things[-1])


# -- which store --------------------------------------------------------------------------------------


def test_without_a_keyring_the_file_keeps_it_and_says_why(environ: dict[str, str], path: Path):
    secrets = open_secrets(environ)
    kept = secrets.set("TOKEN", VALUE)
    assert kept.place == secrets.place == f"{path} (no keyring: no backend that `keyring` recommends)"
    assert open_secrets(environ).get("TOKEN") == VALUE
    assert open_secrets(environ).held() == [Held("TOKEN", "file")]


def test_a_keyring_that_works_keeps_it_and_the_file_only_the_name(
    environ: dict[str, str], path: Path, fake: FakeKeyring
):
    secrets = open_secrets(environ)
    assert secrets.set("TOKEN", VALUE).place == secrets.place == f"the keyring ({fake.name})"
    assert fake.kept == {("reyn", "TOKEN"): VALUE}
    assert "TOKEN" in path.read_text()
    assert VALUE not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    again = open_secrets(environ)
    assert (again.get("TOKEN"), again.held()) == (VALUE, [Held("TOKEN", "keyring")])
    assert again.remove("TOKEN") == (f"the keyring ({fake.name})",)
    assert (fake.kept, again.names()) == ({}, [])


def test_without_the_extra_the_file_keeps_it(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "the extra `secrets` is not installed" in open_secrets(environ).set("TOKEN", VALUE).place


class Plaintext(FakeKeyring):
    priority = 0.5


class Lender(FakeKeyring):
    """Such as package registries bring: it has its own and stores nothing."""

    priority = 9

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


class Locked(FakeKeyring):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("the door is locked")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(f"cannot store {password}")


class Broken(FakeKeyring):
    @property
    def priority(self):
        raise RuntimeError("no bus")


for _cls in (Plaintext, Lender, Locked, Broken):
    KeyringBackend._classes.discard(_cls)  # nobody else shall find them


@pytest.mark.parametrize("backend", [null.Keyring, Plaintext, Broken, Lender])
def test_a_keyring_that_forgets_shows_breaks_or_only_lends_is_none(environ: dict[str, str], path: Path, backend):
    keyring.set_keyring(backend())
    secrets = open_secrets(environ)
    assert secrets.set("TOKEN", VALUE).place.startswith(f"{path} (no keyring: ")
    assert secrets.held() == [Held("TOKEN", "file")]
    assert secrets.place.startswith(str(path))


def test_of_several_keyrings_those_that_count_are_used(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    lender, fake, plain = Lender(), FakeKeyring(), Plaintext()
    monkeypatch.setattr(ChainerBackend, "backends", [lender, fake, plain])
    keyring.set_keyring(ChainerBackend())
    secrets = open_secrets(environ)
    secrets.set("TOKEN", VALUE)
    assert (lender.kept, fake.kept, plain.kept) == ({}, {("reyn", "TOKEN"): VALUE}, {})
    assert secrets.get("TOKEN") == VALUE
    secrets.remove("TOKEN")
    assert fake.kept == {}


def test_a_locked_keyring_is_an_error_and_the_file_does_not_take_its_place(environ: dict[str, str], fake: FakeKeyring):
    open_secrets(environ).set("TOKEN", VALUE)
    keyring.set_keyring(Locked())
    secrets = open_secrets(environ)
    for call in (lambda: secrets.get("TOKEN"), lambda: secrets.remove("TOKEN")):
        with pytest.raises(SecretStoreUnavailable, match="the door is locked"):
            call()
    for name in ("TOKEN", "OTHER"):
        with pytest.raises(SecretStoreUnavailable, match="KeyringLocked") as caught:
            secrets.set(name, "another-value")
        assert "another-value" not in caught.value.message
        assert caught.value.__cause__ is None
    assert secrets.held() == [Held("TOKEN", "keyring")]


def test_what_is_in_a_keyring_that_is_gone_is_not_taken_for_missing(
    environ: dict[str, str], path: Path, fake: FakeKeyring
):
    open_secrets(environ).set("TOKEN", VALUE)
    keyring.set_keyring(null.Keyring())
    secrets = open_secrets(environ)
    assert secrets.names() == ["TOKEN"]
    with pytest.raises(SecretStoreUnavailable, match="`TOKEN` is in the keyring, which cannot be used here"):
        secrets.get("TOKEN")
    kept = secrets.set("TOKEN", "another-value")
    assert kept.place.startswith(str(path))
    assert "the keyring itself cannot be used here" in kept.removed[0]
    assert secrets.get("TOKEN") == "another-value"
    assert fake.kept == {("reyn", "TOKEN"): VALUE}


def test_a_name_whose_value_the_keyring_lost_is_missing(environ: dict[str, str], fake: FakeKeyring):
    open_secrets(environ).set("TOKEN", VALUE)
    fake.kept.clear()
    with pytest.raises(SecretMissing):
        open_secrets(environ).get("TOKEN")
    assert open_secrets(environ).remove("TOKEN")
    assert open_secrets(environ).names() == []


def test_a_secret_moves_from_the_file_to_the_keyring_when_it_is_set_again(environ: dict[str, str], path: Path):
    open_secrets(environ).set("TOKEN", VALUE)
    open_secrets(environ).set("OTHER", "other-value")
    keyring.set_keyring(FakeKeyring())
    secrets = open_secrets(environ)
    assert secrets.get("TOKEN") == VALUE
    assert secrets.set("TOKEN", "another-value").removed == (str(path),)
    assert secrets.get("TOKEN") == "another-value"
    assert VALUE not in path.read_text()
    assert secrets.held() == [Held("OTHER", "file"), Held("TOKEN", "keyring")]


def test_variables_and_lists_need_no_keyring(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    def asked() -> None:
        raise AssertionError("the keyring was asked")

    monkeypatch.setattr(keyring, "get_keyring", asked)
    secrets = open_secrets(environ | {"REYN_SECRET_TOKEN": VALUE})
    assert secrets.get("TOKEN") == VALUE
    assert secrets.names() == ["TOKEN"]


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REYN_SECRET_TOKEN", VALUE)
    assert open_secrets().get("TOKEN") == VALUE


def test_the_home_of_the_user_is_used_without_a_place_for_configuration(tmp_path: Path):
    open_secrets({}, tmp_path).set("TOKEN", VALUE)
    assert (tmp_path / ".config" / "reyn" / "secrets.json").is_file()
