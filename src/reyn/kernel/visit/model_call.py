"""One model call within a visit: what is asked, the intent, and the answer as messages of a transcript.

A `TurnSpec` has the static prompt text and the output contract of one turn of a phase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.context import (
    AssistantMessage,
    ContextMutation,
    InvocationSpec,
    MultimodalToolResult,
    PromptContract,
    ToolCancelled,
    ToolResult,
    UserMessage,
    static_text,
)
from reyn.context.frame import StableFrame, advised
from reyn.context.images import image_parts
from reyn.context.prompt import closing_text, task_text
from reyn.context.render import results_message
from reyn.contract import Accepted, Contract
from reyn.journal import Blob, canonical, digest, kinds, ordered
from reyn.kernel.core.limits import within_allowance
from reyn.models import ToolCall
from reyn.models.protocol import decode_reply
from reyn.texts import one_line
from reyn.vocabulary import OpTarget

if TYPE_CHECKING:
    from reyn.contract.verdicts import Judgement
    from reyn.kernel.core.effects import CallModel, ModelReply
    from reyn.kernel.core.tape import Tape
    from reyn.skills.values import Phase
    from reyn.vocabulary import OpSpec


class Targets(NamedTuple):
    """What calls of ops can name, as recorded: the hash, and how to read the content."""

    hash: str
    content: Callable[[str], bytes]

    def read(self) -> dict[str, tuple[OpTarget, ...]]:
        """Return the targets by op kind."""
        return msgspec.json.decode(self.content(self.hash), type=dict[str, tuple[OpTarget, ...]])


class TurnSpec:
    """The static prompt text and the output contract of one turn: its candidates and the ops on offer."""

    def __init__(self, frame: StableFrame, contract: Contract, ops: tuple[OpSpec, ...], phase: Phase) -> None:
        self.frame = frame
        self.contract = contract
        self.ops = ops
        self._definition = phase
        self.phase = frame.current_phase
        self.effort = phase.effort
        self.grows = phase.conversation is not None or contract.form == "tools"
        """Whether turns extend a transcript, instead of having a fresh frame each."""
        self.stays_open = not contract.allows_abort
        """Whether the model cannot end the conversation."""
        self.answer_schema = contract.schema
        """The JSON Schema of every allowed answer."""
        self.tool_definitions = contract.tools
        """The native tools of a request; `tools` is their record."""
        self.form = contract.form
        self.candidates = contract.candidates
        self.task = task_text(frame).rstrip()
        self.closing = closing_text(frame, self.form, is_plain_text=contract.is_plain_text)
        self.stable = Blob.of(self._static_text(frame, is_plain_text=contract.is_plain_text).encode())
        self.schema = Blob.of(ordered(contract.schema))
        self.tools = Blob.of(ordered(contract.tools)) if contract.tools else None
        self.system = kinds.FrameMessage("system", (kinds.Part(blob=self.stable.hash),))
        self.invocation = InvocationSpec(self.phase, "phase", PromptContract(system_prompt=self.system.parts))
        self._instructed: TurnSpec | None = None

    def _static_text(self, frame: StableFrame, *, is_plain_text: bool) -> str:
        return static_text(
            frame,
            self.form,
            asks_handoff=self.contract.asks_handoff,
            is_plain_text=is_plain_text,
            allows_abort=self.contract.allows_abort,
        )

    def instructed(self, instructions: str) -> TurnSpec:
        """Return the same turn with other instructions, which take the place of the phase's role and instructions."""
        instructions = advised(instructions, self._definition.advice)
        if self._instructed is None or self._instructed.frame.instructions != instructions:
            frame = msgspec.structs.replace(self.frame, current_phase_role=None, instructions=instructions)
            self._instructed = TurnSpec(frame, self.contract, self.ops, self._definition)
        return self._instructed

    def invocation_with(self, overviews: str) -> InvocationSpec:
        """Return the invocation whose system prompt ends with the list of what ops can act on, by its hash."""
        prompt = (*self.system.parts, kinds.Part(blob=overviews))
        return InvocationSpec(self.phase, "phase", PromptContract(system_prompt=prompt))

    def decision_text(self, *, is_conversation: bool) -> str:
        """Return the static text without the ops on offer; in a conversation, that of a reply."""
        frame = msgspec.structs.replace(self.frame, available_control_ops=(), act_lines=())
        is_text = is_conversation and self.contract.reply_field is not None
        return self._static_text(frame, is_plain_text=is_text)


# -- asking -----------------------------------------------------------------------------------------


