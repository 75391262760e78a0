"""Write the graph as a Mermaid flowchart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.skills.drawing.graph import edges, entry_edge, kind_of, nodes

if TYPE_CHECKING:
    from reyn.skills.values import Skill

_SHAPES = {"phase": '["{}"]', "skill": '[["{}"]]', "end": '((("{}")))'}


def to_mermaid(skill: Skill) -> str:
    """Return the source of a flowchart. Ids are numbered, because words such as `end` are Mermaid keywords."""
    ids = {node: f"n{number}" for number, node in enumerate(nodes(skill))}
    lines = ["flowchart TD", '    start(["entry"])']
    lines += [f"    {ids[node]}{_SHAPES[kind_of(node)].format(_escape(node))}" for node in ids]
    for edge in (entry_edge(skill), *edges(skill)):
        arrow = "-.->" if edge.is_loop else "-->"
        text = _escape(": ".join(part for part in (edge.artifact, edge.text) if part))
        label = f'|"{text}"|' if text else ""
        lines.append(f"    {ids.get(edge.source, 'start')} {arrow}{label} {ids[edge.target]}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;")
