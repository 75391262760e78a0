"""A token for one skill, or without the scope to approve, against everything that the server offers.

The operations are those of the table of the API, so that a new one is attacked as well.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tracemalloc
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from reyn.errors import TooManyRequests
from reyn.gateway import create_app, streams
from reyn.gateway.access import revoke_token
from reyn.gateway.app import OPERATIONS
from reyn.gateway.operations import Operation
from reyn.journal.family import open_question
from tests.chat.support import reply
from tests.gateway.support import HOST, QUESTION, Served, serving
from tests.support import finish, go, write_skill

CANARY = "canary-of-the-other-skill"
PLAIN = {"/api/openapi.json", "/healthz", "/readyz"}


async def two_runs(served: Served) -> None:
    """A run of `pair`, which the token is not for, and one of `asker`."""
    http = served.http(served.token())
    for skill, run in (("pair", "theirs"), ("asker", "mine")):
        body = {"skill": skill, "input": {"text": CANARY if skill == "pair" else "x"}, "run_id": run}
        assert (await http.post("/api/runs", json=body)).status_code == 202
    async with asyncio.timeout(60):
        while (await http.get("/api/runs/theirs")).json()["run"]["status"] != "finished":  # noqa: ASYNC110
            await asyncio.sleep(0)


PARAMETERS = {"diff_runs": {"other": "mine"}, "get_file_diff": {"path": "output/a.md"}}
READING = [one for one in OPERATIONS if one.method == "GET" and one.media_type != "text/event-stream"]


@pytest.mark.parametrize("one", READING, ids=lambda one: one.name)
def test_a_token_for_a_skill_reads_nothing_of_another(one: Operation, tmp_path: Path):
    async def attempt() -> None:
        async with serving(tmp_path, [go("second"), finish(CANARY), QUESTION]) as served:
            await two_runs(served)
            http = served.http(served.token("view", "answer", "start", skills=["asker"]))
            for run in ("theirs", "thei"):
                path = one.path.replace("{run}", run).replace("{name}", "pair").replace("{hash}", "0" * 64)
                response = await http.get(re.sub(r"\{\w+\}", "1", path), params=PARAMETERS.get(one.name))
                if "{" in one.path:  # the message may repeat the name in the request
                    assert response.status_code in (403, 404), response.text[:500]
                else:
                    assert not re.search(rf"{CANARY}|pair|theirs\"", response.text), (path, response.text[:500])

    asyncio.run(attempt())


WITH_ID = ["/api/runs/mine/fork", "/api/runs/mine/rerun", "/api/runs", "/api/submissions", "/api/conversations"]


@pytest.mark.parametrize("path", WITH_ID)
def test_no_id_tells_whether_a_run_of_another_skill_exists(path: str, tmp_path: Path):
    async def attempt() -> None:
        async with serving(tmp_path, [go("second"), finish(CANARY), QUESTION]) as served:
            await two_runs(served)
            http = served.http(served.token("view", "answer", "start", skills=["asker", "agent:default"]))
            body: dict[str, Any] = {"run_id": "theirs"}
            body |= {"skill": "asker", "input": {"text": "x"}} if "mine" not in path else {}
            body = {"text": "hello", "run_id": "theirs"} if path == "/api/conversations" else body
            response = await http.post(path, json=body)
            assert response.status_code == 404, response.text

    asyncio.run(attempt())


NAMING = [
    (one, field.name)
    for one in READING
    for field in (msgspec.structs.fields(one.query) if one.query is not None else ())
    if field.type is str or type(None) in get_args(field.type)
]
"""The parameters that could be the id of a run, or its name."""


@pytest.mark.parametrize(("one", "parameter"), NAMING, ids=lambda one: getattr(one, "name", one))
def test_no_parameter_tells_whether_a_run_of_another_skill_exists(one: Operation, parameter: str, tmp_path: Path):
    """What exists of others is answered as what does not exist."""

    async def attempt() -> None:
        async with serving(tmp_path, [go("second"), finish(CANARY), QUESTION]) as served:
            await two_runs(served)
            http = served.http(served.token("view", "answer", "start", skills=["asker", "agent:default"]))
            path = re.sub(r"\{\w+\}", "1", one.path.replace("{run}", "mine").replace("{name}", "asker"))
            answers = []
            for value in ("theirs", "nobody", "their", "nobod"):
                response = await http.get(path, params=PARAMETERS.get(one.name, {}) | {parameter: value})
                text = re.sub(r'"(updated|at|since)":\d+', "", response.text)
                answers.append((response.status_code, text.replace(value, "")))
            assert answers[0] == answers[1]
            assert answers[2] == answers[3]

    asyncio.run(attempt())


@pytest.mark.parametrize("one", [one for one in OPERATIONS if "{run}" in one.path], ids=lambda one: one.name)
def test_no_prefix_tells_the_ids_of_runs_of_another_skill(one: Operation, tmp_path: Path):
    """An ambiguous prefix names the runs that it could mean."""

    async def attempt() -> None:
        async with serving(tmp_path, [go("second"), finish(), go("second"), finish()]) as served:
            admin, http = served.http(served.token()), served.http(served.token(skills=["asker"]))
            for run in ("theirs-one", "theirs-two"):
                body = {"skill": "pair", "input": {"text": "x"}, "run_id": run}
                assert (await admin.post("/api/runs", json=body)).status_code == 202
            for prefix in ("t", "theirs", "theirs-o", "theirs-one"):
                path = re.sub(r"\{\w+\}", "0" * 64, one.path.replace("{run}", prefix))
                response = await http.request(one.method, path, params=PARAMETERS.get(one.name), json=BODIES[one.name])
                assert response.status_code == 404, response.text
                assert set(re.findall(r"theirs[\w-]*", response.text)) <= {prefix}, response.text

    asyncio.run(attempt())


BODIES: dict[str, Any] = {one.name: {} if one.body is not None else None for one in OPERATIONS}
BODIES |= {"say": {"text": "chosen"}, "rename_conversation": {"title": "x"}, "change_memory": {"compact": True}}
BODIES |= {
    "edit_message": {"text": "chosen", "number": 1},
    "answer": {"value": "chosen"},
    "interpret": {"text": "chosen"},
}
BODIES |= {"fork_run": {"at": 1, "input": {"text": "chosen"}}}
STARTING = ("fork_run", "repeat_run", "duplicate_conversation", "say", "edit_message")
ON_RUNS = [one for one in OPERATIONS if "{run}" in one.path and one.method != "GET"]


@pytest.mark.parametrize("child", ["inner", "agent:inner"])
@pytest.mark.parametrize("one", ON_RUNS, ids=lambda one: one.name)
def test_a_token_for_a_skill_starts_no_other_through_its_sub_runs(one: Operation, child: str, tmp_path: Path):
    """A token sees the sub-runs of its skill, and forks, repeats, copies and continues none of them."""
    answers: list[Any] = [finish("inner"), finish("outer"), *[finish()] * 5]
    own, first = "outer", ("/api/runs", {"skill": "outer", "input": {"text": "x"}, "run_id": "mine"})
    op = {"kind": "run_skill", "skill": "inner", "input": {"text": "x"}}
    write_skill(tmp_path, "inner", {"work": ["end"]})
    write_skill(tmp_path, "outer", {"work": ["end"]}, ops={"work": "run_skill"})
    if child != "inner":
        answers = [reply("inner"), reply("outer"), *[reply("again")] * 5]
        own, first = "agent:outer", ("/api/conversations", {"agent": "outer", "text": "x", "run_id": "mine"})
        op = {"kind": "ask_agent", "agent": "inner", "message": "x"}
        for name, keys in (("inner", ""), ("outer", "agents: [inner]\n")):
            (tmp_path / "reyn/agents").mkdir(parents=True, exist_ok=True)
            text = f"---\ntype: agent\nname: {name}\n{keys}---\nReply.\n"
            (tmp_path / f"reyn/agents/{name}.md").write_text(text)

    async def attempt() -> None:
        async with serving(tmp_path, [{"control_ir": [op]}, *answers]) as served:
            http = served.http(served.token("view", "start", "answer", skills=[own]))
            journal = served.site.runtime.services.journal
            started = await http.post(first[0], json=first[1])
            assert started.status_code == 202, started.text
            async with asyncio.timeout(60):
                while journal.find("mine").status == "running":  # noqa: ASYNC110
                    await asyncio.sleep(0)
                rows = {row.run_id: row for row in journal.runs()}
                [sub_run] = [run for run, row in rows.items() if row.skill == child]
                path = re.sub(r"\{\w+\}", "1", one.path.replace("{run}", sub_run))
                response = await http.request(one.method, path, json=BODIES[one.name])
                while served.site.work.count:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            assert {row.run_id for row in journal.runs()} == rows.keys(), response.text
            assert b"chosen" not in b"".join(event.raw for event in journal.read(sub_run))
            assert not any("chosen" in str(message) for message in journal.drain(sub_run, 0))
            if one.name in STARTING or (one.name == "answer" and child != "inner"):
                assert (response.status_code, response.json()["code"]) == (403, "RYN803")

    asyncio.run(attempt())


@pytest.mark.parametrize("run", ["victim.2.1", "victim.1.1.1", "mine.1", "a.b"])
@pytest.mark.parametrize("path", WITH_ID)
def test_a_token_for_a_skill_takes_no_id_of_a_future_sub_run(path: str, run: str, tmp_path: Path):
    async def attempt() -> None:
        async with serving(tmp_path, [QUESTION, QUESTION]) as served:
            http = served.http(served.token(skills=["asker", "agent:default"]))
            body: dict[str, Any] = {"skill": "asker", "input": {"text": "x"}, "run_id": "mine"}
            assert (await http.post("/api/runs", json=body)).status_code == 202
            body = {"run_id": run} if "mine" in path else body | {"run_id": run}
            body = {"text": "hello", "run_id": run} if path == "/api/conversations" else body
            response = await http.post(path, json=body)
            assert (response.status_code, response.json()["code"]) == (422, "RYN413"), response.text

    asyncio.run(attempt())


@pytest.mark.parametrize(
    "name", ["planted:Model", "local:/etc/passwd", "scripted:../x", "openai:gpt", "recorded:k", ""]
)
def test_a_program_with_a_model_of_its_own_offers_no_other(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def attempt() -> None:
        (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
        monkeypatch.syspath_prepend(tmp_path)
        async with serving(tmp_path, [QUESTION]) as served:
            http = served.http(served.token())
            body = {"skill": "asker", "input": {"text": "x"}, "model": name}
            response = await http.post("/api/runs", json=body)
            assert (response.status_code, response.json()["code"]) in ((404, "RYN501"), (422, "RYN501")), response.text
        assert not (tmp_path / "imported").exists()

    asyncio.run(attempt())


@pytest.mark.parametrize("operation", ["/api/runs", "/api/submissions"])
@pytest.mark.parametrize("name", ["asker/skill.md", "reyn/project/asker", "reyn/project/asker/skill.md"])
def test_a_path_of_a_skill_is_one_of_the_projects_skills(name: str, operation: str, tmp_path: Path):
    """`NAME/skill.md` was found among the skills, then read in the project, where a run may have written it."""

    async def attempt() -> None:
        (tmp_path / "asker").mkdir()
        (tmp_path / "asker/skill.md").write_text("planted")
        async with serving(tmp_path, [QUESTION]) as served:
            http = served.http(served.token("start", "view", skills=["asker"]))
            response = await http.post(operation, json={"skill": name, "input": {"text": "x"}})
            assert (response.status_code, response.json().get("skill")) == (202, "asker"), response.text

    asyncio.run(attempt())


@pytest.mark.parametrize("stream", ["/api/stream", "/api/runs/mine/stream"])
def test_a_stream_ends_with_its_token(stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The stream of a revoked token sends nothing that happens afterwards."""
    monkeypatch.setattr(streams, "_ACCESS_SECONDS", 0)

    async def attempt() -> None:
        async with serving(tmp_path, [QUESTION, QUESTION]) as served:
            site, http = served.site, served.http(served.token())
            body: dict[str, Any] = {"skill": "asker", "input": {"text": "x"}, "run_id": "mine"}
            assert (await http.post("/api/runs", json=body)).status_code == 202
            principal = site.access.find(served.token("view", name="spy"), "", is_session=False)
            found = streams.change_stream(site, principal)
            if "mine" in stream:
                found = streams.event_stream(site, principal, streams.WatchOptions("mine", 0, False, True, False))
            sent = aiter(found.body_iterator)
            await anext(sent)
            following = asyncio.ensure_future(anext(sent, None))
            async with asyncio.timeout(60):
                while stream == "/api/stream" and not site.changes._readers:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                revoke_token(site.runtime.services.journal, "spy")
                await http.post("/api/runs", json=body | {"run_id": "later"})
                await http.post("/api/runs/mine/cancel", json={"reason": "afterwards"})
                rest = [await following, *[one async for one in sent]]
                assert not any("later" in str(one) or "afterwards" in str(one) for one in rest)

    asyncio.run(attempt())


