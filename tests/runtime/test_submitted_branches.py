"""The branches of submitted runs: workers execute them, and nothing else differs from a run in place."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import OSRuntime
from reyn.engines import Serving
from reyn.journal import ENDED, Journal, MemoryJournal, kinds
from reyn.journal.outside import record_outside
from reyn.journal.registry import chain_events
from reyn.journal.sqlite import SqliteJournal
from reyn.models import ModelAnswer, ModelRequest
from reyn.models.protocol import Usage
from reyn.runtime.submitting import MAX_TAKEOVERS, drive
from reyn.testing import CountingIds, SteppingClock
from tests.kernel.test_fan_out import Workers, items, write_quotes, write_report
from tests.kernel.test_fan_out_model import Racers
from tests.kernel.test_joins import NEEDS, ON_ERROR, expected
from tests.properties import examples, some
from tests.support import act, finish, question, write_skill

IN = {"text": "in"}
EACH = "{each: {in: data.items, do: write, output: note, max_parallel: 2}, as: drafts}"
OWN = ("run_submitted", "run_suspended", "run_resumed")
"""The events that a run in place has not."""


def open_project(root: Path, model: Any, journal: Journal | None = None, **options: Any) -> OSRuntime:
    ports = {"journal": journal or MemoryJournal(), "ids": CountingIds(), "clock": SteppingClock()}
    rt = OSRuntime.open(root, model=model, trust=True, max_phase_retries=0, **(ports | options))
    rt.services.polling.busy_seconds = 0.001  # cancelled calls are left at once
    return rt


async def work(*workers: OSRuntime, concurrency: int = 1) -> None:
    """Let workers do what is due, and what is due then."""
    journal = workers[0].services.journal
    async with asyncio.timeout(120):
        while journal.wakes():
            journal.hold_wakes([one.seq for one in journal.wakes()], 0)
            await asyncio.gather(*(one.workers.serve(once=True, concurrency=concurrency) for one in workers))


def kinds_of(rt: OSRuntime, run_id: str = "k") -> list[str]:
    return [event.kind for event in rt.runs.events(run_id)]


def bodies(rt: OSRuntime, kind: str, run_id: str = "k") -> list[Any]:
    return [event.data for event in rt.runs.events(run_id) if event.kind == kind]


async def check(rt: OSRuntime, runs: Iterable[str] = ("k",)) -> None:
    """Check that runs have ended, with all that they started, and that their records are complete."""
    assert all(row.status in ENDED or row.status == "failed" for row in rt.runs.all())
    assert rt.services.journal.wakes() == []
    for run_id in runs:
        assert (await rt.runs.replay(run_id)).events == rt.runs.find(run_id).seq
        rt.runs.verify(run_id)


# -- the same as in place -------------------------------------------------------------------------------


@examples(25)
@given(
    st.integers(0, 5), NEEDS, ON_ERROR, st.permutations(range(5)), st.lists(st.integers(0, 3), min_size=5), st.data()
)
def test_submitted_branches_do_what_the_model_of_their_join_says(
    count: int, need: Any, on_error: str, priorities: list[int], failures: list[int], data: Any
):
    parallel, concurrency = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    node = (
        f"{{each: {{in: data.items, do: write, output: note, max_parallel: {parallel}}},"
        f" need: {need}, on_item_error: {on_error}, as: drafts}}"
    )
    model = Racers(priorities, failures)

    async def scenario(root: Path) -> None:
        async with open_project(root, model) as rt:
            rt.submit("report", items(*map(str, range(count))), run_id="k")
            await work(rt, concurrency=concurrency)
            await check(rt)
            started = [one["call"] for one in bodies(rt, "child_started")]
            ended = bodies(rt, "child_ended")
            assert sorted(started) == sorted(one["call"] for one in ended), "the end of every branch is an event"
            assert model.most <= min(parallel, concurrency)
            own = [one for one in ended if one.get("state") != "canceled"]
            ends = [(int(one["call"].split(".")[1].split("r")[0]) - 1, "artifact" in one) for one in own]
            verdict, done = expected(count, need, on_error, ends)
            [join] = bodies(rt, "branches_joined")
            assert (join["verdict"], join["completed"]) == (verdict, len(done))
            assert rt.runs.result("k").ok == (verdict == "met")

    with tempfile.TemporaryDirectory() as folder:
        write_report(Path(folder), node)
        asyncio.run(scenario(Path(folder)))


def write_iteration(root: Path) -> None:
    """A skill that runs `leaf` for every item, three at a time, in a step."""
    write_skill(root, "leaf", {"leaf": ["end"]})
    step = (
        "preprocessor:\n  - iterate: {over: data.items, concurrency: 3, into: data.done,"
        " apply: {run_skill: {skill: leaf, input: {text: _iter.item.text}}}}\n"
    )
    schema = {"type": "object", "additionalProperties": True}
    write_skill(
        root, "report", {"go": ["end"]}, inputs={"go": "plan"}, artifacts={"plan": schema}, phase_keys={"go": step}
    )


SKILLS = {
    "each": lambda root: write_report(root, EACH),
    "all": lambda root: write_quotes(root, "need: all"),
    "collect": lambda root: write_report(root, EACH.replace(", as:", ", on_item_error: collect, as:")),
    "retry": lambda root: write_report(root, EACH.replace(", as:", ", on_item_error: retry, as:")),
    "iterate": write_iteration,
}


def comparable(rt: OSRuntime, run_id: str) -> list[tuple[str, Any]]:
    """Return the events of a run without what depends on time, and on the length of its sub-runs."""
    left_out = ("seq", "head", "active", "charge")
    return [
        (event.kind, {name: value for name, value in event.data.items() if name not in left_out})
        for event in rt.runs.events(run_id)
        if event.kind not in OWN
    ]


@pytest.mark.parametrize("name", SKILLS)
def test_a_submitted_run_has_the_events_and_the_result_of_a_run_in_place(name: str, tmp_path: Path):
    SKILLS[name](tmp_path)
    value = IN if name == "all" else items("a", "b", "c")

    def model() -> Workers:
        return Workers(fails=("b",) if name in ("collect", "retry") else ())

    async def scenario() -> None:
        async with open_project(tmp_path, model()) as here, open_project(tmp_path, model()) as there:
            placed = await here.run("report", value, run_id="k")
            there.submit("report", value, run_id="k")
            await work(there)
            await check(there)
            result = there.runs.result("k")
            assert (result.status, result.artifact, result.usage) == (placed.status, placed.artifact, placed.usage)
            assert {row.run_id for row in here.runs.all()} == {row.run_id for row in there.runs.all()}
            for row in there.runs.all():
                assert row.queue == "default"
                assert comparable(there, row.run_id) == comparable(here, row.run_id)

    asyncio.run(scenario())


# -- workers --------------------------------------------------------------------------------------------


def write_nested(root: Path) -> None:
    """A skill with two branches, each of which has two branches."""
    write_report(root, EACH).rename(root / "reyn/project/inner")
    text = (root / "reyn/project/inner/skill.md").read_text()
    (root / "reyn/project/inner/skill.md").write_text(text.replace("name: report", "name: inner"))
    lists = {"type": "object", "properties": {"items": {"type": "array"}}}
    folder = write_skill(
        root,
        "report",
        {"outer": ["last"], "last": ["end"]},
        inputs={"outer": "plans", "last": "all"},
        artifacts={"plans": lists},
        skill_keys="nodes:\n  outer: {each: {in: data.items, do: '@inner', max_parallel: 2}, as: all}\n",
    )
    (folder / "phases" / "outer.md").write_text("---\ntype: phase\nname: outer\ninput: plans\n---\n")


NESTED = {"type": "plans", "data": {"items": [{"items": [{"text": "a"}, {"text": "b"}]}, {"items": [{"text": "c"}]}]}}


class Together:
    """A model that answers only while a number of calls are in progress."""

    name, takes_time = "together", True

    def __init__(self, count: int) -> None:
        self._count, self._all_here = count, asyncio.Event()
        self._waiting = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.phase == "write":
            self._waiting += 1
            if self._waiting == self._count:
                self._all_here.set()
            await self._all_here.wait()
        return ModelAnswer(json.dumps(finish("done")))


def test_one_slot_executes_nested_branches(tmp_path: Path):
    write_nested(tmp_path)

    async def scenario() -> None:
        async with open_project(tmp_path, Workers()) as rt:
            rt.submit("report", NESTED, run_id="k")
            await work(rt, concurrency=1)
            assert rt.runs.result("k").ok
            assert sum("run_suspended" in kinds_of(rt, row.run_id) for row in rt.runs.all()) == 3
            await check(rt, [row.run_id for row in rt.runs.all()])

    asyncio.run(scenario())


async def share_branches(one: OSRuntime, two: OSRuntime, dispatchers: tuple[Any, Any] = (None, None)) -> None:
    """Let two workers with one slot each execute a run whose branches wait for each other."""
    one.submit("report", items("a", "b"), run_id="k")
    workers = [Serving(queues=("default",)) for _ in dispatchers]
    serving = [
        asyncio.ensure_future(rt.workers.serve(serving=worker, dispatcher=dispatcher))
        for rt, worker, dispatcher in zip((one, two), workers, dispatchers, strict=True)
    ]
    async with asyncio.timeout(120):
        assert [event async for event in one.runs.watch("k")][-1].kind == "skill_completed"
        for worker in workers:
            worker.stop.set()
        await asyncio.gather(*serving)
    for row in one.runs.all():
        assert row.status == "finished"
        one.runs.verify(row.run_id)


@pytest.mark.parametrize("journal", [MemoryJournal, SqliteJournal])
def test_two_workers_execute_the_branches_of_a_run_at_the_same_time(tmp_path: Path, journal: Any):
    write_report(tmp_path, EACH)
    shared = MemoryJournal() if journal is MemoryJournal else None

    def open_journal() -> Journal:
        return shared or SqliteJournal(tmp_path / ".reyn")

    async def scenario() -> None:
        model = Together(2)
        one, two = (open_project(tmp_path, model, open_journal()) for _ in range(2))
        async with one, two:
            await share_branches(one, two)

    asyncio.run(scenario())


def test_a_run_that_waits_for_branches_says_so_and_holds_no_slot(tmp_path: Path):
    write_report(tmp_path, EACH)
    (tmp_path / "reyn.yaml").write_text(
        "workers: {queue: {default: {concurrency: 1}}, skill: {report: {concurrency: 1}}}"
    )

    async def scenario() -> None:
        async with open_project(tmp_path, Workers()) as rt:
            journal = rt.services.journal
            rt.submit("report", items("a", "b", "c"), run_id="k")
            [wake] = journal.wakes()
            serving = Serving(queues=("default",))
            assert await drive(rt._executor, "k", serving) is None
            journal.finish_wakes([wake.seq])
            row = rt.runs.find("k")
            assert (row.status, row.reason) == ("running", "waits for 2 sub-runs")
            assert rt.runs.display_status(row) == "running (in sub-runs)"
            assert rt.runs.next_action(row) is None
            assert [one.run_id for one in rt.workers.queued()] == ["k.1.1", "k.1.2"]
            before = row.seq
            assert await drive(rt._executor, "k", serving) is None
            assert rt.runs.find("k").seq == before, "a wake too many does nothing"
            await work(rt)
            await check(rt)

    asyncio.run(scenario())


def test_cancelling_a_run_cancels_its_submitted_branches(tmp_path: Path):
    write_nested(tmp_path)

    async def scenario() -> None:
        model = Workers(stuck=("a", "b", "c"))
        async with open_project(tmp_path, model) as rt:
            rt.submit("report", NESTED, run_id="k")
            serving = asyncio.ensure_future(rt.workers.serve(concurrency=2))
            async with asyncio.timeout(60):
                while model.running < 2:  # noqa: ASYNC110 - nothing else reports it
                    await asyncio.sleep(0)
                rt.cancel("k", "enough")
                while any(row.status not in ENDED for row in rt.runs.all()):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await work(rt)
            assert {row.status for row in rt.runs.all()} == {"cancelled"}
            await check(rt)

    asyncio.run(scenario())


def test_a_branch_whose_parent_has_ended_is_not_executed(tmp_path: Path):
    write_report(tmp_path, EACH)

    async def scenario() -> None:
        async with open_project(tmp_path, Workers()) as rt:
            rt.submit("report", items("a", "b"), run_id="k")
            await drive(rt._executor, "k", Serving(queues=("default",)))
            record_outside(rt.services.journal, "k", 0, lambda _: [(kinds.RunCancelled("lost", 0), ())])
            await work(rt)
            assert {row.status for row in rt.runs.all()} == {"cancelled"}
            assert rt.runs.find("k.1.1").reason == "its parent has ended"

    asyncio.run(scenario())


# -- what stops -----------------------------------------------------------------------------------------


class Asking(Workers):
    """Branches in which a person is asked before they answer."""

    def __init__(self, *asks: str) -> None:
        super().__init__()
        self._asks = {*asks}

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        text = request.input["data"].get("text", "")
        if request.phase == "write" and text in self._asks:
            self._asks.discard(text)
            return ModelAnswer(json.dumps(act(question(f"what about {text}?"))))
        return await super().complete(request)


def write_asking(root: Path, count: int = 2) -> None:
    folder = write_report(root, EACH.replace("max_parallel: 2", f"max_parallel: {count}"))
    phase = folder / "phases" / "write.md"
    phase.write_text(phase.read_text().replace("allowed_ops: []", "allowed_ops: [ask_user]"))


def answer_all(rt: OSRuntime) -> int:
    """Answer the questions that runs ask; return how many there were."""
    asking = [row for row in rt.runs.all() if row.status == "waiting" and row.wait and row.wait.run is None]
    for row in asking:
        assert row.wait is not None
        rt.answer(row.run_id, row.wait.id, "this")
    return len(asking)


@pytest.mark.parametrize("asks", ["a", "c", "ab", "abc"])
@pytest.mark.parametrize("parallel", [2, 3])
def test_a_branch_that_asks_lets_the_others_end_and_a_worker_continues_it(tmp_path: Path, asks: str, parallel: int):
    write_asking(tmp_path, parallel)

    async def scenario() -> None:
        async with open_project(tmp_path, Asking(*asks)) as rt:
            rt.submit("report", items("a", "b", "c"), run_id="k")
            await work(rt)
            row = rt.runs.find("k")
            assert (row.status, row.wait is not None) == ("waiting", True)
            answered = 0
            while rt.runs.find("k").status == "waiting":
                asked = answer_all(rt)
                assert asked
                answered += asked
                await work(rt)
            assert answered == len(asks)
            assert rt.runs.result("k").ok
            await check(rt, [row.run_id for row in rt.runs.all()])
            for row in rt.runs.all():
                calls = [one["call"] for one in bodies(rt, "llm_responded", row.run_id)]
                assert len(calls) == len({*calls}), "no answer was requested twice"

    asyncio.run(scenario())


@pytest.mark.parametrize("asks", ["a", "bc", "abc"])
def test_nested_branches_that_ask_go_on_after_their_answers(tmp_path: Path, asks: str):
    write_nested(tmp_path)
    phase = tmp_path / "reyn/project/inner/phases/write.md"
    phase.write_text(phase.read_text().replace("allowed_ops: []", "allowed_ops: [ask_user]"))

    async def scenario() -> None:
        async with open_project(tmp_path, Asking(*asks)) as rt:
            rt.submit("report", NESTED, run_id="k")
            await work(rt)
            answered = 0
            while rt.runs.find("k").status == "waiting":
                asked = answer_all(rt)
                assert asked
                answered += asked
                await work(rt)
            assert answered == len(asks)
            assert rt.runs.result("k").ok
            await check(rt, [row.run_id for row in rt.runs.all()])

    asyncio.run(scenario())


class Unavailable(Workers):
    """A model that is not available for some branches until it is repaired."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.broken = {*texts}

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.phase == "write" and request.input["data"]["text"] in self.broken:
            raise ConnectionError("connection refused")
        return await super().complete(request)


