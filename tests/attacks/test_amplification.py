"""Amplification. The attacker is a model: every turn, report and sub-run of a conversation starts further runs.

One message of a person starts a bounded number of runs; then the run asks. The oracle is the number of requests that
the model received.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, llm_chat, llm_function, tool
from reyn.config import Config, RunSettings
from reyn.errors import AllowanceExceeded, ChatStopped
from reyn.journal import RaiseLimit
from reyn.journal.kinds import Usage
from reyn.kernel.world.allowance import MessageCounts
from reyn.models import ModelAnswer, ModelRequest
from tests.chat.support import reply
from tests.functions.support import Answers, value
from tests.functions.test_chat import Chatty, calls
from tests.support import act, finish, go, write_skill


class Greedy:
    """Starts as many runs as it may, whenever it is called; it stops by itself after a number of calls."""

    name = "greedy"

    def __init__(self, *ops: dict[str, Any], below: tuple[dict[str, Any], ...] = (), stop: int = 2_000) -> None:
        self.calls = 0
        self._ops, self._below, self._stop = ops, below, stop

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.calls += 1
        await asyncio.sleep(0)
        is_first = request.call.endswith(".1") and self.calls < self._stop
        if request.phase == "converse":
            return ModelAnswer(json.dumps(act(*self._ops) if is_first else reply("on it")))
        return ModelAnswer(json.dumps(act(*self._below) if is_first and self._below else finish("done")))


def started(kind: str, skill: str = "job") -> dict[str, Any]:
    return {"kind": kind, "skill": skill, "input": {"text": "x"}}


def asked(agent: str) -> dict[str, Any]:
    return {"kind": "ask_agent", "agent": agent, "message": "more"}


def project(root: Path) -> None:
    write_skill(
        root, "job", {"work": ["end"]}, inputs={"work": "user_message"}, ops={"work": "run_skill"},
        skill_keys="description: Work\n",
    )  # fmt: skip
    agents = root / "reyn" / "agents"
    agents.mkdir(parents=True)
    for name, other in (("one", "two"), ("two", "one")):
        (agents / f"{name}.md").write_text(f"---\ntype: agent\nname: {name}\nagents: [{other}]\n---\nYou are {name}.\n")


async def stopped(chat: Any, model: Greedy) -> None:
    """Wait until a question is open and the model is not called any more."""
    async with asyncio.timeout(60):
        quiet, calls = 0, -1
        while quiet < 40 or not len(chat.questions):
            quiet, calls = (quiet + 1, calls) if calls == model.calls else (0, model.calls)
            await asyncio.sleep(0.005)


def talk(
    root: Path, model: Greedy, then: Callable[..., Any] | None = None, agent: str = "", **limits: Any
) -> list[str]:
    project(root)

    async def conversation() -> list[str]:
        async with OSRuntime.open(root, model=model, limits=limits) as rt, rt.chat(agent or "default") as chat:
            chat.post("begin")
            await stopped(chat, model)
            questions = [one.question.message for one in chat.questions]
            if then is not None:
                await then(rt, chat)
            return questions

    return asyncio.run(conversation())


CASES = {
    "reports": Greedy(started("start_skill"), started("start_skill")),
    "sub-runs of background runs": Greedy(started("start_skill"), below=(started("run_skill"), started("run_skill"))),
    "sub-runs": Greedy(started("run_skill"), below=(started("run_skill"), started("run_skill"))),
    "agents": Greedy(asked("two"), asked("two"), started("start_skill")),
}


@pytest.mark.parametrize("case", CASES)
def test_one_message_starts_a_bounded_number_of_runs_and_then_asks(tmp_path: Path, case: str):
    model = CASES[case]
    agent = "one" if case == "agents" else ""
    questions = talk(tmp_path, model, agent=agent, message_runs=8, message_depth=None)
    assert "(limits.message_runs: ask after 8)" in questions[0]
    assert "runs were started" in questions[0]
    assert model.calls < 100


def test_the_default_bounds_the_reported_attack(tmp_path: Path):
    model = Greedy(started("start_skill"), started("start_skill"), started("start_skill"))
    talk(tmp_path, model)
    assert model.calls < 400


def test_reports_that_lead_to_one_another_are_bounded_by_depth(tmp_path: Path):
    model = Greedy(started("start_skill"))
    [question] = talk(tmp_path, model, message_depth=3)
    assert "(limits.message_depth: ask after 3)" in question
    assert model.calls == 2 * 3 + 3 + 1  # three turns with a start and a reply, three runs, and the turn that asks


def test_the_reply_of_a_person_begins_a_new_count_and_a_rejection_starts_nothing(tmp_path: Path):
    model = Greedy(started("start_skill"))
    calls: list[int] = []

    async def go_on(rt: Any, chat: Any) -> None:
        for decision in ("approve", "reject"):
            calls.append(model.calls)
            [question] = chat.questions
            chat.answer(question, decision)
            if decision == "approve":
                await stopped(chat, model)
        async with asyncio.timeout(30):
            while chat.is_busy or chat.runs.in_progress:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.005)
        calls.append(model.calls)
        await rt.runs.replay(chat.run_id)
        rt.runs.verify(chat.run_id)

    talk(tmp_path, model, go_on, message_runs=3, message_depth=None)
    assert calls[1] - calls[0] < 20
    assert calls[2] - calls[1] <= 1  # the reply of the turn that may not start another run


def test_the_question_is_still_open_in_the_next_process(tmp_path: Path):
    model = Greedy(started("start_skill"))
    talk(tmp_path, model, message_runs=3, message_depth=None)
    before = model.calls

    async def conversation() -> None:
        async with OSRuntime.open(tmp_path, model=model, limits={"message_runs": 3, "message_depth": None}) as rt:
            [row] = [row for row in rt.runs.all() if "." not in row.run_id]
            async with rt.chat(run_id=row.run_id) as chat:
                await stopped(chat, model)
                assert "limits.message_runs" in next(iter(chat.questions)).question.message

    asyncio.run(conversation())
    assert model.calls == before


class Counting:
    """Starts one skill, or reads one file again and again. Each of its answers uses 1,000 tokens."""

    name = "counting"

    def __init__(self, op: dict[str, Any], ops: int = 1) -> None:
        self.calls = 0
        self._op, self._ops = op, ops

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.calls += 1
        await asyncio.sleep(0)
        if request.phase == "converse":
            answer = act(self._op) if self.calls <= self._ops else reply("done")
        elif request.phase in "ab" and self.calls < 60:
            answer = go("b" if request.phase == "a" else "a", f"{self.calls}", "user_message")
        else:
            answer = finish("done")
        return ModelAnswer(json.dumps(answer), usage=Usage(800, 200))


def write_skills(root: Path) -> None:
    """Write skills whose steps start runs, and one that goes in circles."""
    (root / "a.txt").write_text("x")
    bag = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}}
    described = "description: Work\n"
    write_skill(root, "leaf", {"work": ["end"]}, skill_keys=described)
    one = "run_skill: {skill: leaf, input: {text: _iter.item}}"
    for name, keys in (("fan", ""), ("wide_fan", "concurrency: 4, ")):
        step = f"preprocessor:\n  - iterate: {{over: data.items, {keys}into: data.all, apply: {{{one}}}}}\n"
        write_skill(
            root, name, {"work": ["end"]}, inputs={"work": "bag"}, artifacts={"bag": bag},
            phase_keys={"work": step}, skill_keys=described,
        )  # fmt: skip
    alone = "".join(f"  - run_skill: {{skill: leaf, input: {{text: data.text}}, into: data.r{n}}}\n" for n in range(30))
    write_skill(root, "row", {"work": ["end"]}, phase_keys={"work": f"preprocessor:\n{alone}"}, skill_keys=described)
    circle: dict[str, list[str]] = {"a": ["b"], "b": ["a", "end"]}
    inputs = dict.fromkeys(circle, "user_message")
    write_skill(root, "circle", circle, inputs=inputs, skill_keys=described, final_output="user_message")


def limited(root: Path, model: Counting, *more: str, **limits: Any) -> tuple[list[int], int]:
    """Send messages, each after the conversation has stopped with a limit.

    Returns:
        The calls of the model after each message, and the number of runs.
    """
    write_skills(root)

    async def conversation() -> tuple[list[int], int]:
        calls = []
        async with OSRuntime.open(root, model=model, limits=limits) as rt:
            async with rt.chat() as chat:
                for text in ("begin", *more):
                    with pytest.raises(ChatStopped, match="since the last message or reply of a person"):
                        await chat.say(text)
                    calls.append(model.calls)
            rows = rt.runs.all()
            for row in rows:
                rt.runs.verify(row.run_id)
                await rt.runs.replay(row.run_id)
            return calls, len(rows)

    return asyncio.run(conversation())


@pytest.mark.parametrize("skill", ["fan", "wide_fan", "row"])
def test_steps_start_a_bounded_number_of_runs_and_then_stop(tmp_path: Path, skill: str):
    value = {"text": "x"} if skill == "row" else {"items": [f"{n}" for n in range(30)]}
    model = Counting({"kind": "run_skill", "skill": skill, "input": value})
    calls, runs = limited(tmp_path, model, "go on", message_runs=8)
    assert calls[0] <= 1 + 8
    assert calls[1] <= calls[0] + 9  # a new message begins a new count
    assert runs <= 1 + 8 + 8


def test_levels_of_sub_runs_share_one_count(tmp_path: Path):
    model = Greedy(*[started("run_skill")] * 5, below=(started("run_skill"),) * 5)
    talk(tmp_path, model, message_runs=8)
    assert model.calls <= 1 + 8 + 8  # a run makes a call before it starts others


@pytest.mark.parametrize(
    "model",
    [Counting(started("run_skill", "circle")), Counting({"kind": "file", "op": "read", "path": "a.txt"}, 60)],
    ids=["a skill in circles", "ops that only read"],
)
def test_one_message_uses_a_bounded_number_of_tokens_and_then_stops(tmp_path: Path, model: Counting):
    [calls], _ = limited(tmp_path, model, message_tokens=3_000)
    assert calls == 3


def test_a_person_raises_the_bound_and_the_run_goes_on(tmp_path: Path):
    write_skills(tmp_path)
    model = Counting(started("run_skill", "circle"))

    async def conversation() -> int:
        async with OSRuntime.open(tmp_path, model=model, limits={"message_tokens": 3_000}) as rt:
            async with rt.chat() as chat:
                with pytest.raises(ChatStopped):
                    await chat.say("begin")
            await rt.resume(chat.run_id, raise_limits={"message_tokens": 6_000})
            await rt.runs.replay(chat.run_id)
        return model.calls

    assert asyncio.run(conversation()) == 6


class Circling:
    """Starts skills that go in circles at the same time. Each answer uses 1,000 tokens, and takes several turns."""

    name = "circling"

    def __init__(self, op: dict[str, Any], times: int) -> None:
        self.calls = 0
        self._ops = (op,) * times

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.calls += 1
        for _ in range(20):
            await asyncio.sleep(0)
        if request.phase == "converse":
            answer = act(*self._ops) if self.calls == 1 else reply("on it")
        elif self.calls < 80:
            answer = go("b" if request.phase == "a" else "a", f"{self.calls}", "user_message")
        else:
            answer = finish("done", "user_message")
        return ModelAnswer(json.dumps(answer), usage=Usage(800, 200))


@pytest.mark.parametrize("times", [2, 8])
@pytest.mark.parametrize("tokens", [3_000, 9_500])
def test_runs_that_execute_at_the_same_time_share_the_tokens_of_a_message(tmp_path: Path, times: int, tokens: int):
    write_skills(tmp_path)
    model = Circling(started("start_skill", "circle"), times)

    async def conversation() -> None:
        async with OSRuntime.open(tmp_path, model=model, limits={"message_tokens": tokens}) as rt, rt.chat() as chat:
            chat.post("begin")
            async with asyncio.timeout(60):
                quiet, calls = 0, -1
                while quiet < 40 or model.calls < 3:
                    quiet, calls = (quiet + 1, calls) if calls == model.calls else (0, model.calls)
                    await asyncio.sleep(0.005)

    asyncio.run(conversation())
    assert model.calls <= -(-tokens // 1_000)


@llm_function(llm_interface=Answers(value("short")))
async def shorten(text: str) -> str:
    """Shorten the text."""


@tool(effect="idempotent")
async def one_by_one(text: str) -> str:
    """Shorten many texts, one after the other."""
    return "".join([await shorten(f"{text}{number}") for number in range(40)])


@tool(effect="idempotent")
async def together(text: str) -> str:
    """Shorten many texts at the same time."""
    return "".join(await asyncio.gather(*(shorten(f"{text}{number}") for number in range(40))))


@tool(effect="idempotent")
async def stubborn(text: str) -> str:
    """Go on after every error."""
    for number in range(40):
        with suppress(AllowanceExceeded):
            await shorten(f"{text}{number}")
    return "done"


@pytest.mark.parametrize("armed", [one_by_one, together, stubborn], ids=lambda armed: armed.name)
@pytest.mark.parametrize("times", [1, 3])
def test_functions_that_tools_call_count_as_runs(tmp_path: Path, armed: Any, times: int):
    async def conversation() -> tuple[int, Any]:
        model = Chatty(*[calls((armed.name, f'{{"text": "{number}"}}')) for number in range(times)], "done")
        async with OSRuntime.open(tmp_path, model=model, trust=True, limits={"message_runs": 6}) as rt:

            @llm_chat(toolkit=[armed], runtime=rt)
            async def agent(message: str, history: Any = None) -> None:
                """You help."""

            said = await agent("go")
            assert said.text == "done"
            return len([row for row in rt.runs.all() if row.parent]), model

    runs, model = asyncio.run(conversation())
    assert runs == 6
    if armed is not stubborn:
        assert "`message_runs` is 6" in model.seen()[-1][1]


# -- runs that are no conversations -----------------------------------------------------------------------------------


def write_spreading(root: Path) -> None:
    """Skills whose runs lead to others in each way: steps, iterations, branches, branches of branches, ops."""
    write_skills(root)
    write_skill(root, "job", {"work": ["end"]}, ops={"work": "run_skill"}, inputs={"work": "user_message"})
    bag = {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}
    bags = {"type": "object", "properties": {"items": {"type": "array", "items": bag}}, "required": ["items"]}
    for name, inner, given in (("each", "leaf", "many"), ("nested", "each", "sacks")):
        write_skill(
            root, name, {"spread": ["close"], "close": ["end"]}, inputs={"spread": given, "close": f"{name}_all"},
            artifacts={"many": bag, "sacks": bags},
            skill_keys=f"nodes: {{spread: {{each: {{in: data.items, do: '@{inner}'}}, as: {name}_all}}}}\n",
        )  # fmt: skip
        text = f"---\ntype: phase\nname: spread\ninput: {given}\n---\n"
        (root / "reyn/project" / name / "phases/spread.md").write_text(text)


NOTES = [{"text": f"{number}"} for number in range(30)]
SPREADING: dict[str, Any] = {
    "row": {"text": "x"},
    "fan": {"items": [one["text"] for one in NOTES]},
    "wide_fan": {"items": [one["text"] for one in NOTES]},
    "each": {"items": NOTES},
    "nested": {"items": [{"items": NOTES[:6]} for _ in range(6)]},
    "job": {"text": "x"},
}


@pytest.mark.parametrize("bound", [1, 4, 9])
@pytest.mark.parametrize("skill", SPREADING)
def test_a_run_starts_a_bounded_number_of_runs_and_goes_on_when_the_bound_is_raised(
    tmp_path: Path, skill: str, bound: int
):
    write_spreading(tmp_path)
    model = Greedy(below=(started("run_skill"),) * 3)
    raised = 2 * bound

    async def attempt() -> None:
        async with OSRuntime.open(tmp_path, model=model, limits={"sub_runs": bound, "no_progress": None}) as rt:
            for allowed in (bound, raised):
                if allowed == bound:
                    result = await rt.run(skill, SPREADING[skill], run_id="root")
                else:
                    result = await rt.resume("root", raise_limits={"sub_runs": raised})
                runs = [row for row in rt.runs.all() if row.parent]
                assert len(runs) <= allowed, [row.run_id for row in runs]
                if result.status == "waiting":
                    assert result.question is not None
                    assert f"limits.sub_runs: ask after {allowed}" in result.question.message
                    assert "Since the start of the run" in result.question.message
                    break
                assert result.status == "limited", result.reason
                assert f"`sub_runs` is {allowed}" in result.reason
            for row in rt.runs.all():
                await rt.runs.replay(row.run_id)

    asyncio.run(attempt())


@pytest.mark.parametrize("bound", [1, 5])
@pytest.mark.parametrize("skill", ["circle", *SPREADING])
def test_a_run_makes_a_bounded_number_of_model_calls(tmp_path: Path, skill: str, bound: int):
    """Also runs that execute at the same time share them."""
    write_spreading(tmp_path)
    model = (
        Circling({}, 1) if skill == "circle" else Greedy(below=(started("run_skill"),) * 3 if skill == "job" else ())
    )

    async def attempt() -> None:
        async with OSRuntime.open(tmp_path, model=model, limits={"model_calls": bound, "no_progress": None}) as rt:
            result = await rt.run(skill, SPREADING.get(skill, {"text": "x"}))
            assert model.calls <= bound
            if result.status == "waiting":
                assert result.question is not None
                assert f"limits.model_calls: ask after {bound}" in result.question.message
            else:
                assert result.status == "limited", result.reason
                assert f"`model_calls` is {bound}" in result.reason

    asyncio.run(attempt())


@pytest.mark.parametrize("asked_at", [1, 30, 400])
@pytest.mark.parametrize("bound", [1, 60])
def test_a_bound_that_is_set_in_the_middle_of_a_run_holds_soon(tmp_path: Path, asked_at: int, bound: int):
    """Also after the reply of a person, which begins a new count: what the run had done before admits no more calls."""
    write_skill(tmp_path, "s", {"a": ["a", "end"]}, ops={"a": "ask_user"})

    class Endless:
        name, calls = "endless", 0

        async def complete(self, request: ModelRequest) -> ModelAnswer:
            self.calls += 1
            is_asking = self.calls == asked_at
            if is_asking:
                rt.services.journal.post(request.run_id, RaiseLimit("model_calls", bound))
            more = go("a") if self.calls < 2_000 else finish()
            return ModelAnswer(json.dumps(act({"kind": "ask_user", "question": "More?"}) if is_asking else more))

    class Person:
        async def ask(self, run_id: str, wait: Any) -> Any:
            return "yes"

    async def attempt() -> None:
        nonlocal rt
        unbounded = {"limits": {"model_calls": None, "no_progress": None}, "max_phase_visits": None}
        async with OSRuntime.open(tmp_path, model=model, people=Person(), **unbounded) as rt:
            result = await rt.run("s", {"text": "x"})
            assert result.status == "limited", result.reason
            assert model.calls <= asked_at + 101 + bound

    model, rt = Endless(), None
    asyncio.run(attempt())


def test_runs_are_bounded_by_default(tmp_path: Path):
    write_spreading(tmp_path)
    with_defaults = RunSettings().limits
    assert (with_defaults.sub_runs, with_defaults.model_calls) == (1_000, 10_000)
    assert RunSettings.of(Config()).limits == with_defaults


def test_the_list_of_runs_is_not_read_for_each_of_many_runs():
    counts, looks, begun = MessageCounts(), 0, dict[str, int]()

    def look() -> dict[str, int]:
        nonlocal looks
        looks += 1
        return begun

    while counts.runs_below("root", 0, 1_000, f"root.{len(begun)}", look) < 1_000:
        begun[f"root.{len(begun)}"] = 1
    assert len(begun) == 1_000
    assert looks < 60