def test_a_token_does_not_take_the_streams_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also with sessions that it opens, as many as it likes."""
    monkeypatch.setattr(streams, "MAX_STREAMS_OF_ONE", 4)

    async def attempt() -> None:
        async with serving(tmp_path, []) as served:
            access, opened = served.site.access, []
            token = served.token("view", name="greedy")
            greedy = [
                access.find(token, "", is_session=False),
                *(access.sign_in(token, "").principal for _ in range(4)),
            ]
            for principal in greedy[:4]:
                sent = aiter(streams.change_stream(served.site, principal).body_iterator)
                await anext(sent)
                opened.append(sent)
            for principal in greedy:
                with pytest.raises(TooManyRequests, match="`greedy` has 4 open streams"):
                    streams.change_stream(served.site, principal)
            other = access.find(served.token("view", name="other"), "", is_session=False)
            opened.append(aiter(streams.change_stream(served.site, other).body_iterator))
            await anext(opened[-1])
            await opened.pop(0).aclose()
            streams.change_stream(served.site, greedy[-1])
            for sent in opened:
                await sent.aclose()
            assert not served.site.streams

    asyncio.run(attempt())


def test_an_approval_that_opens_after_the_check_gets_no_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two branches wait: one asks, the other needs an approval. When the first one goes on, the other is next.

    The server looks twice: at the question, to check the scope, and when it posts the reply.
    """

    async def attempt() -> None:
        async with serving(tmp_path, [QUESTION]) as served:
            runs, http = served.site.runtime.runs, served.http(served.token())
            body = {"skill": "asker", "input": {"text": "x"}, "run_id": "asking"}
            assert (await http.post("/api/runs", json=body)).status_code == 202
            async with asyncio.timeout(60):
                while (asked := runs.open_question(runs.find("asking"))) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            limited, tried = served.http(served.token("view", "answer")), []
            monkeypatch.setattr(served.site.runtime, "answer", lambda *args, **options: tried.append(args))
            response = await limited.post(
                "/api/runs/asking/answer", json={"question": "approval-1", "value": "approve"}
            )
            assert response.status_code in (404, 409), response.text
            assert tried == []
            await limited.post("/api/runs/asking/answer", json={"value": "text"})
            assert [args[1] for args in tried] == [asked.question.id]
            assert open_question(served.site.runtime.services.journal, runs.find("asking")) is not None

    asyncio.run(attempt())


