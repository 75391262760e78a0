"""Convert the older form of the skill language to the documented one.

A skill is in the older form if a step has a `type:` key or an artifact has a `schema:` wrapper. There,
`max_act_turns: 0` means the default, unquoted `yes`, `no`, `on`, `off` are booleans, a word stands for a list of one,
ops on the web request `web` by themselves, and unknown keys are warnings. Values keep their positions; `reyn.lint.fix`
rewrites the files themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.documents import Document, KeyPath, Mark

FILE_PERMISSIONS = ("read", "write")
"""Keys of the older, nested form `permissions: {file: {read: …}}`."""


IMPLIED_PERMISSIONS = ("web",)
"""Permissions that a skill in the older form did not have to request. The operator still decides about each host."""


IGNORED_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "ask_user": ("required",),
    "judge_output": ("model", "target"),
    "run_skill": ("model", "output_language", "workspace"),
    "web_search": ("backend",),
}
"""Arguments of ops that the older form had and that have no effect here, by kind."""
_TARGET = "artifact."
"""Begins the `target` of a judgement: a path in the artifact, which is an argument from the artifact here."""


def is_older_form(front_matter: Iterable[Document], artifacts: Iterable[Document]) -> bool:
    """Return whether any of a skill's files uses the older form."""
    return any(_has_typed_steps(file.value) for file in front_matter) or any(
        is_wrapped(file.value) for file in artifacts
    )


def is_wrapped(value: Any) -> bool:
    """Return whether an artifact file has its schema under `schema:`, next to `name:`."""
    return isinstance(value, dict) and "schema" in value and "name" in value


