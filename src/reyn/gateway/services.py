"""Operations on what serves all runs: models, permissions and approvals, workers; and on conversations' memory."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.client.values import RunView
from reyn.errors import RequestInvalid
from reyn.gateway.operations import ApiCall, operation
from reyn.gateway.views import run_view
from reyn.journal.results import Approval
from reyn.journal.submission import DEFAULT_QUEUE
from reyn.journal.workers import WorkerReport
from reyn.models.listing import ModelStatus
from reyn.runtime.permissions import OpReport, PermissionReport
from reyn.runtime.workers import QueuedRun


class ModelList(msgspec.Struct):
    """The models of the project. `default` is the one that the setting `model` names; empty if there is none."""

    default: str
    models: list[ModelStatus]


@operation("GET", "/api/models", "view", result=ModelList)
def get_models(call: ApiCall) -> ModelList:
    """List the configured models and those that can be pulled, with their availability."""
    project = call.site.runtime.project
    return ModelList(project.default_model(), project.models())


# -- permissions --------------------------------------------------------------------------------------


@operation("GET", "/api/skills/{name}/permissions", "view", result=PermissionReport)
def explain_permissions(call: ApiCall) -> PermissionReport:
    """Return the permissions of a skill and of its sub-skills: zones, requests, ops, and rules with their lines."""
    skill = call.site.skill_for(call.path["name"], call.principal)
    return call.site.runtime.permissions.explain(skill)


class ExplainOp(msgspec.Struct, forbid_unknown_fields=True):
    """An op kind, or an op with its arguments."""

    op: str | dict[str, Any]


@operation("POST", "/api/skills/{name}/permissions", "admin", body=ExplainOp, result=OpReport)
def explain_op(call: ApiCall) -> OpReport:
    """Return whether a skill may execute an op. Nothing is performed or recorded."""
    skill = call.site.skill_for(call.path["name"], call.principal)
    return call.site.runtime.permissions.explain_op(skill, call.body.op)


class ApprovalView(Approval, frozen=True, kw_only=True):
    """A standing approval. `is_effective` tells whether it was given in this project."""

    is_effective: bool


@operation("GET", "/api/approvals", "view", result=list[ApprovalView])
def get_approvals(call: ApiCall) -> list[ApprovalView]:
    """List the standing approvals, the oldest first."""
    return _approvals(call)


def _approvals(call: ApiCall) -> list[ApprovalView]:
    permissions = call.site.runtime.permissions
    return [
        ApprovalView(**msgspec.structs.asdict(one), is_effective=permissions.is_effective(one))
        for one in permissions.approvals()
        if call.principal.sees(one.skill)
    ]


@operation("DELETE", "/api/approvals/{id}", "admin", result=list[ApprovalView])
def revoke_approval(call: ApiCall) -> list[ApprovalView]:
    """Remove a standing approval; return those that remain."""
    call.principal.check_all_skills()
    number = call.path["id"]
    if not number.isdecimal() or len(number) > 15:
        raise RequestInvalid(f"`{number}` is no number of an approval")
    call.site.runtime.permissions.revoke(int(number))
    return _approvals(call)


@operation("GET", "/api/runs/{run}/permissions", "view", result=tuple[str, ...])
def get_permission_warnings(call: ApiCall) -> tuple[str, ...]:
    """Return a message for each request of a run that no rule grants."""
    return call.site.runtime.permissions.warnings(call.run)


# -- workers ------------------------------------------------------------------------------------------


@operation("GET", "/api/workers", "view", result=list[WorkerReport])
def list_workers(call: ApiCall) -> list[WorkerReport]:
    """List what each worker reported last."""
    call.principal.check_all_skills()
    return call.site.runtime.workers.all()


@operation("GET", "/api/submissions", "view", result=list[QueuedRun])
def list_submissions(call: ApiCall) -> list[QueuedRun]:
    """List the submitted runs that no worker executes, in the order in which workers take them."""
    return [one for one in call.site.runtime.workers.queued() if call.principal.sees(one.skill)]


class HandOver(msgspec.Struct, forbid_unknown_fields=True):
    """The queue of a run that workers continue."""

    queue: str = DEFAULT_QUEUE
    priority: int | None = None
    labels: list[str] = []


@operation("POST", "/api/runs/{run}/submit", "start", body=HandOver, result=RunView, status=202)
def hand_to_workers(call: ApiCall) -> RunView:
    """Let workers execute a run that was interrupted or waits."""
    runtime = call.site.runtime
    wanted = call.body
    row = runtime.workers.hand_over(call.run, queue=wanted.queue, priority=wanted.priority, labels=wanted.labels)
    call.site.changes.look()
    return run_view(runtime, row)


# -- conversations ------------------------------------------------------------------------------------


class CopyConversation(msgspec.Struct, forbid_unknown_fields=True):
    """The id of a copy; generated by default."""

    run_id: str | None = None


@operation("POST", "/api/conversations/{run}/copy", "start", body=CopyConversation, result=RunView, status=202)
def duplicate_conversation(call: ApiCall) -> RunView:
    """Copy a conversation with everything that was completed. Nothing is executed."""
    runtime = call.site.runtime
    call.site.check_open_to(call.body.run_id, call.principal)
    new = runtime.conversations.copy(call.origin, run_id=call.body.run_id)
    return run_view(runtime, runtime.runs.find(new))


class ChangeMemoryOf(msgspec.Struct, forbid_unknown_fields=True):
    """A text to remember, the id of an entry to forget, or a compaction: one of them."""

    remember: str | None = None
    forget: str | None = None
    compact: bool = False


@operation("POST", "/api/conversations/{run}/memory", "start", body=ChangeMemoryOf, result=RunView, status=202)
def change_memory(call: ApiCall) -> RunView:
    """Change what a conversation remembers, or let it replace its older messages by a summary."""
    runtime, body, run = call.site.runtime, call.body, call.run
    if (body.remember is not None) + (body.forget is not None) + body.compact != 1:
        raise RequestInvalid("name one of `remember`, `forget` and `compact`")
    if body.remember is not None:
        runtime.conversations.remember(run, body.remember)
    elif body.forget is not None:
        runtime.conversations.forget(run, body.forget)
    else:
        runtime.conversations.compact(run)
    call.site.changes.look()
    return run_view(runtime, runtime.runs.find(run))
