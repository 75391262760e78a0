"""Nodes and edges of a drawing: phases, sub-skills, `end`, and the edges between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.skills.graph import may_finish, successors
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.skills.values import Skill

START = ""  # the source of the arrow into the entry; no phase has this name
ENTRY_MARK = "● entry"


class Edge(msgspec.Struct, frozen=True):
    """An edge of the graph with its artifact type; empty for an edge to a sub-skill.

    `text` says when to choose it, if the author wrote it.
    """

    source: str
    target: str
    artifact: str
    is_loop: bool = False
    text: str = ""


def nodes(skill: Skill) -> tuple[str, ...]:
    """Return all nodes, `end` included, in depth-first order from the entry."""
    return tuple(walk(skill)[0])


def edges(skill: Skill) -> tuple[Edge, ...]:
    """Return every edge once, ordered by source; a loop is an edge back to an ancestor."""
    discovered, _, loops = walk(skill)
    return tuple(
        Edge(
            node,
            target,
            artifact_into(skill, target),
            (node, target) in loops,
            " ".join(skill.edge_texts.get(node, {}).get(target, "").split()),
        )
        for node in discovered
        for target in targets_of(skill, node)
    )


def entry_edge(skill: Skill) -> Edge:
    """Return the edge from the start mark to the entry."""
    return Edge(START, skill.entry, artifact_into(skill, skill.entry))


def is_sub_skill(node: str) -> bool:
    return node.startswith("@")


def kind_of(node: str) -> str:
    """Return `phase`, `skill` (a sub-skill) or `end`."""
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
    """Traverse the graph depth first.

    Returns:
        The nodes in order of discovery, the nodes in topological order, and the back edges.
    """
    discovered: dict[str, None] = {}
    finished: dict[str, None] = {}
    loops: set[tuple[str, str]] = set()
    # Sorted by name, because equal skills may have their phases in different orders.
    others = {*skill.phases, *skill.graph, *(name for names in skill.graph.values() for name in names)} - {END}
    for root in (skill.entry, *sorted(others)):
        if root in discovered:
            continue
        discovered[root] = None
        path = [(root, iter(targets_of(skill, root)))]
        while path:
            node, targets = path[-1]
            target = next(targets, None)
            if target is None:
                finished[node] = None
                path.pop()
            elif target not in discovered:
                discovered[target] = None
                path.append((target, iter(targets_of(skill, target))))
            elif target not in finished:
                loops.add((node, target))
    return list(discovered), list(reversed(finished)), loops


def _finishes(skill: Skill, node: str) -> bool:
    if node in skill.phases:
        return may_finish(skill, node)
    targets = skill.graph.get(node, ())
    return not targets or END in targets
