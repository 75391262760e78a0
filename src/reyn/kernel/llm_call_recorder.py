"""One model call: the intent before, the call itself, its record after. Never parses a decision.

What may pass is tried again, what cannot be had is replaced by the next of its list; each is an event before it
happens.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context import join
from reyn.errors import ModelBroken, ModelError, ModelTimeout, SchemaRefused
from reyn.journal import Blob, canonical, digest, kinds
from reyn.kernel.effects import CallModel, Reply
from reyn.models import Delta, Message, ModelReply, ModelRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from reyn.config import ModelSettings
    from reyn.journal import Body
    from reyn.kernel.briefs import Offer
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape
    from reyn.models.roster import Roster

    Recorded = tuple[Body, tuple[Blob, ...]]
    Tell = Callable[[Body], Awaitable[None]]
    Hear = Callable[[Delta], None]

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_LONGEST_ASKED_FOR = 120.0
"""Seconds that a provider may ask for; one that wants more cannot be had now."""
_WAYS = 8
"""More than there are ways to ask a model."""
_rest = asyncio.sleep


async def ask(
    offer: Offer, model: str, messages: tuple[kinds.FrameMessage, ...], call: str, tape: Tape, results: tuple[str, ...]
) -> Reply:
    """The half that a visit sees: record the intent, await the answer. `model` is empty for the run's own; `results`
    are those that the frame shows."""
    request = digest(canonical((messages, offer.schema.hash)))
    intent = kinds.LlmRequested(call, model or tape.state.models.name, offer.schema.hash, request)
    request = tape.emit(intent, offer.schema).request
    return await CallModel(call, model, messages, offer.contract.schema, request, results)


def _answered(state: RunState) -> int:
    """Answers that were given before: to the run, and before it to the runs above."""
    assert state.started is not None
    return state.models.answers + (state.started.parent.answered if state.started.parent else 0)


class LlmCallRecorder:
    """The half that touches the world: ask the model and turn what it says into an outcome."""

    def __init__(self, roster: Roster, hear: Hear | None = None) -> None:
        self._roster = roster
        self._hear = hear
        self.warnings: list[str] = []

    def may_take_time(self, call: CallModel, state: RunState) -> bool:
        return self._roster.takes_time(_current(call.model or state.models.name, state))

    async def perform(self, call: CallModel, tape: Tape, tell: Tell) -> Recorded:
        """`tell` records what happens on the way, before it happens."""
        request = ModelRequest(
            messages=tuple(Message(m.role, join(m, tape.content, call.results)) for m in call.messages),
            contract=call.contract,
            run_id=tape.run_id,
            call=call.key,
            request_hash=call.request_hash,
            answered=_answered(tape.state),
            hear=_Hearing(self._hear, self._roster, tape.run_id, call.key) if self._hear else None,
        )
        if self._roster.is_given:
            name = tape.state.models.name
            return self._outcome(name, call.key, await self._once(name, None, request))
        # A run that was resumed with another model asks that one, also what the old one was to be asked.
        first = call.model or tape.state.models.name
        line = self._roster.line(first)
        name = _current(first, tape.state)
        rest = line[line.index(name) + 1 :] if name in line else line
        while True:
            answer = await self._try(name, self._roster.settings(name), request, tell)
            if isinstance(answer, ModelReply) or not rest:
                return self._outcome(name, call.key, answer)
            instead = rest.pop(0)
            await tell(kinds.ModelSwitched(call.key, name, instead, answer.code, self._roster.scrub(answer.message)))
            name = instead

    async def _try(
        self, name: str, settings: ModelSettings, request: ModelRequest, tell: Tell
    ) -> ModelReply | ModelError:
        """Ask one model, as often as its settings allow; the answer, or why there is none."""
        attempt, failures = 0, 0
        while True:
            attempt += 1
            answer = await self._once(name, settings, request)
            if isinstance(answer, ModelReply):
                return answer
            instead = answer.instead if isinstance(answer, SchemaRefused) and attempt - failures < _WAYS else ""
            failures += not instead
            if not instead and not _may_pass(answer, failures, settings.retries):
                return answer
            wait = 0.0 if instead else _wait(failures, answer.retry_after)
            message = self._roster.scrub(answer.message)
            told = kinds.ModelRetried(request.call, name, attempt, answer.code, message, int(wait * 1000), instead)
            await tell(told)
            await _rest(wait)

    async def _once(self, name: str, settings: ModelSettings | None, request: ModelRequest) -> ModelReply | ModelError:
        """Without settings, a model that is handed in: it tries nothing again and minds its own time."""
        try:
            model = self._roster.open(name)
            if settings is None or not getattr(model, "takes_time", True):
                reply = await model.complete(request)
            else:
                async with asyncio.timeout(settings.patience):
                    reply = await model.complete(request)
            if not isinstance(reply.text, str):
                raise TypeError(f"its answer is a {type(reply.text).__name__}, not text")
        except ModelError as error:
            return error
        except TimeoutError:
            seconds = f"within {settings.patience} seconds" if settings else "in time"
            return ModelTimeout(f"the model `{name}` did not answer {seconds}")
        except Exception as error:  # noqa: BLE001 - somebody else's code: its fault is recorded, not passed on
            return ModelBroken(f"the model `{name}` broke: {type(error).__name__}: {error}")
        finally:
            if isinstance(request.hear, _Hearing):
                request.hear.finish()
        return reply

    def _outcome(self, name: str, call: str, reply: ModelReply | ModelError) -> Recorded:
        if isinstance(reply, ModelError):
            scrub = self._roster.scrub
            return kinds.LlmFailed(call, reply.code, scrub(reply.message), scrub(reply.own_hint)), ()
        text = Blob.of(self._roster.scrub(reply.text).encode("utf-8", "backslashreplace"))
        usage = self._usage(name, reply)
        return kinds.LlmResponded(call, text.hash, usage, reply.mode, bool(reply.is_cut)), (text,)

    def _usage(self, name: str, reply: ModelReply) -> kinds.Usage | None:
        """Tokens that cannot be counted cost the count, not the answer."""
        if reply.usage is None:
            return None
        try:
            return msgspec.convert(msgspec.to_builtins(reply.usage), kinds.Usage)
        except (msgspec.ValidationError, TypeError) as error:
            self.warnings.append(f"the model `{name}` counted its tokens wrongly: {error}")
            return None


class _Hearing:
    """Passes on what a model says while it says it, without secrets. Whoever looks on cannot break the call."""

    def __init__(self, hear: Hear, roster: Roster, run_id: str, call: str) -> None:
        self._hear: Hear | None = hear
        self._roster = roster
        self._about = run_id, call
        self._held = ""
        self._new: list[str] = []
        self._come = 0

    def __call__(self, text: Any) -> None:
        if not isinstance(text, str):
            return  # an adapter's mistake costs its listeners a word, not the run its answer
        self._new.append(text)
        self._come += len(text)
        if 8 * self._come >= len(self._held):  # for a long secret, much is held back
            told, self._held = self._roster.split(self._gathered())
            self._tell(told)

    def finish(self) -> None:
        """An attempt is over: nothing more can come of what was held back."""
        told, held = self._roster.split(self._gathered())
        self._held = ""
        self._tell(told + held)

    def _gathered(self) -> str:
        gathered = self._held + "".join(self._new)
        self._new.clear()
        self._come = 0
        return gathered

    def _tell(self, text: str) -> None:
        if text and self._hear is not None:
            try:
                self._hear(Delta(*self._about, text))
            except Exception:  # noqa: BLE001 - somebody else's code
                self._hear = None


def _current(name: str, state: RunState) -> str:
    """The model that is asked in place of one that could not be had before."""
    seen = {name}
    while (other := state.models.switched.get(name)) is not None and other not in seen:
        name = other
        seen.add(name)
    return name


def _may_pass(error: ModelError, failures: int, retries: int) -> bool:
    return error.may_pass and failures <= retries and (error.retry_after or 0.0) <= _LONGEST_ASKED_FOR


def _wait(failures: int, asked_for: float | None) -> float:
    """Longer each time, and never the same for two who wait; what the provider asks for is honoured."""
    if asked_for is not None:
        return asked_for
    ceiling: float = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (failures - 1))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - no secret is made of it
