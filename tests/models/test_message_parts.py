"""What is left of a message after acts: the parts whose words no act took."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.models.message_parts import content_words, parts_left, says_which
from reyn.models.protocol import PerformedOp

NOUNS = ("barley", "copper", "dragon", "engine", "falcon", "garlic", "hammer", "island", "jacket", "kettle")
REQUESTS = ("Look up the {}.", "What does the {} cost?", "Please sell my old {}!", "Remember where the {} is.")


def done(result: str = "", *, is_ok: bool = True, **args: Any) -> PerformedOp:
    return PerformedOp({"kind": "find"} | args, result, is_ok)


@pytest.mark.parametrize(
    ("text", "act", "left"),
    [
        ("Look at the top shelf, then put lemons on the list.", done(item="lemons"), ("Look at the top shelf",)),
        ("Find the van and order a mirror for it.", done(part="mirror"), ("Find the van",)),
        ("Order eggs today. What is it about? Is it me?", done(item="eggs today"), ()),
        ("Write 'Milk and bread' to a.md.", done(content="Milk and bread"), ()),
        ("Order ten eggs, repair the washing machine, and call my sister.", done(item="ten eggs"),
         ("repair the washing machine", "call my sister.")),
        ("Find the time of runners 118 and 204.", done(number=118), ("Find the time of runners 204.",)),
        ("Has Ada answered, and Joel?", done(guest="Ada"), ("Has answered Joel?",)),
        ("Order brake pads and thanks!", done(part="brake pads"), ()),
        ("Order brake pads. Thanks!", done(part="brake pads"), ()),
    ],
)  # fmt: skip
def test_parts_are_left_whose_words_no_act_took(text: str, act: PerformedOp, left: tuple[str, ...]):
    assert parts_left(text, (act,)) == left


def test_words_of_a_result_deal_with_a_part_too():
    text = "Read keys.md. Who has the garden key? Also sell the old kettle."
    act = done("the garden key: Piet", path="keys.md")
    assert parts_left(text, (act,)) == ("Also sell the old kettle.",)
    assert parts_left(text, (done("nothing", thing="it"),)) == ()


def test_an_act_that_failed_has_dealt_with_nothing():
    assert parts_left("Sell the kettle.", (done("denied", thing="kettle", is_ok=False),)) == ("Sell the kettle.",)


def test_words_without_content_deal_with_nothing():
    assert parts_left("Is it on the shelf? Sell it on Monday.", (done(where="on the shelf"),)) == (
        "Sell it on Monday.",
    )


@given(st.lists(st.tuples(st.sampled_from(REQUESTS), st.sampled_from(NOUNS)), min_size=2, max_size=4,
                unique_by=(lambda pair: pair[0], lambda pair: pair[1])), st.data())  # fmt: skip
def test_each_act_deals_with_the_request_that_names_its_argument(pairs: list[tuple[str, str]], data: st.DataObject):
    """Whatever was done, in any order: the other requests are left, as they were written."""
    requests = {noun: request.format(noun) for request, noun in pairs}
    acted = data.draw(st.lists(st.sampled_from(sorted(requests)), unique=True))
    left = parts_left(" ".join(requests.values()), tuple(done("The is what it", thing=f"the {noun}") for noun in acted))
    expected = tuple(text for noun, text in requests.items() if noun not in acted)
    assert left == (expected if acted else (" ".join(expected),))


@given(st.text("abcXY019 ,.;:!?'\"“”\n", max_size=80), st.lists(st.text("abcXY019 ", max_size=8), max_size=3))
def test_what_is_left_consists_of_words_of_the_message(text: str, values: list[str]):
    acts = tuple(done(value=value) for value in values)
    left = parts_left(text, acts)
    if acts:
        assert {word for part in left for word in content_words(part)} <= set(content_words(text))
        assert all(content_words(part) for part in left)
    assert parts_left(text, (*acts, *acts)) == left


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Order limes for her", False),
        ("Thanks.", False),
        ("I hope that I find it", False),
        ("order limes for Ada", True),
        ("Order 6 limes", True),
        ("Write 'Limes' to it", True),
        ("Keep it in notes/a.md", True),
    ],
)
def test_names_numbers_and_quotes_say_which_thing_is_meant(text: str, expected: bool):
    assert says_which(text) is expected
