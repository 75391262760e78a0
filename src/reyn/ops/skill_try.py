"""The op `skill_try`: run the cases of a skill with scripted answers, without effects outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from reyn.errors import ReynError
from reyn.ops.op import Plan
from reyn.ops.skill_folder import find_skill
from reyn.ops.skill_lint import ON_FAIL, numbered
from reyn.permissions import Denied
from reyn.skills.cases import MAX_CASES
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, path, result

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env, OpSetup, Result

_CASE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "passed": {"type": "boolean"},
        "problems": {"type": "array", "items": {"type": "string"}},
    },
}
_FORM = OpForm(
    op=None,
    summary="Try a skill: run its cases with their scripted answers and compare the results.",
    arguments=arguments("skill_try", None, {"skill_path": path()}, {"on_fail": ON_FAIL}),
    effect="pure",
    result=result(
        "skill_try",
        None,
        {
            "skill_path": {"type": "string"},
            "passed": {"type": "boolean"},
            "summary": {"type": "string"},
            "cases": array(_CASE, MAX_CASES),
        },
    ),
    example={"kind": "skill_try", "skill_path": "reyn/local/summarise"},
)


class SkillTryOp:
    """Tries a skill by name, or in a folder that the run may read.

    With `on_fail: abort`, a case that fails is an error of the op, and so is a skill without cases.
    """

    spec = OpSpec("skill_try", _FORM.summary, "pure", forms=(_FORM,), takes_time=True)

    def __init__(self, setup: OpSetup | None = None) -> None:
        self._setup = setup

    def set_up(self, setup: OpSetup) -> SkillTryOp:
        return SkillTryOp(setup)

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        found = find_skill(call.args["skill_path"], env, self._setup)
        if isinstance(found.verdict, Denied):
            return found.verdict
        return Plan("default: try skills", approval=found.approval)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        name = call.args["skill_path"]
        try:
            found = find_skill(name, env, self._setup)
            assert self._setup is not None
            report = await asyncio.to_thread(self._setup.try_cases, found.folder)
        except ReynError as error:
            return call.error(f"{error.code}: {error.message}", skill_path=name)
        fields = {
            "skill_path": name,
            "passed": report.passed,
            "summary": report.summary,
            "cases": [{"name": one.name, "passed": one.passed, "problems": list(one.problems)} for one in report.cases],
        }
        if call.args.get("on_fail") == "abort":
            if not report.cases:
                return call.error("the skill has no cases", **fields)
            if not report.passed:
                return call.error(numbered("cases of the skill fail", report.failures), **fields)
        return call.ok(**fields)