def data_schema(value: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the schema of an artifact's data, and its path in the file.

    With `wrapped: false`, the older form described the whole artifact; a schema with the properties `type` and `data`
    then contains the schema of the data.
    """
    if not is_wrapped(value):
        return value, ()
    schema = value["schema"]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if value.get("wrapped", True) is False and isinstance(properties, dict) and properties.keys() >= {"type", "data"}:
        return properties["data"], ("schema", "properties", "data")
    return schema, ("schema",)


def module_path(module: Any) -> Any:
    """Return `./stats.py` for the older spelling `stats`; other values unchanged."""
    is_bare = isinstance(module, str) and module and not module.endswith(".py")
    return f"./{module.removeprefix('./')}.py" if is_bare else module


def step_lists(value: Any) -> list[tuple[KeyPath, list[Any]]]:
    """Return every list of steps in a file's front matter, with its path."""
    if not isinstance(value, dict):
        return []
    lists: list[tuple[KeyPath, list[Any]]] = []
    if isinstance(value.get("preprocessor"), list):
        lists.append((("preprocessor",), value["preprocessor"]))
    postprocessor = value.get("postprocessor")
    if isinstance(postprocessor, dict) and isinstance(postprocessor.get("steps"), list):
        lists.append((("postprocessor", "steps"), postprocessor["steps"]))
    return lists


def modernize(document: Document) -> Document:
    """Return a front-matter document of the older form in the documented form."""
    if not isinstance(document.value, dict):
        return document
    value, marks = dict(document.value), dict(document.marks)
    if value.get("max_act_turns") == 0:
        del value["max_act_turns"]
    if isinstance(value.get("finish_criteria"), str):
        value["finish_criteria"] = [part.strip() for part in value["finish_criteria"].split(",") if part.strip()]
    if isinstance(value.get("graph"), dict):
        value["graph"] = {node: [to] if isinstance(to, str) else to for node, to in value["graph"].items()}
    if isinstance(value.get("permissions"), dict):
        value["permissions"] = _modern_permissions(value["permissions"], marks)
    postprocessor = value.get("postprocessor")
    if isinstance(postprocessor, dict):
        value["postprocessor"] = postprocessor = dict(postprocessor)
        if "output" in postprocessor and "output_schema" not in postprocessor:
            postprocessor["output_schema"] = postprocessor.pop("output")
    for path, steps in step_lists(value):
        by_step = _marks_by_step(marks, path)
        modern = [_modern_step(step, (*path, index), by_step.get(index, []), marks) for index, step in enumerate(steps)]
        if path == ("preprocessor",):
            value["preprocessor"] = modern
        else:
            value["postprocessor"]["steps"] = modern
    return msgspec.structs.replace(document, value=value, marks=marks)


def _has_typed_steps(value: Any) -> bool:
    return any("type" in step for _, steps in step_lists(value) for step in steps if isinstance(step, dict))


def _modern_permissions(permissions: dict[str, Any], marks: dict[KeyPath, Mark]) -> dict[str, Any]:
    """Convert `{file: {read: …}}` to `{file.read: …}`, and module names of python entries to paths."""
    modern: dict[str, Any] = {}
    for key, value in permissions.items():
        if key == "file" and isinstance(value, dict) and value.keys() <= {*FILE_PERMISSIONS}:
            for access, paths in value.items():
                modern[f"file.{access}"] = paths
                marks["permissions", f"file.{access}"] = marks["permissions", "file", access]
        elif key == "python" and isinstance(value, list):
            modern[key] = [
                entry | {"module": module_path(entry["module"])}
                if isinstance(entry, dict) and "module" in entry
                else entry
                for entry in value
            ]
        else:
            modern[key] = value
    return modern


def _marks_by_step(marks: dict[KeyPath, Mark], path: KeyPath) -> dict[str | int, list[KeyPath]]:
    """Group the marked paths below a list of steps by step."""
    depth = len(path)
    groups: dict[str | int, list[KeyPath]] = {}
    for mark in marks:
        if len(mark) > depth and mark[:depth] == path:
            groups.setdefault(mark[depth], []).append(mark)
    return groups


def _modern_step(step: Any, path: KeyPath, inside: list[KeyPath], marks: dict[KeyPath, Mark]) -> Any:
    """Convert `{type: python, module: …}` to `{python: {module: …}}`; `inside` are the marked paths of the step."""
    if not isinstance(step, dict) or not isinstance(step.get("type"), str):
        return step
    kind, depth = step["type"], len(path)
    arguments = {key: item for key, item in step.items() if key != "type"}
    if kind == "python" and "module" in arguments:
        arguments["module"] = module_path(arguments["module"])
    if kind == "run_op" and isinstance(arguments.get("op"), dict):
        arguments = _modern_op(arguments)
    if "apply" in arguments:
        below = [old for old in inside if len(old) > depth and old[depth] == "apply"]
        arguments["apply"] = _modern_step(arguments["apply"], (*path, "apply"), below, marks)
        inner = step["apply"].get("type") if isinstance(step["apply"], dict) else None
        added = [(*path, "apply", inner, *old[depth + 1 :]) for old in below] if inner else []
        inside = [*inside, *(mark for mark in added if mark in marks)]
    for old in inside:
        if len(old) > depth and old[depth] != "type":
            marks[*path, kind, *old[depth:]] = marks[old]
    if (*path, "type") in marks:
        marks[*path, kind] = marks[*path, "type"]
    return {kind: arguments}


def _modern_op(arguments: dict[str, Any]) -> dict[str, Any]:
    """Drop the arguments of an op that have no effect, and take what a judgement judges from the artifact."""
    op = arguments["op"]
    kind = op.get("kind")
    ignored = IGNORED_ARGUMENTS.get(kind, ()) if isinstance(kind, str) else ()
    modern = arguments | {"op": {name: value for name, value in op.items() if name not in ignored}}
    target, bound = op.get("target"), arguments.get("args_from")
    if kind == "judge_output" and isinstance(target, str) and target.startswith(_TARGET) and "output" not in op:
        modern["args_from"] = {"output": target.removeprefix(_TARGET)} | (bound if isinstance(bound, dict) else {})
    return modern
