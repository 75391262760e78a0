"""What arrives at a node of the graph and what leaves it, where no model decides about it; errors at their handlers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.skills.error_settings import NODE_ERROR
from reyn.skills.fan_out import schema_part
from reyn.skills.values import END, ERROR_TYPE, ArtifactType, is_skill_node, skill_of

if TYPE_CHECKING:
    from reyn.skills.values import Skill


def arriving(skill: Skill, node: str) -> tuple[ArtifactType, ...] | None:
    """Return the types that arrive at a node from the nodes before it; `None` if they do not say all of it."""
    return _arriving(skill, node, frozenset())


def accepted_by(skill: Skill, target: str) -> tuple[ArtifactType, ...]:
    """Return the types that a node accepts, or that the run may finish with."""
    return (skill.final_output,) if target == END else skill.inputs_of(target)


def _produced(skill: Skill, node: str, target: str, seen: frozenset[str]) -> tuple[ArtifactType, ...] | None:
    match skill.node_kind(node):
        case "skill":
            return (skill.skills[skill_of(node)].result,) if skill_of(node) in skill.skills else None
        case "rules":
            made: list[ArtifactType] = []
            for rule in skill.rules[node]:
                if rule.to != target:
                    continue
                types = _arriving(skill, node, seen) if rule.artifact is None else (rule.artifact,)
                if types is None:
                    return None
                made += types
            return tuple({one.name: one for one in made}.values())
        case "fan_out":
            settings = skill.fan_out(node)
            return (skill.types[settings.joined],) if settings is not None and settings.joined in skill.types else None
    return None


def _arriving(skill: Skill, node: str, seen: frozenset[str]) -> tuple[ArtifactType, ...] | None:
    if node in skill.phases:
        return skill.phases[node].inputs
    if node in seen:
        return ()
    found: dict[str, ArtifactType] = {}
    before = [one for one in skill.graph if node in skill.graph[one]]
    handles = _error_sources(skill, node)
    if node == skill.entry or not (before or handles):
        return None
    if handles:
        found[NODE_ERROR] = _error_type(skill, node)
    for one in before:
        types = _produced(skill, one, node, seen | {node})
        if types is None:
            return None
        found |= {artifact.name: artifact for artifact in types}
    return tuple(found.values())


# -- errors -------------------------------------------------------------------------------------------


def _error_sources(skill: Skill, handler: str) -> list[str]:
    """Return the nodes whose errors arrive at a handler."""
    return [node for node, settings in skill.nodes.items() if handler in settings.on_error.values()]


def _error_type(skill: Skill, handler: str) -> ArtifactType:
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
        found |= dict.fromkeys(_error_sources(skill, target))
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
            inputs=tuple(_error_type(skill, name) if one.name == NODE_ERROR else one for one in phase.inputs),
        )
        for name, phase in skill.phases.items()
    }
    final = _error_type(skill, END) if skill.final_output.name == NODE_ERROR else skill.final_output
    return replace(skill, phases=phases, final_output=final)