HEADERS: list[list[tuple[str, str]]] = [
    [],
    *([("Authorization", value)] for value in ("", " ", "Bearer", "Bearer ", "bearer x", "Basic eA==", "Cookie", "x")),
    [("Authorization", ""), ("Authorization", "")],
    [("X-Session-Key", "")],
    [("X-Session-Key", "COOKIE")],
    [("X-Session-Key", "OTHER KEY")],
    [("X-Session-Key", "0" * 43)],
    [("Authorization", "Bearer COOKIE")],
    [("Authorization", ""), ("X-Session-Key", "")],
]
GUARDED = [one for one in OPERATIONS if one.scope is not None]


@pytest.mark.parametrize("one", GUARDED, ids=lambda one: one.name)
def test_a_cookie_alone_gets_nothing(one: Operation, tmp_path: Path):
    """Every port of the host gets it: whatever else a request has, without the key of the session it is refused."""

    async def attempt() -> None:
        async with serving(tmp_path, [QUESTION]) as served:
            page = served.http()
            other = await served.http().post("/api/session", json={"secret": served.token()})
            own = await page.post("/api/session", json={"secret": served.token()})
            names = {"COOKIE": page.cookies["reyn_session_8300"], "OTHER KEY": other.json()["key"]}
            path = re.sub(r"\{\w+\}", "1", one.path)
            for headers in HEADERS:
                sent = [
                    (name, re.sub("COOKIE|OTHER KEY", lambda found: names[found[0]], text)) for name, text in headers
                ]
                response = await page.request(one.method, path, json={}, headers=sent)
                assert response.status_code in (401, 429), (headers, response.text)
                assert response.json()["code"] in ("RYN802", "RYN805")
            key = {"X-Session-Key": own.json()["key"]}
            if one.media_type != "text/event-stream":  # they do not end
                assert (await page.request(one.method, path, json={}, headers=key)).status_code not in (401, 429)

    asyncio.run(attempt())


