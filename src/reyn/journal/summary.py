"""The summary of a run: what its result, its limits and the action that continues it depend on.

`RunSummary` extends the lifecycle, and the kernel's `RunState` extends it, each with rules for what it adds. Commands
that only read runs fold summaries, without the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from reyn.errors import DENIED_HINT, FAILURES_OF_SKILLS, HistoryInvalid, hint_of, turn_hint
from reyn.journal import kinds, lifecycle
from reyn.journal.lifecycle import Lifecycle, settle
from reyn.journal.registry import Body, Event, decode
from reyn.journal.results import Cost, RunResult
from reyn.texts import one_line, truncated

if TYPE_CHECKING:
    from reyn.config import RunSettings

SECOND = 1_000_000
PATH_LENGTH = 20
"""The number of recent phases that a run remembers."""
MAX_WARNINGS = 50
"""The number of warnings in the summary; the journal has all of them."""
_EXCERPT_CHARS = 500
"""The number of characters of a message in a warning."""


class Stop(msgspec.Struct, frozen=True, gc=False):
    """Details of why the run stopped."""

    code: str = ""
    hint: str = ""
    error_name: str = ""
    """The name of the error, if it is not that of the code."""
    limit: tuple[str, int] | None = None
    """The cap that was reached: its name and value."""
    sub_run: str | None = None
    """The sub-run that the run stopped with."""
    sufficient: int = 0
    """The value of a budget that would have covered the call that was refused."""


class Inbox(msgspec.Struct, frozen=True):
    """What a conversation has still to take, and the runs that it started in the background.

    Attributes:
        queued: The messages that arrived while the conversation was busy, oldest first.
        background: Each background run with the last report about it; `None` until there is one.
        intents: The intents of the background runs, which may not have begun yet.
        refused: What was said to the run and not taken, because the run ended, at most `MAX_WARNINGS`.
    """

    queued: tuple[kinds.MessageQueued, ...] = ()
    background: dict[str, kinds.MessageQueued | None] = {}
    intents: dict[str, kinds.ChildStarted] = {}
    refused: tuple[kinds.MessageRefused, ...] = ()

    def with_message(self, body: kinds.MessageQueued) -> Inbox:
        """Return the inbox with a message that arrived."""
        queued = (*self.queued, body)
        if not body.run:
            return replace(self, queued=queued)
        return replace(self, queued=queued, background={**self.background, body.run: body})

    def without_message(self, body: kinds.MessageRefused) -> Inbox:
        """Return the inbox after a message was refused, which may be queued."""
        queued = tuple(one for one in self.queued if one.message != body.message)
        refused = (*self.refused, body)[-MAX_WARNINGS:] if body.text is not None else self.refused
        return replace(self, queued=queued, refused=refused)

    def with_background(self, intent: kinds.ChildStarted) -> Inbox:
        """Return the inbox after the start of a background run."""
        background, intents = {**self.background, intent.run: None}, {**self.intents, intent.run: intent}
        return replace(self, background=background, intents=intents)

    def report_error(self, run: str, status: str) -> str:
        """Return why a report about a background run is refused; empty if it is new."""
        if run not in self.background:
            return f"`{run}` is no background run of this conversation"
        last = self.background[run]
        return f"`{run}` has been reported as {status}" if last is not None and last.status == status else ""


class RunSummary(Lifecycle, frozen=True, kw_only=True):
    """The summary of a run.

    Attributes:
        run_id: The run.
        settings: The hash of its settings.
        path: The last phases entered.
        usage: The tokens of its model calls, those of sub-runs included.
        switched: Unavailable models, each with the fallback that replaces it.
        warnings: Messages for the operator.
        stop: Details of why the run stopped.
        final: The final output of a run that finished.
        raised: Limits that were raised.
        over: The last model call and the tokens by which it exceeded what a budget allowed it, if it did.
        attempts: The last call without an answer, and its attempts so far.
        inbox: The messages that a conversation has not taken yet, and its background runs.
        last_input: The time of the last input event.
        active: Microseconds of execution, without the time in which the run waited or was stopped.
        visit_start: The active time when the last visit began.
    """

    run_id: str = ""
    settings: str = ""
    path: tuple[str, ...] = ()
    usage: kinds.Usage = kinds.Usage()
    switched: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    warnings: tuple[str, ...] = ()
    stop: Stop = Stop()
    final: kinds.ArtifactRef | None = None
    raised: dict[str, int | None] = {}  # noqa: RUF012 - msgspec copies it
    over: tuple[str, int] | None = None
    attempts: tuple[str, int] = ("", 0)
    inbox: Inbox = Inbox()
    last_input: int = 0
    active: int = 0
    visit_start: int = 0

    def next_attempt(self, call: str) -> int:
        """Return the number of the next attempt of a call."""
        return self.attempts[1] + 1 if self.attempts[0] == call else 1

    def with_warning(self, warning: str) -> Self:
        """Add a warning; the last of too many refers to the events."""
        if len(self.warnings) < MAX_WARNINGS:
            return replace(self, warnings=(*self.warnings, warning))
        return replace(self, warnings=(*self.warnings[: MAX_WARNINGS - 1], "and more: see the run's events"))


S = TypeVar("S", bound=RunSummary)


def limit_of(summary: RunSummary, settings: RunSettings, name: str) -> int | None:
    """Return the current value of a limit: as last raised, or as configured. `None` is no limit."""
    if summary.raised and name in summary.raised:
        return summary.raised[name]
    value: int | None = getattr(settings.limits, name)
    return value


def summarize(events: Iterable[Event]) -> RunSummary:
    """Return the summary of a run after all its events."""
    summary = RunSummary()
    for event in events:
        body = decode(event)
        if is_timed(type(body)):
            summary = count_time(summary, body, event.ts)
        if (rule := summary_rule(type(body))) is not None:
            summary = rule(summary, body)
    return summary


def summary_rule(kind: type[Body]) -> Callable[[Any, Any], Any] | None:
    """Return what an event kind changes in a summary; `None` if it changes nothing."""
    return _RULES.get(kind) or lifecycle.lifecycle_rule(kind)


def to_result(summary: RunSummary, content: Callable[[str], bytes], warnings: tuple[str, ...] = ()) -> RunResult:
    """Return the result of a run, with further warnings. `content` returns recorded content by its hash."""
    assert summary.status is not None
    artifact = None
    if summary.status == "finished" and summary.final is not None:
        stored = msgspec.json.decode(content(summary.final.hash))
        artifact = {"type": stored["type"], "data": stored["data"]}
    switches = (f"model `{name}` was replaced by its fallback `{other}`" for name, other in summary.switched.items())
    code, hint = _error_of(summary)
    unread = (
        f"a message was not taken, because {one.reason}: {_excerpt(content(one.text))}"
        for one in summary.inbox.refused
        if one.text is not None
    )
    return RunResult(
        summary.run_id,
        summary.status,
        summary.reason,
        artifact,
        summary.usage,
        summary.path,
        warnings=(*summary.warnings, *switches, *unread, *warnings),
        question=summary.wait,
        code=code,
        hint=hint,
        cost=Cost.of(summary.charge),
    )


def _excerpt(text: bytes) -> str:
    """Return the beginning of a message in one line."""
    return truncated(one_line(text.decode()), _EXCERPT_CHARS)


def _error_of(summary: RunSummary) -> tuple[str, str]:
    """Return code and hint of a failed run, or of the last turn of a conversation; empty if neither failed."""
    if summary.status == "failed":
        code, is_denied = summary.stop.code, summary.stop.error_name == "denied"
        general = DENIED_HINT if is_denied and code in FAILURES_OF_SKILLS else hint_of(code)
        return code, (summary.stop.hint or general) if code else ""
    code = summary.wait.code if summary.status == "waiting" and summary.wait is not None else ""
    return code, turn_hint(code) if code else ""


# -- time ----------------------------------------------------------------------------------------------------

_UNTIMED = (kinds.BudgetReserved, kinds.BudgetSettled, kinds.ConversationRenamed, kinds.NotificationSent)
"""Inputs that do not count the time since the last one. Budget events are recorded together with a second input; a
title can be given, and a notification delivered, while no driver executes the run."""
_WITH_OWN_TIME = (kinds.ChildEnded, kinds.ChildStopped)
"""Outcomes that name the time in which another run was executed. A function is executed within the time of its op."""
_CONTINUING = (kinds.RunResumed, kinds.RunForked)


def is_timed(kind: type[Body]) -> bool:
    """Return whether an event counts the time since the last input."""
    return kind.origin != "derived" and kind not in _UNTIMED


def count_time(summary: S, body: Body, ts: int) -> S:
    """Count the time since the last input while a driver executes the run: not before a resume, not while it waits."""
    if isinstance(body, _WITH_OWN_TIME) and not (isinstance(body, kinds.ChildEnded) and body.type == "function"):
        elapsed = body.active
    elif summary.status != "running" or isinstance(body, _CONTINUING):
        elapsed = 0
    else:
        elapsed = max(0, ts - summary.last_input)
    return replace(summary, last_input=ts, active=summary.active + elapsed)


# -- rules ---------------------------------------------------------------------------------------------------


def _start(summary: S, body: kinds.RunStarted) -> S:
    return replace(summary, status="running", reason="", run_id=body.run_id, settings=body.settings)


def _fork(summary: S, body: kinds.RunForked) -> S:
    """Leave out what is of the origin, and what an imported run configured."""
    is_imported = body.settings is not None
    return replace(
        summary,
        run_id=body.run_id,
        settings=body.settings or summary.settings,
        switched={} if is_imported else summary.switched,
        raised={} if is_imported else summary.raised,
        warnings=(),
        inbox=Inbox(),
    )


def _resume(summary: S, body: kinds.RunResumed) -> S:
    """Forget which models were switched, if the run continues with a different model or after a failure."""
    switched = {} if body.model or body.retry else summary.switched
    return replace(summary, switched=switched, stop=replace(summary.stop, sub_run=None))


def _fail(summary: S, body: kinds.RunFailed | kinds.RunBroken) -> S:
    hint, name = (body.hint, body.error_name) if isinstance(body, kinds.RunFailed) else ("", "")
    return replace(summary, stop=replace(summary.stop, code=body.code, hint=hint, error_name=name))


def _reach_limit(summary: S, body: kinds.LimitReached) -> S:
    return replace(summary, stop=replace(summary.stop, limit=(body.limit, body.value)))


def _raise_limit(summary: S, body: kinds.LimitRaised) -> S:
    return replace(summary, raised={**summary.raised, body.limit: body.value})


def _complete(summary: S, body: kinds.SkillCompleted) -> S:
    return replace(summary, final=body.artifact)


def _enter_phase(summary: S, body: kinds.PhaseStarted) -> S:
    path = (*summary.path, body.phase)[-PATH_LENGTH:]
    return replace(summary, phase=body.phase, path=path, visit_start=summary.active)


def _start_postprocessor(summary: S, _: kinds.PostprocessorStarted) -> S:
    return replace(summary, visit_start=summary.active)


def _add_usage(summary: S, body: kinds.LlmResponded | kinds.ChildEnded) -> S:
    return summary if body.usage is None else replace(summary, usage=summary.usage + body.usage)


def _settle(summary: S, body: kinds.BudgetSettled) -> S:
    """Warn about a call that was charged in full. The lifecycle counts the charge."""
    reserved = summary.reserved
    if reserved is None:
        raise HistoryInvalid(f"`{body.kind}` of call `{body.call}` comes without a reservation")
    if body.basis in ("unknown", "not_billed"):  # the call may be attempted again
        summary = replace(summary, attempts=(body.call, body.attempt))
    elif body.basis == "usage" and not body.over and summary.over is None:
        return settle(summary, body)
    if reserved.is_capped and (body.cost or reserved.caps_tokens):
        if body.over or summary.over is not None:
            summary = replace(summary, over=(body.call, body.over) if body.over else None)
        if why := _CHARGED_IN_FULL.get(body.basis):
            charged = f"it was charged the {body.usage.total:,} tokens that were reserved"
            call = f"call {body.call}, attempt {body.attempt}"
            summary = summary.with_warning(f"{call}: model `{reserved.model}` {why}; {charged}")
    return settle(summary, body)


_CHARGED_IN_FULL = {
    "no_usage": "reported no valid usage",
    "unknown": "may have been charged for an answer that was lost",
}


def _refuse_call(summary: S, body: kinds.BudgetRefused) -> S:
    return replace(summary, stop=replace(summary.stop, sufficient=body.used + body.reserved + body.needed))


def _reach_allowance(summary: S, body: kinds.AllowanceReached) -> S:
    return replace(summary, stop=replace(summary.stop, sufficient=body.count))


def _switch_model(summary: S, body: kinds.ModelSwitched) -> S:
    return replace(summary, switched={**summary.switched, body.model: body.to})


def _queue_message(summary: S, body: kinds.MessageQueued) -> S:
    """Queue a message. What a background run used since the last report counts towards the limits of this run."""
    usage = summary.usage
    if body.run:
        last = summary.inbox.background.get(body.run)
        usage += body.usage - (last.usage if last is not None else kinds.Usage())
    return replace(summary, inbox=summary.inbox.with_message(body), usage=usage)


def _take_message(summary: S, _: kinds.MessageTaken) -> S:
    return replace(summary, inbox=replace(summary.inbox, queued=summary.inbox.queued[1:]))


def _refuse_message(summary: S, body: kinds.MessageRefused) -> S:
    return replace(summary, inbox=summary.inbox.without_message(body))


def _start_child(summary: S, body: kinds.ChildStarted) -> S:
    if body.type != "background":
        return summary
    return replace(summary, inbox=summary.inbox.with_background(body))


def _stop_child(summary: S, body: kinds.ChildStopped) -> S:
    return replace(summary, stop=replace(summary.stop, sub_run=body.run))


def _warn_of_log(summary: S, body: kinds.ContextLogFailed) -> S:
    return summary.with_warning(f"`{body.path}` could not be written: {body.reason}")


def _warn_of_step(summary: S, body: kinds.StepCompleted) -> S:
    if body.status not in ("skipped", "empty"):
        return summary
    return summary.with_warning(f"step {body.call} `{body.step}` failed and was left {body.status}: {body.reason}")


def _warn_of_hooks(summary: S, body: kinds.ContextMutated) -> S:
    missing = "the hooks of the run were not called: it was resumed without the program that has them"
    return summary if body.called or missing in summary.warnings else summary.with_warning(missing)


def _warn_of_output(summary: S, body: kinds.OutputChecked) -> S:
    if body.checked:
        return summary
    return summary.with_warning(
        "the output was not checked by the program that started the run: it was resumed without it"
    )


def _warn_of_files(summary: S, body: kinds.WorkspaceRestored) -> S:
    for path in body.left:
        summary = summary.with_warning(
            f"`{path}` was not restored: another program changed it, or it cannot be written"
        )
    for verdict in body.verdicts:
        if verdict.reason:
            summary = summary.with_warning(f"`{verdict.path}` was not restored: {verdict.reason} ({verdict.rule})")
    return summary


def _then_lifecycle(kind: type[Body], rule: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    after = lifecycle.lifecycle_rule(kind)
    return rule if after is None else lambda summary, body: after(rule(summary, body), body)


_RULES: dict[type[Body], Callable[[Any, Any], Any]] = {
    kinds.RunForked: _fork,
    kinds.RunResumed: _resume,
    kinds.RunFailed: _fail,
    kinds.RunBroken: _fail,
    kinds.LimitReached: _reach_limit,
    kinds.LimitRaised: _raise_limit,
    kinds.SkillCompleted: _complete,
    kinds.PostprocessorStarted: _start_postprocessor,
    kinds.LlmResponded: _add_usage,
    kinds.BudgetRefused: _refuse_call,
    kinds.AllowanceReached: _reach_allowance,
    kinds.ModelSwitched: _switch_model,
    kinds.MessageQueued: _queue_message,
    kinds.MessageTaken: _take_message,
    kinds.MessageRefused: _refuse_message,
    kinds.ChildStarted: _start_child,
    kinds.ChildStopped: _stop_child,
    kinds.ChildEnded: _add_usage,
    kinds.ContextLogFailed: _warn_of_log,
    kinds.StepCompleted: _warn_of_step,
    kinds.ContextMutated: _warn_of_hooks,
    kinds.OutputChecked: _warn_of_output,
    kinds.WorkspaceRestored: _warn_of_files,
}
_RULES = {kind: _then_lifecycle(kind, rule) for kind, rule in _RULES.items()}
_RULES |= {kinds.RunStarted: _start, kinds.PhaseStarted: _enter_phase, kinds.BudgetSettled: _settle}
"""The last ones change the lifecycle, too: they occur often."""
