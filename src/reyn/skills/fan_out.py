"""Fan-out and join: the skills that the branches of a node run, and the type of the artifact that joins their results.

A branch that is a phase runs as a skill of that one phase, so that every branch is a child run like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.jsonschema import has_references
from reyn.skills.values import END, ArtifactType, Branch, NodeSettings, Skill, is_skill_node, skill_of

if TYPE_CHECKING:
    from reyn.jsonschema import Schema

MAX_ITEMS = 10_000
"""The maximum number of branches of one visit."""
ITEMS = "items"
"""The property of a joined artifact that has the results of `each`."""
ERRORS = "errors"
"""The property of a joined artifact that lists the branches that failed, with `on_item_error: collect`."""
_ERROR_LIST: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"branch": {"type": ["string", "integer"]}, "message": {"type": "string"}},
        "required": ["branch", "message"],
    },
}


def branch_skill(skill: Skill, branch: Branch) -> Skill:
    """Return the skill that a branch runs."""
    if is_skill_node(branch.do):
        return skill.sub_skill(skill_of(branch.do))
    return replace(
        skill,
        entry=branch.do,
        phases={branch.do: skill.phases[branch.do]},
        graph={branch.do: (END,)},
        final_output=skill.types[branch.output],
        edge_texts={},
        rules={},
        conditions={},
        # The run of a branch has no handlers: its error is that of the node, which has some.
        nodes={branch.do: replace(skill.nodes[branch.do], on_error={})} if branch.do in skill.nodes else {},
        types={},
        state={},
        description="",
        final_output_description="",
        finish_criteria=(),
        postprocessor=None,
        search_hints=(),
        on_phase_failure="fail",
        function="",
        checks_output=False,
    )


def result_type(skill: Skill, node: str) -> ArtifactType | None:
    """Return the type that a node produces if no model chooses it: that of a sub-skill or a fan-out."""
    if is_skill_node(node):
        return skill.result_of(skill_of(node))
    settings = skill.fan_out(node)
    return skill.types.get(settings.joined) if settings is not None else None


def produced_types(skill: Skill, node: str) -> list[ArtifactType]:
    """Return the types of the artifacts that a visit of a node, or of a phase that is a branch, can propose."""
    own = result_type(skill, node)
    if own is not None:
        return [own]
    found: list[ArtifactType] = []
    for target in skill.graph.get(node, ()):
        is_known = target == END or target in skill.phases or skill_of(target) in skill.skills
        found += ((skill.final_output,) if target == END else skill.inputs_of(target)) if is_known else ()
    branches = (one for settings in skill.nodes.values() for one in settings.branches)
    return [*found, *(skill.types[one.output] for one in branches if one.do == node and one.output in skill.types)]


def joined_schema(settings: NodeSettings, results: Mapping[str, ArtifactType]) -> dict[str, Any]:
    """Return the schema of the data that joins the results of branches, whose types are given by branch."""
    properties: dict[str, Schema] = {}
    if settings.each is not None:
        properties[ITEMS] = {"type": "array", "items": schema_part(results[""])}
        required = [ITEMS]
    else:
        properties |= {name: schema_part(result) for name, result in results.items()}
        is_complete = settings.need == "all" and settings.on_item_error != "collect"
        required = [*properties] if is_complete else []
    if settings.on_item_error == "collect":
        properties[ERRORS] = _ERROR_LIST
        required.append(ERRORS)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def schema_part(result: ArtifactType) -> Schema:
    """Return the schema of a result as a part of another one, in which its references keep their targets."""
    schema = result.schema
    if not isinstance(schema, dict):
        return schema
    if has_references(schema) and "$id" not in schema:
        schema = {"$id": f"urn:reyn:{result.name}"} | schema
    return schema if not result.description or "description" in schema else schema | {"description": result.description}


def phases_of_branches(skill: Skill) -> frozenset[str]:
    """Return the phases that branches of a skill run."""
    if not skill.nodes:
        return frozenset()
    found = (branch.do for settings in skill.nodes.values() for branch in settings.branches)
    return frozenset(name for name in found if not is_skill_node(name))
