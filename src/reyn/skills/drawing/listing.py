"""List the nodes of a graph with their outgoing edges, for graphs that are too large to draw in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.skills.drawing.graph import ENTRY_MARK, Edge, edges, is_sub_skill, nodes, title_of
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.skills.values import Skill


def to_listing(skill: Skill, size: str) -> str:
    """Return the list; `size` describes what is too large."""
    lines = [f"{skill.name}: too large to draw as text ({size}); draw it as SVG instead", "", ENTRY_MARK]
    leaving: dict[str, list[Edge]] = {node: [] for node in nodes(skill) if node != END}
    for edge in edges(skill):
        leaving[edge.source].append(edge)
    for node, outgoing in leaving.items():
        lines.append(f"[[{node}]]" if is_sub_skill(node) else node)
        for edge in outgoing:
            branch = "└─" if edge is outgoing[-1] else "├─"
            words = [branch + ("↺" if edge.is_loop else "▶"), title_of(edge.target)]
            words += [f"({edge.artifact})"] if edge.artifact else []
            lines.append("  " + " ".join(words) + (f": {edge.text}" if edge.text else ""))
    return "\n".join(lines) + "\n"
