"""Workers in different folders, which share the database and nothing else: files of a run, and of the project."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.engines import Outbox, Serving
from reyn.journal import decode, kinds
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.models import ModelAnswer, ModelRequest
from reyn.testing import ScriptedModel
from tests.support import act, file, finish, question, write_skill

pytestmark = pytest.mark.sockets

IN = {"text": "in"}
LARGE = "ä" * 70_000


class Folders:
    """Folders that play machines."""

    def __init__(self, root: Path, address: JournalAddress, answers: list[Any]) -> None:
        self._root = root
        self._address = address
        self._answers = answers

    def open(self, name: str, text: str = "", model: type[ScriptedModel] = ScriptedModel) -> OSRuntime:
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        (folder / "reyn.yaml").write_text(text)
        if name == "desk":
            write_skill(folder, "writing", {"only": ["end"]}, ops={"only": "file, ask_user"})
        journal = PostgresJournal(self._address)
        return OSRuntime.open(folder, model=model(self._answers), journal=journal, trust=True)

    def files(self, name: str, run: str = "a") -> dict[str, bytes]:
        folder = self._root / name / ".reyn" / "workspace" / run
        found = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


async def work(rt: OSRuntime, **options: Any) -> Serving:
    serving = Serving(queues=("default",), is_once=True, **options)
    await rt.workers.serve(serving=serving, dispatcher=Outbox(rt.services.journal))
    return serving


def due_at_once(rt: OSRuntime) -> None:
    journal = rt.services.journal
    journal.hold_wakes([one.seq for one in journal.wakes()], 0)


def answer(rt: OSRuntime) -> None:
    wait = rt.runs.find("a").wait
    assert wait is not None
    rt.answer("a", wait.id, "yes")


def test_the_files_of_a_run_are_on_the_worker_that_continues_it(tmp_path: Path, address: JournalAddress):
    answers = [
        act(file("write", "workspace:a.txt", content="one\n"), file("write", "workspace:sub/b.txt", content=LARGE)),
        act(file("write", "workspace:gone.txt", content="x"), question("go on?")),
        act(file("write", "workspace:a.txt", content="two\n"), file("delete", "workspace:gone.txt"), question("more?")),
        act(file("edit", "workspace:a.txt", old_string="two", new_string="three"), file("read", "workspace:sub/b.txt")),
        finish("done"),
    ]
    folders = Folders(tmp_path, address, answers)

    async def scenario() -> None:
        async with folders.open("desk") as desk:
            desk.submit("writing", IN, run_id="a")
            async with folders.open("one") as one, folders.open("two") as two:
                await work(one)
                assert folders.files("one") == {"a.txt": b"one\n", "sub/b.txt": LARGE.encode(), "gone.txt": b"x"}
                answer(desk)
                await work(two)
                assert folders.files("two") == {"a.txt": b"two\n", "sub/b.txt": LARGE.encode()}
                # The first one has an older state; what another program wrote there stays.
                (tmp_path / "one/.reyn/workspace/a/other.txt").write_text("not ours")
                answer(desk)
                await work(one)
                result = desk.runs.result("a")
                assert result.status == "finished", result
                assert folders.files("one") == {
                    "a.txt": b"three\n",
                    "sub/b.txt": LARGE.encode(),
                    "other.txt": b"not ours",
                }
                bodies = [decode(event) for event in desk.runs.events("a")]
                assert {body.status for body in bodies if isinstance(body, kinds.OpCompleted)} == {"ok"}
            desk.runs.verify("a")
            await desk.runs.replay("a")

    asyncio.run(scenario())


class Deadly(ScriptedModel):
    """Kills its process when it is asked a third time."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.answered == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().complete(request)


def test_the_files_of_a_worker_that_was_killed_are_on_the_next_one(tmp_path: Path, address: JournalAddress):
    content = "".join(map(chr, range(32, 3_000)))
    answers = [
        act(file("write", "workspace:a.txt", content=content), file("write", "workspace:b.txt", content="b")),
        act(file("delete", "workspace:b.txt"), file("write", "workspace:c/d.txt", content="d\n")),
        act(file("read", "workspace:c/d.txt")),
        finish("done"),
    ]
    folders = Folders(tmp_path, address, answers)

    async def submit() -> None:
        async with folders.open("desk") as desk:
            desk.submit("writing", IN, run_id="a")

    async def be_killed() -> None:
        async with folders.open("one", model=Deadly) as one:
            await work(one)

    async def take_over() -> None:
        async with folders.open("two") as two:
            due_at_once(two)
            await work(two)
            result = two.runs.result("a")
            assert result.status == "finished", result
            assert folders.files("two") == folders.files("one") == {"a.txt": content.encode(), "c/d.txt": b"d\n"}
            assert [event.kind for event in two.runs.events("a")].count("llm_responded") == 4

    asyncio.run(submit())
    child = os.fork()
    if not child:
        asyncio.run(be_killed())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    asyncio.run(take_over())


def test_an_op_on_a_project_file_waits_for_a_worker_that_has_the_project(tmp_path: Path, address: JournalAddress):
    answers = [
        act(file("write", "workspace:a.txt", content="x")),
        act(file("read", "notes.txt"), file("glob", "*.txt")),
        finish("done"),
    ]
    folders = Folders(tmp_path, address, answers)

    async def scenario() -> None:
        async with folders.open("desk") as desk, folders.open("one") as one:
            (tmp_path / "desk/notes.txt").write_text("in the project")
            desk.submit("writing", IN, run_id="a")
            for _ in range(20):  # however often it is offered, it is not set aside
                serving = await work(one)
                due_at_once(one)
            assert serving.refusals == {"a": "it needs a worker with the label `project`"}
            events = [event.kind for event in desk.runs.events("a")]
            assert events.count("llm_responded") == 2  # the answer was recorded, and is not asked for again
            assert events.count("run_resumed") <= 1
            assert desk.runs.find("a").labels == ("project",)
            assert [one.run_id for one in desk.workers.queued()] == ["a"]
            await work(desk, labels=["project"])
            result = desk.runs.result("a")
            assert result.status == "finished", result
            assert [event.kind for event in desk.runs.events("a")].count("llm_responded") == 3
            assert folders.files("desk") == {"a.txt": b"x"}
            desk.runs.verify("a")
            await desk.runs.replay("a")

    asyncio.run(scenario())
