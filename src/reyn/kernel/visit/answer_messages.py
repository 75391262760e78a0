"""Answers as messages of a transcript: whole ones, and those of turns that were aborted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.context import AssistantMessage, MultimodalToolResult, ToolCancelled, ToolResult, UserMessage
from reyn.context.render import image_parts, results_message
from reyn.contract import Accepted
from reyn.journal import kinds
from reyn.jsonschema.words import one_line
from reyn.models import ToolCall
from reyn.models.protocol import decode_reply

if TYPE_CHECKING:
    from reyn.context import ContextMutation
    from reyn.contract.verdicts import Judgement
    from reyn.kernel.core.effects import ModelReply
    from reyn.kernel.visit.turn_spec import TurnSpec


def answer_message(spec: TurnSpec, reply: ModelReply, verdict: Judgement | None = None) -> AssistantMessage:
    """Return the mutation that adds an answer to a transcript.

    Calls whose ids are missing or not unique cannot be linked to results; such an answer is added as text. Where a
    reply is asked for as text, a decision (`verdict`) that came as an object is added as the text of its reply.
    """
    if spec.form != "tools":
        return AssistantMessage((kinds.Part(blob=reply.hash),))
    native = decode_reply(reply.text.encode())
    if spec.contract.is_plain_text and isinstance(verdict, Accepted) and verdict.artifact is not None:
        text = verdict.artifact["data"][spec.contract.reply_field]
        if text != native.content:
            return AssistantMessage((kinds.Part(text=text),))
    calls = tuple(ToolCall(call.id, call.name, "") for call in native.tool_calls)
    ids = {call.id for call in calls}
    if "" in ids or len(ids) != len(calls):
        return AssistantMessage((kinds.Part(blob=reply.hash),))
    return AssistantMessage((kinds.Part(blob=reply.hash, reply=True),), calls)


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
    interrupted: dict[int, str],
) -> tuple[ContextMutation, ...]:
    """Return the mutations for an answer of whose ops only some have a result.

    `done` has the results of native tool calls, by their positions. `interrupted` has the kinds of the ops that had
    begun and may have taken effect, by their positions; without native tool calls, there is at most one.
    """
    if not message.tool_calls:
        ended = f"The turn was aborted{f': {one_line(reason)}' if reason else ''}."
        note = "The other ops were not executed."
        for kind in interrupted.values():
            note = (
                f"`{kind}` was interrupted and may have taken effect: check before you repeat it. The ops after it "
                "were not executed."
            )
        return (message, UserMessage(results_message([*results.values()], f"{ended} {note}")))
    each = (
        done.get(position) or ToolCancelled(call.id, call.name, reason, is_outcome_unknown=position in interrupted)
        for position, call in enumerate(message.tool_calls)
    )
    return (message, *each)
