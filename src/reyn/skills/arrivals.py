"""What arrives at a node of the graph and what leaves it, where no model decides about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.skills.error_settings import NODE_ERROR
from reyn.skills.error_types import error_sources, error_type
from reyn.skills.values import END, skill_of

if TYPE_CHECKING:
    from reyn.skills.values import ArtifactType, Skill


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
    handles = error_sources(skill, node)
    if node == skill.entry or not (before or handles):
        return None
    if handles:
        found[NODE_ERROR] = error_type(skill, node)
    for one in before:
        types = _produced(skill, one, node, seen | {node})
        if types is None:
            return None
        found |= {artifact.name: artifact for artifact in types}
    return tuple(found.values())
