"""Handoffs: the records of completed phases, and the section of a prompt that is built from them.

The functions are pure. The kernel derives handoffs from the events of a run and records the effect of the budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.context.budget import SEPARATOR, ContextBudgetResult, SectionCost, apply_context_budget, section_costs
from reyn.context.tokens import (
    CHARS,
    CHARS_PER_TOKEN,
    SUFFIX,
    longest_fitting,
    truncate_to_length,
    truncate_to_token_budget,
    valid_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from reyn.context.manifest import PhaseManifest
    from reyn.context.tokens import TokenCounter

HEADER = "From earlier phases:"


class PhaseHandoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record that a completed phase leaves for later phases.

    Attributes:
        phase: The ordinal of the phase: its rank among the phases of the run, by first visit.
        phase_name: Its name.
        status: How its visit ended.
        goal: What the run is for.
        epic_id: The work item that the run belongs to.
        verdicts: Verdicts of gates and reviews, of this phase and those before it.
        artifacts_produced: Files that the phase wrote.
        decisions_made: Decisions, with their reasons.
        open_risks: Risks that remain.
        narrative: A summary in prose.
        duration_seconds: Execution time of the visit.
        context_degradation: Whether the handoff of the phase before it was missing.
        completed_at: The end of the visit, as RFC 3339 in UTC.
    """

    phase: int
    phase_name: str = ""
    status: str = "completed"
    goal: str = ""
    epic_id: str = ""
    verdicts: dict[str, str] = {}
    artifacts_produced: tuple[str, ...] = ()
    decisions_made: tuple[str, ...] = ()
    open_risks: tuple[str, ...] = ()
    narrative: str = ""
    duration_seconds: float = 0.0
    context_degradation: bool = False
    completed_at: str = ""


class HandoffContext(msgspec.Struct, frozen=True):
    """The text block that a phase sees, with its costs.

    Attributes:
        text: The block; empty without handoffs.
        result: The effect of the budget.
        sections: The tokens of each section before and after truncation.
        warnings_truncated: Whether even the warnings about missing handoffs exceeded the budget.
    """

    text: str
    result: ContextBudgetResult
    sections: tuple[SectionCost, ...] = ()
    warnings_truncated: bool = False


def build_handoff_context(handoffs: Sequence[PhaseHandoff], manifest: PhaseManifest) -> str:
    """Return the handoff section for a phase: select fields, assemble them, truncate the text to the budget.

    Args:
        handoffs: The handoffs of earlier phases, oldest first.
        manifest: What the phase receives.
    """
    return assemble_handoff_context(handoffs, manifest).text


def assemble_handoff_context(
    handoffs: Sequence[PhaseHandoff],
    manifest: PhaseManifest,
    missing: Iterable[int] = (),
    omitted: int = 0,
    counter: TokenCounter = CHARS,
) -> HandoffContext:
    """Build the block of `build_handoff_context`, with its costs.

    Warnings about missing handoffs are always included: their budget is reserved first.

    Args:
        handoffs: The handoffs of earlier phases, oldest first.
        manifest: What the phase receives.
        missing: Ordinals of phases that left no handoff.
        omitted: The number of older handoffs that are left out.
        counter: Counts the tokens.
    """
    warnings = _warnings(handoffs, missing)
    if not handoffs and not warnings:
        return HandoffContext("", apply_context_budget("", manifest.max_tokens, counter)[1])
    sections = [("header", _head(handoffs, manifest, omitted))]
    sections += [
        (f"phase {handoff.phase}: {fold_lines(handoff.phase_name)}", _phase_text(handoff, manifest))
        for handoff in handoffs
    ]
    whole_body = SEPARATOR.join(text for _, text in sections)
    whole = _join_parts(whole_body, warnings)
    tokens = counter.count(whole)
    fits = manifest.max_tokens <= 0 or tokens <= manifest.max_tokens
    fitted = (whole_body, warnings) if fits else _fit(whole_body, warnings, manifest.max_tokens, counter)
    body, fitted_warnings = fitted
    text = _join_parts(body, fitted_warnings)
    result = ContextBudgetResult(
        tokens, manifest.max_tokens, tokens if fits else counter.count(text), was_truncated=text != whole
    )
    costs = section_costs(sections, len(body), counter)
    if warnings:
        costs = (*costs, SectionCost("warnings", counter.count(warnings), counter.count(fitted_warnings)))
    return HandoffContext(text, result, costs, warnings_truncated=fitted_warnings != warnings)


