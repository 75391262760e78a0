"""The state of a run that the lines of `reyn run` and `reyn show` depend on, and the line at the end of a visit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec

from reyn.config.budgets import amount_text, money_text
from reyn.errors import JournalError
from reyn.journal import Body, kinds
from reyn.skills.values import DEFAULT_ACT_TURNS, DEFAULT_OPS
from reyn.texts import counted
from reyn.vocabulary import form_name


class _PinnedPhase(msgspec.Struct):
    allowed_ops: tuple[str, ...] = DEFAULT_OPS
    max_act_turns: int = DEFAULT_ACT_TURNS


class _PinnedSkill(msgspec.Struct):
    """The part of a run's copy of its skill that says which phases have ops."""

    phases: dict[str, _PinnedPhase] = {}


class ActingPhases:
    """The phases that allow ops, by the hash of a run's copy of its skill. A copy that cannot be read has none."""

    def __init__(self, content: Callable[[str], bytes]) -> None:
        self._content = content
        self._known: dict[str, frozenset[str]] = {"": frozenset()}

    def have_ops(self, skill: str, phase: str) -> bool:
        """Return whether a phase allows ops."""
        if skill not in self._known:
            try:
                phases = msgspec.json.decode(self._content(skill), type=_PinnedSkill).phases
            except (JournalError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                phases = {}
            acting = (name for name, one in phases.items() if one.allowed_ops and one.max_act_turns)
            self._known[skill] = frozenset(acting)
        return phase in self._known[skill]


class VisitOps:
    """The ops of one visit that the model requested; those of its steps come before the first model call."""

    def __init__(self) -> None:
        self._is_asked = False
        self._names: dict[str, str] = {}
        self._statuses: dict[str, str] = {}

    def copy(self) -> VisitOps:
        """Return a copy that takes further events on its own."""
        other = copy(self)
        other._names = dict(self._names)  # noqa: SLF001 - of the same class
        other._statuses = dict(self._statuses)  # noqa: SLF001 - of the same class
        return other

    def add(self, body: Body) -> None:
        """Take an event of the visit."""
        match body:
            case kinds.LlmRequested():
                self._is_asked = True
            case (
                kinds.OpStarted(call=call, op_kind=kind, op=op) | kinds.ApprovalRequired(call=call, op_kind=kind, op=op)
            ):
                self._names[call] = form_name(kind, op)
            case kinds.PermissionDenied(call=call, op_kind=kind, op=op):
                self._names[call] = form_name(kind, op)
                self._end(call, "denied")
            case kinds.ApprovalDecided(call=call, result=result) if result is not None:
                self._end(call, "denied")
            case kinds.OpCompleted(call=call, status=status):
                self._end(call, status)

    def _end(self, call: str, status: str) -> None:
        if self._is_asked and call in self._names:
            self._statuses[call] = status

    @property
    def used(self) -> list[dict[str, Any]]:
        """The ops in the order of their first outcome, with how often each had which status."""
        times = Counter((self._names[call], status) for call, status in self._statuses.items())
        return [{"op": name, "status": status, "times": count} for (name, status), count in times.items()]

    @property
    def text(self) -> str:
        """The ops in words."""
        parts = [
            one["op"]
            + (f" ({one['status']})" if one["status"] != "ok" else "")
            + (f" {one['times']} times" if one["times"] > 1 else "")
            for one in self.used
        ]
        return f"used {', '.join(parts)}" if parts else "no op used"


class StartedSkill:
    """The state of a run that the lines of later events depend on."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.phase = ""
        self.visit = self.called_at = 0
        self.ops: dict[str, str] = {}
        """The name of each op that was started; empty for one whose request is a question."""
        self.sub_runs: dict[str, str] = {}
        """The open sub-run of each call."""
        self.message_wait = ""
        """The open wait for the next message of a conversation."""
        self.price: kinds.Price | None = None
        """The price of the call in progress."""
        self.call_cost: int | None = None
        self.visit_cost = kinds.Charge()
        self.skill_hash = ""
        self.visit_ops = VisitOps()

    def copy(self) -> StartedSkill:
        """Return a copy that takes further events on its own."""
        other = copy(self)
        other.ops, other.sub_runs, other.visit_ops = dict(self.ops), dict(self.sub_runs), self.visit_ops.copy()
        return other

    def take(self, body: Body) -> None:
        """Take an event of the run."""
        match body:
            case kinds.RunStarted() | kinds.RunForked() | kinds.RunResumed():
                self.skill_hash = body.skill_hash or self.skill_hash
            case kinds.PhaseStarted(phase=phase, visit=visit):
                self.phase, self.visit, self.ops, self.visit_cost = phase, visit, {}, kinds.Charge()
                self.visit_ops = VisitOps()
            case (
                kinds.PhaseCompleted(next_phase=str(phase))
                | kinds.PhaseRolledBack(to=phase)
                | kinds.ErrorHandled(to=phase)
            ):
                self.phase, self.visit = phase, 0
        self.visit_ops.add(body)

    @property
    def where(self) -> str:
        return f"{self.phase} · visit {self.visit}" if self.visit else self.phase


def end_of_visit(
    body: kinds.PhaseCompleted | kinds.PhaseAborted | kinds.PhaseFailed,
    ops: VisitOps,
    cost: kinds.Charge,
    *,
    has_ops: bool,
) -> tuple[str, str, dict[str, Any]] | None:
    """Return the type, the text and the values of the line at the end of a visit; `None` if it needs no line.

    Args:
        body: The last event of the visit.
        ops: The ops that it used.
        cost: What its model calls cost.
        has_ops: Whether its phase allows ops.
    """
    kind, text, data = _how_it_ended(body)
    parts = [text] if text else []
    if has_ops or ops.used:
        parts.append(ops.text)
        data |= {"phase": body.phase, "visit": body.visit, "ops": ops.used}
    if cost.cost:
        parts.append(
            f"cost {money_text(cost.cost, cost.currency)} · {cost.tokens:,} tokens · {counted(cost.calls, 'call')}"
        )
        data |= {"cost": amount_text(cost.cost), "currency": cost.currency, "tokens": cost.tokens}
    return (kind, " · ".join(parts), data) if parts else None


def _how_it_ended(
    body: kinds.PhaseCompleted | kinds.PhaseAborted | kinds.PhaseFailed,
) -> tuple[str, str, dict[str, Any]]:
    match body:
        case kinds.PhaseFailed(reason=reason, error_name=name):
            return "visit_failed", f"visit failed: {reason}", {"error": name} if name else {}
        case kinds.PhaseAborted(reason=reason, code=code) if code:
            return "turn_failed", f"no reply: {reason} ({code})", {"code": code}
        case kinds.PhaseAborted(reason=reason):
            return "turn_aborted", reason, {}
    return "visit_end", "", {}
