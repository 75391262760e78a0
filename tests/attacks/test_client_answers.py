"""A hostile or broken server answers every method of the client: with its own answers, changed at random.

The oracle: a value of the method, or an error of Reyn with a code. Nothing else is raised, and every call ends.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from reyn.client import Client
from reyn.client import transport as transports
from reyn.errors import GatewayError, ReynError, all_errors
from reyn.journal.results import Approval
from reyn.models import Delta
from tests.gateway.support import QUESTION, Served, run_async, serving
from tests.gateway.test_conformance import PAIRS, methods
from tests.properties import ALL_CASES
from tests.support import finish, go

CASES = 200 if ALL_CASES else 12
IN = {"text": "in"}
Use = Callable[[Client], Any]


async def _answered(rt: Client) -> Any:
    return await rt.resume_answered(await rt.answer("w", None, "the blue one"))


async def _of_row(rt: Client, method: str) -> Any:
    return await getattr(rt.runs, method)(await rt.runs.find("w"))


async def _question_text(rt: Client) -> Any:
    asked = await rt.runs.open_question(await rt.runs.find("w"))
    return asked and await rt.runs.question_text(asked)


async def _reason(rt: Client) -> Any:
    return await rt.workers.reason(await rt.runs.find("w"))


USES: dict[str, Use] = {
    "run": lambda rt: rt.run("pair", IN, run_id="k", listener=lambda _: None, on_delta=lambda _: None),
    "run without waiting": lambda rt: rt.run("pair", IN, run_id="k", wait=False),
    "submit": lambda rt: rt.submit("pair", IN),
    "resume": lambda rt: rt.resume("w"),
    "fork": lambda rt: rt.fork("k", at=3, listener=lambda _: None),
    "rerun": lambda rt: rt.rerun("k"),
    "stream": lambda rt: rt.stream("pair", IN, run_id="k"),
    "answer": lambda rt: rt.answer("w", None, "the blue one"),
    "resume_answered": _answered,
    "cancel": lambda rt: rt.cancel("c"),
    "runs.is_recorded": lambda rt: rt.runs.is_recorded("k"),
    "runs.find": lambda rt: rt.runs.find("k"),
    "runs.all": lambda rt: rt.runs.all(),
    "runs.page": lambda rt: rt.runs.page(),
    "runs.select": lambda rt: rt.runs.select(),
    "runs.descendants": lambda rt: rt.runs.descendants("k"),
    "runs.root_run": lambda rt: _of_row(rt, "root_run"),
    "runs.display_status": lambda rt: _of_row(rt, "display_status"),
    "runs.next_action": lambda rt: _of_row(rt, "next_action"),
    "runs.open_question": lambda rt: _of_row(rt, "open_question"),
    "runs.question_text": _question_text,
    "runs.events": lambda rt: rt.runs.events("k"),
    "runs.watch": lambda rt: rt.runs.watch("k", with_children=True, on_delta=lambda _: None),
    **{
        f"runs.{name}": lambda rt, name=name: getattr(rt.runs, name)("k")  # type: ignore[misc]
        for name in (
            *("inbox", "summary", "result", "changed_files", "memory", "conversation_size", "prompt_at", "next_prompt"),
            *("context_frame", "prompt_sections", "decision_at", "visit_contexts", "handoffs", "replay", "verify"),
            *("budgets", "export"),
        )
    },
    "runs.usage": lambda rt: rt.runs.usage(),
    "runs.diff": lambda rt: rt.runs.diff("k", "w"),
    "runs.file_diff": lambda rt: rt.runs.file_diff("k", "output/a.txt"),
    "runs.undo": lambda rt: rt.runs.undo("k", dry_run=True),
    "runs.prune": lambda rt: rt.runs.prune(older_than=timedelta(days=1), dry_run=True),
    "runs.delete": lambda rt: rt.runs.delete(["k"], dry_run=True),
    **{
        f"project.{name}": lambda rt, name=name: getattr(rt.project, name)()  # type: ignore[misc]
        for name in ("skill_names", "agent_names", "models", "default_model")
    },
    **{
        f"project.{name}": lambda rt, name=name: getattr(rt.project, name)("pair")  # type: ignore[misc]
        for name in ("skill", "lint", "cases", "try_cases")
    },
    "project.agent": lambda rt: rt.project.agent("default"),
    "permissions.explain": lambda rt: rt.permissions.explain("pair"),
    "permissions.explain_op": lambda rt: rt.permissions.explain_op("pair", "file"),
    "permissions.approvals": lambda rt: rt.permissions.approvals(),
    "permissions.is_effective": lambda rt: rt.permissions.is_effective(msgspec.convert(APPROVAL, Approval)),
    "permissions.revoke": lambda rt: rt.permissions.revoke(1),
    "permissions.warnings": lambda rt: rt.permissions.warnings("k"),
    "conversations.begin": lambda rt: rt.conversations.begin("hello", run_id="talk"),
    "conversations.messages": lambda rt: rt.conversations.messages("talk"),
    "conversations.say": lambda rt: rt.conversations.say("talk", "more"),
    "conversations.check_open": lambda rt: rt.conversations.check_open("talk"),
    "conversations.rename": lambda rt: rt.conversations.rename("talk", "Tea"),
    "conversations.copy": lambda rt: rt.conversations.copy("talk"),
    "conversations.abort_turn": lambda rt: rt.conversations.abort_turn("talk"),
    "conversations.remember": lambda rt: rt.conversations.remember("talk", "tea"),
    "conversations.forget": lambda rt: rt.conversations.forget("talk", "1"),
    "conversations.compact": lambda rt: rt.conversations.compact("talk"),
    "workers.hand_over": lambda rt: rt.workers.hand_over("w"),
    "workers.all": lambda rt: rt.workers.all(),
    "workers.queued": lambda rt: rt.workers.queued(),
    "workers.reason": _reason,
}
APPROVAL = {name: 1 if name in ("id", "at") else "x" for name in Approval.__struct_fields__}
LOCAL = {"connect", "derive", "aclose"}


async def of(value: Any) -> Any:
    """Return the whole result of a method."""
    if inspect.isawaitable(value):
        return await value
    return [item async for item in value]


class Answers(httpx2.AsyncBaseTransport):
    """Answers as a server did, each time with the same bytes, changed by a function."""

    def __init__(self, change: Callable[[bytes], bytes] | None = None) -> None:
        self.recorded: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.server: httpx2.AsyncBaseTransport | None = None
        self.change = change

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        key = f"{request.method} {request.url.raw_path.decode()}"
        if self.server is not None:
            response = await self.server.handle_async_request(request)
            headers = {"content-type": response.headers.get("content-type", "")}
            answer = (response.status_code, headers, await response.aread())
            if response.is_success or key not in self.recorded:
                self.recorded[key] = answer
            return httpx2.Response(answer[0], headers=headers, stream=httpx2.ByteStream(answer[2]))
        status, headers, content = self.recorded.get(key, (200, {}, b"{}"))
        if self.change is not None:
            content = self.change(content)
        return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(content))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a server answers to the requests of every method."""
    answers, errors = Answers(), list[ReynError]()

    async def record(served: Served) -> None:
        async with served.http(served.token()) as http:
            answers.server = http._transport
            async with Client.connect(str(http.base_url), served.token(), http=_http(answers)) as client:
                await client.run("pair", IN, run_id="k")
                await client.run("asker", IN, run_id="w")
                for use in USES.values():
                    try:
                        await of(use(client))
                    except ReynError as error:  # of a run in another state: that answer is recorded
                        errors.append(error)
        assert not [one for one in errors if type(one) is GatewayError], "the client does not know an answer"

    async def work() -> None:
        root = tmp_path_factory.mktemp("answers")
        script = [go("second"), finish("x"), QUESTION, *([go("second"), finish("x")] * 20)]
        async with serving(root, script) as served:
            await record(served)

    run_async(work)
    assert len(answers.recorded) > 50
    return answers.recorded


