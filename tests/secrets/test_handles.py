"""Validation of names, handles and values."""

from __future__ import annotations

import pytest

from reyn.errors import SecretNameInvalid, SecretValueInvalid
from reyn.secrets import handle_of, is_handle, secret_name
from reyn.secrets.handles import validate_value

LONGEST = "A" * 64


@pytest.mark.parametrize("name", ["A", "OPENAI_API_KEY", "K2_", LONGEST])
def test_a_name_round_trips_through_its_handle(name: str):
    assert is_handle(handle_of(name))
    assert secret_name(handle_of(name)) == name


@pytest.mark.parametrize("name", ["", "a", "2A", "_A", "A-B", "A B", "A\n", "Ä", f"{LONGEST}A", "../A"])
def test_an_invalid_name_has_no_handle(name: str):
    assert not is_handle(f"secret://{name}")
    for call in (handle_of, lambda text: secret_name(f"secret://{text}")):
        with pytest.raises(SecretNameInvalid):
            call(name)


@pytest.mark.parametrize("text", ["", "A", "secret:/A", "Secret://A", " secret://A", "https://A"])
def test_other_text_is_not_a_handle(text: str):
    assert not is_handle(text)


def test_a_value_passed_as_a_handle_is_not_quoted():
    with pytest.raises(SecretNameInvalid) as caught:
        secret_name("sk-live-123456")
    assert "sk-live" not in str(caught.value) + caught.value.hint
    with pytest.raises(SecretNameInvalid) as caught:
        secret_name("secret://sk-live-123456")
    assert "sk-live" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "empty"),
        ("   \n   ", "empty"),
        ("12345", "fewer than 6"),
        ("x" * 8_193, "more than 8192"),
        ("secret", "own handle"),
        ("TOKEN_OF", "own handle"),
        ("secret://OTHER", "handle of another"),
        ("abcdef\udcff", "not valid Unicode"),
    ],
)
def test_a_value_that_cannot_be_scrubbed_is_rejected_and_not_quoted(value: str, reason: str):
    with pytest.raises(SecretValueInvalid, match=reason) as caught:
        validate_value("secret://TOKEN_OF_MINE", value)
    assert "TOKEN_OF_MINE" in caught.value.message
    assert not value.strip() or value not in caught.value.message.replace("secret://TOKEN_OF_MINE", "")


@pytest.mark.parametrize("value", ["123456", "x" * 8_192, "ünïcö", "two\nlines"])
def test_any_other_text_is_a_valid_value(value: str):
    value = value.ljust(6, "!")
    assert validate_value("secret://A", value) == value
