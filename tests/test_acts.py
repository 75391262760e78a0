"""The benchmark of acts: its tasks, and what it reports about a model that does what is right, or nothing."""

from __future__ import annotations

from pathlib import Path

from bench.acts.__main__ import measure, shares
from bench.acts.measure import SCRIPTED, Bench
from bench.acts.tasks import TASK_SETS, Act, has_right_arguments, tasks_of


def test_half_of_the_items_of_a_set_need_an_act_and_no_task_is_in_two_sets():
    names = [task.name for task_set in TASK_SETS for task in tasks_of(task_set)]
    assert len(names) == len(set(names))
    assert all(len(item.acts) == 1 for task in tasks_of("must") for item in task.items)
    sizes = {"held": (10, 120, 5), "held2": (10, 100, 10), "tuning": (18, 184, 5)}
    for task_set, (count, size, several) in sizes.items():
        tasks = tasks_of(task_set)
        items = [item for task in tasks for item in task.items]
        assert (len(tasks), len(items), sum(bool(item.acts) for item in items)) == (count, size, size // 2)
        assert sum(len(item.acts) > 1 for item in items) == several
    for name in ("held_several", "tuning_several"):
        needs = [len(item.acts) for task in tasks_of(name) for item in task.items]
        assert sum(need > 1 for need in needs) >= 14
        assert {0, 1} < set(needs)  # what follows an act is not always another one


def test_a_model_that_does_what_is_right_has_full_marks(tmp_path: Path):
    tasks = tasks_of("tuning")
    items = [item for task in tasks for item in task.items if item.number in (1, 10)]
    figures = shares(measure(Bench(tmp_path, SCRIPTED, tasks), items, verbose=True))
    assert {name: share for name, share in figures.items() if share.hits < share.total} == {}
    assert (figures["acts where needed"].total, figures["several acts, all done"].total) == (10, 5)


def test_arguments_are_compared_without_case_and_punctuation():
    act = Act("mcp:shop/find", {"item": "Oak table", "count": 2})
    assert has_right_arguments(act, {"kind": "mcp:shop/find", "args": {"item": "oak  table.", "count": 2}})
    assert not has_right_arguments(act, {"kind": "mcp:shop/find", "args": {"item": "oak table", "count": 3}})
    assert not has_right_arguments(act, {"kind": "mcp:shop/sell", "args": {"item": "oak table", "count": 2}})
    writes = Act("file.write", {"content": {"contains": ["Noon"]}})
    assert has_right_arguments(writes, {"kind": "file", "op": "write", "content": "at noon"})
    assert not has_right_arguments(writes, {"kind": "file", "op": "read", "content": "at noon"})
