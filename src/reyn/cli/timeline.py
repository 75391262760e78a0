"""Events become lines that a person can read. The one place that puts them into words, for a run under way and for one
that is over."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.cli.output import lasted, short
from reyn.errors import JournalError
from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reyn.journal import Body, Event


class Entry(msgspec.Struct, frozen=True):
    """One line: `what` is its sort, `level` how deep it stands, `about` what it says, for programs."""

    run_id: str
    seq: int
    ts: int
    level: int
    what: str
    text: str
    about: dict[str, Any] = {}
    depth: int = 0
    """How many runs are above the one that it belongs to."""


class _Told(NamedTuple):
    level: int
    what: str
    text: str
    about: Mapping[str, Any] = MappingProxyType({})


class _Run:
    """What has to be remembered of a run to tell its next event."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.phase = ""
        self.visit = 0
        self.asked = 0
        self.ops: dict[str, str] = {}
        self.sub_runs: dict[str, str] = {}

    @property
    def where(self) -> str:
        return f"{self.phase} · visit {self.visit}" if self.visit else self.phase


class Timeline:
    """`content` gives the bytes of what events name, `phase_of` where a run is whose beginning is not told. `doing` is
    what goes on after the last event, in words."""

    def __init__(self, content: Callable[[str], bytes], phase_of: Callable[[str], str] = lambda _: "") -> None:
        self._content = content
        self._phase_of = phase_of
        self._runs: dict[str, _Run] = {}
        self.doing = ""
        self.tokens = 0

    def take(self, event: Event) -> Entry | None:
        """The line of one more event, if it has one."""
        body = decode(event)
        run = self._run_of(event, body)
        told = self._of_run(body, event, run) or self._of_visit(body, run, event.ts) or self._of_op(body, run)
        if told is None:
            return None
        text = short(told.text)
        level = told.level + 2 * run.depth
        return Entry(event.run_id, event.seq, event.ts, level, told.what, text, dict(told.about), run.depth)

    def _run_of(self, event: Event, body: Body) -> _Run:
        known = self._runs.get(event.run_id)
        if known is not None:
            return known
        match body:
            case kinds.RunForked(point=point):
                run = self._runs.get(point.run) or _Run()
            case kinds.RunStarted(parent=kinds.ParentRef(run=above)) if above in self._runs:
                run = _Run(self._runs[above].depth + 1)
            case _:
                above = max((name for name in self._runs if event.run_id.startswith(f"{name}.")), key=len, default="")
                run = _Run(self._runs[above].depth + 1 if above else 0)
                run.phase = "" if isinstance(body, kinds.RunStarted) else self._phase_of(event.run_id)
        self._runs[event.run_id] = run
        return run

    # -- the run as a whole ---------------------------------------------------------------------------

    def _of_run(self, body: Body, event: Event, run: _Run) -> _Told | None:
        match body:
            case kinds.RunStarted():
                self.doing = "starting"
                again = f" · a rerun of {body.rerun_of}" if body.rerun_of else ""
                return _Told(0, "started", f"run {body.run_id} · {body.skill} · {body.model}{again}")
            case kinds.RunForked(point=point):
                run.asked = event.ts
                return _Told(
                    0,
                    "forked",
                    f"run {body.run_id} · forked from {point.run} at event {point.seq}{_changed(body)}",
                    {"of": point.run, "at": point.seq},
                )
            case kinds.RunResumed():
                run.asked = event.ts
                at = f" at {run.phase}" if run.phase else ""
                self.doing = f"going on{at}"
                left = f" · `{body.open_intent}` was left without an outcome" if body.open_intent else ""
                retry = " to try again" if body.retry else ""
                about = {"retry": body.retry, "open_intent": body.open_intent}
                return _Told(0, "resumed", f"run {event.run_id} · resumed{at}{retry}{_changed(body)}{left}", about)
            case kinds.LimitRaised(limit=limit, value=value):
                words = f"`{limit}` raised to {'no cap' if value is None else value}"
                return _Told(1, "limit_raised", words, {"limit": limit, "value": value})
            case kinds.MessageRefused(said=said, why=why):
                return _Told(1, "refused", f"an `{said}` was left aside: {why}")
            case kinds.UndoCompleted(restored=restored, left=left):
                return _Told(1, "undone", _put_back("undone", restored, left), {"restored": restored, "left": left})
        return _end(body) or self._question(body)

    def _question(self, body: Body) -> _Told | None:
        match body:
            case kinds.WaitOpened(wait=wait):
                self.doing = "waiting for an answer"
                who = f"sub-run {wait.run} asks" if wait.run else "asks"
                about = {"wait": wait.id, "message": wait.message, "run": wait.run}
                return _Told(2, "asks_below" if wait.run else "asks", f"{who}: {wait.message}", about)
            case kinds.WaitAnswered(wait=wait_id, value=name):
                self.doing = "going on"
                value = self._read(name)
                words = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                return _Told(2, "answered", f"answered: {words}", {"wait": wait_id, "value": value})
        return None

    # -- one visit ------------------------------------------------------------------------------------

    def _of_visit(self, body: Body, run: _Run, ts: int) -> _Told | None:
        match body:
            case kinds.PhaseStarted(phase=phase, visit=visit):
                run.phase, run.visit, run.ops = phase, visit, {}
                self.doing = run.where
                return _Told(1, "visit", f"{phase} (visit {visit})", {"phase": phase, "visit": visit})
            case kinds.LlmRequested(call=call, model=model):
                run.asked = ts
                self.doing = f"{run.where} · turn {_turn(call)} · asking {model}"
            case kinds.LlmResponded(call=call, usage=usage):
                self.doing = f"{run.where} · turn {_turn(call)}"
                return self._turn_taken(_turn(call), usage, ts - run.asked if run.asked else None)
            case kinds.ModelRetried(model=model, wait_ms=wait, message=message):
                self.doing = f"{run.where} · asking {model} again"
                return _Told(2, "retried", _asked_again(body), {"model": model, "wait_ms": wait, "message": message})
            case kinds.ModelSwitched(model=model, to=to, message=message, code=code):
                self.doing = f"{run.where} · asking {to}"
                return _Told(2, "switched", f"{to} is asked instead of {model}: {message} ({code})", {"to": to})
            case kinds.StepStarted(step=step):
                self.doing = f"{run.phase} · step {step}"
            case kinds.StepCompleted(step=step, status=status, reason=reason):
                words = f"step {step} · {status}{f': {reason}' if reason else ''}"
                return _Told(2, "step", words, {"step": step, "status": status})
            case kinds.PostprocessorStarted(attempt=attempt):
                run.phase, self.doing = "postprocessor", "postprocessor"
                return _Told(1, "postprocessor", "postprocessor" if attempt == 1 else f"postprocessor (try {attempt})")
        return _verdict(body)

    def _turn_taken(self, turn: int, usage: kinds.Usage | None, took: int | None) -> _Told:
        used = usage.total if usage else 0
        self.tokens += used
        parts = [f"turn {turn}"]
        parts += [f"{used:,} tokens"] if usage else []
        parts += [lasted(took)] if took is not None else []
        return _Told(2, "turn", " · ".join(parts), {"turn": turn, "tokens": used})

    # -- ops ------------------------------------------------------------------------------------------

    def _of_op(self, body: Body, run: _Run) -> _Told | None:
        match body:
            case kinds.OpStarted(call=call, request=kinds.AskRequest()):
                run.ops[call] = ""  # the question has a line of its own
            case kinds.OpStarted(call=call, op_kind=kind, op=op):
                run.ops[call] = " ".join(part for part in (kind, op, self._subject(body)) if part)
                self.doing = run.ops[call]
            case kinds.OpCompleted(call=call, status=status, result=result):
                words = run.ops.get(call)
                return None if words == "" and status == "ok" else self._op(words, status, result)
            case kinds.ApprovalDecided(decision=decision, by=by, remark=remark):
                who = f" by {by}" if by else ""
                words = f"approval: {decision}{who}{f': {remark}' if remark else ''}"
                return _Told(2, "approval", words, {"decision": decision, "by": by})
            case kinds.PermissionDenied(op_kind=kind, op=op, reason=reason, rule=rule):
                words = f"{kind} {op}".strip() or "op"
                about = {"op": words, "status": "denied", "rule": rule}
                return _Told(2, "op", f"{words} · denied: {reason}", about)
            case kinds.WorkspaceRestored(restored=restored, left=left):
                return _Told(2, "put_back", _put_back("restored", restored, left), {"restored": restored, "left": left})
            case kinds.SubRunStarted(call=call, skill=skill, run=below):
                run.sub_runs[call] = below
                self.doing = f"sub-run {below}"
                return _Told(2, "sub_run", f"{skill} → {below}", {"skill": skill, "run": below})
            case kinds.SubRunCompleted(call=call, run=below, error=error) if call not in run.ops:
                status, below = "error" if error else "ok", below or run.sub_runs.get(call, "")
                words = f"sub-run {below} · {status}{f': {error}' if error else ''}"
                return _Told(2, "op", words, {"op": f"sub-run {below}", "status": status})
        return None

    def _op(self, words: str | None, status: str, result: str) -> _Told:
        """The outcome of an op. If its start was not seen, its result names it."""
        held = self._read(result) if status != "ok" or not words else {}
        held = held if isinstance(held, dict) else {}
        words = words or " ".join(str(held[key]) for key in ("kind", "op", "path", "skill") if key in held)
        why = f": {held['error']}" if status != "ok" and held.get("error") else ""
        return _Told(2, "op", f"{words} · {status}{why}", {"op": words, "status": status})

    def _subject(self, started: kinds.OpStarted) -> str:
        """What an op is about: the file it changes, else a path or pattern, else its first text argument."""
        if started.changes:
            return started.changes[0].path
        args = self._read(started.args)
        texts = {name: text for name, text in args.items() if isinstance(text, str)} if isinstance(args, dict) else {}
        named = [texts[name] for name in ("path", "pattern") if name in texts]
        named += [text for name, text in texts.items() if name not in ("kind", "op")]
        return named[0] if named else ""

    def _read(self, name: str) -> Any:
        try:
            return msgspec.json.decode(self._content(name))
        except (JournalError, msgspec.MsgspecError):
            return None


