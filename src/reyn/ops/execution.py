"""Call an op and turn whatever happens into a plan or a result. The same for every kind.

An op never ends a run: what it raises, and a result that is malformed, become error results here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.journal import check_json
from reyn.ops.op import Call, Env, Op, Plan, Result
from reyn.permissions import Denied, NeedsApproval, refusal
from reyn.vocabulary.schemas import STATUSES
from reyn.workspace import Change, apply_change, locate

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan_op(op: Op, call: Call, env: Env) -> Plan | Denied:
    """Plan an op. Kinds that need a permission are decided by the gate first."""
    approval = None
    if op.spec.permission is not None:
        verdict = env.gate.capability(op.spec.permission, call.kind)
        if isinstance(verdict, Denied):
            return verdict
        approval = verdict.rule if isinstance(verdict, NeedsApproval) else None
    try:
        plan: Any = op.plan(call, env)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - becomes the result
        return Plan(result=call.failed(error))
    if isinstance(plan, Plan):
        result = plan.result if plan.result is None else checked(call, plan.result)
        return replace(plan, result=result, approval=approval or plan.approval)
    return plan if isinstance(plan, Denied) else Plan(result=call.error(f"the op planned a {type(plan).__name__}"))


async def perform_op(op: Op, call: Call, plan: Plan, env: Env) -> Result:
    """Perform an op whose plan neither changes files nor is complete."""
    try:
        return checked(call, await op.perform(call, plan, env))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the run is interrupted; otherwise the op cancelled itself
            raise
        return call.failed(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - becomes the result
        return call.failed(error)


def apply_changes(call: Call, changes: Sequence[Change], env: Env, *, is_approved: bool = False) -> Result | None:
    """Apply the changes of a plan. Returns a result only if one could not be applied.

    After a crash this may happen again; a change that took effect is left as it is.
    """
    try:
        for change in changes:
            place = locate(change.path, env.roots)
            verdict = env.gate.write(place)
            if refused := refusal(verdict, is_approved=is_approved):
                return call.denied(refused)
            if apply_change(change, env.roots, env.content, call.key, place) == "conflict":
                return call.error(
                    f"`{change.path}` was changed by another program and was left as it is; read it again"
                )
    except Exception as error:  # noqa: BLE001 - becomes the result
        return call.failed(error)
    return None


def checked(call: Call, result: Any) -> Result:
    """Return the result if it is a JSON envelope of this call, else an error result that says what is wrong."""
    if not isinstance(result, dict):
        return call.error(f"the op returned a {type(result).__name__} instead of a result")
    envelope = call.ok()
    if any(result.get(name) != envelope[name] for name in envelope if name != "status"):
        return call.error("the op returned a result of another kind")
    if result.get("status") not in STATUSES:
        return call.error(f"the op returned the unknown status {str(result.get('status'))[:40]!r}")
    try:
        check_json(result)
    except ValueError as error:
        return call.error(f"the op returned a result that is not JSON: {str(error)[:200]}")
    return result