@pytest.mark.parametrize("length", ["9" * 5_000, "9" * 21, "-1", "1e3", "0x10", "\u0661"])
def test_a_length_that_is_none_is_refused(length: str, tmp_path: Path):
    async def attempt() -> None:
        async with serving(tmp_path, []) as served:
            http = served.http(served.token())
            headers = {b"content-length": length.encode()}
            response = await http.post("/api/runs", headers=headers)
            assert response.status_code == 413

    asyncio.run(attempt())


def test_servers_of_one_host_do_not_share_a_cookie(tmp_path: Path):
    async def attempt() -> None:
        async with serving(tmp_path, []) as served:
            names = set()
            for scheme, host in (("http", HOST), ("http", "localhost:8301"), ("https", "a.example"), ("https", HOST)):
                http = Served(served.site, create_app(served.site, [host], scheme=scheme)).http(Host=host)
                found = await http.post("/api/session", json={"secret": served.token()})
                names.add(found.headers["set-cookie"].partition("=")[0])
            assert names == {
                "reyn_session_8300", "reyn_session_8301", "__Host-reyn_session", "__Host-reyn_session_8300",
            }  # fmt: skip

    asyncio.run(attempt())


VALUES = ["{},", "[],", "1,", '"",', "null,", '{"a":1},']


