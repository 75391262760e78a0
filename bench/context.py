"""Measure what it costs to build a prompt: truncation, handoffs, and visits whose prompts exceed their budget."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from reyn.context import PhaseHandoff, PhaseManifest, truncate_to_token_budget
from reyn.context.handoff import assemble_handoff_context
from reyn.context.token_counting import exact_counter
from reyn.context.tokens import CharCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.context.tokens import TokenCounter

TEXTS = ("x" * 5_000_000, " " * 5_000_000, "x." * 2_500_000, "\u3000x" * 2_500_000)
"""Texts of five million characters, in which the end of a sentence or a word is hard to find."""


def measure_truncation() -> float:
    """Return the CPU seconds of truncating the text that takes longest."""
    return max(_cpu(partial(truncate_to_token_budget, text, 1_249_000)) for text in TEXTS)


def measure_handoffs(counter: TokenCounter) -> float:
    """Return the CPU seconds of assembling a hundred handoffs within a budget: the median of five rounds.

    Every round has other texts, so that no counter has seen them.
    """
    manifest = PhaseManifest(phase=101, narrative_cap=1000, max_tokens=2500)
    assemble_handoff_context(_handoffs(0), manifest, counter=counter)
    rounds = [_handoffs(number) for number in range(1, 6)]
    times = [_cpu(partial(assemble_handoff_context, one, manifest, counter=counter)) for one in rounds]
    return sorted(times)[2]


def counters() -> dict[str, TokenCounter]:
    """Return the counters to compare."""
    return {"chars": CharCounter(), "exact": exact_counter()}


def _handoffs(seed: int) -> list[PhaseHandoff]:
    return [
        PhaseHandoff(
            phase=number,
            phase_name=f"phase{number}",
            goal="Publish the winter opening hours.",
            decisions_made=(f"Keep file {seed}-{number}.", "Use the 24-hour clock."),
            open_risks=("The hours on holidays are not confirmed.",),
            narrative=f"Step {number} of round {seed} compared both lists and found no difference. " * 4,
        )
        for number in range(1, 101)
    ]


def _cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
