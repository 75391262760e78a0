"""What the scores of several benchmarks share: proportions with intervals, valid first answers, storage."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from reyn.journal import Event


class Score(Protocol):
    """The score of one item, a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=Score)


class StoredScores(Generic[S]):
    """The scores of items in a file, so that an interrupted benchmark can be continued."""

    def __init__(self, folder: Path, score: Callable[..., S]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "scores.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else ()
        self._scores = {key: score(**fields) for key, fields in map(json.loads, lines)}

    def get(self, key: str, run: Callable[[], S]) -> S:
        """Return the score of an item; run it if there is none yet."""
        if key not in self._scores:
            self._scores[key] = run()
            with self._file.open("a") as file:
                file.write(json.dumps([key, self._scores[key]._asdict()]) + "\n")
        return self._scores[key]


class Share(NamedTuple):
    """A proportion with its 95 % Wilson interval."""

    hits: int
    total: int

    @property
    def interval(self) -> tuple[float, float]:
        if not self.total:
            return 0.0, 1.0
        z, n, p = 1.96, self.total, self.hits / self.total
        center = (p + z * z / (2 * n)) / (1 + z * z / n)
        spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return max(0.0, center - spread), min(1.0, center + spread)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.hits}/{self.total} = {self.hits / max(1, self.total):.0%} ({low:.0%} to {high:.0%})"


def first_answers(events: Iterable[Event]) -> Share:
    """Count the valid first answers of a run. An answer is valid if the OS accepted it; retries do not count."""
    valid = calls = 0
    is_retry = was_retry = False
    for event in events:
        if event.kind == "llm_responded":
            calls += not is_retry
            valid += not is_retry
            was_retry, is_retry = is_retry, False
        elif event.kind == "validation_error":
            valid -= not was_retry
            is_retry = True
        elif event.kind == "phase_started":
            is_retry = False
    return Share(valid, calls)