async def ask(asked: CallModel, frame: kinds.FrameBuilt, tape: Tape) -> ModelReply:
    """Record the intent of a call and await its answer, within a visit. `frame` has the messages, as recorded."""
    schema, tools = asked.spec.schema, asked.spec.tools
    sent: list[Any] = [frame.messages, schema.hash]
    if frame.transcript is not None:
        sent.append(frame.transcript)
    if tools is not None:
        sent.append(tools.hash)
    request, model = digest(canonical(sent)), asked.model or tape.state.models.name
    intent = kinds.LlmRequested(asked.key, model, schema.hash, request, tools.hash if tools else None)
    asked.request_hash = tape.emit(intent, schema, *((tools,) if tools else ())).request
    reply = await asked
    if tape.state.over is not None:
        await within_allowance(tape)
    return reply


# -- answers as messages ----------------------------------------------------------------------------


def answer_message(spec: TurnSpec, reply: ModelReply, verdict: Judgement | None = None) -> AssistantMessage:
    """Return the mutation that adds an answer to a transcript.

    Calls whose ids are missing or not unique cannot be linked to results; such an answer is added as text. Where a
    reply is asked for as text, a decision (`verdict`) that came as an object is added as the text of its reply.
    """
    if spec.form != "tools":
        return AssistantMessage((kinds.Part(blob=reply.hash, thoughts=reply.thoughts),))
    native = decode_reply(reply.text.encode())
    if spec.contract.is_plain_text and isinstance(verdict, Accepted) and verdict.artifact is not None:
        text = verdict.artifact["data"][spec.contract.reply_field]
        if text != native.content:
            return AssistantMessage((kinds.Part(text=text, thoughts=reply.thoughts),))
    calls = tuple(ToolCall(call.id, call.name, "") for call in native.tool_calls)
    ids = {call.id for call in calls}
    if "" in ids or len(ids) != len(calls):
        return AssistantMessage((kinds.Part(blob=reply.hash),))
    return AssistantMessage((kinds.Part(blob=reply.hash, reply=True, thoughts=reply.thoughts),), calls)


def tool_result(call: str, result: str, content: bytes, notes: str = "") -> ContextMutation:
    """Return the mutation for the result of a call: its content, by hash, the images that it names, and notes."""
    images = image_parts(content)
    parts = (kinds.Part(blob=result), *images, *([kinds.Part(text=f"\n{notes}")] if notes else []))
    return MultimodalToolResult(call, parts, ()) if images else ToolResult(call, parts)


def next_answer(spec: TurnSpec, reply: ModelReply) -> str:
    """Return the request that follows a rejected answer; empty for the usual one: answer with JSON."""
    if spec.form != "tools":
        return ""
    if decode_reply(reply.text.encode()).tool_calls:
        return _again_with_tools(spec) if spec.tools else "Answer without tools."
    if not spec.candidates:
        return "Call a tool."
    return "Reply again in text." if spec.contract.is_plain_text else ""


def _again_with_tools(spec: TurnSpec) -> str:
    return "Correct the calls, or answer without them." if spec.candidates else "Correct the calls."


def aborted_batch(
    message: AssistantMessage,
    results: dict[int, str],
    done: dict[int, ContextMutation],
    reason: str,
    interrupted: dict[int, tuple[str, str]],
) -> tuple[ContextMutation, ...]:
    """Return the mutations for an answer of whose ops only some have a result.

    `done` has the results of native tool calls, by their positions. `interrupted` has the kinds of the ops that had
    begun and may have taken effect, by their positions, with what is known; without native tool calls, there is at
    most one.
    """
    if not message.tool_calls:
        ended = f"The turn was aborted{f': {one_line(reason)}' if reason else ''}."
        note = "The other ops were not executed."
        for kind, known in interrupted.values():
            note = (
                f"`{kind}` was interrupted and may have taken effect: check before you repeat it. "
                f"{_sentence(known)}The ops after it were not executed."
            )
        return (message, UserMessage(results_message([*results.values()], f"{ended} {note}")))
    each = (
        done.get(position)
        or ToolCancelled(
            call.id,
            call.name,
            reason,
            is_outcome_unknown=position in interrupted,
            details=_sentence(interrupted.get(position, ("", ""))[1]).strip(),
        )
        for position, call in enumerate(message.tool_calls)
    )
    return (message, *each)


def _sentence(text: str) -> str:
    """Return a text as a sentence, with a space after it; empty if there is no text."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}. " if text else ""
