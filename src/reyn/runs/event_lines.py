"""The lines of events that need nothing but the event: the ends of runs, what became of an answer, errors of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from reyn.journal import Body, kinds
from reyn.texts import truncated

_SECOND = 1_000_000


def duration(microseconds: int) -> str:
    """Format a duration: `3.2 s`, `4:07`, `2:30:00`."""
    seconds = max(0, microseconds) / _SECOND
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def to_line(text: str, length: int = 300) -> str:
    """Return a text as one line, truncated."""
    line = truncated(text, length)
    return line if line.isprintable() else line.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


class Shown(NamedTuple):
    """What is shown about an event: its level and type are those of `TimelineEntry`."""

    level: int
    type: str
    text: str
    data: Mapping[str, Any] = MappingProxyType({})


def end_line(body: Body) -> Shown | None:
    """Return the line of an event that ends or stops a run."""
    match body:
        case kinds.LimitReached(reason=reason, limit=limit, value=value):
            return Shown(1, "limited", f"limit reached: {reason}", {"limit": limit, "value": value})
        case kinds.RunFailed(reason=reason, code=code) | kinds.RunBroken(reason=reason, code=code):
            return Shown(1, "failed", f"failed: {reason} ({code})", {"code": code})
        case kinds.SkillAborted(reason=reason):
            return Shown(1, "aborted", f"aborted: {reason}")
        case kinds.RunCancelled(reason=reason):
            return Shown(1, "cancelled", f"cancelled{f': {reason}' if reason else ''}")
        case kinds.SkillCompleted():
            return Shown(1, "finished", "finished")
    return None


def answer_line(body: Body) -> Shown | None:
    """Return the line of an event about a model's answer, or about the end of a visit."""
    match body:
        case kinds.ValidationError(path=path, message=message, class_=rule):
            return Shown(2, "rejected", f"rejected at {path}: {message}", {"path": path, "class": rule})
        case kinds.AnswerUnwrapped(dropped=dropped):
            return Shown(2, "unwrapped", f"ignored {dropped} characters around the answer")
        case kinds.DecisionDeferred(op=op, status=status):
            why = "asked a question" if status == "ok" else f"is {status}"
            return Shown(2, "deferred", f"decision deferred: op {op} {why}", {"op": op, "status": status})
        case kinds.ControlDecided(type=kind, next_phase=target, confidence=confidence, reason=reason):
            data = {"next": target or kind, "confidence": confidence, "reason": reason}
            return Shown(2, "decided", f"→ {target or kind} ({confidence:.2f}) {reason}".rstrip(), data)
        case kinds.RuleMatched(rule=rule, when=when, to=to, read=read):
            data = {"next": to, "rule": rule, "when": when, "read": read}
            return Shown(2, "decided", f"→ {to} (rule {rule}: {when or 'else'}){_read_text(read)}", data)
        case kinds.ConditionsChecked(removed=removed, read=read) if removed:
            text = f"not allowed: {', '.join(removed)}{_read_text(read)}"
            return Shown(2, "not_allowed", text, {"removed": list(removed), "read": read})
        case kinds.ArtifactStored(state=kinds.StateChange(items=items, sums=sums)):
            found = [f"{name} has {count}" for name, count in items.items()]
            found += [f"{name} is {total}" for name, total in sums.items()]
            return Shown(2, "state", f"state: {', '.join(found)}", {"items": items, "sums": sums})
        case kinds.ContentTruncated(name=name, bytes=size):
            return Shown(2, "truncated", f"{name} truncated: it has {size:,} bytes")
        case kinds.ContextBudgetApplied(was_truncated=True, original_tokens=before, truncated_tokens=after):
            text = f"context truncated: {before:,} to {after:,} tokens; the budget is {body.budget_tokens:,}"
            return Shown(2, "truncated", text, {"original_tokens": before, "tokens": after})
        case kinds.FrameBuilt(budget=kinds.PromptBudget(sections=sections, tokens=after, limit=limit)) if sections:
            before = sum(section.original_tokens for section in sections)
            names = " and ".join(section.name for section in sections if section.tokens < section.original_tokens)
            text = f"prompt truncated ({names}): {before:,} to {after:,} tokens; the budget is {limit:,}"
            return Shown(2, "truncated", text, {"original_tokens": before, "tokens": after})
        case kinds.ContextCompacted(dropped=dropped, tokens_before=before, tokens_after=after):
            text = f"conversation compacted: {dropped} messages summarised, {before:,} to {after:,} tokens"
            return Shown(2, "compacted", text, {"messages": dropped, "original_tokens": before, "tokens": after})
        case kinds.ContextLogFailed(path=path, reason=reason):
            return Shown(2, "log_failed", f"{path} could not be written: {reason}")
        case kinds.PhaseRolledBack(phase=phase, to=to, reason=reason):
            return Shown(1, "rolled_back", f"rolled back from {phase} to {to}: {reason}", {"from": phase, "to": to})
        case kinds.PostprocessorFailed(reason=reason, code=code):
            return Shown(2, "visit_failed", f"{reason} ({code})", {"code": code})
    return None


def error_line(body: Body) -> Shown | None:
    """Return the line of what a node does about an error."""
    match body:
        case kinds.VisitRetried(phase=phase, error=name, attempt=attempt, max=most):
            data = {"phase": phase, "error": name, "attempt": attempt, "max": most, "wait_ms": body.wait_ms}
            after = f" in {duration(body.wait_ms * 1000)}" if body.wait_ms else ""
            return Shown(1, "visit_retried", f"{phase} is repeated{after} after {name} ({attempt} of {most})", data)
        case kinds.ErrorHandled(phase=phase, error=name, to=handler):
            data = {"phase": phase, "error": name, "to": handler}
            return Shown(1, "error_handled", f"{name} of {phase} → {handler}", data)
    return None


def _read_text(read: dict[str, Any]) -> str:
    """Return the values that an expression has read: a text as it is, any other value as JSON."""
    texts = {path: one if isinstance(one, str) else msgspec.json.encode(one).decode() for path, one in read.items()}
    return f" {', '.join(f'{path}: {to_line(text, 40)}' for path, text in texts.items())}" if read else ""
