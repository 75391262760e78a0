"""Nothing spends without a reservation: every place that calls a model reserves the call before, and settles it."""

from __future__ import annotations

import ast
import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import reyn
from reyn import OSRuntime, SyncRuntime, llm_chat, llm_function, tool
from reyn.errors import ModelUnavailable, RateLimited
from reyn.functions import use_runtime
from reyn.journal import Journal, MemoryJournal, kinds
from reyn.journal.kinds import Usage
from reyn.kernel.world import llm_call_recorder
from reyn.models import ModelAnswer, ModelRequest
from reyn.models.prices import prompt_bound
from reyn.models.two_step import choice_prompt
from reyn.testing import ScriptedModel
from tests.chat.support import Agent, run_skill, skills
from tests.functions.support import act as call_tool
from tests.functions.support import value
from tests.support import act, finish, go, write_skill

SPENT = Usage(100, 20)
LIMITS: dict[str, Any] = {"budgets": {"day": {"tokens": 10**9}}}


class Audited:
    """Passes calls on to another model if they are reserved, and remembers them."""

    takes_time = True

    def __init__(self, inner: Any, journal: Journal, log: list[tuple[str, str, int]] | None = None) -> None:
        self._inner = inner
        self._journal = journal
        self.name = inner.name
        self.calls: list[tuple[str, str, int]] = [] if log is None else log
        for attribute in ("answer_form", "usage_bound"):
            if hasattr(inner, attribute):
                setattr(self, attribute, getattr(inner, attribute))

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        row = self._journal.find(request.run_id)
        assert row is not None
        assert row.reserved is not None, f"call {request.call} of run {request.run_id} is not reserved"
        assert row.reserved.call == request.call
        self.calls.append((request.run_id, request.call, row.reserved.attempt))
        return msgspec.structs.replace(await self._inner.complete(request), usage=SPENT)


class Failing(ScriptedModel):
    """Fails as told, then answers."""

    def __init__(self, answers: list[Any], *failures: Exception) -> None:
        super().__init__(answers)
        self._failures = list(failures)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if self._failures:
            raise self._failures.pop(0)
        return await super().complete(request)


