"""A text that has a word of the query has a score above 0, and one with a rarer word a higher one."""

from __future__ import annotations

import pytest

from reyn.ranking import best_matches


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40, 150])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_every_hit_has_a_score(count: int, share: float):
    matching = max(1, round(count * share))
    texts = [f"text {number} about tea" if number < matching else f"text {number}" for number in range(count)]
    found = best_matches("tea", texts, count)
    assert [number for number, _ in found] == list(range(matching))
    assert all(score > 0.1 / count for _, score in found)


def test_a_rare_word_counts_more_than_a_common_one():
    texts = ["green tea", "black tea", "tea and oolong", "tea"]
    assert best_matches("tea oolong", texts, 1)[0][0] == 2
