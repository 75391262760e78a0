"""One turn of a visit: compile the prompt, call the model, run the requested ops, collect mutations.

`execute_single_llm_phase` and `schedule_tool_batch` are the two halves of a turn. A `TurnContext` builds the messages
through the compile pipeline. Usually each turn has a fresh frame as its base, and a correction is a pair of mutations.
In a conversation, and with native tool calls, the transcript grows instead: what a turn adds is recorded by reference,
and a frame refers to the transcript by length and digest, so that a turn costs the same however long it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.context import (
    AssistantTruncated,
    ContextMutation,
    NormalizedMessageList,
    ToolResult,
    UserMessage,
    apply_mutations,
    compile_invocation_turn,
    estimate_tokens,
    turn_message,
)
from reyn.context.frame import Execution, Rollback
from reyn.context.records import mutation_of, stored_system
from reyn.context.render import (
    TurnFrame,
    act_in_short,
    correction,
    frame_message,
    message_text,
    normalized,
    results_message,
    sent_text,
    turns_left_note,
)
from reyn.contract import Accepted, Acting, Rejected
from reyn.journal import Blob, kinds
from reyn.kernel.core.effects import HOOKS, CallHooks, CallModel, ModelReply
from reyn.kernel.visit.model_call import TurnSpec, aborted_batch, answer_message, ask, next_answer, tool_result
from reyn.kernel.visit.op_dispatch import NativeCalls, interrupted_ops, run_op
from reyn.kernel.visit.prompt_budget import Contents, Prompt, TurnDraft
from reyn.models import PerformedOp, Turn

if TYPE_CHECKING:
    from reyn.context.messages import NormalizedMessage
    from reyn.kernel.core.conversations import Transcript
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.op_log import OpLog
    from reyn.kernel.visit.transcript_budget import TranscriptLimit

_NO_MESSAGES = NormalizedMessageList()


class PreparedInput(NamedTuple):
    """The input of a visit: its hash, the hash of what frames contain of it, new content, the rollback, if any, and
    type and hash of what frames contain of the artifacts that the phase reads."""

    input: str
    hash: str
    blobs: tuple[Blob, ...] = ()
    rollback: Rollback | None = None
    reads: tuple[tuple[str, str], ...] = ()
    images: tuple[kinds.Part, ...] = ()
    """The images of the input, or of what a user says."""
    orders: dict[str, str] | None = None
    """The hash of the author's order of the fields, by the hash of the artifact; `blobs` contains the orders."""
    type: str | None = None
    """The type of the input, if the phase accepts several."""
    instructions: str | None = None
    """The hash of the instructions that the message of a conversation came with."""
    local: Mapping[str, Any] = MappingProxyType({})
    """The values that the preprocessor binds to `local`."""


class LlmPhaseResult(NamedTuple):
    """The first half of a turn: the answer, and the verdict on it."""

    reply: ModelReply
    verdict: Accepted | Acting | Rejected


class ToolBatchResult(NamedTuple):
    """The second half of a turn: the hashes of the results of the ops, in the order of the calls.

    `deferral` is set if a decision is not committed, because one of its ops did not succeed or asked the user.
    `compacts` is true if the model asked for a compaction.
    """

    results: tuple[str, ...]
    deferral: kinds.DecisionDeferred | None = None
    compacts: bool = False


