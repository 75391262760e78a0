"""Determine the operation that continues a run, with its ids and values. `reyn.cli` renders it as a command line.

Open questions are next actions, too: the command that replies, with an example. `reyn.kernel.world.inbox` has the
protocol by which a process replies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import RunSettings
from reyn.config.budgets import BUDGET_LIMITS, MESSAGE_LIMITS
from reyn.errors import (
    FAILURES_OF_SKILLS,
    ApprovalUnnamed,
    BlobMissing,
    ImagesUnsupported,
    JoinFailed,
    JournalError,
    NextAction,
    PromptTooLong,
    QuestionUnknown,
    RecordingMissing,
    ReplyInvalid,
    RequestRejected,
    StepFailed,
    SubRunFailed,
    WorkNotDone,
)
from reyn.journal import ENDED, Event, Journal, RunRow, decode, kinds
from reyn.journal.family import OpenQuestion, descendants, edited_field, open_question, parse_reply, root_run
from reyn.journal.results import display_status
from reyn.journal.summary import SECOND, RunSummary, limit_of, summarize

if TYPE_CHECKING:
    from reyn.journal.kinds import Question


def next_action(journal: Journal, row: RunRow) -> NextAction | None:
    """Return the operation that continues a run; `None` if there is none, or if a live process executes the run."""
    root = root_run(journal, row)
    if root.run_id != row.run_id:  # a sub-run continues with its root run, and only while that one needs it
        return None if row.status in ENDED else next_action(journal, root)
    if row.imported:
        return None if row.status == "finished" else NextAction("fork", row.run_id)
    run, is_claimed = row.run_id, journal.is_claimed(row.run_id)
    match display_status(row, is_claimed=is_claimed):
        case "aborted" | "cancelled" | "blocked":
            return NextAction("fork", run)
        case "finished" | "queued" | "running (in sub-runs)":
            return None
    question = open_question(journal, row)
    if question is not None and question.question.is_message:
        from reyn.journal.kinds import AGENT_PREFIX

        if row.skill.startswith(AGENT_PREFIX):
            return None if is_claimed else NextAction("chat", run)
    if question is not None and not question.is_answered and not question.question.is_timer:
        return answer_action(run, question.question)
    if is_claimed:
        return None
    match row.status:
        case "failed":
            return retry_action(journal, run)
        case "limited":
            return _raise_limit(journal, run)
    return NextAction("resume", run)


def retry_action(journal: Journal, run_id: str) -> NextAction:
    """Return how to retry a failed run, with what a retry needs in order not to fail again for the same reason."""
    from reyn.permissions.gate import SWITCHES

    function = ""
    try:
        events = list(journal.read(run_id))
        summary, denied = summarize(events), _denied(journal, events)
        for event in events:
            if event.kind == kinds.RunStarted.kind:
                function = msgspec.json.decode(journal.blob(event.data["skill_hash"]), type=_Pinned).function
    except (JournalError, msgspec.MsgspecError):  # its events are damaged
        return NextAction("verify", run_id)
    code, last = summary.stop.code, denied[-1] if denied else ()
    is_switched_off = bool(last) and all(rule in SWITCHES for rule in last)
    return NextAction(
        "resume",
        run_id,
        retry=True,
        upgrade=code in FAILURES_OF_SKILLS and not is_switched_off and not function,
        model=code in _IN_MODEL,
        switches=tuple(dict.fromkeys(SWITCHES[rule] for rules in denied for rule in rules if rule in SWITCHES)),
    )


def _denied(journal: Journal, events: Iterable[Event]) -> list[tuple[str, ...]]:
    """Return the rules that denied what failed visits of a run needed, also in their sub-runs, a tuple for each visit.

    An earlier one may have failed for another option than the last: the next attempt needs both.
    """
    rules: list[str] = []
    failed: list[tuple[str, ...]] = []
    for event in events:
        kind, data = event.kind, event.data
        if kind == kinds.PermissionDenied.kind:
            rules.append(data["rule"])
        elif kind == kinds.ChildEnded.kind and data.get("artifact") is None:
            below = _denied(journal, journal.read(data["run"])) if journal.find(data["run"]) else []
            rules += below[-1] if below else ()
        elif kind in _BEGINS or (kind == kinds.StepCompleted.kind and data["status"] != "failed"):
            rules = []
        elif kind in _FAILS:
            failed.append(tuple(rules) if data.get("code") in _DENIABLE else ())
            rules = []
    return failed


_DENIABLE = (StepFailed.code, SubRunFailed.code, JoinFailed.code, WorkNotDone.code)
"""The codes of visits that fail for what was denied."""
_BEGINS = (kinds.PhaseStarted.kind, kinds.PostprocessorStarted.kind)
_FAILS = (kinds.PhaseFailed.kind, kinds.PostprocessorFailed.kind)


class _Pinned(msgspec.Struct):
    """The part of a run's copy of its skill that is read here: the Python function that defines the skill."""

    function: str = ""


_IN_MODEL = (RecordingMissing.code, ImagesUnsupported.code, RequestRejected.code, PromptTooLong.code)
"""Failures of a model that the same request meets again."""


