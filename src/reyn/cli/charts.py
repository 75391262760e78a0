"""Draw charts as text and as SVG: where the tokens of prompts went, and what model calls used and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.characters import clean
from reyn.cli.output import short
from reyn.config.budgets import money_text

if TYPE_CHECKING:
    from reyn.context.budget import FrameSection, SectionCost
    from reyn.runs.frames import VisitContext
    from reyn.runs.usage import UsageReport, UsageRow

_NEUTRAL = 1000
"""The calibration factor, per mille, that changes nothing."""
_WIDTH, _MIN_WIDTH = 40, 8
"""The number of characters of the longest bar, and on a narrow terminal."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
_GROUPS = {
    "static": ("s", "#6e7781"),
    "task": ("t", "#bc4c00"),
    "input": ("i", "#0969da"),
    "reads": ("r", "#8250df"),
    "handoff": ("h", "#1a7f37"),
    "rejected": ("b", "#cf222e"),
    "results": ("o", "#bf8700"),
    "transcript": ("t", "#0969da"),
    "other": (".", "#d0d7de"),
}
"""The letter and the colour of each group of sections, in the order of the bar."""
_GROUP_OF = {"system": "static"}


def _escaped(text: str) -> str:
    from xml.sax.saxutils import escape

    return escape(text)


def section_json(section: FrameSection) -> dict[str, Any]:
    """Return the costs of a section as JSON."""
    return _cost_json(section) | ({"parts": list(map(_cost_json, section.parts))} if section.parts else {})


def visit_json(visit: VisitContext) -> dict[str, Any]:
    """Return the tokens of a visit as JSON."""
    names = ("seq", "phase", "visit", "turns", "tokens", "input_tokens", "cached_tokens")
    budget = visit.budget and {name: getattr(visit.budget, name) for name in ("limit", "tokens", "counter", "factor")}
    sections = list(map(section_json, visit.sections))
    return {name: getattr(visit, name) for name in names} | {
        "sections": sections,
        "budget": budget,
        "handoff": visit.handoff and msgspec.to_builtins(visit.handoff),
    }


def _cost_json(cost: SectionCost) -> dict[str, Any]:
    return {
        "name": cost.name,
        "tokens": cost.tokens,
        "original_tokens": cost.original_tokens,
        "truncated": cost.was_truncated,
    }


def section_table(sections: Sequence[FrameSection]) -> str:
    """Return a table of sections, their parts, and the total."""
    rows: list[tuple[str, SectionCost]] = []
    for section in sections:
        rows += [(clean(section.name), section), *((f"  {clean(part.name)}", part) for part in section.parts)]
    width = max(len(name) for name in ("total", *(name for name, _ in rows)))
    lines = [f"{name:<{width}}  {cost.tokens:>9,}{_whole(cost)}\n" for name, cost in rows]
    return "".join(lines) + f"{'total':<{width}}  {sum(section.tokens for section in sections):>9,}\n"


def _whole(cost: SectionCost) -> str:
    return f" of {cost.original_tokens:,} (truncated)" if cost.was_truncated else ""


def prompts_text(visits: Sequence[VisitContext]) -> str:
    """Return one line per visit with a bar, below it the truncated sections and cached tokens, and a legend."""
    if not visits:
        return "no prompts yet\n"
    most = max(visit.tokens for visit in visits) or 1
    names = [clean(f"{visit.phase} (visit {visit.visit})") for visit in visits]
    width = max(map(len, names))
    lines: list[str] = []
    used: set[str] = set()
    for name, visit in zip(names, visits, strict=True):
        groups = _grouped(visit)
        used |= groups.keys()
        bar = "".join(_GROUPS[group][0] * length for group, length in _lengths(groups, most).items())
        lines.append(f"{visit.seq:>6}  {name:<{width}}  {visit.tokens:>9,}  {bar}")
        lines += [
            f"{'':>8}  {clean(section.name)} truncated: {section.original_tokens:,} to {section.tokens:,} tokens"
            for section in visit.sections
            if section.was_truncated
        ]
        if visit.budget is not None:
            budget = visit.budget
            factor = "" if budget.factor == _NEUTRAL else f", times {budget.factor / _NEUTRAL:.2f}"
            amount = f"{budget.tokens:,} of {budget.limit:,} tokens"
            lines.append(f"{'':>8}  budget: {amount}, counted by {clean(budget.counter)}{factor}")
        if visit.input_tokens:
            lines.append(f"{'':>8}  reported: {visit.input_tokens:,} input tokens, {visit.cached_tokens:,} cached")
        if visit.handoff is not None:
            said = "; ".join(visit.handoff.decisions_made) or visit.handoff.narrative
            lines.append(f"{'':>8}  handed over: {short(said, 100)}")
    legend = "  ".join(f"{letter} {name}" for name, (letter, _) in _GROUPS.items() if name in used)
    return "\n".join([*lines, legend]) + "\n"


