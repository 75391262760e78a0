"""The older way of writing becomes the documented one, value by value, each keeping its place in the file.

A skill is *older* as soon as one of its steps has a `type:` or one of its artifacts a `schema:`. In an older skill
`max_act_turns: 0` means the default, unquoted `yes`, `no`, `on`, `off` are booleans, a lone word stands for a list of
one, and unknown keys are warnings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.documents import Document, Mark, Place


def is_older(fronts: Iterable[Document], artifacts: Iterable[Document]) -> bool:
    return any(_has_typed_steps(front.value) for front in fronts) or any(is_wrapped(file.value) for file in artifacts)


def is_wrapped(value: Any) -> bool:
    """Whether an artifact's file holds its schema under `schema:`, beside its name."""
    return isinstance(value, dict) and "schema" in value and "name" in value


def _has_typed_steps(value: Any) -> bool:
    return any("type" in step for _, steps in step_lists(value) for step in steps if isinstance(step, dict))


def step_lists(value: Any) -> list[tuple[Place, list[Any]]]:
    """Where a file has lists of steps."""
    if not isinstance(value, dict):
        return []
    found: list[tuple[Place, list[Any]]] = []
    if isinstance(value.get("preprocessor"), list):
        found.append((("preprocessor",), value["preprocessor"]))
    after = value.get("postprocessor")
    if isinstance(after, dict) and isinstance(after.get("steps"), list):
        found.append((("postprocessor", "steps"), after["steps"]))
    return found


def modernise(document: Document) -> Document:
    """The same file as its author would write it today."""
    if not isinstance(document.value, dict):
        return document
    value, marks = dict(document.value), dict(document.marks)
    if value.get("max_act_turns") == 0:
        del value["max_act_turns"]
    if isinstance(value.get("finish_criteria"), str):
        value["finish_criteria"] = [part.strip() for part in value["finish_criteria"].split(",") if part.strip()]
    if isinstance(value.get("graph"), dict):
        value["graph"] = {node: [to] if isinstance(to, str) else to for node, to in value["graph"].items()}
    after = value.get("postprocessor")
    if isinstance(after, dict):
        value["postprocessor"] = after = dict(after)
        if "output" in after and "output_schema" not in after:
            after["output_schema"] = after.pop("output")
    for place, steps in step_lists(value):
        inside = _by_step(marks, place)
        modern = [_modern_step(step, (*place, index), inside.get(index, []), marks) for index, step in enumerate(steps)]
        if place == ("preprocessor",):
            value["preprocessor"] = modern
        else:
            value["postprocessor"]["steps"] = modern
    return msgspec.structs.replace(document, value=value, marks=marks)


def _by_step(marks: dict[Place, Mark], place: Place) -> dict[str | int, list[Place]]:
    """The places inside each step of a list."""
    depth = len(place)
    found: dict[str | int, list[Place]] = {}
    for mark in marks:
        if len(mark) > depth and mark[:depth] == place:
            found.setdefault(mark[depth], []).append(mark)
    return found


def _modern_step(step: Any, place: Place, inside: list[Place], marks: dict[Place, Mark]) -> Any:
    """`{type: python, module: …}` becomes `{python: {module: …}}`; what is already so stays."""
    if not isinstance(step, dict) or not isinstance(step.get("type"), str):
        return step
    kind, depth = step["type"], len(place)
    arguments = {key: item for key, item in step.items() if key != "type"}
    if "apply" in arguments:
        below = [old for old in inside if len(old) > depth and old[depth] == "apply"]
        arguments["apply"] = _modern_step(arguments["apply"], (*place, "apply"), below, marks)
        inner = step["apply"].get("type") if isinstance(step["apply"], dict) else None
        added = [(*place, "apply", inner, *old[depth + 1 :]) for old in below] if inner else []
        inside = [*inside, *(mark for mark in added if mark in marks)]
    for old in inside:
        if len(old) > depth and old[depth] != "type":
            marks[*place, kind, *old[depth:]] = marks[old]
    if (*place, "type") in marks:
        marks[*place, kind] = marks[*place, "type"]
    return {kind: arguments}
