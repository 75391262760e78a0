"""`iterate` with `concurrency`: sub-runs execute together, results are in order, and a stop loses nothing."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import RunBusy
from reyn.models import ModelAnswer, ModelRequest
from reyn.models.protocol import Usage
from reyn.runtime import OSRuntime, SyncRuntime
from reyn.testing import ScriptedModel
from tests.support import act, file, finish, question, write_skill

ANYTHING = {"type": "object", "additionalProperties": True}


class Meeting:
    """A model that answers the sub-runs in reverse order, once as many are waiting as execute together."""

    name = "meeting"

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.waiting: list[tuple[str, asyncio.Event]] = []
        self.most = 0
        self.running = 0
        self.calls: list[str] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        text = request.input["data"].get("text", "")
        self.calls.append(text)
        if request.phase == "x":
            self.running += 1
            self.most = max(self.most, self.running)
            mine = asyncio.Event()
            self.waiting.append((text, mine))
            if len(self.waiting) == self.expected:
                await self.release()
            await mine.wait()
            self.running -= 1
            if text == "bad":
                return ModelAnswer("no JSON")
        return ModelAnswer(json.dumps(finish(f"did {text}")))

    async def release(self) -> None:
        for _, event in reversed(self.waiting):
            event.set()
        self.waiting.clear()


def project(root: Path, concurrency: int, on_error: str = "fail") -> None:
    write_skill(root, "item", {"x": ["end"]})
    step = (
        f"preprocessor:\n  - iterate: {{over: data.items, concurrency: {concurrency}, into: data.all, "
        f"on_error: {on_error}, apply: {{run_skill: {{skill: item, input: {{text: _iter.item}}}}}}}}\n"
    )
    write_skill(root, "many", {"a": ["end"]}, phase_keys={"a": step}, artifacts={"note": ANYTHING})


def run(root: Path, model: Any, items: list[str], **settings: Any) -> tuple[Any, Any]:
    async def execute() -> tuple[Any, Any]:
        async with OSRuntime.open(root, model=model, **settings) as runtime:
            result = await runtime.run("many", {"text": "in", "items": items}, run_id="k")
            replay = await runtime.runs.replay("k")
            assert replay.events == len(list(runtime.runs.events("k")))
            frame = [
                event for event in runtime.runs.events("k") if event.kind == "step_completed" and event.data.get("into")
            ]
            bound = json.loads(runtime.services.journal.blob(frame[0].data["result"])) if frame else None
            return result, bound

    return asyncio.run(execute())


def test_as_many_sub_runs_execute_as_the_step_says_and_results_are_in_order(tmp_path: Path):
    project(tmp_path, 3)
    model = Meeting(3)
    result, bound = run(tmp_path, model, [f"item {number}" for number in range(9)])
    assert result.ok
    assert model.most == 3
    assert [one["data"]["text"] for one in bound] == [f"did item {number}" for number in range(9)]


def test_without_concurrency_sub_runs_execute_one_after_the_other(tmp_path: Path):
    project(tmp_path, 1)
    model = Meeting(1)
    result, bound = run(tmp_path, model, ["a", "b"])
    assert result.ok
    assert model.most == 1
    assert len(bound) == 2


def test_a_failing_item_is_left_out_or_ends_the_visit(tmp_path: Path):
    project(tmp_path, 2, on_error="skip")
    result, bound = run(tmp_path, Meeting(2), ["a", "bad", "b", "c"], max_phase_retries=0)
    assert result.ok
    assert [one["data"]["text"] for one in bound] == ["did a", "did b", "did c"]


def test_an_iteration_that_fails_starts_no_further_sub_runs(tmp_path: Path):
    project(tmp_path, 2)
    model = Meeting(2)
    result, _ = run(tmp_path, model, ["bad", "b", *(f"late {number}" for number in range(40))], max_phase_retries=0)
    assert result.status == "failed"
    assert "item 0" in result.reason
    assert "late 39" not in model.calls


@pytest.mark.parametrize("value", ["0", "101", "two"])
def test_a_wrong_number_is_an_error_of_the_skill(tmp_path: Path, value: str):
    from reyn.errors import SkillInvalid

    project(tmp_path, value)
    with pytest.raises(SkillInvalid, match="concurrency"):
        run(tmp_path, Meeting(1), [])


def test_concurrency_is_for_sub_runs_only(tmp_path: Path):
    from reyn.errors import SkillInvalid

    step = "preprocessor:\n  - iterate: {over: data.items, concurrency: 2, apply: {ask_user: {question: x}}}\n"
    write_skill(tmp_path, "many", {"a": ["end"]}, phase_keys={"a": step}, artifacts={"note": ANYTHING})
    with pytest.raises(SkillInvalid, match="`concurrency` needs"):
        run(tmp_path, Meeting(1), [])


# -- sub-runs that stop ---------------------------------------------------------------------------------------


class Counting:
    """A model that counts requests and answers; sub-runs named in `asks` ask a question first."""

    name = "counting"

    def __init__(self, *asks: str, tokens: int = 0, turns: int = 1) -> None:
        self.asks, self.tokens, self.turns = asks, tokens, turns
        self.requests: list[str] = []
        self.answers: list[str] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        text = request.input["data"].get("text", "")
        self.requests.append(text)
        for _ in range(20):  # the others get their turn
            await asyncio.sleep(0)
        self.answers.append(text)
        usage = Usage(self.tokens, 0) if self.tokens else None
        if text in self.asks and self.requests.count(text) == 1:
            return ModelAnswer(json.dumps(act(question("Which one?"))), usage)
        if request.phase == "x" and self.requests.count(text) < self.turns:
            return ModelAnswer(json.dumps(act(file("read", "none"))), usage)
        return ModelAnswer(json.dumps(finish(f"did {text}")), usage)


ITEMS = [f"item {number}" for number in range(12)]


def test_a_question_of_one_sub_run_costs_no_answer_of_the_others(tmp_path: Path):
    project(tmp_path, 4)
    write_skill(tmp_path, "item", {"x": ["end"]}, ops={"x": "ask_user"})
    model = Counting("item 2", "item 5")
    result, _ = run(tmp_path, model, ITEMS)
    assert result.status == "waiting"
    assert model.requests == model.answers, "no call was interrupted"

    async def finish_all(result: Any) -> Any:
        async with OSRuntime.open(tmp_path, model=model) as runtime:
            while result.status == "waiting":
                runtime.answer("k", result.question.id, "this one")
                result = await runtime.resume("k")
            assert (await runtime.runs.replay("k")).events == len(list(runtime.runs.events("k")))
            return result

    assert asyncio.run(finish_all(result)).ok
    assert sorted(model.requests) == sorted([*ITEMS, "item 2", "item 5", "in"])


@pytest.mark.slow
def test_a_question_that_was_answered_meanwhile_does_not_stop_the_run(tmp_path: Path):
    project(tmp_path, 4)
    write_skill(tmp_path, "item", {"x": ["end"]}, ops={"x": "ask_user"})

    async def execute() -> Any:
        async with OSRuntime.open(tmp_path, model=model) as runtime:
            model.runtime = runtime
            return await runtime.run("many", {"text": "in", "items": ITEMS}, run_id="k")

    class Answering(Counting):
        runtime: OSRuntime

        def has_stopped(self, run_id: str) -> bool:
            row = self.runtime.services.journal.find(run_id)
            if row is None or row.status != "waiting":
                return False
            with suppress(RunBusy), self.runtime.services.journal.claim(run_id):
                return True
            return False

        async def complete(self, request: ModelRequest) -> ModelAnswer:
            if request.input["data"]["text"] == "item 0":
                while not self.has_stopped("k.1.pre.1.3"):  # noqa: ASYNC110 - it is another run
                    await asyncio.sleep(0)
                self.runtime.answer("k.1.pre.1.3", "1.pre.1.3/1.1.1", "this one")
            return await super().complete(request)

    model = Answering("item 2")
    assert asyncio.run(execute()).ok


@pytest.mark.parametrize("turns", [1, 3])
def test_sub_runs_that_execute_together_share_the_tokens_that_are_left(tmp_path: Path, turns: int):
    project(tmp_path, 5)
    write_skill(tmp_path, "item", {"x": ["end"]}, ops={"x": "file"})
    model = Counting(tokens=100, turns=turns)
    result, _ = run(tmp_path, model, ITEMS, limits={"tokens": 600})
    assert (result.status, model.requests) == ("limited", model.answers)
    # The limit, and the calls that were in progress when it was reached.
    assert len(model.answers) * 100 <= 600 + 5 * 100

    async def resume() -> Any:
        async with OSRuntime.open(tmp_path, model=model) as runtime:
            return await runtime.resume("k", raise_limits={"tokens": 100_000})

    assert asyncio.run(resume()).ok
    assert len(model.answers) == len(ITEMS) * turns + 1


def test_a_sub_run_may_use_all_the_tokens_that_are_left(tmp_path: Path):
    """Its share is smaller, but the others do not need theirs."""
    project(tmp_path, 4)
    write_skill(tmp_path, "item", {"x": ["end"]}, ops={"x": "file"})
    result, _ = run(tmp_path, Counting(tokens=100, turns=3), ["a", "b"], limits={"tokens": 800})
    assert result.ok


# -- scripted and recorded models -----------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 2, 5, 50])
def test_a_script_gives_its_answers_in_the_order_of_the_items(tmp_path: Path, concurrency: int):
    """The same script serves every concurrency: an item may take several answers."""
    project(tmp_path, concurrency)
    write_skill(tmp_path, "item", {"x": ["end"]}, ops={"x": "file"})
    items = [f"item {number}" for number in range(7)]
    answers = [
        answer
        for number in range(len(items))
        for answer in [*([act(file("read", "none"))] * (number % 3)), finish(f"answer {number}")]
    ]
    result, bound = run(tmp_path, ScriptedModel([*answers, finish("all")]), items)
    assert (result.status, result.artifact["data"]["text"]) == ("finished", "all")
    assert [one["data"]["text"] for one in bound] == [f"answer {number}" for number in range(len(items))]


class Reversed(Meeting):
    """Numbers its answers in the order in which the sub-runs get them, which is not that of the items."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        await super().complete(request)
        self.calls.append("answered")
        return ModelAnswer(json.dumps(finish(f"answer {self.calls.count('answered')}")))


