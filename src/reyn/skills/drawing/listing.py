"""A skill becomes a list of its nodes, each with the edges that leave it: for graphs that no terminal has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.skills.drawing.graph import ENTRY_MARK, Edge, edges, is_sub_skill, nodes, title_of
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.skills.values import Skill


def to_listing(skill: Skill, size: str) -> str:
    """`size` says what is too large about it."""
    lines = [f"{skill.name}: too large to draw here ({size}), so as a list; `--format svg` draws it", "", ENTRY_MARK]
    leaving: dict[str, list[Edge]] = {node: [] for node in nodes(skill) if node != END}
    for edge in edges(skill):
        leaving[edge.source].append(edge)
    for node, found in leaving.items():
        lines.append(f"[[{node}]]" if is_sub_skill(node) else node)
        for edge in found:
            branch = "└─" if edge is found[-1] else "├─"
            words = [branch + ("↺" if edge.is_loop else "▶"), title_of(edge.target)]
            lines.append("  " + " ".join(words + ([f"({edge.artifact})"] if edge.artifact else [])))
    return "\n".join(lines) + "\n"
