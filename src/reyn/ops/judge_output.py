"""The op `judge_output`: let a model score an output against a rubric.

The model call is a sub-run of the standard skill of the same name: recorded, counted towards the limits of the run, and
replayed without a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import Blob, canonical
from reyn.journal.kinds import RunRequest
from reyn.ops.op import Plan, RunOutcome
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, result, text

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env, Result

SKILL = "judge_output"
_FRACTION = {"type": "number", "minimum": 0, "maximum": 1}

_FORM = OpForm(
    op=None,
    summary="Let a model score an output against a rubric, from 0 to 1.",
    arguments=arguments(
        "judge_output",
        None,
        {"output": {}, "rubric": text(8_000, min_length=1)},
        {
            "threshold": {**_FRACTION, "default": 0.8},
            "on_fail": {"enum": ["continue", "transition", "abort"], "default": "continue"},
        },
    ),
    effect="idempotent",
    result=result(
        "judge_output",
        None,
        {
            "score": _FRACTION,
            "passed": {"type": "boolean"},
            "threshold": _FRACTION,
            "judgement": {"type": "string"},
            "on_fail": {"type": "string"},
            "run": {"type": "string"},
        },
    ),
    example={"kind": "judge_output", "output": "the text", "rubric": "It is polite and names a date."},
)


class JudgeOutputOp:
    """Judges through a request to the kernel, which executes the sub-run.

    With `on_fail: continue`, a score below the threshold is a result like any other. With `transition` or `abort` it is
    an error: a decision that carries the op does not take effect, and a step fails.
    """

    spec = OpSpec(
        "judge_output",
        _FORM.summary,
        "idempotent",
        forms=(_FORM,),
        advice="With on_fail abort, a decision that carries it holds only if the output passes.",
    )

    def plan(self, call: Call, env: Env) -> Plan:
        output = call.args["output"]
        judged = {
            "rubric": call.args["rubric"],
            "output": output if isinstance(output, str) else canonical(output).decode(),
        }
        content = Blob.of(canonical({"type": "judged_output", "data": judged}))
        return Plan("default: judge outputs", request=RunRequest(SKILL, content.hash), blobs=(content,))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: RunOutcome = plan.answer
        data = outcome.artifact["data"] if outcome.artifact else {}
        score = data.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            return call.error(
                outcome.error or f"the skill `{SKILL}` returned no score", run=call.relative(outcome.run_id)
            )
        threshold = call.args.get("threshold", 0.8)
        on_fail = call.args.get("on_fail", "continue")
        fields = {
            "score": score,
            "passed": score >= threshold,
            "threshold": threshold,
            "judgement": str(data.get("reason", "")),
            "on_fail": on_fail,
            "run": call.relative(outcome.run_id),
        }
        if score < threshold and on_fail != "continue":
            return call.error(
                f"the output scored {score:g}, below {threshold:g}: {data.get('reason', '')}"[:500], **fields
            )
        return call.ok(**fields)