def test_a_recorded_run_answers_equal_items_in_their_order(tmp_path: Path):
    project(tmp_path, 3)
    items = ["same"] * 3
    result, bound = run(tmp_path, Reversed(3), items)
    assert result.ok
    assert [one["data"]["text"] for one in bound] == ["answer 3", "answer 2", "answer 1"]

    with SyncRuntime.open(tmp_path, model="recorded:k") as runtime:
        again = runtime.run("many", {"text": "in", "items": items}, run_id="again")
        assert again.ok
        finals = [runtime.runs.result(f"again.1.pre.1.{number}").artifact for number in (1, 2, 3)]
    assert finals == bound


# -- operations on a run whose sub-runs executed together -----------------------------------------------------


class Writing:
    """Each sub-run writes a file of its own and appends to none of the others; the answers arrive in reverse order."""

    name = "writing"

    def __init__(self, last: str = "all") -> None:
        self.last = last
        self.waiting: list[asyncio.Event] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        text = request.input["data"].get("text", "")
        if request.phase != "x":
            return ModelAnswer(json.dumps(finish(self.last)))
        if request.call.endswith(".1"):
            event = asyncio.Event()
            self.waiting.append(event)
            if len(self.waiting) == 4:
                for one in reversed(self.waiting):
                    one.set()
            await event.wait()
            return ModelAnswer(json.dumps(act(file("write", f"output/{text}.txt", content=f"{text}\n"))))
        return ModelAnswer(json.dumps(finish(f"did {text}")))


