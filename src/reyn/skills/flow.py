"""Type-check lists of steps: follow an artifact's schema through every step and report paths that cannot exist.

Paths start at the whole artifact, `{type, data}`. Where a schema is open (no `properties`, a combinator, a reference),
any path is accepted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.skills.state_fields import STATE_ROOT, state_name
from reyn.skills.step_types import (
    AnyStep,
    AskUser,
    CheckExpression,
    Iterate,
    LintPlan,
    PythonCall,
    RunOp,
    RunSkill,
    Validate,
)

if TYPE_CHECKING:
    from reyn.jsonschema import Schema
    from reyn.skills.values import ArtifactType

FINDINGS_SCHEMA: Schema = {
    "type": "array",
    "items": {"type": "object", "properties": {"path": {"type": "string"}, "message": {"type": "string"}}},
}
RESULT_SCHEMA: Schema = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "status": {"type": "string"}},
    "required": ["kind", "status"],
    "additionalProperties": True,
}


LOCAL_ROOT = "local"
"""Where steps bind values that are no part of the artifact, so that no model sees them."""


class PathError(NamedTuple):
    """A path in a step that cannot exist: the step's index, the key that has the path, and the message."""

    step: int
    key: tuple[str | int, ...]
    message: str


def impossible_paths(
    inputs: Sequence[ArtifactType],
    steps: Sequence[AnyStep | None],
    result_type: Callable[[str], ArtifactType | None],
    state: Schema | None = None,
    local: Schema | None = None,
) -> list[PathError]:
    """Return paths in steps that exist for no member of the input union; steps after `None` are not checked.

    `state` is the schema of the state, and `local` of the values that steps before the list bind, if there are any.
    """
    known = [step for step in itertools.takewhile(lambda step: step is not None, steps) if step is not None]
    errors = [set(follow(artifact, known, result_type, state, local)[1]) for artifact in inputs]
    return sorted(set.intersection(*errors)) if errors else []


def enrich(
    artifact: ArtifactType,
    steps: Sequence[AnyStep],
    result_type: Callable[[str], ArtifactType | None],
) -> Schema:
    """Return the schema of an artifact's data after the steps; see `follow`."""
    return schema_at(follow(artifact, steps, result_type)[0], "data")


def local_values(
    inputs: Sequence[ArtifactType], steps: Sequence[AnyStep], result_type: Callable[[str], ArtifactType | None]
) -> Schema | None:
    """Return the schema of the values that steps bind to `local`; `None` if there are none.

    The results of steps do not depend on the type of the artifact.
    """
    if not inputs or not any(map(binds_local, steps)):
        return None
    return schema_at(follow(inputs[0], steps, result_type)[0], LOCAL_ROOT)


def follow(
    artifact: ArtifactType,
    steps: Sequence[AnyStep],
    result_type: Callable[[str], ArtifactType | None],
    state: Schema | None = None,
    local: Schema | None = None,
) -> tuple[Schema, list[PathError]]:
    """Return the schema of a whole artifact after the steps, with the values that they bind, and every path error.

    Args:
        artifact: The type of the artifact before the first step.
        steps: The steps.
        result_type: Returns the result type of a sub-skill, by name.
        state: The schema of the state, if the skill has one.
        local: The schema of the values that steps before the first one bind to `local`, if there are any.
    """
    schema: Any = envelope(artifact) if state is None else with_property(envelope(artifact), STATE_ROOT, state)
    errors: list[PathError] = []
    if local is None and any(map(binds_local, steps)):
        local = {"type": "object", "properties": {}, "additionalProperties": False}
    if local is not None:
        schema = with_property(schema, LOCAL_ROOT, local)
    for index, step in enumerate(steps):
        errors += [PathError(index, key, message) for key, message in _read_errors(schema, step)]
        if step.into is not None and step.into.split(".")[0] == STATE_ROOT:
            errors.append(PathError(index, ("into",), f"cannot bind `{step.into}`: only artifacts change the state"))
        elif step.into == LOCAL_ROOT:
            errors.append(PathError(index, ("into",), f"cannot bind `{LOCAL_ROOT}`: name a value, `{LOCAL_ROOT}.NAME`"))
        elif step.into is not None:
            bound = _bind(schema, step.into.split("."), _bound_schema(step, result_type), step.on_error != "skip")
            if bound is None:
                message = f"cannot bind `{step.into}`: its parent is not an object"
                errors.append(PathError(index, ("into",), message))
            else:
                schema = bound
    return schema, errors


def binds_local(step: AnyStep) -> bool:
    """Return whether a step binds its result beside the artifact: `into: local.NAME`."""
    return step.into is not None and step.into.startswith(f"{LOCAL_ROOT}.")


def envelope(artifact: ArtifactType) -> Schema:
    """Return the schema of a whole artifact, `{type, data}`."""
    return {
        "type": "object",
        "properties": {"type": {"const": artifact.name}, "data": artifact.schema},
        "required": ["type", "data"],
    }


def schema_at(schema: Schema, path: str) -> Schema:
    """Return the schema at a path: `True` if any value can be there, `False` if none can."""
    for word in path.split(".") if path else ():
        if isinstance(schema, bool):
            return schema
        schema = _child(schema, word)
    return schema


def _child(schema: dict[str, Any], word: str) -> Schema:
    properties = schema.get("properties")
    if isinstance(properties, dict) and word in properties:
        child: Schema = properties[word]
        return child
    if _is_open(schema):
        extra = schema.get("additionalProperties", True)
        return extra if isinstance(extra, dict) else True
    return False


