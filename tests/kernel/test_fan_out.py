"""Fan-out and join: branches are children that execute together, and one artifact joins their results."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from reyn.kernel.runtime_types import LATER
from reyn.models import ModelAnswer, ModelRequest
from reyn.models.protocol import Usage
from reyn.runtime import OSRuntime
from tests.kernel.support import IN, Project
from tests.support import act, file, finish, question, with_ops, write_skill

LIST = {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}
PLAN = {"type": "plan", "data": {"items": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}}


def write_report(root: Path, node: str = "", *, skill_keys: str = "", phase: str = "") -> Path:
    """A skill whose entry runs the phase `write` for every item, and joins the notes for `assemble`."""
    settings = node or "{each: {in: data.items, do: write, output: note, max_parallel: 2}, as: drafts}"
    folder = write_skill(
        root,
        "report",
        {"sections": ["assemble"], "assemble": ["end"]},
        inputs={"sections": "plan", "assemble": "drafts"},
        artifacts={"plan": LIST},
        skill_keys=f"nodes:\n  sections: {settings}\n{skill_keys}",
    )
    (folder / "phases" / "sections.md").write_text(f"---\ntype: phase\nname: sections\ninput: plan\n{phase}---\n")
    (folder / "phases" / "write.md").write_text(
        "---\ntype: phase\nname: write\ninput: note\nallowed_ops: []\n---\nWrite.\n"
    )
    return folder


def write_quotes(root: Path, settings: str, schema: Any = None) -> None:
    """A skill whose entry runs the skills `check`, `quote` and `rate`, and joins their notes for `assemble`."""
    for name in ("check", "quote", "rate"):
        write_skill(root, name, {name: ["end"]})
    skills = "check: '@check', quote: '@quote', rate: '@rate'"
    folder = write_skill(
        root,
        "report",
        {"quotes": ["assemble"], "assemble": ["end"]},
        inputs={"assemble": "answers"},
        artifacts={"answers": schema} if schema else None,
        skill_keys=f"nodes:\n  quotes: {{all: {{{skills}}}, as: answers, {settings}}}\n",
    )
    (folder / "phases" / "quotes.md").write_text("---\ntype: phase\nname: quotes\ninput: note\n---\n")


class Workers:
    """A model that answers a branch with its own text; branches wait until they are released, in a given order.

    Args:
        order: The texts or phases of branches, in the order in which they are answered. Without one, none waits.
        fails: Those that are answered with something that no contract accepts.
        stuck: Those that are never answered.
    """

    name = "workers"

    def __init__(self, *order: str, fails: tuple[str, ...] = (), stuck: tuple[str, ...] = ()) -> None:
        self.order = list(order)
        self.fails, self.stuck = fails, stuck
        self.calls: list[str] = []
        self.waiting: dict[str, asyncio.Event] = {}
        self.running = self.most = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        data = request.input["data"]
        name = request.phase if request.phase in ("check", "quote", "rate") else data.get("text", "")
        self.calls.append(request.phase if request.phase == "assemble" else name)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if name in self.stuck:
                await asyncio.Event().wait()
            if name in self.order:
                await self._turn(name)
        finally:
            self.running -= 1
        return ModelAnswer("no JSON" if name in self.fails else json.dumps(finish(f"did {name}")))

    async def _turn(self, name: str) -> None:
        """Wait until those before this one have been answered."""
        self.waiting[name] = asyncio.Event()
        self._release()
        await self.waiting[name].wait()
        self.order.remove(name)
        self._release()

    def _release(self) -> None:
        if self.order and self.order[0] in self.waiting:
            self.waiting[self.order[0]].set()


def run(root: Path, model: Any, value: Any = IN, run_id: str = "k", **options: Any) -> tuple[Any, Project]:
    """Run the skill and replay it."""
    project = Project(root)

    async def execute() -> Any:
        ports: dict[str, Any] = {"journal": project.journal, "ids": project.ids, "clock": project.clock}
        async with OSRuntime.open(root, model=model, trust=True, **ports, **options) as runtime:
            result = await runtime.run("report", value, run_id=run_id)
            assert (await runtime.runs.replay(run_id)).events == len(project.events(run_id=run_id))
            return result

    return asyncio.run(execute()), project


def items(*texts: str) -> dict[str, Any]:
    return {"type": "plan", "data": {"items": [{"text": text} for text in texts]}}


def ends(project: Project, run_id: str = "k") -> dict[str, str]:
    """Return the state of each branch, by the last part of its call."""
    return {one["call"].split(".")[-1]: one.get("state", "completed") for one in project.events("child_ended")}


def texts(project: Project) -> list[str]:
    return [one["text"] for one in joined(project)["items"]]


def joined(project: Project, run_id: str = "k") -> Any:
    """Return the data of the artifact that arrived at `assemble`."""
    arrived = next(one for one in project.events("phase_started", run_id=run_id) if one["phase"] == "assemble")
    return json.loads(project.journal.blob(arrived["input"]["hash"]))["data"]


def test_each_item_runs_a_branch_and_results_are_in_the_order_of_the_items(tmp_path: Path):
    write_report(tmp_path)
    model = Workers("b", "a", "d", "c")
    result, project = run(tmp_path, model, items("a", "b", "c", "d"))
    assert result.ok, result.reason
    assert texts(project) == ["did a", "did b", "did c", "did d"]
    assert model.most == 2
    assert sorted(one["run"] for one in project.events("child_ended")) == ["k.1.1", "k.1.2", "k.1.3", "k.1.4"]
    [join] = project.events("branches_joined")
    assert (join["verdict"], join["total"], join["completed"], join["cancelled"]) == ("met", 4, 4, 0)


def test_scripted_branches_execute_in_the_order_of_the_items(tmp_path: Path):
    from reyn import SyncRuntime
    from reyn.testing import ScriptedModel

    write_report(tmp_path)
    with SyncRuntime.open(tmp_path, model=ScriptedModel([finish("A"), finish("B"), finish("all")])) as runtime:
        result = runtime.run("report", items("a", "b"), run_id="k")
        assert result.ok
        assert result.artifact["data"]["text"] == "all"
        assert runtime.runs.replay("k").events


def test_all_joins_one_property_for_each_branch(tmp_path: Path):
    write_quotes(tmp_path, "need: all")
    result, project = run(tmp_path, Workers("rate", "quote", "check"))
    assert result.ok, result.reason
    assert joined(project) == {
        "check": {"text": "did check"},
        "quote": {"text": "did quote"},
        "rate": {"text": "did rate"},
    }
    assert ends(project) == dict.fromkeys(("check", "quote", "rate"), "completed")


@pytest.mark.parametrize(
    ("need", "order", "expected"), [("any", ["quote"], ["quote"]), ("2", ["rate", "check"], ["check", "rate"])]
)
def test_the_others_are_cancelled_when_enough_have_completed(
    tmp_path: Path, need: str, order: list[str], expected: list[str]
):
    write_quotes(tmp_path, f"need: {need}")
    others = {"check", "quote", "rate"} - {*order}
    result, project = run(tmp_path, Workers(*order, stuck=tuple(others)))
    assert result.ok, result.reason
    assert sorted(joined(project)) == expected
    assert ends(project) == dict.fromkeys(order, "completed") | dict.fromkeys(others, "canceled")
    for name in others:
        assert project.journal.find(f"k.1.{name}").status == "cancelled"


def test_a_failure_ends_the_others_and_the_visit(tmp_path: Path):
    write_quotes(tmp_path, "need: all")
    result, project = run(tmp_path, Workers("quote", fails=("quote",), stuck=("check", "rate")), max_phase_retries=0)
    assert result.status == "failed"
    assert "the join needs 3 branches, but 1 of 3 failed: quote: " in result.reason
    assert ends(project) == {"quote": "failed", "check": "canceled", "rate": "canceled"}
    assert project.events("branches_joined")[0]["verdict"] == "impossible"


def test_failures_are_collected(tmp_path: Path):
    node = "{each: {in: data.items, do: write, output: note}, as: drafts, on_item_error: collect}"
    write_report(tmp_path, node)
    result, project = run(tmp_path, Workers(fails=("b",)), items("a", "b", "c"), max_phase_retries=0)
    assert result.ok, result.reason
    assert texts(project) == ["did a", "did c"]
    [error] = joined(project)["errors"]
    assert error["branch"] == 1
    assert "1 answer rejected" in error["message"]


def test_with_need_a_failure_counts_only_if_too_few_are_left(tmp_path: Path):
    write_quotes(tmp_path, "need: 2")
    result, _ = run(tmp_path, Workers("quote", "rate", "check", fails=("quote",)), max_phase_retries=0)
    assert result.ok
    result, _ = run(tmp_path, Workers("quote", "rate", fails=("quote", "rate"), stuck=("check",)), max_phase_retries=0)
    assert "the join needs 2 branches, but 2 of 3 failed" in result.reason


def test_a_failed_branch_runs_again_under_another_id(tmp_path: Path):
    node = "{each: {in: data.items, do: write, output: note}, as: drafts, on_item_error: retry}"
    write_report(tmp_path, node)

    class Moody(Workers):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            self.fails = ("b",) if self.calls.count("b") < 2 else ()
            return await super().complete(request)

    result, project = run(tmp_path, Moody(), items("a", "b"), max_phase_retries=0)
    assert result.ok, result.reason
    assert texts(project) == ["did a", "did b"]
    assert ends(project) == {"1": "completed", "2": "failed", "2r2": "failed", "2r3": "completed"}
    result, project = run(tmp_path, Workers(fails=("b",)), items("a", "b"), max_phase_retries=0)
    assert result.status == "failed"
    assert ends(project)["2r3"] == "failed"


def test_another_attempt_of_a_failed_join_takes_over_what_completed(tmp_path: Path):
    write_report(tmp_path)
    model = Workers(fails=("c",))
    result, project = run(tmp_path, model, items("a", "b", "c"), max_phase_retries=0)
    assert result.status == "failed"

    async def again() -> Any:
        model.fails = ()
        async with OSRuntime.open(tmp_path, model=model, journal=project.journal, trust=True) as runtime:
            result = await runtime.resume("k", retry=True)
            assert (await runtime.runs.replay("k")).events
            return result

    assert asyncio.run(again()).ok
    assert model.calls.count("a") == model.calls.count("b") == 1
    taken = [one for one in project.events("step_completed") if one.get("result_of")]
    assert [one["result_of"] for one in taken] == ["1.1", "1.2"]


@pytest.mark.parametrize(
    ("need", "value", "reason"),
    [
        ("any", items(), "the join needs 1 branch, but there are 0"),
        ("3", items("a", "b"), "the join needs 3 branches, but there are 2"),
        ("all", {"type": "plan", "data": {"items": ["x"] * 10_001}}, "10,001 items"),
        ("all", {"type": "plan", "data": {"items": [7]}}, "a run takes text or a JSON object"),
    ],
)
def test_a_join_that_cannot_be_met_is_explained(tmp_path: Path, need: str, value: Any, reason: str):
    write_report(tmp_path, f"{{each: {{in: data.items, do: write, output: note}}, as: drafts, need: {need}}}")
    result, _ = run(tmp_path, Workers(), value)
    assert result.status == "failed"
    assert result.code == "RYN208" if hasattr(result, "code") else True
    assert reason in result.reason


def test_no_items_join_to_an_empty_list(tmp_path: Path):
    write_report(tmp_path)
    result, project = run(tmp_path, Workers(), items())
    assert result.ok
    assert joined(project) == {"items": []}


def test_steps_of_the_node_run_before_its_branches(tmp_path: Path):
    write_report(
        tmp_path,
        "{each: {in: data.found.matches, do: '@look'}, as: drafts}",
        phase="preprocessor:\n  - run_op: {op: {kind: file, op: glob, pattern: '*.txt'}, into: data.found}\n",
    )
    write_skill(tmp_path, "look", {"look": ["end"]}, inputs={"look": "user_message"})
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("x")
    result, project = run(tmp_path, Workers(), items("a"))
    assert result.ok, result.reason
    assert texts(project) == ["did one.txt", "did two.txt"]


# -- stops, kills and forks ----------------------------------------------------------------------------------


def resumed(root: Path, project: Project, model: Any, **how: Any) -> Any:
    """Resume the run in another runtime, and replay it."""

    async def execute() -> Any:
        async with OSRuntime.open(root, model=model, journal=project.journal, trust=True) as runtime:
            result = await runtime.resume("k", **how)
            await runtime.runs.replay("k")
            runtime.runs.verify("k")
            return result

    return asyncio.run(execute())


@pytest.mark.parametrize("calls", [1, 3, 5, 7])
def test_an_interrupted_fan_out_repeats_no_answer(tmp_path: Path, calls: int):
    """The process ends after some model calls; another one continues every branch where it was."""
    write_report(tmp_path)
    texts = ("a", "b", "c", "d", "e")

    class Dying(Workers):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            if len(self.calls) == calls:
                asyncio.get_running_loop().call_soon(running[0].cancel)
                await asyncio.Event().wait()
            return await super().complete(request)

    project, model, running = Project(tmp_path), Dying(), []

    async def execute() -> None:
        async with OSRuntime.open(tmp_path, model=model, journal=project.journal, trust=True) as runtime:
            running.append(asyncio.ensure_future(runtime.run("report", items(*texts), run_id="k")))
            await asyncio.wait(running)

    asyncio.run(execute())
    answered = list(model.calls)
    after = Workers()
    if project.journal.find("k").status == "running":
        assert resumed(tmp_path, project, after).ok
    assert joined(project) == {"items": [{"text": f"did {text}"} for text in texts]}
    assert not {*answered[:calls]} & {*after.calls} - {""}
    assert len(project.events("child_ended")) == 5


def test_a_branch_that_asks_a_person_does_not_hold_up_the_others(tmp_path: Path):
    write_quotes(tmp_path, "need: any")
    skill = tmp_path / "reyn/project/check/phases/check.md"
    skill.write_text(skill.read_text().replace("allowed_ops: []", "allowed_ops: [ask_user]"))

    asked = asyncio.Event()

    class Absent:
        """A user who is told of the question and does not reply."""

        async def ask(self, run_id: str, wait: Any) -> Any:
            asked.set()
            return LATER

    class Asking(Workers):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            if request.phase == "check":
                return ModelAnswer(json.dumps(act(question("sure?"))))
            if request.phase == "quote":
                await asked.wait()
            return await super().complete(request)

    result, project = run(tmp_path, Asking(stuck=("rate",)), people=Absent())
    assert result.ok, result.reason
    assert ends(project) == {"quote": "completed", "check": "canceled", "rate": "canceled"}


def test_a_run_waits_for_a_branch_once_the_others_have_ended(tmp_path: Path):
    write_quotes(tmp_path, "need: all")
    skill = tmp_path / "reyn/project/check/phases/check.md"
    skill.write_text(skill.read_text().replace("allowed_ops: []", "allowed_ops: [ask_user]"))

    class Asking(Workers):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            if request.phase == "check" and not self.calls.count("check"):
                self.calls.append("check")
                return ModelAnswer(json.dumps(act(question("sure?"))))
            return await super().complete(request)

    model = Asking()
    result, project = run(tmp_path, model)
    assert result.status == "waiting"
    assert ends(project) == {"quote": "completed", "rate": "completed"}
    from reyn import SyncRuntime

    with SyncRuntime.open(tmp_path, model=model, journal=project.journal, trust=True) as runtime:
        runtime.answer("k", result.question.id, "yes")
    assert resumed(tmp_path, project, model).ok
    assert sorted(joined(project)) == ["check", "quote", "rate"]
    assert model.calls.count("quote") == model.calls.count("rate") == 1


def test_branches_share_the_tokens_of_the_run(tmp_path: Path):
    write_report(tmp_path)

    class Metered(Workers):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            return replace(await super().complete(request), usage=Usage(100, 0))

    texts = [f"t{number}" for number in range(9)]
    model = Metered()
    result, project = run(tmp_path, model, items(*texts), limits={"tokens": 450})
    assert result.status == "limited"
    assert result.usage.total <= 450 + 200  # a limit is exceeded by the calls in progress at most
    assert resumed(tmp_path, project, model, raise_limits={"tokens": None}).ok
    assert joined(project) == {"items": [{"text": f"did {text}"} for text in texts]}
    assert all(model.calls.count(text) == 1 for text in texts)


def test_a_fork_inside_executes_only_what_follows(tmp_path: Path):
    write_report(tmp_path)
    result, project = run(tmp_path, Workers(), items("a", "b", "c", "d"))
    assert result.ok
    last = [event.seq for event in project.journal.read("k") if event.kind == "child_ended"][1]

    async def fork(model: Any) -> Any:
        async with OSRuntime.open(tmp_path, model=model, journal=project.journal, trust=True) as runtime:
            forked = await runtime.fork("k", at=last)
            await runtime.runs.replay(forked.run_id)
            return forked

    model = Workers()
    forked = asyncio.run(fork(model))
    assert forked.ok, forked.reason
    assert sorted(model.calls) == ["assemble", "c", "d"]
    assert [one["run"].split(".")[0] for one in project.events("child_ended", run_id=forked.run_id)].count("k") == 2


def test_a_run_that_is_cancelled_cancels_its_branches(tmp_path: Path):
    write_quotes(tmp_path, "need: all")

    class Cancelling(Workers):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            if len(self.calls) == 2:
                runtimes[0].cancel("k", "enough")
            return await super().complete(request)

    runtimes: list[Any] = []
    project = Project(tmp_path)

    async def execute() -> Any:
        model = Cancelling(stuck=("check", "quote", "rate"))
        async with OSRuntime.open(tmp_path, model=model, journal=project.journal, trust=True) as runtime:
            runtimes.append(runtime)
            return await runtime.run("report", IN, run_id="k")

    assert asyncio.run(execute()).status == "cancelled"
    rows = project.journal.runs("k.")
    assert {row.status for row in rows} == {"cancelled"}


def test_branches_that_write_the_same_file_fail_the_join_and_the_file_is_restored(tmp_path: Path):
    write_report(tmp_path)
    phase = tmp_path / "reyn/project/report/phases/write.md"
    phase.write_text(phase.read_text().replace("allowed_ops: []", "allowed_ops: [file]"))

    class Writing(Workers):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            await super().complete(request)
            return ModelAnswer(json.dumps(with_ops(finish(), file("write", "output/same.md", content="x"))))

    result, _ = run(tmp_path, Writing(), items("a", "b"))
    assert result.status == "failed"
    assert "the branches `0` and `1` both wrote `output/same.md`" in result.reason
    assert not (tmp_path / "output/same.md").exists()


def test_a_skill_without_permission_is_a_failed_branch(tmp_path: Path):
    write_quotes(tmp_path, "need: 2, on_item_error: collect")
    result, project = run(tmp_path, Workers(), permissions={"run_skill": [{"deny": "rate"}]})
    assert result.ok, result.reason
    assert sorted(joined(project)) == ["check", "errors", "quote"]


def test_a_hundred_branches_execute_ten_at_a_time(tmp_path: Path):
    write_report(tmp_path, "{each: {in: data.items, do: write, output: note, max_parallel: 10}, as: drafts}")

    class Rounds(Workers):
        """Answers when no other branch can begin: as many as execute together take one round."""

        rounds = 0
        gate = None

        async def complete(self, request: ModelRequest) -> ModelAnswer:
            if request.phase == "write":
                if self.gate is None:
                    self.gate = asyncio.Event()
                gate, self.running = self.gate, self.running + 1
                if self.running == 10:
                    self.rounds, self.running, self.gate = self.rounds + 1, 0, None
                    gate.set()
                await gate.wait()
            return ModelAnswer(json.dumps(finish(request.input["data"].get("text", "all"))))

    model = Rounds()
    result, project = run(tmp_path, model, items(*(str(number) for number in range(100))))
    assert result.ok
    assert texts(project) == [str(number) for number in range(100)]
    assert model.rounds == 10
