"""Sections that share a budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reyn.context import assemble_sections
from reyn.context.budget import Section
from reyn.context.token_counting import exact_counter
from reyn.context.tokens import ByteCounter, CalibratedCounter, CharCounter, FunctionCounter, TokenCounter
from tests.properties import examples


class Bytes:
    name = "bytes"

    def count(self, text: str) -> int:
        return len(text.encode("utf-8", "surrogatepass"))


class Odd:
    """Counts fewer tokens for some texts than for their prefixes, as tokenizers do."""

    name = "odd"

    def count(self, text: str) -> int:
        return max(1, len(text) // (1 + len(text) % 3)) if text else 0


COUNTERS: list[TokenCounter] = [
    CharCounter(),
    ByteCounter(),
    Bytes(),
    Odd(),
    CalibratedCounter(CharCounter(), 1730),
    CalibratedCounter(CharCounter(), 390),
    FunctionCounter("words", lambda text: len(text.split())),
    exact_counter(),
    CalibratedCounter(exact_counter(), 1200),
]
sections = st.lists(
    st.builds(
        Section,
        name=st.just("s"),
        text=st.text("ab. \n漢\ud800", max_size=40),
        priority=st.integers(0, 2),
        minimum=st.integers(0, 20),
        never_truncate=st.booleans(),
        unit=st.sampled_from(["line", "item", "sentence", "text"]),
        marker=st.sampled_from(["", "[cut]"]),
    ),
    max_size=5,
)


@examples(400)
@given(sections, st.integers(-1, 120), st.sampled_from(COUNTERS), st.sampled_from(["\n\n", ""]))
def test_no_text_exceeds_its_budget_under_the_counter_in_use(
    parts: list[Section], budget: int, counter: TokenCounter, separator: str
):
    built = assemble_sections(parts, budget, counter, separator)
    count = counter.count
    whole = separator.join(part.text for part in parts if part.text)
    assert built.tokens == count(built.text)
    assert built.text == separator.join(text for text in built.texts if text)
    assert budget <= 0 or built.tokens <= budget
    assert (built.text == whole) == (budget <= 0 or count(whole) <= budget)
    assert built.was_truncated == any(
        text != part.text and count(part.text) for part, text in zip(parts, built.texts, strict=True)
    )
    assert [cost.original_tokens for cost in built.sections] == [count(part.text) for part in parts]


def lines(letter: str, count: int) -> str:
    return "\n".join(f"{letter}{number}" for number in range(count))


def test_the_least_important_section_is_truncated_first_in_whole_lines():
    parts = [Section("task", lines("t", 5), priority=2), Section("log", lines("l", 50), priority=1)]
    built = assemble_sections(parts, 20)
    assert built.text.startswith(lines("t", 5) + "\n\nl0\nl1\n")
    assert built.text.endswith("\n(+34 more)")
    assert built.tokens <= 20
    assert [cost.was_truncated for cost in built.sections] == [False, True]


def test_among_equals_the_oldest_is_truncated_first():
    built = assemble_sections([Section("old", lines("o", 10)), Section("new", lines("n", 10))], 12)
    assert built.text.endswith(lines("n", 10))
    assert "o9" not in built.text


def test_a_section_keeps_its_minimum_while_others_can_be_truncated():
    parts = [Section("low", lines("l", 20), minimum=8), Section("high", lines("h", 20), priority=1)]
    built = assemble_sections(parts, 16)
    low, high = built.sections
    assert low.tokens >= 8
    assert high.tokens < high.original_tokens
    assert built.tokens <= 16


def test_a_section_is_never_truncated_unless_it_exceeds_the_budget_alone():
    parts = [Section("rules", "r" * 40, never_truncate=True, unit="sentence"), Section("log", lines("l", 50), 9)]
    assert assemble_sections(parts, 10).text == "r" * 40
    assert assemble_sections(parts, 5).text == "r" * 17 + "..."


def test_items_are_removed_with_their_indented_lines():
    text = "- one\n  more\n- two\n  more\n- three"
    assert assemble_sections([Section("list", text, unit="item")], 7).text == "- one\n  more\n(+2 more)"


def test_the_result_is_empty_where_even_the_dots_exceed_the_budget():
    assert assemble_sections([Section("text", "abcdef", unit="sentence")], 3, Bytes()).text == ""


def test_a_text_is_truncated_at_a_line_if_that_keeps_enough_and_at_a_word_otherwise():
    text = "one two three\nfour five six\n" + "long " * 40
    assert assemble_sections([Section("t", text, unit="text", marker="[cut]")], 9).text == (
        "one two three\nfour five six[cut]"
    )
    assert assemble_sections([Section("t", text, unit="text", marker="[cut]")], 40).text == (
        "one two three\nfour five six\n" + "long " * 24 + "long[cut]"
    )


class Counting:
    """Counts how much text it counted."""

    name = "counting"

    def __init__(self) -> None:
        self.counted = 0

    def count(self, text: str) -> int:
        self.counted += len(text)
        return -(-len(text) // 4)


def test_truncating_one_section_counts_the_whole_text_a_few_times_only():
    parts = [Section("rules", "r" * 400_000, never_truncate=True), Section("log", "some words " * 4_000, unit="text")]
    counter = Counting()
    built = assemble_sections(parts, 105_000, counter)
    assert built.tokens <= 105_000
    assert counter.counted < 20 * 444_000
