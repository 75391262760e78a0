"""Plan an op, and ask a person first where a rule says so.

An approval authorises one action: it is bound to the digest of what was shown. The op is planned again afterwards, and
any difference (arguments, contents, files, rule) asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.journal import Blob, canonical, kinds
from reyn.jsonschema import compile_schema
from reyn.kernel.effects import Ask, Expired, PlanOp
from reyn.ops import Call

if TYPE_CHECKING:
    from reyn.kernel.compiled_skill import RunContext
    from reyn.kernel.tape import Tape

SECOND = 1_000_000

RESPONSE: dict[str, Any] = {
    "anyOf": [
        {"enum": ["approve", "reject", "defer"]},
        {
            "type": "object",
            "properties": {
                "decision": {"enum": ["approve", "reject", "edit", "defer"]},
                "args": {"type": "object"},
                "remark": {"type": "string", "maxLength": 4_000},
                "always": {"type": "boolean"},
            },
            "required": ["decision"],
            "additionalProperties": False,
        },
    ]
}
SUGGESTIONS = ("approve", "reject", "defer")


class Rejected:
    """The op was not approved. `result` is the hash of what the model sees."""

    def __init__(self, result: str) -> None:
        self.result = result


async def plan_op(
    args: dict[str, Any], call: str, context: RunContext, tape: Tape
) -> tuple[dict[str, Any], kinds.OpStarted | kinds.PermissionDenied | Rejected]:
    """Plan an op until it is started, denied or rejected. Returns its arguments, which a person may have edited."""
    planned = await PlanOp(call, args)
    asked = 0
    while isinstance(planned, kinds.ApprovalRequired):
        asked += 1
        decided, edited = await _ask(planned, args, f"{call}.approve{asked if asked > 1 else ''}", context, tape)
        match decided.decision:
            case "reject" | "expired":
                assert decided.result is not None
                return args, Rejected(decided.result)
            case "edit":
                args = edited
                planned = await PlanOp(call, args)
            case "approve":
                planned = await PlanOp(call, args, approved=planned.digest)
    return args, planned


async def _ask(
    required: kinds.ApprovalRequired, args: dict[str, Any], wait_id: str, context: RunContext, tape: Tape
) -> tuple[kinds.ApprovalDecided, dict[str, Any]]:
    preview = tape.content(required.preview).decode()
    what = f"{required.op_kind} {required.op}".strip()
    parent = tape.state.started.parent if tape.state.started else None
    wait = kinds.Wait(
        f"{parent.path}/{wait_id}" if parent else wait_id,
        "approval",
        f"Approve `{what}`? ({required.rule})\n{preview}",
        RESPONSE,
        tape.ts + context.settings.approval_seconds * SECOND,
        suggestions=SUGGESTIONS,
    )
    tape.emit(kinds.WaitOpened(wait))
    answer = await Ask(wait.id)
    decided, blobs = _decided(required, answer, args, context, tape)
    return tape.emit(decided, *blobs), _edited(answer)


def _edited(answer: Any) -> dict[str, Any]:
    return answer.get("args", {}) if isinstance(answer, dict) else {}


def _decided(
    required: kinds.ApprovalRequired, answer: Any, args: dict[str, Any], context: RunContext, tape: Tape
) -> tuple[kinds.ApprovalDecided, tuple[Blob, ...]]:
    by = tape.state.last_answer.by if tape.state.last_answer else ""
    if isinstance(answer, Expired):
        return _rejected(required, "expired", "", "the approval expired", args)
    value = {"decision": answer} if isinstance(answer, str) else answer
    remark = value.get("remark", "")
    match value["decision"]:
        case "approve":
            always = bool(value.get("always", False))
            decided = kinds.ApprovalDecided(
                required.call,
                "approve",
                required.digest,
                by,
                remark,
                always,
                f"{required.op_kind} {required.op}".strip(),
                rule=required.rule,
            )
            return decided, ()
        case "edit":
            wrong = _invalid(value.get("args"), args, context)
            if wrong:
                return _rejected(required, "reject", by, f"the edited arguments are invalid: {wrong}", args)
            content = Blob.of(canonical(value["args"]))
            return kinds.ApprovalDecided(
                required.call, "edit", required.digest, by, remark, args=content.hash, rule=required.rule
            ), (content,)
        case "defer":
            return kinds.ApprovalDecided(required.call, "defer", required.digest, by, remark, rule=required.rule), ()
    return _rejected(required, "reject", by, remark, args)


def _invalid(edited: Any, args: dict[str, Any], context: RunContext) -> str:
    if not isinstance(edited, dict) or edited.get("kind") != args["kind"]:
        return "`args` must be a whole op of the same kind"
    form = context.vocabulary.form_of(edited)
    wrong = compile_schema(form.arguments).first_error(edited) if form else None
    return f"{wrong.path('args')}: {wrong.message}" if wrong else "" if form else "unknown form"


def _rejected(
    required: kinds.ApprovalRequired, decision: Any, by: str, remark: str, args: dict[str, Any]
) -> tuple[kinds.ApprovalDecided, tuple[Blob, ...]]:
    reason = f"not approved{f': {remark}' if remark else ''}"
    result = Call("", args).error(reason, rule=required.rule) | {"status": "denied"}
    content = Blob.of(canonical(result))
    decided = kinds.ApprovalDecided(
        required.call, decision, required.digest, by, remark, result=content.hash, rule=required.rule
    )
    return decided, (content,)
