"""A text that has a word of the query has a score above 0, and one with a rarer word a higher one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


UNSPACED = [
    ("タワー", "東京タワーは高い"), ("東京", "私は東京に住んでいます"), ("東京タワーについて", "東京タワーは高い"),
    ("緑茶が好き", "彼女は緑茶を飲む"), ("茶", "緑茶を飲む"), ("時々", "母は時々来る"), ("ｺｰﾋｰ", "毎朝ｺｰﾋｰを飲む"),
    ("北京", "我在北京工作"), ("𠮷野家", "昼は𠮷野家で食べる"), ("서울", "서울에서 일해요"), ("บ้าน", "ฉันอยู่ที่บ้านใหญ่"),
    ("GPT4モデル", "新しいモデルです"), ("モデルGPT4", "the model GPT4 answers"), ("ភាសា", "ខ្ញុំរៀនភាសាខ្មែរ"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "text"), UNSPACED)
@pytest.mark.parametrize("count", [1, 3, 150])
def test_a_word_inside_a_text_without_spaces_is_found(query: str, text: str, count: int):
    texts = [f"others {number} 雨" for number in range(count - 1)]
    [(number, score)] = best_matches(query, [*texts, text], count)
    assert number == count - 1
    assert score > 0


def test_characters_that_do_not_follow_each_other_are_no_word():
    assert best_matches("東京", ["京の東", "東の京", "京東"], 3) == []


@given(st.text(st.sampled_from("東京タワー緑茶ab "), min_size=2, max_size=12), st.data())
def test_every_part_of_a_text_without_spaces_finds_it(text: str, data: st.DataObject):
    start = data.draw(st.integers(0, len(text) - 1))
    part = text[start : start + data.draw(st.integers(1, 6))]
    if any(not char.isascii() for char in part):
        words = [word for word in part.split() if not word.isascii()]
        found = best_matches(part, [text, "others"], 2)
        is_whole = any(len(word) > 1 and not re.search("[ab]", word) for word in words)
        assert found[:1] and found[0][0] == 0 if is_whole else len(found) <= 1