def _turn(call: str) -> int:
    """Which question of its visit a call is: `4.2` is the second."""
    return int(call.rpartition(".")[2])


def _asked_again(body: kinds.ModelRetried) -> str:
    way = f", as {body.instead}" if body.instead else ""
    after = f" after {lasted(body.wait_ms * 1000)}" if body.wait_ms else ""
    return f"{body.model} is asked again{after}{way}: {body.message} ({body.code})"


def _changed(body: kinds.RunForked | kinds.RunResumed) -> str:
    """What is another one from here on."""
    model = f" · {body.model}" if body.model else ""
    return f"{model} · skill {body.skill} {body.skill_hash[:12]}" if body.skill and body.skill_hash else model


def _end(body: Body) -> _Told | None:
    """What ends a run, or stops it."""
    match body:
        case kinds.LimitReached(reason=reason, limit=limit, value=value):
            return _Told(1, "limited", f"stopped at a limit: {reason}", {"limit": limit, "value": value})
        case kinds.RunFailed(reason=reason, code=code):
            return _Told(1, "failed", f"failed: {reason} ({code})", {"code": code})
        case kinds.SkillAborted(reason=reason):
            return _Told(1, "aborted", f"aborted: {reason}")
        case kinds.RunCancelled(reason=reason):
            return _Told(1, "cancelled", f"cancelled{f': {reason}' if reason else ''}")
        case kinds.SkillCompleted():
            return _Told(1, "finished", "finished")
    return None


