"""Wait for a person: questions, approvals of ops for which a rule says `ask`, reviews of decisions.

An approval authorises one action: the id of the question is the beginning of the action's digest. An op is planned
again afterwards, and any difference (arguments, contents, files, rule) asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import APPROVAL_DIGITS, Blob, canonical, digest, kinds
from reyn.journal.summary import SECOND
from reyn.jsonschema import compile_schema
from reyn.kernel.core.effects import Ask, Expired, Permit, PlanOp
from reyn.ops import Call

if TYPE_CHECKING:
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.run_context import RunContext
    from reyn.vocabulary import Vocabulary

MAX_CHARACTERS = 20_000
"""The number of characters of a preview in a question. The event has all of them."""
_REMARK = {"type": "string", "maxLength": 4_000}


SUGGESTIONS = ("approve", "reject", "defer")


def reply_schema(*forms: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a reply: a word, or an object with the decision and a remark."""
    return {"anyOf": [{"enum": [*SUGGESTIONS]}, *forms]}


def reply_form(*decisions: str, needs: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """Return the schema of an object with one of some decisions."""
    properties = {"decision": {"enum": [*decisions]}, **fields, "remark": _REMARK}
    required = ["decision", *needs]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_APPROVE, _DECLINE = reply_form("approve", always={"type": "boolean"}), reply_form("reject", "defer")
OP_RESPONSE = reply_schema(_APPROVE, reply_form("edit", needs=("args",), args={"type": "object"}), _DECLINE)
STEP_RESPONSE = reply_schema(_APPROVE, _DECLINE)


# -- questions ----------------------------------------------------------------------------------------


async def ask_person(
    wait_id: str,
    message: str,
    response_schema: dict[str, Any],
    tape: Tape,
    *,
    reason: str = "question",
    suggestions: tuple[str, ...] = (),
    expires_at: int | None = None,
    is_deferred: bool = False,
    code: str = "",
) -> Any:
    """Return the JSON value of the reply, or `EXPIRED`; nothing after a wait for the next message, which is queued.

    Args:
        wait_id: The id of the question: that of a call, see `question_id`, or of an action, see `action_id`.
        message: The question.
        response_schema: The JSON Schema of the reply.
        tape: The tape of the run.
        reason: Why the run waits: `question`, `message`, `approval`, `decision` or `unsafe`.
        suggestions: Suggested replies.
        expires_at: When the question expires, in microseconds since 1970.
        is_deferred: Whether a person has just postponed this question, so that it is not asked again at once.
        code: The error code of the turn that ended without a reply before a wait for the next message.
    """
    wait = kinds.Question(wait_id, reason, message, response_schema, expires_at, None, suggestions, code)
    tape.emit(kinds.WaitOpened(wait))
    return await Ask(wait.id, is_deferred, wait.is_message)


def question_id(call: str, tape: Tape) -> str:
    """Return the id of a question, unique among a run and its sub-runs, so that no reply reaches another question."""
    parent = tape.state.started.parent
    return f"{parent.path}/{call}" if parent else call


def action_id(action: str, asked: int) -> str:
    """Return the id of the question whether to perform an action, from the digest of the action.

    `asked` counts the questions about the same call: a postponed one is asked again, under another id.
    """
    return f"ask-{action[:APPROVAL_DIGITS]}{f'-{asked}' if asked > 1 else ''}"


def printable(value: Any, *, indent: int = 0) -> str:
    """Return a value as JSON in which no text can end a line or control a terminal."""
    text = msgspec.json.encode(value)
    lines = (msgspec.json.format(text, indent=indent) if indent else text).decode().split("\n")
    return "\n".join(
        line if line.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in line)
        for line in lines
    )


