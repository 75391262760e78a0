"""The op `run_skill`: run another skill and return its final artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import Blob, canonical
from reyn.journal.kinds import RunRequest
from reyn.ops.op import Plan, RunOutcome
from reyn.permissions import Denied
from reyn.skills.resolve import is_path
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, many, result, text

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env, Result

_FORM = OpForm(
    op=None,
    summary="Run another skill and take its final artifact.",
    arguments=arguments(
        "run_skill",
        None,
        {"skill": text(200, least=1), "input": {"type": ["object", "string"], "maxLength": 1_000_000}},
    ),
    effect="idempotent",
    result=result(
        "run_skill",
        None,
        {
            "skill": {"type": "string"},
            "success": {"type": "boolean"},
            "artifact_type": {"type": "string"},
            "final_output": {},
            "run": {"type": "string"},
            "phase_artifacts": many(
                {"type": "object", "properties": {"phase": {"type": "string"}, "artifact": {"type": "object"}}}, 50
            ),
        },
    ),
    example={"kind": "run_skill", "skill": "summarise", "input": {"text": "what to sum up"}},
)


class RunSkillOp:
    """Runs through a request to the kernel, which executes the sub-run."""

    spec = OpSpec("run_skill", _FORM.summary, "idempotent", forms=(_FORM,), skill_field="skill")

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        """Allow skills by name only: a path would let the model read files that it may not read."""
        skill = call.args["skill"]
        if is_path(skill):
            return Denied(
                "default: no skills by path",
                f"`{skill}` is a path; run a skill by its name in the project or the standard library",
            )
        content = Blob.of(canonical(call.args["input"]))
        return Plan("default: run skills by name", request=RunRequest(skill, content.hash), blobs=(content,))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: RunOutcome = plan.answer
        skill, artifact = call.args["skill"], outcome.artifact
        phases = [{"phase": phase, "artifact": one} for phase, one in outcome.phases]
        more = {"run": call.relative(outcome.run_id), "phase_artifacts": phases}
        if artifact is None:
            return call.error(outcome.error, skill=skill, success=False, **more)
        return call.ok(skill=skill, success=True, artifact_type=artifact["type"], final_output=artifact["data"], **more)
