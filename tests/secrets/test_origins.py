"""Secrets are bound to the origins that they may be sent to."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from reyn.cli.hints import full_hint
from reyn.errors import OriginInvalid, SecretMissing, SecretRefused, UserConfigUnavailable
from reyn.secrets import EnvironmentStore, MemoryOrigins, MemoryStore, Secrets, origin_of, validate_origin

VALUE = "sk-0123456789"
HANDLE = "secret://KEY"


@pytest.fixture
def secrets() -> Secrets:
    return Secrets([MemoryStore({"KEY": VALUE})], EnvironmentStore({"OTHER": "another-value"}))


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://API.Example.com/v1", "https://api.example.com"),
        ("https://api.example.com:443/v1", "https://api.example.com"),
        ("http://api.example.com:80", "http://api.example.com"),
        ("http://api.example.com:443/", "http://api.example.com:443"),
        ("https://api.example.com:8443/x/y", "https://api.example.com:8443"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("https://api.example.com./v1", "https://api.example.com."),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str):
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example",
        "a.example",
        "https://",
        "https://user@a.example",
        "https://a.example:99999",
        "https://ap\u0456.example/v1",
        "https://evil.example\\.api.example/v1",
        "https://a.example\x00",
        "https://[::1",
        "",
    ],
)
def test_other_texts_are_no_origins(url: str):
    with pytest.raises(OriginInvalid):
        origin_of(url)


def test_an_origin_has_no_path():
    assert validate_origin("https://a.example/") == "https://a.example"
    with pytest.raises(OriginInvalid) as caught:
        validate_origin("https://a.example/v1")
    assert caught.value.hint == "Write `https://a.example`."


def test_the_first_use_binds_a_secret_and_other_origins_are_refused(secrets: Secrets):
    assert secrets.resolve_for(HANDLE, "https://a.example/v1") == VALUE
    assert secrets.origins.allowed(HANDLE) == ("https://a.example",)
    for url in ("https://b.example/v1", "http://a.example/v1", "https://a.example:8443/v1", "https://x.a.example/v1"):
        with pytest.raises(SecretRefused) as caught:
            secrets.resolve_for(HANDLE, url)
        command = f"`reyn secret allow KEY {origin_of(url)}`"
        assert command in full_hint(caught.value.code, caught.value.hint)
    assert secrets.resolve_for(HANDLE, "https://a.example/v2") == VALUE


def test_a_missing_secret_is_not_bound(secrets: Secrets):
    with pytest.raises(SecretMissing):
        secrets.resolve_for("secret://MISSING", "https://a.example")
    assert secrets.origins.allowed("secret://MISSING") == ()


def test_a_second_origin_can_be_allowed_and_revoked(secrets: Secrets):
    for origin in ("https://a.example", "https://b.example"):
        secrets.origins.allow("env://OTHER", origin)
        assert secrets.resolve_for("env://OTHER", origin) == "another-value"
    assert secrets.origins.revoke("env://OTHER", "https://a.example") == ("https://a.example",)
    with pytest.raises(SecretRefused):
        secrets.resolve_for("env://OTHER", "https://a.example")


class Unwritable(MemoryOrigins):
    def allow(self, handle: str, origin: str) -> None:
        raise UserConfigUnavailable("read-only")


def test_where_a_binding_cannot_be_stored_a_trusted_use_is_logged(caplog: pytest.LogCaptureFixture):
    secrets = Secrets([MemoryStore({"KEY": VALUE})], origins=Unwritable())
    with caplog.at_level(logging.WARNING):
        assert secrets.resolve_for(HANDLE, "https://a.example") == VALUE
    assert "cannot be bound to https://a.example: read-only" in caplog.text


def test_known_values_are_learned_without_being_used(secrets: Secrets):
    secrets.learn(["env://OTHER", "secret://MISSING"])
    assert secrets.scrubber.find(f"x {VALUE}".encode()) == HANDLE
    assert secrets.scrubber.find(b"another-value") == "env://OTHER"
    assert secrets.scrubber.find(b"something else") == ""
    assert secrets.unreadable == {}


def test_values_that_cannot_be_read_are_noted():
    class Broken(MemoryStore):
        def names(self) -> Any:
            from reyn.errors import SecretStoreUnavailable

            raise SecretStoreUnavailable("damaged")

    secrets = Secrets([Broken()], EnvironmentStore({"REYN_SECRET_SHORT": "abc"}))
    secrets.learn()
    assert secrets.unreadable["memory"] == "damaged"
    assert "fewer than 6 characters" in secrets.unreadable["secret://SHORT"]
