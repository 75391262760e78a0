"""A pytest suite that every model adapter must pass. Subclass it in a test module:

    class TestMyModel(ModelConformance):
        def make_model(self):
            return MyModel()

        def make_broken_model(self):
            return MyModel(url="http://127.0.0.1:1")

Real models are slow, so all tests share one series of calls with `REQUEST`: the first is cancelled, the others run
concurrently. A fake should block the first call and answer the others with `ANSWER`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

import msgspec

from reyn.errors import ModelError
from reyn.journal.kinds import Usage
from reyn.jsonschema import compile_schema
from reyn.models import ClosableModel, Message, Model, ModelAnswer, ModelRequest, OutputMode
from reyn.models.answers import to_answer

if TYPE_CHECKING:
    T = TypeVar("T")

CONTRACT: dict[str, Any] = {
    "type": "object",
    "properties": {"word": {"type": "string", "minLength": 1, "maxLength": 12}},
    "required": ["word"],
    "additionalProperties": False,
}
REQUEST = ModelRequest(
    (Message("system", 'Answer in JSON: {"word": "…"}'), Message("user", "Say a word.")),
    CONTRACT,
    run_id="conformance",
    call="1.1",
    request_hash="0" * 64,
)
ANSWER = '{"word": "yes"}'


class CallSeries(msgspec.Struct, frozen=True):
    """The results of the shared calls.

    Attributes:
        was_running: Whether the first call was still running when it was cancelled.
        was_cancelled: Whether the cancellation ended it.
        cancel_seconds: The time from the cancellation to the end of the call.
        replies: The replies to the concurrent calls.
    """

    was_running: bool
    was_cancelled: bool
    cancel_seconds: float
    replies: list[ModelAnswer]


_SERIES: dict[type, CallSeries] = {}


class ModelConformance:
    """Tests for a model. Override `make_model` and `make_broken_model`, and the attributes where needed.

    Attributes:
        timeout_seconds: Limit for all calls together.
        max_cancel_seconds: Limit for the end of a cancelled call; generous, so that a busy machine fails no good model.
        concurrency: Number of concurrent calls.
    """

    timeout_seconds: ClassVar[float] = 60.0
    max_cancel_seconds: ClassVar[float] = 10.0
    concurrency: ClassVar[int] = 2

    def make_model(self) -> Model:
        """Return the model to test."""
        raise NotImplementedError

    def make_broken_model(self) -> Model:
        """Return a model that cannot answer, or raise a `ModelError`."""
        raise NotImplementedError

    async def wait_until_started(self) -> None:
        """Return when the first call is to be cancelled: by default at its first suspension.

        Override it if the model, or the server behind it, can report that it is working on the call.
        """
        await asyncio.sleep(0)

    def reopen(self, name: str) -> Model | None:
        """Return the model that the catalog opens for a name, or `None` if names open nothing."""
        return None

    # -- answers --------------------------------------------------------------------------------------

    def test_a_small_contract_is_answered_with_text(self) -> None:
        reply = self.series().replies[0]
        assert isinstance(reply, ModelAnswer)
        assert isinstance(reply.text, str)
        assert reply.text

    def test_a_constrained_answer_satisfies_the_contract(self) -> None:
        for reply in self.series().replies:
            if reply.mode in ("grammar", "json_schema"):
                assert compile_schema(CONTRACT).first_error(msgspec.json.decode(reply.text)) is None

    def test_the_reply_names_its_output_mode(self) -> None:
        assert self.series().replies[0].mode in get_args(OutputMode)

    def test_token_counts_are_positive_or_missing(self) -> None:
        usage = self.series().replies[0].usage
        if usage is not None:
            counts = msgspec.convert(msgspec.to_builtins(usage), Usage)
            assert counts.input_tokens > 0
            assert counts.output_tokens > 0

    def test_concurrent_calls_are_all_answered(self) -> None:
        replies = self.series().replies
        assert len(replies) == self.concurrency
        assert all(reply.text for reply in replies)

    # -- errors ---------------------------------------------------------------------------------------

    def test_a_cancelled_call_ends_soon(self) -> None:
        series = self.series()
        assert series.was_cancelled or not series.was_running
        assert series.cancel_seconds < self.max_cancel_seconds

    def test_failures_are_model_errors(self) -> None:
        async def complete(model: Model) -> ModelAnswer:
            return to_answer(await model.complete(REQUEST), REQUEST)

        failure: ModelError | None = None
        try:
            self._run(self.make_broken_model, complete)
        except ModelError as error:
            failure = error
        assert failure is not None, "a broken model answered"
        assert failure.message
        assert failure.code.startswith("RYN5")

    # -- the name -------------------------------------------------------------------------------------

    def test_the_name_reopens_the_model(self) -> None:
        model = self.make_model()
        assert model.name
        reopened = self.reopen(model.name)
        if reopened is not None:
            assert (reopened.name, type(reopened)) == (model.name, type(model))

    # -- the shared calls -----------------------------------------------------------------------------

    def series(self) -> CallSeries:
        """Return the results of the shared calls, which are made once per class."""
        if type(self) not in _SERIES:
            _SERIES[type(self)] = self._run(self.make_model, self._make_calls)
        return _SERIES[type(self)]

    async def _make_calls(self, model: Model) -> CallSeries:
        first = asyncio.ensure_future(model.complete(REQUEST))
        await self.wait_until_started()
        was_running, cancelled_at = not first.done(), time.monotonic()
        first.cancel()
        await asyncio.wait([first])
        seconds = time.monotonic() - cancelled_at
        if not first.cancelled():
            first.result()
        replies = await asyncio.gather(*(model.complete(REQUEST) for _ in range(self.concurrency)))
        answers = [to_answer(reply, REQUEST) for reply in replies]
        return CallSeries(was_running, first.cancelled(), seconds, answers)

    def _run(self, make: Callable[[], Model], use: Callable[[Model], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            model = make()
            try:
                return await asyncio.wait_for(use(model), self.timeout_seconds)
            finally:
                if isinstance(model, ClosableModel):
                    await model.aclose()

        return asyncio.run(main())
