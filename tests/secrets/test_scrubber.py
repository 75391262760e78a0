"""The scrubber finds values in every encoding."""

from __future__ import annotations

import base64
import json
import random
import re
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.errors import SecretValueInvalid
from reyn.secrets import Scrubber
from reyn.secrets.handles import validate_value
from tests.cost import LINEAR, count_calls, growth

HANDLE = "secret://TOKEN"
KEY = "sk-proj-Zm9v+YmFy/x=="

ENCODINGS = {
    "plain": str,
    "JSON": json.dumps,
    "JSON without ASCII escapes": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON of escapes only": lambda text: re.sub("(..)(..)", r"\\u\1\2", text.encode("utf-16-be").hex()),
    "JSON of msgspec": lambda text: msgspec.json.encode(text).decode(),
    "JSON with escaped slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON in JSON": lambda text: json.dumps({"arguments": json.dumps({"key": text})}),
    "JSON four deep": lambda text: json.dumps(json.dumps(json.dumps(json.dumps(text)))),
    "URL": lambda text: quote(text, safe=""),
    "URL with slashes": quote,
    "URL of encodeURIComponent": lambda text: quote(text, safe="!~*'()"),
    "URL in lower case": lambda text: re.sub("%..", lambda match: match[0].lower(), quote(text, safe="")),
    "form": quote_plus,
    "URL in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "JSON in a URL": lambda text: quote(json.dumps(text)),
    "URL of escapes only": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "URL of escapes only, in a URL": lambda text: "".join(f"%2525{byte:02x}" for byte in text.encode()),
    "repr": repr,
    "repr of bytes": lambda text: repr(text.encode()),
    "repr in JSON": lambda text: json.dumps(repr(text)),
}


def is_value(text: str) -> bool:
    try:
        return bool(validate_value(HANDLE, text))
    except SecretValueInvalid:
        return False


ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NASTY = st.text(st.sampled_from("ab\\\"'/%25 +\n\t\x00\x7fué€😀<&=u0041x5cn"), max_size=16)
TEXTS = ANY | NASTY
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=40),
    st.text(st.sampled_from("ab\\\"'/%25 +\n\t\x00\x7fué€😀<&=u0041x5cn"), min_size=6, max_size=24),
).filter(is_value)


def scrubber_of(*values: str) -> Scrubber:
    scrubber = Scrubber()
    for value in values:
        scrubber.add(HANDLE, value)
    return scrubber


def between_handles(text: str) -> list[str]:
    return text.split(HANDLE)


