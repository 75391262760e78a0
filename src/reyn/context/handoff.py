"""Handoffs: the records of completed phases, and the section of a prompt that is built from them.

The functions are pure. The kernel derives handoffs from the events of a run and records the effect of the budget.
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from reyn.config.values import HANDOFF_FIELDS, ContextChoice, HandoffSettings
from reyn.context.budget import SEPARATOR, ContextBudgetResult, SectionCost, apply_context_budget, section_costs
from reyn.context.tokens import (
    CHARS,
    CHARS_PER_TOKEN,
    SUFFIX,
    TokenCounter,
    longest_fitting,
    truncate_to_length,
    truncate_to_token_budget,
    valid_text,
)
from reyn.documents import nearest_hint
from reyn.errors import ManifestInvalid
from reyn.folders import FILE, OpenFolder, open_beneath, open_inside
from reyn.journal import Blob, canonical

if TYPE_CHECKING:
    from pathlib import Path


HandoffStatus = Literal["completed", "time_boxed"]
"""How a visit ended: by itself, or because it had used all its act turns."""
HEADER = "From earlier phases:"


class PhaseHandoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record that a completed phase leaves for later phases.

    Attributes:
        phase: The ordinal of the phase: its rank among the phases of the run, by first visit.
        phase_name: Its name.
        status: How its visit ended: `completed`, or `time_boxed` if it had used all its act turns.
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

    Warnings about missing handoffs are always included: their budget is reserved first. Beyond the budget, whole
    handoffs are left out, the oldest first; the last one is truncated if it does not fit alone.

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
    blocks = [
        (f"phase {handoff.phase}: {fold_lines(handoff.phase_name)}", _phase_text(handoff, manifest))
        for handoff in handoffs
    ]

    texts, goal = [text for _, text in blocks], _goal(handoffs) if manifest.selects("goal") else ""

    def head_after(dropped: int) -> str:
        return _head(len(handoffs) - dropped, omitted + dropped, goal)

    def body_after(dropped: int) -> str:
        return SEPARATOR.join((head_after(dropped), *texts[dropped:]))

    def tokens_after(dropped: int) -> int:
        return counter.count(_join_parts(body_after(dropped), warnings))

    whole = _join_parts(body_after(0), warnings)
    tokens, dropped = counter.count(whole), 0
    if 0 < manifest.max_tokens < tokens and len(blocks) > 1:
        fewer = range(len(blocks) - 1)
        dropped = bisect_left(fewer, True, lo=1, key=lambda one: tokens_after(one) <= manifest.max_tokens)  # noqa: FBT003 - `bisect_left` has no keyword
    body, fitted_warnings = body_after(dropped), warnings
    if 0 < manifest.max_tokens < tokens_after(dropped):
        body, fitted_warnings = _fit(body, warnings, manifest.max_tokens, counter)
    text = _join_parts(body, fitted_warnings)
    result = ContextBudgetResult(tokens, manifest.max_tokens, counter.count(text), was_truncated=text != whole)
    sections = [("header", head_after(dropped)), *blocks[dropped:]]
    header, *rest = section_costs(sections, len(body), counter)
    left_out = (SectionCost(name, counter.count(text), 0) for name, text in blocks[:dropped])
    costs = (header, *left_out, *rest)
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


def _goal(handoffs: Sequence[PhaseHandoff]) -> str:
    """Return the goal of the latest handoff with one, also if the handoff itself is left out."""
    return next((goal for handoff in reversed(handoffs) if (goal := fold_lines(handoff.goal))), "")


def _head(count: int, omitted: int, goal: str) -> str:
    header = f"{HEADER[:-1]} (the last {count} of {count + omitted}):" if omitted else HEADER
    return f"{header}\nGoal: {goal}" if goal else header


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


LOG_FOLDER = ".agents/rpi"
MAX_SUMMARIES = 20
MAX_SUMMARY_CHARS = 4_000
_MAX_BYTES = 64_000
_NAME = re.compile(r"phase-([1-9][0-9]{0,2})-summary\.md")


def read_summaries(root: Path, scrub: Callable[[str], str]) -> Blob | None:
    """Return the summaries `.agents/rpi/phase-N-summary.md` of a project as JSON, by N; `None` without any.

    A file that cannot be read appears with the reason. Links are not followed. `scrub` removes secrets.
    """
    try:
        handle = open_inside(root, root / LOG_FOLDER)
    except OSError:
        return None
    if handle is None:
        return None
    with OpenFolder(LOG_FOLDER, handle):
        listed = os.listdir(handle)  # noqa: PTH208 - a descriptor
        names = sorted((int(match[1]), name) for name in listed if (match := _NAME.fullmatch(name)))
        summaries = {str(number): scrub(_read(handle, name)) for number, name in names[:MAX_SUMMARIES]}
    return Blob.of(canonical(summaries)) if summaries else None


def _read(folder: int, name: str) -> str:
    try:
        with os.fdopen(open_beneath(folder, name, FILE), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "(could not be read: not a file)"
            content = file.read(_MAX_BYTES)
    except OSError as error:
        return f"(could not be read: {error.strerror})"
    return truncate_to_length(fold_lines(content.decode("utf-8", "replace")), MAX_SUMMARY_CHARS)


DEFAULT_NARRATIVE_CAP = 1000
"""The cap on a narrative where a manifest selects no fields and sets no cap."""


class PhaseManifest(msgspec.Struct, frozen=True):
    """The context that a phase receives from earlier phases.

    Attributes:
        phase: The phase that receives it.
        handoff_fields: The fields that the phase sees; empty or `None`: all fields.
        narrative_cap: The maximum number of code points of a narrative. 0 means none when `handoff_fields` is set,
            else 1000. Listing `narrative` in `handoff_fields` has no effect.
        max_tokens: The budget of the assembled text; 0 is unlimited.

    Raises:
        ManifestInvalid: A field does not exist.
    """

    phase: int = 0
    handoff_fields: tuple[str, ...] | None = ()
    narrative_cap: int = 0
    max_tokens: int = 0

    def __post_init__(self) -> None:
        fields = tuple(self.handoff_fields or ())
        for name in fields:
            if name not in HANDOFF_FIELDS:
                hint = nearest_hint(str(name), HANDOFF_FIELDS) or f"The fields are {', '.join(HANDOFF_FIELDS)}."
                raise ManifestInvalid(f"no handoff field `{name}`", hint=hint)
        msgspec.structs.force_setattr(self, "handoff_fields", fields)

    def selects(self, field: str) -> bool:
        """Return whether the phase sees a field. The cap alone decides about narratives."""
        if field == "narrative":
            return self.effective_narrative_cap > 0
        return not self.handoff_fields or field in self.handoff_fields

    @property
    def effective_narrative_cap(self) -> int:
        """The maximum number of code points of a narrative; 0 if narratives are omitted."""
        if self.narrative_cap > 0:
            return self.narrative_cap
        return 0 if self.handoff_fields else DEFAULT_NARRATIVE_CAP


default_manifests: Mapping[int, PhaseManifest] = MappingProxyType(
    {
        1: PhaseManifest(phase=1),
        2: PhaseManifest(
            phase=2,
            handoff_fields=("goal", "epic_id", "verdicts", "decisions_made", "open_risks"),
            narrative_cap=500,
            max_tokens=2500,
        ),
        3: PhaseManifest(
            phase=3,
            handoff_fields=("goal", "epic_id", "verdicts", "artifacts_produced"),
            narrative_cap=1000,
            max_tokens=2500,
        ),
    }
)
"""Manifests for discovery (1), implementation (2) and validation (3)."""
_ORDINALS: Mapping[int | str, int | str] = {"discovery": 1, "implementation": 2, "validation": 3}
_EQUIVALENT = {**_ORDINALS, **{ordinal: name for name, ordinal in _ORDINALS.items()}}


def resolve_manifest(phase: int | str, *overrides: Mapping[int | str, PhaseManifest]) -> PhaseManifest:
    """Return the manifest of a phase: the first override that has one, else the default.

    Without either, the manifest is permissive: all fields, no limit.

    Args:
        phase: The ordinal of the phase, or its name. The default manifests have both: 2 is `implementation`.
        overrides: Manifests by ordinal or name, those of the highest precedence first.
    """
    tables: list[Mapping[Any, PhaseManifest]] = [*overrides, default_manifests]
    for manifests in tables:
        manifest = manifests.get(phase) or manifests.get(_EQUIVALENT.get(phase))
        if manifest is not None:
            return manifest
    return PhaseManifest(phase=phase if isinstance(phase, int) else 0)


class PhaseContext(NamedTuple):
    """The handoffs that a phase receives (`None`: none), and whether the model is asked to add one."""

    manifest: PhaseManifest | None = None
    asks_handoff: bool = False


_NO_HANDOFFS = PhaseContext()


def choose_context(ordinal: int, *levels: ContextChoice | None) -> PhaseContext:
    """Combine the `context` of a phase, its skill and the project.

    A word, or the key `manifest` of a mapping, replaces the manifest of the levels above; the other keys of a mapping
    replace what they set. A mapping without keys about handoffs changes nothing. `ask_handoff` is inherited unless a
    level sets it or is `none`.

    Args:
        ordinal: The rank of the phase by first visit, which `default` looks up. It gives the first phase nothing, also
            when it is visited again.
        levels: The values of `context`, the innermost first; `None` where it is absent.
    """
    if levels.count(None) == len(levels):
        return _NO_HANDOFFS
    manifest: PhaseManifest | None = None
    asks = is_first = False
    for level in reversed(levels):
        name = level.manifest if isinstance(level, HandoffSettings) else level
        if name == "none":
            manifest, asks = None, False
        elif name is not None:
            manifest = resolve_manifest(ordinal) if name == "default" else PhaseManifest(ordinal)
            is_first = name == "default" and ordinal == 1
        if isinstance(level, HandoffSettings) and level.changes_manifest:
            base = manifest or PhaseManifest(ordinal)
            manifest = PhaseManifest(
                ordinal,
                base.handoff_fields if level.handoff_fields is msgspec.UNSET else level.handoff_fields,
                base.narrative_cap if level.narrative_cap is None else level.narrative_cap,
                base.max_tokens if level.max_tokens is None else level.max_tokens,
            )
            asks = asks if level.ask_handoff is None else level.ask_handoff
    return PhaseContext(None if is_first else manifest, asks)
