"""Call an op of any kind and return a valid plan or result.

An op never ends a run: exceptions, malformed plans and malformed results become error results here. Ops of other
packages are also checked against their specification.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from reyn.journal import APPROVAL_DIGITS, Blob, check_json, digest
from reyn.journal.kinds import AskRequest, RunRequest
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.ops.budget import EffectUnknown, OpRefused
from reyn.ops.op import Call, Env, HoldsSecret, Op, Plan, Preparable, Result, Targeted, Versioned
from reyn.ops.overviews import HasOverview, Overview
from reyn.permissions import Allowed, Denied, NeedsApproval, Verdict, refusal, unnamed_target
from reyn.permissions.gate import DUE_APPROVALS, ProjectMissing
from reyn.vocabulary.schemas import OP_STATUSES
from reyn.workspace import Change, ChangeUncertain, Location, apply_change, locate


def plan_op(
    op: Op,
    call: Call,
    env: Env,
    *,
    permissions: Collection[str] = (),
    is_foreign: bool = True,
    planned: Plan | None = None,
) -> Plan | Denied:
    """Plan an op. The gate decides about the permissions that its kind needs first.

    Args:
        op: The op.
        call: The call; the op gets a copy of its arguments.
        env: What the op may use.
        permissions: Permission keys that the kind needs besides those of its specification.
        is_foreign: Whether the op comes from outside the package, so that its plan is checked.
        planned: The plan of a step that does what the op does. It has no plan of the op.
    """
    asked: dict[str, None] = {}
    token = DUE_APPROVALS.set(asked)
    try:
        verdict = _decide(op, call, env, permissions) if permissions or op.spec.permission is not None else None
        if isinstance(verdict, Denied):
            return verdict
        plan: Plan | Denied
        if planned is not None:
            plan = planned
        else:
            plan = checked_plan(call, op.plan(copied(call), env)) if is_foreign else op.plan(call, env)
        is_asked = isinstance(plan, Plan) and (plan.approval is not None or isinstance(verdict, NeedsApproval))
        version = op.version(call, env) if is_asked and isinstance(op, Versioned) else ""
    except BaseException as error:  # becomes the result
        if is_interrupt(error):
            raise
        if isinstance(error, OpRefused) and not (asked and isinstance(error, HoldsSecret)):
            return Denied(str(error.fields["rule"]), str(error))
        return Plan(result=failed(call, error), approval=" and ".join(asked) or None)
    finally:
        DUE_APPROVALS.reset(token)
    if isinstance(plan, Denied):
        return plan
    if asked and plan.result is not None and plan.result["status"] != "ok":
        # An error tells about what a person has to decide about first.
        more = (plan.approval,) if plan.approval and plan.approval not in " and ".join(asked) else ()
        return replace(plan, approval=" and ".join((*asked, *more)))
    if verdict is None:
        return plan
    # A standing approval of a name must not cover what gets the name later.
    bound = f" and version {version[:APPROVAL_DIGITS]}" if version else ""
    if isinstance(verdict, Allowed):
        plan = replace(plan, approval=f"{plan.approval}{bound}") if bound else plan
        return plan if plan.rule else replace(plan, rule=verdict.rule)
    # Both rules are named: a standing approval of one must not cover the other.
    both = verdict.rule if plan.approval is None else f"{verdict.rule} and {plan.approval}"
    return replace(plan, approval=f"{both}{bound}")


def _decide(op: Op, call: Call, env: Env, permissions: Collection[str]) -> Verdict:
    """Return the verdict of the gate on an op that needs permissions."""
    own = op.spec.permission
    keys = {*permissions, *((own,) if own else ())}
    target = op.target(copied(call)) if _is_targeted(type(op)) else None  # type: ignore[attr-defined]  # `_is_targeted` has checked it
    if target is not None:
        if not isinstance(target, str):
            raise TypeError(f"`target` returned a {type(target).__name__}, not a str")
        check_json(target, "target")
    verdicts = [
        env.gate.capability(key, unnamed_target(key, call.kind) if target is None else target) for key in sorted(keys)
    ]
    if denied := next((verdict for verdict in verdicts if isinstance(verdict, Denied)), None):
        return denied
    if asking := [verdict for verdict in verdicts if isinstance(verdict, NeedsApproval)]:
        return NeedsApproval(" and ".join(verdict.rule for verdict in asking), asking[0].reason)
    return verdicts[0]


@cache
def _is_targeted(op: type) -> bool:
    """Return whether ops of a class are `Targeted`. Asking the protocol for every op costs as much as the gate."""
    return issubclass(op, Targeted)


async def prepare_op(op: Preparable, call: Call, env: Env) -> None:
    """Compute in a thread what the plan of an op needs, so that other runs go on meanwhile."""
    from reyn.sandbox import in_thread

    with suppress(Exception):  # the plan meets the same error, and reports it
        work = op.preparation(call, env)
        if work is not None:
            await in_thread(work)


class Performed(NamedTuple):
    """The result of an op.

    Attributes:
        result: The result.
        may_have_effect: Whether it is an error of an unsafe op that may have taken effect.
    """

    result: Result
    may_have_effect: bool = False


async def perform_op(
    op: Op, call: Call, plan: Plan, env: Env, *, permissions: Collection[str] = (), is_foreign: bool = True
) -> Performed:
    """Perform an op whose plan neither changes files nor is complete.

    The gate decides once more: the rules may have changed since the op was planned, before a crash.
    """
    try:
        if permissions or op.spec.permission is not None:
            refused = refusal(_decide(op, call, env, permissions), approved=plan.approved)
            if refused is not None:
                return Performed(call.denied(refused))
        if not is_foreign:
            returned: Any = await op.perform(call, plan, env)
            result = check_result(call, returned)
            is_settled = result is returned and result["status"] != "timeout"
            return Performed(result) if is_settled else _unsettled(op, call, result)
        # In a task of its own, an op that cancels its task does not cancel the run.
        returned, error = await asyncio.create_task(_contained(op, copied(call), plan, env))
        _raise_if_interrupted()
        if error is not None:
            raise error
        result = check_result(call, returned, op)
        is_settled = result is returned and result["status"] != "timeout"
        return Performed(result) if is_settled else _unsettled(op, call, result)
    except BaseException as error:  # becomes the result
        if is_interrupt(error):
            raise
        _raise_if_interrupted()
        result = failed(call, error)
        return _unsettled(op, call, result) if isinstance(error, EffectUnknown) else Performed(result)


def _unsettled(op: Op, call: Call, result: Result) -> Performed:
    """Return the error of an op that took too long, or whose result cannot be used: it may have taken effect."""
    form = op.spec.form(call.op)
    return doubtful(result) if form is not None and form.effect_of(call.args) == "unsafe" else Performed(result)


def doubtful(result: Result) -> Performed:
    """Return the error of an unsafe op that may have taken effect, and that says so."""
    return Performed(result | {"error": f"{result['error']}; {MAY_HAVE_EFFECT}"}, may_have_effect=True)


MAY_HAVE_EFFECT = "it may have taken effect: check before you repeat it"


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception ends the execution and not the op: the project is missing, or it is Ctrl-C.

    Ctrl-C interrupts only the main thread; elsewhere the op raised it.
    """
    if isinstance(error, ProjectMissing):
        return True
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


