"""The words are one table; what is written elsewhere must agree with it."""

import msgspec
import pytest

from reyn.skills import values
from reyn.skills.fronts import STEP_FRONTS
from reyn.skills.values import DEFAULT_OPS
from reyn.vocabulary import STANDARD, OpSpec


def test_steps_have_the_keys_that_the_vocabulary_says():
    assert STEP_FRONTS.keys() == STANDARD.step_kinds
    for spec in STANDARD.steps:
        fields = msgspec.structs.fields(STEP_FRONTS[spec.kind])
        assert {field.name for field in fields} == set(spec.keys)
        assert {field.name for field in fields if field.required} == set(spec.required)


def test_every_kind_of_step_has_a_value():
    members = values.AnyStep.__args__
    assert {member.__struct_config__.tag for member in members} == STANDARD.step_kinds


def test_what_an_op_needs_is_a_permission_that_exists():
    assert {spec.permission for spec in STANDARD.ops if spec.permission} <= STANDARD.permission_keys
    assert set(DEFAULT_OPS) <= STANDARD.op_kinds


def test_a_runtime_may_know_more_words_in_a_copy_of_its_own():
    more = STANDARD.with_ops(OpSpec("telegraph", "Send a telegram.", "unsafe"))
    assert more.op("telegraph") is not None
    assert STANDARD.op("telegraph") is None
    with pytest.raises(ValueError, match="file"):
        STANDARD.with_ops(OpSpec("file", "", "pure"))
