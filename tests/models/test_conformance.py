"""The suite for models, against the adapters that are here: on a fake server, and on the small model itself."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from reyn.config import ModelSettings
from reyn.contract import Candidate, Contract, Rejected, offered_ops
from reyn.errors import ModelTimeout
from reyn.journal import MemoryJournal
from reyn.journal.kinds import Usage
from reyn.models import Message, Model, ModelReply, ModelRequest
from reyn.models.local import LocalModel
from reyn.models.openai import OpenAIModel
from reyn.models.roster import Roster
from reyn.secrets import MemoryStore, Secrets
from reyn.testing import ModelConformance
from reyn.testing.model_conformance import ANSWER
from tests.models.calling import KEY
from tests.models.fake_server import FakeServer, Manner, good, silence
from tests.models.small_model import WEIGHTS, real
from tests.support import VOCABULARY

pytest.importorskip("openai")

NOBODY = "http://127.0.0.1:9/v1"


def opened(name: str, settings: ModelSettings) -> Model:
    secrets = Secrets([MemoryStore({"FAR_KEY": KEY})])
    return Roster({name: settings}, Path.cwd(), MemoryJournal(), lambda: secrets).open(name)


# -- without a model ----------------------------------------------------------------------------------


class _OnServer(ModelConformance):
    """The adapter `openai` on whatever server a subclass names."""

    url: str

    @property
    def settings(self) -> ModelSettings:
        return ModelSettings("openai:m", base_url=self.url, key="secret://FAR_KEY", max_tokens=32)

    def make_model(self) -> Model:
        secrets = Secrets([MemoryStore({"FAR_KEY": KEY})])
        return OpenAIModel("far", "m", self.settings, lambda: secrets)

    def make_broken_model(self) -> Model:
        return OpenAIModel("far", "m", ModelSettings("openai:m", base_url=NOBODY), lambda: Secrets([]))

    def make_again(self, name: str) -> Model:
        return opened(name, self.settings)


class _OnFakeServer(_OnServer):
    manners: ClassVar[tuple[Manner, ...]]

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        with FakeServer(*self.manners) as server:
            self.url, self.server = server.url, server
            yield

    async def begun(self) -> None:
        await asyncio.to_thread(self.server.wait_for, lambda: bool(self.server.asked))


@pytest.mark.sockets
class TestOpenAI(_OnFakeServer):
    manners = (silence, good(ANSWER))


@pytest.mark.sockets
class TestOpenAIWithoutSchemas(_OnFakeServer):
    """The same on a server that takes no schema and counts nothing."""

    @property
    def settings(self) -> ModelSettings:
        return ModelSettings("openai:m", base_url=self.url, key="secret://FAR_KEY", mode="free")

    manners = (silence, good("Sure: yes", usage=None))

    def make_broken_model(self) -> Model:
        """Its key is not stored."""
        return OpenAIModel("far", "m", self.settings, lambda: Secrets([]))


# -- the small model ----------------------------------------------------------------------------------


@functools.cache
def http_server() -> Any:
    """llama.cpp's own server, with the small model behind it; for the rest of the process."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(WEIGHTS)
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) - 1)
    params.api_keys = [KEY]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.warmup = False
    params.verbosity = 0
    return xllamacpp.Server(params)


@real
class TestOpenAIOnTheSmallModel(_OnServer):
    at_once = 1

    @property
    def url(self) -> str:
        return f"{http_server().listening_address}/v1"

    def make_broken_model(self) -> Model:
        """The server is there, but wants another key."""
        secrets = Secrets([MemoryStore({"FAR_KEY": "another-key"})])
        return OpenAIModel("far", "m", self.settings, lambda: secrets)


NOTE = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 20}},
    "required": ["text"],
    "additionalProperties": False,
}
BRANCHES = Contract(
    (Candidate("more", "transition", "note", NOTE, "Go on."), Candidate("end", "finish", "note", NOTE, "Finish.")),
    offered_ops(VOCABULARY, ("ask_user",)),
)


def held_to_branches(model: Model) -> None:
    """Through an adapter, the small model gives an answer that the contract of a phase takes, mark for mark."""
    messages = (Message("system", "Write a note of one word."), Message("user", "Finish. The word is blue."))
    request = ModelRequest(messages, BRANCHES.schema, "k", "1.1", "0" * 64)
    with asyncio.Runner() as runner:
        reply = runner.run(model.complete(request))
        if isinstance(model, OpenAIModel):
            runner.run(model.aclose())
    assert reply.mode in ("grammar", "json_schema")
    assert not isinstance(BRANCHES.judge(reply.text), Rejected)


@real
def test_a_contract_with_branches_and_ops_is_kept_by_the_server_of_llama_cpp():
    secrets = Secrets([MemoryStore({"FAR_KEY": KEY})])
    url = f"{http_server().listening_address}/v1"
    settings = ModelSettings("openai:m", base_url=url, key="secret://FAR_KEY", max_tokens=200)
    held_to_branches(OpenAIModel("far", "m", settings, lambda: secrets))


