"""What only the `gemini` adapter does: its contents, its keywords, and what it reports in error details."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reyn.models import Image, Message, ToolCall
from reyn.models.chat_messages import system_text
from reyn.models.gemini import to_contents
from tests.models.calling import KEY
from tests.models.dialects import GeminiDialect, ProviderCaller
from tests.models.fake_server import FakeServer, event, stream, whole
from tests.support import finish

pytest.importorskip("httpx2")
DIALECT = GeminiDialect()


@pytest.fixture
def far(tmp_path: Path, server: FakeServer, guarded: Any) -> Iterator[ProviderCaller]:
    with guarded(ProviderCaller(tmp_path, server, DIALECT)) as caller:
        yield caller


def failing(code: int, message: str, *details: dict[str, Any]) -> Any:
    error = {"code": code, "message": message, "status": "FAILED", "details": list(details)}
    return whole("application/json", json.dumps({"error": error}).encode(), code)


@pytest.mark.sockets
def test_a_request_has_the_static_part_as_its_system_instruction(far: ProviderCaller):
    far.server.then(DIALECT.good(finish()))
    far.run()
    [request] = far.server.requests
    assert request.path == "/v1/models/m:streamGenerateContent?alt=sse"
    assert request.body["systemInstruction"]["parts"][0]["text"]
    assert request.body["generationConfig"]["maxOutputTokens"] == 1024
    assert request.body["generationConfig"]["temperature"] == 0
    assert request.body["generationConfig"]["responseMimeType"] == "application/json"
    assert "const" not in json.dumps(request.body["generationConfig"]["responseJsonSchema"])


@pytest.mark.sockets
def test_environment_variables_of_the_sdk_are_ignored(far: ProviderCaller, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "of-somebody-else")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "v9")
    far.server.then(DIALECT.good(finish()))
    assert far.run().status == "finished"
    assert far.key_headers() == {KEY}
    assert far.server.requests[0].path.startswith("/v1/")


@pytest.mark.sockets
def test_an_invalid_key_is_recognized_by_its_reason(far: ProviderCaller):
    far.server.then(failing(400, "API key not valid.", {"reason": "API_KEY_INVALID"}))
    assert (far.run().status, far.codes("llm_failed")) == ("failed", ["RYN508"])


@pytest.mark.sockets
def test_the_delay_in_the_details_of_an_error_is_honoured(far: ProviderCaller, delays: list[float]):
    far.server.then(failing(429, "quota", {"retryDelay": "34s"}), DIALECT.good(finish()))
    assert (far.run().status, delays) == ("finished", [34.0])


@pytest.mark.sockets
def test_a_blocked_prompt_fails_at_once(far: ProviderCaller):
    far.server.then(stream(event({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})))
    result = far.run()
    assert (result.status, far.codes("llm_failed")) == ("failed", ["RYN509"])
    assert "withheld its answer: PROHIBITED_CONTENT" in result.reason


@pytest.mark.sockets
def test_a_malformed_function_call_is_retried(far: ProviderCaller, delays: list[float]):
    broken = {"candidates": [{"content": {"parts": []}, "finishReason": "MALFORMED_FUNCTION_CALL"}]}
    far.server.then(stream(event(broken)), DIALECT.good(finish()))
    assert (far.run().status, far.codes()) == ("finished", ["RYN510"])


@pytest.mark.sockets
def test_thoughts_are_output_tokens(far: ProviderCaller):
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 100}
    parts = [{"text": "let me see", "thought": True}, {"text": json.dumps(finish())}]
    reply = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    far.server.then(stream(event(reply | {"usageMetadata": counts})))
    assert far.run().status == "finished"
    assert far.events("llm_responded")[0]["usage"]["output_tokens"] == 105
    assert json.loads(far.texts()[0]) == finish()


@pytest.mark.sockets
def test_an_endless_stream_is_abandoned(far: ProviderCaller, delays: list[float], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.models.streaming._MAX_BYTES", 100_000)
    thought = event({"candidates": [{"content": {"parts": [{"text": "x" * 5000, "thought": True}]}}]})
    far.server.then(stream(*[thought] * 40, then="silence"), DIALECT.good(finish()))
    assert (far.run().status, far.codes()) == ("finished", ["RYN510"])


def test_messages_become_contents():
    calls = (ToolCall("call_1", "read", '{"path": "a"}'), ToolCall("call_2", "read", "no json"))
    data = base64.b64encode(b"png").decode()
    messages = [
        Message("system", "static"),
        Message("user", "go"),
        Message("assistant", "", tool_calls=calls),
        Message("tool", "text of a", tool_call_id="call_1", images=(Image("image/png", data),)),
        Message("tool", "", tool_call_id="call_2"),
        Message("user", "", images=(Image(url="https://example.com/a.webp"),)),
        Message("assistant", ""),
    ]
    assert system_text(messages) == "static"
    go, called, results, empty = to_contents(messages)
    assert go == {"role": "user", "parts": [{"text": "go"}]}
    first, second = called["parts"]
    assert first["functionCall"] == {"id": "call_1", "name": "read", "args": {"path": "a"}}
    assert base64.b64decode(first["thoughtSignature"]) == b"skip_thought_signature_validator"
    assert second["functionCall"]["args"] == {"invalid_arguments": "no json"}
    answered, image, other, linked = results["parts"]
    assert answered["functionResponse"] == {"id": "call_1", "name": "read", "response": {"result": "text of a"}}
    assert image["inlineData"] == {"mime_type": "image/png", "data": data}
    assert other["functionResponse"]["name"] == "read"
    assert linked["fileData"] == {"file_uri": "https://example.com/a.webp", "mime_type": "image/webp"}
    assert empty == {"role": "model", "parts": [{"text": "(no text)"}]}
