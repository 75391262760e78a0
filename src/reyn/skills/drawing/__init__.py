"""Draw the graph of a skill as Unicode text, Mermaid source or SVG.

Text and SVG share a layered layout on a grid of character cells: `graph` → `layers` → `columns` → `routing` → `plan`.
Lines of different edges may cross but never overlap, except loops to the same phase. `mermaid` and `listing` need only
the graph.
"""

from reyn.skills.drawing.graph import edges, kind_of, nodes
from reyn.skills.drawing.mermaid import to_mermaid
from reyn.skills.drawing.svg import to_svg
from reyn.skills.drawing.text import MAX_COLUMNS, to_text

__all__ = ["MAX_COLUMNS", "edges", "kind_of", "nodes", "to_mermaid", "to_svg", "to_text"]
