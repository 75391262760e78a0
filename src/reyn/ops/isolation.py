"""Which skills need the process sandbox, so that a worker without it leaves their runs to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.ops.programs import SandboxedExecOp
from reyn.skills.step_types import PythonCall

if TYPE_CHECKING:
    from reyn.config.values import PythonSandbox
    from reyn.skills import Skill


def needs_sandbox(skill: Skill, sandbox: PythonSandbox) -> str:
    """Return why a skill, or one of its sub-skills, needs the process sandbox; empty if it does not.

    Args:
        skill: The skill.
        sandbox: Where safe python steps run. A module that fails in Monty only when it runs is not found here.
    """
    if (kind := SandboxedExecOp.spec.kind) in skill.op_kinds:
        return f"it may use the op `{kind}`"
    for one in (skill, *skill.skills.values()):
        for placed in one.steps:
            step = placed.applied
            if isinstance(step, PythonCall) and step.mode == "safe" and _in_process(one, step, sandbox):
                return f"`{step.function}` of `{step.module}` runs in CPython"
    return ""


def _in_process(skill: Skill, step: PythonCall, sandbox: PythonSandbox) -> bool:
    from reyn.sandbox.interpreter_choice import needs_cpython

    source = skill.modules.get(step.module)
    return sandbox == "process" or (sandbox == "auto" and source is not None and bool(needs_cpython(source)))