def _verdict(body: Body) -> _Told | None:
    """What became of an answer, and of the visit."""
    match body:
        case kinds.ValidationError(path=path, message=message, class_=rule):
            return _Told(2, "rejected", f"rejected at {path}: {message}", {"path": path, "class": rule})
        case kinds.AnswerUnwrapped(dropped=dropped):
            return _Told(2, "unwrapped", f"{dropped} characters around the answer were left aside")
        case kinds.DecisionDeferred(op=op, status=status):
            why = "asked somebody" if status == "ok" else f"is {status}"
            return _Told(2, "deferred", f"the decision is put off: op {op} {why}", {"op": op, "status": status})
        case kinds.ControlDecided(type=kind, next_phase=target, confidence=confidence, reason=reason):
            about = {"next": target or kind, "confidence": confidence, "reason": reason}
            return _Told(2, "decided", f"→ {target or kind} ({confidence:.2f}) {reason}", about)
        case kinds.ContentCut(name=name, bytes=size):
            return _Told(2, "cut", f"{name} is shown in part: it has {size:,} bytes")
        case kinds.PhaseFailed(reason=reason):
            return _Told(2, "visit_failed", f"the visit failed: {reason}")
        case kinds.PhaseRolledBack(phase=phase, to=to, reason=reason):
            return _Told(1, "rolled_back", f"rolled back from {phase} to {to}: {reason}", {"from": phase, "to": to})
        case kinds.PostprocessorFailed(reason=reason, code=code):
            return _Told(2, "visit_failed", f"{reason} ({code})", {"code": code})
    return None


def _put_back(words: str, restored: tuple[str, ...], left: tuple[str, ...]) -> str:
    told = f"{words}: {', '.join(dict.fromkeys(restored)) or 'nothing'}"
    return f"{told}; left alone: {', '.join(dict.fromkeys(left))}" if left else told
