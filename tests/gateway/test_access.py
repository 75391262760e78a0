"""What a request may do: tokens, scopes, skills, sessions, hosts, origins, sizes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

import reyn.gateway
from reyn.errors import AccessTokenInvalid
from reyn.gateway import create_app, protocol
from reyn.gateway.access import new_token, revoke_token
from reyn.gateway.app import OPERATIONS, PAGES
from reyn.gateway.guard import MAX_BODY
from reyn.journal import MemoryJournal
from reyn.journal.results import SCOPES, TokenScope
from reyn.testing.fixtures import SteppingClock
from tests.gateway.support import HOST, QUESTION, ended, run_async, serving
from tests.support import file, finish, go, two_phases, write_skill

GUARDED = [one for one in OPERATIONS if one.scope is not None]
NOWHERE = {"run": "nowhere", "name": "nowhere", "hash": "0" * 64, "id": "7"}


def address(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: NOWHERE[match[1]], path)


def test_nothing_but_health_is_served_without_a_token(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served:
            for secret in (None, "", "wrong", "reyn_" + "x" * 43):
                async with served.http(secret) as http:
                    for one in GUARDED:
                        served.site.access._failures.clear()
                        response = await http.request(one.method, address(one.path))
                        assert (response.status_code, response.json()["code"]) == (401, "RYN802"), one.name
                    assert (await http.get("/healthz")).text == "ok\n"
            assert {one.name for one in OPERATIONS if one.scope is None} == {"sign_in", "healthz", "readyz"}

    run_async(work)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_has_the_scopes_that_it_was_given(tmp_path: Path, scope: TokenScope):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token(scope)) as http:
            for one in GUARDED:
                if one.media_type == "text/event-stream" and scope in (one.scope, "admin"):
                    continue  # they do not end
                response = await http.request(one.method, address(one.path))
                is_refused = response.status_code == 403 and response.json()["code"] == "RYN803"
                assert is_refused == (scope not in (one.scope, "admin")), one.name

    run_async(work)


def test_an_approval_needs_its_own_scope_and_names_who_gave_it(tmp_path: Path):
    async def work() -> None:
        write_skill(tmp_path, "writer", {"write": ["end"]}, ops={"write": "file"})
        answers = [{"control_ir": [file("write", "output/a.txt", content="x")]}, finish("written")]
        settings = {"permissions": {"file.write": {"ask": ["output/**"]}}}
        async with serving(tmp_path, answers, **settings) as served:
            async with served.http(served.token("start", "view", "answer")) as http:
                await http.post("/api/runs", json={"skill": "writer", "input": {"text": "in"}, "run_id": "k"})
                await ended(http, "k")
                [asked] = (await http.get("/api/questions")).json()
                assert "+x" in asked["text"]
                body = {"question": asked["question"]["id"], "value": "approve"}
                refused = await http.post("/api/runs/k/answer", json=body)
                assert (refused.status_code, refused.json()["code"]) == (403, "RYN803")
            async with served.http(served.token("approve", "view", "answer", name="grace")) as http:
                unnamed = await http.post("/api/runs/k/answer", json={"value": "approve"})
                assert unnamed.json()["code"] == "RYN303"
                assert (await http.post("/api/runs/k/answer", json=body)).status_code == 202
                await ended(http, "k")
                events = (await http.get("/api/runs/k/events")).json()
                assert [one["data"]["by"] for one in events if one["kind"] == "approval_decided"] == ["grace"]
            assert (tmp_path / "output" / "a.txt").read_text() == "x"

    run_async(work)


def test_a_token_for_a_skill_sees_nothing_else(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [QUESTION]) as served:
            async with served.http(served.token()) as http:
                await http.post("/api/runs", json={"skill": "asker", "input": {"text": "in"}, "run_id": "k"})
                await ended(http, "k")
            async with served.http(served.token(skills=["pair"])) as http:
                for one in GUARDED:
                    if "{run}" in one.path:
                        path = address(one.path).replace("nowhere", "k")
                        body: Any = (
                            {"value": 1} if one.name == "answer" else {"text": "x"} if "messages" in path else {}
                        )
                        response = await http.request(one.method, path, **({"json": body} if one.body else {}))
                        assert response.status_code in (404, 422), one.name
                assert (await http.get("/api/runs")).json()["runs"] == []
                assert (await http.get("/api/questions")).json() == []
                assert [one["name"] for one in (await http.get("/api/skills")).json()] == ["pair"]
                started = await http.post("/api/runs", json={"skill": "asker", "input": {"text": "in"}})
                assert (started.status_code, started.json()["code"]) == (403, "RYN803")

    run_async(work)


EVERYTHING = ["/", "/static/app.js", "/healthz", "/api/openapi.json", "/api/runs", "/api/stream", "/nothing"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:8300", ""])
def test_another_host_is_refused_everywhere(tmp_path: Path, host: str):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token(), Host=host) as http:
            for path in EVERYTHING:
                response = await http.get(path)
                assert (response.status_code, response.json()["code"]) == (403, "RYN804"), path

    run_async(work)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1:1", "file://"])
def test_pages_of_another_origin_are_refused_everywhere(tmp_path: Path, origin: str):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token(), Origin=origin) as http:
            for path in EVERYTHING:
                assert (await http.get(path)).status_code == 403, path
            assert (await http.options("/api/runs")).status_code == 403

    run_async(work)


def test_requests_of_pages_of_another_site_are_refused(tmp_path: Path):
    async def work() -> None:
        site = {"Sec-Fetch-Site": "cross-site"}
        async with serving(tmp_path, []) as served, served.http(served.token(), **site) as http:
            for path in EVERYTHING:
                response = await http.get(path)
                assert response.status_code == 403
                assert "access-control-allow-origin" not in response.headers

    run_async(work)


def test_a_login_code_works_once_and_its_session_needs_cookie_and_key(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http() as http:
            code = served.site.access.new_code()
            entered = await http.post("/api/session", json={"secret": code})
            cookie = entered.headers["set-cookie"]
            assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
            session = entered.json()
            assert (session["user"], session["key"] in cookie) == ("ada", False)
            key = {"X-Session-Key": session["key"]}
            shown = await http.get("/api/session", headers=key)
            assert (shown.status_code, "key" in shown.json()) == (200, False)
            body = {"skill": "pair", "input": {"text": "in"}}
            for headers in ({}, {"X-Session-Key": ""}, {"X-Session-Key": session["key"][::-1]}):
                refused = await http.post("/api/runs", json=body, headers=headers)
                assert (refused.status_code, refused.json()["code"]) == (401, "RYN802")
            assert (await http.post("/api/runs", json=body, headers=key)).status_code == 202
            async with served.http() as without_cookie:
                assert (await without_cookie.get("/api/runs", headers=key)).status_code == 401
            async with served.http() as other:
                assert (await other.post("/api/session", json={"secret": code})).status_code == 401
                other.cookies.set("reyn_session_8300", served.token())
                assert (await other.get("/api/runs", headers=key)).status_code == 401, "a token is no session"
            halves = (http.cookies["reyn_session_8300"], session["key"])
            for secret in (*halves, " ".join(halves), "".join(halves)):
                async with served.http(secret) as bearer:
                    assert (await bearer.get("/api/runs")).status_code == 401, "a session is no token"
            assert (await http.request("DELETE", "/api/session", headers=key)).status_code == 204
            assert (await http.get("/api/runs", headers=key)).status_code == 401

    run_async(work)


def test_a_session_expires_and_ends_with_its_token(tmp_path: Path):
    async def work() -> None:
        clock = SteppingClock()
        async with serving(tmp_path, [], clock=clock) as served, served.http() as http:
            secret = served.token("view", name="dash")
            for end in ("revoked", "expired"):
                begun = await http.post("/api/session", json={"secret": secret})
                key = {"X-Session-Key": begun.json()["key"]}
                assert (await http.get("/api/runs", headers=key)).status_code == 200
                if end == "expired":
                    clock.advance(13 * 3600)
                else:
                    revoke_token(served.site.runtime.services.journal, "dash")
                    secret = served.token("view", name="dash")
                assert (await http.get("/api/runs", headers=key)).status_code == 401, end

    run_async(work)


def test_a_session_lasts_no_longer_than_its_token_and_opens_no_other(tmp_path: Path):
    async def work() -> None:
        clock = SteppingClock()
        async with serving(tmp_path, [], clock=clock) as served, served.http() as http:
            journal = served.site.runtime.services.journal
            secret = new_token(journal, "brief", ["view"], now=clock.now(), seconds=600)
            entered = await http.post("/api/session", json={"secret": secret})
            assert 590 < int(re.findall(r"Max-Age=(\d+)", entered.headers["set-cookie"])[0]) <= 600
            cookie, key = http.cookies["reyn_session_8300"], entered.json()["key"]
            for secret in (cookie, key, f"{cookie} {key}"):
                assert (await http.post("/api/session", json={"secret": secret})).status_code == 401
            assert (await http.get("/api/runs", headers={"X-Session-Key": key})).status_code == 200
            clock.advance(601)
            assert (await http.get("/api/runs", headers={"X-Session-Key": key})).status_code == 401

    run_async(work)


@pytest.mark.parametrize("header", ["Basic eDp5", "Bearer", "Bearer ", "x"])
def test_a_session_does_not_count_beside_another_credential(tmp_path: Path, header: str):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http() as http:
            begun = await http.post("/api/session", json={"secret": served.site.access.new_code()})
            headers = {"X-Session-Key": begun.json()["key"], "Authorization": header}
            response = await http.post("/api/runs/k/cancel", json={}, headers=headers)
            assert (response.status_code, response.json()["code"]) == (401, "RYN802")

    run_async(work)


def test_failed_attempts_are_limited_and_lock_nobody_out(tmp_path: Path):
    """Users of one machine, or behind one proxy, have one address."""

    async def work() -> None:
        clock = SteppingClock()
        async with serving(tmp_path, [], clock=clock) as served, served.http() as http:
            code, token = served.site.access.new_code(), served.token()
            statuses = [(await http.post("/api/session", json={"secret": f"x{n}"})).status_code for n in range(12)]
            assert statuses == [401] * 10 + [429] * 2
            wrong = await http.get("/api/runs", headers={"Authorization": "Bearer x"})
            assert (wrong.status_code, wrong.headers["retry-after"]) == (429, "60")
            assert (await http.get("/api/runs", headers={"Authorization": f"Bearer {token}"})).status_code == 200
            assert (await http.post("/api/session", json={"secret": code})).status_code == 200
            clock.advance(-86_400)
            assert (await http.post("/api/session", json={"secret": "x"})).status_code == 401, "the clock was set back"

    run_async(work)


MODELS = ["{module}:Model", "local:/etc/passwd", "scripted:/etc/passwd", "scripted:../a.jsonl", "openai:gpt-9", "x"]
MODELS += ["litellm:x/y", "recorded:k", "local", "../x", ""]
SKILLS = ["{other}", "{other}/skill.md", "../elsewhere/reyn/project/pair", "..", ".", "~", "/", "nothing", ""]
SKILLS += ["reyn/../elsewhere/reyn/project/pair", "./reyn/project/pair", "reyn/project/pair/"]


@pytest.mark.parametrize("field", ["model", "skill"])
def test_a_request_names_what_the_project_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str):
    """Another model or skill could be code or a file of the server's machine, or a provider that nobody configured."""

    async def work() -> None:
        root, other = tmp_path / "here", tmp_path / "elsewhere"
        two_phases(other)
        (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
        monkeypatch.syspath_prepend(tmp_path)
        lines = [go("second"), finish("done")]
        root.mkdir()
        (root / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (root / "reyn.yaml").write_text("model: scripted:answers.jsonl\nmodels: {other: scripted:answers.jsonl}\n")
        names = [
            one.format(module="planted", other=other / "reyn" / "project" / "pair")
            for one in (MODELS if field == "model" else SKILLS)
        ]
        async with serving(root, [], model=None) as served, served.http(served.token("start", "view")) as http:
            body = {"skill": "pair", "input": {"text": "in"}}
            started = await http.post("/api/runs", json=body | {"run_id": "k", "model": "other"})
            assert started.status_code == 202, started.text
            assert (await ended(http, "k"))["run"]["status"] == "finished"
            ways: dict[str, dict[str, Any]] = {"": body, "/k/fork": {}, "/k/resume": {}, "/k/rerun": {}}
            for way, fields in ways.items():
                if field == "skill" and way in ("/k/resume", "/k/rerun"):
                    continue
                for name in names:
                    response = await http.post(f"/api/runs{way}", json=fields | {field: name})
                    assert response.status_code in (403, 404, 422), (way, name, response.text)
            listed = (await http.get("/api/runs")).json()["runs"]
            assert [one["run_id"] for one in listed] == ["k"]
        assert not (tmp_path / "imported").exists()

    run_async(work)


def test_a_token_for_an_agent_does_not_write_to_another_conversation(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, ["Hello."], trust=True) as served:
            async with served.http(served.token()) as http:
                begun = await http.post("/api/conversations", json={"text": "Good morning.", "run_id": "talk"})
                assert begun.status_code == 202, begun.text
            async with served.http(served.token(skills=["pair", "agent:other"])) as http:
                for agent in (None, "other", "default"):
                    body = {"text": "Let me in.", "run_id": "talk", "agent": agent}
                    assert (await http.post("/api/conversations", json=body)).status_code in (403, 404)
            async with served.http(served.token(skills=["pair"])) as http:
                body = {"skill": "pair", "input": {"text": "in"}, "run_id": "talk"}
                assert (await http.post("/api/runs", json=body)).status_code == 404

    run_async(work)


@pytest.mark.sockets
def test_a_connection_without_a_request_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only so many connections are open at once: clients that send nothing would keep all others out."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)

    async def work() -> None:
        async with serving(tmp_path, []) as served:
            config = uvicorn.Config(served.app, http=protocol.PatientProtocol, lifespan="off", log_config=None)
            server = uvicorn.Server(config)
            bound = socket.create_server(("127.0.0.1", 0))
            task = asyncio.ensure_future(server.serve([bound]))
            whole = f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
            for beginning in (b"", b"GET /healthz HTTP/1.1\r\nHost:", whole + b"GET"):
                reader, writer = await asyncio.open_connection(*bound.getsockname())
                writer.write(beginning)
                received = await reader.read()  # until the server closes the connection
                assert received.startswith(b"HTTP/1.1 200") == beginning.startswith(whole)
                writer.close()
            server.should_exit = True
            await task

    run_async(work)


def test_bodies_are_bounded(tmp_path: Path):
    async def chunks(size: int) -> Any:
        for _ in range(size // 1_000_000):
            yield b" " * 1_000_000

    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token()) as http:
            big = await http.post("/api/runs", content=b"x", headers={"Content-Length": str(MAX_BODY + 1)})
            assert (big.status_code, big.json()["code"]) == (413, "RYN806")
            streamed = await http.post("/api/runs", content=chunks(MAX_BODY + 2_000_000))
            assert (streamed.status_code, streamed.json()["code"]) == (413, "RYN806")
            assert (await http.get("/healthz", headers={"Content-Length": "-1"})).status_code == 413

    run_async(work)


@pytest.mark.sockets
@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_sender_of_a_large_body_reads_why_it_was_refused(tmp_path: Path, is_chunked: bool):
    """A connection that is closed while its sender writes ends with an error, and the response is lost."""

    async def pieces() -> Any:
        for _ in range(50):
            yield b" " * 1_000_000

    async def work() -> None:
        async with serving(tmp_path, []) as served:
            bound = socket.create_server(("127.0.0.1", 0))
            host = f"127.0.0.1:{bound.getsockname()[1]}"
            app = create_app(served.site, [host])
            config = uvicorn.Config(app, http=protocol.PatientProtocol, lifespan="off", log_config=None)
            server = uvicorn.Server(config)
            task = asyncio.ensure_future(server.serve([bound]))
            headers = {"Authorization": f"Bearer {served.token()}"}
            async with httpx2.AsyncClient(base_url=f"http://{host}", headers=headers, timeout=100) as http:
                response = await http.post("/api/runs", content=pieces() if is_chunked else b" " * 50_000_000)
                assert (response.status_code, response.json()["code"]) == (413, "RYN806")
                assert (await http.get("/api/runs")).status_code == 200
            server.should_exit = True
            await task

    run_async(work)


def test_every_response_has_the_headers_that_confine_a_page(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token()) as http:
            for path in (*PAGES, *EVERYTHING, "/metrics", "/static/preact.js"):
                if path == "/api/stream":
                    continue
                response = await http.get(re.sub(r"\{\w+\}", "x", path))
                policy = response.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                assert response.headers["x-content-type-options"] == "nosniff"
                assert "server" not in response.headers

    run_async(work)


def test_what_the_server_tells_monitoring_has_no_content(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [QUESTION]) as served, served.http(served.token()) as http:
            await http.post("/api/runs", json={"skill": "asker", "input": {"text": "a secret input"}, "run_id": "k"})
            await ended(http, "k")
            text = (await http.get("/metrics")).text
            assert 'reyn_runs{status="waiting"} 1' in text
            assert "reyn_open_questions 1" in text
            assert "Which one" not in text
            assert "secret input" not in text

    run_async(work)


@pytest.mark.parametrize("name", ["", " a", "a\n", "a #b", "x" * 101, "\u202ea"])
def test_a_name_of_a_token_is_printable(name: str):
    with pytest.raises(AccessTokenInvalid):
        new_token(MemoryJournal(), name, ["view"], now=1)


def test_the_vendored_file_is_the_one_that_its_license_names():
    folder = Path(reyn.gateway.__file__).parent / "web"
    digest = hashlib.sha256((folder / "preact.js").read_bytes()).hexdigest()
    assert digest in (folder / "preact.LICENSE.txt").read_text()
