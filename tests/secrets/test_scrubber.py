"""No value survives, in whatever way a text writes it."""

from __future__ import annotations

import base64
import json
import random
import re
import time
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.errors import SecretValueInvalid
from reyn.secrets import Scrubber
from reyn.secrets.handles import checked_value

HANDLE = "secret://TOKEN"
KEY = "sk-proj-Zm9v+YmFy/x=="

WRITTEN = {
    "as it is": str,
    "JSON": json.dumps,
    "JSON beyond ASCII": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON of nothing but escapes": lambda text: re.sub("(..)(..)", r"\\u\1\2", text.encode("utf-16-be").hex()),
    "JSON of msgspec": lambda text: msgspec.json.encode(text).decode(),
    "JSON with escaped slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON in JSON": lambda text: json.dumps({"arguments": json.dumps({"key": text})}),
    "JSON four deep": lambda text: json.dumps(json.dumps(json.dumps(json.dumps(text)))),
    "URL": lambda text: quote(text, safe=""),
    "URL with its slashes": quote,
    "URL of a script": lambda text: quote(text, safe="!~*'()"),
    "URL in small letters": lambda text: re.sub("%..", lambda match: match[0].lower(), quote(text, safe="")),
    "form": quote_plus,
    "URL in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "JSON in a URL": lambda text: quote(json.dumps(text)),
    "repr": repr,
    "repr of bytes": lambda text: repr(text.encode()),
    "repr in JSON": lambda text: json.dumps(repr(text)),
}


def is_value(text: str) -> bool:
    try:
        return bool(checked_value("TOKEN", text))
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
        scrubber.add("TOKEN", value)
    return scrubber


def between_handles(text: str) -> list[str]:
    return text.split(HANDLE)


