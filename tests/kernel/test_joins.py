"""The join of branches against a small model of it, for branches that end in any order."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.kernel.core.joins import MAX_ATTEMPTS, Join

Need = Literal["all", "any"] | int
NEEDS = st.one_of(st.sampled_from(["all", "any"]), st.integers(1, 6))
ON_ERROR = st.sampled_from(["fail", "collect", "retry"])
ENDS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30)


def expected(total: int, need: Any, on_error: str, ends: list[tuple[int, bool]]) -> tuple[str, list[int]]:
    """What the documentation says, from all ends at once: the verdict, and the branches that are joined."""
    attempts = dict.fromkeys(range(total), MAX_ATTEMPTS if on_error == "retry" else 1)
    done: list[int] = []
    dead: set[int] = set()
    needed = {"all": total, "any": 1}.get(need, need)

    def verdict() -> str:
        alive = total - len(done) - len(dead)
        if need == "all" and on_error == "collect":
            return "open" if alive else "met"
        if len(done) >= needed:
            return "met"
        return "open" if len(done) + alive >= needed else "impossible"

    for branch, has_completed in ends:
        if verdict() != "open":
            break
        if branch >= total or branch in done or branch in dead:
            continue
        if has_completed:
            done.append(branch)
        else:
            attempts[branch] -= 1
            dead |= set() if attempts[branch] else {branch}
    return verdict(), done


@given(st.integers(0, 6), NEEDS, ON_ERROR, ENDS)
def test_a_join_does_what_its_model_says(total: int, need: Need, on_error: str, ends: list[tuple[int, bool]]):
    join = Join(total, need, on_error)
    for branch, has_completed in ends:
        if join.verdict != "open":
            break
        if branch < total and branch not in join.completed and branch not in join.failed:
            runs_again = join.end(branch, has_completed=has_completed)
            assert runs_again == (branch not in join.completed and branch not in join.failed)
    assert (join.verdict, join.completed) == expected(total, need, on_error, ends)
    assert join.left >= 0
    assert len(join.completed) <= total


@given(st.integers(0, 6), NEEDS, ON_ERROR, st.randoms())
def test_every_join_is_decided_when_all_branches_have_ended(total: int, need: Need, on_error: str, chance: Any):
    join = Join(total, need, on_error)
    waiting = list(range(total))
    while join.verdict == "open":
        assert waiting, "the join is open, and nothing is left that could decide it"
        branch = waiting.pop(chance.randrange(len(waiting)))
        if join.end(branch, has_completed=chance.random() < 0.5):
            waiting.append(branch)
    if join.verdict == "met" and not (need == "all" and on_error == "collect"):
        assert len(join.completed) == join.needed
    assert not {*join.completed} & {*join.failed}


@pytest.mark.parametrize(("need", "verdict"), [("all", "met"), ("any", "impossible"), (1, "impossible")])
def test_no_branches(need: Need, verdict: str):
    assert Join(0, need, "fail").verdict == verdict
