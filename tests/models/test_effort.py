"""`effort`: what each provider is sent, room for thoughts in `max_tokens`, and efforts that a model does not have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reyn import OSRuntime, SyncRuntime
from reyn.config.load import load_config
from reyn.config.models import ModelSettings
from reyn.errors import ConfigInvalid, FunctionInvalid, ModelError, ReynError
from reyn.functions import OpenAICompatible, llm_chat, llm_function
from reyn.models import Message, ModelRequest, ToolCall
from reyn.models.catalog import remote_class
from reyn.models.litellm import LiteLLMModel
from reyn.models.local import LocalModel
from reyn.models.protocol import PLAIN_TEXT
from reyn.models.remote import is_about
from reyn.secrets import Secrets
from tests.functions.support import Answers, value
from tests.models.calling import ONE
from tests.models.dialects import DIALECTS, Dialect, ProviderCaller, require
from tests.models.fake_server import FakeServer
from tests.support import finish, write_skill

EFFORTS = (None, "none", "low", "medium", "high", 3000)
TOKENS = {None: 0, "none": 0, "low": 2048, "medium": 8192, "high": 24_576, 3000: 3000}
REFUSED = {
    "openai": "Unsupported value: 'reasoning_effort' does not support 'low' with this model.",
    "litellm": "Unrecognized request argument supplied: reasoning_effort",
    "anthropic": "thinking: this model does not think",
    "gemini": "Thinking is not supported for this model.",
}
LEVEL_REFUSED = {
    "anthropic": (
        "adaptive thinking is not supported on this model",
        "This model does not support the effort parameter.",
    ),
    "gemini": ("Thinking level is not supported for this model.",),
}
HI = (Message("user", "hi"),)
CALLED = (
    *HI,
    Message("assistant", "", tool_calls=(ToolCall("c1", "look", "{}"),)),
    Message("tool", "x", tool_call_id="c1"),
)


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.adapter)
def far(request: pytest.FixtureRequest, tmp_path: Path, server: FakeServer, guarded: Any) -> Iterator[ProviderCaller]:
    dialect: Dialect = request.param
    require(dialect.package)
    with guarded(ProviderCaller(tmp_path, server, dialect)) as caller:
        yield caller


class Sent(NamedTuple):
    effort: Any
    most: int
    temperature: Any


def sent(adapter: str, body: dict[str, Any]) -> Sent:
    """Return what a request says about thinking, in the words of `effort`."""
    if adapter == "anthropic":
        thinking = body.get("thinking")
        kind = thinking["type"] if thinking else None
        levels = {None: None, "disabled": "none", "adaptive": body.get("output_config", {}).get("effort")}
        effort = thinking["budget_tokens"] if kind == "enabled" else levels[kind]
        return Sent(effort, body["max_tokens"], body.get("temperature"))
    if adapter == "gemini":
        config = body["generationConfig"]
        thinking = config.get("thinkingConfig")
        effort = None if thinking is None else thinking.get("thinkingLevel", thinking.get("thinkingBudget"))
        assert thinking is None or thinking.get("includeThoughts", False) == (effort != 0)
        return Sent("none" if effort == 0 else effort, config["maxOutputTokens"], config.get("temperature"))
    budget = body.get("thinking", {}).get("budget_tokens")
    limit = body.get("max_tokens", body.get("max_completion_tokens"))
    return Sent(budget or body.get("reasoning_effort"), limit, body.get("temperature"))


def accepts(adapter: str, effort: Any) -> bool:
    return adapter != "openai" or not isinstance(effort, int)


def model_of(adapter: str, **settings: Any) -> Any:
    found: Any = remote_class(adapter)
    require("openai" if adapter == "litellm" else "httpx2")
    if adapter == "litellm":
        found = type("Unloaded", (LiteLLMModel,), {"import_sdk": classmethod(lambda _: object())})
    return found("far", "m", ModelSettings(f"{adapter}:m", **settings), lambda: Secrets([]))


def body_of(model: Any, messages: tuple[Message, ...] = HI, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages, PLAIN_TEXT, "k", "1.1", "0" * 64, **fields)
    body: dict[str, Any] = model._body(request, *model._format_of(request))
    return body


# -- what is sent --------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ["openai", "anthropic", "gemini", "litellm"])
def test_each_provider_is_sent_the_effort_of_the_call_or_else_of_the_model(adapter: str):
    for own, asked in product(EFFORTS, EFFORTS):
        effort = own if asked is None else asked
        model = model_of(adapter, effort=own, max_tokens=100)
        if not accepts(adapter, effort):
            with pytest.raises(ModelError) as caught:
                body_of(model, effort=asked)
            assert (caught.value.code, caught.value.own_hint) == ("RYN535", "Use `none`, `low`, `medium` or `high`.")
            continue
        body = body_of(model, effort=asked)
        fixes_temperature = adapter == "openai" and effort not in (None, "none")
        temperature = None if adapter == "anthropic" or fixes_temperature else 0
        assert sent(adapter, body) == (effort, 100 + TOKENS[effort], temperature)


def test_litellm_drops_no_effort_silently():
    for effort, field in (("low", "reasoning_effort"), (3000, "thinking")):
        body = body_of(model_of("litellm"), effort=effort)
        assert (body["allowed_openai_params"], field in body, body["drop_params"]) == ([field], True, True)


def test_servers_other_than_openai_s_keep_the_temperature():
    assert body_of(model_of("openai", base_url="http://127.0.0.1:9/v1"), effort="low")["temperature"] == 0


def test_anthropic_gets_no_budget_after_calls_without_thoughts():
    """Its API would reject the request."""
    model = model_of("anthropic")
    assert "thinking" not in body_of(model, CALLED, effort=3000)
    assert body_of(model, CALLED, effort="low")["thinking"]["type"] == "adaptive"
    assert body_of(model, (*CALLED, *HI), effort=3000)["thinking"]["type"] == "enabled"


@pytest.mark.sockets
def test_a_phase_takes_precedence_over_the_model(far: ProviderCaller):
    far.configure(effort="high")
    write_skill(far.root, ONE, {"only": ["end"]}, phase_keys={"only": "effort: low\n"})
    write_skill(far.root, "plain", {"only": ["end"]})
    far.server.then(far.dialect.good(finish()))
    assert (far.run().status, far.run("plain", "k2").status) == ("finished", "finished")
    first, second = (sent(far.dialect.adapter, request.body) for request in far.server.requests)
    assert (first.effort, first.most, second.effort, second.most) == ("low", 1024 + 2048, "high", 1024 + 24_576)


def test_functions_and_chats_pass_their_effort_on(tmp_path: Path):
    model = Answers(value("x"))
    (tmp_path / "reyn.yaml").write_text("{}")
    with SyncRuntime.open(tmp_path, model=model) as rt:
        for effort in EFFORTS:

            @llm_function(runtime=rt, effort=effort)
            def title(text: str) -> str:
                """Give the text a title."""
                raise NotImplementedError

            assert title("text") == "x"
    assert [(one.effort, one.max_tokens) for one in model.requests] == [(one, 1024 + TOKENS[one]) for one in EFFORTS]


def test_chats_pass_their_effort_on(tmp_path: Path):
    model = Answers(finish("hello", "message"))

    async def say() -> None:
        async with OSRuntime.open(tmp_path, model=model) as rt:

            @llm_chat(effort="low", runtime=rt)
            async def talk(message: str) -> str:
                """Be kind."""

            with suppress(ModelError, ReynError):
                await talk("hi")

    (tmp_path / "reyn.yaml").write_text("{}")
    asyncio.run(say())
    assert {(one.effort, one.max_tokens) for one in model.requests} == {("low", 1024 + 2048)}


# -- efforts that are not possible ---------------------------------------------------------------------


@pytest.mark.sockets
def test_an_effort_that_the_provider_rejects_is_explained_and_the_run_goes_on_with_another(far: ProviderCaller):
    adapter = far.dialect.adapter
    far.configure(effort="low")
    far.server.then(far.dialect.status(400, REFUSED[adapter]))
    result = far.run()
    assert (result.status, far.codes("llm_failed")) == ("failed", ["RYN535"])
    assert REFUSED[adapter] in result.reason
    assert "`effort: low`" in result.reason
    assert "Remove `effort`" in (result.hint or "")
    far.configure()
    far.server.then(far.dialect.good(finish()))
    assert far.retry().status == "finished"
    assert sent(adapter, far.server.requests[-1].body).effort is None


@pytest.mark.sockets
@pytest.mark.parametrize("message", [0, 1])
def test_a_model_without_levels_is_sent_a_budget_and_the_change_is_recorded(far: ProviderCaller, message: int):
    adapter = far.dialect.adapter
    if message >= len(LEVEL_REFUSED.get(adapter, ())):
        pytest.skip("its API has no budgets, or its models say it in one way")
    far.configure(effort="medium", retries=0)
    far.server.then(far.dialect.status(400, LEVEL_REFUSED[adapter][message]), far.dialect.good(finish()))
    assert far.run().status == "finished"
    [retried] = far.events("model_retried")
    assert (retried["instead"], retried["code"]) == ("thinking budget", "RYN514")
    assert sent(adapter, far.server.requests[-1].body).effort == 8192


@pytest.mark.sockets
def test_a_rejected_effort_lets_a_fallback_answer(far: ProviderCaller):
    dialect = far.dialect
    name = "openai/m" if dialect.adapter == "litellm" else "m"
    spare = {"model": f"{dialect.adapter}:{name}", "base_url": dialect.url(far.server.url), "answer_form": "full"}
    far.configure({"spare": spare | {"key": "secret://FAR_KEY"}}, effort="none", fallback=["spare"])
    far.server.then(dialect.status(400, REFUSED[dialect.adapter]), dialect.good(finish()))
    assert far.run().status == "finished"
    [switched] = far.events("model_switched")
    assert (switched["code"], switched["to"]) == ("RYN535", "spare")


def test_a_schema_with_a_field_of_this_name_is_no_rejected_effort():
    assert not is_about("effort", "Invalid schema for response_format: In context=('properties', 'effort'), …")
    assert is_about("effort", REFUSED["openai"])


def test_a_local_model_says_that_it_does_not_think(tmp_path: Path):
    model = LocalModel("local", tmp_path / "none.gguf", ModelSettings("local", effort="low"))
    for effort in (None, "low", 3000):
        with pytest.raises(ModelError, match="lets no local model think") as caught:
            model._check_effort(ModelRequest(HI, {}, "k", "1.1", "0" * 64, effort=effort))
        assert caught.value.code == "RYN535"
    model._check_effort(ModelRequest(HI, {}, "k", "1.1", "0" * 64, effort="none"))


@pytest.mark.parametrize("effort", ["max", "", 0, -1, 1_000_001, 1.5, True, ["low"]])
def test_an_effort_that_does_not_exist_is_an_error_where_it_is_written(tmp_path: Path, effort: Any):
    (tmp_path / "reyn.yaml").write_text(json.dumps({"models": {"far": {"model": "openai:m", "effort": effort}}}))
    with pytest.raises(ConfigInvalid) as caught:
        load_config(tmp_path)
    assert "effort" in str(caught.value.findings[0])
    with pytest.raises(FunctionInvalid, match="effort"):
        OpenAICompatible("m", effort=effort)
    with pytest.raises(FunctionInvalid, match="effort"):

        @llm_function(effort=effort)
        def title(text: str) -> str:
            """Give the text a title."""
            raise NotImplementedError


def test_the_window_leaves_room_for_thoughts():
    settings = ModelSettings("openai:m", context_tokens=20_000, effort="medium")
    assert settings.max_prompt_tokens == 20_000 - 1024 - 8192
    assert (settings.answer_tokens("none"), settings.answer_tokens("low")) == (1024, 1024 + 2048)