def _is_open(schema: dict[str, Any]) -> bool:
    """Return whether an object may have fields that the schema does not name."""
    if not _allows_type(schema, "object"):
        return False
    indirect = {"$ref", "anyOf", "oneOf", "allOf", "patternProperties", "if"} & schema.keys()
    return bool(indirect) or "properties" not in schema or schema.get("additionalProperties") not in (None, False)


def _allows_type(schema: dict[str, Any], kind: str) -> bool:
    """Return whether a schema accepts values of a type; one without `type` accepts all."""
    types = schema.get("type", kind)
    return kind in (types if isinstance(types, list) else [types])


def _read_errors(schema: Schema, step: AnyStep) -> Iterator[tuple[tuple[str | int, ...], str]]:
    match step:
        case RunOp(args_from=paths):
            yield from _path_errors(schema, paths, ("args_from",))
        case Iterate(over=over, apply=inner):
            items = schema_at(schema, over)
            if items is False:
                yield ("over",), f"`{over}` does not exist"
            elif isinstance(items, dict) and not _allows_type(items, "array"):
                yield ("over",), f"`{over}` is not a list"
            else:
                item = items.get("items", True) if isinstance(items, dict) else True
                scope = with_property(schema, "_iter", item_schema(item))
                if isinstance(inner, RunOp):
                    yield from _path_errors(scope, inner.args_from, ("apply", "run_op", "args_from"))
                elif isinstance(inner, RunSkill):
                    yield from _input_errors(scope, inner.input, ("apply", "run_skill", "input"))
                elif isinstance(inner, AskUser) and inner.show is not None:
                    yield from _path_errors(scope, {"show": inner.show}, ("apply", "ask_user"))
        case RunSkill(input=value):
            yield from _input_errors(schema, value, ("input",))
        case AskUser(show=str(path)):
            yield from _path_errors(schema, {"show": path}, ())
        case Validate(target=path) | LintPlan(over=path):
            if schema_at(schema, path) is False:
                yield ("target" if isinstance(step, Validate) else "over",), f"`{path}` does not exist"


def _path_errors(
    schema: Schema, paths: dict[str, str], key: tuple[str, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for name, path in paths.items():
        if schema_at(schema, path) is False:
            yield (*key, name), f"`{path}` does not exist"


def _input_errors(schema: Schema, value: Any, key: tuple[str, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if is_data_path(value) and schema_at(schema, value) is False:
        yield key, f"`{value}` does not exist"
    elif isinstance(value, dict):
        yield from _path_errors(schema, {name: item for name, item in value.items() if is_data_path(item)}, key)


def is_data_path(value: Any) -> bool:
    """Return whether a value in the input of a sub-skill is a path into the artifact, not literal text."""
    if not isinstance(value, str):
        return False
    return value == "data" or value.startswith(("data.", "_iter.", "local.")) or state_name(value).isidentifier()


def paths_read(step: AnyStep) -> Iterator[str]:
    """Yield the paths that a step reads."""
    match step:
        case RunOp(args_from=paths):
            yield from paths.values()
        case RunSkill(input=value):
            values = value.values() if isinstance(value, dict) else (value,)
            yield from filter(is_data_path, values)
        case Iterate(over=over, apply=inner):
            yield over
            yield from paths_read(inner)
        case AskUser(show=str(path)) | Validate(target=path) | LintPlan(over=path):
            yield path


def _result_schema(step: AnyStep, result_type: Callable[[str], ArtifactType | None]) -> Schema:
    match step:
        case PythonCall(output_schema=schema):
            return schema
        case AskUser():
            return step.response_schema
        case Validate():
            return FINDINGS_SCHEMA
        case CheckExpression():
            return {"type": "boolean"}
        case LintPlan():
            return {"type": "array", "items": {"type": "string"}}
        case RunSkill(skill=name):
            result = result_type(name)
            return envelope(result) if result else True
        case Iterate(apply=inner):
            return {"type": "array", "items": _result_schema(inner, result_type)}
    return RESULT_SCHEMA


def _bound_schema(step: AnyStep, result_type: Callable[[str], ArtifactType | None]) -> Schema:
    """Return the schema of what a step binds: any value if it may leave what is there, or the result, perhaps null."""
    if step.on_error == "skip" or (step.on_error == "empty" and isinstance(step, Iterate)):
        return True
    result = _result_schema(step, result_type)
    return {"anyOf": [result, {"type": "null"}]} if step.on_error == "empty" and result is not True else result


def _bind(schema: Schema, words: list[str], result: Schema, is_certain: bool) -> Schema | None:
    """Return the schema with a result bound at a path; `None` if the path has no parent object.

    A result that is not certain may be missing.
    """
    if isinstance(schema, bool):
        return schema or None
    if len(words) == 1:
        is_possible = words[0] and _allows_type(schema, "object")
        return with_property(schema, words[0], result, is_required=is_certain) if is_possible else None
    inner = _bind(_child(schema, words[0]), words[1:], result, is_certain)
    return None if inner is None else with_property(schema, words[0], inner, is_required=is_certain)


def item_schema(item: Schema) -> Schema:
    """Return the schema of `_iter`, given that of the items."""
    return {"type": "object", "properties": {"item": item, "index": {"type": "integer"}}}


def with_property(schema: Schema, word: str, child: Schema, *, is_required: bool = False) -> dict[str, Any]:
    """Return the schema of an object that has one more property."""
    known: dict[str, Any] = dict(schema) if isinstance(schema, dict) else {"type": "object"}
    required = {"required": [*known.get("required", ()), word]} if is_required else {}
    return known | {"properties": {**known.get("properties", {}), word: child}} | required