@pytest.mark.parametrize("broken", ["a", "b", "abc"])
def test_a_branch_without_its_model_stops_the_run_and_a_retry_continues_it(tmp_path: Path, broken: str):
    write_report(tmp_path, EACH)

    async def scenario() -> None:
        model = Unavailable(*broken)
        async with open_project(tmp_path, model) as rt:
            rt.services.roster.retries = 0
            rt.submit("report", items("a", "b", "c"), run_id="k")
            await work(rt)
            result = rt.runs.result("k")
            assert result.status == "failed"
            assert "connection refused" in result.reason
            before = len(model.calls)
            model.broken.clear()
            await rt.resume("k", retry=True)
            await work(rt)
            assert rt.runs.result("k").ok
            assert before + len(model.calls[before:]) == 4
            await check(rt, [row.run_id for row in rt.runs.all()])

    asyncio.run(scenario())


async def suspend(rt: OSRuntime) -> None:
    """Submit a run, and execute it until it waits for its branches."""
    rt.submit("report", items("a", "b", "c"), run_id="k")
    [wake] = rt.services.journal.wakes()
    await drive(rt._executor, "k", Serving(queues=("default",)))
    rt.services.journal.finish_wakes([wake.seq])


def test_a_branch_that_a_user_cancels_has_failed_for_its_run(tmp_path: Path):
    write_report(tmp_path, EACH)

    async def scenario() -> None:
        async with open_project(tmp_path, Workers()) as rt:
            await suspend(rt)
            rt.cancel("k.1.1", "not this one")
            await work(rt)
            assert rt.runs.find("k").status == "failed"
            assert "not this one" in rt.runs.result("k").reason
            await check(rt)

    asyncio.run(scenario())


