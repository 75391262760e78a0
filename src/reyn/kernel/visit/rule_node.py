"""Visit a node whose rules decide: no model, no frame.

Its preprocessor runs first. The artifact after it goes on, unless the rule makes one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ConditionFailed, StepFailed
from reyn.kernel.core.errors_of_nodes import VisitFault
from reyn.kernel.core.limits import within_limits
from reyn.kernel.visit.completed_steps import CompletedSteps
from reyn.kernel.visit.deciding import first_match, target_of, values_of
from reyn.kernel.visit.model_free import end_visit
from reyn.kernel.visit.op_log import OpLog
from reyn.kernel.visit.step_context import StepFault
from reyn.kernel.visit.steps import NOTHING, run_steps
from reyn.kernel.visit.visit_end import fail_visit
from reyn.skills.flow import LOCAL_ROOT

if TYPE_CHECKING:
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase


async def visit_rules(phase: CompiledPhase, entry: Visit, tape: Tape) -> None:
    """Visit a node with rules: the first that matches decides where the run goes on."""
    log, steps = OpLog(phase.vocabulary), phase.definition.preprocessor
    local: Mapping[str, Any] = NOTHING
    artifact: dict[str, Any] = msgspec.json.decode(tape.content(entry.input.hash))
    try:
        await within_limits(tape, phase.settings)
        if steps:
            artifact, local = await run_steps(steps, artifact, f"{entry.step}.pre", phase, log, tape, entry.phase)
        expressions = [expression for one in phase.rules for expression in one.expressions]
        values = values_of(expressions, artifact | {LOCAL_ROOT: local}, phase.skill, tape)
        matched, data = first_match(phase.rules, entry, values, tape)
    except StepFault as fault:
        return await fail_visit(entry, log, fault.ending(entry.phase, StepFailed.code), tape)
    except VisitFault as fault:
        return await fail_visit(entry, log, fault, tape)
    made = matched.rule.artifact
    result = {"type": artifact["type"], "data": artifact["data"]} if made is None else {"type": made.name, "data": data}
    done = log.steps if log.steps is not None else CompletedSteps()
    code, target = ConditionFailed.code, target_of(matched)
    return await end_visit(phase, entry, result, done, code, log, tape, target, passes_on=made is None, local=local)