def _grouped(visit: VisitContext) -> dict[str, int]:
    """Return the tokens of each group of sections, in the order of the prompt."""
    groups = dict.fromkeys(_GROUPS, 0)
    for section in visit.sections:
        parts = section.parts if section.name == "system" and section.parts else (section,)
        for part in parts:
            name = _GROUP_OF.get(part.name, "reads" if part.name.startswith("earlier ") else part.name)
            groups[name if name in groups else "other"] += part.tokens
    return {name: tokens for name, tokens in groups.items() if tokens}


def _lengths(groups: dict[str, int], most: int) -> dict[str, int]:
    """Scale tokens to characters; every group has at least one."""
    return {name: max(1, round(tokens * _WIDTH / most)) for name, tokens in groups.items()}


_MAX_NAME = 20
"""The number of characters of a name that fit to the left of a bar."""


def _svg(title: str, width: int, height: int, style: str, parts: list[str]) -> str:
    """Return a standalone SVG with a transparent background."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{_escaped(title)}</title>\n<style>'
    themes = "svg:root { color: #1f2328 }\n@media (prefers-color-scheme: dark) { svg:root { color: #e6edf3 } }"
    return "\n".join([head, themes, style, "</style>", *parts, "</svg>"]) + "\n"


_PROMPTS_STYLE = 'text { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: currentColor }'
_USAGE_STYLE = """\
text { font: 12px ui-sans-serif, system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: currentColor }
.title { font-size: 14px; font-weight: 600 } .value { opacity: 0.8 } .axis { stroke: currentColor; opacity: 0.25 }
.cap { stroke: #cf222e; stroke-dasharray: 4 3 } .captext { fill: #cf222e }"""


def prompts_svg(run: str, visits: Sequence[VisitContext]) -> str:
    """Return a standalone SVG with one bar per visit and a legend."""
    start, bar, row, padding = 260, 480, 24, 12
    most = max((visit.tokens for visit in visits), default=0) or 1
    parts: list[str] = []
    used: set[str] = set()
    for number, visit in enumerate(visits):
        top, left = padding + number * row, float(start)
        name = f"{short(visit.phase, _MAX_NAME)} (visit {visit.visit})"
        parts.append(f'<text x="{padding}" y="{top + 16}">{_escaped(name)}</text>')
        for group, tokens in _grouped(visit).items():
            length = tokens * bar / most
            used.add(group)
            parts.append(
                f'<rect x="{left:g}" y="{top + 3}" width="{length:g}" height="{row - 6}" fill="{_GROUPS[group][1]}">'
                f"<title>{group}: {tokens:,}</title></rect>"
            )
            left += length
        parts.append(f'<text x="{left + 6:g}" y="{top + 16}">{visit.tokens:,}</text>')
    top, left = padding + len(visits) * row, float(padding)
    for group in (name for name in _GROUPS if name in used):
        parts.append(f'<rect x="{left:g}" y="{top + 6}" width="12" height="12" fill="{_GROUPS[group][1]}"/>')
        parts.append(f'<text x="{left + 18:g}" y="{top + 16}">{group}</text>')
        left += 36 + 8 * len(group)
    return _svg(run, start + bar + 100, top + row + padding, _PROMPTS_STYLE, parts)


class _Bars:
    """The lengths of bars: by cost if all costs are of one currency, else by tokens."""

    def __init__(self, report: UsageReport) -> None:
        currencies = {currency for row in report.rows for currency in row.costs}
        self.currency = currencies.pop() if len(currencies) == 1 and any(report.total.costs.values()) else ""
        self.unit = f"cost in {self.currency}" if self.currency else "tokens"
        caps = [status for status in report.budgets if not status.skill and status.currency == self.currency]
        name = "day_cost" if self.currency else "day_tokens"
        found = [status.cap for status in caps if status.limit == name] if report.by == "day" else []
        self.cap = found[0] if found else None
        longest = max((self.value(row) for row in report.rows), default=0)
        # A cap far above all bars would make them invisible.
        self.draws_cap = self.cap is not None and self.cap <= 4 * max(longest, 1)
        self.most = max(longest, self.cap or 0 if self.draws_cap else 0, 1)

    def value(self, row: UsageRow) -> int:
        return row.costs.get(self.currency, 0) if self.currency else row.tokens

    def text(self, value: int) -> str:
        from reyn.runs.usage import rounded

        return money_text(rounded(value), self.currency) if self.currency else f"{value:,}"


def usage_text(report: UsageReport, columns: int | None = None) -> str:
    """Return one line per group with a bar, which is shorter on a terminal with few columns."""
    bars = _Bars(report)
    width = max((len(clean(row.name)) for row in report.rows), default=0)
    amounts = max((len(bars.text(bars.value(row))) for row in report.rows), default=0)
    room = _WIDTH if columns is None else max(_MIN_WIDTH, min(_WIDTH, columns - width - amounts - 4))
    lines = [f"{bars.unit} by {report.by}"]
    for row in report.rows:
        full, rest = divmod(bars.value(row) * room * 8 // bars.most, 8)
        bar = "█" * full + (_EIGHTHS[rest] if rest else "")
        lines.append(f"{clean(row.name):<{width}}  {bar:<{room}}  {bars.text(bars.value(row))}".rstrip())
    if bars.cap is not None:
        lines.append(f"budget of a day: {bars.text(bars.cap)}")
    return "\n".join(lines) + "\n"


def usage_svg(report: UsageReport) -> str:
    """Return a standalone SVG with one bar per group."""
    from reyn.runs.usage import cost_text

    bars = _Bars(report)
    start, bar, row, top = 130, 420, 26, 46
    height = top + row * max(1, len(report.rows)) + 40
    title = f"{bars.unit} by {report.by}"
    title = title[0].upper() + title[1:]
    parts = [
        f'<text class="title" x="12" y="24">{_escaped(title)}</text>',
        f'<line class="axis" x1="{start}" y1="{top - 6}" x2="{start}" y2="{height - 34}"/>',
    ]
    for number, group in enumerate(report.rows):
        y = top + number * row
        length = bars.value(group) * bar / bars.most
        name = clean(group.name)
        tip = f"{name}: {cost_text(group)}, {group.tokens:,} tokens, {group.calls:,} calls"
        label, value = _escaped(short(name, _MAX_NAME)), _escaped(bars.text(bars.value(group)))
        parts += [
            f"<g><title>{_escaped(tip)}</title>",
            f'<text x="{start - 8}" y="{y + 13}" text-anchor="end">{label}</text>',
            f'<rect x="{start}" y="{y + 2}" width="{max(length, 1):.1f}" height="{row - 10}" rx="2" fill="#0969da"/>',
            f'<text class="value" x="{start + length + 8:.1f}" y="{y + 13}">{value}</text></g>',
        ]
    if not report.rows:
        parts.append(f'<text class="value" x="{start + 8}" y="{top + 13}">no usage recorded</text>')
    if bars.draws_cap and bars.cap is not None:
        x = start + bars.cap * bar / bars.most
        parts.append(f'<line class="cap" x1="{x:.1f}" y1="{top - 8}" x2="{x:.1f}" y2="{height - 34}"/>')
        label = _escaped(f"budget of a day: {bars.text(bars.cap)}")
        parts.append(f'<text class="captext" x="{x:.1f}" y="{height - 16}" text-anchor="middle">{label}</text>')
    return _svg(title, start + bar + 190, height, _USAGE_STYLE, parts)
