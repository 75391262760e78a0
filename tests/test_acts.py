"""The benchmark of acts: its tasks, and what it reports about a model that does what is right, or nothing."""

from __future__ import annotations

from pathlib import Path

from bench.acts.__main__ import measure, shares
from bench.acts.measure import SCRIPTED, Bench
from bench.acts.tasks import HALVES, Act, has_right_arguments, tasks_of


def test_the_halves_have_120_items_each_and_no_task_in_common():
    tasks = [tasks_of(half) for half in HALVES]
    for half in tasks:
        items = [item for task in half for item in task.items]
        assert (len(half), len(items)) == (10, 120)
        assert sum(bool(item.acts) for item in items) == 60
        assert sum(len(item.acts) > 1 for item in items) == 5
    assert not {task.name for task in tasks[0]} & {task.name for task in tasks[1]}


def test_a_model_that_does_what_is_right_has_full_marks(tmp_path: Path):
    tasks = tasks_of("tuning")
    items = [item for task in tasks for item in (task.items[1], task.items[10])]
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
