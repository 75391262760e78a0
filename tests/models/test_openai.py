"""The `openai` adapter against a fake server: requests, keys, retries, fallback, broken responses, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import json
import os
import socket
import sys
import time
import tracemalloc
import zlib
from email.utils import formatdate

import pytest

from reyn import SyncRuntime
from reyn.config import ModelSettings
from reyn.errors import (
    ConfigInvalid,
    KeyRejected,
    ModelNotInstalled,
    ModelTimeout,
    RunNotFound,
)
from reyn.journal import Event
from reyn.models import Delta, Message, ModelRequest
from reyn.models.endpoints import ENDPOINTS
from reyn.models.openai import OpenAIModel
from reyn.secrets import EnvironmentStore, MemoryStore, Secrets
from tests.models.calling import IN, KEY, ONE, PAIR, TIMEOUT_SECONDS, Caller, until
from tests.models.fake_server import (
    Behavior,
    Connection,
    FakeServer,
    Request,
    chunk,
    drip,
    event,
    good,
    hang_up,
    silence,
    status,
    stream,
    together,
    whole,
)
from tests.support import finish, go, write_skill

pytest.importorskip("openai")
pytestmark = pytest.mark.sockets

DONE = b"data: [DONE]\n\n"
HALF = event(chunk(json.dumps(finish())[:40]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# -- requests ------------------------------------------------------------------------------------


def test_a_streamed_answer_is_recorded_with_mode_and_tokens(far: Caller, server: FakeServer):
    server.then(good(go("second"), pieces=40), good(finish("there")))
    result = far.run(PAIR)
    assert result.ok
    assert result.artifact == {"type": "note", "data": {"text": "there"}}
    assert (result.usage.input_tokens, result.usage.output_tokens) == (14, 10)
    assert [event["mode"] for event in far.events("llm_responded")] == ["json_schema"] * 2
    assert far.texts() == [json.dumps(go("second")), json.dumps(finish("there"))]


def test_a_request_contains_frame_settings_contract_and_key(far: Caller, server: FakeServer):
    far.configure(max_tokens=77, temperature=0.5)
    server.then(good(finish()))
    far.run()
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.all("authorization") == [f"Bearer {KEY}"]
    assert (request.body["model"], request.body["max_tokens"], request.body["temperature"]) == ("m", 77, 0.5)
    assert request.body["stream"]
    assert [message["role"] for message in request.body["messages"]] == ["system", "user"]
    schema = request.body["response_format"]["json_schema"]["schema"]
    assert [list(branch["properties"]) for branch in schema["anyOf"]] == [
        ["reason", "choice", "confidence", "data"],
        ["reason", "choice", "confidence"],
    ]


ROOT = "Invalid schema for response_format 'answer': schema must be a JSON Schema of 'type: \"object\"'"


@pytest.mark.parametrize("mode", ["auto", "json_schema"])
def test_a_server_that_rejects_any_of_at_the_root_gets_one_object(far: Caller, server: FakeServer, mode: str):
    server.then(status(400, ROOT), good(go("second")), good(finish()))
    far.configure(mode=mode)
    assert far.run(PAIR).ok
    schemas = [request.body["response_format"]["json_schema"]["schema"] for request in server.requests]
    assert ["anyOf" in schema for schema in schemas] == [True, False, False]
    assert all(schema["required"] == ["reason", "choice", "confidence"] for schema in schemas[1:])
    assert [event["instead"] for event in far.events("model_retried")] == ["json_schema, one object"]
    assert [event["mode"] for event in far.events("llm_responded")] == ["json_schema", "json_schema"]


def test_calls_reuse_the_connection(far: Caller, server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.models.streaming._DRAIN_SECONDS", TIMEOUT_SECONDS)
    server.then(good("nonsense"), good(go("second")), good(finish()))
    assert far.run(PAIR).ok
    assert (len(server.requests), server.connections) == (3, 1)


def test_a_server_can_be_used_without_a_key(far: Caller, server: FakeServer):
    far.configure(key=None)
    server.then(good(finish()))
    assert far.run().ok


def test_a_model_works_in_several_event_loops(server: FakeServer):
    server.then(good("hello"))
    model = OpenAIModel("far", "m", ModelSettings("openai:m", base_url=server.url), lambda: Secrets([]))
    request = ModelRequest((Message("user", "hi"),), {"type": "object"}, "r", "1.1", "h")

    with asyncio.Runner() as one, asyncio.Runner() as another:
        assert one.run(model.complete(request)).text == "hello"
        left_open = model._client
        assert another.run(model.complete(request)).text == "hello"
        another.run(model.aclose())
        one.run(left_open.aclose())


async def connected(model: OpenAIModel):
    return model._connect()


def test_environment_variables_of_the_sdk_are_ignored(far: Caller, server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{free_port()}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_ORG_ID", "somebody")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "something")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer stolen")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    server.then(good(finish()))
    assert far.run().ok
    assert not [name for name, _ in server.requests[0].headers if name.lower().startswith("openai-")]
    settings = ModelSettings("openai:m", key="secret://FAR_KEY")
    model = OpenAIModel("far", "m", settings, lambda: Secrets([MemoryStore({"FAR_KEY": KEY})]))
    with asyncio.Runner() as runner:
        client = runner.run(connected(model))
        assert str(model._url) == f"{model.describe()['base_url']}/chat/completions"
        assert str(model._url).startswith("https://api.openai.com/v1/")
        assert client.headers["authorization"] == f"Bearer {KEY}"
        runner.run(model.aclose())


def test_redirects_are_not_followed(far: Caller, server: FakeServer):
    with FakeServer(good(finish())) as elsewhere:
        server.then(whole("text/plain", b"", 307, location=f"{elsewhere.url}/chat/completions"))
        result = far.run()
        assert (result.status, far.codes("llm_failed")) == ("failed", ["RYN509"])
        assert elsewhere.url in result.reason
        assert elsewhere.requests == []
        server.then(good(finish()))
        assert far.retry().ok


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModelNotInstalled, match="extra `openai`"):
        OpenAIModel("far", "m", ModelSettings("openai:m"), lambda: Secrets([]))


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [401, 403])
def test_a_rejected_key_is_not_retried(far: Caller, server: FakeServer, code: int):
    server.then(status(code, lambda request: f"Incorrect API key provided: {request.key}"))
    result = far.run()
    assert (result.status, far.codes("llm_failed"), far.codes()) == ("failed", ["RYN508"], [])
    assert result.reason == f"model `far` returned HTTP {code}: Incorrect API key provided: secret://FAR_KEY"
    assert len(server.requests) == 1
    server.then(good(finish()))
    assert far.retry().ok


def test_a_replaced_key_is_used_without_a_restart(far: Caller, server: FakeServer):
    server.then(status(401), good(finish()))

    async def main():
        async with far.runtime() as rt:
            assert (await rt.run(ONE, IN, run_id="k")).status == "failed"
            far.secrets.set("FAR_KEY", "another-key")
            assert (await rt.resume("k", retry=True)).ok

    asyncio.run(main())
    assert [request.key for request in server.requests] == [KEY, "another-key"]


def test_a_missing_key_fails_before_any_request(far: Caller, server: FakeServer):
    far.secrets.remove("FAR_KEY")
    result = far.run()
    assert (result.status, far.codes("llm_failed")) == ("failed", ["RYN508"])
    assert "no secret `FAR_KEY`" in result.reason
    assert server.requests == []
    far.secrets.set("FAR_KEY", KEY)
    server.then(good(finish()))
    assert far.retry().ok


@pytest.mark.parametrize("key", ["sk-0123456789\n", "sk-01234\n56789", "sk-012345€", " sk-0123456789"])
def test_a_key_that_is_not_a_valid_header_is_rejected_and_not_quoted(far: Caller, server: FakeServer, key: str):
    far.secrets.set("FAR_KEY", key)
    result = far.run()
    assert far.codes("llm_failed") == ["RYN508"]
    assert "sk-01" not in result.reason
    assert server.requests == []


def test_openai_needs_a_key():
    model = OpenAIModel("far", "m", ModelSettings("openai:m"), lambda: Secrets([]))
    with pytest.raises(KeyRejected, match="no API key for model `far`"):
        asyncio.run(model.complete(ModelRequest((), {}, "r", "1.1", "h")))


def test_a_literal_key_in_the_configuration_is_rejected_and_not_quoted(far: Caller):
    far.configure(key=KEY)
    with pytest.raises(ConfigInvalid, match="do not put the key itself here") as caught:
        far.run()
    assert KEY not in str(caught.value)
    (far.root / "reyn.yaml").unlink()


def test_a_key_in_a_response_is_recorded_as_its_handle(far: Caller, server: FakeServer, delays: list[float]):
    server.then(
        status(503, lambda request: f"{'x' * 488} {request.key} and more"),  # scrubbed before truncation
        stream(event({"error": {"message": f"sorry, {KEY}"}})),
        whole("text/html", b"<p>" + KEY.encode()),
        good(lambda request: f"my key is {request.key}"),
        good(lambda request: finish(f"the key is {request.key}")),
    )
    result = far.run()
    assert result.artifact == {"type": "note", "data": {"text": "the key is secret://FAR_KEY"}}
    assert len(server.requests) == 5
    assert far.texts()[0] == "my key is secret://FAR_KEY"


def test_a_rejected_request_without_a_key_asks_for_one(far: Caller, server: FakeServer):
    far.configure(key=None)
    server.then(status(401, "missing bearer token"))
    result = far.run()
    assert (result.status, result.code) == ("failed", "RYN508")
    assert result.hint == (
        "Add `key: secret://NAME` (a stored secret) or `key: env://NAME` (an environment variable) to "
        "`models.far` in reyn.yaml."
    )


def test_a_rejected_request_without_a_key_names_the_conventional_variable_if_it_is_set(far: Caller, server: FakeServer):
    far.configure(key=None)
    far.environment = EnvironmentStore({"OPENAI_API_KEY": KEY})
    server.then(status(401, "missing bearer token"))
    assert far.run().hint == (
        "`OPENAI_API_KEY` is set: if this server may receive it, add `key: env://OPENAI_API_KEY` to `models.far` in "
        "reyn.yaml."
    )


def key_error(environ: dict[str, str], name: str = "far", **settings: str) -> KeyRejected:
    model = OpenAIModel(
        name, "m", ModelSettings("openai:m", **settings), lambda: Secrets([], EnvironmentStore(environ))
    )
    with pytest.raises(KeyRejected) as caught:
        asyncio.run(model.complete(ModelRequest((), {}, "r", "1.1", "h")))
    return caught.value


def test_a_missing_openai_key_names_the_conventional_variable_if_it_is_set():
    assert "env://OPENAI_API_KEY" in key_error({}).hint
    error = key_error({"OPENAI_API_KEY": KEY})
    assert error.hint == "`OPENAI_API_KEY` is set: add `key: env://OPENAI_API_KEY` to `models.far` in reyn.yaml."
    inline = key_error({"OPENAI_API_KEY": KEY}, "openai:m")
    assert "add `key: env://OPENAI_API_KEY` to an entry with `model: openai:m` under `models`" in inline.hint
    assert KEY not in f"{error} {error.hint} {inline.hint}"


def test_an_unset_variable_of_a_key_is_reported_before_any_request():
    error = key_error({}, key="env://MY_KEY")
    assert error.message == "no API key for model `far`: the environment variable `MY_KEY` is not set"
    assert "Set `MY_KEY`" in error.hint


def test_a_key_from_a_variable_is_sent_and_scrubbed(far: Caller, server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_PROVIDER_KEY", KEY)
    far.configure(key="env://MY_PROVIDER_KEY")
    far.secrets, far.environment = MemoryStore(), EnvironmentStore(os.environ)
    server.then(
        status(503, lambda request: f"no capacity for {request.key}"), good(lambda request: finish(request.key))
    )
    result = far.run()
    assert [request.key for request in server.requests] == [KEY, KEY]
    assert result.artifact == {"type": "note", "data": {"text": "env://MY_PROVIDER_KEY"}}
    [event] = far.events("model_retried")
    assert event["message"].endswith("no capacity for env://MY_PROVIDER_KEY")


def test_a_rejected_key_from_a_variable_names_the_variable(far: Caller, server: FakeServer):
    far.configure(key="env://MY_PROVIDER_KEY")
    far.secrets, far.environment = MemoryStore(), EnvironmentStore({"MY_PROVIDER_KEY": KEY})
    server.then(status(401, lambda request: f"bad key {request.key}"))
    result = far.run()
    assert result.reason == "model `far` returned HTTP 401: bad key env://MY_PROVIDER_KEY"
    assert result.hint == "Set `MY_PROVIDER_KEY` to a valid key, then resume the run."


# -- retries ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [408, 409, 425, 500, 502, 503, 529])
def test_transient_errors_are_retried(far: Caller, server: FakeServer, delays: list[float], code: int):
    server.then(status(code, "busy"), status(code, "busy"), good(finish()))
    assert far.run().ok
    events = far.events("model_retried")
    assert [(event["code"], event["attempt"], event["model"]) for event in events] == [
        ("RYN506", 1, "far"),
        ("RYN506", 2, "far"),
    ]
    assert events[0]["message"] == f"model `far` returned HTTP {code}: busy"
    assert [event["wait_ms"] for event in events] == [int(delay * 1000) for delay in delays]


def test_a_large_error_page_is_shortened(far: Caller, server: FakeServer, delays: list[float]):
    page = b"<html>\n<body>\n  Bad Gateway" + b"<br>" * 2_500_000
    server.then(whole("text/html", page, 502), good(finish()))
    assert far.run().ok
    [event] = far.events("model_retried")
    assert event["message"].startswith("model `far` returned HTTP 502: <html> <body> Bad Gateway<br>")
    assert len(event["message"]) < 600


@pytest.mark.parametrize("code", [200, 500])
def test_an_endless_body_is_abandoned(
    far: Caller, server: FakeServer, delays: list[float], monkeypatch: pytest.MonkeyPatch, code: int
):
    monkeypatch.setattr("reyn.models.streaming._MAX_BYTES", 100_000)
    sent = []

    async def endless(_: Request, line: Connection) -> None:
        await line.head(code, {"content-type": "application/json", "transfer-encoding": "chunked"})
        with contextlib.suppress(Exception):
            while len(sent) < 10_000:
                sent.append(1)
                await line.piece(b"x" * 100_000)

    server.then(endless, good(finish()))
    assert far.run().ok
    assert far.codes() == ["RYN510" if code == 200 else "RYN506"]
    assert len(sent) < 1_000


def encoded(code: int, body: bytes, encoding: str, kind: str = "application/json") -> Behavior:
    async def answer(_: Request, line: Connection) -> None:
        with contextlib.suppress(Exception):
            await line.whole(code, kind, body, {"content-encoding": encoding})

    return answer


@functools.cache
def bomb(levels: int) -> bytes:
    content = b'{"error": {"message": "' + b"a" * 50_000_000
    for _ in range(levels):
        content = gzip.compress(content)
    return content


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "br", "zstd", "deflate"])
@pytest.mark.parametrize("code", [200, 500])
def test_a_compressed_body_is_decoded_up_to_a_limit(
    far: Caller, server: FakeServer, delays: list[float], code: int, encoding: str
):
    server.then(encoded(code, bomb(2 if "," in encoding else 1), encoding), good(finish()))
    tracemalloc.start()
    assert far.run().ok
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert far.codes() == ["RYN510" if code == 200 else "RYN506"]
    assert peak < 120_000_000  # the limit of an answer is 32 MB; it is copied on the way


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_answer_is_read(far: Caller, server: FakeServer, encoding: str):
    message = {"choices": [{"message": {"content": json.dumps(finish())}, "finish_reason": "stop"}]}
    press = gzip.compress if encoding == "gzip" else zlib.compress
    server.then(encoded(200, press(json.dumps(message).encode()), encoding))
    assert far.run().ok
    assert server.requests[0].all("accept-encoding") == ["gzip, deflate"]


def test_a_compressed_error_is_shown(far: Caller, server: FakeServer, delays: list[float]):
    body = gzip.compress(json.dumps({"error": {"message": "not today"}}).encode())
    server.then(encoded(503, body, "gzip"), good(finish()))
    assert far.run().ok
    [event] = far.events("model_retried")
    assert event["message"] == "model `far` returned HTTP 503: not today"


def test_delays_back_off_with_jitter_and_end(far: Caller, server: FakeServer, delays: list[float]):
    far.configure(retries=9)
    server.then(status(503))
    result = far.run()
    assert (result.status, len(server.requests), len(delays)) == ("failed", 10, 9)
    ceilings = [min(30.0, 0.5 * 2**number) for number in range(9)]
    assert all(ceiling / 2 <= delay <= ceiling for ceiling, delay in zip(ceilings, delays, strict=True))
    ENDPOINTS.reset()  # as in another process: this one would wait for its cooldown
    server.then(good(finish()))
    assert far.retry().ok


def test_a_run_that_failed_after_its_retries_can_be_resumed(far: Caller, server: FakeServer, delays: list[float]):
    server.then(good(go("second")), status(503, "down for today"))
    result = far.run(PAIR)
    assert (result.status, result.reason) == ("failed", "model `far` returned HTTP 503: down for today")
    assert far.codes("llm_failed") == ["RYN506"]
    assert len(server.requests) == 5
    server.then(good(finish()))
    assert far.retry().ok
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [("7", 7, 7), ("0", 0.25, 0.5), ("1.5", 1.5, 1.5), ("", 0.25, 0.5), ("soon", 0.25, 0.5), ("-3", 0.25, 0.5)],
)
def test_retry_after_in_seconds_is_honoured(
    far: Caller, server: FakeServer, delays: list[float], retry_after: str, least: float, most: float
):
    server.then(status(429, "slow down", retry_after=retry_after), good(finish()))
    assert far.run().ok
    assert far.codes() == ["RYN507"]
    [delay] = delays
    assert least <= delay <= most


def test_retry_after_as_a_date_is_honoured(
    far: Caller, server: FakeServer, delays: list[float], monkeypatch: pytest.MonkeyPatch
):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    server.then(status(429, retry_after=formatdate(now + 60, usegmt=True)), good(finish()))
    assert far.run().ok
    assert 59 <= delays[0] <= 60  # a date has no fractions of a second


def test_a_long_retry_after_fails_at_once(far: Caller, server: FakeServer, delays: list[float]):
    server.then(status(429, "come back tomorrow", retry_after="3600"))
    result = far.run()
    assert result.reason == "model `far` returned HTTP 429: come back tomorrow (retry after 3600 seconds)"
    assert (far.codes("llm_failed"), delays, len(server.requests)) == (["RYN507"], [], 1)
    server.then(good(finish()))
    assert far.retry().ok


def test_delays_are_real(far: Caller, server: FakeServer):
    server.then(status(429, retry_after="1"), status(503), good(finish()))
    assert far.run().ok
    first, second, third = (request.at for request in server.requests)
    assert second - first >= 1.0
    assert third - second >= 0.5  # the second failure: between half and all of a second


# -- rejected requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message", "error_code"),
    [
        (404, "The model `m` does not exist", "RYN509"),
        (400, "'temperature' does not support 0 with this model", "RYN509"),
        (402, "pay first", "RYN509"),
        (
            400,
            "This model's maximum context length is 10 tokens (9 in the messages, 5 in the response_format)",
            "RYN512",
        ),
        (400, "the request exceeds the available context size, try increasing it", "RYN512"),
        (413, "request entity too large", "RYN512"),
    ],
)
def test_a_rejected_request_is_not_retried(far: Caller, server: FakeServer, code: int, message: str, error_code: str):
    server.then(status(code, message))
    result = far.run()
    assert result.status == "failed"
    assert result.reason.startswith(f"model `far` returned HTTP {code}: {message}")
    assert (far.codes("llm_failed"), far.codes(), len(server.requests)) == ([error_code], [], 1)
    server.then(good(finish()))
    assert far.retry().ok


def test_not_found_names_the_requested_url(far: Caller, server: FakeServer):
    url = server.url.removesuffix("/v1")
    far.configure(base_url=url)
    server.then(status(404, "Not Found"))
    result = far.run()
    assert result.reason == f"model `far` returned HTTP 404: Not Found (POST {url}/chat/completions)"
    assert "`base_url`" in result.hint


def test_the_url_of_a_not_found_error_contains_no_key(far: Caller, server: FakeServer):
    far.secrets.set("FAR_KEY", "another-key")
    far.configure(base_url=f"{server.url}/another-key")
    server.then(status(404))
    result = far.run()
    assert "/v1/secret://FAR_KEY/chat/completions" in result.reason
    assert "another-key" not in result.reason


# -- output modes -------------------------------------------------------------------

NO_SCHEMA = "Invalid schema for response_format 'answer': In context=('properties', 'x'), 'pattern' is not permitted"


def test_a_rejected_schema_downgrades_the_mode_for_later_calls(far: Caller, server: FakeServer, delays: list[float]):
    server.then(
        status(400, NO_SCHEMA),
        status(422, "This response_format type is unavailable now"),
        good(go("second")),
        good(finish()),
    )
    assert far.run(PAIR).ok
    assert [request.mode for request in server.requests] == ["json_schema", "json_object", "free", "free"]
    steps = [(event["code"], event["instead"], event["wait_ms"]) for event in far.events("model_retried")]
    assert steps == [("RYN514", "json_object", 0), ("RYN514", "free", 0)]
    assert [event["mode"] for event in far.events("llm_responded")] == ["free", "free"]


def test_mode_changes_do_not_count_as_retries(far: Caller, server: FakeServer, delays: list[float]):
    far.configure(retries=1)
    server.then(status(400, NO_SCHEMA), status(400, NO_SCHEMA), status(503), good(finish()))
    assert far.run().ok
    assert [event.get("instead") for event in far.events("model_retried")] == ["json_object", "free", None]
    assert delays[2] <= 0.5


def test_concurrent_rejections_downgrade_the_mode_once(far: Caller, server: FakeServer):
    """Both calls used a schema, so both must try the same next mode."""
    refusal = together(2, status(400, NO_SCHEMA))
    server.then(refusal, refusal, good(finish()))

    async def main():
        async with far.runtime() as rt:
            results = await asyncio.gather(*(rt.run(ONE, IN, run_id=name) for name in ("a", "b")))
            assert all(result.ok for result in results)

    asyncio.run(main())
    assert sorted(request.mode for request in server.requests) == ["json_object"] * 2 + ["json_schema"] * 2
    for run in ("a", "b"):
        assert [event["instead"] for event in far.events("model_retried", run_id=run)] == ["json_object"]
        assert [event["mode"] for event in far.events("llm_responded", run_id=run)] == ["json_object"]


@pytest.mark.parametrize("mode", ["json_schema", "json_object"])
def test_a_configured_mode_is_not_downgraded(far: Caller, server: FakeServer, mode: str):
    far.configure(mode=mode)
    server.then(status(400, NO_SCHEMA))
    assert far.run().status == "failed"
    assert (far.codes("llm_failed"), len(server.requests)) == (["RYN514"], 1)
    server.then(good(finish()))
    assert far.retry().ok
    assert server.requests[1].mode == mode


def test_free_answers_are_validated(far: Caller, server: FakeServer):
    far.configure(mode="free")
    server.then(good("Sure! Here it is."), good(f"```json\n{json.dumps(finish())}\n```"))
    assert far.run().ok
    assert len(far.events("validation_error")) == 1
    assert len(far.events("answer_unwrapped")) == 1


# -- broken responses -----------------------------------------------------------

BROKEN = {
    "half of an event": (b"data: {broken\n\n",),
    "a number": (b"data: 5\n\n",),
    "content of a wrong type": (event(chunk() | {"choices": [{"delta": {"content": {"x": 1}}}]}),),
    "choices of a wrong type": (event({"choices": 7}),),
    "invalid UTF-8": (b"data: \xff\xfe\n\n",),
    "an error": (HALF, event({"error": {"message": "the GPU fell off", "type": "server_error"}})),
    "an error in words": (event({"error": "the GPU fell off"}),),
    "a clean end in the middle": (HALF,),
    "an end in the middle": (HALF, DONE),
    "no finish reason": (event(chunk(json.dumps(finish())[:40], finish="")), DONE),
    "no choices": (event(chunk() | {"choices": []}), event(chunk() | {"choices": None}), DONE),
    "nothing": (),
    "only the end": (DONE,),
    "unexpected tool calls": (
        event(chunk() | {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "x"}}]}}]}),
        event(chunk(finish="tool_calls")),
        DONE,
    ),
}


@pytest.mark.parametrize("contents", BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_discarded_and_retried(
    far: Caller, server: FakeServer, delays: list[float], contents: tuple[bytes, ...]
):
    server.then(stream(*contents), good(finish("whole")))
    assert far.run().ok
    assert (far.codes(), len(server.requests)) == (["RYN510"], 2)
    assert far.texts() == [json.dumps(finish("whole"))]


@pytest.mark.parametrize("contents", [(HALF,), ()], ids=["in the middle", "at its beginning"])
def test_a_dropped_connection_is_an_incomplete_response(
    far: Caller, server: FakeServer, delays: list[float], contents: tuple[bytes, ...]
):
    far.configure(retries=1)
    server.then(stream(*contents, then="hang up"))
    result = far.run()
    assert (result.status, far.codes(), far.codes("llm_failed")) == ("failed", ["RYN510"], ["RYN510"])
    server.then(good(finish()))
    assert far.retry().ok
    assert far.texts() == [json.dumps(finish())]


def test_a_connection_closed_without_a_response_is_retried(far: Caller, server: FakeServer, delays: list[float]):
    server.then(hang_up, good(finish()))
    assert far.run().ok
    assert far.codes() == ["RYN506"]


@pytest.mark.parametrize(
    ("code", "error_code"), [(429, "RYN507"), (503, "RYN506"), ("rate_limit", "RYN510"), (None, "RYN510")]
)
def test_an_error_within_a_stream_is_classified_by_its_code(
    far: Caller, server: FakeServer, delays: list[float], code: object, error_code: str
):
    server.then(stream(HALF, event({"error": {"message": "too much", "code": code}})), good(finish()))
    assert far.run().ok
    assert far.codes() == [error_code]


def test_comments_and_unknown_fields_of_a_stream_are_ignored(far: Caller, server: FakeServer):
    text = json.dumps(finish())
    server.then(
        stream(
            b": a comment to keep the line warm\n\n",
            b"garbage without a colon\n\nevent: ping\nid: 7\nretry: 3\n\ndata:\n\n\xef\xbb\xbf\n\n",
            event(chunk("", extra={"anything": [1]})),
            b"\xef\xbb\xbf" + event(chunk(text[:9], finish="")),  # some servers say "" for "not yet"
            event({"choices": [{"index": 1, "delta": {"content": "another answer"}, "finish_reason": "stop"}]}),
            event(chunk() | {"choices": [{"index": 0}]}),
            event(chunk(text[9:], finish="stop", usage={"prompt_tokens": 1})),
            DONE,
        )
    )
    assert far.run().ok
    assert far.events("llm_responded")[0].get("usage") is None


def test_all_line_endings_and_multi_line_events_are_read(far: Caller, server: FakeServer):
    text = json.dumps(finish())
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": text[9:]}]
    first = json.dumps(chunk(text[:9]), indent=1).replace("\n", "\rdata: ").encode()
    second = event(chunk() | {"choices": [{"delta": {"content": parts}, "finish_reason": "stop"}]})
    server.then(stream(b"data: " + first + b"\r\r", second.replace(b"\n", b"\r\n"), b"data: [DONE]\r\n\r\n"))
    assert far.run().ok
    assert far.texts() == [text]


def test_the_newer_name_of_the_token_limit_is_used_on_request(far: Caller, server: FakeServer):
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    server.then(status(400, message), good(go("second")), good(finish()))
    far.configure(retries=0, max_tokens=77)
    assert far.run(PAIR).ok
    limits = ("max_tokens", "max_completion_tokens")
    fields = [{key: request.body[key] for key in limits if key in request.body} for request in server.requests]
    assert fields == [{"max_tokens": 77}, {"max_completion_tokens": 77}, {"max_completion_tokens": 77}]
    assert [event["instead"] for event in far.events("model_retried")] == ["max_completion_tokens"]


def test_concurrent_calls_change_the_format_alike(far: Caller, server: FakeServer):
    """Both requests are sent before either is rejected."""
    refusals = (
        ("anyOf is not permitted at the root of a schema", "json_schema, one object"),
        ("use max_completion_tokens", "max_completion_tokens"),
        ("response_format is not known", "json_object"),
    )
    for message, instead in refusals:
        settings = ModelSettings("openai:m", base_url=server.url)
        model = OpenAIModel("far", "m", settings, lambda: Secrets([]))
        request = ModelRequest(
            (Message("user", "hello"),), {"anyOf": [{"properties": {}, "required": []}]}, "r", "1.1", "h"
        )

        async def both(model: OpenAIModel = model, request: ModelRequest = request) -> list[object]:
            refused = await asyncio.gather(model.complete(request), model.complete(request), return_exceptions=True)
            answers = await asyncio.gather(model.complete(request), model.complete(request))
            await model.aclose()
            return [*(getattr(error, "instead", error) for error in refused), *(answer.mode for answer in answers)]

        refusal = together(2, status(400, message))
        server.then(refusal, refusal, good(finish()), good(finish()))
        mode = "json_object" if instead == "json_object" else "json_schema"
        assert asyncio.run(both()) == [instead, instead, mode, mode]


def test_the_name_of_a_model_does_not_affect_error_classification(far: Caller, server: FakeServer):
    server.then(status(400, "response_format is not taken"), good(finish()))
    far.configure(others={"groot": {"model": "openai:m", "base_url": server.url}})
    assert far.run(model="groot").ok
    assert [event["instead"] for event in far.events("model_retried")] == ["json_object"]


def test_a_filtered_answer_is_not_retried(far: Caller, server: FakeServer):
    server.then(stream(HALF, event(chunk(finish="content_filter")), DONE))
    result = far.run()
    assert (result.code, len(server.requests)) == ("RYN509", 1)
    assert "content_filter" in result.reason
    server.then(good(finish()))
    assert far.retry().ok


def test_an_html_page_instead_of_an_answer_is_reported(far: Caller, server: FakeServer, delays: list[float]):
    server.then(whole("text/html; charset=utf-8", b"<html>a: b<body>Log in first</body>"))
    result = far.run()
    assert result.reason == "model `far` sent no answer (content type: text/html; charset=utf-8)"
    assert far.codes("llm_failed") == ["RYN510"]
    server.then(good(finish()))
    assert far.retry().ok


def test_an_answer_that_is_not_streamed_is_read(far: Caller, server: FakeServer, delays: list[float]):
    choice = {"message": {"role": "assistant", "content": json.dumps(finish())}, "finish_reason": "stop"}
    answer = {"object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    server.then(
        whole("application/json", b'{"error": {"message": "warming up", "code": 503}}'),
        whole("application/json", b"{}"),
        whole("application/json", b"{"),
        whole("application/json; charset=utf-8", json.dumps(answer).encode()),
    )
    result = far.run()
    assert result.ok
    assert far.codes() == ["RYN506", "RYN510", "RYN510"]
    assert result.usage.total == 7


def test_a_refusal_of_the_model_is_recorded_as_its_answer(far: Caller, server: FakeServer):
    refusal = event(chunk() | {"choices": [{"delta": {"refusal": "I will not."}, "finish_reason": "stop"}]})
    server.then(stream(refusal, DONE), good(finish()))
    assert far.run().ok
    assert far.texts()[0] == "I will not."


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 400])
def test_reading_stops_at_the_maximum_length(far: Caller, server: FakeServer, pieces: int):
    server.then(good("x" * 10_000_000, pieces=pieces), good(finish()))
    assert far.run().ok
    assert far.events("validation_error")[0]["class"] == "size"
    assert len(server.requests[1].raw) < 100_000
    assert len(far.texts()[0]) == (10_000_000 if pieces == 1 else 2_025_000)


TOKENS = {"prompt_tokens": 5, "completion_tokens": 2}
COUNTS = {"input_tokens": 5, "output_tokens": 2, "cached_tokens": 0, "cache_write_tokens": 0}


@pytest.mark.parametrize(
    ("usage", "counts", "is_warned"),
    [
        (None, None, False),
        ({}, None, False),
        ({"prompt_tokens": 5}, None, False),
        ("many", None, False),
        ({"prompt_tokens": 5, "completion_tokens": 2, "cost": 1}, COUNTS, False),
        (TOKENS | {"prompt_tokens_details": {"cached_tokens": 4}}, COUNTS | {"cached_tokens": 4}, False),
        (TOKENS | {"prompt_tokens_details": {"cached_tokens": "4"}}, COUNTS, False),
        (TOKENS | {"prompt_tokens_details": None}, COUNTS, False),
        ({"prompt_tokens": -5, "completion_tokens": 2}, None, True),
        ({"prompt_tokens": "5", "completion_tokens": 2}, None, True),
    ],
)
def test_token_counts_are_validated(far: Caller, server: FakeServer, usage: object, counts: object, is_warned: bool):
    server.then(good(finish(), usage=usage))
    result = far.run()
    assert result.ok
    assert far.events("llm_responded")[0].get("usage") == counts
    assert bool(result.warnings) == is_warned


@pytest.mark.parametrize("ascii", [True, False])
def test_text_of_every_script_is_preserved(far: Caller, server: FakeServer, ascii: bool):
    text = "Grüße, 你好, שלום, 👩\u200d🚀, \u2028 \u0085 \x1c \\u0041 \"'"
    answer = json.dumps(finish(text), ensure_ascii=ascii)
    server.then(good(answer, pieces=300, ascii=ascii))
    assert far.run().artifact == {"type": "note", "data": {"text": text}}


def test_split_surrogates_are_accepted(far: Caller, server: FakeServer):
    begin, end = json.dumps(finish("to the * and back")).split("*")
    halves = (event(chunk(text)) for text in (begin, "\ud83d", "\ude80", end))
    server.then(good("\ud83d half"), stream(*halves, event(chunk(finish="stop")), DONE))
    assert far.run().artifact == {"type": "note", "data": {"text": "to the 🚀 and back"}}
    assert far.texts()[0] == "\\ud83d half"


def test_a_complete_answer_does_not_wait_for_the_connection_to_close(far: Caller, server: FakeServer):
    text = event(chunk(json.dumps(finish()), finish="stop"))
    server.then(stream(text.replace(b"\n", b"\r\n"), DONE, then="silence"))
    assert far.run().ok  # waiting for the server would time out


def test_an_endless_stream_is_abandoned(
    far: Caller, server: FakeServer, delays: list[float], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("reyn.models.streaming._MAX_BYTES", 100_000)
    server.then(stream(*[b"data: " + b"x" * 1_000] * 200, then="silence"), good(finish()))
    assert far.run().ok
    assert far.codes() == ["RYN510"]


# -- timeouts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behavior",
    [silence, stream(HALF, then="silence"), drip(b": so slow\n\n", 0.2)],
    ids=["it never answers", "it falls silent", "it drips"],
)
def test_a_slow_answer_times_out(far: Caller, server: FakeServer, behavior):
    far.configure(timeout=1, retries=0)
    server.then(behavior)
    result = far.run()
    assert (result.status, far.codes("llm_failed")) == ("failed", ["RYN513"])
    assert result.reason == "model `far` did not answer within 1 seconds"
    server.wait_for(lambda: server.open_connections == 0)
    far.configure()
    server.then(good(finish()))
    assert far.retry().ok


def test_a_timeout_is_retried(far: Caller, server: FakeServer, delays: list[float]):
    far.configure(timeout=1, retries=20)
    server.then(silence, good(finish()))
    assert far.run().ok
    assert set(far.codes()) == {"RYN513"}


def test_the_adapter_times_out_on_its_own(server: FakeServer):
    """Without the timeout of the kernel."""
    server.then(stream(HALF, then="silence"))
    settings = ModelSettings("openai:m", base_url=server.url, timeout=1)
    model = OpenAIModel("far", "m", settings, lambda: Secrets([]))
    with pytest.raises(ModelTimeout):
        asyncio.run(model.complete(ModelRequest((), {}, "r", "1.1", "h")))


def test_an_unreachable_server_is_reported(far: Caller, server: FakeServer, delays: list[float]):
    far.configure(base_url=f"http://127.0.0.1:{free_port()}/v1")
    result = far.run()
    assert (result.status, far.codes("llm_failed"), len(delays)) == ("failed", ["RYN506"], 3)
    assert "cannot connect to model `far`" in result.reason
    far.configure()
    server.then(good(finish()))
    assert far.retry().ok


# -- cancellation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behavior",
    [silence, stream(HALF, then="silence"), drip(b": so slow\n\n", 0.1)],
    ids=["silent", "halfway", "dripping"],
)
def test_cancelling_a_run_closes_its_connection(far: Caller, server: FakeServer, behavior):
    server.then(behavior)

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: server.requests)
            rt.cancel("k", "enough")
            assert (await asyncio.wait_for(running, TIMEOUT_SECONDS)).status == "cancelled"
            await until(lambda: server.drops)

    asyncio.run(main())
    assert far.events("run_cancelled")[0]["reason"] == "enough"


def test_a_run_can_be_cancelled_during_a_retry_delay(far: Caller, server: FakeServer):
    server.then(status(429, retry_after="60"))

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: server.requests and any(event.kind == "model_retried" for event in rt.runs.events("k")))
            rt.cancel("k")
            assert (await asyncio.wait_for(running, TIMEOUT_SECONDS)).status == "cancelled"

    asyncio.run(main())
    assert far.codes() == ["RYN507"]


@pytest.mark.parametrize("behavior", [silence, stream(HALF, then="silence")], ids=["silent", "halfway"])
def test_an_interrupted_run_resumes(far: Caller, server: FakeServer, behavior):
    server.then(good(go("second")), behavior)

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(PAIR, IN, run_id="k"))
            await until(lambda: len(server.requests) == 2)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await until(lambda: server.drops)

    asyncio.run(main())
    server.then(good(finish()))
    assert far.resume().ok
    assert len(server.requests) == 3
    assert far.texts() == [json.dumps(go("second")), json.dumps(finish())]


def test_closing_the_runtime_closes_connections(far: Caller, server: FakeServer):
    server.then(silence)

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: server.requests)
        assert running.cancelled()

    asyncio.run(main())
    server.wait_for(lambda: server.drops == 1)
    server.then(good(finish()))
    assert far.resume().ok


# -- fallback ------------------------------------------------------------------------------------


def near(other: FakeServer, **settings: object) -> dict[str, object]:
    return {"model": "openai:n", "base_url": other.url} | settings


def test_a_fallback_answers_for_the_rest_of_the_run(far: Caller, server: FakeServer, delays: list[float]):
    server.then(status(503, "down"))
    with FakeServer(good(go("second")), good(finish())) as other:
        far.configure(others={"near": near(other)}, fallback=["near"], retries=1)
        assert far.run(PAIR).ok
        assert (len(server.requests), len(other.requests)) == (2, 2)
        assert all(request.key == "no-key-is-set" for request in other.requests)
    assert far.results[-1].warnings == ("model `far` was replaced by its fallback `near`",)
    [switched] = far.events("model_switched")
    assert (switched["model"], switched["to"], switched["code"]) == ("far", "near", "RYN506")
    assert switched["message"] == "model `far` returned HTTP 503: down"
    assert [event["model"] for event in far.events("llm_requested")] == ["far", "far"]


def test_a_switch_survives_a_restart_and_ends_with_the_run(far: Caller, server: FakeServer, delays: list[float]):
    server.then(status(401))

    def dies(event: Event) -> None:
        if event.kind == "phase_completed":
            raise KeyboardInterrupt

    with FakeServer(good(go("second")), good(finish())) as other:
        far.configure(others={"near": near(other)}, fallback=["near"])
        with SyncRuntime(far.runtime()) as rt, pytest.raises(KeyboardInterrupt):
            rt.run(PAIR, IN, run_id="k", listener=dies)
        assert far.resume().ok
        assert (len(server.requests), len(other.requests)) == (1, 2)
        server.then(good(finish()))
        assert far.run(run_id="next").ok
        assert (len(server.requests), len(other.requests)) == (2, 2)


def test_the_error_of_the_last_fallback_is_reported(far: Caller, server: FakeServer, delays: list[float]):
    server.then(status(404, "no such model"))
    with FakeServer(status(429, "later", retry_after="999")) as other:
        others = {"near": near(other, fallback=["far"]), "loop": "loop"}
        far.configure(others=others, fallback=["loop", "scripted:nowhere.jsonl", "near"])
        result = far.run()
        assert len(other.requests) == 1
    assert result.status == "failed"
    assert far.codes("llm_failed") == ["RYN507"]
    assert [(event["to"], event["code"]) for event in far.events("model_switched")] == [
        ("loop", "RYN509"),
        ("scripted:nowhere.jsonl", "RYN501"),
        ("near", "RYN502"),
    ]
    server.then(good(finish()))
    assert far.retry().ok  # from the first of the list


def test_fallbacks_of_one_list_are_tried_in_order(far: Caller, server: FakeServer, delays: list[float]):
    server.then(status(404, "no such model"))
    with FakeServer(status(503)) as second, FakeServer(good(go("second")), good(finish())) as third:
        others = {"b": near(second, retries=0), "c": near(third)}
        far.configure(others=others, fallback=["b", "c"])
        assert far.run(PAIR).ok
        assert (len(server.requests), len(second.requests), len(third.requests)) == (1, 1, 2)
    assert [(event["model"], event["to"]) for event in far.events("model_switched")] == [("far", "b"), ("b", "c")]


def test_a_model_that_is_not_installed_falls_back_if_a_fallback_opens(far: Caller, server: FakeServer):
    server.then(good(finish()))
    others = {"near": {"model": "local:none.gguf", "fallback": ["far"]}}
    far.configure(others=others)
    assert far.run(model="near").ok
    assert far.codes("model_switched") == ["RYN511"]
    far.configure(others=others, model="scripted:none.jsonl")
    with pytest.raises(ModelNotInstalled, match=r"model file not found: `none.gguf`"):
        far.run(run_id="other", model="near")
    with pytest.raises(RunNotFound):
        far.events(run_id="other")


def test_the_hint_of_a_failed_run_names_the_secret(far: Caller, server: FakeServer):
    far.configure(key="secret://OTHER_KEY")
    write_skill(far.root, "above", {f"@{ONE}": ["end"]})
    for run, skill in (("k", ONE), ("up", "above")):
        result = far.run(skill, run)
        assert (result.status, result.code) == ("failed", "RYN508")
        assert result.hint == "Store the secret `OTHER_KEY`, or set the variable `REYN_SECRET_OTHER_KEY`."
    server.then(status(401, "who?"))
    far.configure()
    result = far.retry()
    assert result.code == "RYN508"
    assert result.hint == "Store a valid key as the secret `FAR_KEY`, then resume the run."
    server.then(good(finish()))
    assert (far.retry().code, far.retry("up").hint) == ("", "")


def test_naming_a_model_ends_the_fallback(far: Caller, server: FakeServer, delays: list[float]):
    server.then(status(401, "no"))
    with FakeServer(status(400, "no")) as other:
        far.configure(others={"near": near(other)}, fallback=["near"])
        assert far.run().status == "failed"
        server.then(good(finish()))
        assert far.resume(retry=True, model="far").ok
        assert len(other.requests) == 1


def test_modes_change_even_without_retries(far: Caller, server: FakeServer):
    server.then(status(400, NO_SCHEMA), good(finish()))
    far.configure(retries=0)
    assert far.run().ok
    assert [request.mode for request in server.requests] == ["json_schema", "json_object"]


def test_a_truncated_answer_is_recorded_as_such(far: Caller, server: FakeServer):
    half = json.dumps(finish("a long text"))[:60]
    server.then(stream(event(chunk(half)), event(chunk(finish="length")), b"data: [DONE]\n\n"), good(finish()))
    assert far.run().ok
    assert far.events("llm_responded")[0]["cut"]
    [rejection] = far.events("validation_error")
    assert (rejection["class"], "max_tokens" in rejection["message"]) == ("size", True)


def test_deltas_are_streamed_and_a_broken_listener_does_not_fail_the_call(far: Caller, server: FakeServer):
    class Listener:
        def __init__(self, *, is_broken: bool) -> None:
            self.received: list[str] = []
            self.is_broken = is_broken

        def on_delta(self, delta: Delta) -> None:
            assert (delta.run_id, delta.call) == ("k", "1.1") or self.is_broken
            self.received.append(delta.text)
            if self.is_broken:
                raise ValueError("broken")

    answer = json.dumps(finish("a text"))
    for run_id, listener in (("k", Listener(is_broken=False)), ("j", Listener(is_broken=True))):
        server.then(good(answer, pieces=7))
        with SyncRuntime(far.runtime()) as rt:
            assert rt.run(ONE, IN, run_id=run_id, on_delta=listener.on_delta).ok
        received = "".join(listener.received)
        assert answer.startswith(received) if listener.is_broken else answer == received
        assert len(listener.received) == 1 if listener.is_broken else len(listener.received) > 2


def test_deltas_contain_no_key(far: Caller, server: FakeServer):
    class Listener:
        received = ""

        def on_delta(self, delta: Delta) -> None:
            self.received += delta.text
            assert KEY[:8] not in self.received
            assert KEY[-8:] not in self.received

    server.then(good(lambda request: finish(f"my key is {request.key}, yes, {request.key}"), pieces=30))
    listener = Listener()
    with SyncRuntime(far.runtime()) as rt:
        assert rt.run(ONE, IN, run_id="k", on_delta=listener.on_delta).ok
    assert json.loads(listener.received) == finish("my key is secret://FAR_KEY, yes, secret://FAR_KEY")


def test_a_truncated_answer_is_truncated_when_replayed_by_recorded(far: Caller, server: FakeServer):
    half = json.dumps(finish("a long text"))[:60]
    server.then(stream(event(chunk(half)), event(chunk(finish="length")), DONE), good(finish()))
    assert far.run().ok
    assert far.run(run_id="again", model="recorded:k").ok
    first, second = (far.events("llm_responded", run_id=run_id) for run_id in ("k", "again"))
    assert first == second


def test_fallbacks_of_fallbacks_are_tried_in_order(far: Caller, server: FakeServer, delays: list[float]):
    server.then(status(404, "no such model"))
    with FakeServer(status(503)) as second, FakeServer(good(finish())) as third:
        others = {"b": near(second, fallback=["far", "c"], retries=0), "c": near(third)}
        far.configure(others=others, fallback=["b"])
        assert far.run().ok
    assert [(event["model"], event["to"]) for event in far.events("model_switched")] == [("far", "b"), ("b", "c")]


def test_all_retries_and_switches_of_a_call_are_recorded_in_order(far: Caller, server: FakeServer, delays: list[float]):
    """The fixture also replays the run."""
    server.then(status(400, NO_SCHEMA), status(429, retry_after="2"), stream(HALF), status(401, "no"))
    with FakeServer(status(500), good(finish())) as other:
        far.configure(others={"near": near(other)}, fallback=["near"])
        assert far.run().ok
    events = far.events("model_retried", "model_switched")
    assert [event["code"] for event in events] == ["RYN514", "RYN507", "RYN510", "RYN508", "RYN506"]


def test_a_key_is_not_sent_to_another_server(far: Caller, server: FakeServer):
    server.then(status(403))
    with FakeServer(good(finish())) as other:
        far.configure(others={"near": near(other)}, fallback=["near"])
        assert far.run().ok
        assert [request.all("authorization") for request in other.requests] == [["Bearer no-key-is-set"]]
