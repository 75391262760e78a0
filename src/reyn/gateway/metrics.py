"""Figures for Prometheus: runs, waits, the queue, model calls. No content; no names but of statuses, skills and models.

A scrape reads what is open and what was charged lately; the rest is counted by the journal or remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from reyn.gateway.tallies import BOUNDS
from reyn.journal.listing import RunQuery
from reyn.journal.results import display_status

if TYPE_CHECKING:
    from reyn.gateway.site import Gateway
    from reyn.gateway.tallies import CallTimes
    from reyn.journal import RunRow
    from reyn.journal.registry import Status

_MAX_OPEN = 10_000
"""How many rows of a status are read. Those above are counted, but have no age and no queue."""


def metrics_text(site: Gateway) -> str:
    """Return the figures in the text format of Prometheus."""
    return "".join(f"{line}\n" for line in _lines(site))


def _lines(site: Gateway) -> Iterator[str]:
    services = site.runtime.services
    journal, now = services.existing_journal, services.clock.now()
    counts: Counter[str] = Counter(journal.count_by_status())
    running, waiting = (journal.page(RunQuery((status,)), _MAX_OPEN) for status in _READ)
    claimed = journal.claimed([row.run_id for row in running])
    shown = {row.run_id: display_status(row, is_claimed=row.run_id in claimed) for row in (*running, *waiting)}
    for row in (*running, *waiting):
        counts[row.status or ""] -= 1
        counts[shown[row.run_id].partition(" (")[0]] += 1
    counts["interrupted"] = sum(status == "running (interrupted)" for status in shown.values())
    counts["running"] -= counts["interrupted"]
    yield from _head("reyn_runs", "gauge", "Recorded runs by status.")
    yield from (f'reyn_runs{{status="{status}"}} {count}' for status, count in sorted(counts.items()) if count)
    yield from _questions(waiting, now)
    yield from _queues([row for row in running if shown[row.run_id] == "queued"], now)
    yield from _charges(site.spending.totals(journal))
    yield from _call_times(site.calls)
    yield from _head("reyn_executing_runs", "gauge", "Runs that clients of this process started and it executes.")
    yield f"reyn_executing_runs {site.work.count}"
    yield from _head("reyn_open_streams", "gauge", "Open streams of this process.")
    yield f"reyn_open_streams {site.streams.total()}"


_READ: tuple[Status, Status] = ("running", "waiting")


def _questions(waiting: list[RunRow], now: int) -> Iterator[str]:
    ages = [
        max(0, now - row.updated) / 1e6
        for row in waiting
        if row.wait is not None and row.wait.run is None and not row.wait.is_message
    ]
    yield from _head("reyn_open_questions", "gauge", "Open questions and approvals.")
    yield f"reyn_open_questions {len(ages)}"
    yield from _head("reyn_oldest_question_seconds", "gauge", "The age of the oldest open question.")
    yield f"reyn_oldest_question_seconds {max(ages, default=0):.0f}"


def _queues(queued: list[RunRow], now: int) -> Iterator[str]:
    lengths = Counter(row.queue for row in queued)
    yield from _head("reyn_queued_runs", "gauge", "Submitted runs that no worker executes, by queue.")
    yield from (f"reyn_queued_runs{{queue={_quoted(queue)}}} {count}" for queue, count in sorted(lengths.items()))
    oldest = max((max(0, now - row.updated) / 1e6 for row in queued), default=0)
    yield from _head("reyn_oldest_queued_seconds", "gauge", "How long the first of them has waited.")
    yield f"reyn_oldest_queued_seconds {oldest:.0f}"


_COUNTERS = {
    "reyn_tokens_total": "Tokens that model calls were charged, by skill and model.",
    "reyn_model_calls_total": "Model calls that were charged.",
    "reyn_cost_total": "What they cost.",
}


def _charges(totals: Counter[tuple[str, str, str, str]]) -> Iterator[str]:
    for name, text in _COUNTERS.items():
        yield from _head(name, "counter", text)
        for (found, skill, model, currency), amount in sorted(totals.items()):
            if found == name:
                labels = f"skill={_quoted(skill)},model={_quoted(model)}"
                labels += f",currency={_quoted(currency)}" if currency else ""
                yield f"{name}{{{labels}}} {f'{amount / 1e9:.9f}' if currency else amount}"


def _call_times(calls: CallTimes) -> Iterator[str]:
    name, bounds = "reyn_model_call_seconds", (*(f"{bound:g}" for bound in BOUNDS), "+Inf")
    yield from _head(name, "histogram", "Model calls of this process, from request to answer, with retries.")
    for model, counts, seconds in calls.found():
        for bound, count in zip(bounds, accumulate(counts), strict=True):
            yield f'{name}_bucket{{model={_quoted(model)},le="{bound}"}} {count}'
        yield f"{name}_sum{{model={_quoted(model)}}} {seconds:.6f}"
        yield f"{name}_count{{model={_quoted(model)}}} {sum(counts)}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
