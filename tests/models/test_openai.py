"""The adapter for OpenAI's chat completions against a server that does what servers do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import time
import traceback
from email.utils import formatdate

import pytest

from reyn import SyncRuntime
from reyn.config import ModelSettings
from reyn.errors import ConfigInvalid, KeyRefused, ModelError, ModelMissing, ModelTimeout, RequestRefused, RunNotFound
from reyn.journal import Event
from reyn.models import Delta, Message, ModelRequest
from reyn.models.openai import OpenAIModel
from reyn.secrets import MemoryStore, Secrets
from tests.models.calling import HANGS, IN, KEY, ONE, PAIR, Caller, until
from tests.models.fake_server import (
    Asked,
    FakeServer,
    Line,
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


# -- what is asked ------------------------------------------------------------------------------------


def test_an_answer_in_pieces_is_recorded_whole_with_its_mode_and_tokens(far: Caller, server: FakeServer):
    server.then(good(go("second"), pieces=40), good(finish("there")))
    result = far.run(PAIR)
    assert result.ok
    assert result.artifact == {"type": "note", "data": {"text": "there"}}
    assert (result.usage.input_tokens, result.usage.output_tokens) == (14, 10)
    assert [event["mode"] for event in far.events("llm_responded")] == ["json_schema"] * 2
    assert far.texts() == [json.dumps(go("second")), json.dumps(finish("there"))]


def test_a_request_holds_the_frame_the_settings_and_the_contract_and_its_key_once(far: Caller, server: FakeServer):
    far.configure(max_tokens=77, temperature=0.5)
    server.then(good(finish()))
    far.run()
    [asked] = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.all("authorization") == [f"Bearer {KEY}"]
    assert (asked.body["model"], asked.body["max_tokens"], asked.body["temperature"]) == ("m", 77, 0.5)
    assert asked.body["stream"]
    assert [message["role"] for message in asked.body["messages"]] == ["system", "user"]
    held = asked.body["response_format"]["json_schema"]["schema"]
    assert [list(branch["properties"]) for branch in held["anyOf"]] == [["control", "artifact"]] * 2


ROOT = "Invalid schema for response_format 'answer': schema must be a JSON Schema of 'type: \"object\"'"


@pytest.mark.parametrize("mode", ["auto", "json_schema"])
def test_a_server_that_takes_no_alternatives_at_the_root_gets_one_object(far: Caller, server: FakeServer, mode: str):
    server.then(status(400, ROOT), good(go("second")), good(finish()))
    far.configure(mode=mode)
    assert far.run(PAIR).ok
    held = [asked.body["response_format"]["json_schema"]["schema"] for asked in server.asked]
    assert ["anyOf" in schema for schema in held] == [True, False, False]
    assert all(schema["required"] == ["control", "artifact"] for schema in held[1:])
    assert [event["instead"] for event in far.events("model_retried")] == ["json_schema, one object"]
    assert [event["mode"] for event in far.events("llm_responded")] == ["json_schema", "json_schema"]


def test_calls_share_a_connection(far: Caller, server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.models.streaming._LAST_SECONDS", HANGS)
    server.then(good("nonsense"), good(go("second")), good(finish()))
    assert far.run(PAIR).ok
    assert (len(server.asked), server.connections) == (3, 1)


def test_a_server_without_a_key_needs_none(far: Caller, server: FakeServer):
    far.configure(key=None)
    server.then(good(finish()))
    assert far.run().ok


def test_a_model_answers_in_one_loop_after_another(server: FakeServer):
    server.then(good("hello"))
    model = OpenAIModel("far", "m", ModelSettings("openai:m", base_url=server.url), lambda: Secrets([]))
    request = ModelRequest((Message("user", "hi"),), {"type": "object"}, "r", "1.1", "h")

    with asyncio.Runner() as one, asyncio.Runner() as another:
        assert one.run(model.complete(request)).text == "hello"
        left_open = model._client
        assert another.run(model.complete(request)).text == "hello"
        another.run(model.aclose())
        one.run(left_open.close())


async def connected(model: OpenAIModel):
    return model._connected()


def test_variables_of_the_sdk_change_nothing(far: Caller, server: FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{free_port()}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_ORG_ID", "somebody")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "something")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer stolen")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    server.then(good(finish()))
    assert far.run().ok
    assert not [name for name, _ in server.asked[0].headers if name.lower().startswith("openai-")]
    settings = ModelSettings("openai:m", key="secret://FAR_KEY")
    model = OpenAIModel("far", "m", settings, lambda: Secrets([MemoryStore({"FAR_KEY": KEY})]))
    with asyncio.Runner() as runner:
        client = runner.run(connected(model))
        assert str(client.base_url) == f"{model.describe()['base_url']}/" == "https://api.openai.com/v1/"
        assert client.api_key == KEY
        runner.run(model.aclose())


def test_a_redirect_is_not_followed(far: Caller, server: FakeServer):
    with FakeServer(good(finish())) as elsewhere:
        server.then(whole("text/plain", b"", 307, location=f"{elsewhere.url}/chat/completions"))
        result = far.run()
        assert (result.status, far.codes("llm_failed")) == ("failed", ["RYN509"])
        assert elsewhere.url in result.reason
        assert elsewhere.asked == []
        server.then(good(finish()))
        assert far.retry().ok


@pytest.mark.parametrize(
    ("manner", "listed"),
    [
        (whole("application/json", b'{"data": [{"id": "m"}, {"id": "n"}, 5]}'), ["m", "n"]),
        (whole("application/json", b'{"data": null}'), []),
        (whole("text/html", b"<html>"), []),
        (status(404), []),
        (status(401, lambda asked: f"no: {asked.key}"), KeyRefused),
        (whole("text/plain", b"", 302, location="http://127.0.0.1:1/"), RequestRefused),
    ],
)
def test_a_server_is_asked_what_it_has(server: FakeServer, manner, listed):
    server.then(manner)
    settings = ModelSettings("openai:m", base_url=server.url, key="secret://FAR_KEY")
    secrets = Secrets([MemoryStore({"FAR_KEY": KEY})])
    model = OpenAIModel("far", "m", settings, lambda: secrets)

    async def main() -> list[str] | type[Exception]:
        try:
            return await model.listed()
        except ModelError as error:
            told.extend([repr(error), *traceback.format_exception(error)])
            return type(error)
        finally:
            await model.aclose()

    told: list[str] = []
    assert asyncio.run(main()) == listed
    assert KEY not in str(told)
    assert [asked.path for asked in server.asked] == ["/v1/models"]


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModelMissing, match="extra `openai`"):
        OpenAIModel("far", "m", ModelSettings("openai:m"), lambda: Secrets([]))


# -- the key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_is_told_at_once_and_asked_with_once(far: Caller, server: FakeServer, code: int):
    server.then(status(code, lambda asked: f"Incorrect API key provided: {asked.key}"))
    result = far.run()
    assert (result.status, far.codes("llm_failed"), far.codes()) == ("failed", ["RYN508"], [])
    assert result.reason == f"`far` says {code}: Incorrect API key provided: secret://FAR_KEY"
    assert len(server.asked) == 1
    server.then(good(finish()))
    assert far.retry().ok


def test_a_key_that_was_replaced_is_used_by_the_same_process(far: Caller, server: FakeServer):
    server.then(status(401), good(finish()))

    async def main():
        async with far.runtime() as rt:
            assert (await rt.run(ONE, IN, run_id="k")).status == "failed"
            far.secrets.set("FAR_KEY", "another-key")
            assert (await rt.resume("k", retry=True)).ok

    asyncio.run(main())
    assert [asked.key for asked in server.asked] == [KEY, "another-key"]


def test_a_key_that_is_not_stored_is_told_before_anything_is_sent(far: Caller, server: FakeServer):
    far.secrets.remove("FAR_KEY")
    result = far.run()
    assert (result.status, far.codes("llm_failed")) == ("failed", ["RYN508"])
    assert "there is no secret `FAR_KEY`" in result.reason
    assert server.asked == []
    far.secrets.set("FAR_KEY", KEY)
    server.then(good(finish()))
    assert far.retry().ok


@pytest.mark.parametrize("key", ["sk-0123456789\n", "sk-01234\n56789", "sk-012345€", " sk-0123456789"])
def test_a_key_that_no_header_carries_is_told_and_not_quoted(far: Caller, server: FakeServer, key: str):
    far.secrets.set("FAR_KEY", key)
    result = far.run()
    assert far.codes("llm_failed") == ["RYN508"]
    assert "sk-01" not in result.reason
    assert server.asked == []


def test_openai_itself_is_not_asked_without_a_key():
    model = OpenAIModel("far", "m", ModelSettings("openai:m"), lambda: Secrets([]))
    with pytest.raises(KeyRefused, match="has no key"):
        asyncio.run(model.complete(ModelRequest((), {}, "r", "1.1", "h")))


def test_a_key_that_is_written_out_is_refused_and_not_quoted(far: Caller):
    far.configure(key=KEY)
    with pytest.raises(ConfigInvalid, match="the handle of a secret") as caught:
        far.run()
    assert KEY not in str(caught.value)
    (far.root / "reyn.yaml").unlink()


def test_a_key_that_the_server_says_back_is_recorded_as_its_handle(far: Caller, server: FakeServer, rests: list[float]):
    server.then(
        status(503, lambda asked: f"{'x' * 488} {asked.key} and more"),  # what is cut is cut after it was scrubbed
        stream(event({"error": {"message": f"sorry, {KEY}"}})),
        whole("text/html", b"<p>" + KEY.encode()),
        good(lambda asked: f"I was given {asked.key}"),
        good(lambda asked: finish(f"the key is {asked.key}")),
    )
    result = far.run()
    assert result.artifact == {"type": "note", "data": {"text": "the key is secret://FAR_KEY"}}
    assert len(server.asked) == 5
    assert far.texts()[0] == "I was given secret://FAR_KEY"


# -- what may pass ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [408, 409, 425, 500, 502, 503, 529])
def test_a_server_that_cannot_answer_now_is_asked_again(far: Caller, server: FakeServer, rests: list[float], code: int):
    server.then(status(code, "busy"), status(code, "busy"), good(finish()))
    assert far.run().ok
    told = far.events("model_retried")
    assert [(event["code"], event["attempt"], event["model"]) for event in told] == [
        ("RYN506", 1, "far"),
        ("RYN506", 2, "far"),
    ]
    assert told[0]["message"] == f"`far` says {code}: busy"
    assert [event["wait_ms"] for event in told] == [int(wait * 1000) for wait in rests]


def test_a_page_in_place_of_an_error_is_told_shortly(far: Caller, server: FakeServer, rests: list[float]):
    page = b"<html>\n<body>\n  Bad Gateway" + b"<br>" * 2_500_000
    server.then(whole("text/html", page, 502), good(finish()))
    assert far.run().ok
    [told] = far.events("model_retried")
    assert told["message"].startswith("`far` says 502: <html> <body> Bad Gateway<br>")
    assert len(told["message"]) < 600


@pytest.mark.parametrize("code", [200, 500])
def test_a_body_without_an_end_is_not_read_for_ever(
    far: Caller, server: FakeServer, rests: list[float], monkeypatch: pytest.MonkeyPatch, code: int
):
    monkeypatch.setattr("reyn.models.streaming._MOST_BYTES", 100_000)
    sent = []

    async def endless(_: Asked, line: Line) -> None:
        await line.head(code, {"content-type": "application/json", "transfer-encoding": "chunked"})
        with contextlib.suppress(Exception):
            while len(sent) < 10_000:
                sent.append(1)
                await line.piece(b"x" * 100_000)

    server.then(endless, good(finish()))
    assert far.run().ok
    assert far.codes() == ["RYN510" if code == 200 else "RYN506"]
    assert len(sent) < 1_000


def test_waits_grow_differ_and_end(far: Caller, server: FakeServer, rests: list[float]):
    far.configure(retries=9)
    server.then(status(503))
    result = far.run()
    assert (result.status, len(server.asked), len(rests)) == ("failed", 10, 9)
    ceilings = [min(30.0, 0.5 * 2**number) for number in range(9)]
    assert all(ceiling / 2 <= wait <= ceiling for ceiling, wait in zip(ceilings, rests, strict=True))
    server.then(good(finish()))
    assert far.retry().ok


def test_what_does_not_pass_is_told_and_can_be_tried_again(far: Caller, server: FakeServer, rests: list[float]):
    server.then(good(go("second")), status(503, "down for today"))
    result = far.run(PAIR)
    assert (result.status, result.reason) == ("failed", "`far` says 503: down for today")
    assert far.codes("llm_failed") == ["RYN506"]
    assert len(server.asked) == 5
    server.then(good(finish()))
    assert far.retry().ok
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("asked_for", "least", "most"),
    [("7", 7, 7), ("0", 0.25, 0.5), ("1.5", 1.5, 1.5), ("", 0.25, 0.5), ("soon", 0.25, 0.5), ("-3", 0.25, 0.5)],
)
def test_a_rate_limit_is_waited_for_as_long_as_it_says(
    far: Caller, server: FakeServer, rests: list[float], asked_for: str, least: float, most: float
):
    server.then(status(429, "slow down", retry_after=asked_for), good(finish()))
    assert far.run().ok
    assert far.codes() == ["RYN507"]
    [wait] = rests
    assert least <= wait <= most


def test_a_rate_limit_may_name_a_date(
    far: Caller, server: FakeServer, rests: list[float], monkeypatch: pytest.MonkeyPatch
):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    server.then(status(429, retry_after=formatdate(now + 60, usegmt=True)), good(finish()))
    assert far.run().ok
    assert 59 <= rests[0] <= 60  # a date has no fractions of a second


def test_a_rate_limit_that_is_too_long_is_not_waited_for(far: Caller, server: FakeServer, rests: list[float]):
    server.then(status(429, "come back tomorrow", retry_after="3600"))
    result = far.run()
    assert result.reason == "`far` says 429: come back tomorrow (to be asked again in 3600 seconds)"
    assert (far.codes("llm_failed"), rests, len(server.asked)) == (["RYN507"], [], 1)
    server.then(good(finish()))
    assert far.retry().ok


def test_waits_are_real(far: Caller, server: FakeServer):
    server.then(status(429, retry_after="1"), status(503), good(finish()))
    assert far.run().ok
    first, second, third = (asked.at for asked in server.asked)
    assert second - first >= 1.0
    assert third - second >= 0.5  # the second failure: between half and all of a second


# -- what cannot pass ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message", "told"),
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
def test_a_refused_request_is_told_and_asked_once(far: Caller, server: FakeServer, code: int, message: str, told: str):
    server.then(status(code, message))
    result = far.run()
    assert (result.status, result.reason) == ("failed", f"`far` says {code}: {message}")
    assert (far.codes("llm_failed"), far.codes(), len(server.asked)) == ([told], [], 1)
    server.then(good(finish()))
    assert far.retry().ok


# -- how it is held to its contract -------------------------------------------------------------------

NO_SCHEMA = "Invalid schema for response_format 'answer': In context=('properties', 'x'), 'pattern' is not permitted"


def test_a_refused_schema_falls_back_visibly_and_for_good(far: Caller, server: FakeServer, rests: list[float]):
    server.then(
        status(400, NO_SCHEMA),
        status(422, "This response_format type is unavailable now"),
        good(go("second")),
        good(finish()),
    )
    assert far.run(PAIR).ok
    assert [asked.mode for asked in server.asked] == ["json_schema", "json_object", "free", "free"]
    told = [(event["code"], event["instead"], event["wait_ms"]) for event in far.events("model_retried")]
    assert told == [("RYN514", "json_object", 0), ("RYN514", "free", 0)]
    assert [event["mode"] for event in far.events("llm_responded")] == ["free", "free"]


def test_ways_that_were_refused_do_not_use_up_the_retries(far: Caller, server: FakeServer, rests: list[float]):
    far.configure(retries=1)
    server.then(status(400, NO_SCHEMA), status(400, NO_SCHEMA), status(503), good(finish()))
    assert far.run().ok
    assert [event.get("instead") for event in far.events("model_retried")] == ["json_object", "free", None]
    assert rests[2] <= 0.5


def test_a_schema_refused_to_two_calls_at_once_is_one_step_down(far: Caller, server: FakeServer):
    """Both asked with a schema; neither may push the other past what was tried."""
    refusal = together(2, status(400, NO_SCHEMA))
    server.then(refusal, refusal, good(finish()))

    async def main():
        async with far.runtime() as rt:
            results = await asyncio.gather(*(rt.run(ONE, IN, run_id=name) for name in ("a", "b")))
            assert all(result.ok for result in results)

    asyncio.run(main())
    assert sorted(asked.mode for asked in server.asked) == ["json_object"] * 2 + ["json_schema"] * 2
    for run in ("a", "b"):
        assert [event["instead"] for event in far.events("model_retried", run_id=run)] == ["json_object"]
        assert [event["mode"] for event in far.events("llm_responded", run_id=run)] == ["json_object"]


@pytest.mark.parametrize("mode", ["json_schema", "json_object"])
def test_a_way_that_was_declared_is_kept(far: Caller, server: FakeServer, mode: str):
    far.configure(mode=mode)
    server.then(status(400, NO_SCHEMA))
    assert far.run().status == "failed"
    assert (far.codes("llm_failed"), len(server.asked)) == (["RYN514"], 1)
    server.then(good(finish()))
    assert far.retry().ok
    assert server.asked[1].mode == mode


def test_free_answers_are_checked_all_the_same(far: Caller, server: FakeServer):
    far.configure(mode="free")
    server.then(good("Sure! Here it is."), good(f"```json\n{json.dumps(finish())}\n```"))
    assert far.run().ok
    assert len(far.events("validation_error")) == 1
    assert len(far.events("answer_unwrapped")) == 1


# -- what arrives is not what was agreed on -----------------------------------------------------------

BROKEN = {
    "half of an event": (b"data: {broken\n\n",),
    "a number": (b"data: 5\n\n",),
    "no text": (event(chunk() | {"choices": [{"delta": {"content": {"x": 1}}}]}),),
    "no list": (event({"choices": 7}),),
    "bytes that are no text": (b"data: \xff\xfe\n\n",),
    "an error": (HALF, event({"error": {"message": "the GPU fell off", "type": "server_error"}})),
    "an error in words": (event({"error": "the GPU fell off"}),),
    "a clean end in the middle": (HALF,),
    "an end in the middle": (HALF, DONE),
    "an end that was not announced": (event(chunk(json.dumps(finish())[:40], finish="")), DONE),
    "no choices": (event(chunk() | {"choices": []}), event(chunk() | {"choices": None}), DONE),
    "nothing": (),
    "only the end": (DONE,),
}


@pytest.mark.parametrize("contents", BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_thrown_away_and_asked_for_again(
    far: Caller, server: FakeServer, rests: list[float], contents: tuple[bytes, ...]
):
    server.then(stream(*contents), good(finish("whole")))
    assert far.run().ok
    assert (far.codes(), len(server.asked)) == (["RYN510"], 2)
    assert far.texts() == [json.dumps(finish("whole"))]


@pytest.mark.parametrize("contents", [(HALF,), ()], ids=["in the middle", "at its beginning"])
def test_a_connection_that_is_cut_is_told(
    far: Caller, server: FakeServer, rests: list[float], contents: tuple[bytes, ...]
):
    far.configure(retries=1)
    server.then(stream(*contents, then="hang up"))
    result = far.run()
    assert (result.status, far.codes(), far.codes("llm_failed")) == ("failed", ["RYN510"], ["RYN510"])
    server.then(good(finish()))
    assert far.retry().ok
    assert far.texts() == [json.dumps(finish())]


def test_a_server_that_hangs_up_without_a_word_is_asked_again(far: Caller, server: FakeServer, rests: list[float]):
    server.then(hang_up, good(finish()))
    assert far.run().ok
    assert far.codes() == ["RYN506"]


@pytest.mark.parametrize(
    ("code", "told"), [(429, "RYN507"), (503, "RYN506"), ("rate_limit", "RYN510"), (None, "RYN510")]
)
def test_an_error_that_comes_late_is_taken_for_what_it_says(
    far: Caller, server: FakeServer, rests: list[float], code: object, told: str
):
    server.then(stream(HALF, event({"error": {"message": "too much", "code": code}})), good(finish()))
    assert far.run().ok
    assert far.codes() == [told]


def test_what_only_surrounds_an_answer_is_passed_over(far: Caller, server: FakeServer):
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


def test_a_stream_may_be_written_in_every_way_that_its_format_has(far: Caller, server: FakeServer):
    text = json.dumps(finish())
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": text[9:]}]
    first = json.dumps(chunk(text[:9]), indent=1).replace("\n", "\rdata: ").encode()
    second = event(chunk() | {"choices": [{"delta": {"content": parts}, "finish_reason": "stop"}]})
    server.then(stream(b"data: " + first + b"\r\r", second.replace(b"\n", b"\r\n"), b"data: [DONE]\r\n\r\n"))
    assert far.run().ok
    assert far.texts() == [text]


def test_a_server_that_knows_the_limit_by_its_newer_name_is_told_so(far: Caller, server: FakeServer):
    words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    server.then(status(400, words), good(go("second")), good(finish()))
    far.configure(retries=0, max_tokens=77)
    assert far.run(PAIR).ok
    limits = ("max_tokens", "max_completion_tokens")
    asked = [{key: one.body[key] for key in limits if key in one.body} for one in server.asked]
    assert asked == [{"max_tokens": 77}, {"max_completion_tokens": 77}, {"max_completion_tokens": 77}]
    assert [event["instead"] for event in far.events("model_retried")] == ["max_completion_tokens"]


def test_two_calls_at_once_step_down_alike(far: Caller, server: FakeServer):
    """Both were sent before either was refused."""
    refusals = (
        ("anyOf is not permitted at the root of a schema", "json_schema, one object"),
        ("use max_completion_tokens", "max_completion_tokens"),
        ("response_format is not known", "json_object"),
    )
    for words, instead in refusals:
        settings = ModelSettings("openai:m", base_url=server.url)
        model = OpenAIModel("far", "m", settings, lambda: Secrets([]))
        asked = ModelRequest(
            (Message("user", "hello"),), {"anyOf": [{"properties": {}, "required": []}]}, "r", "1.1", "h"
        )

        async def both(model: OpenAIModel = model, asked: ModelRequest = asked) -> list[object]:
            refused = await asyncio.gather(model.complete(asked), model.complete(asked), return_exceptions=True)
            answers = await asyncio.gather(model.complete(asked), model.complete(asked))
            await model.aclose()
            return [*(getattr(error, "instead", error) for error in refused), *(answer.mode for answer in answers)]

        refusal = together(2, status(400, words))
        server.then(refusal, refusal, good(finish()), good(finish()))
        mode = "json_object" if instead == "json_object" else "json_schema"
        assert asyncio.run(both()) == [instead, instead, mode, mode]


def test_a_models_name_says_nothing_about_the_root_of_a_schema(far: Caller, server: FakeServer):
    server.then(status(400, "response_format is not taken"), good(finish()))
    far.configure(others={"groot": {"model": "openai:m", "base_url": server.url}})
    assert far.run(model="groot").ok
    assert [event["instead"] for event in far.events("model_retried")] == ["json_object"]


def test_an_answer_that_is_held_back_is_not_asked_for_again(far: Caller, server: FakeServer):
    server.then(stream(HALF, event(chunk(finish="content_filter")), DONE))
    result = far.run()
    assert (result.code, len(server.asked)) == ("RYN509", 1)
    assert "content_filter" in result.reason
    server.then(good(finish()))
    assert far.retry().ok


def test_a_page_in_place_of_an_answer_is_told_by_its_kind(far: Caller, server: FakeServer, rests: list[float]):
    server.then(whole("text/html; charset=utf-8", b"<html>a: b<body>Log in first</body>"))
    result = far.run()
    assert result.reason == "`far` sent no answer, but text/html; charset=utf-8"
    assert far.codes("llm_failed") == ["RYN510"]
    server.then(good(finish()))
    assert far.retry().ok


def test_an_answer_that_is_not_streamed_is_taken_whole(far: Caller, server: FakeServer, rests: list[float]):
    said = {"message": {"role": "assistant", "content": json.dumps(finish())}, "finish_reason": "stop"}
    answer = {"object": "chat.completion", "choices": [said], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
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


def test_a_refusal_in_words_is_recorded_as_the_answer(far: Caller, server: FakeServer):
    refusal = event(chunk() | {"choices": [{"delta": {"refusal": "I will not."}, "finish_reason": "stop"}]})
    server.then(stream(refusal, DONE), good(finish()))
    assert far.run().ok
    assert far.texts()[0] == "I will not."


@pytest.mark.parametrize("pieces", [1, 400])
def test_an_answer_of_ten_megabytes_is_not_read_to_its_end(far: Caller, server: FakeServer, pieces: int):
    server.then(good("x" * 10_000_000, pieces=pieces), good(finish()))
    assert far.run().ok
    assert far.events("validation_error")[0]["class"] == "size"
    assert len(server.asked[1].raw) < 100_000
    assert len(far.texts()[0]) == (10_000_000 if pieces == 1 else 2_025_000)


TOKENS = {"prompt_tokens": 5, "completion_tokens": 2}
COUNTED = {"input_tokens": 5, "output_tokens": 2, "cached_tokens": 0}


@pytest.mark.parametrize(
    ("usage", "counted", "warned"),
    [
        (None, None, False),
        ({}, None, False),
        ({"prompt_tokens": 5}, None, False),
        ("many", None, False),
        ({"prompt_tokens": 5, "completion_tokens": 2, "cost": 1}, COUNTED, False),
        (TOKENS | {"prompt_tokens_details": {"cached_tokens": 4}}, COUNTED | {"cached_tokens": 4}, False),
        (TOKENS | {"prompt_tokens_details": {"cached_tokens": "4"}}, COUNTED, False),
        (TOKENS | {"prompt_tokens_details": None}, COUNTED, False),
        ({"prompt_tokens": -5, "completion_tokens": 2}, None, True),
        ({"prompt_tokens": "5", "completion_tokens": 2}, None, True),
    ],
)
def test_tokens_are_counted_or_not_but_never_guessed(
    far: Caller, server: FakeServer, usage: object, counted: object, warned: bool
):
    server.then(good(finish(), usage=usage))
    result = far.run()
    assert result.ok
    assert far.events("llm_responded")[0].get("usage") == counted
    assert bool(result.warnings) == warned


@pytest.mark.parametrize("ascii", [True, False])
def test_text_of_every_script_arrives_as_it_was_sent(far: Caller, server: FakeServer, ascii: bool):
    text = "Grüße, 你好, שלום, 👩\u200d🚀, \u2028 \u0085 \x1c \\u0041 \"'"
    said = json.dumps(finish(text), ensure_ascii=ascii)
    server.then(good(said, pieces=300, ascii=ascii))
    assert far.run().artifact == {"type": "note", "data": {"text": text}}


def test_half_a_character_is_no_reason_to_break(far: Caller, server: FakeServer):
    begin, end = json.dumps(finish("to the * and back")).split("*")
    halves = (event(chunk(text)) for text in (begin, "\ud83d", "\ude80", end))
    server.then(good("\ud83d half"), stream(*halves, event(chunk(finish="stop")), DONE))
    assert far.run().artifact == {"type": "note", "data": {"text": "to the 🚀 and back"}}
    assert far.texts()[0] == "\\ud83d half"


def test_an_answer_that_is_whole_is_taken_though_the_server_does_not_hang_up(far: Caller, server: FakeServer):
    text = event(chunk(json.dumps(finish()), finish="stop"))
    server.then(stream(text.replace(b"\n", b"\r\n"), DONE, then="silence"))
    assert far.run().ok  # to wait for the server would be to fail


def test_an_answer_without_an_end_is_not_read_for_ever(
    far: Caller, server: FakeServer, rests: list[float], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("reyn.models.streaming._MOST_BYTES", 100_000)
    server.then(stream(*[b"data: " + b"x" * 1_000] * 200, then="silence"), good(finish()))
    assert far.run().ok
    assert far.codes() == ["RYN510"]


# -- time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manner",
    [silence, stream(HALF, then="silence"), drip(b": so slow\n\n", 0.2)],
    ids=["it never answers", "it falls silent", "it drips"],
)
def test_who_does_not_answer_in_time_is_left(far: Caller, server: FakeServer, manner):
    far.configure(timeout=1, retries=0)
    server.then(manner)
    result = far.run()
    assert (result.status, far.codes("llm_failed")) == ("failed", ["RYN513"])
    assert result.reason == "the model `far` did not answer within 1 seconds"
    server.wait_for(lambda: server.open_connections == 0)
    far.configure()
    server.then(good(finish()))
    assert far.retry().ok


def test_a_slow_beginning_is_tried_again(far: Caller, server: FakeServer, rests: list[float]):
    far.configure(timeout=1, retries=20)
    server.then(silence, good(finish()))
    assert far.run().ok
    assert set(far.codes()) == {"RYN513"}


def test_an_adapter_of_its_own_keeps_the_time_too(server: FakeServer):
    """Without the kernel around it."""
    server.then(stream(HALF, then="silence"))
    settings = ModelSettings("openai:m", base_url=server.url, timeout=1)
    model = OpenAIModel("far", "m", settings, lambda: Secrets([]))
    with pytest.raises(ModelTimeout):
        asyncio.run(model.complete(ModelRequest((), {}, "r", "1.1", "h")))


def test_nobody_at_the_door_is_told(far: Caller, server: FakeServer, rests: list[float]):
    far.configure(base_url=f"http://127.0.0.1:{free_port()}/v1")
    result = far.run()
    assert (result.status, far.codes("llm_failed"), len(rests)) == ("failed", ["RYN506"], 3)
    assert "`far` cannot be reached" in result.reason
    far.configure()
    server.then(good(finish()))
    assert far.retry().ok


# -- stopping -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manner",
    [silence, stream(HALF, then="silence"), drip(b": so slow\n\n", 0.1)],
    ids=["silent", "halfway", "dripping"],
)
def test_a_cancelled_run_leaves_the_server(far: Caller, server: FakeServer, manner):
    server.then(manner)

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: server.asked)
            rt.cancel("k", "enough")
            assert (await asyncio.wait_for(running, HANGS)).status == "cancelled"
            await until(lambda: server.drops)

    asyncio.run(main())
    assert far.events("run_cancelled")[0]["reason"] == "enough"


def test_a_run_is_cancelled_while_it_waits_to_ask_again(far: Caller, server: FakeServer):
    server.then(status(429, retry_after="60"))

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: server.asked and any(event.kind == "model_retried" for event in rt.events("k")))
            rt.cancel("k")
            assert (await asyncio.wait_for(running, HANGS)).status == "cancelled"

    asyncio.run(main())
    assert far.codes() == ["RYN507"]


@pytest.mark.parametrize("manner", [silence, stream(HALF, then="silence")], ids=["silent", "halfway"])
def test_an_interrupted_run_goes_on_where_it_was(far: Caller, server: FakeServer, manner):
    server.then(good(go("second")), manner)

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(PAIR, IN, run_id="k"))
            await until(lambda: len(server.asked) == 2)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await until(lambda: server.drops)

    asyncio.run(main())
    server.then(good(finish()))
    assert far.resume().ok
    assert len(server.asked) == 3
    assert far.texts() == [json.dumps(go("second")), json.dumps(finish())]


def test_a_runtime_that_is_closed_leaves_what_hangs(far: Caller, server: FakeServer):
    server.then(silence)

    async def main():
        async with far.runtime() as rt:
            running = asyncio.ensure_future(rt.run(ONE, IN, run_id="k"))
            await until(lambda: server.asked)
        assert running.cancelled()

    asyncio.run(main())
    server.wait_for(lambda: server.drops == 1)
    server.then(good(finish()))
    assert far.resume().ok


# -- somebody else ------------------------------------------------------------------------------------


def near(other: FakeServer, **settings: object) -> dict[str, object]:
    return {"model": "openai:n", "base_url": other.url} | settings


def test_another_model_takes_over_for_the_rest_of_the_run(far: Caller, server: FakeServer, rests: list[float]):
    server.then(status(503, "down"))
    with FakeServer(good(go("second")), good(finish())) as other:
        far.configure(others={"near": near(other)}, fallback=["near"], retries=1)
        assert far.run(PAIR).ok
        assert (len(server.asked), len(other.asked)) == (2, 2)
        assert all(asked.key == "no-key-is-set" for asked in other.asked)
    assert far.results[-1].warnings == ("`near` is asked in place of `far`",)
    [switched] = far.events("model_switched")
    assert (switched["model"], switched["to"], switched["code"]) == ("far", "near", "RYN506")
    assert switched["message"] == "`far` says 503: down"
    assert [event["model"] for event in far.events("llm_requested")] == ["far", "far"]


def test_a_switch_outlives_the_process_and_the_next_run_begins_anew(
    far: Caller, server: FakeServer, rests: list[float]
):
    server.then(status(401))

    def dies(event: Event) -> None:
        if event.kind == "phase_completed":
            raise KeyboardInterrupt

    with FakeServer(good(go("second")), good(finish())) as other:
        far.configure(others={"near": near(other)}, fallback=["near"])
        with SyncRuntime(far.runtime()) as rt, pytest.raises(KeyboardInterrupt):
            rt.run(PAIR, IN, run_id="k", listener=dies)
        assert far.resume().ok
        assert (len(server.asked), len(other.asked)) == (1, 2)
        server.then(good(finish()))
        assert far.run(run_id="next").ok
        assert (len(server.asked), len(other.asked)) == (2, 2)


def test_when_nobody_answers_the_last_is_told(far: Caller, server: FakeServer, rests: list[float]):
    server.then(status(404, "no such model"))
    with FakeServer(status(429, "later", retry_after="999")) as other:
        others = {"near": near(other, fallback=["far"]), "loop": "loop"}
        far.configure(others=others, fallback=["loop", "scripted:nowhere.jsonl", "near"])
        result = far.run()
        assert len(other.asked) == 1
    assert result.status == "failed"
    assert far.codes("llm_failed") == ["RYN507"]
    assert [(event["to"], event["code"]) for event in far.events("model_switched")] == [
        ("loop", "RYN509"),
        ("scripted:nowhere.jsonl", "RYN501"),
        ("near", "RYN502"),
    ]
    server.then(good(finish()))
    assert far.retry().ok  # from the first of the list


def test_a_list_in_one_place_is_gone_through_too(far: Caller, server: FakeServer, rests: list[float]):
    server.then(status(404, "no such model"))
    with FakeServer(status(503)) as second, FakeServer(good(go("second")), good(finish())) as third:
        others = {"b": near(second, retries=0), "c": near(third)}
        far.configure(others=others, fallback=["b", "c"])
        assert far.run(PAIR).ok
        assert (len(server.asked), len(second.asked), len(third.asked)) == (1, 1, 2)
    assert [(event["model"], event["to"]) for event in far.events("model_switched")] == [("far", "b"), ("b", "c")]


def test_a_model_that_is_not_here_is_replaced_too_but_not_if_nobody_is(far: Caller, server: FakeServer):
    server.then(good(finish()))
    others = {"near": {"model": "local:none.gguf", "fallback": ["far"]}}
    far.configure(others=others)
    assert far.run(model="near").ok
    assert far.codes("model_switched") == ["RYN511"]
    far.configure(others=others, model="scripted:none.jsonl")
    with pytest.raises(ModelMissing, match=r"no model file `none.gguf`"):
        far.run(run_id="other", model="near")
    with pytest.raises(RunNotFound):
        far.events(run_id="other")


def test_what_to_do_is_told_also_once_a_run_has_begun(far: Caller, server: FakeServer):
    far.configure(key="secret://OTHER_KEY")
    write_skill(far.root, "above", {f"@{ONE}": ["end"]})
    for run, skill in (("k", ONE), ("up", "above")):
        result = far.run(skill, run)
        assert (result.status, result.code) == ("failed", "RYN508")
        assert result.hint == "Run: reyn secret set OTHER_KEY (or set the variable REYN_SECRET_OTHER_KEY)"
    server.then(status(401, "who?"))
    far.configure()
    result = far.retry()
    assert (result.code, result.hint) == ("RYN508", "`reyn secret set FAR_KEY` stores the right one; then try again.")
    server.then(good(finish()))
    assert (far.retry().code, far.retry("up").hint) == ("", "")


def test_whoever_took_over_gives_back_when_a_model_is_named(far: Caller, server: FakeServer, rests: list[float]):
    server.then(status(401, "no"))
    with FakeServer(status(400, "no")) as other:
        far.configure(others={"near": near(other)}, fallback=["near"])
        assert far.run().status == "failed"
        server.then(good(finish()))
        assert far.resume(retry=True, model="far").ok
        assert len(other.asked) == 1


def test_without_retries_the_next_way_is_tried_all_the_same(far: Caller, server: FakeServer):
    server.then(status(400, NO_SCHEMA), good(finish()))
    far.configure(retries=0)
    assert far.run().ok
    assert [asked.mode for asked in server.asked] == ["json_schema", "json_object"]


def test_an_answer_that_is_cut_at_its_limit_says_so(far: Caller, server: FakeServer):
    half = json.dumps(finish("a long text"))[:60]
    server.then(stream(event(chunk(half)), event(chunk(finish="length")), b"data: [DONE]\n\n"), good(finish()))
    assert far.run().ok
    assert far.events("llm_responded")[0]["cut"]
    [told] = far.events("validation_error")
    assert (told["class"], "max_tokens" in told["message"]) == ("size", True)


def test_whoever_looks_on_hears_an_answer_as_it_comes_and_cannot_break_it(far: Caller, server: FakeServer):
    class Looker:
        def __init__(self, *, is_clumsy: bool) -> None:
            self.heard: list[str] = []
            self.is_clumsy = is_clumsy

        def on_delta(self, delta: Delta) -> None:
            assert (delta.run_id, delta.call) == ("k", "1.1") or self.is_clumsy
            self.heard.append(delta.text)
            if self.is_clumsy:
                raise ValueError("clumsy")

    answer = json.dumps(finish("a text"))
    for run_id, looker in (("k", Looker(is_clumsy=False)), ("j", Looker(is_clumsy=True))):
        server.then(good(answer, pieces=7))
        with SyncRuntime(far.runtime()) as rt:
            assert rt.run(ONE, IN, run_id=run_id, on_delta=looker.on_delta).ok
        heard = "".join(looker.heard)
        assert answer.startswith(heard) if looker.is_clumsy else answer == heard
        assert len(looker.heard) == 1 if looker.is_clumsy else len(looker.heard) > 2


def test_whoever_looks_on_hears_no_key(far: Caller, server: FakeServer):
    class Looker:
        heard = ""

        def on_delta(self, delta: Delta) -> None:
            self.heard += delta.text
            assert KEY[:8] not in self.heard
            assert KEY[-8:] not in self.heard

    server.then(good(lambda asked: finish(f"my key is {asked.key}, yes, {asked.key}"), pieces=30))
    looker = Looker()
    with SyncRuntime(far.runtime()) as rt:
        assert rt.run(ONE, IN, run_id="k", on_delta=looker.on_delta).ok
    assert json.loads(looker.heard) == finish("my key is secret://FAR_KEY, yes, secret://FAR_KEY")


def test_a_cut_answer_is_cut_when_it_is_heard_again(far: Caller, server: FakeServer):
    half = json.dumps(finish("a long text"))[:60]
    server.then(stream(event(chunk(half)), event(chunk(finish="length")), DONE), good(finish()))
    assert far.run().ok
    assert far.run(run_id="again", model="recorded:k").ok
    first, second = (far.events("llm_responded", run_id=run_id) for run_id in ("k", "again"))
    assert first == second


def test_a_list_is_gone_through_in_order(far: Caller, server: FakeServer, rests: list[float]):
    server.then(status(404, "no such model"))
    with FakeServer(status(503)) as second, FakeServer(good(finish())) as third:
        others = {"b": near(second, fallback=["far", "c"], retries=0), "c": near(third)}
        far.configure(others=others, fallback=["b"])
        assert far.run().ok
    assert [(event["model"], event["to"]) for event in far.events("model_switched")] == [("far", "b"), ("b", "c")]


def test_every_way_of_every_model_is_told_in_order(far: Caller, server: FakeServer, rests: list[float]):
    """The whole story of one call, replayed to the byte by the fixture."""
    server.then(status(400, NO_SCHEMA), status(429, retry_after="2"), stream(HALF), status(401, "no"))
    with FakeServer(status(500), good(finish())) as other:
        far.configure(others={"near": near(other)}, fallback=["near"])
        assert far.run().ok
    told = far.events("model_retried", "model_switched")
    assert [event["code"] for event in told] == ["RYN514", "RYN507", "RYN510", "RYN508", "RYN506"]


def test_the_key_of_one_server_is_not_sent_to_another(far: Caller, server: FakeServer):
    server.then(status(403))
    with FakeServer(good(finish())) as other:
        far.configure(others={"near": near(other)}, fallback=["near"])
        assert far.run().ok
        heard: list[Asked] = other.asked
        assert [asked.all("authorization") for asked in heard] == [["Bearer no-key-is-set"]]