def _escaped(char: str) -> str:
    """Escape a character as JSON does, so that the text stays JSON."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


async def ask_operator(
    call: str, attempts: int, args: dict[str, Any], tape: Tape, acted: str = "", *, is_child: bool = False
) -> str:
    """Ask how to resolve what was begun before and may have taken effect.

    Args:
        call: The call.
        attempts: The number of questions about the call, this one included.
        args: The arguments of the op, or of the op that does the same.
        tape: The tape of the run.
        acted: The unsafe ops of the children that it started.
        is_child: Whether it is a child, which has no result; otherwise it is an op that was interrupted.

    Returns:
        `again`, `failed`, or `done` for an op.
    """
    choices: tuple[str, ...] = ("again", "failed") if is_child else ("again", "done", "failed")
    begun = "was started before, and there is no result of it."
    ask = "Start it again, or record it as failed?"
    if not is_child:
        begun = "may have taken effect before the run was interrupted."
        ask = "Execute it again, record it as done, or record it as failed?"
    message = f"`{args['kind']}` {canonical(args).decode()[:500]} {begun} {f'{acted} ' if acted else ''}{ask}"
    action = digest(canonical([tape.state.run_id, call, args]))
    schema = {"type": "string", "enum": list(choices)}
    resolution: str = await ask_person(
        action_id(action, attempts), message, schema, tape, reason="unsafe", suggestions=choices
    )
    return resolution


# -- approvals of ops ---------------------------------------------------------------------------------


class RejectedOp:
    """The op was not approved. `result` is the hash of the result that the model sees."""

    def __init__(self, result: str) -> None:
        self.result = result


Planned = kinds.OpStarted | kinds.PermissionDenied | kinds.ApprovalRequired


async def plan_call(
    args: dict[str, Any], call: str, context: RunContext, tape: Tape, planned: Planned | None = None
) -> tuple[dict[str, Any], kinds.OpStarted | kinds.PermissionDenied | RejectedOp]:
    """Plan an op until it is started, denied or rejected. Returns its arguments, which a person may have edited.

    `planned` is the plan, if the op was planned ahead.
    """
    planned = planned or await PlanOp(call, args)
    asked, decided = 0, None
    while isinstance(planned, kinds.ApprovalRequired):
        asked += 1
        answer, decided = await _approval(planned, args, OP_RESPONSE, asked, decided, context, tape)
        match decided.decision:
            case "reject" | "expired":
                assert decided.result is not None
                return args, RejectedOp(decided.result)
            case "edit":
                args = answer["args"]
                planned = await PlanOp(call, args)
            case "approve":
                planned = await PlanOp(call, args, planned.digest, decided.always)
    return args, planned


async def refusal_of(args: dict[str, Any], call: str, context: RunContext, tape: Tape) -> str:
    """Return why a step or a node may not do what an op with these arguments does; empty if it may.

    A person decides if a rule says `ask`. The arguments follow from the skill, so that a reply cannot edit them.
    """
    found = await Permit(call, args)
    asked, decided = 0, None
    while isinstance(found, kinds.ApprovalRequired):
        asked += 1
        _, decided = await _approval(found, args, STEP_RESPONSE, asked, decided, context, tape)
        match decided.decision:
            case "reject" | "expired":
                return f"`{args['kind']}` was not approved{f': {decided.remark}' if decided.remark else ''}"
            case "approve":
                found = await Permit(call, args, found.digest, decided.always)
    return "" if found is None else f"`{args['kind']}` is denied ({found.rule}): {found.reason}"


async def _approval(
    required: kinds.ApprovalRequired,
    args: dict[str, Any],
    response_schema: dict[str, Any],
    asked: int,
    before: kinds.ApprovalDecided | None,
    context: RunContext,
    tape: Tape,
) -> tuple[Any, kinds.ApprovalDecided]:
    """Ask a person to approve an action; return the reply and the decision. `before` is the decision before it."""
    answer = await ask_approval(
        action_id(required.digest, asked),
        f"Approve `{_op_name(required)}`? ({required.rule})",
        tape.content(required.preview).decode(),
        response_schema,
        context,
        tape,
        reason="approval",
        is_deferred=before is not None and before.decision == "defer",
    )
    decided, blobs = _decided(required, answer, args, context, tape)
    return answer, tape.emit(decided, *blobs)


def _op_name(required: kinds.ApprovalRequired) -> str:
    return f"{required.op_kind} {required.op}".strip()


def _decided(
    required: kinds.ApprovalRequired, answer: Any, args: dict[str, Any], context: RunContext, tape: Tape
) -> tuple[kinds.ApprovalDecided, tuple[Blob, ...]]:
    if isinstance(answer, Expired):
        return _rejected(required, "expired", "", "the approval expired", args)
    value, by = reply_object(answer), decided_by(tape)
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
                _op_name(required),
                rule=required.rule,
            )
            return decided, ()
        case "edit":
            wrong = edited_op_error(value.get("args"), args["kind"], context.vocabulary)
            if wrong:
                return _rejected(required, "reject", by, f"the edited arguments are invalid: {wrong}", args)
            content = Blob.of(canonical(value["args"]))
            return kinds.ApprovalDecided(
                required.call, "edit", required.digest, by, remark, args=content.hash, rule=required.rule
            ), (content,)
        case "defer":
            return kinds.ApprovalDecided(required.call, "defer", required.digest, by, remark, rule=required.rule), ()
    return _rejected(required, "reject", by, remark, args)


def edited_op_error(edited: Any, kind: str, vocabulary: Vocabulary) -> str:
    """Return why an edited op is invalid; empty if it is valid. It replaces an op of the same kind."""
    if not isinstance(edited, dict) or edited.get("kind") != kind:
        return f"`args` must be a whole op of the same kind, `{kind}`"
    form = vocabulary.form_of(edited)
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


# -- both ---------------------------------------------------------------------------------------------


async def ask_approval(
    wait_id: str,
    title: str,
    preview: str,
    response_schema: dict[str, Any],
    context: RunContext,
    tape: Tape,
    *,
    reason: str,
    is_deferred: bool,
) -> Any:
    return await ask_person(
        wait_id,
        f"{title}\n{beginning(preview)}",
        response_schema,
        tape,
        reason=reason,
        suggestions=SUGGESTIONS,
        expires_at=tape.ts + context.settings.approval_seconds * SECOND,
        is_deferred=is_deferred,
    )


def beginning(preview: str) -> str:
    if len(preview) <= MAX_CHARACTERS:
        return preview
    return (
        f"{preview[:MAX_CHARACTERS]}\n[truncated: the first {MAX_CHARACTERS:,} of {len(preview):,} characters; "
        "show the whole before you decide]\n"
    )


def reply_object(answer: Any) -> dict[str, Any]:
    return {"decision": answer} if isinstance(answer, str) else answer


def decided_by(tape: Tape) -> str:
    return tape.state.last_answer.by if tape.state.last_answer else ""
