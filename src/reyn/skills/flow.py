"""Types flow through steps: each step reads what is there and binds what it makes; a path that leads nowhere is told.

The schema that is followed is that of the whole artifact, `{type, data}`. Where a schema is open (no `properties`, a
combinator, a reference) anything may be there, and nothing is claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.skills.values import ArtifactType, Iterate, LintPlan, PythonCall, RunOp, RunSkill, Validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reyn.jsonschema import Schema
    from reyn.skills.values import AnyStep, Skill

FINDINGS_SCHEMA: Schema = {
    "type": "array",
    "items": {"type": "object", "properties": {"path": {"type": "string"}, "message": {"type": "string"}}},
}
RESULT_SCHEMA: Schema = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "status": {"type": "string"}},
    "additionalProperties": True,
}


class Slip(NamedTuple):
    """A path of a step that leads nowhere: which step, under which key, and why."""

    step: int
    key: tuple[str | int, ...]
    message: str


def enrich(
    artifact: ArtifactType, steps: Sequence[AnyStep], final_output: Callable[[str], ArtifactType | None]
) -> tuple[Schema, list[Slip]]:
    """The schema of an artifact's data after the steps, and every path that does not fit on the way. `final_output`
    knows what a skill of a name gives."""
    schema: Any = envelope(artifact)
    slips: list[Slip] = []
    for index, step in enumerate(steps):
        slips += [Slip(index, key, message) for key, message in _reads(schema, step)]
        if step.into is not None:
            bound = _bind(schema, step.into.split("."), _result(step, final_output))
            if bound is None:
                slips.append(Slip(index, ("into",), f"`{step.into}` has no parent to be bound in"))
            else:
                schema = bound
    return look_up(schema, "data"), slips


def enriched_input_schema(skill: Skill, phase: str) -> Schema:
    """The schema of what the model of a phase sees as input: what came in, and what the preprocessor bound."""
    described = skill.phases[phase]

    def result_of(name: str) -> ArtifactType | None:
        return skill.skills[name].result if name in skill.skills else None

    schemas = [enrich(artifact, described.preprocessor, result_of)[0] for artifact in described.inputs]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def envelope(artifact: ArtifactType) -> Schema:
    return {
        "type": "object",
        "properties": {"type": {"const": artifact.name}, "data": artifact.schema},
        "required": ["type", "data"],
    }


def look_up(schema: Schema, path: str) -> Schema:
    """The schema at a path; `True` where anything may be, `False` where nothing can be."""
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
    """Whether fields may be there that the schema does not name, in so many words."""
    if not _may_be(schema, "object"):
        return False
    unclear = {"$ref", "anyOf", "oneOf", "allOf", "patternProperties", "if"} & schema.keys()
    return bool(unclear) or "properties" not in schema or schema.get("additionalProperties") not in (None, False)


def _may_be(schema: dict[str, Any], kind: str) -> bool:
    """Whether a value of this type can be there; a schema without a type leaves it open."""
    types = schema.get("type", kind)
    return kind in (types if isinstance(types, list) else [types])


def _reads(schema: Schema, step: AnyStep) -> Iterator[tuple[tuple[str | int, ...], str]]:
    match step:
        case RunOp(args_from=paths):
            yield from _missing(schema, paths, ("args_from",))
        case Iterate(over=over, apply=inner):
            items = look_up(schema, over)
            if items is False:
                yield ("over",), f"`{over}` does not exist"
            elif isinstance(items, dict) and not _may_be(items, "array"):
                yield ("over",), f"`{over}` is not a list"
            else:
                item = items.get("items", True) if isinstance(items, dict) else True
                around = {"type": "object", "properties": {"item": item, "index": {"type": "integer"}}}
                inside = _with(schema, "_iter", around)
                if isinstance(inner, RunOp):
                    yield from _missing(inside, inner.args_from, ("apply", "run_op", "args_from"))
                elif isinstance(inner, RunSkill):
                    yield from _missing_in_input(inside, inner.input, ("apply", "run_skill", "input"))
        case RunSkill(input=given):
            yield from _missing_in_input(schema, given, ("input",))
        case Validate(target=path) | LintPlan(over=path):
            if look_up(schema, path) is False:
                yield ("target" if isinstance(step, Validate) else "over",), f"`{path}` does not exist"


def _missing(
    schema: Schema, paths: dict[str, str], way: tuple[str, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for name, path in paths.items():
        if look_up(schema, path) is False:
            yield (*way, name), f"`{path}` does not exist"


def _missing_in_input(schema: Schema, given: Any, way: tuple[str, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if is_path(given) and look_up(schema, given) is False:
        yield way, f"`{given}` does not exist"
    elif isinstance(given, dict):
        yield from _missing(schema, {name: value for name, value in given.items() if is_path(value)}, way)


def is_path(value: Any) -> bool:
    """Whether a text in the input of a sub-skill stands for what is at that path of the artifact."""
    return isinstance(value, str) and (value == "data" or value.startswith(("data.", "_iter.")))


def _result(step: AnyStep, final_output: Callable[[str], ArtifactType | None]) -> Schema:
    match step:
        case PythonCall(output_schema=schema):
            return schema
        case Validate():
            return FINDINGS_SCHEMA
        case LintPlan():
            return {"type": "array", "items": {"type": "string"}}
        case RunSkill(skill=name):
            found = final_output(name)
            return envelope(found) if found else True
        case Iterate(apply=inner):
            return {"type": "array", "items": _result(inner, final_output)}
    return RESULT_SCHEMA


def _bind(schema: Schema, words: list[str], result: Schema) -> Schema | None:
    """A schema in which a result stands at a path; `None` if there is nothing to hold it."""
    if isinstance(schema, bool):
        return schema or None
    if len(words) == 1:
        return _with(schema, words[0], result) if words[0] and _may_be(schema, "object") else None
    inner = _bind(_child(schema, words[0]), words[1:], result)
    return None if inner is None else _with(schema, words[0], inner)


def _with(schema: Schema, word: str, child: Schema) -> dict[str, Any]:
    known: dict[str, Any] = dict(schema) if isinstance(schema, dict) else {"type": "object"}
    return known | {"properties": {**known.get("properties", {}), word: child}}
