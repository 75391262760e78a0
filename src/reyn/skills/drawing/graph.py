"""A skill becomes the nodes and edges that are drawn: its phases, its sub-skills, `end`, and what leads where.

Knows nothing of where on a page anything stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.skills.graph import may_finish, successors
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.skills.values import Skill

START = ""  # where the arrow into the entry comes from; no phase has this name
ENTRY_MARK = "● entry"


class Edge(msgspec.Struct, frozen=True):
    """One step that the graph allows, and the artifact type that travels along it (of a sub-skill, unknown)."""

    source: str
    target: str
    artifact: str
    is_loop: bool = False


def nodes(skill: Skill) -> tuple[str, ...]:
    """Everything that is drawn, `end` included, in the order in which it is met from the entry."""
    return tuple(walk(skill)[0])


def edges(skill: Skill) -> tuple[Edge, ...]:
    """Every edge once, by source; a loop is an edge back to a node that led here."""
    met, _, loops = walk(skill)
    return tuple(
        Edge(node, target, artifact_into(skill, target), (node, target) in loops)
        for node in met
        for target in targets_of(skill, node)
    )


def entry_edge(skill: Skill) -> Edge:
    """The arrow from the start mark."""
    return Edge(START, skill.entry, artifact_into(skill, skill.entry))


def is_sub_skill(node: str) -> bool:
    return node.startswith("@")


def kind_of(node: str) -> str:
    """`phase`, `skill` (a sub-skill) or `end`."""
    if node == END:
        return "end"
    return "skill" if is_sub_skill(node) else "phase"


def title_of(node: str) -> str:
    return "◉ end" if node == END else node


def artifact_into(skill: Skill, target: str) -> str:
    if target == END:
        return skill.final_output.name
    return skill.phases[target].input_name if target in skill.phases else ""


def targets_of(skill: Skill, node: str) -> tuple[str, ...]:
    if node == END:
        return ()
    return successors(skill, node) + ((END,) if _finishes(skill, node) else ())


def walk(skill: Skill) -> tuple[list[str], list[str], set[tuple[str, str]]]:
    """Depth first: the nodes as they are met, the same with sources before targets, and the edges that lead back."""
    met: dict[str, None] = {}
    left: dict[str, None] = {}
    loops: set[tuple[str, str]] = set()
    # By name, because skills that are equal may hold their phases in different orders.
    others = {*skill.phases, *skill.graph, *(name for names in skill.graph.values() for name in names)} - {END}
    for root in (skill.entry, *sorted(others)):
        if root in met:
            continue
        met[root] = None
        path = [(root, iter(targets_of(skill, root)))]
        while path:
            node, targets = path[-1]
            target = next(targets, None)
            if target is None:
                left[node] = None
                path.pop()
            elif target not in met:
                met[target] = None
                path.append((target, iter(targets_of(skill, target))))
            elif target not in left:
                loops.add((node, target))
    return list(met), list(reversed(left)), loops


def _finishes(skill: Skill, node: str) -> bool:
    if node in skill.phases:
        return may_finish(skill, node)
    targets = skill.graph.get(node, ())
    return not targets or END in targets
