"""Forks of runs with unsafe ops: what was completed stays, and what may be executed again is said."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.functions import tool
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ToolCall
from tests.kernel.test_turn_abort import forever, reached
from tests.support import act, file, finish, write_skill


class Post:
    """A skill `mail` with an unsafe tool `send`, which is interrupted at one letter; `office` runs it as a sub-run."""

    def __init__(self, root: Path, form: str = "full") -> None:
        self.sent: list[str] = []
        self.interrupts = "b"
        self.reached = asyncio.Event()
        self.answer_form, self.name = form, "post"
        self.answers: list[Any] = []

        @tool(effect="unsafe", permission=None)
        async def send(letter: str) -> str:
            """Send a letter."""
            self.sent.append(letter)
            if letter == self.interrupts:
                self.reached.set()
                await forever()
            return f"sent {letter}"

        step = "preprocessor:\n  - run_op: {op: {kind: send, letter: a}}\n  - run_op: {op: {kind: send, letter: b}}\n"
        write_skill(root, "mail", {"work": ["end"]}, ops={"work": "send"})
        write_skill(root, "steps", {"work": ["end"]}, phase_keys={"work": step})
        write_skill(root, "office", {"desk": ["end"]}, ops={"desk": "run_skill"})
        self.rt = OSRuntime.open(root, model=self, journal=MemoryJournal(), ops=[send], trust=True)

    async def complete(self, request: Any) -> ModelAnswer:
        answer = self.answers.pop(0)
        if self.answer_form == "tools" and "control_ir" in answer and "control" not in answer:
            ops = [dict(op) for op in answer["control_ir"]]
            calls = [ToolCall(f"id-{at}", op.pop("kind"), json.dumps(op)) for at, op in enumerate(ops)]
            return ModelAnswer("", tool_calls=tuple(calls))
        return ModelAnswer(json.dumps(answer))

    async def interrupted(self, skill: str = "mail", *before: Any) -> None:
        """Run a skill until the second of three letters is being sent."""
        self.answers = [*before, act(*({"kind": "send", "letter": letter} for letter in "abc"))]
        run = asyncio.create_task(self.rt.run(skill, {"text": "in"}, run_id="k"))
        await reached(self.reached, run)
        run.cancel()
        await asyncio.wait([run])
        assert self.sent == ["a", "b"]
        self.interrupts = ""


@pytest.mark.parametrize("form", ["full", "tools"])
@pytest.mark.parametrize("state", ["interrupted", "cancelled", "waiting"])
@pytest.mark.parametrize("skill", ["mail", "steps"])
def test_a_fork_keeps_the_ops_that_were_completed_and_asks_about_the_open_one(
    tmp_path: Path, form: str, state: str, skill: str
):
    async def scenario() -> None:
        post = Post(tmp_path, form)
        async with post.rt as rt:
            await post.interrupted(skill)
            if state == "cancelled":
                rt.cancel("k", "enough")
            elif state == "waiting":
                assert (await rt.resume("k")).status == "waiting"
            forked = await rt.fork("k", run_id="f")
            assert (forked.status, forked.warnings, post.sent) == ("waiting", (), ["a", "b"])
            assert '"letter":"b"' in forked.question.message
            rt.answer("f", forked.question.id, "done")
            post.answers = [finish()]
            assert (await rt.resume("f")).ok
            assert post.sent == (["a", "b", "c"] if skill == "mail" else ["a", "b"])
            assert (await rt.runs.replay("f")).events == rt.runs.verify("f").events

    asyncio.run(scenario())


def test_a_fork_that_may_execute_unsafe_ops_again_names_them(tmp_path: Path):
    a, b, c = (f'`send` {{"letter":"{letter}"}}' for letter in "abc")

    async def scenario() -> None:
        post = Post(tmp_path)
        async with post.rt as rt:
            await post.interrupted()
            first = next(event.seq for event in rt.runs.events("k") if event.kind == "llm_requested")
            post.answers = [finish()]
            early = await rt.fork("k", at=first)
            where = f"the fork continues from event {first} of `k`, and may repeat later ops. "
            assert early.warnings == (f"{where}These ops were completed: {a}. These ops may have taken effect: {b}.",)
            post.answers = [finish()]
            [warning] = (await rt.fork("k", input={"text": "other"})).warnings  # between two visits
            assert f"These ops were completed: {a}. These ops may have taken effect: {b}." in warning
            waiting = await rt.resume("k")
            rt.answer("k", waiting.question.id, "done")
            post.answers = [finish()]
            assert (await rt.resume("k")).ok
            post.answers = [finish()]
            assert (await rt.fork("k")).warnings == ()  # the last prompt has all results
            post.answers = [finish()]
            assert (await rt.fork("k", at=first)).warnings == (f"{where}These ops were completed: {a}, {b}, {c}.",)

    asyncio.run(scenario())


def test_a_fork_asks_about_a_sub_run_that_acted_and_one_before_it_names_its_unsafe_ops(tmp_path: Path):
    done = 'completed: `send` {"letter":"a"}. These ops may have taken effect: `send` {"letter":"b"}.'

    async def scenario() -> None:
        post = Post(tmp_path)
        async with post.rt as rt:
            run = {"kind": "run_skill", "skill": "mail", "input": {"type": "note", "data": {"text": "in"}}}
            await post.interrupted("office", act(run))
            forked = await rt.fork("k", run_id="f")
            assert (forked.status, forked.warnings, post.sent) == ("waiting", (), ["a", "b"])
            assert done in forked.question.message
            first = next(event.seq for event in rt.runs.events("k") if event.kind == "llm_requested")
            received: list[Any] = []
            post.answers = [finish()]
            [warning] = (await rt.fork("k", at=first, listener=received.append)).warnings
            assert done in warning
            assert done in received[0].data["repeats"]  # before anything is executed

    asyncio.run(scenario())


@pytest.mark.parametrize("others", [0, 9])
def test_a_fork_says_which_files_of_its_visit_were_restored(tmp_path: Path, others: int):
    async def scenario() -> None:
        post = Post(tmp_path)
        post.interrupts = ""
        write_skill(tmp_path, "both", {"work": ["end"]}, ops={"work": "send, file"})
        names = ["output/x.txt", *(f"output/{number}.txt" for number in range(others)), "workspace:own.txt"]
        writes = [file("write", name, content="1") for name in names]
        async with post.rt as rt:
            post.answers = [act({"kind": "send", "letter": "a"}, *writes), "no", "no", "no"]
            assert (await rt.run("both", {"text": "in"}, run_id="k")).status == "failed"
            assert not (tmp_path / "output/x.txt").exists()
            post.answers = [finish()]
            [warning] = (await rt.fork("k", run_id="f")).warnings
            assert "restored files: `output/" in warning
            assert "workspace:" not in warning
            assert ("and 5 more" in warning) is bool(others)
            assert post.sent == ["a"]
            post.answers = [finish()]
            first = next(event.seq for event in rt.runs.events("k") if event.kind == "llm_requested")
            [early] = (await rt.fork("k", at=first)).warnings  # before the files were written
            assert "restored files" not in early

    asyncio.run(scenario())
