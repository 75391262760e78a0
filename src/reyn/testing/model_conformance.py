"""What every model must do, as tests. Subclass it where pytest collects:

    class TestMyModel(ModelConformance):
        def make_model(self):
            return MyModel()

        def make_broken_model(self):
            return MyModel(url="http://127.0.0.1:1")

A real model is slow, so it is asked once for all tests: a first call is given up, then others are made at once. Each
asks `REQUEST`; a fake keeps the first waiting and gives the others `ANSWER`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

import msgspec

from reyn.errors import ModelError
from reyn.journal.kinds import Usage
from reyn.jsonschema import compile_schema
from reyn.models import ClosableModel, Message, Mode, ModelReply, ModelRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from reyn.models import Model

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


class Asked(msgspec.Struct, frozen=True):
    """What came of the calls: whether the first was still at work when it was given up, whether it heard of it, how
    long it then went on, and what the others said."""

    was_at_work: bool
    was_cancelled: bool
    seconds: float
    replies: list[ModelReply]


_ASKED: dict[type, Asked] = {}


class ModelConformance:
    patience: ClassVar[float] = 60.0
    """Seconds for all calls together."""
    begins: ClassVar[float] = 0.3
    """Seconds after which the first call is given up."""
    stops: ClassVar[float] = 10.0
    """Seconds that it may go on then. Generous: a busy machine must not fail a model that does stop."""
    at_once: ClassVar[int] = 2

    def make_model(self) -> Model:
        raise NotImplementedError  # the subclass makes the model that is tested

    def make_broken_model(self) -> Model:
        """One that cannot answer: nobody is there, or its file is broken. To raise a `ModelError` here will do."""
        raise NotImplementedError  # as above

    async def begun(self) -> None:
        """Return when the first call is under way; a fake that counts calls can tell, a real model gets a moment."""
        await asyncio.sleep(self.begins)

    def make_again(self, name: str) -> Model | None:
        """The model of a name, as the catalogue opens it; nothing where names open nothing."""
        return None

    # -- what is answered -----------------------------------------------------------------------------

    def test_a_small_contract_is_answered_with_text(self) -> None:
        reply = self.asked().replies[0]
        assert isinstance(reply, ModelReply)
        assert isinstance(reply.text, str)
        assert reply.text

    def test_an_answer_that_was_held_to_the_contract_fits_it(self) -> None:
        for reply in self.asked().replies:
            if reply.mode in ("grammar", "json_schema"):
                assert compile_schema(CONTRACT).first_error(msgspec.json.decode(reply.text)) is None

    def test_it_says_how_it_was_held_to_the_contract(self) -> None:
        assert self.asked().replies[0].mode in get_args(Mode)

    def test_it_counts_its_tokens_or_says_that_it_does_not(self) -> None:
        usage = self.asked().replies[0].usage
        if usage is not None:
            counted = msgspec.convert(msgspec.to_builtins(usage), Usage)
            assert counted.input_tokens > 0
            assert counted.output_tokens > 0

    def test_calls_at_once_are_all_answered(self) -> None:
        replies = self.asked().replies
        assert len(replies) == self.at_once
        assert all(reply.text for reply in replies)

    # -- what is not ----------------------------------------------------------------------------------

    def test_a_call_that_is_given_up_ends_soon(self) -> None:
        asked = self.asked()
        assert asked.was_cancelled or not asked.was_at_work
        assert asked.seconds < self.stops

    def test_what_goes_wrong_is_a_model_error(self) -> None:
        async def ask(model: Model) -> ModelReply:
            return await model.complete(REQUEST)

        wrong: ModelError | None = None
        try:
            self._with(self.make_broken_model, ask)
        except ModelError as error:
            wrong = error
        assert wrong is not None, "a broken model answered"
        assert wrong.message
        assert wrong.code.startswith("RYN5")

    # -- its name -------------------------------------------------------------------------------------

    def test_its_name_opens_it_again(self) -> None:
        model = self.make_model()
        assert model.name
        again = self.make_again(model.name)
        if again is not None:
            assert (again.name, type(again)) == (model.name, type(model))

    # -- how it is asked ------------------------------------------------------------------------------

    def asked(self) -> Asked:
        if type(self) not in _ASKED:
            _ASKED[type(self)] = self._with(self.make_model, self._ask)
        return _ASKED[type(self)]

    async def _ask(self, model: Model) -> Asked:
        first = asyncio.ensure_future(model.complete(REQUEST))
        await self.begun()
        was_at_work, begun = not first.done(), time.monotonic()
        first.cancel()
        await asyncio.wait([first])
        seconds = time.monotonic() - begun
        if not first.cancelled():
            first.result()
        replies = await asyncio.gather(*(model.complete(REQUEST) for _ in range(self.at_once)))
        return Asked(was_at_work, first.cancelled(), seconds, replies)

    def _with(self, make: Callable[[], Model], ask: Callable[[Model], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            model = make()
            try:
                return await asyncio.wait_for(ask(model), self.patience)
            finally:
                if isinstance(model, ClosableModel):
                    await model.aclose()

        return asyncio.run(main())
