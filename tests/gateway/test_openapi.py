"""The OpenAPI document is true: each operation, called as documented, answers as documented; the rest are problems."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2

from reyn.gateway.app import OPERATIONS
from reyn.gateway.problems import PROBLEM
from reyn.jsonschema import compile_schema
from tests.chat.support import Agent
from tests.gateway.support import QUESTION, Served, ended, run_async, serving
from tests.support import act, file, finish, go, write_skill

IN = {"text": "in"}
BY_NAME = {one.name: one for one in OPERATIONS}
Valid = tuple[str, dict[str, str], dict[str, Any], Any]
"""A valid request: the operation, values of its path, its query, its body."""

OF_RUNS: list[Valid] = [
    ("start_run", {}, {}, {"skill": "pair", "input": IN, "run_id": "k"}),
    ("start_run", {}, {}, {"skill": "asker", "input": IN, "run_id": "w", "model": "ASKER"}),
    ("start_run", {}, {}, {"skill": "writer", "input": IN, "run_id": "f", "model": "WRITER"}),
    ("list_runs", {}, {"status": "finished", "limit": 5, "search": "k", "top": "true"}, None),
    ("list_questions", {}, {}, None),
    ("get_run", {"run": "w"}, {}, None),
    ("list_events", {"run": "k"}, {"after": 3, "limit": 4}, None),
    ("stream_run", {"run": "k"}, {"after": 3, "deltas": "true", "children": "true"}, None),
    ("list_children", {"run": "k"}, {"start": 0}, None),
    ("get_timeline", {"run": "k"}, {"level": "decisions", "start": -3, "limit": 2, "around": 5}, None),
    ("get_spans", {"run": "k"}, {"start": 1}, None),
    ("get_state", {"run": "k"}, {"at": 4}, None),
    ("get_decision", {"run": "k"}, {"at": 9}, None),
    ("get_run_graph", {"run": "k"}, {}, None),
    ("list_files", {"run": "f"}, {}, None),
    ("get_file_diff", {"run": "f"}, {"path": "workspace:a.txt"}, None),
    ("get_content", {"run": "k", "hash": "HASH"}, {}, None),
    ("diff_runs", {"run": "k"}, {"other": "w"}, None),
    ("verify_run", {"run": "k"}, {}, {}),
    ("usage", {}, {"by": "skill"}, None),
    ("get_summary", {"run": "k"}, {}, None),
    ("get_inbox", {"run": "w"}, {}, None),
    ("get_budgets", {"run": "k"}, {}, None),
    ("get_handoffs", {"run": "k"}, {}, None),
    ("get_contexts", {"run": "k"}, {}, None),
    ("get_conversation_size", {"run": "k"}, {}, None),
    ("get_frame", {"run": "k"}, {"at": 9}, None),
    ("replay_run", {"run": "k"}, {}, None),
    ("export_run", {"run": "k"}, {}, None),
    ("get_permission_warnings", {"run": "f"}, {}, None),
    ("answer", {"run": "w"}, {}, {"value": "the blue one"}),
    ("resume", {"run": "broken"}, {}, {"retry": True}),
    ("fork_run", {"run": "k"}, {}, {"run_id": "fork", "answer": finish("mine")}),
    ("repeat_run", {"run": "k"}, {}, {"run_id": "again"}),
    ("submit_run", {}, {}, {"skill": "pair", "input": IN, "run_id": "s", "queue": "night", "priority": 2}),
    ("list_submissions", {}, {}, None),
    ("hand_to_workers", {"run": "w2"}, {}, {"queue": "day"}),
    ("list_workers", {}, {}, None),
    ("cancel", {"run": "s"}, {}, {"reason": "not needed"}),
    ("undo_run", {"run": "f"}, {}, {"dry_run": True}),
    ("prune_runs", {}, {}, {"older_than": 86_400, "statuses": ["cancelled"], "dry_run": True}),
    ("delete_recorded", {}, {}, {"runs": ["s"]}),
    ("list_skills", {}, {}, None),
    ("get_skill", {"name": "pair"}, {}, None),
    ("get_agent", {"name": "default"}, {}, None),
    ("try_cases", {"name": "pair"}, {}, {}),
    ("explain_permissions", {"name": "writer"}, {}, None),
    ("explain_op", {"name": "writer"}, {}, {"op": "file"}),
    ("get_approvals", {}, {}, None),
    ("revoke_approval", {"id": "APPROVAL"}, {}, None),
    ("get_models", {}, {}, None),
    ("get_agents", {}, {}, None),
    ("metrics", {}, {}, None),
    ("healthz", {}, {}, None),
    ("readyz", {}, {}, None),
    ("sign_in", {}, {}, {"secret": "CODE"}),
    ("get_session", {}, {}, None),
    ("sign_out", {}, {}, None),
]
OF_CONVERSATIONS: list[Valid] = [
    ("begin_conversation", {}, {}, {"text": "hi", "run_id": "c"}),
    ("interpret", {"run": "c"}, {}, {"text": "bye"}),
    ("say", {"run": "c"}, {}, {"text": "bye"}),
    ("get_conversation", {"run": "c"}, {}, None),
    ("list_conversations", {}, {"limit": 3}, None),
    ("rename_conversation", {"run": "c"}, {}, {"title": "Tea"}),
    ("change_memory", {"run": "c"}, {}, {"remember": "tea"}),
    ("get_memory", {"run": "c"}, {}, None),
    ("get_next_prompt", {"run": "c"}, {}, {"answer": "and then?"}),
    ("duplicate_conversation", {"run": "c"}, {}, {"run_id": "copy"}),
    ("abort", {"run": "c"}, {}, {"reason": "enough"}),
    ("edit_message", {"run": "c"}, {}, {"number": 2, "text": "again"}),
]
ENDLESS = {"stream_changes"}
"""Streams without an end; the tests of pages read them."""


def test_every_operation_has_a_valid_request_below():
    assert {one[0] for one in (*OF_RUNS, *OF_CONVERSATIONS)} | ENDLESS == BY_NAME.keys()


async def check(http: httpx2.AsyncClient, document: dict[str, Any], request: Valid, names: dict[str, str]) -> Any:
    """Send a valid request, and check the response against the document."""
    name, values, query, body = request
    one = BY_NAME[name]
    path = re.sub(r"\{(\w+)\}", lambda found: names.get(values[found[1]], values[found[1]]), one.path)
    if isinstance(body, dict):
        body = {key: names.get(value, value) if isinstance(value, str) else value for key, value in body.items()}
    described = document["paths"][one.path][one.method.lower()]
    parameters = {(one["in"], one["name"]) for one in described["parameters"]}
    assert {("path", key) for key in values} | {("query", key) for key in query} <= parameters, name
    assert ("requestBody" in described) == (body is not None), name
    response = await http.request(one.method, path, params=query, **({"json": body} if body is not None else {}))
    assert str(response.status_code) in described["responses"], (name, response.text)
    content = described["responses"][str(response.status_code)]["content"]
    if response.status_code == 204:
        assert content == {}
        return None
    [(media_type, schema)] = content.items()
    assert response.headers["content-type"].partition("; charset")[0] == media_type, name
    if schema:
        whole = {"components": document["components"], **schema["schema"]}
        error = compile_schema(whole).first_error(response.json())
        assert error is None, (name, error)
    return response


def prepare(served: Served, root: Path) -> dict[str, str]:
    """Return what requests name: an approval, a login code, models that ask and write."""
    from reyn.journal.results import Approval

    journal = served.site.runtime.services.journal
    approval = Approval("writer", "0" * 64, "file", "file.write", "ada", 1, "f", "elsewhere")
    writes = [act(file("write", "workspace:a.txt", content="x")), finish("done")]
    for name, answers in (("ASKER", [QUESTION, finish("thanks")]), ("WRITER", writes), ("SHORT", [go("nowhere")])):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in answers))
    return {
        "ASKER": "asker",
        "WRITER": "writer",
        "SHORT": "short",
        "CODE": served.site.access.new_code(),
        "APPROVAL": str(journal.approve(approval)),
    }


def test_each_operation_on_runs_answers_as_documented(tmp_path: Path):
    async def work() -> None:
        write_skill(tmp_path, "writer", {"write": ["end"]}, ops={"write": "file"})
        models = [f"{name.lower()}: scripted:{name}.jsonl" for name in ("ASKER", "WRITER", "SHORT")]
        (tmp_path / "reyn.yaml").write_text("models: {" + ", ".join(models) + "}\n")
        async with serving(tmp_path, [go("second"), finish("end")]) as served, served.http(served.token()) as http:
            document = (await http.get("/api/openapi.json")).json()
            assert document["openapi"].startswith("3.1")
            names = prepare(served, tmp_path)
            for request in OF_RUNS:
                if request[0] == "resume":
                    for run, model in (("w2", "ASKER"), ("broken", "SHORT")):
                        body = {"skill": "asker", "input": IN, "run_id": run, "model": names[model]}
                        await http.post("/api/runs", json=body)
                        await ended(http, run)
                await check(http, document, request, names)
                if request[0] in ("start_run", "answer"):
                    run = request[1].get("run") or request[3]["run_id"]
                    await ended(http, run)
                    events = (await http.get("/api/runs/k/events")).json()
                    names["HASH"] = events[0]["data"]["input"]["hash"]

    run_async(work)


def test_each_operation_on_conversations_answers_as_documented(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, [], model=Agent()) as served, served.http(served.token()) as http:
            document = (await http.get("/api/openapi.json")).json()
            for request in OF_CONVERSATIONS:
                await check(http, document, request, {})
                await idle(served, request[1].get("run", "c"))

    run_async(work)


async def idle(served: Served, run: str) -> None:
    """Wait until a conversation waits for its user."""
    runs = served.site.runtime.runs
    async for _ in runs.watch(run, follow=True):
        row = runs.find(run)
        if row.status == "waiting" and row.wait is not None and row.wait.is_message:
            return


# -- what the document does not permit ------------------------------------------------------------------

WRONG = [None, 7, -1, "text", [], {}, True, 1.5, [[]], "\u0000", "x" * 5_000, {"a": {}}, 10**30]


def test_wrong_types_of_each_field_are_problems(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token()) as http:
            document = (await http.get("/api/openapi.json")).json()
            components = document["components"]
            for one in OPERATIONS:
                described = document["paths"][one.path][one.method.lower()]
                path = re.sub(r"\{\w+\}", "nowhere", one.path)
                for parameter in described["parameters"]:
                    if parameter["in"] == "query" and one.name not in ENDLESS:
                        for value in ("text", "-", "1.5e999", "\u0000"):
                            await refused(http, one, path, {parameter["name"]: value}, None)
                if "requestBody" not in described:
                    continue
                name = described["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                fields = components["schemas"][name]["properties"]
                valid = next((request[3] for request in (*OF_RUNS, *OF_CONVERSATIONS) if request[0] == one.name), {})
                for field in fields:
                    for value in WRONG:
                        await refused(http, one, path, {}, {**valid, "run_id": "x"} | {field: value})
            assert served.site.runtime.runs.all() == []

    run_async(work)


async def refused(http: httpx2.AsyncClient, one: Any, path: str, query: dict[str, str], body: Any) -> None:
    """Check that a request is refused with a problem, or was none: a problem document names a code and a next step."""
    if body is not None:
        fields = {field.encode_name for field in _fields(one.body)}
        body = {key: value for key, value in body.items() if key in fields}
        if "{run}" not in one.path and one.name in ("start_run", "submit_run", "begin_conversation"):
            body = {**body, "skill": "nowhere"} if "skill" in fields else {**body, "agent": "nowhere"}
    response = await http.request(one.method, path, params=query, **({"json": body} if body is not None else {}))
    if response.status_code < 400:
        assert one.method == "GET" or one.name in ("prune_runs", "sign_in", "delete_recorded"), (one.name, query, body)
        return
    assert response.status_code < 500, (one.name, query, body, response.text)
    problem = response.json()
    assert response.headers["content-type"] == PROBLEM
    assert re.fullmatch(r"RYN\d{3}", problem["code"])
    assert problem["hint"]
    assert problem["detail"]


def _fields(kind: Any) -> Any:
    import msgspec

    return msgspec.structs.fields(kind)