@pytest.mark.sampled(2)
@pytest.mark.parametrize("value", VALUES)
def test_a_body_of_millions_of_values_is_not_decoded(value: str, tmp_path: Path):
    """Sixteen megabytes of `{},` are four hundred of objects."""
    many = b'{"skill": "pair", "input": {"x": [' + value.encode() * 600_000 + b"0]}}"

    async def attempt() -> None:
        async with serving(tmp_path, []) as served:
            http = served.http(served.token())
            tracemalloc.start()
            response = await http.post("/api/runs", content=many)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert response.status_code == 413, response.text
            assert peak < 6 * len(many)

    asyncio.run(attempt())


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_no_body_is_read_without_a_token(one: Operation, tmp_path: Path):
    """Except the secret that signs in, and that is small."""
    pieces = 0

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        return {"type": "http.request", "body": b" " * 6_000, "more_body": True}

    async def send(_: Any) -> None:
        pass

    async def attempt() -> None:
        async with serving(tmp_path, []) as served:
            path = re.sub(r"\{\w+\}", "1", one.path)
            scope = {
                "type": "http", "method": one.method, "path": path, "raw_path": path.encode(), "query_string": b"",
                "headers": [(b"host", HOST.encode()), (b"transfer-encoding", b"chunked")], "client": ("127.0.0.1", 1),
                "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80), "root_path": "",
            }  # fmt: skip
            await served.app(scope, receive, send)

    asyncio.run(attempt())
    assert pieces <= (2 if one.scope is None else 0)


