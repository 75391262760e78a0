"""The state of a run as its skill declares it: what an artifact changes, and the values that are read.

Lists refer to artifacts, so that a change costs the same however long they are. Only what is read is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.journal import Blob, canonical, kinds
from reyn.skills.state_fields import STATE_ROOT

if TYPE_CHECKING:
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.run_context import RunContext
    from reyn.skills import Skill
    from reyn.skills.state_fields import StateField

_MAX_INTEGER = 2**53


class StateFault(Exception):
    """A sum of the state has no value."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def change_of(run: RunContext, artifact: dict[str, Any], tape: Tape) -> kinds.StateChange | None:
    """Return what an artifact changes in the lists and sums of the state; `None` if it changes nothing.

    Raises:
        StateFault: A sum has no value.
    """
    fields = run.state_fields.get(artifact["type"])
    if fields is None:
        return None
    history = tape.state.history
    items: dict[str, int] = {}
    sums: dict[str, int | float] = {}
    for name, field in fields.items():
        if field.append:
            items[name] = min(len(history.items(name)) + 1, field.max or 1)
        elif (number := _number(artifact, name, field)) is not None:
            sums[name] = total = history.sum(name) + number
            if not math.isfinite(total) or (isinstance(total, int) and abs(total) > _MAX_INTEGER):
                raise StateFault(f"`state.{name}`: the sum of `{field.sum}` is too large")
    return kinds.StateChange(items, sums) if items or sums else None


def _number(artifact: dict[str, Any], name: str, field: StateField) -> int | float | None:
    """Return what an artifact adds to a sum; `None` if its field is missing or null."""
    value: Any = artifact
    for word in field.number_path:
        value = value.get(word) if isinstance(value, dict) else None
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise StateFault(f"`state.{name}`: `{field.sum}` is not a number")


def read_state(skill: Skill, names: Iterable[str], tape: Tape) -> dict[str, Any]:
    """Return fields of the state: the data of artifacts, and sums. A `latest` without an artifact is missing."""
    history = tape.state.history
    found: dict[str, Any] = {}
    for name in names:
        field = skill.state[name]
        if field.append:
            found[name] = [_data(one, tape) for one in history.items(name)]
        elif field.sum:
            found[name] = history.sum(name)
        elif field.latest in history.latest:
            found[name] = _data(history.latest[field.latest], tape)
    return found


def _data(name: str, tape: Tape) -> Any:
    return msgspec.json.decode(tape.content(name))["data"]


class ReadContent(NamedTuple):
    """Content of a frame that a phase reads besides its input: its heading, the type of the artifact, and whether it
    is not stored yet."""

    heading: str
    type: str
    content: Blob
    is_new: bool = False


def shown_state(skill: Skill, name: str, entry: Visit, tape: Tape) -> list[ReadContent]:
    """Return what a frame contains of a field of the state.

    Each artifact of a list is content of its own, so that a longer list stores nothing again.
    """
    field, history = skill.state.get(name), tape.state.history
    if field is None:
        return []
    if field.sum:
        total = canonical({"data": history.sum(name), "type": f"{STATE_ROOT}.{name}"})
        return [ReadContent(name, "", Blob.of(total), is_new=True)]
    latest = [one for one in (entry.latest.get(field.latest),) if one not in (None, entry.input.hash)]
    names = history.items(name) if field.append else latest
    headings = [f"{name} {number}" for number in range(1, len(names) + 1)] if field.append else [name]
    contents = [Blob(one, tape.content(one)) for one in names if one]
    return [ReadContent(heading, field.type, one) for heading, one in zip(headings, contents, strict=False)]
