"""What only the `anthropic` adapter does: prompt caching, its subset of JSON Schema, its messages and headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reyn.models import Image, Message, ToolCall
from reyn.models.anthropic import to_messages, to_system
from tests.models.dialects import AnthropicDialect, ProviderCaller
from tests.models.fake_server import FakeServer, whole
from tests.support import finish, write_skill

pytest.importorskip("anthropic")
DIALECT = AnthropicDialect()
MAP = {"type": "object", "properties": {"counts": {"type": "object"}}, "required": ["counts"]}


@pytest.fixture
def far(tmp_path: Path, server: FakeServer, guarded: Any) -> Iterator[ProviderCaller]:
    with guarded(ProviderCaller(tmp_path, server, DIALECT)) as caller:
        yield caller


@pytest.mark.sockets
def test_a_request_caches_the_static_part_and_has_no_sampling_parameters(far: ProviderCaller):
    far.server.then(DIALECT.good(finish()))
    far.run()
    [request] = far.server.requests
    body = request.body
    [system] = body["system"]
    assert system["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(body["messages"])
    assert body["max_tokens"] == 1024
    assert not {"temperature", "top_p", "tool_choice", "thinking"} & set(body)
    assert (request.path, request.all("anthropic-version")) == ("/v1/messages", ["2026-10-21"])


@pytest.mark.sockets
def test_the_static_part_is_the_same_in_every_run(far: ProviderCaller):
    far.server.then(DIALECT.good(finish()))
    far.run()
    far.run(run_id="k2")
    first, second = (request.body for request in far.server.requests)
    assert first["system"] == second["system"]
    assert first["output_config"] == second["output_config"]


@pytest.mark.sockets
def test_environment_variables_of_the_sdk_are_ignored(far: ProviderCaller, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another-token")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-planted: yes")
    far.server.then(DIALECT.good(finish()))
    assert far.run().status == "finished"
    assert far.server.requests[0].all("x-planted") == []


@pytest.mark.sockets
def test_cached_and_stored_tokens_are_input_tokens(far: ProviderCaller):
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000}
    message = {
        "type": "message",
        "content": [{"type": "text", "text": json.dumps(finish())}],
        "stop_reason": "end_turn",
        "usage": usage | {"output_tokens": 5},
    }
    far.server.then(whole("application/json", json.dumps(message).encode()))
    assert far.run().status == "finished"
    assert far.events("llm_responded")[0]["usage"] == {
        "input_tokens": 3210,
        "output_tokens": 5,
        "cached_tokens": 3000,
        "cache_write_tokens": 200,
    }


@pytest.mark.sockets
@pytest.mark.parametrize("counts", [{"input_tokens": -4}, {"input_tokens": "many"}, {"cache_read_input_tokens": -1}])
def test_absurd_counts_are_a_warning(far: ProviderCaller, counts: dict[str, Any]):
    message = {
        "type": "message",
        "content": [{"type": "text", "text": json.dumps(finish())}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 5} | counts,
    }
    far.server.then(whole("application/json", json.dumps(message).encode()))
    result = far.run()
    assert result.status == "finished"
    is_recorded = "usage" in far.events("llm_responded")[0]
    assert is_recorded != any("invalid token counts" in warning for warning in result.warnings)


@pytest.mark.sockets
def test_a_refusal_names_its_category(far: ProviderCaller):
    far.server.then(DIALECT.good("", stop="withheld"))
    assert "withheld its answer: refusal (cyber)" in far.run().reason


@pytest.mark.sockets
def test_an_exhausted_rate_limit_is_waited_for(far: ProviderCaller, delays: list[float]):
    soon = (datetime.now(UTC) + timedelta(seconds=50)).isoformat()
    headers = {
        "anthropic_ratelimit_requests_remaining": "7",
        "anthropic_ratelimit_requests_reset": "2999-01-01T00:00:00Z",
        "anthropic_ratelimit_tokens_remaining": "0",
        "anthropic_ratelimit_tokens_reset": soon,
    }
    far.server.then(DIALECT.status(429, **headers), DIALECT.good(finish()))
    assert far.run().status == "finished"
    assert 0 < delays[0] <= 50


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("code", "error_code"), [(529, "RYN506"), (429, "RYN507"), (401, "RYN508"), (400, "RYN509"), (0, "RYN506")]
)
def test_an_error_within_a_stream_is_classified_by_its_type(
    far: ProviderCaller, delays: list[float], code: int, error_code: str
):
    far.configure(retries=0)
    far.server.then(DIALECT.failing_stream(code))
    assert (far.run().status, far.codes("llm_failed")) == ("failed", [error_code])


@pytest.mark.sockets
def test_a_contract_beyond_the_subset_is_not_constrained(far: ProviderCaller):
    write_skill(far.root, "map", {"a": ["end"]}, artifacts={"tally": MAP}, final_output="tally")
    answer = finish() | {"artifact": {"type": "tally", "data": {"counts": {"a": 1}}}}
    far.server.then(DIALECT.good(answer))
    result = far.run("map")
    assert result.status == "finished", result.reason
    assert DIALECT.schema_of(far.server.requests[0]) is None
    assert far.events("llm_responded")[0]["mode"] == "free"


def test_messages_become_blocks():
    calls = (ToolCall("toolu_1", "read", '{"path": "a"}'), ToolCall("call|2", "read", "no json"))
    messages = [
        Message("system", "static"),
        Message("user", "go"),
        Message("assistant", "", tool_calls=calls),
        Message("tool", "text of a", tool_call_id="toolu_1", images=(Image("image/png", "AAAA"),)),
        Message("tool", "", tool_call_id="call|2"),
        Message("user", "", images=(Image(url="https://example.com/a.png"),)),
        Message("assistant", " "),
    ]
    assert to_system(messages) == [{"type": "text", "text": "static", "cache_control": {"type": "ephemeral"}}]
    go, called, results, empty = to_messages(messages)
    assert go == {"role": "user", "content": [{"type": "text", "text": "go"}]}
    first, second = called["content"]
    assert first == {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
    assert second["input"] == {"invalid_arguments": "no json"}
    assert [block["type"] for block in results["content"]] == ["tool_result", "tool_result", "image"]
    assert [part["type"] for part in results["content"][0]["content"]] == ["text", "image"]
    assert results["content"][1] == {"type": "tool_result", "tool_use_id": second["id"]}
    assert second["id"].startswith("call_")
    assert results["content"][2]["source"] == {"type": "url", "url": "https://example.com/a.png"}
    assert empty == {"role": "assistant", "content": [{"type": "text", "text": "(no text)"}]}
