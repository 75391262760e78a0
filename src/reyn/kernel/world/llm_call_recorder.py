"""Record one model call: request, budget, retries, fallback, response.

Each attempt reserves what it can use before it is made and settles it afterwards (`budgets`). Transient errors are
retried; a model that cannot answer is replaced by the next one of its fallback list. Each retry and each switch is
committed before it happens. The recorder does not parse the answer; `reyn.contract` does.
"""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from reyn.config import ModelSettings
from reyn.context.histories import HISTORIES, RenderedMessages
from reyn.context.images import without_images
from reyn.context.render import message_text, normalized, rendered_message
from reyn.errors import (
    CircuitOpen,
    ImagesUnsupported,
    JournalError,
    ModelBroken,
    ModelError,
    ModelTimeout,
    SchemaRejected,
)
from reyn.journal import Blob, Body, kinds
from reyn.journal.rates import RateLimits
from reyn.kernel.world.budgets import MAX_USAGE, CallAttempt, CallBudget
from reyn.kernel.world.call_rates import call_rate
from reyn.kernel.world.call_slots import call_slot
from reyn.kernel.world.redacting_stream import RedactingStream
from reyn.models import Message, Model, ModelAnswer, ModelRequest, Thoughts, Turn
from reyn.models.answers import to_answer
from reyn.models.protocol import encode_reply, takes_time
from reyn.models.text_tools import complete_with_text_tools
from reyn.models.thoughts import decode_thoughts, encode_thoughts

if TYPE_CHECKING:
    from reyn.journal import Journal
    from reyn.journal.rates import RateReason
    from reyn.kernel.core.effects import CallModel
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.watchers import OnDelta, Watchers
    from reyn.models.endpoints import WaitReason
    from reyn.models.roster import Roster

    Recorded = tuple[Body, tuple[Blob, ...]]
    Attempted = ModelAnswer | ModelError | kinds.BudgetRefused
    Record = Callable[[Body], Awaitable[None]]

_FIRST_DELAY = 0.5
_MAX_DELAY = 30.0
_MAX_RETRY_AFTER = 120.0
"""Seconds. A provider that sets a longer delay counts as unavailable."""
_MAX_MODE_CHANGES = 8
"""More than the number of output modes; bounds the attempts that change the mode."""
_MAX_STATIC = 50
"""The number of static messages to cache."""
_DEFAULTS = ModelSettings("")
"""The settings of a model that has none of its own: one that the caller passed in."""
_sleep = asyncio.sleep
_logger = logging.getLogger("reyn.models")


class PreparedCall(NamedTuple):
    """A model call that can begin."""

    call: CallModel
    model: str
    """The model that the call names; another one may have replaced it."""
    first: CallAttempt
    takes_time: bool
    """Whether the model, or one of its fallbacks, takes time."""


