"""The conformance suite on all adapters, against a fake server and the real local model."""

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
from reyn.models import Message, Model, ModelAnswer, ModelRequest, TokenizingModel
from reyn.models.local import LocalModel
from reyn.models.openai import OpenAIModel
from reyn.models.roster import Roster
from reyn.secrets import MemoryStore, Secrets
from reyn.testing import ModelConformance
from reyn.testing.model_conformance import ANSWER
from tests.models.calling import KEY
from tests.models.dialects import AnthropicDialect, Dialect, GeminiDialect, LiteLLMDialect, require
from tests.models.fake_server import Behavior, FakeServer, good, silence
from tests.models.small_model import WEIGHTS, real
from tests.support import VOCABULARY

pytest.importorskip("openai")

UNREACHABLE = "http://127.0.0.1:9/v1"


def opened(name: str, settings: ModelSettings) -> Model:
    secrets = Secrets([MemoryStore({"FAR_KEY": KEY})])
    return Roster({name: settings}, Path.cwd(), MemoryJournal, lambda: secrets).open(name)


# -- on a fake server ----------------------------------------------------------------------------------


class _OnServer(ModelConformance):
    """The `openai` adapter on the server of a subclass."""

    url: str

    @property
    def settings(self) -> ModelSettings:
        return ModelSettings("openai:m", base_url=self.url, key="secret://FAR_KEY", max_tokens=32)

    def make_model(self) -> Model:
        secrets = Secrets([MemoryStore({"FAR_KEY": KEY})])
        return OpenAIModel("far", "m", self.settings, lambda: secrets)

    def make_broken_model(self) -> Model:
        return OpenAIModel("far", "m", ModelSettings("openai:m", base_url=UNREACHABLE), lambda: Secrets([]))

    def reopen(self, name: str) -> Model:
        return opened(name, self.settings)


class _OnFakeServer(_OnServer):
    behaviors: ClassVar[tuple[Behavior, ...]]

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        with FakeServer(*self.behaviors) as server:
            self.url, self.server = server.url, server
            yield

    async def wait_until_started(self) -> None:
        await asyncio.to_thread(self.server.wait_for, lambda: bool(self.server.requests))


@pytest.mark.sockets
class TestOpenAI(_OnFakeServer):
    behaviors = (silence, good(ANSWER))


@pytest.mark.sockets
class TestOpenAIWithoutSchemas(_OnFakeServer):
    """The same without a schema and without token counts."""

    @property
    def settings(self) -> ModelSettings:
        return ModelSettings("openai:m", base_url=self.url, key="secret://FAR_KEY", mode="free")

    behaviors = (silence, good("Sure: yes", usage=None))

    def make_broken_model(self) -> Model:
        """Return a model whose key is not stored."""
        return OpenAIModel("far", "m", self.settings, lambda: Secrets([]))


# -- other providers ------------------------------------------------------------------------------------


class _OnDialect(_OnFakeServer):
    """An adapter on a fake server that speaks its API."""

    dialect: ClassVar[Dialect]
    name = "m"

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        require(self.dialect.package)
        with FakeServer(silence, self.dialect.good(ANSWER)) as server:
            self.url, self.server = self.dialect.url(server.url), server
            yield

    @property
    def settings(self) -> ModelSettings:
        model = f"{self.dialect.adapter}:{self.name}"
        return ModelSettings(model, base_url=self.url, key="secret://FAR_KEY", max_tokens=32)

    def make_model(self) -> Model:
        return opened("far", self.settings)

    def make_broken_model(self) -> Model:
        return opened("far", msgspec.structs.replace(self.settings, base_url="http://127.0.0.1:9"))


@pytest.mark.sockets
class TestAnthropic(_OnDialect):
    dialect = AnthropicDialect()


@pytest.mark.sockets
class TestGemini(_OnDialect):
    dialect = GeminiDialect()


@pytest.mark.sockets
@pytest.mark.filterwarnings("ignore")
class TestLiteLLM(_OnDialect):
    dialect = LiteLLMDialect()
    name = "openai/m"


# -- on the real local model ----------------------------------------------------------------------------------


@functools.cache
def http_server() -> Any:
    """Start llama.cpp's own server with the real local model, for the rest of the process."""
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
    concurrency = 1

    @property
    def url(self) -> str:
        return f"{http_server().listening_address}/v1"

    def make_broken_model(self) -> Model:
        """Return a model with a wrong key."""
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
    form="short",
)


def check_constrained(model: Model) -> None:
    """Check that the answer of a real model satisfies a contract with branches and ops."""
    messages = (Message("system", "Write a note of one word."), Message("user", "Finish. The word is blue."))
    request = ModelRequest(
        messages, BRANCHES.schema, "k", "1.1", "0" * 64, candidates=BRANCHES.candidates, answer_form=BRANCHES.form
    )
    with asyncio.Runner() as runner:
        reply = runner.run(model.complete(request))
        if isinstance(model, OpenAIModel):
            runner.run(model.aclose())
    assert reply.mode in ("grammar", "json_schema")
    assert not isinstance(BRANCHES.judge(reply.text, probability=reply.choice_probability), Rejected)


