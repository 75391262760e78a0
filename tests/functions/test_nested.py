"""Functions that tools call are sub-runs of the run whose tool calls them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reyn import SyncRuntime, llm_function, tool
from reyn.errors import CallImpossible, CallStopped
from reyn.functions import use_runtime
from reyn.journal.kinds import Usage
from reyn.models import ModelAnswer
from tests.functions.support import Answers, act, async_runtime, kinds, results, sync_runtime, value
from tests.support import finish as skill_finish
from tests.support import write_skill


class Counted(Answers):
    async def complete(self, request):
        reply = await super().complete(request)
        return ModelAnswer(reply.text, Usage(10, 1))


@llm_function(llm_interface=Counted(value("short")))
def shorten(text: str) -> str:
    """Shorten the text."""


@llm_function(llm_interface=Counted(value("short")))
async def shorten_async(text: str) -> str:
    """Shorten the text."""


@tool(effect="idempotent")
def digest(text: str) -> str:
    """Return a digest."""
    return shorten(text) + shorten(text) + shorten(text + "!")


@tool(effect="idempotent")
async def digest_async(text: str) -> str:
    """Return a digest."""
    return "".join(await asyncio.gather(*(shorten_async(f"{text}{number}") for number in range(3))))


def outer(rt, armed, *answers):
    @llm_function(llm_interface=Counted(*(answers or (act(armed.name, text="long"), value("ok")))), toolkit=[armed])
    def ask(text: str) -> str:
        """Ask."""

    with use_runtime(rt):
        return ask.options(run_id="k").run("x")


@pytest.mark.parametrize("armed", [digest, digest_async], ids=["plain", "async"])
def test_a_function_that_a_tool_calls_is_a_sub_run(tmp_path: Path, armed):
    with sync_runtime(tmp_path) as rt:
        result = outer(rt, armed)
        assert results(rt, "k", armed.name)[0]["result"] == "shortshortshort"
        children = [row for row in rt.runs.all() if row.parent == "k"]
        assert len(children) == 3
        assert {row.skill for row in children} <= {"shorten", "shorten_async"}
        assert all(row.run_id.startswith("k.1.1.1.") for row in children)
        assert result.usage.total == (2 + 3) * 11
        for row in rt.runs.all():
            assert rt.runs.replay(row.run_id).events == len(kinds(rt, row.run_id))
            rt.runs.verify(row.run_id)
        assert kinds(rt, "k").count("child_ended") == 3


def test_a_sub_run_gets_what_the_limits_of_its_parent_leave(tmp_path: Path):
    with sync_runtime(tmp_path, limits={"tokens": 11}) as rt:
        with pytest.raises(CallStopped, match="is limited"):
            outer(rt, digest)
        [found] = results(rt, "k", "digest")
        assert "is limited" in found["error"]
        assert {row.status for row in rt.runs.all()} == {"limited"}


def test_a_sub_run_that_stops_is_an_error_of_the_tool(tmp_path: Path):
    @llm_function(llm_interface=Answers("nonsense"))
    def hopeless(text: str) -> int:
        """Count."""

    @tool(effect="pure")
    def count(text: str) -> int:
        """Count."""
        return hopeless(text)

    with sync_runtime(tmp_path) as rt:
        outer(rt, count)
        [found] = results(rt, "k", "count")
        assert "CallStopped" in found["error"]
        assert "is failed" in found["error"]


def test_a_question_of_a_sub_run_ends_with_the_op_that_called_it(tmp_path: Path):
    """Nothing could continue the sub-run any more, so that a reply would have no effect."""
    (tmp_path / "reyn.yaml").write_text("permissions: {tool: [{ask: ring}]}")
    rung: list[str] = []

    @tool(effect="unsafe")
    def ring(who: str) -> str:
        """Ring."""
        rung.append(who)
        return "rung"

    @llm_function(llm_interface=Answers(act("ring", who="ada")), toolkit=[ring])
    def page(who: str) -> str:
        """Ring."""

    @tool(effect="idempotent")
    def reach(text: str) -> str:
        """Reach someone."""
        return page(text)

    @llm_function(llm_interface=Answers(act("reach", text="ada"), value("ok")), toolkit=[reach, ring])
    def ask(text: str) -> str:
        """Ask."""

    with sync_runtime(tmp_path) as rt, use_runtime(rt):
        assert ask.options(run_id="k")("x") == "ok"
        assert "Approve `ring`" in results(rt, "k", "reach")[0]["error"]
        assert {row.skill: row.status for row in rt.runs.all()} == {"ask": "finished", "page": "cancelled"}
        assert not rt.runs.open_questions()
        for row in rt.runs.all():
            assert rt.runs.replay(row.run_id).events == rt.runs.verify(row.run_id).events
    assert not rung


def test_a_plain_function_in_an_async_tool_is_refused_instead_of_blocking_for_ever(tmp_path: Path):
    @tool
    async def careless(text: str) -> str:
        """Call."""
        return shorten(text)

    with sync_runtime(tmp_path) as rt:
        outer(rt, careless)
        [found] = results(rt, "k", "careless")
        assert "CallImpossible" in found["error"]


def test_a_call_after_its_tool_has_returned_is_refused(tmp_path: Path):
    late = []

    @tool
    async def forgetful(text: str) -> str:
        """Start something and do not wait for it."""

        async def later() -> None:
            for _ in range(200):
                await asyncio.sleep(0)
            try:
                await shorten_async(text)
            except CallImpossible as error:
                late.append(type(error).__name__)

        late.append(asyncio.create_task(later()))
        return "started"

    async def main() -> None:
        async with async_runtime(tmp_path) as rt:

            @llm_function(
                llm_interface=Answers(act("forgetful", text="x"), value("ok")), toolkit=[forgetful], runtime=rt
            )
            async def ask(text: str) -> str:
                """Ask."""

            assert await ask("x") == "ok"
            await late[0]

    asyncio.run(main())
    assert late[1] == "CallImpossible"


def test_a_tool_that_is_performed_again_finds_the_sub_runs_that_it_started(tmp_path: Path):
    """A tool is interrupted after its first two calls; the next attempt repeats them without asking the model."""
    asked = []

    class Interrupting(Counted):
        async def complete(self, request):
            asked.append(request.input["data"]["text"])
            if len(asked) == 2:
                raise asyncio.CancelledError
            return await super().complete(request)

    @llm_function(llm_interface=Interrupting(value("short")))
    def brief(text: str) -> str:
        """Shorten."""

    @tool(effect="idempotent")
    def both(text: str) -> str:
        """Return both."""
        return brief("a") + brief("b")

    with sync_runtime(tmp_path) as rt:

        @llm_function(llm_interface=Counted(act("both", text="x"), value("ok")), toolkit=[both], runtime=rt)
        def ask(text: str) -> str:
            """Ask."""

        first = ask.options(run_id="k")
        try:
            first("x")
        except asyncio.CancelledError:
            assert first("x") == "ok"
        assert asked.count("a") == 1


def test_sub_runs_are_nested_in_the_list_of_runs(tmp_path: Path):
    with sync_runtime(tmp_path) as rt:
        outer(rt, digest)
        rows = rt.runs.all()
        assert all(rt.runs.root_run(row).run_id == "k" for row in rows)


def test_a_function_of_another_project_is_a_run_of_its_own(tmp_path: Path):
    (tmp_path / "other").mkdir()
    with sync_runtime(tmp_path) as rt, SyncRuntime.open(tmp_path / "other", model=Answers(value("far"))) as other:

        @llm_function(runtime=other)
        def elsewhere(text: str) -> str:
            """Answer."""

        @tool(effect="pure")
        def reach(text: str) -> str:
            """Reach."""
            return elsewhere(text)

        outer(rt, reach)
        assert results(rt, "k", "reach")[0]["result"] == "far"
        assert [row.parent for row in other.runs.all()] == [""]


def test_a_sub_run_may_do_no_more_than_the_runs_above_it(tmp_path: Path):
    """The skill requests no tools, so a function that its free tool calls may not use a tool with a permission."""

    @tool(effect="pure")
    def guarded(text: str) -> str:
        """Do what needs a permission."""
        return "done"

    model = Answers(act("guarded", text="x"), act("guarded", text="x"), value("ok"))  # the parent has one answer

    @llm_function(llm_interface=model, toolkit=[guarded])
    def inner(text: str) -> str:
        """Use the tool."""

    @tool(effect="pure", permission=None)
    def free(text: str) -> str:
        """Call the function."""
        return inner(text)

    write_skill(tmp_path, "outer", {"only": ["end"]}, ops={"only": "free"})
    with sync_runtime(tmp_path, act("free", text="x"), skill_finish(), ops=[free]) as rt:
        assert rt.run("outer", {"text": "in"}, run_id="k").ok
        [child] = [row for row in rt.runs.all() if row.parent == "k"]
        assert "permission_denied" in kinds(rt, child.run_id)
        assert "guarded_started" not in kinds(rt, child.run_id)
    with sync_runtime(tmp_path) as rt, use_runtime(rt):  # on its own, the function may use its tool
        assert "guarded_started" in kinds(rt, inner.run("x").run_id)


def test_a_function_in_a_tool_of_a_skill_uses_the_model_of_the_run(tmp_path: Path):
    @llm_function
    def inner(text: str) -> str:
        """Answer."""

    @tool(effect="pure", permission=None)
    def free(text: str) -> str:
        """Call the function."""
        return inner(text)

    write_skill(tmp_path, "outer", {"only": ["end"]}, ops={"only": "free"})
    answers = (act("free", text="x"), value("from the same script"), skill_finish())
    with sync_runtime(tmp_path, *answers, ops=[free]) as rt:
        assert rt.run("outer", {"text": "in"}, run_id="k").ok
        assert results(rt, "k", "free")[0]["result"] == "from the same script"


def test_a_run_whose_tool_called_functions_can_be_exported_and_imported(tmp_path: Path):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    with sync_runtime(tmp_path / "here") as rt, SyncRuntime.open(tmp_path / "there", trust=True) as other:
        outer(rt, digest)
        assert len(other.runs.import_(list(rt.runs.export("k"))).imported) == 4
        assert other.runs.verify("k").sub_runs == 3
