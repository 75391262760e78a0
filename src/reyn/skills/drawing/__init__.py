"""A skill's graph becomes a picture: Unicode boxes for a terminal, Mermaid source, or SVG.

Layers run from the entry downwards, found without the edges that lead back (loops). Text and SVG share one plan on a
grid of character cells, in which every edge has a line of its own: lines cross, but they touch only where loops come
together on the way to the same phase. Knows nothing of runs, and decides nothing about what may follow what.

`graph` → `layers` → `columns` → `routing` → `plan`, which `text` and `svg` draw; `mermaid` and `listing` need only the
graph.
"""

from reyn.skills.drawing.graph import Edge, edges, kind_of, nodes
from reyn.skills.drawing.mermaid import to_mermaid
from reyn.skills.drawing.svg import to_svg
from reyn.skills.drawing.text import MOST_COLUMNS, to_text

__all__ = ["MOST_COLUMNS", "Edge", "edges", "kind_of", "nodes", "to_mermaid", "to_svg", "to_text"]