class Answers(ScriptedModel):
    """Gives its answers in order, whichever run asks."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self._given = getattr(self, "_given", -1) + 1
        return await super().complete(msgspec.structs.replace(request, answered=self._given))


def judged(score: float) -> dict[str, Any]:
    return finish() | {"artifact": {"type": "judgement", "data": {"reason": "because", "score": score}}}


def phases(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    """Two phases, an op between them, and a correction."""
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file"})
    answers = [act({"kind": "file", "op": "list", "path": "."}), "no JSON", go("b"), finish()]
    return executed(root, journal, Audited(ScriptedModel(answers), journal), "s")


def sub_runs(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    """A sub-run that an op starts, and one that a step starts."""
    write_skill(root, "inner", {"x": ["end"]})
    step = "preprocessor:\n  - run_skill: {skill: inner, input: {text: data.text}, into: data.inner}\n"
    anything = {"type": "object", "additionalProperties": True}
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "run_skill"}, phase_keys={"a": step}, artifacts={"note": anything})
    inner = {"kind": "run_skill", "skill": "inner", "input": {"text": "for inner"}}
    return executed(root, journal, Audited(ScriptedModel([finish(), act(inner), finish(), finish()]), journal), "s")


def judgement(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "judge_output"})
    judge = {"kind": "judge_output", "output": "draft", "rubric": "It names a date."}
    return executed(root, journal, Audited(ScriptedModel([act(judge), judged(0.9), finish()]), journal), "s")


def retries(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    write_skill(root, "s", {"a": ["end"]})
    failing = Failing([finish()], RateLimited("429"), ModelUnavailable("500"))
    model = Audited(failing, journal)
    model.settings = reyn.config.ModelSettings("scripted", retries=3)
    return executed(root, journal, model, "s")


LOG: list[tuple[str, str, int]] = []
JOURNAL: list[Journal] = []


def failing_model() -> Audited:
    return Audited(Failing([], *[ModelUnavailable("500")] * 9), JOURNAL[-1], LOG)


def steady_model() -> Audited:
    return Audited(ScriptedModel([go("b"), finish()]), JOURNAL[-1], LOG)


def fallbacks(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    write_skill(root, "s", {"a": ["b"], "b": ["end"]})
    LOG.clear()
    JOURNAL.append(journal)
    models = {
        "first": {"model": f"{__name__}:failing_model", "fallback": ["second"], "retries": 1},
        "second": {"model": f"{__name__}:steady_model"},
    }
    with SyncRuntime.open(root, journal=journal, trust=True, models=models, **LIMITS, model="first") as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").ok
    return LOG


def compaction(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    """Compactions that a long transcript, the model and a program ask for."""
    write_talk(root)
    answers = [
        go("chat", "x" * 1_500), {"summary": "Ada talked."}, act({"kind": "compact"}), {"summary": "Ada talked again."},
        go("chat", "on"), {"summary": "Ada talked on."}, finish("Bye."),
    ]  # fmt: skip
    model = Audited(Answers(answers), journal)
    with SyncRuntime.open(root, model=model, journal=journal, trust=True, **LIMITS) as rt:
        result = rt.run("talk", "I am Ada", run_id="k")
        for text in ("And now?", "And then?"):
            assert result.question is not None, result
            rt.answer("k", result.question.id, text)
            result = rt.resume("k")
            if text == "And now?":
                rt.conversations.compact("k")
        assert result.ok, result
        assert [event.kind for event in rt.runs.events("k")].count("context_compacted") >= 2
    return model.calls


def two_steps(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    write_two_steps(root)
    return executed(root, journal, Audited(TwoSteps(), journal), "s")


def functions(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    """A function, and one that a tool of it calls."""
    log: list[tuple[str, str, int]] = []

    @llm_function(llm_interface=Audited(ScriptedModel([value("short")]), journal, log))
    def shorten(text: str) -> str:
        """Shorten the text."""

    @tool(effect="idempotent")
    def digest(text: str) -> str:
        """Return a digest."""
        return shorten(text)

    outer = ScriptedModel([call_tool("digest", text="long"), value("ok")])

    @llm_function(llm_interface=Audited(outer, journal, log), toolkit=[digest])
    def ask(text: str) -> str:
        """Ask."""

    with SyncRuntime.open(root, journal=journal, trust=True, **LIMITS) as rt, use_runtime(rt):
        assert ask("x") == "ok"
    return log


def chat_functions(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    class Native:
        name = "native"
        answer_form = "tools"

        async def complete(self, request: ModelRequest) -> ModelAnswer:
            return ModelAnswer("hello")

    model = Audited(Native(), journal)

    @llm_chat(llm_interface=model)
    async def talk(history: Any, text: str) -> Any:
        """Talk."""

    async def converse() -> None:
        async with OSRuntime.open(root, journal=journal, trust=True, **LIMITS) as rt:
            with use_runtime(rt):
                async for _ in talk([], "hello"):
                    pass

    asyncio.run(converse())
    return model.calls


def conversations(root: Path, journal: Journal) -> list[tuple[str, str, int]]:
    """A conversation with an agent that runs a skill."""
    skills(root, "note")
    model = Audited(Agent(please=run_skill("note")), journal)

    async def converse() -> None:
        async with OSRuntime.open(root, model=model, journal=journal, trust=True, **LIMITS) as rt, rt.chat() as chat:
            await chat.say("hello")
            await chat.say("please")

    asyncio.run(converse())
    assert len(journal.runs()) == 2
    return model.calls


def executed(root: Path, journal: Journal, model: Audited, skill: str) -> list[tuple[str, str, int]]:
    with SyncRuntime.open(root, model=model, journal=journal, trust=True, **LIMITS) as rt:
        result = rt.run(skill, {"text": "in"}, run_id="k")
        assert result.ok, result
    return model.calls


SITES = [
    phases,
    sub_runs,
    judgement,
    retries,
    fallbacks,
    compaction,
    two_steps,
    functions,
    chat_functions,
    conversations,
]


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.__name__)
def test_each_call_is_reserved_before_it_is_made_and_settled_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Callable[[Path, Journal], list[tuple[str, str, int]]]
):
    async def no_delay(_: float) -> None:
        pass

    monkeypatch.setattr(llm_call_recorder, "_sleep", no_delay)
    journal = MemoryJournal()
    calls = site(tmp_path, journal)
    assert calls
    reserved, settled, tokens = Counter[Any](), Counter[Any](), 0
    for row in journal.runs():
        for event in journal.read(row.run_id):
            if event.kind == "budget_reserved":
                reserved[row.run_id, event.data["call"], event.data["attempt"]] += 1
            if event.kind == "budget_settled":
                settled[row.run_id, event.data["call"], event.data["attempt"]] += 1
                tokens += msgspec.convert(event.data["usage"], kinds.Usage).total
        assert row.reserved is None
    assert reserved == settled == Counter(calls)
    [day] = {charge.day for charge in journal.charges()}
    balance = journal.balance(f"day:{day}")
    assert (balance.tokens, balance.reserved_tokens) == (tokens, 0)
    assert sum(charge.calls for charge in journal.charges()) == len(calls)


_ASKS = ("ask", "AttemptModel", "CallModel")


@pytest.mark.slow
def test_the_kernel_asks_for_an_answer_in_two_places_only():
    """A third place needs a scenario above."""
    found = set()
    source = Path(reyn.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(f"{name}(" in text for name in _ASKS) else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ASKS:
                found.add((str(path.relative_to(source)), node.func.id))
    assert found == {
        ("kernel/visit/turn.py", "ask"),
        ("kernel/visit/compaction.py", "ask"),
        ("kernel/visit/compaction.py", "AttemptModel"),
        ("kernel/visit/turn.py", "CallModel"),
    }


# -- a budget that is just enough, and one that is a token too small --------------------------------------------------


def write_talk(root: Path) -> None:
    write_skill(
        root,
        "talk",
        {"chat": ["chat", "end"]},
        inputs={"chat": "user_message"},
        phase_keys={"chat": "conversation: {max_tokens: 300}\n"},
        ops={"chat": "compact"},
    )


def reservations(journal: Journal) -> list[kinds.BudgetReserved]:
    found = [event.data for event in journal.read("k") if event.kind == "budget_reserved"]
    return [msgspec.convert(data, kinds.BudgetReserved) for data in found]


def talk(root: Path, cap: int) -> tuple[MemoryJournal, Audited, Any]:
    """Say two things; the second makes a compaction necessary, and has the budget."""
    journal = MemoryJournal()
    answers = [go("chat", "x" * 1_500), {"summary": "Ada talked."}, finish("Bye.")]
    model = Audited(Answers(answers), journal)
    with SyncRuntime.open(root, model=model, journal=journal, trust=True) as rt:
        first = rt.run("talk", "I am Ada", run_id="k")
        assert first.question is not None, first
        rt.answer("k", first.question.id, "And now?")
    with SyncRuntime.open(root, model=model, journal=journal, trust=True, budgets={"day": {"tokens": cap}}) as rt:
        return journal, model, rt.resume("k")


def test_a_compaction_is_made_within_its_budget_and_refused_one_token_below(tmp_path: Path):
    write_talk(tmp_path)
    journal, _, result = talk(tmp_path, 10**9)
    assert result.ok
    _, summary, last = (one.tokens for one in reservations(journal))
    enough = SPENT.total + summary
    assert summary < last
    for cap, made in ((enough, 2), (enough - 1, 1)):
        journal, model, result = talk(tmp_path, cap)
        assert (result.status, len(model.calls)) == ("limited", made)
        assert [event.kind for event in journal.read("k")].count("context_compacted") == made - 1
        with SyncRuntime.open(tmp_path, model=model, journal=journal, trust=True) as rt:
            assert rt.resume("k", raise_limits={"day_tokens": 10**9}).ok
            assert rt.runs.replay("k").status == "finished"


class TwoSteps(ScriptedModel):
    """Asks for the choice first, like a small local model, and bounds the usage of both prompts."""

    answer_form = "short"

    def __init__(self) -> None:
        go_on = {"reason": "ready", "choice": "check", "confidence": 0.5, "data": {"text": "on"}}
        super().__init__([go_on, go_on | {"choice": "end"}])

    def usage_bound(self, request: ModelRequest) -> Usage:
        prompt = choice_prompt(request)
        first = prompt_bound(prompt.messages) if prompt else 0
        return Usage(first + prompt_bound(request.messages), request.max_tokens)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        reply = await super().complete(request)
        return ModelAnswer(reply.text, choice_probability=0.75)


def write_two_steps(root: Path) -> None:
    graph = {"write": {"check": "the text needs a review", "end": "the text is short"}, "check": ["end"]}
    write_skill(root, "s", graph)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_decision_in_two_steps_reserves_both_prompts(tmp_path: Path, missing: int):
    write_two_steps(tmp_path)
    probe = MemoryJournal()
    two_steps(tmp_path, probe)
    first, second = (one.tokens for one in reservations(probe))
    assert first > second, "the second phase has one candidate, so it has one step"
    journal = MemoryJournal()
    model = Audited(TwoSteps(), journal)
    budgets = {"run": {"tokens": first - missing}}
    with SyncRuntime.open(tmp_path, model=model, journal=journal, trust=True, budgets=budgets) as rt:
        result = rt.run("s", {"text": "in"}, run_id="k")
        assert len(model.calls) == (0 if missing else 2), json.dumps(str(result))
        assert result.ok is not bool(missing)
        if missing:
            assert rt.resume("k", raise_limits={"run_tokens": first}).ok
        assert rt.runs.replay("k").status == "finished"
