"""The tasks: skills and agents with 5 to 12 inputs each, and what a right run does with each of them.

A file of `tasks/<set>/` describes a skill with one phase, or an agent: the task, the ops that it allows, its exits,
and what tools, sub-skills and users answer. An item has an `input`, the `acts` that it needs (none for half of the
items), the `exit` and `fields` of the decision. An expected value is a text or number, `{contains: [...]}`, or a list
of these.

Prompts are tuned on `tuning` and `tuning_several` alone. `held2` gives the figures, `held` gave those of earlier
prompts. The sets have no skill in common. Most inputs of `tuning_several` and `held_several` need two or three acts. In
`must`, each input needs an act, because the phase has work that must be done.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

HERE = Path(__file__).parent
TaskSet = Literal["held", "held2", "held_several", "must", "tuning", "tuning_several"]
TASK_SETS: tuple[TaskSet, ...] = ("held", "held2", "held_several", "must", "tuning", "tuning_several")


class Act(NamedTuple):
    """An op that an item needs: its kind, or `KIND.FORM`, and its arguments."""

    op: str
    args: dict[str, Any]


class Item(NamedTuple):
    """One input with what a right run does."""

    task: str
    number: int
    input: Any
    acts: tuple[Act, ...]
    exit: str
    fields: dict[str, Any]


class Task(NamedTuple):
    """A skill or agent, and its items."""

    name: str
    definition: dict[str, Any]
    items: tuple[Item, ...]

    @property
    def is_agent(self) -> bool:
        return bool(self.definition.get("agent"))


def tasks_of(name: TaskSet) -> list[Task]:
    """Return the tasks of a set, by name."""
    return [_task(yaml.safe_load(path.read_text())) for path in sorted((HERE / "tasks" / name).glob("*.yaml"))]


def _task(definition: dict[str, Any]) -> Task:
    name = definition["name"]
    items = [
        Item(
            name,
            number,
            _input(definition, row["input"]),
            tuple(Act(act["op"], act.get("args", {})) for act in row["acts"]),
            row.get("exit", "end"),
            row.get("fields", {}),
        )
        for number, row in enumerate(definition["items"])
    ]
    return Task(name, definition, tuple(items))


def _input(definition: dict[str, Any], value: Any) -> Any:
    """Return the input of a run; a text is that of the only field."""
    if definition.get("agent") or not isinstance(value, str):
        return value
    [field] = definition["input"]
    return {field: value}


def performs(act: Act, call: dict[str, Any]) -> bool:
    """Return whether a call is of the op that an act names."""
    kind, _, form = act.op.partition(".") if not act.op.startswith("mcp:") else (act.op, "", "")
    return bool(call["kind"] == kind and (not form or call.get("op") == form))


def has_right_arguments(act: Act, call: dict[str, Any]) -> bool:
    """Return whether a call has the arguments of an act. Those of an MCP tool are below `args`."""
    below = call.get("args") if isinstance(call.get("args"), dict) else {}
    return performs(act, call) and has_right_fields(act.args, (below or {}) | call)


def has_right_fields(expected: dict[str, Any], data: Any) -> bool:
    """Return whether an object has the expected fields."""
    return isinstance(data, dict) and all(is_right(value, data.get(name)) for name, value in expected.items())


def is_right(expected: Any, value: Any) -> bool:
    """Return whether a value is an expected one. Case and punctuation do not count."""
    if isinstance(expected, dict):
        return any(str(part).casefold() in str(value).casefold() for part in expected["contains"])
    if isinstance(expected, list):
        return any(is_right(one, value) for one in expected)
    if isinstance(expected, str):
        return isinstance(value, str) and _normalized(expected) == _normalized(value)
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value - expected) < 1e-9


def some_value(expected: Any) -> Any:
    """Return one value that `is_right` accepts."""
    accepted = expected["contains"] if isinstance(expected, dict) else expected
    return accepted[0] if isinstance(accepted, list) else accepted


def _normalized(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text.casefold()).split())
