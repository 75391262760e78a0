"""Call an op of any kind and return a valid plan or result.

An op never ends a run: exceptions and malformed results become error results here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.journal import check_json
from reyn.ops.op import Call, Env, Op, Plan, Result
from reyn.permissions import Denied
from reyn.vocabulary.schemas import STATUSES
from reyn.workspace import Change, apply_change, locate

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan_op(op: Op, call: Call, env: Env) -> Plan | Denied:
    """Plan an op. The gate decides first for kinds that need a permission."""
    if op.spec.permission is not None:
        verdict = env.gate.capability(op.spec.permission)
        if isinstance(verdict, Denied):
            return verdict
    try:
        plan: Any = op.plan(call, env)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - becomes the result
        return Plan(result=call.failed(error))
    if isinstance(plan, Plan):
        return plan if plan.result is None else replace(plan, result=check_result(call, plan.result))
    return plan if isinstance(plan, Denied) else Plan(result=call.error(f"the op planned a {type(plan).__name__}"))


async def perform_op(op: Op, call: Call, plan: Plan, env: Env) -> Result:
    """Perform an op whose plan neither changes files nor is complete."""
    try:
        return check_result(call, await op.perform(call, plan, env))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the run is interrupted; otherwise the op cancelled itself
            raise
        return call.failed(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - becomes the result
        return call.failed(error)


def apply_changes(call: Call, changes: Sequence[Change], env: Env) -> Result | None:
    """Apply the changes of a plan. Returns a result only if one could not be applied.

    Safe to repeat after a crash: a change that took effect is not applied twice.
    """
    try:
        for change in changes:
            location = locate(change.path, env.roots)
            verdict = env.gate.write(location)
            if isinstance(verdict, Denied):
                return call.denied(verdict)
            if apply_change(change, env.roots, env.content, call.key, location) == "conflict":
                return call.error(
                    f"`{change.path}` was changed by another program and was left as it is; read it again"
                )
    except Exception as error:  # noqa: BLE001 - becomes the result
        return call.failed(error)
    return None


def check_result(call: Call, result: Any) -> Result:
    """Return the result if it is a valid envelope of this call, otherwise an error result with the reason."""
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
