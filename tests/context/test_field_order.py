"""The author's order of fields: compiled once, and the same as sorting piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.context.field_order import FieldOrder, field_order, plain_text
from reyn.errors import HistoryInvalid
from reyn.journal import canonical

NAMES = st.sampled_from(["b", "a", "wide name", 'quo"te', "ä", "c", "", "__", "0"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=12
)
ORDERS = st.recursive(
    st.dictionaries(NAMES, st.none(), max_size=5),
    lambda inner: st.dictionaries(NAMES, st.none() | inner, max_size=5),
    max_leaves=8,
)


def reference(value: Any, order: dict[str, Any] | None) -> Any:
    """Sort the fields of a decoded value, at every depth."""
    if not order:
        return value
    if isinstance(value, list):
        return [reference(item, order) for item in value]
    if not isinstance(value, dict):
        return value
    names = [name for name in order if name in value] + [name for name in value if name not in order]
    return {name: reference(value[name], order.get(name)) for name in names}


def pairs(value: Any) -> Any:
    """Return a value whose comparison depends on the order of its fields."""
    if isinstance(value, list):
        return [pairs(item) for item in value]
    return [(name, pairs(field)) for name, field in value.items()] if isinstance(value, dict) else value


@given(value=st.dictionaries(NAMES, VALUES, max_size=5), order=ORDERS)
def test_fields_are_sorted_at_every_depth_and_nothing_else_changes(value: dict[str, Any], order: dict[str, Any]):
    stored = canonical(value)
    applied = FieldOrder(order).apply(stored)
    assert pairs(json.loads(applied)) == pairs(reference(json.loads(stored), order))
    assert len(applied) == len(stored)  # numbers are written as they were


def test_a_declared_order_is_the_order_of_the_prompt():
    schema = {"properties": {"name": {}, "address": {"properties": {"street": {}, "city": {}}}}}
    order = field_order(schema)
    data = {"address": {"city": "Rome", "street": "Via A"}, "name": "Ada", "age": 4}
    text = plain_text(canonical({"type": "guest", "data": data}), json.dumps(order).encode())
    assert text == 'name: Ada\naddress: {"street": "Via A", "city": "Rome"}\nage: 4'


@pytest.mark.parametrize("content", [b"1", b"[]", b'{"a": 1}', b'{"a": {"b": []}}', b"{", b"\xff", b'{"a":' * 5_000])
def test_a_recorded_order_that_is_none_is_an_error_of_the_history(content: bytes):
    with pytest.raises(HistoryInvalid):
        FieldOrder.of(content)