def _http(answers: Answers) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=answers, base_url="http://127.0.0.1:8300")


VALUES: list[Any] = [None, True, -1, 0, 2**70, 1.5, "", "x", "k", [], {}, [[]], [None], {"a": 1}, [{}], "finished"]


def changed(value: Any, random: random.Random) -> Any:
    """Return a JSON value with one place changed."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        name = random.choice(sorted(value))
        rest = {key: one for key, one in value.items() if key != name}
        return rest if random.random() < 0.3 else rest | {name: changed(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        index = random.randrange(len(value))
        return [*value[:index], changed(value[index], random), *value[index + 1 :]]
    return random.choice(VALUES)


def changed_bytes(content: bytes, random: random.Random) -> bytes:
    """Return a body, or one line of a stream, with one place changed."""
    if content.startswith((b"event:", b"id:", b":")):
        lines = content.split(b"\r\n")
        index = random.choice([number for number, line in enumerate(lines) if line])
        name, _, value = lines[index].partition(b": ")
        new = {b"id": b"9" * 5_000, b"event": b"problem"}.get(name) or changed_bytes(value, random)
        return b"\r\n".join([*lines[:index], b"%b: %b" % (name, new), *lines[index + 1 :]])
    try:
        return msgspec.json.encode(changed(msgspec.json.decode(content), random))
    except msgspec.DecodeError:
        return b"{}"


@pytest.mark.sampled
@pytest.mark.parametrize("use", USES)
def test_a_method_returns_a_value_or_raises_an_error_with_a_code(
    use: str, recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transports, "PAUSES", (0.0, 0.0))

    async def attempt(seed: int) -> None:
        source = random.Random(f"{use} {seed}")
        answers = Answers(lambda content: changed_bytes(content, source) if source.random() < 0.7 else content)
        answers.recorded = recorded
        async with Client.connect("http://127.0.0.1:8300", "t", http=_http(answers)) as client:
            try:
                await asyncio.wait_for(of(USES[use](client)), 60)  # only bounds a hang
            except ReynError as found:
                error = found
            else:
                return
        assert error.code.startswith("RYN")
        assert str(error)
        assert isinstance(error.hint, str)

    async def attempts() -> None:
        for seed in range(CASES):
            await attempt(seed)

    asyncio.run(attempts())


def test_every_method_of_the_client_is_in_the_table():
    areas = ("", "runs.", "project.", "permissions.", "conversations.", "workers.")
    classes = {area: remote for area, (_, remote) in zip(areas, PAIRS, strict=True)}
    every = {f"{area}{name}" for area, remote in classes.items() for name in methods(remote) if name not in LOCAL}
    assert every - {"runs.files"} <= USES.keys()


@pytest.mark.parametrize("kind", sorted(all_errors(), key=str), ids=str)
def test_an_error_of_any_class_can_be_shown(kind: type[ReynError]):
    """A server sends the code alone, not what the constructor of the class takes."""
    for problem in ({"code": kind.code, "detail": "d"}, {"code": kind.code, "detail": None, "hint": ["h"]}):
        error = transports.error_of(msgspec.json.encode(problem), 500)
        assert error.code == kind.code
        assert str(error)
        assert repr(error)
        assert isinstance(error.hint, str)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"detail": ""}', b'{"code": {}, "detail": "d"}', b"\xff"])
def test_a_problem_that_is_none_is_an_error_of_the_server(body: bytes):
    assert type(transports.error_of(body, 500)) is GatewayError


def test_a_stream_that_repeats_itself_ends(recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transports, "PAUSES", (0.0, 0.0))
    event = {"seq": 1, "run_id": "k", "ts": 1, "kind": "k", "v": 1, "prev": "", "hash": "", "data": {}}
    body = b"event: event\nid: 1\ndata: " + msgspec.json.encode(event) + b"\n\n"
    delta = b"event: delta\ndata: " + msgspec.json.encode(Delta("k", "c", "t")) + b"\n\n"
    for content in (body, delta, body + delta, b": ping\n\n", b"event: ready\ndata: {}\n\n"):
        answers = Answers(lambda _, content=content: content)  # type: ignore[misc]

        async def watch(answers: Answers = answers) -> list[Any]:
            async with Client.connect("http://127.0.0.1:8300", "t", http=_http(answers)) as client:
                return [one async for one in client.runs.watch("k", on_delta=lambda _: None)]

        with pytest.raises(GatewayError, match="stream ended"):
            asyncio.run(watch())
