"""Request one model call within a visit: record its intent, await the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import canonical, digest, kinds
from reyn.kernel.core.effects import AttemptModel, CallModel, ModelReply
from reyn.kernel.core.limits import within_allowance

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.context import NormalizedMessageList
    from reyn.kernel.core.effects import AnswerSpec
    from reyn.kernel.core.tape import Tape
    from reyn.models import Turn


async def ask(
    spec: AnswerSpec,
    model: str,
    frame: kinds.FrameBuilt,
    call: str,
    tape: Tape,
    results: tuple[str, ...],
    input_hash: str,
    transcript: NormalizedMessageList | None = None,
    turn: Callable[[], Turn] | None = None,
    needs_images: bool = False,
    *,
    may_fail: bool = False,
) -> ModelReply:
    """Record the intent of a call and await its answer, within a visit.

    Args:
        spec: What the model may answer.
        model: The model to call; empty for the run's own.
        frame: The recorded frame.
        call: The id of the call.
        tape: The run's tape.
        results: Hashes of the op results that the frame contains.
        input_hash: Hash of the input artifact.
        transcript: The messages after the system message, if the frame refers to a transcript.
        turn: Returns the turn as values, if the model may act or the phase is a conversation.
        needs_images: Whether only a model that reads images can answer.
        may_fail: Whether the visit goes on if the call fails; the reply has the error.
    """
    schema, tools = spec.schema, (spec.tools,) if spec.tools is not None else ()
    refers = (frame.transcript,) if frame.transcript is not None else ()
    request = digest(canonical([frame.messages, schema.hash, *refers, *[blob.hash for blob in tools]]))
    intent = kinds.LlmRequested(
        call, model or tape.state.models.name, schema.hash, request, spec.tools.hash if spec.tools else None
    )
    request = tape.emit(intent, schema, *tools).request
    asked = (call, model, frame.messages, spec, request, results, input_hash, transcript, turn, needs_images)
    reply = await (AttemptModel(*asked) if may_fail else CallModel(*asked))
    if tape.state.over is not None:
        await within_allowance(tape)
    return reply
