"""Await a child of a visit. If it acted before and that cannot be continued here, a person decides.

A retry, a rollback and a fork would start such a child under another id, so that it did everything again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace as replace_fields

from reyn.journal import kinds
from reyn.kernel.core.child_effects import CancelChild, ExecuteChild, PlanChild
from reyn.kernel.core.effects import UnknownOutcome
from reyn.kernel.core.errors_of_nodes import NodeFailed
from reyn.kernel.visit.waits import ask_operator

if TYPE_CHECKING:
    from reyn.kernel.core.tape import Tape


async def await_child(plan: PlanChild, args: dict[str, Any], tape: Tape, acted: str = "") -> kinds.ChildEnded:
    """Return how a child ended, after executing it unless it is refused.

    Args:
        plan: The plan of the child.
        args: The arguments of the op that does the same; a question shows them.
        tape: The tape of the run.
        acted: The unsafe ops of an earlier child that did the same and has no result; empty if there is none.
    """
    return await finish_child(await plan_child(plan, args, tape, acted), plan, args, tape)


async def plan_child(
    plan: PlanChild, args: dict[str, Any], tape: Tape, acted: str
) -> kinds.ChildStarted | kinds.ChildEnded:
    """Plan a child. A person decides if an earlier one did the same and acted: it starts, or it has failed."""
    if acted and await ask_operator(plan.key, 1, args, tape, acted, is_child=True) == "failed":
        return await replace(plan, declined=acted)
    return await plan


async def end_failed(started: kinds.ChildStarted, failed: NodeFailed) -> kinds.ChildEnded:
    """End a child that failed or reached a limit, because the node handles that. Returns its end with the error."""
    ended = await CancelChild(started.call, started, f"its parent handles the error: {failed.reason}")
    return replace_fields(ended, artifact=None, error=failed.reason, error_name=failed.error_name)


async def finish_child(
    planned: kinds.ChildStarted | kinds.ChildEnded,
    plan: PlanChild,
    args: dict[str, Any],
    tape: Tape,
    ahead: tuple[kinds.ChildStarted, ...] = (),
    concurrency: int = 1,
) -> kinds.ChildEnded:
    """Return how a planned child ended, after executing it. A fork plans a child of its origin again."""
    while isinstance(planned, kinds.ChildStarted):
        try:
            ended = await ExecuteChild(plan.key, planned, ahead, concurrency)
        except NodeFailed as failed:
            return await end_failed(planned, failed)
        if not isinstance(ended, UnknownOutcome):
            return ended
        planned = await plan_child(plan, args, tape, tape.state.recovery.children[plan.key])
    return planned