@pytest.mark.parametrize(("scheme", "is_secure"), [("http", False), ("https", True)])
def test_the_cookie_of_an_encrypted_site_is_sent_over_encryption_only(scheme: str, is_secure: bool, tmp_path: Path):
    """Also behind a proxy that encrypts: the connection between proxy and server does not."""

    async def attempt() -> None:
        async with serving(tmp_path, []) as served:
            app = create_app(served.site, [HOST], scheme=scheme)
            response = await Served(served.site, app).http().post("/api/session", json={"secret": served.token()})
            assert ("secure" in response.headers["set-cookie"].lower()) is is_secure

    asyncio.run(attempt())


# -- pages ----------------------------------------------------------------------------------------------------

PIECES = [
    "[",
    "[a](",
    "[](",
    "![",
    "`",
    "`a",
    "**",
    "**a",
    "*a",
    "* ",
    "_",
    "http://",
    "](",
    "[a]( ",
    "\n- ",
    "# ",
    "```",
]
COUNT = """
const source = require("fs").readFileSync(0, "utf8");
const pattern = eval(source.match(/const INLINE = (.*);/)[1]);
for (const piece of %s) {
  const spent = [1, 4].map((times) => {
    const text = piece.repeat((times * 25000) / piece.length), begun = process.cpuUsage().user;
    for (const found of text.matchAll(pattern)) found.index;
    return process.cpuUsage().user - begun;
  });
  if (spent[1] > 8 * spent[0] + 200000) console.log(piece, spent);
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_time_to_draw_a_text_grows_with_its_length():
    script = COUNT % PIECES
    source = files("reyn.gateway").joinpath("web", "markdown.js").read_text(encoding="utf-8")
    done = subprocess.run(["node", "-e", script], input=source, capture_output=True, text=True, check=True)
    assert done.stdout == ""


SHOWN = """
const source = require("fs").readFileSync(0, "utf8");
const written = source.match(/const HIDDEN[^]*?coded\\);/)[0];
const visible = eval(written.replace("export const visible =", "globalThis.shown =") + "shown");
const texts = %s;
console.log(JSON.stringify(texts.map((text) => visible(text))));
"""
HIDING = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u180e\u200b\u200d\u200e\u202a\u202e\u2028\u2060\u2066\u2069\u3164\ufeff\uffa0"
)
HIDING += "\ufff9\x00\x07\x1b\r\x7f\x85\U000e0041\U000e0100\U0001d173"
PLAIN_TEXTS = ["a\tb\nc", "\u05e9\u05dc\u05d5\u05dd", "\u2764\ufe0f", "na\u00efve \U0001f600", "\u0930\u093e\u092e"]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_no_character_of_a_text_is_hidden_or_reorders_a_page():
    texts = [f"a{char}b" for char in HIDING] + PLAIN_TEXTS
    source = files("reyn.gateway").joinpath("web", "markdown.js").read_text(encoding="utf-8")
    done = subprocess.run(
        ["node", "-e", SHOWN % json.dumps(texts)], input=source, capture_output=True, text=True, check=True
    )
    shown = json.loads(done.stdout)
    assert shown[-len(PLAIN_TEXTS) :] == PLAIN_TEXTS
    for char, text in zip(HIDING, shown, strict=False):
        assert text in (f"a\\u{ord(char):04x}b", f"a\\u{{{ord(char):x}}}b"), (hex(ord(char)), text)
