"""Draw what model calls cost: a bar per group, as text and as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from reyn.cli.output import clean
from reyn.config.budgets import money_text

if TYPE_CHECKING:
    from reyn.runs.usage import UsageReport, UsageRow

_WIDTH, _MIN_WIDTH = 40, 8
"""The number of characters of the longest bar, and on a narrow terminal."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEFT, _BAR, _RIGHT, _ROW, _TOP = 130, 420, 190, 26, 46
_STYLE = """\
svg:root { color: #1f2328 }
@media (prefers-color-scheme: dark) { svg:root { color: #e6edf3 } }
text { font: 12px ui-sans-serif, system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: currentColor }
.title { font-size: 14px; font-weight: 600 } .value { opacity: 0.8 } .axis { stroke: currentColor; opacity: 0.25 }
.cap { stroke: #cf222e; stroke-dasharray: 4 3 } .captext { fill: #cf222e }"""
_MAX_NAME = 20


def cost_text(row: UsageRow) -> str:
    """Format the cost of a group: `0.12 USD`, `unknown`, or the sum with the number of calls without a price."""
    known = " + ".join(money_text(_rounded(cost), currency) for currency, cost in sorted(row.costs.items()))
    if not known:
        return "unknown"
    return f"{known} + {row.unpriced} unpriced" if row.unpriced else known


def _rounded(nano: int) -> int:
    """Round to six decimals, for people."""
    return round(nano / 1000) * 1000


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
        return money_text(_rounded(value), self.currency) if self.currency else f"{value:,}"


def to_text(report: UsageReport, columns: int | None = None) -> str:
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


def to_svg(report: UsageReport) -> str:
    """Return a standalone SVG with a transparent background."""
    bars = _Bars(report)
    height = _TOP + _ROW * max(1, len(report.rows)) + 40
    width = _LEFT + _BAR + _RIGHT
    title = f"{bars.unit} by {report.by}"
    title = title[0].upper() + title[1:]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        f'<line class="axis" x1="{_LEFT}" y1="{_TOP - 6}" x2="{_LEFT}" y2="{height - 34}"/>',
    ]
    for number, row in enumerate(report.rows):
        y = _TOP + number * _ROW
        length = bars.value(row) * _BAR / bars.most
        name = clean(row.name)
        short = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
        tip = f"{name}: {cost_text(row)}, {row.tokens:,} tokens, {row.calls:,} calls"
        label, value = escape(short), escape(bars.text(bars.value(row)))
        parts += [
            f"<g><title>{escape(tip)}</title>",
            f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{label}</text>',
            f'<rect x="{_LEFT}" y="{y + 2}" width="{max(length, 1):.1f}" height="{_ROW - 10}" rx="2" fill="#0969da"/>',
            f'<text class="value" x="{_LEFT + length + 8:.1f}" y="{y + 13}">{value}</text></g>',
        ]
    if not report.rows:
        parts.append(f'<text class="value" x="{_LEFT + 8}" y="{_TOP + 13}">no usage recorded</text>')
    if bars.draws_cap and bars.cap is not None:
        x = _LEFT + bars.cap * _BAR / bars.most
        parts.append(f'<line class="cap" x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - 34}"/>')
        label = escape(f"budget of a day: {bars.text(bars.cap)}")
        parts.append(f'<text class="captext" x="{x:.1f}" y="{height - 16}" text-anchor="middle">{label}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
