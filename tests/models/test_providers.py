"""All adapters for model servers against a fake server that speaks each API: one behaviour, the same error codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reyn.models.protocol import decode_reply
from tests.models.calling import IN, KEY, ONE, until
from tests.models.dialects import DIALECTS, Dialect, ProviderCaller, require
from tests.models.fake_server import FakeServer, hang_up, silence, stream
from tests.support import finish, write_skill

pytestmark = pytest.mark.sockets
TALLY = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


FOREIGN_WARNINGS = {"litellm": pytest.mark.filterwarnings("ignore")}
"""LiteLLM warns of its own deprecated calls."""


@pytest.fixture(
    params=[
        pytest.param(
            one, id=one.adapter, marks=[FOREIGN_WARNINGS[one.adapter]] if one.adapter in FOREIGN_WARNINGS else []
        )
        for one in DIALECTS
    ]
)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    require(request.param.package)
    return request.param


@pytest.fixture
def far(dialect: Dialect, tmp_path: Path, server: FakeServer, guarded: Any) -> Iterator[ProviderCaller]:
    with guarded(ProviderCaller(tmp_path, server, dialect)) as caller:
        yield caller


def test_a_streamed_answer_is_recorded_with_mode_and_tokens(far: ProviderCaller, dialect: Dialect):
    far.server.then(dialect.good(finish(), usage=(100, 5, 80)))
    assert far.run().status == "finished"
    [responded] = far.events("llm_responded")
    assert responded["mode"] == "json_schema"
    counts = [responded["usage"][f"{name}_tokens"] for name in ("input", "output", "cached")]
    assert counts == [100, 5, 80]
    assert json.loads(far.texts()[0]) == finish()
    assert far.key_headers() == {KEY}


def test_an_answer_is_streamed_in_pieces(far: ProviderCaller, dialect: Dialect):
    pieces: list[str] = []

    async def main() -> None:
        async with far.runtime() as rt:
            await rt.run(ONE, IN, run_id="k", on_delta=lambda delta: pieces.append(delta.text))

    far.server.then(dialect.good(finish()))
    asyncio.run(main())
    assert json.loads("".join(pieces)) == finish()
    assert len(pieces) > 1


def test_the_contract_constrains_the_output(far: ProviderCaller, dialect: Dialect):
    far.server.then(dialect.good(finish()))
    far.run()
    schema = dialect.schema_of(far.server.requests[0])
    assert schema["anyOf"] or schema["properties"]


def test_missing_token_counts_are_not_invented(far: ProviderCaller, dialect: Dialect):
    far.server.then(dialect.good(finish(), usage=None))
    assert far.run().status == "finished"
    is_estimated = dialect.adapter == "litellm"  # LiteLLM counts with a tokenizer of its own
    assert (far.events("llm_responded")[0].get("usage") is not None) == is_estimated


def test_an_answer_that_reached_the_token_limit_is_truncated(far: ProviderCaller, dialect: Dialect):
    far.server.then(dialect.good('{"type": "dec', stop="truncated"), dialect.good(finish()))
    assert far.run().status == "finished"
    assert [one.get("cut", False) for one in far.events("llm_responded")] == [True, False]


def test_a_withheld_answer_fails_at_once(far: ProviderCaller, dialect: Dialect):
    far.server.then(dialect.good("", stop="withheld"))
    assert (far.run().status, far.codes("llm_failed"), len(far.server.requests)) == ("failed", ["RYN509"], 1)


@pytest.mark.parametrize(
    ("code", "message", "error_code", "is_retried"),
    [
        (401, "bad key", "RYN508", False),
        (403, "not yours", "RYN508", False),
        (404, "no such model", "RYN509", False),
        (400, "invalid", "RYN509", False),
        (429, "slow down", "RYN507", True),
        (500, "oops", "RYN506", True),
        (503, "overloaded", "RYN506", True),
    ],
)
def test_an_error_status_has_the_same_code_for_every_provider(
    far: ProviderCaller,
    dialect: Dialect,
    delays: list[float],
    code: int,
    message: str,
    error_code: str,
    is_retried: bool,
):
    far.server.then(dialect.status(code, message))
    assert far.run().status == "failed"
    assert far.codes("llm_failed") == [error_code]
    assert len(delays) == is_retried
    assert message in far.events("llm_failed")[0]["message"]


def test_a_prompt_beyond_the_window_has_its_own_code(far: ProviderCaller, dialect: Dialect):
    far.server.then(dialect.status(400, dialect.prompt_too_long))
    assert (far.run().status, far.codes("llm_failed")) == ("failed", ["RYN512"])


def test_retry_after_is_honoured(far: ProviderCaller, dialect: Dialect, delays: list[float]):
    far.server.then(dialect.status(429, retry_after="7"), dialect.good(finish()))
    assert (far.run().status, delays) == ("finished", [7.0])


def test_a_rejected_schema_downgrades_the_mode(far: ProviderCaller, dialect: Dialect):
    far.server.then(dialect.status(400, dialect.schema_rejected), dialect.good(finish()))
    assert far.run().status == "finished"
    assert far.codes() == ["RYN514"]
    assert far.events("llm_responded")[0]["mode"] != "json_schema"


@pytest.mark.parametrize("then", ["end", "hang up"])
def test_an_answer_that_breaks_off_is_retried(far: ProviderCaller, dialect: Dialect, delays: list[float], then: str):
    far.server.then(dialect.broken("{", then), dialect.good(finish()))
    assert far.run().status == "finished"
    if dialect.adapter == "litellm" and then == "end":  # LiteLLM ends such an answer as if it were complete
        assert len(far.events("validation_error")) == 1
    else:
        assert set(far.codes()) <= {"RYN510", "RYN506"}
        assert len(far.codes()) == 1


@pytest.mark.parametrize("content", [b"data: {no json\n\n", b"event: x\ndata: [1, 2]\n\n", b"\xff\xfe\n\n"])
def test_a_malformed_stream_is_retried(far: ProviderCaller, dialect: Dialect, delays: list[float], content: bytes):
    far.server.then(stream(content), dialect.good(finish()))
    assert far.run().status == "finished"
    assert set(far.codes()) <= {"RYN510", "RYN506"}
    assert len(far.codes()) == 1


def test_a_web_page_instead_of_an_answer_is_retried(far: ProviderCaller, dialect: Dialect, delays: list[float]):
    far.server.then(dialect.page(), dialect.good(finish()))
    assert far.run().status == "finished"
    assert set(far.codes()) <= {"RYN510", "RYN506"}


def test_a_server_that_hangs_up_is_retried(far: ProviderCaller, dialect: Dialect, delays: list[float]):
    far.server.then(hang_up, dialect.good(finish()))
    assert (far.run().status, far.codes()) == ("finished", ["RYN506"])


def test_a_silent_server_times_out(far: ProviderCaller, dialect: Dialect):
    far.configure(timeout=1, retries=0)
    far.server.then(silence)
    assert (far.run().status, far.codes("llm_failed")) == ("failed", ["RYN513"])


def test_an_unreachable_server_is_reported(far: ProviderCaller, dialect: Dialect):
    far.configure(base_url="http://127.0.0.1:9", retries=0)
    assert (far.run().status, far.codes("llm_failed")) == ("failed", ["RYN506"])


def test_a_missing_key_sends_nothing(far: ProviderCaller, dialect: Dialect):
    far.configure(key="secret://OTHER_KEY", retries=0)
    assert (far.run().status, far.codes("llm_failed"), far.server.requests) == ("failed", ["RYN508"], [])


def test_a_server_without_a_key_gets_no_key_of_the_environment(
    far: ProviderCaller, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
):
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    far.configure(key=None)
    far.server.then(dialect.good(finish()))
    assert (far.run().status, far.key_headers()) == ("finished", {"no-key-is-set"})


def test_a_replaced_key_is_used_without_a_restart(far: ProviderCaller, dialect: Dialect):
    far.server.then(dialect.status(401), dialect.good(finish()))

    async def main() -> None:
        async with far.runtime() as rt:
            assert (await rt.run(ONE, IN, run_id="k")).status == "failed"
            far.secrets.set("FAR_KEY", "another-key")
            assert (await rt.resume("k", retry=True)).ok

    asyncio.run(main())
    assert far.key_headers() == {KEY, "another-key"}


def test_a_cancelled_run_closes_its_connection(far: ProviderCaller, dialect: Dialect):
    async def main() -> str:
        async with far.runtime() as rt:
            run = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: bool(far.server.requests))
            rt.cancel("k")
            return (await run).status

    far.server.then(silence)
    assert asyncio.run(main()) == "cancelled"
    far.server.wait_for(lambda: far.server.drops == 1)


def test_a_key_in_a_response_is_recorded_as_its_handle(far: ProviderCaller, dialect: Dialect, delays: list[float]):
    far.server.then(dialect.status(503, f"key {KEY} is known"), dialect.good(finish()))
    assert far.run().status == "finished"
    assert "key secret://FAR_KEY is known" in far.events("model_retried")[0]["message"]


# -- native tools ------------------------------------------------------------------------------------------------


@pytest.fixture
def calling(far: ProviderCaller) -> ProviderCaller:
    far.configure(answer_form="tools")
    (far.root / "prices.csv").write_text("noodles,3.1\n")
    write_skill(far.root, "s", {"a": ["end"]}, ops={"a": "file"}, artifacts={"tally": TALLY}, final_output="tally")
    return far


DECISION = {"reason": "it is good", "choice": "end", "confidence": 1, "data": {"total": 3.1}}


def test_native_tool_calls_are_executed_and_their_results_sent_back(calling: ProviderCaller, dialect: Dialect):
    read = ("file_read", {"path": "prices.csv"})
    calling.server.then(dialect.good("", calls=(read, read)), dialect.good(DECISION))
    result = calling.run("s")
    assert result.status == "finished", result.reason
    [first, second] = calling.server.requests
    assert "file_read" in dialect.tools_of(first)
    assert second.raw.decode().count("noodles") == 2
    reply = decode_reply(calling.texts()[0])
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [read, read]
    assert len({call.id for call in reply.tool_calls}) == 2