class LlmCallRecorder:
    """Performs model calls: the side effect behind `ask`."""

    def __init__(self, roster: Roster, watchers: Watchers, journal: Journal, on_delta: OnDelta | None = None) -> None:
        self._roster = roster
        self._journal = journal
        self._watchers = watchers
        self._on_delta = on_delta
        self.warnings: list[str] = []
        self._static: dict[tuple[kinds.FrameMessage, int], Message] = {}
        """The rendered static messages of phases, by the secrets that were known."""

    def prepare(self, call: CallModel, tape: Tape) -> PreparedCall:
        """Return a call with its request and its first attempt, which reports a model that cannot be opened."""
        roster, first = self._roster, call.model or tape.state.models.name
        # After `resume --model`, the new model also answers calls that were recorded for the old one.
        name = tape.state.models.name if roster.override is not None else _current(first, tape.state)
        takes_time = roster.takes_time(name) or (roster.override is None and roster.takes_time(first))
        attempt = self._attempt(name, self._request(call, name, tape))
        return PreparedCall(call, first, attempt, takes_time)

    def _request(self, call: CallModel, name: str, tape: Tape) -> ModelRequest:
        """Return the request of a call to a model."""
        on_delta, spec = self._on_delta, call.spec
        if self._watchers.by_run:
            on_delta = self._watchers.deltas(tape.run_id, on_delta)
        return ModelRequest(
            messages=self._messages(call, tape, name),
            contract=spec.answer_schema,
            run_id=tape.run_id,
            call=call.key,
            request_hash=call.request_hash,
            answered=tape.state.total_answers,
            on_delta=RedactingStream(on_delta, self._roster, tape.run_id, call.key) if on_delta else None,
            phase=spec.phase,
            input_json=tape.content(call.input) if call.input else b"",
            candidates=spec.candidates,
            ops=spec.ops,
            answer_form=spec.form,
            tools=spec.tool_definitions,
            task=self._roster.scrub(spec.task),
            turn=self._turn(call.turn()) if call.turn is not None else None,
            needs_images=call.needs_images,
            effort=spec.effort,
        )

    async def perform(self, prepared: PreparedCall, tape: Tape, record: Record, budget: CallBudget | None) -> Recorded:
        """Call the model; return the outcome.

        Args:
            prepared: The call.
            tape: The run's tape.
            record: Makes retries and switches durable before they happen.
            budget: Reserves and settles each attempt; the first one is reserved. `None` if nothing is reserved.
        """
        call, attempt = prepared.call, prepared.first
        if self._roster.override is not None:
            answer = await (self._once if attempt.settings is None else self._try)(attempt, record, budget)
            return self._outcome(attempt.name, call, answer)
        models = self._roster.fallbacks(prepared.model)
        rest = models[models.index(attempt.name) + 1 :] if attempt.name in models else models
        while True:
            answer = await self._try(attempt, record, budget, has_fallback=bool(rest))
            if not isinstance(answer, ModelError) or not rest:
                return self._outcome(attempt.name, call, answer)
            name, request, fallback = attempt.name, attempt.request, rest.pop(0)
            await record(kinds.ModelSwitched(call.key, name, fallback, answer.code, self._roster.scrub(answer.message)))
            has_thoughts = any(message.thoughts is not None for message in request.messages)
            if has_thoughts or self._roster.reads_images(fallback) != self._roster.reads_images(name):
                request = msgspec.structs.replace(request, messages=self._messages(call, tape, fallback))
            attempt = self._attempt(fallback, request)

    def _messages(self, call: CallModel, tape: Tape, name: str) -> Sequence[Message]:
        """Return the messages of a request to a model. One that reads no images gets their description.

        Of a transcript, only messages that are new since the last call are read.
        """
        scrub, images = self._roster.scrub, self._roster.reads_images(name)

        def own(content: bytes) -> Thoughts | None:
            thoughts = decode_thoughts(content)
            return thoughts if thoughts.model == self._roster.identity(name) else None

        if call.transcript is None and (images or call.spec.form == "tools"):
            return tuple(
                rendered_message(
                    normalized(message), tape.content, scrub, call.results, with_images=images, own_thoughts=own
                )
                for message in call.messages
            )
        if (transcript := call.transcript) is None:
            return tuple(
                [
                    self._static_message(m, tape)
                    if m.role == "system"
                    else Message(m.role, scrub(message_text(m, tape.content, call.results)))
                    for m in call.messages
                ]
            )
        system, *rest = (
            rendered_message(
                normalized(message), tape.content, scrub, call.results, with_images=images, own_thoughts=own
            )
            for message in call.messages
        )
        rendered = _transcripts.setdefault(self._roster, RenderedMessages()).render(
            (tape.run_id, name, self._roster.known_secrets),  # with the secrets that are known now
            transcript,
            lambda message: rendered_message(
                message, tape.content, scrub, call.results, with_images=images, own_thoughts=own
            ),
            lambda: (known := HISTORIES.known_part(transcript), known if images else without_images(known)),
        )
        return rendered.with_system(system).append(*rest)

    def _static_message(self, message: kinds.FrameMessage, tape: Tape) -> Message:
        """Return the system message of a phase, which is the same in every visit."""
        key = (message, self._roster.known_secrets)
        found = self._static.get(key)
        if found is None:
            if len(self._static) >= _MAX_STATIC:
                self._static.clear()
            text = self._roster.scrub(message_text(message, tape.content))
            found = self._static[key] = Message(message.role, text)
        return found

    def _turn(self, turn: Turn) -> Turn:
        if not self._roster.known_secrets:
            return turn
        return msgspec.convert(self._roster.scrub_value(msgspec.to_builtins(turn)), Turn)

    async def _try(
        self, attempt: CallAttempt, record: Record, budget: CallBudget | None, *, has_fallback: bool = False
    ) -> Attempted:
        """Call one model, with as many retries as its settings allow.

        An endpoint whose circuit is open is retried only if there is no fallback.
        """
        settings, number, failures = attempt.settings, 0, 0
        assert settings is not None
        while True:
            number += 1
            answer = await self._once(attempt, record, budget)
            if not isinstance(answer, ModelError) or (has_fallback and isinstance(answer, CircuitOpen)):
                return answer
            mode = (
                answer.instead if isinstance(answer, SchemaRejected) and number - failures < _MAX_MODE_CHANGES else ""
            )
            failures += not mode
            if not mode and not _is_retried(answer, failures, settings.retries):
                return answer
            delay = 0.0 if mode else _delay(failures, answer.retry_after)
            message, call = self._roster.scrub(answer.message), attempt.request.call
            await record(kinds.ModelRetried(call, attempt.name, number, answer.code, message, int(delay * 1000), mode))
            await _sleep(delay)
            if isinstance(attempt.model, ModelError):
                attempt = self._attempt(attempt.name, attempt.request)

    async def _once(self, attempt: CallAttempt, record: Record, budget: CallBudget | None) -> Attempted:
        """Reserve the budget of an attempt, call the model, and settle it."""
        if isinstance(attempt.model, ModelError):
            return attempt.model
        if budget is not None and not budget.take_proposal():
            try:
                refused = await budget.reserve(attempt)
            except ModelError as error:
                return error
            if refused is not None:
                return refused
        answer = await self._answer(attempt, attempt.model, record)
        if isinstance(answer, ModelError):
            if budget is not None:
                budget.settle(answer)
            return answer
        usage = self._usage(attempt.name, answer) if answer.usage is not None else None
        if budget is not None:
            budget.settle(usage if usage is not None and _is_complete(usage, answer) else None)
        return answer if answer.usage is None else msgspec.structs.replace(answer, usage=usage)

    def _attempt(self, name: str, request: ModelRequest) -> CallAttempt:
        """Return an attempt of a call with a model."""
        override = self._roster.override is not None
        settings = self._roster.override_settings if override else self._roster.settings(name)
        known = settings or _DEFAULTS
        is_set = request.effort is not None or known.effort is not None
        most = known.answer_tokens(request.effort) if is_set else known.max_tokens
        if most != request.max_tokens:
            request = msgspec.structs.replace(request, max_tokens=most)
        needs_words = bool(request.tools) and self._roster.answer_form(name) != "tools"
        return CallAttempt(name, settings, request, self._open(name, request), needs_words)

    def _open(self, name: str, request: ModelRequest) -> Model | ModelError:
        """Return the model of a name, or why it cannot answer a request."""
        if request.needs_images and not self._roster.reads_images(name):
            return ImagesUnsupported(f"the prompt has images, and model `{name}` is not configured to read images")
        try:
            return self._roster.open(name)
        except ModelError as error:
            return error
        except Exception as error:  # noqa: BLE001 - models are third-party code; the error is recorded
            return self._broken(name, error)

    def _broken(self, name: str, error: Exception) -> ModelBroken:
        self._log_exception(name, error)
        broken = ModelBroken(f"model `{name}` raised {type(error).__name__}: {error}")
        broken.__cause__ = error
        return broken

    async def _answer(self, attempt: CallAttempt, model: Model, record: Record) -> ModelAnswer | ModelError:
        """Call a model once, when its endpoint has a slot for it. A wait for a slot does not count as timeout."""
        name, settings, request = attempt.name, attempt.settings, attempt.request

        async def on_wait(reason: WaitReason | RateReason, ahead: int) -> None:
            assert endpoint is not None
            await record(kinds.ModelQueued(request.call, name, endpoint.name, reason, ahead))

        try:
            endpoint = self._roster.endpoint(settings) if settings is not None and takes_time(model) else None
            if settings is None or endpoint is None:
                reply = await self._timed(attempt, model)
            else:
                limits = endpoint.settings
                rates = RateLimits(limits.requests_per_minute, limits.tokens_per_minute)
                tokens = 0 if rates.tokens is None else _estimate(request)
                async with (
                    endpoint.slot(lambda wait: on_wait(*wait)),
                    call_slot(self._journal, endpoint.name, limits.concurrency, lambda: on_wait("concurrency", 0)),
                    call_rate(self._journal, endpoint.name).call(tokens, rates, on_wait) as call,
                ):
                    if self._journal.is_remote:  # the call may have waited for longer than the lease
                        self._journal.check_claim(request.run_id)
                    reply = await self._timed(attempt, model)
                    call.settle(reply.usage)
        except ModelError as error:
            return error
        except JournalError:
            raise
        except TimeoutError:
            seconds = f"within {settings.timeout_seconds} seconds" if settings else "in time"
            return ModelTimeout(f"model `{name}` did not answer {seconds}")
        except Exception as error:  # noqa: BLE001 - models are third-party code; the error is recorded
            return self._broken(name, error)
        finally:
            if isinstance(request.on_delta, RedactingStream):
                request.on_delta.finish()
        return reply

    async def _timed(self, attempt: CallAttempt, model: Model) -> ModelAnswer:
        """Call a model within its timeout. One without native tools gets the tools of a request in words.

        Without settings (a model that the caller passed in) there is no timeout.
        """
        settings, request = attempt.settings, attempt.request
        answering = complete_with_text_tools(model, request) if attempt.in_words else model.complete(request)
        returned: Any
        if settings is None or not takes_time(model):
            returned = await answering
        else:
            async with asyncio.timeout(settings.timeout_seconds):
                returned = await answering
        reply: ModelAnswer = returned if returned.__class__ is ModelAnswer else to_answer(returned, request)
        _check_reply(reply, request)
        return reply

    def _log_exception(self, name: str, error: Exception) -> None:
        """Log where a model failed, because the journal records only the message.

        The author of a model that was passed from Python gets the exception itself. Exceptions of configured adapters
        may quote a key, so their traceback is scrubbed and logged for debugging only.
        """
        if self._roster.override is not None:
            _logger.error("model `%s` raised an exception", name, exc_info=error)
        elif _logger.isEnabledFor(logging.DEBUG):
            _logger.debug("%s", self._roster.scrub("".join(traceback.format_exception(error))))

    def _outcome(self, name: str, call: CallModel, reply: Attempted) -> Recorded:
        if isinstance(reply, kinds.BudgetRefused):
            return reply, ()
        scrub = self._roster.scrub
        if isinstance(reply, ModelError):
            return kinds.LlmFailed(call.key, reply.code, scrub(reply.message), scrub(reply.own_hint)), ()
        text = Blob.of(encode_reply(reply, call.spec.form, scrub))
        probability = reply.choice_probability
        if probability is not None and not 0 <= probability <= 1:
            self.warnings.append(f"model `{name}` reported an invalid probability: {probability!r:.200}")
            probability = None
        is_cut, blobs = bool(reply.is_truncated), (text,)
        responded = kinds.LlmResponded(call.key, text.hash, reply.usage, reply.mode, is_cut, probability)
        if reply.thoughts is not None:
            content = encode_thoughts(reply.thoughts, self._roster.identity(name), scrub)
            if content is not None:
                thoughts = Blob.of(content)
                return msgspec.structs.replace(responded, thoughts=thoughts.hash), (*blobs, thoughts)
        return responded, blobs

    def _usage(self, name: str, reply: ModelAnswer) -> kinds.Usage | None:
        """Return the usage that an adapter reports; ignore one that is malformed or implausible with a warning."""
        try:
            usage = msgspec.convert(msgspec.to_builtins(reply.usage), kinds.Usage)
        except (msgspec.ValidationError, TypeError):
            usage = None
        if usage is None or usage.total > MAX_USAGE:
            self.warnings.append(f"model `{name}` reported invalid token counts: {reply.usage!r:.200}")
            return None
        return usage


