"""The op `ask_user`: ask a person a question and wait for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.journal.kinds import AskRequest
from reyn.ops.op import Plan
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, boolean, result, text

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env, Result

_FORM = OpForm(
    op=None,
    summary="Put a question to a person and wait for the answer.",
    arguments=arguments(
        "ask_user",
        None,
        {"question": text(4_000, min_length=1)},
        {"suggestions": array(text(400), 20), "required": boolean(default=True)},
    ),
    effect="idempotent",
    result=result("ask_user", None, {"question": {"type": "string"}, "answer": {}}),
    example={"kind": "ask_user", "question": "Which tone should the report have?", "suggestions": ["formal", "plain"]},
)


class AskUserOp:
    """Asks through a request to the kernel, which waits for the answer durably."""

    spec = OpSpec("ask_user", _FORM.summary, "idempotent", forms=(_FORM,), is_step=False)

    def plan(self, call: Call, env: Env) -> Plan:
        args = call.args
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if not args.get("required", True):
            schema = {"type": ["string", "null"]}
        request = AskRequest(args["question"], schema, tuple(args.get("suggestions", ())))
        return Plan("default: ask questions", request=request)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        return call.ok(question=call.args["question"], answer=plan.answer)
