"""Figures for Prometheus: runs, waits, the queue, model calls. No content; no names but of statuses, skills and models.

A scrape reads what is open and what was charged lately; the rest is counted by the journal or remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING

from reyn.journal import kinds
from reyn.journal.listing import RunQuery
from reyn.journal.results import display_status

if TYPE_CHECKING:
    from reyn.gateway.site import Gateway
    from reyn.journal import Event, Journal, RunRow
    from reyn.journal.registry import Status
    from reyn.journal.spending import SpendRow

_MAX_OPEN = 10_000
"""How many rows of a status are read. Those above are counted, but have no age and no queue."""
_MAX_CALLS = 10_000
"""How many model calls in progress are remembered."""
_LATE_DAYS = 2
"""For how many days after a call it may still be charged; what is charged later counts after a restart."""
_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper bounds of the histogram, in seconds."""


class CallTimes:
    """How long the model calls of this process took, from request to answer, with retries and waits."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], tuple[int, str]] = {}
        self._counts: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def observe(self, event: Event) -> None:
        """Learn of an event of this process."""
        if event.kind not in _OF_CALLS:
            return
        data = event.data
        key = (event.run_id, data["call"])
        if event.kind == kinds.LlmRequested.kind:
            if len(self._begun) >= _MAX_CALLS:
                self._begun.pop(next(iter(self._begun)))
            self._begun[key] = (event.ts, data["model"])
        elif (begun := self._begun.pop(key, None)) is not None:
            at, model = begun
            seconds = max(0, event.ts - at) / 1e6
            counts = self._counts.setdefault(model, [0] * (len(_BOUNDS) + 1))
            counts[next((index for index, bound in enumerate(_BOUNDS) if seconds <= bound), len(_BOUNDS))] += 1
            self._seconds[model] = self._seconds.get(model, 0.0) + seconds

    def lines(self) -> Iterator[str]:
        """Yield the histogram."""
        name = "reyn_model_call_seconds"
        yield from _head(name, "histogram", "Model calls of this process, from request to answer, with retries.")
        for model, counts in sorted(self._counts.items()):
            bounds = (*(f"{bound:g}" for bound in _BOUNDS), "+Inf")
            for bound, count in zip(bounds, accumulate(counts), strict=True):
                yield f'{name}_bucket{{model={_quoted(model)},le="{bound}"}} {count}'
            yield f"{name}_sum{{model={_quoted(model)}}} {self._seconds[model]:.6f}"
            yield f"{name}_count{{model={_quoted(model)}}} {sum(counts)}"


_OF_CALLS = frozenset((kinds.LlmRequested.kind, kinds.LlmResponded.kind, kinds.LlmFailed.kind))


class Spending:
    """What all recorded model calls were charged, by skill and model. Earlier days are read once.

    Args:
        day_before: Returns the day that was so many days ago, as budgets count them.
    """

    def __init__(self, day_before: Callable[[int], str]) -> None:
        self._day_before = day_before
        self._lock = Lock()
        self._earlier: Counter[tuple[str, str, str, str]] = Counter()
        self._since = ""

    def totals(self, journal: Journal) -> Counter[tuple[str, str, str, str]]:
        """Return the totals: by name, skill, model and currency."""
        since = self._day_before(_LATE_DAYS)
        with self._lock:
            recent = journal.charges(self._since)
            for row in recent:
                if row.day < since:
                    _add(self._earlier, row)
            self._since = max(since, self._since)
            found = self._earlier.copy()
        for row in recent:
            if row.day >= since:
                _add(found, row)
        return found


def _add(totals: Counter[tuple[str, str, str, str]], row: SpendRow) -> None:
    totals["reyn_tokens_total", row.skill, row.model, ""] += row.input_tokens + row.output_tokens
    totals["reyn_model_calls_total", row.skill, row.model, ""] += row.calls
    if row.currency:
        totals["reyn_cost_total", row.skill, row.model, row.currency] += row.cost


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
    yield from site.calls.lines()
    yield from _head("reyn_executing_runs", "gauge", "Runs that clients of this process started and it executes.")
    yield f"reyn_executing_runs {site.work.count}"
    yield from _head("reyn_open_streams", "gauge", "Open streams of this process.")
    yield f"reyn_open_streams {site.streams}"


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


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
