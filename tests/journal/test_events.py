"""Event kinds, canonical JSON and the hash chain."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.journal import Blob, canonical, check_json, digest, encode, kinds, link
from reyn.journal.registry import content_hashes, families, op_event
from reyn.journal.registry import kinds as registered
from reyn.jsonschema import compile_schema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_equal_values_have_equal_bytes_and_read_back_the_same(value):
    raw = canonical(value)
    check_json(value)
    assert msgspec.json.decode(raw) == value
    assert canonical(msgspec.json.decode(raw)) == raw


@given(st.dictionaries(st.text(max_size=4), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict):
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")], {"a": {1}}, {2: 3}, "\udcff", b"x"])
def test_check_json_rejects_other_values_with_their_path(value):
    with pytest.raises(ValueError, match=r"^\$"):
        check_json(value)


class Text(str):
    pass


class Number(float):
    pass


class Pair(NamedTuple):
    first: int


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize("value", [Text("x"), [Number(1)], {Text("a"): 1}, Pair(1)])
def test_check_json_rejects_subclasses_that_the_encoder_or_the_validator_rejects(value):
    with pytest.raises(ValueError, match=r"^\$.*: a (Text|Number|Pair) is not JSON"):
        check_json(value)


@pytest.mark.parametrize("value", [Colour.RED, {Colour.RED: HTTPStatus.OK}, (1, 2)])
def test_what_check_json_accepts_is_encoded_and_validated(value):
    check_json(value)
    assert canonical(value)
    assert compile_schema({}).first_error(value) is None


def test_the_hash_is_that_of_the_documented_json_array():
    raw = b'{"phase":"a"}'
    expected = hashlib.sha256(b'[3,7,"phase_started",1,{"phase":"a"},"' + b"0" * 64 + b'"]').hexdigest()
    assert link(3, 7, "phase_started", 1, raw, "0" * 64) == expected
    assert json.loads(f'[3,7,"phase_started",1,{raw.decode()},"{"0" * 64}"]')[4] == {"phase": "a"}


def test_every_kind_has_a_docstring_and_a_schema():
    documented = {"phase_started", "phase_completed", "validation_error", "permission_denied", "skill_completed"}
    assert documented | {"skill_aborted"} <= {kind for kind, _ in registered()}
    assert {op_event(shape, "file").kind for shape in families()} == {"file_started", "file_completed"}
    for (kind, version), cls in registered().items():
        assert (cls.kind, cls.version) == (kind, version)
        assert cls.__doc__
        schema = msgspec.json.schema(cls)["$defs"][cls.__name__]
        assert schema["additionalProperties"] is False


def test_events_enter_only_known_statuses():
    entered = {cls.enters for cls in registered().values()}
    assert entered == {None, "running", "finished", "failed", "aborted", "limited", "waiting", "cancelled"}


def test_content_hashes_finds_nested_references():
    names = [digest(bytes([number])) for number in range(3)]
    message = kinds.FrameMessage(
        "user", (kinds.Part(text="between"), kinds.Part(blob=names[0]), kinds.Part(blob=names[1]))
    )
    assert list(content_hashes(kinds.FrameBuilt((message,)))) == names[:2]
    assert list(content_hashes(kinds.ArtifactStored(kinds.ArtifactRef("t", names[2]), 1))) == [names[2]]
    requested = kinds.LlmRequested("1.1", "m", names[0], names[1])
    assert list(content_hashes(requested)) == [names[0]]  # `request` is a hash, but not of a stored blob


def test_fields_with_default_values_are_not_written():
    assert encode(kinds.RunResumed("me")) == b'{"driver":"me"}'
    assert Blob.of(b"x").hash == digest(b"x")


COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "thinking_tokens")
THOUGHTS = st.just(msgspec.UNSET) | st.integers(1, 1000)
USAGE = st.builds(kinds.Usage, *(st.integers(0, 1000) for _ in COUNTS[:4]), THOUGHTS)


@given(USAGE, USAGE)
def test_a_usage_less_another_covers_every_field_and_is_never_negative(after: kinds.Usage, before: kinds.Usage):
    assert (after + before) - before == after
    assert len(COUNTS) == len(kinds.Usage.__struct_fields__)
    for name in COUNTS:
        assert getattr(after - before, name) == max(0, getattr(after, name) - getattr(before, name))