def _fit(body: str, warnings: str, budget: int, counter: TokenCounter) -> tuple[str, str]:
    """Truncate the body to what the budget leaves beside the warnings; truncate the warnings only if they exceed it."""
    if counter.count(warnings) > budget:
        return "", truncate_to_token_budget(warnings, budget, counter)
    if counter is CHARS:
        room = budget * CHARS_PER_TOKEN - (len(warnings) + len(SEPARATOR) if warnings else 0)
        return truncate_to_length(body, room), warnings
    length = longest_fitting(
        len(body), lambda size: counter.count(_join_parts(truncate_to_length(body, size), warnings)), budget
    )
    return truncate_to_length(body, length), warnings


def _join_parts(body: str, warnings: str) -> str:
    return SEPARATOR.join(part for part in (body, warnings) if part)


def _head(handoffs: Sequence[PhaseHandoff], manifest: PhaseManifest, omitted: int) -> str:
    header = f"{HEADER[:-1]} (the last {len(handoffs)} of {len(handoffs) + omitted}):" if omitted else HEADER
    goal = next((goal for handoff in reversed(handoffs) if (goal := fold_lines(handoff.goal))), "")
    return f"{header}\nGoal: {goal}" if goal and manifest.selects("goal") else header


def _phase_text(handoff: PhaseHandoff, manifest: PhaseManifest) -> str:
    seconds = round(handoff.duration_seconds)
    took = f" in {seconds}s" if handoff.duration_seconds > 0 and seconds else ""
    lines = [f"[Phase {handoff.phase}: {fold_lines(handoff.phase_name)} — {fold_lines(handoff.status)}{took}]"]
    verdicts = [f"{fold_lines(key)} {fold_lines(value)}" for key, value in sorted((handoff.verdicts or {}).items())]
    fields = [
        ("verdicts", "Verdict", _join(verdicts)),
        ("epic_id", "Epic", fold_lines(handoff.epic_id)),
        ("artifacts_produced", "Artifacts", _join(handoff.artifacts_produced)),
        ("decisions_made", "Decisions", _join(handoff.decisions_made)),
        ("open_risks", "Risks", _join(handoff.open_risks)),
        ("narrative", "Narrative", cap_narrative(handoff.narrative, manifest)),
    ]
    return "\n".join(lines + [f"{label}: {text}" for name, label, text in fields if text and manifest.selects(name)])


def _join(items: Iterable[str] | None) -> str:
    """Join items with commas; after an item that is a sentence, a blank is enough."""
    texts = [text for item in items or () if (text := fold_lines(item))]
    return "".join(text + (" " if text.endswith((".", "!", "?")) else ", ") for text in texts[:-1]) + "".join(
        texts[-1:]
    )


def _warnings(handoffs: Sequence[PhaseHandoff], missing: Iterable[int]) -> str:
    degraded = [(handoff.phase - 1, f"phase {handoff.phase}") for handoff in handoffs if handoff.context_degradation]
    lines = [
        f"Warning: phase {before} left no handoff; {who} ran without its context."
        for before, who in [*degraded, *((ordinal, "this phase") for ordinal in missing)]
    ]
    return "\n".join(lines)


def cap_narrative(text: str, manifest: PhaseManifest) -> str:
    """Return a narrative on one line, truncated to the manifest's cap. `...` is part of the cap, if it is above 3."""
    cap = manifest.effective_narrative_cap
    if cap <= 0:
        return ""
    folded = fold_lines(text)
    if len(folded) <= cap:
        return folded
    return folded[: cap - len(SUFFIX)] + SUFFIX if cap > len(SUFFIX) else folded[:cap]


def fold_lines(text: str) -> str:
    """Return a text on one line, so that no field can imitate another field. Lone surrogates become U+FFFD."""
    lines = (text or "").splitlines()
    folded = lines[0].strip() if len(lines) == 1 else " ".join(stripped for line in lines if (stripped := line.strip()))
    return valid_text(folded)


def build_phase_context(goal: str, verdicts: Mapping[str, str], summaries: Mapping[int, str]) -> str:
    """Return the context of a phase from prose summaries, for runs without structured handoffs.

    Args:
        goal: What the run is for.
        verdicts: Verdicts so far.
        summaries: The summary of each earlier phase, by ordinal.
    """
    lines = [f"Goal: {folded}"] if (folded := fold_lines(goal)) else []
    joined = _join(f"{fold_lines(key)} {fold_lines(value)}" for key, value in sorted(verdicts.items()))
    lines += [f"Verdict: {joined}"] if joined else []
    lines += [f"[Phase {number}] {text}" for number, one in sorted(summaries.items()) if (text := fold_lines(one))]
    return "\n".join([HEADER, *lines]) if lines else ""