class TurnContext:
    """The messages in the turns of one visit.

    Attributes:
        phase: The phase, with the candidates of this visit.
        prepared: The input of the visit.
        handoff: The hash of what earlier phases hand over, if there is anything.
        overviews: The list of what ops can act on, if there is one.
        pending: The mutations that the next turn applies to its base: the correction of a rejected answer.
        hooked: The mutations of hooks for this turn, if it has a fresh frame.
        wants_compaction: Whether the model asked for a compaction.
        limit: The size that the transcript exceeded before this turn, if it did.
        leaves_out: Whether prompts leave older turns out, because no summary could be asked for in this visit.
        needs_images: Whether only a model that reads images can answer: images came with the message, with the run's
            history in the first turn, or from a hook. Those of earlier turns can be described.
        truncated: The names under which ops can read content that the frames of the visit truncate.
    """

    prepared: PreparedInput

    def __init__(self, phase: CompiledPhase, entry: Visit, log: OpLog, tape: Tape) -> None:
        self.phase, self._entry = phase, entry
        self.handoff: str | None = None
        self.overviews: kinds.OverviewsRead | None = None
        self._log, self.truncated = log, log.truncated
        self._tape = tape
        self.is_conversation = phase.definition.conversation is not None
        self._visit = 0 if self.is_conversation else entry.visit
        self._first_results: tuple[str, ...] | None = None
        """The results in the first message of a transcript that grows; `None` before there is one."""
        self.pending: tuple[ContextMutation, ...] = ()
        self.hooked: tuple[ContextMutation, ...] = ()
        self.wants_compaction = self.leaves_out = False
        self.limit: TranscriptLimit | None = None
        self.needs_images = False
        self._executing: tuple[TurnSpec, LlmPhaseResult, str, int] | None = None
        """The turn whose ops are being executed, its call, and the number of results before it."""

    def take(self, prepared: PreparedInput) -> None:
        """Begin with the input of the visit."""
        self.prepared, self.needs_images = prepared, bool(prepared.images)

    def contents(self, last_call: str) -> Contents:
        """Return the contents of the next turn, with the names under which ops can read those that are truncated."""
        prepared, step = self.prepared, self._entry.step
        names = {name: f"{step}.read{number}" for number, (_, name) in enumerate(prepared.reads, start=1)}
        if (back := prepared.rollback) is not None and back.rejected_artifact is not None:
            names[back.rejected_artifact] = f"{step}.rejected"
        if self.handoff is not None:
            names[self.handoff] = f"{step}.handoff"
        for message in apply_mutations(_NO_MESSAGES, self.pending):
            names |= {part.blob: f"{last_call}.answer" for part in message.parts if part.blob is not None}
        names[prepared.hash] = f"{step}.input"
        new = {blob.hash: blob.content for blob in prepared.blobs}
        return Contents(lambda name: new.get(name) or self._tape.content(name), names)

    @property
    def results(self) -> tuple[str, ...]:
        """The hashes of the op results that the frame itself contains; those in a transcript are messages."""
        return tuple(self._log.results) if self._first_results is None else self._first_results

    @property
    def transcript(self) -> Transcript:
        """The transcript, without pending mutations."""
        return self._tape.state.transcript(self.phase.name, self._visit)

    @property
    def messages(self) -> NormalizedMessageList:
        """The messages of the transcript, after those of the history that the run started with."""
        return self.transcript.whole(self._tape.content)

    def draft(self, spec: TurnSpec, turns_left: int | None) -> TurnDraft:
        """Return the messages of the next turn. A fresh frame that nothing patches is sent as it is."""
        if not spec.grows:
            message = turn_message(self._turn_frame(turns_left), spec.closing, has_choices=len(spec.candidates) > 1)
            if self.prepared.images:
                message = replace(message, parts=(*message.parts, *self.prepared.images))
            if not self.hooked and not self.pending:
                return TurnDraft(spec, (spec.system, message))
            base = _NO_MESSAGES.append(normalized(message))
            if self.hooked and (system := apply_mutations(base, self.hooked).system) is not None:
                spec = self._instructed(spec, system)
            compiled = compile_invocation_turn(spec.invocation, base, (*self.hooked, *self.pending))
            return TurnDraft(spec, tuple(map(frame_message, compiled.llm_messages)))
        if self._first_results is None:
            self._begin(spec, turns_left)
        messages = self.messages
        if (system := messages.system) is not None:
            spec = self._instructed(spec, system)
        invocation = spec.invocation
        if self.overviews is not None and self.overviews.text is not None:
            invocation = spec.invocation_with(self.overviews.text)
        compiled = compile_invocation_turn(invocation, messages, self.pending, self.transcript.selfref)
        return TurnDraft(spec, sent=compiled.llm_messages)

    def _instructed(self, spec: TurnSpec, system: NormalizedMessage) -> TurnSpec:
        """Return the turn with the latest system message in place of the phase's instructions, if it has a text."""
        text = message_text(system, self._tape.content)
        return spec.instructed(text) if text.strip() else spec

    def as_values(self, spec: TurnSpec, system: kinds.FrameMessage) -> Turn:
        """Return a turn as values. Its system message becomes that of a decision: without ops, and their targets."""
        content, back = self._tape.content, self.prepared.rollback
        listed = self.overviews.text if self.overviews is not None else None
        rest = tuple(part for part in system.parts[1:] if part.blob is None or part.blob != listed)
        said = kinds.FrameMessage("user", ((back and back.note) or kinds.Part(blob=self.prepared.hash, plain=True),))
        if not self.is_conversation:
            frame = replace(self._turn_frame(None), results=0, results_digest=None, done=())
            said = turn_message(frame, "", has_choices=False)
        static = spec.decision_text(is_conversation=self.is_conversation)
        system_text = static + message_text(kinds.FrameMessage("system", rest), content)
        done = tuple(PerformedOp(args, content(name).decode(), ok) for args, name, ok, _ in self._log.performed)
        return Turn(message_text(said, content), system_text, done, self.is_conversation)

    async def call_hooks(self, draft: TurnDraft, call: str) -> bool:
        """Call the hooks of the program before a turn; return whether they patched it.

        They patch a transcript that grows for good. A turn with a fresh frame is patched alone.
        """
        key, phase, correction = call + HOOKS, self.phase.name, tuple(apply_mutations(_NO_MESSAGES, self.pending))
        if draft.spec.grows:
            effect = CallHooks(key, phase, self.messages, self._visit, self.transcript, self.results, (), correction)
        else:
            messages = NormalizedMessageList([normalized(draft.messages[1])])
            self.needs_images = bool(self.prepared.images)
            effect = CallHooks(key, phase, messages, None, None, self.results, self.prepared.blobs, correction)
        effect.needs_images = self.needs_images
        mutated = await effect
        self.needs_images = mutated.images
        if mutated.drops_correction:
            self.pending = ()
        if mutated.visit is None:
            self.hooked = tuple(mutation_of(record) for record in mutated.mutations)
        return bool(mutated.mutations) or mutated.drops_correction

    def _begin(self, spec: TurnSpec, turns_left: int | None) -> None:
        """Add the input of the visit to the transcript. In a conversation, the input is the user's message."""
        self._first_results = tuple(self._log.results)
        state = self._tape.state
        if self.is_conversation and state.started.history and not state.holds_conversation(self.phase.name):
            self.needs_images |= bool([part for part in state.started.history if part.images])
        if state.visit.is_continued:
            return
        frame = self._turn_frame(None if self.is_conversation else turns_left)
        has_choices = not self.is_conversation and len(spec.candidates) > 1
        message = turn_message(frame, spec.closing, has_choices=has_choices)
        said = UserMessage((*message.parts, *self.prepared.images))
        told = self.prepared.instructions
        if told is not None and told == (self.transcript.instructions or self.phase.instructions_hash):
            told = None
        self._extend((said,), *self.prepared.blobs, instructions=told)

    def add_turn(self, spec: TurnSpec, answer: LlmPhaseResult, batch: ToolBatchResult | None, turns_left: int) -> None:
        """Add an answer and the results of its ops to a transcript that grows; not corrections, nor an abort."""
        self._executing, verdict = None, answer.verdict
        is_final = batch is None or (isinstance(verdict, Accepted) and batch.deferral is None)
        is_reply = self.is_conversation and not (isinstance(verdict, Accepted) and verdict.type == "abort")
        if is_final and not is_reply:
            return
        results = batch.results if batch is not None else ()
        self.wants_compaction = batch is not None and batch.compacts
        message = answer_message(spec, answer.reply, verdict)
        more: tuple[ContextMutation, ...] = ()
        if message.tool_calls:
            # A history that users see has the results alone; in a visit, the note says what `remaining_act_turns` says.
            note = "" if self.is_conversation else turns_left_note(turns_left, self._log.work_note)
            each = (*[""] * (len(results) - 1), note)
            more = tuple(map(self._tool_result, [call.id for call in message.tool_calls], results, each))
        elif results:
            notes = "" if is_final else turns_left_note(turns_left, self._log.work_note)
            more = (UserMessage(results_message(results, notes)),)
        self._extend((message, *more))

    def _tool_result(self, call: str, result: str, notes: str = "") -> ContextMutation:
        return tool_result(call, result, self._tape.content(result), notes)

    def begin_ops(self, spec: TurnSpec, answer: LlmPhaseResult, call: str) -> None:
        """Remember which answer's ops are executed next, in case the turn is aborted."""
        self._executing = (spec, answer, call, len(self._log.results))

    def abort(self, aborted: kinds.TurnAborted) -> None:
        """Complete the transcript of an aborted turn: every tool call has exactly one result, completed ones stay."""
        mutations: tuple[ContextMutation, ...] = ()
        if self._executing is not None:
            spec, answer, call, first = self._executing
            message, limit = answer_message(spec, answer.reply), self.phase.settings.sizes.result_bytes
            results = self._log.results_since(first, call, limit, self._tape)
            named = enumerate(message.tool_calls)
            done = {at: self._tool_result(one.id, results[at]) for at, one in named if at in results}
            ops = () if isinstance(answer.verdict, Rejected) else answer.verdict.ops
            left = {f"{call}.{at + 1}": (at, op) for at, op in enumerate(ops) if at not in results}
            interrupted = interrupted_ops(left, self.phase.vocabulary, self._tape)
            mutations = aborted_batch(message, results, done, aborted.reason, interrupted)
        elif aborted.partial is not None:
            mutations = (AssistantTruncated((kinds.Part(blob=aborted.partial),), aborted.reason),)
        if mutations:
            self._extend(mutations)

    def correct(self, spec: TurnSpec, answer: LlmPhaseResult, answer_hash: str, path: str, error: str) -> None:
        """Let the next turn show a rejected answer and the error.

        Args:
            spec: The turn.
            answer: The rejected answer.
            answer_hash: The hash of the answer, or of its beginning.
            path: Where the error is.
            error: What is wrong.
        """
        again = next_answer(spec, answer.reply)
        rejected, feedback = correction(answer_hash, path, error, *([again] if again else []))
        if spec.form == "tools":
            rejected = answer_message(spec, answer.reply)
            if rejected.tool_calls:
                results = (ToolResult(call.id, feedback.content) for call in rejected.tool_calls)
                self.pending = (rejected, *results)
                return
        self.pending = (rejected, feedback)

    def _extend(self, mutations: tuple[ContextMutation, ...], *blobs: Blob, instructions: str | None = None) -> None:
        """Record messages by reference. The pipeline validates them before they are recorded."""
        new = {blob.hash: blob.content for blob in blobs}
        messages = apply_mutations(_NO_MESSAGES, mutations)

        def content(name: str) -> bytes:
            return new[name] if name in new else self._tape.content(name)

        texts = [sent_text(message, content, self.results) for message in messages]
        tokens, size = sum(map(estimate_tokens, texts)), sum(len(text.encode()) for text in texts)
        recorded = tuple(frame_message(message) for message in messages)
        body = kinds.TranscriptExtended(self.phase.name, recorded, tokens, self._visit, size, instructions)
        self._tape.emit(body, *blobs)

    def _turn_frame(self, turns_left: int | None) -> TurnFrame:
        entry, prepared, log = self._entry, self.prepared, self._log
        failure = log.failure if log.failure is not None and log.failure.times > 1 else None
        # The visits of a conversation are its turns; there is nothing to say about their number.
        visit = 1 if self.is_conversation else entry.visit
        left = {} if self.is_conversation else self.phase.remaining_visits(self._tape.state, entry.left)
        return TurnFrame(
            prepared.hash,
            Execution(entry.path, visit, entry.step, left),
            prepared.rollback,
            len(log.results),
            log.digest,
            turns_left,
            prepared.reads,
            tuple(filter(None, (entry.repeated, failure))),
            self.handoff,
            prepared.orders or {},
            prepared.type,
            "" if self.is_conversation else log.work_note,
            tuple([act_in_short(args) for args, _, is_ok, _ in log.performed if is_ok]) if log.performed else (),
        )


