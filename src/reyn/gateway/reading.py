"""Operations that read what the runtime knows of a run, one call of it each; and those that delete runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from reyn.context.frame import ContextFrame
from reyn.context.handoff import PhaseHandoff
from reyn.errors import InputInvalid
from reyn.gateway.inspecting import AtEvent
from reyn.gateway.operations import ApiCall, operation
from reyn.journal import ENDED, InboxMessage
from reyn.journal.registry import Status
from reyn.journal.summary import RunSummary
from reyn.kernel.core.conversations import ConversationSize
from reyn.kernel.runtime_types import ReplayReport
from reyn.runs.decisions import PromptMessage
from reyn.runs.frames import VisitContext
from reyn.runs.prune import PruneReport
from reyn.runs.run_files import UndoReport
from reyn.runs.usage import BudgetStatus

_MAX_DAYS = 100_000


@operation("GET", "/api/runs/{run}/summary", "view", result=RunSummary)
def get_summary(call: ApiCall) -> RunSummary:
    """Return what the result of a run and its limits depend on."""
    return call.site.runtime.runs.summary(call.run)


@operation("GET", "/api/runs/{run}/inbox", "view", result=list[InboxMessage])
def get_inbox(call: ApiCall) -> list[InboxMessage]:
    """Return the messages to a run that it has not taken yet."""
    return call.site.runtime.runs.inbox(call.run)


@operation("GET", "/api/runs/{run}/budgets", "view", result=tuple[BudgetStatus, ...])
def get_budgets(call: ApiCall) -> tuple[BudgetStatus, ...]:
    """Return the limit of tokens of a run, and the budgets that its next model call draws on."""
    return call.site.runtime.runs.budgets(call.run)


@operation("GET", "/api/runs/{run}/handoffs", "view", result=tuple[PhaseHandoff, ...])
def get_handoffs(call: ApiCall) -> tuple[PhaseHandoff, ...]:
    """Return the handoffs of a run in the order of the visits."""
    return call.site.runtime.runs.handoffs(call.run)


@operation("GET", "/api/runs/{run}/contexts", "view", result=list[VisitContext])
def get_contexts(call: ApiCall) -> list[VisitContext]:
    """Return the tokens of each visit's prompt by section."""
    return list(call.site.runtime.runs.visit_contexts(call.run))


@operation("GET", "/api/runs/{run}/size", "view", result=ConversationSize)
def get_conversation_size(call: ApiCall) -> ConversationSize:
    """Return how large the conversation of a run is, and at which size it is compacted."""
    return call.site.runtime.runs.conversation_size(call.run)


@operation("GET", "/api/runs/{run}/frame", "view", query=AtEvent, result=ContextFrame)
def get_frame(call: ApiCall) -> ContextFrame:
    """Return the frame at an event, or the last one before it, as a value."""
    return call.site.runtime.runs.context_frame(call.run, call.query.at)


class NextPrompt(msgspec.Struct, forbid_unknown_fields=True):
    """The answer to the open question of a run; in a conversation, the user's next message."""

    answer: Any = None


@operation("POST", "/api/runs/{run}/prompt", "start", body=NextPrompt, result=list[PromptMessage])
async def get_next_prompt(call: ApiCall) -> list[PromptMessage]:
    """Return the messages that a stopped run would send next. Records nothing."""
    found = await call.site.runtime.runs.next_prompt(call.run, call.body.answer)
    return [PromptMessage(role, text) for role, text in found]


@operation("POST", "/api/runs/{run}/replay", "view", result=ReplayReport)
async def replay_run(call: ApiCall) -> ReplayReport:
    """Derive a run again from its recorded inputs and compare every event."""
    return await call.site.runtime.runs.replay(call.run)


@operation("GET", "/api/runs/{run}/export", "view", media_type="application/x-ndjson")
def export_run(call: ApiCall) -> Response:
    """Return an archive of a run, its origins and its sub-runs, a line for each part. `reyn import` reads it."""
    run = call.run
    call.principal.check_all_skills()
    lines: Iterator[bytes] = call.site.runtime.runs.export(run)
    return StreamingResponse(lines, media_type="application/x-ndjson")


# -- undoing and deleting -----------------------------------------------------------------------------


class Undo(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to report only."""

    dry_run: bool = False


@operation("POST", "/api/runs/{run}/undo", "admin", body=Undo, result=UndoReport)
def undo_run(call: ApiCall) -> UndoReport:
    """Restore the files that a run and its descendants changed, newest change first."""
    report = call.site.runtime.runs.undo(call.run, dry_run=call.body.dry_run)
    call.site.changes.look()
    return report


class DeleteRuns(msgspec.Struct, forbid_unknown_fields=True):
    """Which runs to delete."""

    runs: list[str]
    dry_run: bool = False


@operation("POST", "/api/deletions", "admin", body=DeleteRuns, result=PruneReport)
def delete_recorded(call: ApiCall) -> PruneReport:
    """Delete runs with their sub-runs, workspace folders and unshared content: all of them or none."""
    names = [call.site.run_for(run, call.principal).run_id for run in call.body.runs]
    return call.site.runtime.runs.delete(names, dry_run=call.body.dry_run)


class Pruning(msgspec.Struct, forbid_unknown_fields=True):
    """Which runs to delete: those whose last event is older than a number of seconds, by their status."""

    older_than: float
    statuses: tuple[Status, ...] = tuple(sorted(ENDED))
    dry_run: bool = False


@operation("POST", "/api/prunings", "admin", body=Pruning, result=PruneReport)
def prune_runs(call: ApiCall) -> PruneReport:
    """Delete old runs with their sub-runs, workspace folders and unshared content."""
    call.principal.check_all_skills()
    body = call.body
    if not 0 <= body.older_than <= _MAX_DAYS * 86_400:
        raise InputInvalid(f"`older_than` is {body.older_than}, not between 0 and {_MAX_DAYS} days in seconds")
    age = timedelta(seconds=body.older_than)
    return call.site.runtime.runs.prune(older_than=age, statuses=body.statuses, dry_run=body.dry_run)
