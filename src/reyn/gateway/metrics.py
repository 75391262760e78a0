"""Figures for Prometheus: runs by status, waits and their age, tokens and cost. No content; no names but of skills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reyn.gateway.site import Gateway


def metrics_text(site: Gateway) -> str:
    """Return the figures in the text format of Prometheus."""
    return "".join(f"{line}\n" for line in _lines(site))


def _lines(site: Gateway) -> Iterator[str]:
    runs, now = site.runtime.runs, site.runtime.services.clock.now()
    rows = runs.all()
    statuses = Counter(runs.display_status(row).partition(" (")[0] for row in rows)
    yield from _head("reyn_runs", "gauge", "Recorded runs by status.")
    for status, count in sorted(statuses.items()):
        yield f'reyn_runs{{status="{status}"}} {count}'
    ages = [
        max(0, now - row.updated) / 1e6
        for row in rows
        if row.status == "waiting" and row.wait is not None and row.wait.run is None and not row.wait.is_message
    ]
    yield from _head("reyn_open_questions", "gauge", "Open questions and approvals.")
    yield f"reyn_open_questions {len(ages)}"
    yield from _head("reyn_oldest_question_seconds", "gauge", "The age of the oldest open question.")
    yield f"reyn_oldest_question_seconds {max(ages, default=0):.0f}"
    tokens: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    cost: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.imported or row.parent:
            continue
        tokens[row.skill] += row.charge.tokens
        calls[row.skill] += row.charge.calls
        if row.charge.currency:
            cost[row.skill, row.charge.currency] += row.charge.cost
    yield from _head("reyn_tokens_total", "counter", "Tokens that model calls were charged, by skill of the root run.")
    yield from (f"reyn_tokens_total{{skill={_quoted(skill)}}} {count}" for skill, count in sorted(tokens.items()))
    yield from _head("reyn_model_calls_total", "counter", "Model calls that were charged, by skill of the root run.")
    yield from (f"reyn_model_calls_total{{skill={_quoted(skill)}}} {count}" for skill, count in sorted(calls.items()))
    yield from _head("reyn_cost_total", "counter", "What they cost.")
    for (skill, currency), amount in sorted(cost.items()):
        yield f"reyn_cost_total{{skill={_quoted(skill)},currency={_quoted(currency)}}} {amount / 1e9:.9f}"
    yield from _head("reyn_executing_runs", "gauge", "Runs that this process executes.")
    yield f"reyn_executing_runs {site.work.count}"
    yield from _head("reyn_open_streams", "gauge", "Open streams of this process.")
    yield f"reyn_open_streams {site.streams}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