_transcripts: WeakKeyDictionary[Roster, RenderedMessages] = WeakKeyDictionary()
"""The transcripts of runs that this process executes, in which a conversation with many turns continues."""


def _estimate(request: ModelRequest) -> int:
    """Return the tokens that a call may use: its prompt, at four characters a token, and the longest answer."""
    return sum(len(message.text) for message in request.messages) // 4 + request.max_tokens


def _check_reply(reply: ModelAnswer, request: ModelRequest) -> None:
    """Check a reply for mistakes that a model written in Python may contain.

    Raises:
        TypeError: If a part of it is not a text, or if it has tool calls and was not asked for them.
    """
    if not isinstance(reply.text, str):
        raise TypeError(f"`ModelAnswer.text` must be a str, not {type(reply.text).__name__}")
    if reply.thoughts is not None:
        if not isinstance(reply.thoughts, Thoughts):
            raise TypeError(f"`ModelAnswer.thoughts` must be `Thoughts`, not {type(reply.thoughts).__name__}")
        encode_thoughts(reply.thoughts, "", str)  # raises an error if a part is no JSON
    if reply.tool_calls and request.answer_form != "tools":
        raise TypeError(f"it returned tool calls, but was asked for an answer in the form `{request.answer_form}`")
    for call in reply.tool_calls:
        for part in (call.id, call.name, call.arguments):
            if not isinstance(part, str):
                raise TypeError(f"the fields of a `ToolCall` must be str, not {type(part).__name__}")


def _is_complete(usage: kinds.Usage, answer: ModelAnswer) -> bool:
    """Return whether a usage counts both the prompt, which is never empty, and the answer."""
    return usage.input_tokens > 0 and (usage.output_tokens > 0 or not (answer.text or answer.tool_calls))


def _current(name: str, state: RunState) -> str:
    """Return the model that replaced `name` earlier in this run, or `name` itself."""
    seen = {name}
    while (other := state.switched.get(name)) is not None and other not in seen:
        name = other
        seen.add(name)
    return name


def _is_retried(error: ModelError, failures: int, retries: int) -> bool:
    return error.is_transient and failures <= retries and (error.retry_after or 0.0) <= _MAX_RETRY_AFTER


def _delay(failures: int, retry_after: float | None) -> float:
    """Return the delay before the next attempt: `Retry-After`, or exponential backoff with jitter."""
    if retry_after is not None:
        return retry_after
    ceiling: float = min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** (failures - 1))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