def test_a_branch_whose_drivers_die_is_set_aside_and_stops_its_run(tmp_path: Path):
    write_report(tmp_path, EACH)

    async def scenario() -> None:
        async with open_project(tmp_path, Workers()) as rt:
            await suspend(rt)
            for number in range(MAX_TAKEOVERS):
                row = rt.runs.find("k.1.1")
                died = chain_events(row.run_id, [kinds.RunResumed(f"d{number}")], row.seq, row.hash, row.updated)
                rt.services.journal.append(row.run_id, row.seq, died)
            await work(rt)
            assert (rt.runs.result("k").status, rt.runs.result("k").code) == ("failed", "RYN441")
            await rt.resume("k", retry=True)
            await work(rt)
            assert rt.runs.result("k").ok
            await check(rt, [row.run_id for row in rt.runs.all()])

    asyncio.run(scenario())


class Metered(Workers):
    """Reports the same usage for every answer."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = await super().complete(request)
        return ModelAnswer(answer.text, usage=Usage(100, 20))


def test_branches_share_the_tokens_of_their_run_and_go_on_when_it_gets_more(tmp_path: Path):
    write_report(tmp_path, EACH)
    (tmp_path / "reyn.yaml").write_text("limits: {tokens: 300}")

    async def scenario() -> None:
        model = Metered()
        async with open_project(tmp_path, model) as rt:
            rt.submit("report", items("a", "b", "c"), run_id="k")
            await work(rt, concurrency=2)
            assert rt.runs.find("k").status == "limited"
            limits = [
                json.loads(rt.services.journal.blob(one["settings"]))["limits"]["tokens"]
                for row in rt.runs.all()
                if row.parent
                for one in bodies(rt, "run_started", row.run_id)
            ]
            assert sorted(limits) == [30, 150, 150], "no more than the run has"
            assert len(model.calls) == 3
            await rt.resume("k", raise_limits={"tokens": 2_000})
            await work(rt, concurrency=2)
            assert rt.runs.result("k").ok
            assert sorted(model.calls) == ["a", "assemble", "b", "c"]
            await check(rt, [row.run_id for row in rt.runs.all()])

    asyncio.run(scenario())


def test_a_limit_that_is_raised_while_a_run_waits_for_its_branches_holds_and_the_run_goes_on(tmp_path: Path):
    write_report(tmp_path, EACH)
    (tmp_path / "reyn.yaml").write_text("limits: {tokens: 300}")

    async def scenario() -> None:
        journal = MemoryJournal()
        async with open_project(tmp_path, Metered(), journal) as rt, open_project(tmp_path, Metered(), journal) as desk:
            rt.submit("report", items("a", "b", "c"), run_id="k")
            [wake] = journal.wakes()
            assert await drive(rt._executor, "k", Serving(queues=("default",))) is None
            journal.finish_wakes([wake.seq])
            waited = await desk.resume("k", raise_limits={"tokens": 2_000})
            assert (waited.status, waited.reason) == ("running", "waits for 2 sub-runs")
            assert [one["limit"] for one in bodies(desk, "limit_raised")] == ["tokens"]
            await work(rt)
            assert rt.runs.result("k").ok
            await check(rt, [row.run_id for row in rt.runs.all()])

    asyncio.run(scenario())


def test_branches_never_use_more_than_the_budget_of_their_run(tmp_path: Path):
    write_report(tmp_path, EACH)
    (tmp_path / "reyn.yaml").write_text("budgets: {run: {tokens: 4500}}")

    async def scenario() -> None:
        journal = MemoryJournal()
        async with open_project(tmp_path, Metered(), journal) as rt, open_project(tmp_path, Metered(), journal) as two:
            rt.submit("report", items("a", "b", "c"), run_id="k")
            await work(rt, two)
            result = rt.runs.result("k")
            assert result.status == "limited"
            assert "run_tokens" in result.reason
            assert 0 < rt.runs.find("k").charge.tokens < 4500
            await rt.resume("k", raise_limits={"run_tokens": 9_000})
            await work(rt, two)
            assert rt.runs.result("k").ok
            assert rt.runs.find("k").charge.tokens == rt.runs.result("k").usage.total == 480
            await check(rt, [row.run_id for row in rt.runs.all()])

    asyncio.run(scenario())


# -- kills ----------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """A journal of a process that dies before or after one of its writes; then nothing reaches the journal any more."""

    def __init__(self, journal: Journal, dies_at: int | None) -> None:
        self._journal, self._left, self.writes = journal, dies_at, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._journal, name)
        if name not in ("append", "append_many", "post", "finish_wakes", "hold_wakes", "take_wakes"):
            return found

        def write(*args: Any, **options: Any) -> Any:
            if self._left is not None and self.writes >= self._left:
                raise Killed
            self.writes += 1
            result = found(*args, **options)
            if self._left is not None and self.writes >= self._left:
                raise Killed
            return result

        return write


async def serve_until_killed(root: Path, model: Any, mortal: Mortal, concurrency: int) -> None:
    rt = open_project(root, model, mortal)  # type: ignore[arg-type]  # it is one but for its type
    with_suppressed = asyncio.gather(rt.workers.serve(once=True, concurrency=concurrency), return_exceptions=True)
    async with asyncio.timeout(60):
        await with_suppressed


KILLED = {
    "each": (lambda root: write_report(root, EACH), items("a", "b", "c"), 4),
    "any": (lambda root: write_quotes(root, "need: any"), IN, 4),
    "nested": (write_nested, NESTED, 6),
    "iterate": (write_iteration, items("a", "b", "c"), 4),
}


@pytest.mark.sampled
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("name", KILLED)
def test_a_kill_at_any_write_of_a_worker_loses_nothing_and_repeats_nothing_that_was_committed(
    name: str, concurrency: int, tmp_path: Path
):
    write, value, _ = KILLED[name]
    write(tmp_path)

    async def scenario(dies_at: int | None) -> int:
        journal, model = MemoryJournal(), Workers()
        mortal = Mortal(journal, dies_at)
        async with open_project(tmp_path, Workers(), journal) as rt:
            rt.submit("report", value, run_id="k")
            await serve_until_killed(tmp_path, model, mortal, concurrency)
            answered, lost = len(list(answers(rt))), len(model.calls)
            after = Workers()
            async with open_project(tmp_path, after, journal) as other:
                await work(other, concurrency=concurrency)
                assert other.runs.result("k").ok
                await check(other, [row.run_id for row in other.runs.all()])
            recorded = Counter(answers(rt))
            assert max(recorded.values()) == 1
            assert len(after.calls) <= sum(recorded.values()) - answered, "no recorded answer is requested again"
            assert lost - answered <= concurrency
        return mortal.writes

    async def all_points() -> None:
        writes = await scenario(None)
        assert writes > 10
        for point in some(range(1 + len(name) % 5, writes + 1), 5):
            await scenario(point)

    asyncio.run(all_points())


def answers(rt: OSRuntime) -> Iterable[tuple[str, str]]:
    """The answers that are recorded, by run and call."""
    return ((row.run_id, one["call"]) for row in rt.runs.all() for one in bodies(rt, "llm_responded", row.run_id))


# -- operations on such runs ----------------------------------------------------------------------------


@pytest.mark.sampled
def test_a_run_with_submitted_branches_can_be_forked_at_every_event(tmp_path: Path):
    write_report(tmp_path, EACH)

    async def scenario() -> None:
        async with open_project(tmp_path, Workers()) as rt:
            rt.submit("report", items("a", "b", "c"), run_id="k")
            await work(rt)
            for point in some(range(1, rt.runs.find("k").seq), 5):
                result = await rt.fork("k", at=point, run_id=f"f{point}")
                assert result.ok
                assert rt.runs.find(f"f{point}").queue == ""
                rt.runs.verify(f"f{point}")
            assert rt.services.journal.wakes() == []

    asyncio.run(scenario())


def test_a_run_in_place_that_is_handed_over_goes_on_with_its_branches(tmp_path: Path):
    write_report(tmp_path, EACH)

    async def scenario() -> None:
        journal, model = MemoryJournal(), Workers(stuck=("b",))
        async with open_project(tmp_path, model, journal) as rt:
            running = asyncio.ensure_future(rt.run("report", items("a", "b", "c"), run_id="k"))
            async with asyncio.timeout(60):
                while len(model.calls) < 3:  # noqa: ASYNC110 - nothing else reports it
                    await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            model.stuck = ()
            rt.workers.hand_over("k")
            await work(rt)
            assert rt.runs.result("k").ok
            await check(rt, [row.run_id for row in rt.runs.all()])

    asyncio.run(scenario())
