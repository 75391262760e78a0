"""Replies and ops are compared by similarity alone; the probabilities of labels choose among the ops."""

from __future__ import annotations

import pytest

from reyn.models.two_step import REPLY_MARGIN, weighed_acts


@pytest.mark.parametrize(
    ("probabilities", "similarities", "choice"),
    [
        ([0.9, 0.05, 0.05], [0.3, 0.6, 0.5], 1),  # a likely label does not make a reply
        ([0.0001, 0.9, 0.0999], [0.6, 0.5, 0.5], 0),  # an unlikely one does not prevent it
        ([0.2, 0.4, 0.4], [0.5, 0.5 + REPLY_MARGIN / 2, 0.1], 0),  # an op has to be clearly more similar
        ([0.2, 0.1, 0.7], [0.3, 0.5, 0.5], 2),  # the label decides between two ops that are equally similar
    ],
)
def test_a_reply_is_chosen_by_its_similarity(probabilities, similarities, choice):
    weights = weighed_acts(probabilities, similarities, 1)
    assert max(range(3), key=weights.__getitem__) == choice
    assert sum(weights) == pytest.approx(1)
