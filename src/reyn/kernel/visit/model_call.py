"""Request one model call within a visit: record its intent, await the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import canonical, digest, kinds
from reyn.kernel.core.limits import within_allowance

if TYPE_CHECKING:
    from reyn.kernel.core.effects import CallModel, ModelReply
    from reyn.kernel.core.tape import Tape


async def ask(asked: CallModel, frame: kinds.FrameBuilt, tape: Tape) -> ModelReply:
    """Record the intent of a call and await its answer, within a visit. `frame` has the messages, as recorded."""
    spec = asked.spec
    schema, tools = spec.schema, (spec.tools,) if spec.tools is not None else ()
    refers = (frame.transcript,) if frame.transcript is not None else ()
    request = digest(canonical([frame.messages, schema.hash, *refers, *[blob.hash for blob in tools]]))
    intent = kinds.LlmRequested(
        asked.key,
        asked.model or tape.state.models.name,
        schema.hash,
        request,
        spec.tools.hash if spec.tools else None,
    )
    asked.request_hash = tape.emit(intent, schema, *tools).request
    reply = await asked
    if tape.state.over is not None:
        await within_allowance(tape)
    return reply