class InOrder(Writing):
    """Does not wait for the other sub-runs."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.waiting = [asyncio.Event()] * 3
        return await super().complete(request)


NAMES = ["one", "two", "three", "four"]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A project whose run `k` wrote four files in sub-runs that executed together, one of them over an older file."""
    project(tmp_path, 4)
    write_skill(tmp_path, "item", {"x": ["end"]}, ops={"x": "file"})
    (tmp_path / "output").mkdir()
    (tmp_path / "output/one.txt").write_text("before\n")
    result, bound = run(tmp_path, Writing(), NAMES)
    assert result.ok
    assert [one["data"]["text"] for one in bound] == [f"did {name}" for name in NAMES]
    return tmp_path


def texts(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((root / "output").glob("*.txt"))}


def test_an_undo_reverts_the_files_of_all_sub_runs(written: Path):
    assert len(texts(written)) == 4
    with SyncRuntime.open(written) as runtime:
        report = runtime.runs.undo("k")
        assert sorted(report.restored) == sorted(f"output/{name}.txt" for name in NAMES)
        assert (report.left, runtime.runs.undo("k").restored) == ((), ())
    assert texts(written) == {"one.txt": "before\n"}


def test_an_archive_has_all_sub_runs(written: Path, tmp_path_factory: pytest.TempPathFactory):
    other = tmp_path_factory.mktemp("other")
    with SyncRuntime.open(written) as runtime:
        archive = b"".join(runtime.runs.export("k"))
        runs = [row.run_id for row in runtime.runs.all()]
    with SyncRuntime.open(other) as runtime:
        runtime.runs.import_(io.BytesIO(archive))
        assert sorted(row.run_id for row in runtime.runs.all()) == sorted(runs)
        for run_id in runs:
            runtime.runs.verify(run_id)
            assert runtime.runs.replay(run_id).status == "finished"


def test_runs_are_compared_whatever_the_order_in_which_their_sub_runs_ended(written: Path):
    async def execute(model: Any, run_id: str) -> None:
        async with OSRuntime.open(written, model=model) as runtime:
            assert (await runtime.run("many", {"text": "in", "items": NAMES}, run_id=run_id)).ok

    asyncio.run(execute(InOrder(), "same"))
    asyncio.run(execute(InOrder("other"), "other"))
    with SyncRuntime.open(written) as runtime:
        assert runtime.runs.diff("k", "same").is_same
        found = runtime.runs.diff("k", "other")
        assert not found.is_same


def test_a_fork_within_an_iteration_continues_its_sub_runs(written: Path):
    with SyncRuntime.open(written, model=InOrder()) as runtime:
        events = list(runtime.runs.events("k"))
        [seq, *_] = [event.seq for event in events if event.kind == "child_ended"]
        for at in (seq - 1, seq, len(events) - 2):
            fork = runtime.fork("k", at=at)
            assert fork.ok, fork
            assert fork.artifact == runtime.runs.result("k").artifact
            runtime.runs.verify(fork.run_id)
            assert runtime.runs.replay(fork.run_id).status == "finished"
