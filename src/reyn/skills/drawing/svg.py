"""Draw a layout as SVG, with a fixed size in pixels for each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from reyn.skills.drawing.graph import kind_of
from reyn.skills.drawing.plan import Point
from reyn.skills.drawing.routing import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reyn.skills.drawing.plan import Box, Line
    from reyn.skills.values import Skill

_CELL_WIDTH, _CELL_HEIGHT, _PADDING = 9, 18, 12
_RADIUS, _LOOP_RADIUS = 8, 18
_STYLE = """\
svg:root { color: #1f2328 }
@media (prefers-color-scheme: dark) { svg:root { color: #e6edf3 } }
text { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: currentColor }
.label { font-size: 11px; opacity: 0.75 }"""
# A polygon, so that every `path` element is an edge.
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="8" markerHeight="8"'
    ' orient="auto-start-reverse"><polygon points="0,1 10,5 0,9" fill="currentColor"/></marker></defs>'
)


def to_svg(skill: Skill) -> str:
    """Return a standalone SVG with a transparent background and the colour of the surrounding text."""
    plan = layout(skill)
    width, height = plan.width * _CELL_WIDTH + 2 * _PADDING, plan.height * _CELL_HEIGHT + 2 * _PADDING
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" fill="none" stroke-width="1.3">',
        f"<title>{escape(skill.name)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        _HEAD,
        *map(_svg_line, plan.lines),
        *map(_svg_box, plan.boxes),
        _svg_start(plan.start),
        *(_svg_label(label.at, label.text) for label in plan.labels),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _xy(point: Point) -> tuple[float, float]:
    return (
        point.column * _CELL_WIDTH + _CELL_WIDTH / 2 + _PADDING,
        point.row * _CELL_HEIGHT + _CELL_HEIGHT / 2 + _PADDING,
    )


def _svg_line(line: Line) -> str:
    edge = line.edge
    if not edge.source:
        spots = " ".join("{:g},{:g}".format(*_xy(point)) for point in line.points)
        return f'<polyline points="{spots}" stroke="currentColor" marker-end="url(#head)"/>'
    title = ": ".join(part for part in (f"{edge.source} → {edge.target}", edge.artifact, edge.text) if part)
    if edge.is_loop:
        # Drawn from its end, so that the dashes of merging loops coincide.
        data, style = _curve(line.points[::-1], _LOOP_RADIUS), 'stroke-dasharray="5 4" marker-start="url(#head)"'
    else:
        data, style = _curve(line.points, _RADIUS), 'marker-end="url(#head)"'
    return f'<path d="{data}" stroke="currentColor" {style}><title>{escape(title)}</title></path>'


def _curve(points: Sequence[Point], radius: float) -> str:
    """Return path data for a line with rounded corners."""
    spots = [_xy(point) for point in points]
    parts = [f"M{spots[0][0]:g} {spots[0][1]:g}"]
    for before, corner, after in zip(spots, spots[1:], spots[2:], strict=False):
        (ax, ay), (bx, by) = (_towards(corner, other, radius) for other in (before, after))
        parts.append(f"L{ax:g} {ay:g}Q{corner[0]:g} {corner[1]:g} {bx:g} {by:g}")
    return "".join(parts) + f"L{spots[-1][0]:g} {spots[-1][1]:g}"


def _towards(corner: tuple[float, float], other: tuple[float, float], radius: float) -> tuple[float, float]:
    length = abs(other[0] - corner[0]) + abs(other[1] - corner[1])
    part = min(radius, length / 2) / length
    return corner[0] + (other[0] - corner[0]) * part, corner[1] + (other[1] - corner[1]) * part


def _svg_box(box: Box) -> str:
    (left, top), (right, bottom) = _xy(Point(box.top, box.left)), _xy(Point(box.bottom, box.right))
    kind = kind_of(box.node)
    parts = [_rectangle(left, top, right, bottom, 12 if kind == "end" else 3)]
    if kind == "skill":
        parts.append(_rectangle(left + 3, top + 3, right - 3, bottom - 3, 1))
    parts.append(
        f'<text x="{(left + right) / 2:g}" y="{(top + bottom) / 2:g}" dy="0.35em" text-anchor="middle">'
        f"{escape(box.title)}</text>"
    )
    return "".join(parts)


def _rectangle(left: float, top: float, right: float, bottom: float, radius: float) -> str:
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{right - left:g}" height="{bottom - top:g}" rx="{radius:g}"'
        ' stroke="currentColor"/>'
    )


def _svg_start(start: Point) -> str:
    x, y = _xy(start)
    label = _svg_label(Point(start.row, start.column + 2), "entry")
    return f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="currentColor"/>{label}'


def _svg_label(at: Point, text: str) -> str:
    x, y = _xy(at)
    return f'<text class="label" x="{x - _CELL_WIDTH / 2:g}" y="{y:g}" dy="0.35em">{escape(text)}</text>'
