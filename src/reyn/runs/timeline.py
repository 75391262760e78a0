"""Turn events into readable lines, for `reyn run`, `reyn show` and the web pages. All wording of events is here.

Imports no kernel. The lines are plain text of any origin: what prints them escapes them for its medium.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from itertools import takewhile
from typing import Any

import msgspec

from reyn.config.budgets import amount_text, limit_text, money_text
from reyn.errors import JournalError
from reyn.journal import Body, Event, decode, kinds
from reyn.runs.event_lines import Shown, answer_line, duration, end_line, error_line, to_line
from reyn.runs.visit_ops import ActingPhases, StartedSkill, end_of_visit


class TimelineEntry(msgspec.Struct, frozen=True):
    """The line of one event.

    Attributes:
        run_id: The run of the event.
        seq: The number of the event.
        ts: The time of the event.
        level: The indentation.
        type: The type of the line, such as `decided`.
        text: The line.
        data: The values in the line, for programs.
        depth: The number of ancestors of the run.
    """

    run_id: str
    seq: int
    ts: int
    level: int
    type: str
    text: str
    data: dict[str, Any] = {}
    depth: int = 0

    @property
    def is_decision(self) -> bool:
        """Whether the line reports a decision, a question, or the beginning or the end of something."""
        return self.type not in _EFFECTS

    @property
    def is_warning(self) -> bool:
        """Whether the line reports a failure, or something that did not go as intended."""
        return self.type in _WARNINGS or self.data.get("status", "ok") != "ok"


_FAILURES = {"rejected", "rolled_back", "visit_failed", "turn_failed", "turn_aborted", "failed", "aborted"}
_WARNINGS = _FAILURES | {"retried", "switched", "limited"}
_EFFECTS = {
    "turn",
    "op",
    "step",
    "retried",
    "switched",
    "queued",
    "budget_waited",
    "restored",
    "unwrapped",
    "truncated",
}
_EFFECTS |= {"charged_in_full", "log_failed", "visit_end", "refused"}


class Timeline:
    """Turns the events of a run and its sub-runs into entries.

    Args:
        content: Returns the bytes that an event refers to by hash.
        recorded: Returns the events of a run whose first ones are not passed in.

    Attributes:
        activity: What the run does after its last event.
        tokens: The tokens used so far.
        unreported: The number of model calls whose usage the model did not report.
    """

    def __init__(
        self, content: Callable[[str], bytes], recorded: Callable[[str], Iterable[Event]] = lambda _: ()
    ) -> None:
        self._content = content
        self._recorded = recorded
        self._phases = ActingPhases(content)
        self._runs: dict[str, StartedSkill] = {}
        self.activity = ""
        self.tokens = 0
        self.unreported = 0

    def copy(self) -> Timeline:
        """Return a timeline that continues after the same event. It shares what it knows of skills."""
        other = copy(self)
        copies = {id(run): run.copy() for run in self._runs.values()}
        other._runs = {name: copies[id(run)] for name, run in self._runs.items()}  # noqa: SLF001 - of the same class
        return other

    def add(self, event: Event) -> TimelineEntry | None:
        """Return the entry of the next event, or `None` if it has none."""
        body = decode(event)
        run = self._run_of(event, body)
        run.take(body)
        line = self._run_line(body, event, run) or self._visit_line(body, run, event.ts) or self._op_line(body, run)
        if line is None:
            return None
        level = line.level + 2 * run.depth
        return TimelineEntry(
            event.run_id, event.seq, event.ts, level, line.type, to_line(line.text), dict(line.data), run.depth
        )

    def _run_of(self, event: Event, body: Body) -> StartedSkill:
        known = self._runs.get(event.run_id)
        if known is not None:
            return known
        match body:
            case kinds.RunForked(point=point):
                run = self._runs.get(point.run) or StartedSkill()
            case kinds.RunStarted(parent=kinds.ParentRef(run=above)) if above in self._runs:
                run = StartedSkill(self._runs[above].depth + 1)
            case _:
                above = max((name for name in self._runs if event.run_id.startswith(f"{name}.")), key=len, default="")
                run = StartedSkill(self._runs[above].depth + 1 if above else 0)
        if not isinstance(body, kinds.RunStarted):
            for earlier in takewhile(lambda one: one.seq < event.seq, self._recorded(event.run_id)):
                run.take(decode(earlier))
        self._runs[event.run_id] = run
        return run

    # -- runs ---------------------------------------------------------------------------

    def _run_line(self, body: Body, event: Event, run: StartedSkill) -> Shown | None:
        match body:
            case kinds.RunStarted():
                self.activity = "starting"
                rerun = f" · rerun of {body.rerun_of}" if body.rerun_of else ""
                return Shown(0, "started", f"run {body.run_id} · {body.skill} · {body.model}{rerun}")
            case kinds.RunForked(point=point):
                run.called_at = event.ts
                return Shown(
                    0,
                    "forked",
                    f"run {body.run_id} · forked from {point.run} at event {point.seq}{_changed(body)}"
                    f"{f' · may repeat later ops: {body.repeats}' if body.repeats else ''}",
                    {"of": point.run, "at": point.seq},
                )
            case kinds.RunResumed():
                run.called_at = event.ts
                at = f" at {run.phase}" if run.phase else ""
                self.activity = f"resuming{at}"
                calls = ", ".join(f"`{call}`" for call in body.open_intents)
                unknown = f" · outcome of {calls} unknown" if calls else ""
                retry = " to retry" if body.retry else ""
                data = {"retry": body.retry, "open_intents": body.open_intents}
                return Shown(0, "resumed", f"run {event.run_id} · resumed{at}{retry}{_changed(body)}{unknown}", data)
            case kinds.RunSuspended(runs=runs):
                self.activity = "waiting for sub-runs"
                names = f"{', '.join(runs[:3])}{' …' if len(runs) > 3 else ''}"
                return Shown(1, "suspended", f"waits for workers to execute {names}", {"runs": runs})
            case kinds.LimitRaised(limit=limit, value=value):
                amount = "" if value is None else limit_text(limit, value)
                text = f"limit `{limit}` removed" if value is None else f"limit `{limit}` raised to {amount}"
                return Shown(1, "limit_raised", text, {"limit": limit, "value": value})
            case kinds.MessageRefused(type=kind, reason=reason):
                said = f": {to_line(self._text(body.text), 80)}" if body.text is not None else ""
                return Shown(1, "refused", f"`{kind}` message ignored: {reason}{said}")
            case kinds.UndoCompleted():
                return Shown(1, "undone", *_restored("undone", body))
        return end_line(body) or self._question_line(body, run)

    def _question_line(self, body: Body, run: StartedSkill) -> Shown | None:
        match body:
            case kinds.WaitOpened(wait=wait) if wait.is_timer:
                self.activity = "waiting for the next attempt"
                return Shown(2, "retry_waits", wait.message, {"wait": wait.id, "until": wait.expires_at})
            case kinds.WaitOpened(wait=wait):
                self.activity = "waiting for a reply"
                run.message_wait = wait.id if wait.is_message else ""
                verb = "needs approval" if wait.is_approval else "asks"
                who = f"sub-run {wait.run} {verb}" if wait.run else verb
                data: dict[str, Any] = {"wait": wait.id, "message": wait.message, "run": wait.run}
                if wait.suggestions:
                    data["suggestions"] = wait.suggestions
                # The result has all lines of the question, and what is to be approved.
                text, _, rest = wait.message.partition("\n")
                text = f"{text} …" if rest and not wait.is_approval else text
                return Shown(2, "sub_run_question" if wait.run else "question", f"{who}: {text}", data)
            case kinds.WaitAnswered(wait=question_id, value=name):
                self.activity = "resuming"
                # Another process may have started the op that asks. An approval comes before the start of its op.
                run.ops.setdefault(question_id.rpartition("/")[2], "")
                value = self._read(name)
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                return Shown(2, "answered", f"reply: {text}", {"wait": question_id, "value": value})
            case kinds.MessageTaken(text=name):
                self.activity = "resuming"
                text, run.message_wait, wait_id = self._text(name), "", run.message_wait
                return Shown(2, "answered", f"message: {text}", {"wait": wait_id, "value": text})
        return None

    # -- visits ------------------------------------------------------------------------------------

    def _visit_line(self, body: Body, run: StartedSkill, ts: int) -> Shown | None:
        match body:
            case kinds.PhaseStarted(phase=phase, visit=visit):
                self.activity = run.where
                return Shown(1, "visit", f"{phase} (visit {visit})", {"phase": phase, "visit": visit})
            case kinds.LlmRequested(call=call, model=model):
                run.called_at = ts
                self.activity = f"{run.where} · turn {_turn(call)} · calling {model}"
            case kinds.LlmResponded(call=call, usage=usage):
                self.activity = f"{run.where} · turn {_turn(call)}"
                took = ts - run.called_at if run.called_at else None
                return self._turn_line(_turn(call), usage, took, run, body.thoughts)
            case kinds.ModelQueued(model=model, endpoint=endpoint, reason=reason, ahead=ahead):
                text = f"waiting for {endpoint} ({_QUEUED[reason]}{f', {ahead} ahead' if ahead else ''})"
                self.activity = f"{run.where} · {text}"
                return Shown(2, "queued", f"{model}: {text}", {"model": model, "endpoint": endpoint, "reason": reason})
            case kinds.BudgetReserved(price=price, waited_ms=waited):
                run.price = price
                if waited:
                    text = f"waited {duration(waited * 1000)} for a budget that other calls had reserved"
                    return Shown(2, "budget_waited", text, {"waited_ms": waited})
            case kinds.BudgetSettled():
                return _charge_line(body, run)
            case kinds.PhaseCompleted() | kinds.PhaseAborted() | kinds.PhaseFailed():
                has_ops = self._phases.have_ops(run.skill_hash, body.phase)
                end = end_of_visit(body, run.visit_ops, run.visit_cost, has_ops=has_ops)
                return Shown(2, *end) if end is not None else None
            case kinds.ModelRetried(model=model, wait_ms=wait, message=message):
                self.activity = f"{run.where} · calling {model} again"
                return Shown(2, "retried", _retry_text(body), {"model": model, "wait_ms": wait, "message": message})
            case kinds.ModelSwitched(model=model, to=to, message=message, code=code):
                self.activity = f"{run.where} · calling {to}"
                return Shown(2, "switched", f"switched from {model} to {to}: {message} ({code})", {"to": to})
            case kinds.StepStarted(step=step):
                self.activity = f"{run.phase} · step {step}"
            case kinds.StepCompleted(step=step, status=status, reason=reason, result_of=source):
                reason = f"result of {source}, not repeated" if source else reason
                text = f"step {step} · {status}{f': {reason}' if reason else ''}"
                return Shown(2, "step", text, {"step": step, "status": status})
            case kinds.BranchesJoined(verdict=verdict, total=total, completed=completed):
                counts = {"failed": body.failed, "cancelled": body.cancelled}
                more = "".join(f", {count} {name}" for name, count in counts.items() if count)
                status = "ok" if verdict == "met" else "failed"
                rule = (
                    "failures are collected" if status == "ok" and completed < body.needed else f"{body.needed} needed"
                )
                text = f"join · {status}: {completed} of {total} branches completed{more}, {rule}"
                return Shown(2, "joined", text, {"status": status, "completed": completed, "total": total, **counts})
            case kinds.PostprocessorStarted(attempt=attempt):
                run.phase, self.activity = "postprocessor", "postprocessor"
                return Shown(
                    1, "postprocessor", "postprocessor" if attempt == 1 else f"postprocessor (attempt {attempt})"
                )
        return answer_line(body) or error_line(body)

    def _turn_line(
        self, turn: int, usage: kinds.Usage | None, took: int | None, run: StartedSkill, thoughts: str | None = None
    ) -> Shown:
        used = usage.total if usage else 0
        self.tokens += used
        self.unreported += usage is None
        parts = [f"turn {turn}"]
        parts += [f"{used:,} tokens"] if usage else []
        data: dict[str, Any] = {"turn": turn, "tokens": used}
        if usage and usage.thinking_tokens:
            parts[-1] += f" ({usage.thinking_tokens:,} of them thoughts)"
            data |= {"thinking_tokens": usage.thinking_tokens}
        if thoughts is not None:
            data |= {"thoughts": thoughts}
        if run.call_cost and run.price is not None:
            parts.append(money_text(run.call_cost, run.price.currency))
            data |= {"cost": amount_text(run.call_cost), "currency": run.price.currency}
        parts += [duration(took)] if took is not None else []
        return Shown(2, "turn", " · ".join(parts), data)

    # -- ops ------------------------------------------------------------------------------------------

    def _op_line(self, body: Body, run: StartedSkill) -> Shown | None:
        match body:
            case kinds.OpStarted(call=call, request=kinds.AskRequest()):
                run.ops[call] = ""  # the question has its own line
            case kinds.OpStarted(call=call, op_kind=kind, op=op):
                run.ops[call] = " ".join(part for part in (kind, op, self._subject(body)) if part)
                self.activity = run.ops[call]
            case kinds.OpCompleted(call=call, status=status, result=result):
                name = run.ops.get(call)
                is_question = name == ""  # the reply has its own line
                return None if is_question and status == "ok" else self._outcome_line(name, status, result)
            case (
                kinds.ApprovalDecided(decision=decision, by=by, remark=remark)
                | kinds.DecisionReviewed(decision=decision, by=by, remark=remark)
            ):
                text = f"approval: {decision}{f' by {by}' if by else ''}{f': {remark}' if remark else ''}"
                return Shown(2, "approval", text, {"decision": decision, "by": by})
            case kinds.PermissionDenied(op_kind=kind, op=op, reason=reason, rule=rule):
                name = f"{kind} {op}".strip() or "op"
                data = {"op": name, "status": "denied", "rule": rule}
                return Shown(2, "op", f"{name} · denied: {reason}", data)
            case kinds.WorkspaceRestored():
                return Shown(2, "restored", *_restored("restored", body))
            case kinds.ChildStarted(type="agent", text=str(message)):
                self.activity = f"asking {body.agent}"
                text = f"ask {body.agent} → {body.run}: {to_line(self._text(message), 80)}"
                return Shown(2, "agent_asked", text, {"agent": body.agent, "run": body.run})
            case kinds.ChildEnded(type="agent", state=state, artifact=artifact):
                reply = (self._read(artifact.hash) or {}).get("data", {}).get("text", "") if artifact else body.error
                data = {"agent": body.agent, "state": state}
                return Shown(2, "agent_replied", f"{body.agent} · {state}: {to_line(reply, 80)}", data)
            case kinds.ChildStarted(call=call, skill=skill, run=child):
                run.sub_runs[call] = child
                self.activity = f"sub-run {child}"
                return Shown(2, "sub_run", f"{skill} → {child}", {"skill": skill, "run": child})
            case kinds.ChildEnded(type="skill", call=call, run=child, error=error) if call not in run.ops:
                known = run.sub_runs.pop(call, "")
                status, child = "error" if error else "ok", child or known
                text = f"sub-run {child} · {status}{f': {error}' if error else ''}"
                return Shown(2, "op", text, {"op": f"sub-run {child}", "status": status})
        return None

    def _outcome_line(self, name: str | None, status: str, result: str) -> Shown:
        """Return the line of an op's outcome. If the op's start was not passed in, its result names it."""
        content = self._read(result) if status != "ok" or not name else {}
        fields = content if isinstance(content, dict) else {}
        name = name or " ".join(str(fields[key]) for key in ("kind", "op", "path", "skill") if key in fields)
        error = f": {' '.join(str(fields['error']).split())}" if status != "ok" and fields.get("error") else ""
        return Shown(2, "op", f"{name} · {status}{error}", {"op": name, "status": status})

    def _subject(self, started: kinds.OpStarted) -> str:
        """Return the file that an op changes, else its path or pattern, else its first text argument."""
        if started.changes:
            return started.changes[0].path
        args = self._read(started.args)
        texts = {name: text for name, text in args.items() if isinstance(text, str)} if isinstance(args, dict) else {}
        subjects = [texts[name] for name in ("path", "pattern", "skill_path") if name in texts]
        subjects += [text for name, text in texts.items() if name not in ("kind", "op")]
        if not subjects and isinstance(args, dict):  # a command line
            words = [value for value in args.values() if isinstance(value, list) and value]
            subjects = [" ".join(map(str, words[0]))] if words else []
        return subjects[0] if subjects else ""

    def _text(self, name: str) -> str:
        try:
            return self._content(name).decode(errors="replace")
        except JournalError:
            return "(missing)"

    def _read(self, name: str) -> Any:
        try:
            return msgspec.json.decode(self._content(name))
        except (JournalError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None


_QUEUED = {
    "concurrency": "calls at the same time",
    "requests_per_minute": "requests a minute",
    "tokens_per_minute": "tokens a minute",
    "probe": "testing whether it works again",
}
"""The limits that a call waits for."""


def _turn(call: str) -> int:
    """Return the turn of a call within its visit: `4.2` is turn 2; 0 if a damaged record says otherwise."""
    turn = call.rpartition(".")[2]
    return int(turn) if turn.isdecimal() and len(turn) < 10 else 0


def _charge_line(settled: kinds.BudgetSettled, run: StartedSkill) -> Shown | None:
    """Count what a call was charged; return a line if it was charged in full without an answer or a usage."""
    run.call_cost = settled.cost
    currency = run.price.currency if run.price is not None else ""
    run.visit_cost += kinds.Charge(settled.usage.total, settled.cost or 0, currency, 1)
    if settled.basis == "usage" or not run.price or not settled.cost:
        return None
    why = "the outcome of the call is unknown" if settled.basis == "unknown" else "the model reported no usage"
    text = f"charged in full, {money_text(settled.cost, currency)}: {why}"
    return Shown(2, "charged_in_full", text, {"call": settled.call, "basis": settled.basis})


def _retry_text(body: kinds.ModelRetried) -> str:
    mode = f" with output mode {body.instead}" if body.instead else ""
    delay = f" in {duration(body.wait_ms * 1000)}" if body.wait_ms else ""
    return f"retrying {body.model}{delay}{mode}: {body.message} ({body.code})"


def _changed(body: kinds.RunForked | kinds.RunResumed) -> str:
    """Name what changed."""
    parts = [body.model] if body.model else []
    if isinstance(body, kinds.RunForked) and body.answer is not None:
        parts.append("answer of the user")
    if isinstance(body, kinds.RunForked) and body.instructions:
        parts.append(f"new instructions of {', '.join(body.instructions)}")
    elif body.skill and body.skill_hash:
        parts.append(f"skill {body.skill} {body.skill_hash[:12]}")
    return "".join(f" · {part}" for part in parts)


def _restored(verb: str, body: kinds.WorkspaceRestored | kinds.UndoCompleted) -> tuple[str, dict[str, Any]]:
    """Return the text and the data of a line about restored files."""
    denied = {verdict.path: verdict.rule for verdict in body.verdicts if verdict.reason}
    text = f"{verb}: {', '.join(dict.fromkeys(body.restored)) or 'nothing'}"
    if body.left:
        text = f"{text}; skipped: {', '.join(dict.fromkeys(body.left))}"
    if denied:
        text = f"{text}; denied: {', '.join(f'{path} ({rule})' for path, rule in denied.items())}"
    return text, {"restored": body.restored, "left": body.left, "denied": denied}
