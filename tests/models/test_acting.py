"""Whether to act, and which act: an input is compared with acts relative to messages that need none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.models.acting import Act, ActPrompt, choose_among, likenesses
from reyn.models.two_step import Topic, deviation, mean_topic, projection

HABIT: Topic = {"answer": 9.0, "say": 8.0, "the": 5.0}
"""The words that this model begins with whatever the message is."""
FIND: Topic = HABIT | {"look": 6.0, "find": 5.0}
SEND: Topic = HABIT | {"send": 6.0, "write": 3.0}
REPLIES = [[HABIT, HABIT], [HABIT | {"greet": 1.0}, HABIT]]
ACTS = tuple(Act(name, {"kind": name}, name, "text.\n") for name in ("find", "send"))


def choice(topic: Topic, *, may_decide: bool = True, acts: tuple[Topic, ...] = (FIND, SEND)) -> tuple[str, float]:
    prompt = ActPrompt("task", "text", ACTS, may_decide, {}, "")
    act, probability = choose_among(prompt, likenesses([topic, topic], REPLIES, [[one, one] for one in acts]))
    return act.label if act else "", probability


@pytest.mark.parametrize(
    ("topic", "label"),
    [
        (HABIT, ""),
        (HABIT | {"joke": 7.0}, ""),
        (HABIT | {"look": 4.0}, "find"),
        (HABIT | {"send": 4.0, "the": 6.0}, "send"),
    ],
)
def test_a_model_acts_if_the_input_differs_from_other_messages_as_an_act_does(topic: Topic, label: str):
    chosen, probability = choice(topic)
    assert chosen == label
    assert 0.5 <= probability <= 1


def test_a_model_that_has_to_act_takes_the_closest_act():
    assert choice(HABIT | {"joke": 7.0, "write": 0.1}, may_decide=False) == ("send", 1.0)


@given(st.dictionaries(st.sampled_from(["look", "find", "send", "write", "joke"]), st.floats(0, 10)), st.floats(0, 20))
def test_neither_the_order_of_acts_nor_what_all_messages_share_counts(words: dict[str, float], habit: float):
    own, more = HABIT | words, {"habit": habit}
    found = likenesses([own, own], REPLIES, [[FIND, FIND], [SEND, SEND]])
    assert likenesses([own, own], REPLIES, [[SEND, SEND], [FIND, FIND]]) == found[::-1]
    replies = [[one | more for one in reply] for reply in REPLIES]
    assert likenesses([own | more] * 2, replies, [[FIND | more] * 2, [SEND | more] * 2]) == [
        pytest.approx(one) for one in found
    ]


def test_vectors_are_compared_with_their_mean():
    assert mean_topic([{"a": 1.0}, {"a": 3.0, "b": 2.0}]) == {"a": 2.0, "b": 1.0}
    assert deviation({"a": 1.0}, {"b": 2.0}) == {"a": 1.0, "b": -2.0}
    assert projection({"a": 2.0, "b": 5.0}, {"a": 4.0}) == 0.5
    assert projection({"a": 2.0}, {}) == 0
