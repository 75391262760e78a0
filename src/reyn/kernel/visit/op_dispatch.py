"""Execute one op of a visit: plan, fulfil its request, perform, record. The same for every kind.

`reyn.ops` implements the op kinds; `op_performer` performs and recovers them.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context.selfref import remember
from reyn.journal import Blob, canonical, decode, kinds
from reyn.journal.kinds import AGENT_PREFIX
from reyn.kernel.core.child_effects import PlanChild
from reyn.kernel.core.conversations import memory_error, reply_text
from reyn.kernel.core.effects import MAX_TOGETHER, Pause, PerformOp, PlanOp, UnknownOutcome
from reyn.kernel.visit.child_calls import await_child
from reyn.kernel.visit.op_log import UNKNOWN_EFFECT, OpOutcome
from reyn.kernel.visit.waits import Planned, RejectedOp, ask_operator, ask_person, plan_call, question_id
from reyn.ops import Call, RunOutcome
from reyn.ops.op import MemoryOutcome, MessageOutcome
from reyn.workspace.recorded import artifact_name

if TYPE_CHECKING:
    from reyn.contract import Rejected
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.run_context import RunContext
    from reyn.vocabulary import Vocabulary


class NativeCalls:
    """The native tool calls of an answer. Outcomes are taken, and recorded, in the order of the calls.

    Consecutive calls whose effects allow it are planned together and performed at the same time. A call that needs a
    person or the kernel ends such a group: nothing after it is planned before it has an outcome.
    """

    def __init__(
        self, ops: dict[str, dict[str, Any]], errors: dict[str, Rejected], text: str, context: RunContext, tape: Tape
    ) -> None:
        """Prepare the calls of an answer.

        Args:
            ops: The ops by their calls.
            errors: The errors of calls that are invalid, by call.
            text: The hash of the answer.
            context: The phase.
            tape: The tape of the run.
        """
        self._ops, self._errors, self._text, self._context, self._tape = ops, errors, text, context, tape
        self._planned: dict[str, Planned] = {}

    async def outcome(self, call: str) -> OpOutcome:
        """Return the outcome of the next call."""
        if (error := self._errors.get(call)) is not None:
            return self._rejected(call, error)
        if not self._planned:
            await self._plan_from(call)
        planned = self._planned.pop(call, None)
        ahead = tuple(
            _performing(self._ops[other], other, started, self._context)
            for other, started in self._planned.items()
            if isinstance(started, kinds.OpStarted) and not _ends_group(started)
        )
        return await run_op(self._ops[call], call, self._context, self._tape, planned, ahead)

    async def _plan_from(self, call: str) -> None:
        """Plan a call and those after it that are performed at the same time; nothing if there are none."""
        calls = [other for other in self._ops if other not in self._errors]
        calls = list(takewhile(self._may_overlap, calls[calls.index(call) :]))[:MAX_TOGETHER]
        for other in calls if len(calls) > 1 else ():
            if self._planned:
                await Pause()
                if self._tape.state.recovery.unknown_outcomes:
                    return  # of calls before it, which a process that died had planned
            planned = self._planned[other] = await PlanOp(other, self._ops[other])
            if _ends_group(planned):
                return

    def _may_overlap(self, call: str) -> bool:
        spec = self._context.vocabulary.op(self._ops[call]["kind"])
        return spec is not None and spec.may_overlap(self._ops[call])

    def _rejected(self, call: str, error: Rejected) -> OpOutcome:
        args, tape = self._ops[call], self._tape
        result = Blob.of(canonical(Call("", args).error(f"{error.path}: {error.message}")))
        rejection = kinds.ValidationError(call, error.rule, error.path, error.message, self._text, result.hash)
        recorded = tape.emit(rejection, result).result or result.hash
        return OpOutcome(args["kind"], "error", recorded, len(tape.content(recorded)))


def _ends_group(planned: Planned) -> bool:
    """Return whether an op is not performed together with those before it: a person or the kernel acts first."""
    if isinstance(planned, kinds.OpStarted):
        return planned.request is not None or bool(planned.changes)
    return isinstance(planned, kinds.ApprovalRequired)


def _performing(
    args: dict[str, Any],
    call: str,
    started: kinds.OpStarted,
    context: RunContext,
    ahead: tuple[PerformOp, ...] = (),
) -> PerformOp:
    """Return the effect that performs a planned op."""
    form = context.vocabulary.form_of(args)
    is_unsafe = form is not None and form.effect_of(args) == "unsafe"
    needs_intent = started.request is None or is_unsafe
    return PerformOp(call, args, started, is_unsafe=is_unsafe, needs_intent=needs_intent, ahead=ahead)


async def run_op(
    args: dict[str, Any],
    call: str,
    context: RunContext,
    tape: Tape,
    planned: Planned | None = None,
    ahead: tuple[PerformOp, ...] = (),
) -> OpOutcome:
    """Execute an op whose arguments are valid. Errors and denials are part of its result.

    `planned` is its plan, if it was planned ahead; `ahead` are the ops that are performed at the same time.
    """
    args, started = await plan_call(args, call, context, tape, planned)
    kind = args["kind"]
    if isinstance(started, kinds.PermissionDenied | RejectedOp):
        return OpOutcome(kind, "denied", started.result, 0)
    request, changes = started.request, started.changes
    performing = _performing(args, call, started, context, ahead)
    if request is not None:
        performing.answer, changes = await _fulfil(request, args, call, context, tape)
        if performing.is_unsafe:
            tape.emit(kinds.RequestFulfilled(call))
    completed = await performing
    attempts = 0
    while isinstance(completed, UnknownOutcome):
        attempts += 1
        resolution = await ask_operator(call, attempts, args, tape, tape.state.recovery.children.get(call, ""))
        # If it is performed again, it can be interrupted again; an outcome that the operator confirms is only recorded.
        completed = await PerformOp(call, args, started, performing.answer, resolution == "again", resolution)
    acted = tape.state.visit.acted.get(call, "")
    if completed.may_have_effect:
        acted = f"{UNKNOWN_EFFECT} {acted}".rstrip()
    if isinstance(completed, kinds.PermissionDenied):  # its result holds a secret
        return OpOutcome(kind, "denied", completed.result, 0, () if started.changes else changes, acted=acted)
    if started.changes:
        changes = started.changes[: completed.applied] if completed.changed else ()
    elif completed.changes:
        changes = completed.changes
    if request is None:
        for change in changes:
            tape.emit(kinds.WorkspaceUpdated(call, change))
        return OpOutcome(kind, completed.status, completed.result, completed.bytes, changes, args=args, acted=acted)
    asked_user = isinstance(request, kinds.AskRequest)
    compacts = isinstance(request, kinds.MemoryRequest) and request.action == "compact" and completed.status == "ok"
    return OpOutcome(
        kind, completed.status, completed.result, completed.bytes, changes, asked_user, compacts, args, acted
    )


def interrupted_ops(
    ops: dict[str, tuple[int, dict[str, Any]]], vocabulary: Vocabulary, tape: Tape
) -> dict[int, tuple[str, str]]:
    """Return the kinds of the ops that had begun and may have taken effect, by their positions, with what is known.

    Args:
        ops: The ops of an aborted turn without a result: position and arguments, by call.
        vocabulary: The known ops.
        tape: The tape of the run.
    """
    unknown, children = tape.state.recovery.unknown_outcomes, _begun_children(tape)
    if tape.state.aborted is not None:
        children |= tape.state.aborted.children
    found = {}
    for call, (position, args) in ops.items():
        form = vocabulary.form_of(args)
        if call in children or (call in unknown and (form is None or form.effect_of(args) != "pure")):
            found[position] = (str(args["kind"]), children.get(call, ""))
    return found


def _begun_children(tape: Tape) -> dict[str, str]:
    """Return what is known of the runs that ops of the visit in progress have started, by call."""
    found: dict[str, str] = {}
    for event in tape.visit_events:
        if event.kind not in (kinds.ChildStarted.kind, kinds.ChildEnded.kind):
            continue
        match decode(event):
            case kinds.ChildStarted(call=call, type=type, run=run):
                found[call] = f"the background run `{run}` was started" if type == "background" else ""
            case kinds.ChildEnded(type="function"):
                pass  # its op is being performed
            case kinds.ChildEnded(state="rejected", call=call):
                found.pop(call, None)
            case kinds.ChildEnded(call=call, run=run, error=error):
                found[call] = error or f"the run `{run}` was completed"
    return found


async def _fulfil(
    request: kinds.AskRequest | kinds.RunRequest | kinds.MemoryRequest | kinds.MessageRequest,
    args: dict[str, Any],
    call: str,
    context: RunContext,
    tape: Tape,
) -> tuple[Any, tuple[kinds.Change, ...]]:
    """Do what an op requests of the kernel. Returns the answer, and the files that a sub-run changed."""
    match request:
        case kinds.AskRequest():
            schema, suggestions = request.response_schema, request.suggestions
            return await ask_person(question_id(call, tape), request.message, schema, tape, suggestions=suggestions), ()
        case kinds.RunRequest():
            value = msgspec.json.decode(tape.content(request.input))
            pinned = context.sub_skill(request.skill) or context.sub_skill(args.get("skill", ""))  # a step has a path
            if request.background:
                begun = await PlanChild(call, "background", request.skill, value, pinned)
                return RunOutcome(begun.run, None, begun.error if isinstance(begun, kinds.ChildEnded) else ""), ()
            plan = PlanChild(call, "skill", request.skill, value, pinned, request.shares_workspace)
            sub_run = await await_child(plan, args, tape)
            return _sub_run_outcome(sub_run, tape), sub_run.changes
        case kinds.MessageRequest():
            return await _send_message(request, args, call, tape), ()
        case kinds.MemoryRequest():
            return _change_memory(request, call, context, tape), ()


async def _send_message(request: kinds.MessageRequest, args: dict[str, Any], call: str, tape: Tape) -> MessageOutcome:
    """Send a message to another agent. Why there is no reply is part of the outcome."""
    replied = await await_child(PlanChild(call, "agent", f"{AGENT_PREFIX}{request.agent}", request.text), args, tape)
    run, reply = "" if replied.state == "rejected" else replied.run, reply_text(replied, tape.content)
    return MessageOutcome(run, replied.state, reply, replied.error, replied.timed_out)


def _change_memory(request: kinds.MemoryRequest, call: str, context: RunContext, tape: Tape) -> MemoryOutcome:
    """Record the change of memory that an op requests. A compaction happens before the next turn."""
    phase = context.conversation
    if phase is None:
        return MemoryOutcome(error="this phase is not a conversation; it has no memory")
    if request.action == "compact":
        return MemoryOutcome()
    memory = tape.state.memory(phase)
    if error := memory_error(memory, request.action, request.text, context.memory_tokens(tape.state)):
        return MemoryOutcome(error=error)
    if request.action == "forget":
        tape.emit(kinds.ExperienceForgotten(phase, call, request.text))
        return MemoryOutcome(request.text)
    after, entry = remember(memory, request.text)
    if after is not memory:
        tape.emit(kinds.ExperienceRemembered(phase, call, entry.id, entry.text))
    return MemoryOutcome(entry.id)


def _sub_run_outcome(sub_run: kinds.ChildEnded, tape: Tape) -> RunOutcome:
    artifact = msgspec.json.decode(tape.content(sub_run.artifact.hash)) if sub_run.artifact else None
    phases = tuple(
        (one.phase, msgspec.json.decode(tape.content(one.artifact.hash)), artifact_name(one.step))
        for one in sub_run.phases
    )
    return RunOutcome(sub_run.run, artifact, sub_run.error, sub_run.error_name, phases, is_recorded=sub_run.seq > 0)