@given(value=VALUES, before=TEXTS, after=TEXTS)
def test_values_are_found_in_every_encoding(value: str, before: str, after: str):
    scrubber = scrubber_of(value)
    for encoding, encode_text in ENCODINGS.items():
        scrubbed = scrubber.scrub(encode_text(before + value + after))
        assert HANDLE in scrubbed, encoding
        for part in between_handles(scrubbed):
            assert value not in part, encoding
            assert encode_text(value).strip("'\"") not in part, encoding


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@given(value=VALUES, before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_values_are_found_in_base64_at_any_offset(encode, value: str, before: bytes, after: bytes):
    raw = value.encode()
    encoded = encode(before + raw + after).decode()
    decided = encoded[-(-len(before) * 8 // 6) : (len(before) + len(raw)) * 8 // 6]
    scrubbed = scrubber_of(value).scrub(encoded)
    assert HANDLE in scrubbed
    assert all(decided not in part for part in between_handles(scrubbed))
    assert HANDLE in scrubber_of(value).scrub(quote(json.dumps(encoded), safe=""))


@given(value=VALUES, before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_bytes_are_scrubbed_and_other_bytes_unchanged(value: str, before: bytes, after: bytes):
    scrubbed = scrubber_of(value).scrub(before + value.encode() + after)
    assert HANDLE.encode() in scrubbed
    assert all(value.encode() not in part for part in scrubbed.split(HANDLE.encode()))
    assert scrubber_of("nowhere to be found").scrub(before + after) == before + after


@given(values=st.lists(VALUES, min_size=1, max_size=4), texts=st.lists(TEXTS, min_size=5, max_size=5))
def test_several_values_are_found_in_one_text(values: list[str], texts: list[str]):
    text = texts[0] + "".join(value + between for value, between in zip(values, texts[1:], strict=False))
    scrubbed = scrubber_of(*values).scrub(text)
    assert all(value not in part for value in values for part in between_handles(scrubbed))


@given(text=st.text(max_size=60))
def test_text_without_a_secret_is_unchanged(text: str):
    assert Scrubber().scrub(text) == text
    assert scrubber_of("no-such-value").scrub(text) == text


def test_a_value_written_only_in_escapes_is_found():
    scrubber = Scrubber()
    scrubber.add("secret://KEY", "sk-0123456789")
    for escaped in ("".join(f"\\u{ord(char):04x}" for char in "sk-0123456789"), "\\\\u0073k-0123456789"):
        assert scrubber.scrub(f'a "{escaped}" b') == 'a "secret://KEY" b'
    assert scrubber.scrub(r"\u0061bc") == r"\u0061bc"


def test_streamed_text_never_contains_part_of_a_value():
    scrubber, text = Scrubber(), "the key is sk-0123456789, and it is long"
    assert scrubber.split(text) == (text, "")
    scrubber.add("secret://KEY", "sk-0123456789")
    for size in range(1, 12):
        sent, rest = "", ""
        for at in range(0, len(text), size):
            more, rest = scrubber.split(rest + text[at : at + size])
            sent += more
            assert "sk-0" not in sent
        assert sent + rest == "the key is secret://KEY, and it is long"


def test_only_the_value_is_replaced():
    scrubber = scrubber_of(KEY)
    assert scrubber.scrub(f"401 for Bearer {KEY}.") == f"401 for Bearer {HANDLE}."
    assert scrubber.scrub(json.dumps({"key": KEY})) == json.dumps({"key": HANDLE})
    assert scrubber.scrub(f"https://host/?key={quote(KEY, safe='')}&n=1") == f"https://host/?key={HANDLE}&n=1"
    assert scrubber.scrub(base64.b64encode(KEY.encode()).decode()) == HANDLE
    assert scrubber.scrub(KEY[:-3]) == KEY[:-3]


@pytest.mark.parametrize(
    "value",
    [
        "00%5C0",
        "00%5c",
        "00%255c",
        "%25%2525",
        '\\\\\\"\n\\u0041',
        "\\" * 40,
        "\\\n\\\n\\\n",
        "😀é\x7f  ",
        "C:\\new\\table",
    ],
)
def test_values_that_contain_escapes_are_found(value: str):
    scrubber = scrubber_of(value)
    for encoding, encode_text in ENCODINGS.items():
        scrubbed = scrubber.scrub(encode_text(f"a {value} z"))
        assert HANDLE in scrubbed, encoding
        assert encode_text(value).strip("'\"") not in scrubbed, encoding


def test_values_are_found_in_basic_credentials():
    scrubbed = scrubber_of("hunter2hunter2").scrub(
        "Authorization: Basic " + base64.b64encode(b"ada:hunter2hunter2").decode()
    )
    assert HANDLE in scrubbed
    rest = base64.b64decode(scrubbed.removeprefix("Authorization: Basic ").split(HANDLE)[0] + "==")
    assert rest.startswith(b"ada:")
    assert b"hunter" not in rest


def test_a_value_takes_precedence_over_its_own_prefix():
    scrubber = Scrubber()
    scrubber.add("secret://SHORT", "abcdef")
    scrubber.add("secret://LONG", "abcdefgh")
    assert scrubber.scrub("abcdef abcdefgh") == "secret://SHORT secret://LONG"


def test_an_earlier_value_of_a_handle_is_still_scrubbed():
    scrubber = scrubber_of("old-value", "new-value")
    assert scrubber.scrub("old-value, new-value") == f"{HANDLE}, {HANDLE}"


def test_scrubbing_is_idempotent():
    scrubber = scrubber_of("abcdef")
    once = scrubber.scrub("x abcdef y")
    assert scrubber.scrub(once) == once


def test_repr_contains_no_value():
    scrubber = scrubber_of(KEY)
    assert repr(scrubber) == "Scrubber(['secret://TOKEN'])"
    assert KEY not in repr(scrubber._search)


@pytest.mark.slow
def test_long_runs_of_escapes_cause_no_backtracking():
    scrubber = scrubber_of('\\\n"% +\\')
    for repeated in ("\\", "%5c", "%5C%25", "%25", "25", '\\"', "\\\n"):
        assert growth(lambda count, repeated=repeated: scrubber.scrub(repeated * count), 1_000) < LINEAR


def test_scrubbing_a_clean_text_only_searches_for_substrings():
    scrubber = Scrubber()
    chance = random.Random(7)
    for number in range(5):
        scrubber.add(f"secret://KEY_{number}", "sk-" + base64.urlsafe_b64encode(chance.randbytes(36)).decode())
    text = json.dumps({"text": "many words " * 100_000})
    assert scrubber.scrub(text) is text
    assert count_calls(lambda: scrubber.scrub(text)) < 100