async def execute_single_llm_phase(
    draft: TurnDraft,
    call: str,
    context: TurnContext,
    model: str,
    tape: Tape,
    prompt: Prompt | None = None,
) -> LlmPhaseResult:
    """Record the frame of a turn, call the model, and judge its answer.

    Args:
        draft: What the model may answer, and what it sees.
        call: The id of the call.
        context: The turns of the visit.
        model: The model to call; empty for the run's own.
        tape: The run's tape.
        prompt: The messages within their token budget, if they have one.
    """
    prepared, spec, messages = context.prepared, draft.spec if prompt is None else prompt.spec, draft.messages
    blobs: Sequence[Blob] = (spec.stable, *prepared.blobs)
    reference: kinds.TranscriptRef | None = None
    transcript: NormalizedMessageList | None = None
    if prompt is not None and prompt.messages:
        messages, blobs = prompt.messages, (*blobs, *prompt.blobs)
    elif spec.grows:
        transcript, sent = context.messages, draft.sent
        system, memory = stored_system(sent.system)
        blobs = (*blobs, *memory)
        messages = (system, *map(frame_message, sent.tail(sent.length - transcript.length)))
        reference = kinds.TranscriptRef(transcript.length, transcript.digest)
    budget = prompt.budget if prompt else None
    frame = tape.emit(kinds.FrameBuilt(messages, spec.form, budget, reference), *blobs)
    # A recorded frame of another wording may be truncated where this one is not, or the reverse.
    transcript = context.messages if frame.transcript is not None else None
    has_values = spec.stays_open or (spec.ops and (prompt is None or not prompt.blobs))
    turn = partial(context.as_values, spec, frame.messages[0]) if has_values and spec.form == "short" else None
    results, needs = context.results, context.needs_images
    asked = CallModel(call, model, frame.messages, spec, results, prepared.input, transcript, turn, needs)
    reply = await ask(asked, frame, tape)
    context.hooked = ()
    contract = spec.contract
    if frame.budget is not None and frame.budget.truncated:
        context.truncated.update(one.name for one in frame.budget.truncated)
    if context.truncated:
        contract = contract.reading(context.truncated)
    verdict = contract.judge(reply.text, is_truncated=reply.is_truncated, probability=reply.probability)
    if verdict.dropped:
        tape.emit(kinds.AnswerUnwrapped(call, verdict.dropped))
    return LlmPhaseResult(reply, verdict)


