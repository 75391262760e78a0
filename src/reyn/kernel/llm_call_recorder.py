"""One model call: the intent before, the call itself, its record after. Never parses a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.context import join
from reyn.errors import ModelBroken, ModelError
from reyn.journal import Blob, canonical, digest, kinds
from reyn.kernel.effects import CallModel, Reply
from reyn.models import Message, ModelRequest

if TYPE_CHECKING:
    from reyn.journal import Body
    from reyn.kernel.briefs import Offer
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape
    from reyn.models import Model, ModelReply


async def ask(
    offer: Offer, messages: tuple[kinds.FrameMessage, ...], call: str, tape: Tape, results: tuple[str, ...]
) -> Reply:
    """The half that a visit sees: record the intent, await the answer. `results` are those that the frame shows."""
    request = digest(canonical((messages, offer.schema.hash)))
    tape.emit(kinds.LlmRequested(call, tape.state.model, offer.schema.hash, request), offer.schema)
    return await CallModel(call, messages, offer.contract.schema, request, results)


def _answered(state: RunState) -> int:
    """Answers that were given before: to the run, and before it to the runs above."""
    assert state.started is not None
    return state.answers + (state.started.parent.answered if state.started.parent else 0)


class LlmCallRecorder:
    """The half that touches the world: ask the model and turn what it says into an outcome."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.warnings: list[str] = []

    async def perform(self, call: CallModel, tape: Tape) -> tuple[Body, tuple[Blob, ...]]:
        request = ModelRequest(
            messages=tuple(Message(m.role, join(m, tape.content, call.results)) for m in call.messages),
            contract=call.contract,
            run_id=tape.run_id,
            call=call.key,
            request_hash=call.request_hash,
            answered=_answered(tape.state),
        )
        try:
            reply = await self.model.complete(request)
            if not isinstance(reply.text, str):
                raise TypeError(f"its answer is a {type(reply.text).__name__}, not text")
        except ModelError as error:
            return kinds.LlmFailed(call.key, error.code, error.message), ()
        except Exception as error:  # noqa: BLE001 - somebody else's code: its fault is recorded, not passed on
            fault = f"the model `{self.model.name}` broke: {type(error).__name__}: {error}"
            return kinds.LlmFailed(call.key, ModelBroken.code, fault), ()
        text = Blob.of(reply.text.encode("utf-8", "backslashreplace"))
        return kinds.LlmResponded(call.key, text.hash, self._usage(reply)), (text,)

    def _usage(self, reply: ModelReply) -> kinds.Usage | None:
        """Tokens that cannot be counted cost the count, not the answer."""
        if reply.usage is None:
            return None
        try:
            return msgspec.convert(msgspec.to_builtins(reply.usage), kinds.Usage)
        except (msgspec.ValidationError, TypeError) as error:
            self.warnings.append(f"the model `{self.model.name}` counted its tokens wrongly: {error}")
            return None