async def _contained(op: Op, call: Call, plan: Plan, env: Env) -> tuple[Any, BaseException | None]:
    """Return the result or the exception of an op. A task that raises `SystemExit` would stop the event loop."""
    try:
        return await op.perform(call, plan, env), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - raised again by the caller
        return None, error


def _raise_if_interrupted() -> None:
    """Pass on a cancellation of the run, which an op may have swallowed."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Applied(NamedTuple):
    """The outcome of applying the changes of a plan.

    Attributes:
        changes: How many of the changes, in order, are in their files, or may be.
        problem: The result, if not all of them were applied.
        note: A remark for the model if all of them were applied.
    """

    changes: int
    problem: Result | None = None
    note: str = ""


_UNCONFIRMED = "the change was made, but the system reported an error: it may be lost if the machine fails now"


def apply_changes(
    call: Call, changes: Sequence[Change], env: Env, *, approved: str = "", locations: Sequence[Location] = ()
) -> Applied:
    """Apply the changes of a plan, in order, up to the first that cannot be applied.

    Safe to repeat after a crash: a change that took effect is not applied twice.

    Args:
        call: The call of the op.
        changes: The changes.
        env: What the op may use.
        approved: The `ask` rules for which a person has approved the op.
        locations: The files of the changes, if the gate has decided about them in this process. Otherwise their paths
            are resolved, and the gate decides.
    """
    count, note = 0, ""
    try:
        for number, change in enumerate(changes):
            if locations:
                location = locations[number]
            else:
                location = locate(change.path, env.roots)
                if refused := refusal(env.gate.write(location), approved=approved):
                    return Applied(count, call.denied(refused))
            outcome = apply_change(change, env.roots, env.content, call.key, location)
            if outcome == "conflict":
                message = f"`{change.path}` was changed by another program or run and left as it is; read it again"
                return Applied(count, call.error(message))
            note = _UNCONFIRMED if outcome == "unconfirmed" else note
            count += 1
    except ChangeUncertain as error:
        return Applied(count + 1, failed(call, error))
    except Exception as error:  # noqa: BLE001 - becomes the result
        return Applied(count, failed(call, error))
    return Applied(count, note=note)


def overview_of(op: HasOverview, query: str, env: Env, *, is_foreign: bool = True) -> Overview | str:
    """Return what an op can act on, or the reason if it fails or returns something else."""
    try:
        overview = op.overview(query, env)
        return _checked_overview(overview) if is_foreign else overview
    except BaseException as error:  # becomes the reason
        if is_interrupt(error):
            raise
        return _described(error)


def _described(error: BaseException) -> str:
    """Return the type and the message of an exception, as text that can be recorded."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:_MAX_REASON].encode(errors="backslashreplace").decode()
    except BaseException as undescribed:
        if is_interrupt(undescribed):
            raise
        return name