@real
def test_the_server_of_llama_cpp_satisfies_a_contract_with_branches_and_ops():
    secrets = Secrets([MemoryStore({"FAR_KEY": KEY})])
    url = f"{http_server().listening_address}/v1"
    settings = ModelSettings("openai:m", base_url=url, key="secret://FAR_KEY", max_tokens=200)
    check_constrained(OpenAIModel("far", "m", settings, lambda: secrets))


@real
def test_the_local_model_satisfies_a_contract_with_branches_and_ops():
    settings = ModelSettings("local", max_tokens=200, context_tokens=512)
    check_constrained(LocalModel.locate("local", "", settings, Path.cwd()))


@real
def test_the_tokenizer_of_the_local_model_counts_what_its_usage_reports():
    model = LocalModel.locate("local", "", ModelSettings("local", max_tokens=4, context_tokens=2048), Path.cwd())
    prompt = "漢字 😀 <|im_end|> and plain words. " * 4
    request = ModelRequest((Message("user", prompt),), {}, "k", "1.1", "0" * 64)

    async def count_and_ask() -> tuple[int, int]:
        counted = await model.with_tokenizer(lambda count: count(prompt))
        reply = await model.complete(request)
        assert reply.usage is not None
        return counted, reply.usage.input_tokens

    counted, reported = asyncio.run(count_and_ask())
    assert isinstance(model, TokenizingModel)
    assert 0 <= reported - counted < 40  # the tokens of the chat template, with its default system message


@real
def test_a_call_cancelled_while_reading_its_prompt_frees_the_model():
    """The next call must not wait until a long prompt has been read."""
    model = LocalModel.locate("local", "", ModelSettings("local", max_tokens=4, context_tokens=4096), Path.cwd())
    long = ModelRequest((Message("user", f"{os.urandom(4).hex()} one two three " * 400),), {}, "k", "1.1", "0" * 64)
    short = ModelRequest((Message("user", "hi"),), {}, "k", "1.2", "0" * 64)

    async def cancel_and_measure() -> float:
        await model.complete(short)
        started = time.process_time()
        call = asyncio.ensure_future(model.complete(long))
        while time.process_time() - started < 1:  # noqa: ASYNC110 - until it is reading its prompt
            await asyncio.sleep(0.01)
        call.cancel()
        started = time.process_time()
        await model.complete(short)
        return time.process_time() - started

    assert (
        asyncio.run(cancel_and_measure()) < 30
    )  # of CPU time; reading all of it takes more than a minute on each core


@real
class TestLocal(ModelConformance):
    settings = ModelSettings("local", max_tokens=32, context_tokens=512)

    def make_model(self) -> Model:
        return LocalModel.locate("local", "", self.settings, Path.cwd())

    def make_broken_model(self) -> Model:
        return LocalModel("broken", Path(__file__), self.settings)

    def reopen(self, name: str) -> Model:
        return opened(name, self.settings)


# -- the suite itself ---------------------------------------------------------------------------------


class GoodModel:
    """Blocks the first call and answers the others."""

    name = "good"

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.calls += 1
        if self.calls == 1:
            await asyncio.sleep(30)
        return ModelAnswer(ANSWER, Usage(1, 1), "grammar")


class NoMode(GoodModel):
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return msgspec.structs.replace(await super().complete(request), mode=None)


class InvalidAnswer(GoodModel):
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return msgspec.structs.replace(await super().complete(request), text='{"words": 7}')


class InvalidUsage(GoodModel):
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return msgspec.structs.replace(await super().complete(request), usage=Usage("one", "one"))


class IgnoresCancellation(GoodModel):
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        with contextlib.suppress(asyncio.CancelledError):
            return await super().complete(request)
        return ModelAnswer(ANSWER, None, "grammar")


class UnstableName(GoodModel):
    def __init__(self) -> None:
        super().__init__()
        self.name = f"good-{id(self)}"


class AnswersOnce(GoodModel):
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        reply = await super().complete(request)
        return reply if self.calls == 2 else msgspec.structs.replace(reply, text="")


class Broken(GoodModel):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        raise self.error


def failing(model: type[GoodModel], error: Exception) -> set[str]:
    """Return the tests of the suite that a model fails."""

    class Suite(ModelConformance):
        def make_model(self) -> Model:
            return model()

        def make_broken_model(self) -> Model:
            return Broken(error)

        def reopen(self, name: str) -> Model:
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
        (GoodModel, ModelTimeout("late"), set()),
        (NoMode, ModelTimeout("late"), {"the_reply_names_its_output_mode"}),
        (InvalidAnswer, ModelTimeout("late"), {"a_constrained_answer_satisfies_the_contract"}),
        (InvalidUsage, ModelTimeout("late"), {"token_counts_are_positive_or_missing"}),
        (IgnoresCancellation, ModelTimeout("late"), {"a_cancelled_call_ends_soon"}),
        (UnstableName, ModelTimeout("late"), {"the_name_reopens_the_model"}),
        (
            AnswersOnce,
            ModelTimeout("late"),
            {"concurrent_calls_are_all_answered", "a_constrained_answer_satisfies_the_contract"},
        ),
        (GoodModel, ValueError("late"), {"failures_are_model_errors"}),
        (GoodModel, ModelTimeout(""), {"failures_are_model_errors"}),
    ],
)
def test_the_suite_detects_nonconforming_models(model: type[GoodModel], error: Exception, failed: set[str]):
    assert failing(model, error) == failed
