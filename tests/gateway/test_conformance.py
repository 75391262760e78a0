"""A program moves from an embedded project to a server by one line: the same names, arguments, values and errors."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reyn.api import ChatRuntime, SyncChatRuntime
from reyn.client import (
    Client,
    RemoteConversations,
    RemotePermissions,
    RemoteProject,
    RemoteRuns,
    RemoteWorkers,
    SyncClient,
)
from reyn.errors import QuestionUnknown, ReynError, RunIdTaken, RunNotFound, RunNotResumable, SkillNotFound
from reyn.runs.recorded import Runs
from reyn.runtime.conversations import Conversations
from reyn.runtime.permissions import Permissions
from reyn.runtime.project import Project
from reyn.runtime.workers import Workers
from reyn.testing import ScriptedModel
from tests.gateway.support import QUESTION, served_on_socket
from tests.support import act, file, finish, go, two_phases, write_skill

PAIRS: list[tuple[type, type]] = [
    (ChatRuntime, Client),
    (Runs, RemoteRuns),
    (Project, RemoteProject),
    (Permissions, RemotePermissions),
    (Conversations, RemoteConversations),
    (Workers, RemoteWorkers),
]
CODE = "takes code of the caller, which the server does not execute"
OWNER = "for the user who has the project: the server has it open already"
PEOPLE = "the server writes the name of the token"
ONLY_EMBEDDED = {
    "ChatRuntime.open": "`connect` takes its place",
    "ChatRuntime.chat": "a conversation is open in the server: `conversations.begin` and `say`, and `watch`",
    "ChatRuntime.interrupt": "the runs of a server belong to all its clients; `cancel` ends one",
    "ChatRuntime.run(check)": CODE,
    "ChatRuntime.run(within)": "only an op has a scope, and ops execute in the server",
    "ChatRuntime.resume(check)": CODE,
    "ChatRuntime.answer(by)": PEOPLE,
    "ChatRuntime.derive(ops)": CODE,
    "ChatRuntime.derive(hooks)": CODE,
    "ChatRuntime.derive(people)": CODE,
    "ChatRuntime.derive(permissions)": "a client may not grant itself what the operator did not",
    "ChatRuntime.derive(settings)": "settings are the operator's",
    "Runs.content": "content is that of a run which the token may see: `/api/runs/{run}/content/{hash}`",
    "Runs.state": "a value of the executor; `summary` has what callers need",
    "Runs.inspect": "an object for pages; `/timeline`, `/spans` and `/state` have its parts",
    "Runs.transcript": "its messages refer to stored content; `conversations.messages` has their texts",
    "Runs.files": "an object that opens files; `changed_files` and `undo` are its operations",
    "Runs.import_": OWNER,
    "Runs.open_questions": "`/api/questions` has what pages show of them",
    "Runs.edit_draft": "the server sends the draft with the question",
    "Project.notify": OWNER,
    "Runs.index": "searches and workers of the server index runs",
    "Project.load": "an object of the loader; `skill` has what a client can use",
    "Project.first_frame": "performs steps of a skill with an input that is not recorded; `reyn frame` does so",
    "Project.overviews": CODE,
    "Project.preload_model": OWNER,
    "Project.check_config": OWNER,
    "Project.indexes": OWNER,
    "Project.write_index": OWNER,
    "Project.search_index": OWNER,
    "Project.drop_index": OWNER,
    "Project.mcp_tools": OWNER,
    "Project.accept_mcp_tools": OWNER,
    "Project.accepted_mcp_tools": OWNER,
    **{f"Project.{name}": OWNER for name in ("environment", "environments", "make_environment", "lock_environment")},
    "Conversations.execute": CODE,
    "Conversations.run_background": "the server executes background runs of the conversations that it has open",
    "Conversations.rename(by)": PEOPLE,
    "Conversations.say(by)": PEOPLE,
    "Conversations.say(instructions)": CODE,
    "Conversations.say(sender)": "only an op has a call, and ops execute in the server",
    "Conversations.abort_turn(partial)": "the server has the text so far",
    "Workers.serve": "a worker executes runs where it is: `reyn worker`",
}
ONLY_REMOTE = {
    "ChatRuntime.connect": "`open` takes its place",
    "Project.skill_names": "`library` is an object of the loader",
    "Project.skill": "`load` returns an object of the loader",
    "Project.agent_names": "`agents` is an object of the loader",
    "Project.agent": "`agents` is an object of the loader",
    "Conversations.begin": "`chat` opens a conversation in the caller's process",
    "Conversations.messages": "`Conversation.messages` of `chat`",
}


# -- names and signatures -----------------------------------------------------------------------------


def methods(kind: type) -> dict[str, inspect.Signature]:
    """Return the public methods of a class; properties are data of objects that stay in their process."""
    found = {}
    for name in dir(kind):
        value = inspect.getattr_static(kind, name)
        call = value.__func__ if isinstance(value, classmethod) else value
        if not name.startswith("_") and inspect.isfunction(call):
            found[name] = inspect.signature(call)
        elif name == "files":
            found[name] = inspect.Signature()
    return found


def differences(embedded: type, remote: type) -> tuple[set[str], set[str]]:
    """Return what only the first class has, and what only the second has: methods, and parameters of shared ones."""
    one, other, label = methods(embedded), methods(remote), embedded.__name__
    label = "ChatRuntime" if label == "OSRuntime" else label
    missing = {f"{label}.{name}" for name in one.keys() - other.keys()}
    added = {f"{label}.{name}" for name in other.keys() - one.keys()}
    for name in one.keys() & other.keys():
        mine, theirs = one[name].parameters, other[name].parameters
        missing |= {f"{label}.{name}({parameter})" for parameter in mine.keys() - theirs.keys()}
        added |= {f"{label}.{name}({parameter})" for parameter in theirs.keys() - mine.keys()}
    return missing, added


def test_each_name_of_the_runtime_is_remote_or_declared_with_a_reason():
    missing: set[str] = set()
    added: set[str] = set()
    for pair in PAIRS:
        more, other = differences(*pair)
        missing, added = missing | more, added | other
    assert missing == ONLY_EMBEDDED.keys()
    assert added == ONLY_REMOTE.keys()


@pytest.mark.parametrize(("embedded", "remote"), PAIRS)
def test_shared_methods_take_the_same_arguments_and_return_the_same_types(embedded: type, remote: type):
    one, other = methods(embedded), methods(remote)
    for name in one.keys() & other.keys():
        shared = one[name].parameters.keys() & other[name].parameters.keys()
        for parameter in shared:
            mine, theirs = one[name].parameters[parameter], other[name].parameters[parameter]
            assert (mine.kind, mine.default) == (theirs.kind, theirs.default), f"{name}({parameter})"
        assert [one for one in one[name].parameters if one in shared] == [
            one for one in other[name].parameters if one in shared
        ]
        returned = str(other[name].return_annotation).replace("AsyncIterator", "Iterator")
        if (embedded, name) not in {(ChatRuntime, "answer"), (Conversations, "say")}:  # a subclass; nothing to say
            assert returned == str(one[name].return_annotation), name


def test_the_synchronous_client_has_the_methods_of_the_asynchronous_one():
    for embedded, remote in ((ChatRuntime, SyncChatRuntime), (Client, SyncClient)):
        names = {"close" if name == "aclose" else name for name in methods(embedded)}
        assert names <= set(dir(remote))


def test_attributes_are_the_same_objects_by_name(tmp_path: Path):
    embedded = ChatRuntime.open(tmp_path, model=ScriptedModel([]))
    remote = Client.connect("http://127.0.0.1:1", "token")
    public = [{name for name in vars(one) if not name.startswith("_")} for one in (embedded, remote)]
    assert public[0] - public[1] == {"services"}, "what extends Reyn is code"
    assert public[1] <= public[0]


# -- the same program, four times ---------------------------------------------------------------------


FORMS = ("embedded", "embedded, synchronous", "remote", "remote, synchronous")
Program = Callable[[Any], Awaitable[None]]


async def of(value: Any) -> Any:
    """Return what a call returns, in every form: awaited, and an iterator as a list."""
    if inspect.isawaitable(value):
        value = await value
    if isinstance(value, AsyncIterator) or hasattr(value, "__aiter__"):
        return [one async for one in value]
    if isinstance(value, Iterator):
        return list(value)
    return value


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def execute(form: str, tmp_path: Path) -> Callable[[list[Any], Program], None]:
    """Execute a program with a runtime of a form."""
    two_phases(tmp_path)
    write_skill(tmp_path, "asker", {"ask": ["end"]}, ops={"ask": "ask_user"})
    write_skill(tmp_path, "writer", {"write": ["end"]}, ops={"write": "file"})

    def execute_with(answers: list[Any], program: Program) -> None:
        async def work(opened: Any) -> None:
            if "synchronous" in form:
                with opened as rt:
                    await program(rt)
            else:
                async with opened as rt:
                    await program(rt)

        model = ScriptedModel(answers)
        if form.startswith("embedded"):
            kind: Any = SyncChatRuntime if "synchronous" in form else ChatRuntime
            asyncio.run(work(kind.open(tmp_path, model=model, trust=True)))
            return
        with served_on_socket(tmp_path, model) as (url, token):
            client: Any = SyncClient if "synchronous" in form else Client
            asyncio.run(work(client.connect(url, token)))

    return execute_with


PAIR = [go("second"), finish("end")]
IN = {"text": "in"}
Execute = Callable[[list[Any], Program], None]
pytestmark = [pytest.mark.sockets]


def test_a_run_is_started_read_and_followed(execute: Execute):
    async def program(rt: Any) -> None:
        heard: list[Any] = []
        result = await of(rt.run("pair", IN, run_id="k", listener=heard.append))
        assert (result.status, result.artifact["data"]) == ("finished", {"text": "end"})
        events = await of(rt.runs.events("k"))
        assert heard == events
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert await of(rt.runs.events("k", 5)) == events[5:]
        assert await of(rt.runs.watch("k")) == events
        assert await of(rt.runs.watch("k", 7, follow=True, with_children=True)) == events[7:]
        assert await of(rt.runs.result("k")) == result
        row = await of(rt.runs.find("k"))
        assert [row] == await of(rt.runs.all())
        assert (row.status, row.seq, row.hash) == ("finished", events[-1].seq, events[-1].hash)
        assert await of(rt.runs.is_recorded("k"))
        assert not await of(rt.runs.is_recorded("none"))
        again = await of(rt.run("pair", IN, run_id="k"))
        assert again == result

    execute(PAIR, program)


def test_a_stream_has_the_events_and_the_result(execute: Execute):
    async def program(rt: Any) -> None:
        stream = rt.stream("pair", IN, run_id="k")
        events = await of(stream)
        assert events == await of(rt.runs.events("k"))
        assert stream.result.ok

    execute(PAIR, program)


def test_a_question_is_answered_and_the_run_continues(execute: Execute):
    async def program(rt: Any) -> None:
        result = await of(rt.run("asker", IN, run_id="k"))
        assert result.status == "waiting"
        row = await of(rt.runs.find("k"))
        asked = await of(rt.runs.open_question(row))
        assert (asked.run_id, asked.question, asked.is_answered) == ("k", result.question, False)
        assert await of(rt.runs.question_text(asked)) == "Which one?"
        assert (await of(rt.runs.next_action(row))).verb == "answer"
        posted = await of(rt.answer("k", asked.question.id, "the blue one"))
        assert (posted.run_id, posted.question_id, posted.root_run) == ("k", asked.question.id, "k")
        heard: list[Any] = []
        ended = await of(rt.resume_answered(posted, listener=heard.append))
        assert ended.artifact["data"] == {"text": "thanks"}
        assert [one.seq for one in heard] == list(range(row.seq + 1, row.seq + 1 + len(heard)))
        assert await of(rt.runs.open_question(await of(rt.runs.find("k")))) is None

    execute([QUESTION, finish("thanks")], program)


def test_forks_reruns_and_their_differences(execute: Execute):
    async def program(rt: Any) -> None:
        await of(rt.run("pair", IN, run_id="k"))
        heard: list[Any] = []
        forked = await of(rt.fork("k", run_id="f", answer=finish("mine"), listener=heard.append))
        assert (forked.run_id, forked.artifact["data"]) == ("f", {"text": "mine"})
        assert heard[-1] == (await of(rt.runs.events("f")))[-1]
        again = await of(rt.rerun("k", run_id="r"))
        assert again.status == "finished"
        assert [(await of(rt.runs.diff("k", one))).cause for one in ("k", "f")] == [None, "answer"]
        assert (await of(rt.runs.verify("k"))).events == 16
        assert (await of(rt.runs.replay("k"))).status == "finished"
        rows = await of(rt.runs.all())
        assert {row.run_id: row.fork_of for row in rows} == {"k": "", "f": "k", "r": ""}
        assert [await of(rt.runs.root_run(row)) for row in rows] == rows

    execute(PAIR, program)


def test_a_limit_is_raised_and_a_run_is_cancelled(execute: Execute):
    async def program(rt: Any) -> None:
        await of(rt.run("asker", IN, run_id="k"))
        await of(rt.cancel("k", "no longer needed"))
        row = await of(rt.runs.find("k"))
        assert (row.status, row.reason) == ("cancelled", "no longer needed")
        assert await of(rt.runs.display_status(row)) == "cancelled"
        with pytest.raises(RunNotResumable):
            await of(rt.resume("k", raise_limits={"tokens": 10_000}))

    execute([QUESTION], program)


def test_files_are_undone_and_runs_deleted(execute: Execute, tmp_path: Path):
    async def program(rt: Any) -> None:
        await of(rt.run("writer", IN, run_id="k"))
        assert await of(rt.runs.changed_files("k")) == {"workspace:a.txt": "new"}
        lines = await of(rt.runs.export("k"))
        assert json.loads(lines[0])
        assert all(line.endswith(b"\n") for line in lines)
        assert (await of(rt.runs.undo("k", dry_run=True))).is_dry
        assert (await of(rt.runs.prune(older_than=timedelta(days=1)))).runs == ()
        assert (await of(rt.runs.delete(["k"]))).runs == ("k",)
        assert await of(rt.runs.all()) == []

    execute([act(file("write", "workspace:a.txt", content="x")), finish("done")], program)


def test_submitted_runs_wait_for_workers(execute: Execute):
    async def program(rt: Any) -> None:
        row = await of(rt.submit("pair", IN, run_id="k", queue="night", priority=3))
        assert (row.run_id, row.queue, row.priority) == ("k", "night", 3)
        assert [one.run_id for one in await of(rt.workers.queued())] == ["k"]
        assert await of(rt.workers.all()) == []
        assert await of(rt.workers.reason(row))

    execute([], program)


def test_another_model_is_called_by_a_derived_runtime(execute: Execute, tmp_path: Path):
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [go("second"), finish("other")]))

    (tmp_path / "reyn.yaml").write_text("models: {other: scripted:other.jsonl}\n")

    async def program(rt: Any) -> None:
        derived = rt.derive(model="other")
        assert (await of(derived.run("pair", IN))).artifact["data"] == {"text": "other"}
        assert (await of(rt.run("pair", IN))).artifact["data"] == {"text": "end"}

    execute(PAIR, program)


def test_errors_have_their_class_code_and_hint(execute: Execute):
    async def program(rt: Any) -> None:
        await of(rt.run("pair", IN, run_id="k"))
        calls: list[tuple[Callable[[], Any], type[ReynError]]] = [
            (lambda: rt.runs.find("none"), RunNotFound),
            (lambda: rt.runs.watch("none"), RunNotFound),
            (lambda: rt.run("none", IN), SkillNotFound),
            (lambda: rt.run("asker", IN, run_id="k"), RunIdTaken),
            (lambda: rt.answer("k", None, 1), QuestionUnknown),
            (lambda: rt.cancel("k"), RunNotResumable),
            (lambda: rt.runs.delete(["none"]), RunNotFound),
        ]
        for call, kind in calls:
            with pytest.raises(kind) as found:
                await of(call())
            assert found.value.code == kind.code
            assert found.value.hint

    execute(PAIR, program)


# -- the same values ----------------------------------------------------------------------------------

READS: dict[str, list[tuple[Any, ...]]] = {
    "runs.find": [("k",), ("w",)],
    "runs.all": [()],
    "runs.events": [("k",), ("k", 4)],
    "runs.inbox": [("w",)],
    "runs.summary": [("k",), ("w",)],
    "runs.result": [("k",), ("w",), ("f",)],
    "runs.changed_files": [("f",)],
    "runs.conversation_size": [("k",)],
    "runs.memory": [("k",)],
    "runs.prompt_at": [("k",), ("k", 3)],
    "runs.context_frame": [("k",)],
    "runs.prompt_sections": [("k",)],
    "runs.decision_at": [("k",), ("k", 9)],
    "runs.descendants": [("k",)],
    "runs.file_diff": [("f", "workspace:a.txt")],
    "runs.visit_contexts": [("k",)],
    "runs.handoffs": [("k",)],
    "runs.replay": [("k",)],
    "runs.verify": [("k",)],
    "runs.diff": [("k", "w")],
    "runs.budgets": [("k",)],
    "runs.usage": [(), ("skill",)],
    "project.lint": [("pair",)],
    "project.models": [()],
    "project.default_model": [()],
    "permissions.explain": [("writer",)],
    "permissions.explain_op": [("writer", "file")],
    "permissions.approvals": [()],
    "permissions.warnings": [("f",)],
    "workers.all": [()],
    "workers.queued": [()],
}


def test_what_is_read_is_the_same_value(tmp_path: Path):
    two_phases(tmp_path)
    write_skill(tmp_path, "asker", {"ask": ["end"]}, ops={"ask": "ask_user"})
    write_skill(tmp_path, "writer", {"write": ["end"]}, ops={"write": "file"})
    writes = [act(file("write", "workspace:a.txt", content="x")), finish("done")]
    for name, answers in (("asker", [QUESTION]), ("writer", writes), ("pair", PAIR)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in answers))

    models = [f"{name}: scripted:{name}.jsonl" for name in ("asker", "writer", "pair")]
    (tmp_path / "reyn.yaml").write_text("models: {" + ", ".join(models) + "}\n")

    async def compare(url: str, token: str) -> None:
        async with (
            ChatRuntime.open(tmp_path, model=ScriptedModel([]), trust=True) as embedded,
            Client.connect(url, token) as remote,
        ):
            for name, skill in (("k", "pair"), ("w", "asker"), ("f", "writer")):
                await remote.derive(model=skill).run(skill, IN, run_id=name)
            for path, calls in READS.items():
                area, _, method = path.partition(".")
                for arguments in calls:
                    mine = await of(getattr(getattr(embedded, area), method)(*arguments))
                    theirs = await of(getattr(getattr(remote, area), method)(*arguments))
                    assert plain(theirs) == plain(mine, like=theirs), path
                    assert isinstance(mine, type(theirs)), path

    with served_on_socket(tmp_path, ScriptedModel([])) as (url, token):
        asyncio.run(compare(url, token))


def plain(value: Any, like: Any = None) -> Any:
    """Return a value as JSON; of a struct, the fields of another one."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in (like or value).__struct_fields__}
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str, order="sorted"))