@real
def test_a_contract_with_branches_and_ops_is_kept_in_the_process():
    settings = ModelSettings("local", max_tokens=200, context_tokens=512)
    held_to_branches(LocalModel.found("local", "", settings, Path.cwd()))


@real
def test_a_call_that_is_given_up_while_it_reads_leaves_the_model_free():
    """The next call does not wait until a long prompt is read."""
    model = LocalModel.found("local", "", ModelSettings("local", max_tokens=4, context_tokens=4096), Path.cwd())
    long = ModelRequest((Message("user", f"{os.urandom(4).hex()} one two three " * 400),), {}, "k", "1.1", "0" * 64)
    short = ModelRequest((Message("user", "hi"),), {}, "k", "1.2", "0" * 64)

    async def give_up() -> float:
        await model.complete(short)
        asking = asyncio.ensure_future(model.complete(long))
        await asyncio.sleep(1.5)  # a moment to begin in; how far it got does not matter
        asking.cancel()
        begun = time.process_time()
        await model.complete(short)
        return time.process_time() - begun

    assert asyncio.run(give_up()) < 30  # of CPU time; reading all of it takes more than a minute on each core


@real
class TestLocal(ModelConformance):
    settings = ModelSettings("local", max_tokens=32, context_tokens=512)

    def make_model(self) -> Model:
        return LocalModel.found("local", "", self.settings, Path.cwd())

    def make_broken_model(self) -> Model:
        return LocalModel("broken", Path(__file__), self.settings)

    def make_again(self, name: str) -> Model:
        return opened(name, self.settings)


# -- the suite itself ---------------------------------------------------------------------------------


class Sound:
    """Keeps the first call waiting and answers the others."""

    name = "sound"

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.calls += 1
        if self.calls == 1:
            await asyncio.sleep(30)
        return ModelReply(ANSWER, Usage(1, 1), "grammar")


class SaysNoMode(Sound):
    async def complete(self, request: ModelRequest) -> ModelReply:
        return msgspec.structs.replace(await super().complete(request), mode=None)


class BreaksItsContract(Sound):
    async def complete(self, request: ModelRequest) -> ModelReply:
        return msgspec.structs.replace(await super().complete(request), text='{"words": 7}')


class CountsInWords(Sound):
    async def complete(self, request: ModelRequest) -> ModelReply:
        return msgspec.structs.replace(await super().complete(request), usage=Usage("one", "one"))


class CannotBeStopped(Sound):
    async def complete(self, request: ModelRequest) -> ModelReply:
        with contextlib.suppress(asyncio.CancelledError):
            return await super().complete(request)
        await asyncio.sleep(0.05)
        return ModelReply(ANSWER, None, "grammar")


class ChangesItsName(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.name = f"sound-{id(self)}"


class AnswersOnce(Sound):
    async def complete(self, request: ModelRequest) -> ModelReply:
        reply = await super().complete(request)
        return reply if self.calls == 2 else msgspec.structs.replace(reply, text="")


class Broken(Sound):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def complete(self, request: ModelRequest) -> ModelReply:
        raise self.error


def failing(model: type[Sound], error: Exception) -> set[str]:
    """The tests of the suite that a model does not pass."""

    class Suite(ModelConformance):
        begins = 0.01

        def make_model(self) -> Model:
            return model()

        def make_broken_model(self) -> Model:
            return Broken(error)

        def make_again(self, name: str) -> Model:
            return model()

    failed = set()
    for name in (name for name in dir(Suite) if name.startswith("test_")):
        try:
            getattr(Suite(), name)()
        except (AssertionError, ValueError, msgspec.ValidationError):
            failed.add(name.removeprefix("test_"))
    return failed


@pytest.mark.parametrize(
    ("model", "error", "failed"),
    [
        (Sound, ModelTimeout("late"), set()),
        (SaysNoMode, ModelTimeout("late"), {"it_says_how_it_was_held_to_the_contract"}),
        (BreaksItsContract, ModelTimeout("late"), {"an_answer_that_was_held_to_the_contract_fits_it"}),
        (CountsInWords, ModelTimeout("late"), {"it_counts_its_tokens_or_says_that_it_does_not"}),
        (CannotBeStopped, ModelTimeout("late"), {"a_call_that_is_given_up_ends_soon"}),
        (ChangesItsName, ModelTimeout("late"), {"its_name_opens_it_again"}),
        (
            AnswersOnce,
            ModelTimeout("late"),
            {"calls_at_once_are_all_answered", "an_answer_that_was_held_to_the_contract_fits_it"},
        ),
        (Sound, ValueError("late"), {"what_goes_wrong_is_a_model_error"}),
        (Sound, ModelTimeout(""), {"what_goes_wrong_is_a_model_error"}),
    ],
)
def test_the_suite_finds_what_is_wrong_with_a_model(model: type[Sound], error: Exception, failed: set[str]):
    assert failing(model, error) == failed