async def schedule_tool_batch(
    verdict: Accepted | Acting, call: str, text: str, phase: CompiledPhase, log: OpLog, tape: Tape
) -> ToolBatchResult:
    """Execute the ops of a turn; results are in the order of the calls.

    Native tool calls whose effects allow it are performed at the same time, all other ops one after the other. The ops
    of a decision stop at the first that fails. `text` is the hash of the answer.
    """
    decides, first, compacts = isinstance(verdict, Accepted), len(log.results), False
    deferral = log.failure = None
    native: NativeCalls | None = None
    if not isinstance(verdict, Accepted) and verdict.is_native:
        ops = {f"{call}.{number}": args for number, args in enumerate(verdict.ops, start=1)}
        errors = {f"{call}.{position + 1}": error for position, error in verdict.errors.items()}
        native = NativeCalls(ops, errors, text, phase, tape)
    for number, args in enumerate(verdict.ops, start=1):
        name = f"{call}.{number}"
        outcome = await (run_op(args, name, phase, tape) if native is None else native.outcome(name))
        log.add(args, outcome, name, phase.settings.sizes.result_bytes, tape)
        compacts = compacts or outcome.compacts
        if decides and (outcome.status != "ok" or outcome.asked_user):
            deferral = deferral or kinds.DecisionDeferred(call, name, outcome.status)
            if outcome.status != "ok":
                break
    if deferral is not None:
        tape.emit(deferral)
    return ToolBatchResult(tuple(log.results[first:]), deferral, compacts)
