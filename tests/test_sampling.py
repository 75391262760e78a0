"""The cases of a test that is executed with some of them only."""

from __future__ import annotations

import pytest

from tests.properties import ALL_CASES, examples, some, spread


@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize("count", [1, 2, 4, 39, 50])
def test_cases_are_spread_from_the_first_to_the_last(size: int, count: int):
    found = spread(range(size), count)
    assert len(set(found)) == len(found) == min(size, count)
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == size - 1 or count == 1


def test_a_test_can_have_no_case_by_default():
    assert spread([1, 2, 3], 0) == []


def test_the_last_point_is_never_left_out():
    assert some(range(1, 10), 4) == (list(range(1, 10)) if ALL_CASES else [1, 5, 9])
    assert some(range(1, 9), 4)[-1] == 8
    assert some(range(0), 4) == []


def test_a_property_has_fewer_examples_but_never_more_than_it_asks_for():
    assert examples(400).max_examples in (40, 100, 400)
    assert examples(6).max_examples == 6