_MAX_REASON = 300


def _checked_overview(overview: Any) -> Overview:
    """Return an overview whose parts have their types, and whose schemas are valid."""
    if not isinstance(overview, Overview):
        raise TypeError(f"`overview` returned a {type(overview).__name__}, not an `Overview`")
    parts = msgspec.to_builtins(overview)
    check_json(parts)
    checked = msgspec.convert(parts, Overview)
    for target in checked.targets or ():
        compile_schema({"properties": target.arguments})
    return checked


# -- checks -------------------------------------------------------------------------------------------------


def copied(call: Call) -> Call:
    """Return the call with a copy of its arguments, so an op cannot change the recorded ones."""
    return Call(call.key, msgspec.json.decode(msgspec.json.encode(call.args)))


def failed(call: Call, error: BaseException) -> Result:
    """Return the error result for any exception, with a message and fields that can be recorded."""
    try:
        return check_result(call, call.failed(error))
    except BaseException as undescribed:  # it cannot be described
        if is_interrupt(undescribed):
            raise
        return call.error(f"the op failed: {type(error).__name__}")


def check_result(call: Call, result: Any, op: Op | None = None) -> Result:
    """Return the result if it is a JSON envelope of this call, else an error result with the reason.

    With an op, the result must also fit the schema of its form.
    """
    if not isinstance(result, dict):
        return call.error(f"the op returned a {type(result).__name__} instead of a result")
    form_name, status = call.args.get("op"), result.get("status")
    if result.get("kind") != call.args["kind"] or (form_name is not None and result.get("op") != form_name):
        return call.error("the op returned a result of another kind")
    if not isinstance(status, str) or status not in OP_STATUSES:
        return call.error(f"the op returned the unknown status {str(status)[:40]!r}")
    try:
        check_json(result)
    except ValueError as error:
        return call.error(f"the op returned a result that is not JSON: {str(error)[:200]}")
    form = op.spec.form(form_name) if op is not None else None
    wrong = compile_schema(form.result).first_error(result) if form is not None else None
    if wrong is not None:
        return call.error(f"the op returned a result that its specification excludes: {wrong.path('result')}")
    return result


def checked_plan(call: Call, plan: Any) -> Plan | Denied:
    """Return a plan whose parts fit together, else one that is complete with an error result."""
    try:
        if isinstance(plan, Denied):
            return Denied(_text(plan.rule), _text(plan.reason))
        if not isinstance(plan, Plan):
            raise ValueError(f"it is a {type(plan).__name__}")
        return _fitting(call, plan)
    except (ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        return Plan(result=call.error(f"the op's plan is malformed: {str(error)[:200]}"))


def _fitting(call: Call, plan: Plan) -> Plan:
    rule = _text(plan.rule)
    changes = tuple(msgspec.convert(msgspec.to_builtins(change), Change) for change in plan.changes)
    brought: tuple[Any, ...] = tuple(plan.blobs)
    blobs = {blob.hash: blob for blob in brought if isinstance(blob, Blob) and digest(blob.content) == blob.hash}
    if len(blobs) != len({id(blob) for blob in brought}):
        raise ValueError("a blob does not have the hash of its content")
    missing = {name for change in changes for name in (change.before, change.after) if name} - blobs.keys()
    if missing:
        raise ValueError("a change refers to content that the plan does not bring")
    if changes and plan.request is not None:
        raise ValueError("it has both changes and a request")
    if changes and plan.result is None:
        raise ValueError("it has changes but no result")
    result = None if plan.result is None else check_result(call, plan.result)
    approval = None if plan.approval is None else _text(plan.approval)
    if changes and (result or {}).get("status") != "ok":
        failed_ = result if result and result["status"] != "ok" else call.error("no result")
        return Plan(rule, result=failed_, approval=approval)
    request = _request(plan.request, blobs)
    reads, about = _text(plan.reads), _text(plan.about)
    return Plan(rule, changes, result, tuple(blobs.values()), request, approval=approval, reads=reads, about=about)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a rule or reason is a {type(value).__name__}")
    check_json(value)
    return value


def _request(request: Any, blobs: dict[str, Blob]) -> AskRequest | RunRequest | None:
    match request:
        case None:
            return None
        case AskRequest():
            checked_request = msgspec.convert(msgspec.to_builtins(request), AskRequest)
            check_json(msgspec.to_builtins(checked_request))
            try:
                compile_schema(checked_request.response_schema)
            except SchemaInvalid as error:
                raise ValueError(f"the schema of its question is invalid: {error}") from error
            return checked_request
        case RunRequest():
            run = msgspec.convert(msgspec.to_builtins(request), RunRequest)
            if run.input not in blobs:
                raise ValueError("its request refers to content that the plan does not bring")
            msgspec.json.decode(blobs[run.input].content)
            return run
    raise ValueError(f"its request is a {type(request).__name__}")