def unknown_question(journal: Journal, row: RunRow, question_id: str | None) -> QuestionUnknown:
    """Return the error that a run has no open question, or none with this id."""
    if question_id is not None and (question := open_question(journal, row)) is not None:
        message = f"run `{row.run_id}` has no open question `{question_id}`; it waits for {_named(question.question)}"
        return QuestionUnknown(message, action=answer_action(row.run_id, question.question))
    status = display_status(row, is_claimed=journal.is_claimed(row.run_id))
    return QuestionUnknown(
        f"run `{row.run_id}` has no open question{f' `{question_id}`' if question_id else ''}; its status is {status}",
        hint=QuestionUnknown.waiting_hint,
        action=next_action(journal, row),
    )


def unnamed_approval(run_id: str, question: Question) -> ApprovalUnnamed:
    """Return the error that a reply does not name the approval for which a run waits."""
    message = f"run `{run_id}` waits for {_named(question)}; a reply has to name it"
    return ApprovalUnnamed(message, action=answer_action(run_id, question))


def _named(question: Question) -> str:
    return f"`{question.id}`: {question.message.partition(chr(10))[0]}"


def _raise_limit(journal: Journal, run_id: str) -> NextAction:
    """Raise the limit that stopped a run to its current usage plus the previous cap."""
    try:
        summary = summarize(journal.read(run_id))
    except JournalError:  # its events are damaged
        return NextAction("verify", run_id)
    if summary.stop.limit is None:
        return NextAction("resume", run_id, limit="")
    name, reached = summary.stop.limit
    if name == "max_prompt_tokens":  # the reason names the tokens of the parts that are never truncated
        return NextAction("resume", run_id, limit=name)
    cap = _cap(journal, summary, name) or reached
    open_sub_runs = [row for row in descendants(journal, run_id) if row.status not in ENDED]
    usage = _usage(name, (summary, *(summarize(journal.read(row.run_id)) for row in open_sub_runs)))
    return NextAction("resume", run_id, limit=name, value=max(cap, reached, usage) + max(cap, 1))


def _cap(journal: Journal, summary: RunSummary, name: str) -> int | None:
    """Return the cap of the run itself. A sub-run records only the remainder of this cap."""
    try:
        settings = msgspec.json.decode(journal.blob(summary.settings), type=RunSettings)
    except (BlobMissing, msgspec.MsgspecError):
        return None
    return limit_of(summary, settings, name)


def _usage(name: str, runs: Sequence[RunSummary]) -> int:
    """Return the usage of a run and its open sub-runs. Tokens add up; a parent's time includes that of its sub-runs."""
    match name:
        case "tokens":
            return sum(run.usage.total for run in runs)
        case "run_seconds":
            return max(run.active // SECOND for run in runs)
        case "overrun":
            return max(run.over[1] if run.over else 0 for run in runs)
        case name if name in (*BUDGET_LIMITS, *MESSAGE_LIMITS):
            return max(run.stop.sufficient for run in runs)
        case "phase_seconds":
            return max((run.active - run.visit_start) // SECOND for run in runs)
    return 0


_MAX_EXAMPLE = 60
"""The number of characters up to which a suggestion is the example of a reply."""


def answer_action(run_id: str, question: Question) -> NextAction:
    """Return the operation that replies to a question, with an example of a reply that the question accepts."""
    return NextAction("answer", run_id, question_id=question.id, reply=_example_reply(question))


def _example_reply(question: Question) -> str:
    """Return the first short suggestion, or a value that fits the schema; empty if there is neither."""
    from reyn.jsonschema import compile_schema
    from reyn.jsonschema.words import example_of

    value = example_of(question.response_schema, "your message" if question.is_message else "your reply")
    made_up = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    short = [text for text in question.suggestions if len(text) <= _MAX_EXAMPLE]
    for text in (*short, made_up):
        try:
            reply = parse_reply(question, text)
        except ReplyInvalid:
            continue
        if text and reply is not None and compile_schema(question.response_schema).first_error(reply) is None:
            return text
    return ""


def edit_draft(journal: Journal, question: OpenQuestion) -> dict[str, Any] | None:
    """Return the reply `edit` with what was proposed; `None` if the question does not take one."""
    field = edited_field(question.question)
    if not field:
        return None
    bodies = map(decode, journal.read(question.run_id))
    asked = [body for body in bodies if isinstance(body, kinds.ApprovalRequired | kinds.DecisionProposed)][-1]
    proposed = asked.args if isinstance(asked, kinds.ApprovalRequired) else asked.artifact
    assert proposed is not None
    return {"decision": "edit", field: msgspec.json.decode(journal.blob(proposed))}


def question_text(journal: Journal, question: OpenQuestion) -> str:
    """Return the text of a question, with the whole preview of an approval."""
    if not question.question.is_approval:
        return question.question.message
    first, bodies = question.question.message.partition("\n")[0], map(decode, journal.read(question.run_id))
    previews = [body.preview for body in bodies if isinstance(body, kinds.ApprovalRequired | kinds.DecisionProposed)]
    return f"{first}\n{journal.blob(previews[-1]).decode()}"
