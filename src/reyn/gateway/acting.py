"""Operations that act on runs: start, answer, cancel, resume, fork, repeat. What executes, executes in this process."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.errors import InputInvalid
from reyn.gateway.operations import ApiCall, operation
from reyn.gateway.views import RunView, run_view


class StartRun(msgspec.Struct, forbid_unknown_fields=True):
    """A run to start. With the `run_id` of a run that exists, the call is idempotent: it returns that run."""

    skill: str
    input: Any = None
    run_id: str | None = None
    model: str | None = None


@operation("POST", "/api/runs", "start", body=StartRun, result=RunView, status=202)
async def start_run(call: ApiCall) -> RunView:
    """Start a run and return it as soon as it is recorded. It executes in this process."""
    wanted, site = call.body, call.site
    skill, runtime = site.skill_for(wanted.skill, call.principal), site.runtime_for(wanted.model)
    run_id = wanted.run_id or runtime.services.ids.new()
    site.check_open_to(wanted.run_id, call.principal)

    async def execute(**observers: Any) -> Any:
        return await runtime.run(skill, wanted.input, run_id=run_id, wait=False, **observers)

    return run_view(site.runtime, await site.work.start(run_id, execute))


class ReplyBody(msgspec.Struct, forbid_unknown_fields=True):
    """A reply to an open question.

    Attributes:
        question: The id of the question. The reply to an approval must name it.
        value: The reply, a JSON value.
        is_text: Whether `value` is text that a user typed, which is parsed unless the question takes text.
    """

    value: Any
    question: str | None = None
    is_text: bool = False


class Answered(msgspec.Struct):
    """A reply was stored. `is_continued` tells whether a process continues the run with it."""

    run_id: str
    question_id: str
    root_run: str
    is_continued: bool


@operation("POST", "/api/runs/{run}/answer", "answer", body=ReplyBody, result=Answered, status=202)
async def answer(call: ApiCall) -> Answered:
    """Reply to the open question of a run; the run continues. Replies to approvals need the scope `approve`.

    The journal records the name of the token as the user, whatever the body says.
    """
    site, body = call.site, call.body
    runtime, row = site.runtime, site.run_for(call.path["run"], call.principal)
    asked = runtime.runs.open_question(row)
    if asked is not None and asked.question.must_be_named:
        call.principal.check("approve")
    value = body.value
    if body.is_text and not isinstance(value, str):
        raise InputInvalid("`value` is not text, although `is_text` says so")
    posted = runtime.answer(row.run_id, body.question, value, is_text=body.is_text, by=call.principal.name)
    continued = posted.is_claimed or site.conversations.answered(posted)
    site.changes.look()
    if not continued and site.work.may_work:

        async def execute(**observers: Any) -> Any:
            return await runtime.resume_answered(posted, **observers)

        await site.work.start(posted.root_run, execute)
        continued = True
    return Answered(posted.run_id, posted.question_id, posted.root_run, continued)


class Reason(msgspec.Struct, forbid_unknown_fields=True):
    """Why."""

    reason: str = ""


@operation("POST", "/api/runs/{run}/cancel", "start", body=Reason, result=RunView)
def cancel(call: ApiCall) -> RunView:
    """Cancel a run and its sub-runs. The process that executes it stops before its next effect."""
    runtime, run = call.site.runtime, call.run
    runtime.cancel(run, call.body.reason or f"cancelled by {call.principal.name}")
    call.site.changes.look()
    return run_view(runtime, runtime.runs.find(run))


class Resume(msgspec.Struct, forbid_unknown_fields=True):
    """How to continue a run: new values of the limits that stopped it (null removes one), another model, a retry."""

    retry: bool = False
    raise_limits: dict[str, int | None] = {}
    model: str | None = None
    upgrade: bool = False


@operation("POST", "/api/runs/{run}/resume", "start", body=Resume, result=RunView, status=202)
async def resume(call: ApiCall) -> RunView:
    """Continue a run that was interrupted or stopped. It executes in this process."""
    site, body = call.site, call.body
    run, model = call.run, site.model_for(body.model)

    async def execute(**observers: Any) -> Any:
        return await site.runtime.resume(
            run,
            retry=body.retry,
            raise_limits=body.raise_limits,
            model=model,
            upgrade=body.upgrade,
            **observers,
        )

    return run_view(site.runtime, await site.work.start(run, execute))


class Fork(msgspec.Struct, forbid_unknown_fields=True):
    """Where and how a fork continues: the event, and what is different from there on."""

    at: int | None = None
    model: str | None = None
    input: Any = None
    skill: str | None = None
    instructions: dict[str, str] = {}
    answer: dict[str, Any] | str | None = None
    run_id: str | None = None


@operation("POST", "/api/runs/{run}/fork", "start", body=Fork, result=RunView, status=202)
async def fork_run(call: ApiCall) -> RunView:
    """Start a new run that continues from an event of a run. It executes in this process."""
    site, body = call.site, call.body
    run, model = call.run, site.model_for(body.model)
    new = body.run_id or site.runtime.services.ids.new()
    skill = site.skill_for(body.skill, call.principal) if body.skill is not None else None

    async def execute(**observers: Any) -> Any:
        return await site.runtime.fork(
            run,
            at=body.at,
            model=model,
            input=body.input,
            skill=skill,
            instructions=body.instructions,
            answer=body.answer,
            run_id=new,
            **observers,
        )

    return run_view(site.runtime, await site.work.start(new, execute))


class Rerun(msgspec.Struct, forbid_unknown_fields=True):
    """How a run is repeated."""

    model: str | None = None
    upgrade: bool = False
    run_id: str | None = None


@operation("POST", "/api/runs/{run}/rerun", "start", body=Rerun, result=RunView, status=202)
async def repeat_run(call: ApiCall) -> RunView:
    """Start a new run with the input, the settings and the skill of a run. It executes in this process."""
    site, body = call.site, call.body
    run, model = call.run, site.model_for(body.model)
    new = body.run_id or site.runtime.services.ids.new()

    async def execute(**observers: Any) -> Any:
        return await site.runtime.rerun(run, model=model, upgrade=body.upgrade, run_id=new, **observers)

    return run_view(site.runtime, await site.work.start(new, execute))


ACTING_OPERATIONS = (
    start_run,
    answer,
    cancel,
    resume,
    fork_run,
    repeat_run,
)
