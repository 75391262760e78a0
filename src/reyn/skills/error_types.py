"""The type of the errors that arrive at a handler: `node_error`, with what arrived at the nodes that send it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.skills.error_settings import NODE_ERROR
from reyn.skills.fan_out import schema_part
from reyn.skills.values import END, ERROR_TYPE, ArtifactType, is_skill_node, skill_of

if TYPE_CHECKING:
    from reyn.skills.values import Skill


def error_sources(skill: Skill, handler: str) -> list[str]:
    """Return the nodes whose errors arrive at a handler."""
    return [node for node, settings in skill.nodes.items() if handler in settings.on_error.values()]


def error_type(skill: Skill, handler: str) -> ArtifactType:
    """Return the type of the errors that arrive at a handler, also through nodes with rules that pass it on."""
    inputs: dict[str, ArtifactType] = {}
    for node in _sources_through_rules(skill, handler):
        is_known = skill_of(node) in skill.skills if is_skill_node(node) else node in skill.phases
        if not is_known:
            return ERROR_TYPE
        inputs |= {one.name: one for one in skill.inputs_of(node) if one.name != NODE_ERROR}
    if not inputs:
        return ERROR_TYPE
    return _with_inputs(inputs.values())


def _sources_through_rules(skill: Skill, handler: str) -> list[str]:
    found: dict[str, None] = {}
    seen, queue = {handler}, [handler]
    while queue:
        target = queue.pop()
        found |= dict.fromkeys(error_sources(skill, target))
        for node, rules in skill.rules.items():
            if node not in seen and any(rule.to == target and rule.artifact is None for rule in rules):
                seen.add(node)
                queue.append(node)
    return list(found)


def _with_inputs(inputs: Iterable[ArtifactType]) -> ArtifactType:
    schemas = [
        {
            "type": "object",
            "properties": {"type": {"const": one.name}, "data": schema_part(one)},
            "required": ["type", "data"],
        }
        for one in inputs
    ]
    assert isinstance(ERROR_TYPE.schema, dict)
    given = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    properties = ERROR_TYPE.schema["properties"] | {"input": given}
    return replace(ERROR_TYPE, schema=ERROR_TYPE.schema | {"properties": properties})


def with_error_types(skill: Skill) -> Skill:
    """Return the skill whose handlers know what arrived at the nodes whose errors they receive."""
    if not any(settings.on_error for settings in skill.nodes.values()):
        return skill
    phases = {
        name: phase
        if all(one.name != NODE_ERROR for one in phase.inputs)
        else replace(
            phase,
            inputs=tuple(error_type(skill, name) if one.name == NODE_ERROR else one for one in phase.inputs),
        )
        for name, phase in skill.phases.items()
    }
    final = error_type(skill, END) if skill.final_output.name == NODE_ERROR else skill.final_output
    return replace(skill, phases=phases, final_output=final)