@pytest.mark.parametrize("way", WRITTEN)
@given(value=VALUES, before=TEXTS, after=TEXTS)
def test_no_value_survives_however_it_is_written(way: str, value: str, before: str, after: str):
    write = WRITTEN[way]
    scrubbed = scrubber_of(value).scrub(write(before + value + after))
    assert HANDLE in scrubbed
    for part in between_handles(scrubbed):
        assert value not in part
        assert write(value).strip("'\"") not in part


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@given(value=VALUES, before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_no_value_survives_in_base64_wherever_it_stands(encode, value: str, before: bytes, after: bytes):
    raw = value.encode()
    encoded = encode(before + raw + after).decode()
    decided = encoded[-(-len(before) * 8 // 6) : (len(before) + len(raw)) * 8 // 6]
    scrubbed = scrubber_of(value).scrub(encoded)
    assert HANDLE in scrubbed
    assert all(decided not in part for part in between_handles(scrubbed))
    assert HANDLE in scrubber_of(value).scrub(quote(json.dumps(encoded), safe=""))


@given(value=VALUES, before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_bytes_are_scrubbed_like_text_and_keep_every_other_byte(value: str, before: bytes, after: bytes):
    scrubbed = scrubber_of(value).scrub(before + value.encode() + after)
    assert HANDLE.encode() in scrubbed
    assert all(value.encode() not in part for part in scrubbed.split(HANDLE.encode()))
    assert scrubber_of("nowhere to be found").scrub(before + after) == before + after


@given(values=st.lists(VALUES, min_size=1, max_size=4), texts=st.lists(TEXTS, min_size=5, max_size=5))
def test_no_value_survives_among_others(values: list[str], texts: list[str]):
    text = texts[0] + "".join(value + between for value, between in zip(values, texts[1:], strict=False))
    scrubbed = scrubber_of(*values).scrub(text)
    assert all(value not in part for value in values for part in between_handles(scrubbed))


@given(text=st.text(max_size=60))
def test_text_without_a_secret_stays_as_it_is(text: str):
    assert Scrubber().scrub(text) == text
    assert scrubber_of("no-such-value").scrub(text) == text


def test_a_value_of_nothing_but_escapes_is_found():
    scrubber = Scrubber()
    scrubber.add("KEY", "sk-0123456789")
    for written in ("".join(f"\\u{ord(char):04x}" for char in "sk-0123456789"), "\\\\u0073k-0123456789"):
        assert scrubber.scrub(f'a "{written}" b') == 'a "secret://KEY" b'
    assert scrubber.scrub(r"\u0061bc") == r"\u0061bc"


def test_of_a_text_that_goes_on_nothing_of_a_value_is_told():
    scrubber, text = Scrubber(), "the key is sk-0123456789, and it is long"
    assert scrubber.split(text) == (text, "")
    scrubber.add("KEY", "sk-0123456789")
    for size in range(1, 12):
        told, held = "", ""
        for at in range(0, len(text), size):
            more, held = scrubber.split(held + text[at : at + size])
            told += more
            assert "sk-0" not in told
        assert told + held == "the key is secret://KEY, and it is long"


def test_only_the_value_is_replaced():
    scrubber = scrubber_of(KEY)
    assert scrubber.scrub(f"401 for Bearer {KEY}.") == f"401 for Bearer {HANDLE}."
    assert scrubber.scrub(json.dumps({"key": KEY})) == json.dumps({"key": HANDLE})
    assert scrubber.scrub(f"https://host/?key={quote(KEY, safe='')}&n=1") == f"https://host/?key={HANDLE}&n=1"
    assert scrubber.scrub(base64.b64encode(KEY.encode()).decode()) == HANDLE
    assert scrubber.scrub(KEY[:-3]) == KEY[:-3]


@pytest.mark.parametrize("way", WRITTEN)
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
def test_values_that_look_like_what_they_are_written_with(way: str, value: str):
    scrubbed = scrubber_of(value).scrub(WRITTEN[way](f"a {value} z"))
    assert HANDLE in scrubbed
    assert WRITTEN[way](value).strip("'\"") not in scrubbed


def test_basic_authorization_does_not_give_it_away():
    scrubbed = scrubber_of("hunter2hunter2").scrub(
        "Authorization: Basic " + base64.b64encode(b"ada:hunter2hunter2").decode()
    )
    assert HANDLE in scrubbed
    rest = base64.b64decode(scrubbed.removeprefix("Authorization: Basic ").split(HANDLE)[0] + "==")
    assert rest.startswith(b"ada:")
    assert b"hunter" not in rest


def test_of_a_value_that_begins_with_another_the_longer_is_found():
    scrubber = Scrubber()
    scrubber.add("SHORT", "abcdef")
    scrubber.add("LONG", "abcdefgh")
    assert scrubber.scrub("abcdef abcdefgh") == "secret://SHORT secret://LONG"


def test_a_value_that_was_replaced_is_still_known():
    scrubber = scrubber_of("old-value", "new-value")
    assert scrubber.scrub("old-value, new-value") == f"{HANDLE}, {HANDLE}"


def test_scrubbing_twice_changes_nothing_more():
    scrubber = scrubber_of("abcdef")
    once = scrubber.scrub("x abcdef y")
    assert scrubber.scrub(once) == once


def test_nobody_sees_a_value_by_looking_at_the_scrubber():
    scrubber = scrubber_of(KEY)
    assert repr(scrubber) == "Scrubber(['TOKEN'])"
    assert KEY not in repr(scrubber._search)


def test_a_text_that_repeats_escapes_without_end_does_not_hold_it_up():
    scrubber = scrubber_of('\\\n"% +\\')
    began = time.process_time()
    for repeated in ("\\", "%5c", "%5C%25", "%25", "25", '\\"', "\\\n"):
        scrubber.scrub(repeated * 20_000)
    assert time.process_time() - began < 10


def test_a_large_clean_text_costs_little():
    scrubber = Scrubber()
    chance = random.Random(7)
    for number in range(5):
        scrubber.add(f"KEY_{number}", "sk-" + base64.urlsafe_b64encode(chance.randbytes(36)).decode())
    text = json.dumps({"text": "many words " * 100_000})
    began = time.process_time()
    assert scrubber.scrub(text) is text
    assert time.process_time() - began < 0.5
