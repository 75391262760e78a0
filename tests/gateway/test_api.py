"""The HTTP API: what each operation does, and problem documents for bad input."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from reyn.gateway.app import OPERATIONS
from reyn.gateway.changes import ItemArrived
from reyn.gateway.problems import PROBLEM
from reyn.testing.fixtures import events_after, run_started
from tests.chat.support import Agent
from tests.gateway.support import QUESTION, Served, ended, run_async, serving
from tests.support import finish, go, write_skill

PAIR = [go("second"), finish("served")]


def sse(text: str) -> list[tuple[str, str, Any]]:
    """Return event, id and data of server-sent events."""
    found = []
    for block in re.split(r"\r?\n\r?\n", text):
        fields = dict(line.split(": ", 1) for line in re.split(r"\r?\n", block) if ": " in line and line[0] != ":")
        if "data" in fields:
            found.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return found


def test_a_run_is_started_once_per_id_and_streamed_to_its_end(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, PAIR) as served, served.http(served.token()) as http:
            body = {"skill": "pair", "input": {"text": "in"}, "run_id": "k"}
            first, second = await http.post("/api/runs", json=body), await http.post("/api/runs", json=body)
            assert (first.status_code, second.status_code) == (202, 202)
            details = await ended(http, "k")
            assert details["result"]["status"] == "finished"
            assert details["result"]["artifact"]["data"] == {"text": "served"}
            assert [row["run_id"] for row in (await http.get("/api/runs")).json()["runs"]] == ["k"]
            other = await http.post("/api/runs", json=body | {"input": {"text": "other"}})
            assert (other.status_code, other.json()["code"]) == (409, "RYN409")

    run_async(work)


def test_a_stream_continues_after_the_last_event_id(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, PAIR) as served, served.http(served.token()) as http:
            await http.post("/api/runs", json={"skill": "pair", "input": {"text": "in"}, "run_id": "k"})
            await ended(http, "k")
            whole = sse((await http.get("/api/runs/k/stream")).text)
            numbers = [int(number) for event, number, _ in whole if event == "event"]
            assert numbers == list(range(1, len(numbers) + 1))
            assert whole[-1][::2] == ("end", {"status": "finished", "reason": "", "seq": numbers[-1]})
            for last in (0, 1, 7, numbers[-1]):
                rest = sse((await http.get("/api/runs/k/stream", headers={"Last-Event-ID": str(last)})).text)
                assert [int(number) for event, number, _ in rest if event == "event"] == numbers[last:]

    run_async(work)


def test_an_answer_continues_the_run_and_names_the_token(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [QUESTION, finish("thanks")]) as served:
            token = served.token(name="grace")
            async with served.http(token) as http:
                await http.post("/api/runs", json={"skill": "asker", "input": {"text": "in"}, "run_id": "k"})
                await ended(http, "k")
                [asked] = (await http.get("/api/questions")).json()
                assert (asked["run_id"], asked["text"]) == ("k", "Which one?")
                assert (await http.get("/api/questions", params={"run": "k"})).json() == [asked]
                assert (await http.get("/api/questions", params={"run": "other"})).json() == []
                body = {"question": asked["question"]["id"], "value": "the blue one"}
                assert (await http.post("/api/runs/k/answer", json=body)).status_code == 202
                assert (await ended(http, "k"))["result"]["artifact"]["data"] == {"text": "thanks"}
                assert (await http.get("/api/questions")).json() == []
                late = await http.post("/api/runs/k/answer", json=body)
                assert (late.status_code, late.json()["code"]) == (409, "RYN414")
                events = (await http.get("/api/runs/k/events")).json()
                assert [one["data"]["by"] for one in events if one["kind"] == "wait_answered"] == ["grace"]
                forged = await http.post("/api/runs/k/answer", json=body | {"by": "root"})
                assert (forged.status_code, forged.json()["code"]) == (422, "RYN801")

    run_async(work)


def test_two_answers_at_once_are_one(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [QUESTION, finish("thanks")]) as served, served.http(served.token()) as http:
            await http.post("/api/runs", json={"skill": "asker", "input": {"text": "in"}, "run_id": "k"})
            await ended(http, "k")
            texts = ("the blue one", "the red one")
            replies = await asyncio.gather(*(http.post("/api/runs/k/answer", json={"value": text}) for text in texts))
            assert sorted(reply.status_code for reply in replies) == [202, 409]
            assert (await ended(http, "k"))["result"]["status"] == "finished"

    run_async(work)


def test_an_artifact_is_edited_within_its_schema_by_whom_the_token_names(tmp_path: Path):
    async def work() -> None:
        write_skill(tmp_path, "reviewed", {"a": ["end"]}, phase_keys={"a": "requires_approval: true\n"})
        async with serving(tmp_path, [finish("draft")]) as served, served.http(served.token(name="editor")) as http:
            await http.post("/api/runs", json={"skill": "reviewed", "input": {"text": "in"}, "run_id": "e"})
            assert (await ended(http, "e"))["run"]["status"] == "waiting"
            [asked] = (await http.get("/api/questions")).json()
            assert (asked["edits"], json.loads(asked["draft"])["data"]) == ("artifact", {"text": "draft"})
            for text, is_valid in ((5, False), ("mine", True)):
                artifact = {"type": "note", "data": {"text": text}}
                value = {"decision": "edit", "artifact": artifact}
                body = {"question": asked["question"]["id"], "value": value}
                response = await http.post("/api/runs/e/answer", json=body)
                assert response.is_success == is_valid
                assert is_valid or "artifact.data.text is integer" in response.json()["detail"]
            assert (await ended(http, "e"))["result"]["artifact"]["data"] == {"text": "mine"}
            events = (await http.get("/api/runs/e/events")).json()
            [reviewed] = [one["data"] for one in events if one["kind"] == "decision_reviewed"]
            assert (reviewed["decision"], reviewed["by"]) == ("edit", "editor")

    run_async(work)


def test_cancel_fork_rerun_diff_verify_and_state(tmp_path: Path):
    async def work() -> None:
        answers = [go("second"), finish("one")]
        async with serving(tmp_path, answers * 3) as served, served.http(served.token()) as http:
            await http.post("/api/runs", json={"skill": "pair", "input": {"text": "in"}, "run_id": "k"})
            await ended(http, "k")
            forked = await http.post("/api/runs/k/fork", json={"at": 5, "run_id": "f"})
            assert (forked.status_code, forked.json()["fork_of"]) == (202, "k")
            await ended(http, "f")
            for query in ({}, {"children": "true"}):
                stream = (await http.get("/api/runs/f/stream", params=query)).text
                count = (await http.get("/api/runs/f")).json()["run"]["seq"]
                assert re.findall(r"^id: (\d+)", stream, re.M) == [str(seq) for seq in range(1, count + 1)]
            assert (await http.post("/api/runs/k/rerun", json={"run_id": "again"})).status_code == 202
            await ended(http, "again")
            assert (await http.get("/api/runs/k/diff", params={"other": "again"})).json()["decisions"] >= 1
            assert (await http.post("/api/runs/k/verify")).json()["events"] == 16
            state = (await http.get("/api/runs/k/state", params={"at": 3})).json()
            assert (state["seq"], state["status"], state["phase"]) == (3, "running", "first")
            graph = (await http.get("/api/runs/k/graph")).json()
            assert [node["name"] for node in graph["nodes"]] == ["first", "second", "end"]
            taken = [{"source": edge["source"], "target": edge["target"], "count": 1} for edge in graph["edges"]]
            for query, visits, edges in (
                ({"at": 3}, {"first": 1}, []),
                ({}, {"first": 1, "second": 1, "end": 1}, taken),
            ):
                state = (await http.get("/api/runs/k/state", params=query)).json()
                assert (state["visits"], state["taken"]) == (visits, edges)
            lines = (await http.get("/api/runs/k/timeline")).json()["lines"]
            assert [line["text"] for line in lines if line["type"] == "visit"] == [
                "first (visit 1)",
                "second (visit 1)",
            ]
            assert [span["type"] for span in (await http.get("/api/runs/k/spans")).json()["spans"]] == [
                "model",
                "model",
            ]
            prompt = (await http.get("/api/runs/k/decision")).json()
            assert prompt["messages"][-1]["role"] == "answer"
            ended_run = await http.post("/api/runs/k/cancel")
            assert (ended_run.status_code, ended_run.json()["code"]) == (409, "RYN410")

    run_async(work)


def test_lists_are_paged_and_filtered(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token()) as http:
            journal = served.site.runtime.services.journal
            for number in range(7):
                run = f"r{number}"
                journal.append(run, 0, events_after(run, [run_started(run)], ts=number + 1))
            seen, after = [], {}
            while True:
                page = (await http.get("/api/runs", params={"limit": 3, **after})).json()
                seen += [row["run_id"] for row in page["runs"]]
                after = {"after": page["next"]}
                if page["next"] is None:
                    break
            assert seen == [f"r{number}" for number in reversed(range(7))]
            found = (await http.get("/api/runs", params={"search": "R3"})).json()["runs"]
            assert [row["run_id"] for row in found] == ["r3"]
            assert (await http.get("/api/runs", params={"status": "finished"})).json()["runs"] == []

    run_async(work)


def test_content_is_that_of_the_run_and_never_interpreted(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, PAIR) as served, served.http(served.token()) as http:
            await http.post("/api/runs", json={"skill": "pair", "input": {"text": "in"}, "run_id": "k"})
            await ended(http, "k")
            events = (await http.get("/api/runs/k/events")).json()
            name = next(one["data"]["artifact"]["hash"] for one in events if one["kind"] == "artifact_stored")
            content = await http.get(f"/api/runs/k/content/{name}")
            assert content.headers["content-type"].startswith("text/plain")
            assert content.headers["x-content-type-options"] == "nosniff"
            for wrong in ("0" * 64, "../../reyn.yaml", "%2e%2e%2freyn.yaml", name[:63], f"{name}x", name.upper()):
                assert (await http.get(f"/api/runs/k/content/{wrong}")).status_code in (404, 422)
            for wrong in ("../index.html", "%2e%2e%2f__init__.py", "..%5capp.py", "app.js/../../app.py", "app.py"):
                assert (await http.get(f"/static/{wrong}")).status_code in (404, 405)

    run_async(work)


def _paths(values: dict[str, str]) -> list[tuple[Any, str]]:
    return [(one, re.sub(r"\{(\w+)\}", lambda match: values[match[1]], one.path)) for one in OPERATIONS]


NOWHERE = {"run": "nowhere", "name": "nowhere", "hash": "0" * 64, "id": "7"}
BODIES = [
    b"{",
    b"[]",
    b"nul",
    b'"text"',
    b'{"unknown": 1}',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"skill": 3}',
    b"{" + b'"a":' * 9,
]


def test_bad_bodies_are_problems_and_change_nothing(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token()) as http:
            for one, path in _paths(NOWHERE):
                if one.method == "GET":
                    continue
                for body in BODIES:
                    response = await http.request(one.method, path, content=body)
                    assert 400 <= response.status_code < 500, (one.name, body[:20])
                    assert response.headers["content-type"] == PROBLEM
                    problem = response.json()
                    assert re.fullmatch(r"RYN\d{3}", problem["code"])
                    assert problem["hint"]
            assert served.site.runtime.runs.all() == []

    run_async(work)


def test_unknown_runs_parameters_and_addresses_are_problems(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token()) as http:
            for one, path in _paths(NOWHERE):
                if "{run}" in one.path and one.method == "GET":
                    query = {"diff_runs": {"other": "x"}, "get_file_diff": {"path": "x"}}.get(one.name, {})
                    response = await http.get(path, params=query)
                    assert (response.status_code, response.json()["code"]) == (404, "RYN401"), one.name
                if one.method == "GET" and one.path.startswith("/api") and one.media_type == "application/json":
                    response = await http.get(path, params={"wrong": "1"})
                    assert (response.status_code, response.json()["code"]) == (422, "RYN801"), one.name
            for address in ("/api/nothing", "/nothing", "/api/runs/k/nothing", "/api", "/static/"):
                response = await http.get(address)
                assert (response.status_code, response.json()["code"]) == (404, "RYN807")
            assert (await http.delete("/api/runs")).json()["code"] == "RYN807"
            assert (await http.get("/api/runs", params={"limit": "many"})).json()["code"] == "RYN801"

    run_async(work)


def test_a_conversation_goes_on_in_the_server(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [], model=Agent()) as served, served.http(served.token(name="grace")) as http:
            items = Items(served, "c")
            begun = (await http.post("/api/conversations", json={"text": "hi", "run_id": "c"})).json()
            assert begun == {"run_id": "c"}
            assert (await items.next("reply"))["text"] == "You said: hi"
            await http.post("/api/conversations/c/messages", json={"text": "bye"})
            assert (await items.next("reply"))["text"] == "You said: bye"
            assert (await http.put("/api/conversations/c/title", json={"title": "Tea"})).status_code == 200
            [listed] = (await http.get("/api/conversations")).json()
            assert (listed["title"], listed["first_message"], listed["messages"]) == ("Tea", "hi", 2)
            messages = (await http.get("/api/conversations/c")).json()["messages"]
            assert [one["text"] for one in messages] == ["hi", "You said: hi", "bye", "You said: bye"]
            events = (await http.get("/api/runs/c/events")).json()
            assert [one["data"]["by"] for one in events if one["kind"] == "message_taken"] == ["grace"]
            edited = (await http.post("/api/conversations/c/edit", json={"number": 2, "text": "again"})).json()[
                "run_id"
            ]
            assert edited != "c"
            await Items(served, edited).until(http, "You said: again")
            begun = (await http.post("/api/conversations/c/edit", json={"number": 1, "text": "hello"})).json()["run_id"]
            await Items(served, begun).until(http, "You said: hello")
            assert [one["text"] for one in (await http.get(f"/api/conversations/{begun}")).json()["messages"]] == [
                "hello",
                "You said: hello",
            ]
            assert [one["text"] for one in (await http.get("/api/conversations/c")).json()["messages"]][
                -1
            ] == "You said: bye"

    run_async(work)


class Items:
    """The items of a conversation, as the feed of changes has them."""

    def __init__(self, served: Served, run: str) -> None:
        self._changes = self._read(served)
        self._run = run
        self._first = asyncio.ensure_future(anext(self._changes))

    @staticmethod
    async def _read(served: Served) -> AsyncIterator[Any]:
        async with served.site.changes.reading() as reader:
            async for changes in reader.read():
                for change in changes:
                    yield change

    async def next(self, kind: str) -> dict[str, Any]:
        """Return the next item of a kind."""
        while True:
            change = await self._first
            self._first = asyncio.ensure_future(anext(self._changes))
            if isinstance(change, ItemArrived) and change.run_id == self._run and change.item["item"] == kind:
                return change.item

    async def until(self, http: Any, text: str) -> None:
        """Wait until the last message has a text; whatever changes is a reason to look."""
        while (await http.get(f"/api/conversations/{self._run}")).json()["messages"][-1]["text"] != text:
            await self._first
            self._first = asyncio.ensure_future(anext(self._changes))
