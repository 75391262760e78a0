"""Handoffs of a run: record the handoff of a completed phase, and assemble the handoffs for a later phase.

A handoff is derived from recorded data: the decision, the artifact, changed files, reviews, sub-runs. Its size and the
number of handoffs per phase are limited, so the cost of a visit does not grow with the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from reyn.config.values import HANDOFF_FIELDS, CounterName
from reyn.context import ContextBudgetResult, PhaseHandoff, PhaseManifest, apply_context_budget, build_phase_context
from reyn.context.budget import FittedText, SectionCost
from reyn.context.field_order import plain_text
from reyn.context.handoff import HandoffContext, HandoffStatus, assemble_handoff_context, fold_lines
from reyn.context.tokens import CHARS, TokenCounter, truncate_to_length
from reyn.errors import RunBlocked
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.core.effects import FitTokens
from reyn.kernel.core.snapshot import MAX_SUB_RUNS
from reyn.kernel.visit.prompt_budget import recall_fitted
from reyn.workspace.paths import WORKSPACE

if TYPE_CHECKING:
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.completed_steps import CompletedStep
    from reyn.kernel.visit.op_log import OpLog

T = TypeVar("T")
MAX_HANDOFF_ITEMS = 20
"""The number of items in a list of a handoff."""
MAX_ITEM_CHARS = 500
MAX_NARRATIVE_CHARS = 2_000
MAX_GATE_CHARS = 80
"""The beginning of a rubric that names its verdict."""
_MAX_SOURCE_BYTES = 24_000
"""The part of an artifact that is put into words."""


async def hand_in(phase: CompiledPhase, entry: Visit, tape: Tape) -> str | None:
    """Assemble the handoffs for a phase; return the hash of the text, or `None` if there is none."""
    history = tape.state.history
    ordinal = history.ordinal(entry.phase)
    manifest = phase.context(ordinal).manifest
    if manifest is None:
        return None
    counter = phase.handoff_counter(tape.state)
    assemble = _assembling(manifest, entry, tape)
    if counter == "chars":
        built = assemble(CHARS)
    else:
        built = await _count_exactly(assemble, manifest, counter, phase, entry, tape)
    if not built.text:
        return None
    content = Blob.of(built.text.encode())
    applied = kinds.ContextBudgetApplied(
        entry.phase,
        entry.visit,
        ordinal,
        content.hash,
        built.result.original_tokens,
        built.result.budget_tokens,
        built.result.truncated_tokens,
        built.result.was_truncated,
        tuple(kinds.SectionTokens(section.name, section.original_tokens, section.tokens) for section in built.sections),
        built.warnings_truncated,
        counter,
    )
    return tape.emit(applied, content).text


def _assembling(manifest: PhaseManifest, entry: Visit, tape: Tape) -> Callable[[TokenCounter], HandoffContext]:
    """Return a function that assembles the handoffs for a phase. It uses only values, so any thread may call it."""
    recorded = tape.state.history.handoffs
    handoffs = [_read(name, tape) for _, name in recorded.latest]
    missing = _missing(entry, tape)
    if not handoffs and missing is None:
        return _from_summaries(manifest, tape)
    warnings = [] if missing is None else [missing]
    return lambda counter: assemble_handoff_context(
        handoffs, manifest, warnings, recorded.count - len(handoffs), counter
    )


async def _count_exactly(
    assemble: Callable[[TokenCounter], HandoffContext],
    manifest: PhaseManifest,
    counter: CounterName,
    phase: CompiledPhase,
    entry: Visit,
    tape: Tape,
) -> HandoffContext:
    """Assemble the handoffs for a phase with an exact counter, and record its counts."""

    def work(exact: TokenCounter) -> FittedText:
        built = assemble(exact)
        return FittedText(built.result.original_tokens, built.result.truncated_tokens, built.sections, text=built.text)

    key = f"{entry.step}.handoff"
    counted = await FitTokens(key, counter, phase.model or tape.state.models.name, work)
    fitted = recall_fitted(counted, tape.content)
    text = fitted.text or ""
    if manifest.max_tokens > 0 and fitted.tokens > manifest.max_tokens:
        raise RunBlocked(f"the recorded context `{key}` exceeds its budget")
    was_truncated = 0 < manifest.max_tokens < fitted.original_tokens
    result = ContextBudgetResult(fitted.original_tokens, manifest.max_tokens, fitted.tokens, was_truncated)
    warnings_truncated = any(section.was_truncated for section in fitted.sections if section.name == "warnings")
    return HandoffContext(text, result, fitted.sections, warnings_truncated)


def _from_summaries(manifest: PhaseManifest, tape: Tape) -> Callable[[TokenCounter], HandoffContext]:
    """Build the context of a phase without earlier handoffs from the summaries that the run started with."""
    name = tape.state.started.summaries
    if name is None:
        return lambda counter: assemble_handoff_context((), manifest, counter=counter)
    summaries = _decode(name, dict[int, str], "the recorded summaries of phases", tape)
    goal = _line(_goal_before([], tape)) if manifest.selects("goal") else ""

    def build(counter: TokenCounter) -> HandoffContext:
        text, result = apply_context_budget(build_phase_context(goal, {}, summaries), manifest.max_tokens, counter)
        costs = (SectionCost("summaries", result.original_tokens, result.truncated_tokens),)
        return HandoffContext(text, result, costs)

    return build


def hand_over(
    phase: CompiledPhase,
    entry: Visit,
    artifact: dict[str, Any],
    log: OpLog,
    tape: Tape,
    *,
    status: HandoffStatus = "completed",
    reason: str = "",
    extra: dict[str, Any] | None = None,
) -> None:
    """Record the handoff of a phase that completed, if the skill uses handoffs.

    Args:
        phase: The phase.
        entry: Its visit.
        artifact: The artifact that it produced.
        log: Its ops.
        tape: The run's tape.
        status: How its visit ended.
        reason: The reason of its decision.
        extra: The handoff that the model added to its decision.
    """
    if not phase.uses_handoffs:
        return
    handoff = _derive(phase, entry, artifact, log, tape, status, reason, extra or {})
    content = Blob.of(canonical(handoff))
    tape.emit(kinds.HandoffRecorded(entry.phase, entry.visit, handoff.phase, content.hash), content)


def _derive(
    phase: CompiledPhase,
    entry: Visit,
    artifact: dict[str, Any],
    log: OpLog,
    tape: Tape,
    status: HandoffStatus,
    reason: str,
    extra: dict[str, Any],
) -> PhaseHandoff:
    state = tape.state
    before = [_read(name, tape) for _, name in state.history.handoffs.latest[-1:]]
    sub_runs, earlier = _sub_runs(log, tape)
    below = [_read(run.handoff, tape) for run in sub_runs if run.handoff]
    data = artifact["data"] if isinstance(artifact["data"], dict) else {}
    own = data | extra
    input_data = _data(entry.input.hash, tape)
    named = _texts(own.get("decisions_made"))
    decisions = named or [reason]
    words = _words(artifact)
    narrative = _text(own.get("narrative")) or " ".join(part for part in (reason if named else "", words) if part)
    if earlier:
        decisions.append(f"(+{earlier} earlier sub-runs)")
    decisions += [run.summary for run in sub_runs if run.summary and not run.handoff]
    verdicts = [verdicts for one in (*before, *below) if (verdicts := one.verdicts)]
    reviewed = {entry.phase: "approved"} if phase.kind == "phase" and phase.definition.requires_approval else {}
    checked = {truncate_to_length(fold_lines(gate), MAX_GATE_CHARS): verdict for gate, verdict in log.verdicts.items()}
    # Files in the workspace of a sub-run are not files of this run; those of a shared one are among the changes.
    files_below = [path for path in _all(below, "artifacts_produced") if not path.startswith(WORKSPACE)]
    return PhaseHandoff(
        phase=state.history.ordinal(entry.phase),
        phase_name=entry.phase,
        status=status,
        goal=_line(_text(own.get("goal")) or _text(input_data.get("goal")) or _goal_before(before, tape)),
        epic_id=_line(_text(own.get("epic_id")) or _text(input_data.get("epic_id")) or _epic_before(before, below)),
        verdicts=_verdicts([*verdicts, checked, reviewed, own.get("verdicts")]),
        artifacts_produced=_items([*_written(log, tape), *_texts(own.get("artifacts_produced")), *files_below]),
        decisions_made=_items([*decisions, *_all(below, "decisions_made")]),
        open_risks=_items([*_texts(own.get("open_risks")), *_all(below, "open_risks")]),
        narrative=truncate_to_length(fold_lines(narrative), MAX_NARRATIVE_CHARS),
        duration_seconds=(state.active - state.visit_start) / 1_000_000,
        context_degradation=_missing(entry, tape) is not None,
        completed_at=f"{datetime.fromtimestamp(tape.ts // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}",
    )


def _sub_runs(log: OpLog, tape: Tape) -> tuple[list[CompletedStep | kinds.ChildEnded], int]:
    """Return the last sub-runs of a visit, with those that it took over from another attempt, and how many it omits."""
    visit = tape.state.visit
    found = [*(log.steps.taken if log.steps is not None else ()), *visit.sub_runs]
    return found[-MAX_SUB_RUNS:], visit.earlier_sub_runs + max(0, len(found) - MAX_SUB_RUNS)


def _written(log: OpLog, tape: Tape) -> list[str]:
    """Return the files that a visit has written and not deleted, in the order in which it began to."""
    contents = {change.path: change.after for change in reversed(log.changes_of(tape.state.run_id))}
    return [path for path, content in contents.items() if content is not None]


def _missing(entry: Visit, tape: Tape) -> int | None:
    """Return the ordinal of the phase before this one if it left no handoff: the skill did not use any then."""
    history = tape.state.history
    if history.trail:
        before = history.trail[-1].phase
        return None if any(phase == before for phase, _ in history.handoffs.latest) else history.ordinal(before)
    others = [name for name in history.visits if name != entry.phase]
    if entry.rollback is not None or not others or history.handoffs.count:
        return None
    return history.ordinal(others[-1])


def _read(name: str, tape: Tape) -> PhaseHandoff:
    return _decode(name, PhaseHandoff, "a recorded handoff", tape)


def _decode(name: str, shape: type[T], what: str, tape: Tape) -> T:
    """Decode recorded content. An imported run can hold anything."""
    try:
        return msgspec.json.decode(tape.content(name), type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RunBlocked(f"{what} cannot be read: {error}") from error


def _data(name: str, tape: Tape) -> dict[str, Any]:
    content = tape.content(name)
    data = msgspec.json.decode(content)["data"] if len(content) <= _MAX_SOURCE_BYTES else {}
    return data if isinstance(data, dict) else {}


def _goal_before(before: list[PhaseHandoff], tape: Tape) -> str:
    """Return the goal of the handoff before this one; in the first one, the input of the run in words."""
    if before:
        return before[-1].goal
    return _in_words(tape.content(tape.state.started.input.hash))


def _epic_before(before: list[PhaseHandoff], below: list[PhaseHandoff]) -> str:
    """Return the work item of a sub-run of this phase, else of the handoff before this one."""
    return next((one.epic_id for one in (*reversed(below), *before) if one.epic_id), "")


def _words(artifact: dict[str, Any]) -> str:
    """Put an artifact into words, without the fields of a handoff: a manifest may not select those."""
    data = artifact["data"]
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key not in HANDOFF_FIELDS}
    return "" if data in ({}, None) else _in_words(canonical({"data": data, "type": artifact["type"]}))


def _in_words(content: bytes) -> str:
    """Put an artifact into words, on one line; for a large artifact, return the beginning of its JSON."""
    if len(content) > _MAX_SOURCE_BYTES:
        return fold_lines(content[:_MAX_SOURCE_BYTES].decode("utf-8", "ignore"))
    return fold_lines(plain_text(content))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    """Return the items of a list as texts."""
    items = value if isinstance(value, list) else []
    return [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items]


def _line(text: str) -> str:
    return truncate_to_length(fold_lines(text), MAX_ITEM_CHARS)


def summarize_sub_run(reason: str) -> str:
    """Return the summary of a sub-run for its parent: the reason of its last decision, bounded."""
    return _line(reason)


def _items(texts: Iterable[str]) -> tuple[str, ...]:
    """Return distinct texts, bounded in number and length. The last one counts the omitted texts."""
    items = list(dict.fromkeys(line for text in texts if (line := _line(text))))
    if len(items) <= MAX_HANDOFF_ITEMS:
        return tuple(items)
    return (*items[: MAX_HANDOFF_ITEMS - 1], f"(+{len(items) - MAX_HANDOFF_ITEMS + 1} more)")


def _all(handoffs: list[PhaseHandoff], field: str) -> list[str]:
    return [text for handoff in handoffs for text in getattr(handoff, field)]


def _verdicts(sources: Iterable[Any]) -> dict[str, str]:
    """Merge verdicts: later ones replace earlier ones, and the oldest are dropped beyond the limit."""
    merged: dict[str, str] = {}
    for source in sources:
        for name, verdict in source.items() if isinstance(source, dict) else ():
            key = _line(name)
            merged.pop(key, None)
            merged[key] = _line(verdict if isinstance(verdict, str) else json.dumps(verdict))
    return dict(list(merged.items())[-MAX_HANDOFF_ITEMS:])
