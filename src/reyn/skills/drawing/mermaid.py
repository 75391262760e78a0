"""A skill becomes the source of a Mermaid flowchart, which finds places for everything by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.skills.drawing.graph import edges, entry_edge, kind_of, nodes

if TYPE_CHECKING:
    from reyn.skills.values import Skill

_SHAPES = {"phase": '["{}"]', "skill": '[["{}"]]', "end": '((("{}")))'}


def to_mermaid(skill: Skill) -> str:
    """Source for a flowchart. Ids are numbers, because words like `end` mean something else there."""
    ids = {node: f"n{number}" for number, node in enumerate(nodes(skill))}
    lines = ["flowchart TD", '    start(["entry"])']
    lines += [f"    {ids[node]}{_SHAPES[kind_of(node)].format(_quoted(node))}" for node in ids]
    for edge in (entry_edge(skill), *edges(skill)):
        arrow = "-.->" if edge.is_loop else "-->"
        label = f'|"{_quoted(edge.artifact)}"|' if edge.artifact else ""
        lines.append(f"    {ids.get(edge.source, 'start')} {arrow}{label} {ids[edge.target]}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;")
