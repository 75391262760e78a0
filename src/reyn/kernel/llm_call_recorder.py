"""One model call: the intent before, the call itself, its record after. Never parses a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.context import join
from reyn.errors import ModelBroken, ModelError
from reyn.journal import Blob, canonical, digest, kinds
from reyn.kernel.effects import CallModel, Reply
from reyn.models import Message, ModelRequest

if TYPE_CHECKING:
    from reyn.journal import Body
    from reyn.kernel.briefs import PhaseBrief
    from reyn.kernel.tape import Tape
    from reyn.models import Model


async def ask(brief: PhaseBrief, messages: tuple[kinds.FrameMessage, ...], call: str, model: str, tape: Tape) -> Reply:
    """The half that a visit sees: record the intent, await the answer."""
    request = digest(canonical((messages, brief.schema.hash)))
    tape.emit(kinds.LlmRequested(call, model, brief.schema.hash, request), brief.schema)
    return await CallModel(call, messages, brief.contract.schema, request)


class LlmCallRecorder:
    """The half that touches the world: ask the model and turn what it says into an outcome."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def perform(self, call: CallModel, tape: Tape) -> tuple[Body, tuple[Blob, ...]]:
        request = ModelRequest(
            messages=tuple(Message(message.role, join(message, tape.content)) for message in call.messages),
            contract=call.contract,
            run_id=tape.run_id,
            call=call.key,
            request_hash=call.request_hash,
            answered=tape.state.answers,
        )
        try:
            reply = await self.model.complete(request)
        except ModelError as error:
            return kinds.LlmFailed(call.key, error.code, error.message), ()
        except Exception as error:  # noqa: BLE001 - somebody else's code: its fault is recorded, not passed on
            fault = f"the model `{self.model.name}` broke: {type(error).__name__}: {error}"
            return kinds.LlmFailed(call.key, ModelBroken.code, fault), ()
        text = Blob.of(reply.text.encode("utf-8", "replace"))
        return kinds.LlmResponded(call.key, text.hash, reply.usage), (text,)
