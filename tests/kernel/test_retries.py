"""A visit that repeats a failed one does nothing twice: steps take over what was done, and the prompt names it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime, llm_function, tool
from reyn.errors import CallStopped
from reyn.journal import MemoryJournal
from reyn.models.messages import ToolCall
from reyn.models.protocol import ModelAnswer
from tests.kernel.support import Project
from tests.support import act, finish, go, write_skill

OPEN = {"type": "object", "additionalProperties": True}
FAILS = "- validate: {target: data.text, schema: {const: never}}"
PAY = "run_op: {op: {kind: pay, to: ada}, into: data.paid}"
EACH = "run_op: {op: {kind: pay}, args_from: {to: _iter.item}}"
SUB = "run_skill: {skill: payer, input: {text: _iter.item}}"
STEPS = {
    "an op": (f"- {PAY}", ["ada"]),
    "two equal ops": (f"- {PAY}\n  - {PAY}", ["ada", "ada"]),
    "an iteration": (f"- iterate: {{over: data.people, apply: {{{EACH}}}, into: data.paid}}", ["bo", "cy", "bo"]),
    "a sub-run": ("- run_skill: {skill: payer, input: {text: dee}, into: data.paid}", ["dee"]),
    "sub-runs": (f"- iterate: {{over: data.people, apply: {{{SUB}}}, into: data.paid}}", ["bo", "cy", "bo"]),
    "parallel sub-runs": (
        f"- iterate: {{over: data.people, apply: {{{SUB}}}, into: data.paid, concurrency: 3}}",
        ["bo", "cy", "bo"],
    ),
}
"""Steps, and the payments that they make."""


def paying(paid: list[str]) -> Any:
    @tool(name="pay", effect="unsafe", permission=None)
    def pay(to: str) -> str:
        """Pay someone."""
        paid.append(to)
        return f"paid {to}"

    return pay


class Payer:
    """A model of a sub-run that pays whom its input names, and finishes at once elsewhere."""

    name, takes_time = "payer", False

    def __init__(self, answers: list[Any] | None = None) -> None:
        self.answers = answers or []
        self.prompts: list[str] = []

    async def complete(self, request: Any) -> ModelAnswer:
        text = request.messages[-1].text
        if request.phase == "p":
            to = request.input["data"]["text"]
            return ModelAnswer(json.dumps(finish() if "# Results" in text else act({"kind": "pay", "to": to})))
        self.prompts.append(text)
        answer = self.answers.pop(0) if self.answers else finish()
        return ModelAnswer(answer if isinstance(answer, str) else json.dumps(answer))


def write(root: Path, steps: str, *, where: str = "preprocessor", skill_keys: str = "") -> None:
    write_skill(root, "payer", {"p": ["end"]}, ops={"p": "pay"})
    post = f"postprocessor:\n  output_schema: note\n  steps:\n  {steps}\n" if where == "postprocessor" else ""
    write_skill(
        root,
        "main",
        {"a": ["end"]},
        artifacts={"note": OPEN},
        skill_keys=post + skill_keys,
        phase_keys={"a": f"preprocessor:\n  {steps}\n"} if where == "preprocessor" else {},
    )


IN = {"text": "in", "people": ["bo", "cy", "bo"]}


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.parametrize("where", ["preprocessor", "postprocessor"])
def test_a_retry_takes_over_what_the_steps_have_done(tmp_path: Path, case: str, where: str):
    steps, payments = STEPS[case]
    write(tmp_path, f"{steps}\n  {FAILS}", where=where)
    paid: list[str] = []
    project, model = Project(tmp_path), Payer([finish() | {"artifact": {"type": "note", "data": IN}}])
    with project.open([], model=model, ops=[paying(paid)]) as rt:
        assert rt.run("main", IN, run_id="k").status == "failed"
        for _ in range(2):
            assert rt.resume("k", retry=True).status == "failed"
    assert Counter(paid) == Counter(payments)
    taken = [event for event in project.events("step_completed") if event.get("result_of")]
    assert len(taken) == 2 * len(payments)
    assert project.is_sound()


def test_a_retry_after_rejected_answers_does_not_repeat_the_steps_before(tmp_path: Path):
    write(tmp_path, f"- {PAY}")
    paid: list[str] = []
    project = Project(tmp_path)
    with project.open([], model=Payer(["no"] * 3), ops=[paying(paid)], max_phase_retries=2) as rt:
        assert rt.run("main", IN, run_id="k").status == "failed"
        result = rt.resume("k", retry=True)
    assert result.ok
    assert paid == ["ada"]
    assert project.is_sound()


def test_steps_of_a_visit_that_is_no_retry_are_performed(tmp_path: Path):
    """A loop pays in each visit, also after a visit that failed and was repeated."""
    keys = {"a": f"preprocessor:\n  - {PAY}\n"}
    write_skill(tmp_path, "main", {"a": ["a", "end"]}, artifacts={"note": OPEN}, phase_keys=keys)
    paid: list[str] = []
    project, answers = Project(tmp_path), ["no", go("a", "1"), go("a", "2"), finish()]
    with project.open([], model=Payer(answers), ops=[paying(paid)], max_phase_retries=0) as rt:
        assert rt.run("main", IN, run_id="k").status == "failed"
        assert rt.resume("k", retry=True).ok
    assert paid == ["ada"] * 3
    assert project.is_sound()


def test_a_rollback_takes_over_the_steps_of_both_phases(tmp_path: Path):
    keys = {name: f"preprocessor:\n  - {PAY.replace('ada', name)}\n" for name in ("a", "b")}
    graph = {"a": ["b"], "b": ["end"]}
    rollback = "on_phase_failure: rollback\n"
    write_skill(tmp_path, "main", graph, artifacts={"note": OPEN}, phase_keys=keys, skill_keys=rollback)
    paid: list[str] = []
    project, answers = Project(tmp_path), [go("b", "1"), "no", go("b", "2"), finish()]
    with project.open([], model=Payer(answers), ops=[paying(paid)], max_phase_retries=0) as rt:
        assert rt.run("main", IN, run_id="k").ok
    assert paid == ["a", "b"]
    assert project.is_sound()


def test_other_arguments_are_another_action(tmp_path: Path):
    steps = "- run_op: {op: {kind: pay}, args_from: {to: data.text}, into: data.paid}"
    write_skill(
        tmp_path,
        "main",
        {"a": ["b"], "b": ["end"]},
        artifacts={"note": OPEN},
        phase_keys={"b": f"preprocessor:\n  {steps}\n"},
        skill_keys="on_phase_failure: rollback\n",
    )
    paid: list[str] = []
    project, answers = Project(tmp_path), [go("b", "ada"), "no", go("b", "bo"), finish()]
    with project.open([], model=Payer(answers), ops=[paying(paid)], max_phase_retries=0) as rt:
        assert rt.run("main", IN, run_id="k").ok
    assert paid == ["ada", "bo"]


# -- the prompt -----------------------------------------------------------------------------------------------

DONE = "You have done this already, do not repeat it: "


def test_the_prompt_of_a_retry_names_the_unsafe_ops_of_the_failed_visit(tmp_path: Path):
    write_skill(tmp_path, "main", {"a": ["end"]}, ops={"a": "pay"})
    paid: list[str] = []
    model = Payer([act({"kind": "pay", "to": "ada"}), "no"])
    project = Project(tmp_path)
    with project.open([], model=model, ops=[paying(paid)], max_phase_retries=0) as rt:
        assert rt.run("main", IN, run_id="k").status == "failed"
        assert rt.resume("k", retry=True).ok
    assert f'{DONE}{{"kind":"pay","to":"ada"}}' in model.prompts[-1]
    assert DONE not in model.prompts[0]


@pytest.mark.parametrize("fails", [False, True], ids=["finished", "failed"])
def test_the_prompt_of_a_retry_names_a_sub_run_that_acted(tmp_path: Path, fails: bool):
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "pay"})
    write_skill(tmp_path, "outer", {"y": ["end"]}, ops={"y": "run_skill"})
    write_skill(tmp_path, "main", {"a": ["end"]}, ops={"a": "run_skill"})
    paid: list[str] = []
    inner, outer = ({"kind": "run_skill", "skill": name, "input": {"text": "t"}} for name in ("inner", "outer"))
    answers = [act(outer), act(inner), act({"kind": "pay", "to": "ada"}), "no" if fails else finish(), finish(), "no"]
    model = Payer(answers)
    with Project(tmp_path).open([], model=model, ops=[paying(paid)], max_phase_retries=0) as rt:
        assert rt.run("main", IN, run_id="k").status == "failed"
        assert rt.resume("k", retry=True).ok
    assert paid == ["ada"]
    assert f'{DONE}{{"input":{{"text":"t"}},"kind":"run_skill","skill":"outer"}}' in model.prompts[-1]


def test_a_later_visit_of_a_loop_acts_again_after_a_retry(tmp_path: Path):
    write_skill(tmp_path, "main", {"a": ["b"], "b": ["a", "end"]}, ops={"a": "pay"})
    paid: list[str] = []
    ada, bo = (act({"kind": "pay", "to": name}) for name in ("ada", "bo"))
    model = Payer([ada, "no", go("b", "1"), go("a", "2"), bo, go("b", "3"), finish()])
    project = Project(tmp_path)
    with project.open([], model=model, ops=[paying(paid)], max_phase_retries=0) as rt:
        assert rt.run("main", IN, run_id="k").status == "failed"
        assert rt.resume("k", retry=True).ok
    assert paid == ["ada", "bo"]
    assert [DONE in prompt for prompt in model.prompts] == [False, False, True, False, False, False, False]


def test_the_prompt_of_a_function_that_is_retried_names_them_too(tmp_path: Path):
    paid: list[str] = []
    asked: list[str] = []

    class Model:
        name, answer_form, takes_time = "m", "tools", False

        async def complete(self, request: Any) -> ModelAnswer:
            asked.append("\n".join(message.text or "" for message in request.messages))
            if len(asked) == 1:
                return ModelAnswer("", tool_calls=(ToolCall("c", "pay", '{"to": "ada"}'),))
            return ModelAnswer("done" if DONE in asked[-1] else "")

    with SyncRuntime.open(tmp_path, model=Model(), journal=MemoryJournal(), trust=True) as rt:

        @llm_function(runtime=rt, toolkit=[paying(paid)])
        def settle(request: str) -> str:
            """Settle a debt."""

        with pytest.raises(CallStopped):
            settle.options(run_id="x")("now")
        assert settle.resume("x", retry=True).value == "done"
    assert paid == ["ada"]


def test_the_prompt_of_a_retry_names_what_a_function_of_a_tool_did(tmp_path: Path):
    write_skill(tmp_path, "main", {"a": ["end"]}, ops={"a": "helper"})
    paid: list[str] = []

    @llm_function(toolkit=[paying(paid)])
    async def settle(request: str) -> str:
        """Settle a debt."""

    @tool(effect="idempotent", permission=None)
    async def helper(text: str) -> str:
        """Help."""
        return await settle(text)

    class Model:
        name, answer_form, takes_time = "m", "tools", False

        async def complete(self, request: Any) -> ModelAnswer:
            text = "\n".join(message.text or "" for message in request.messages)
            if "Settle a debt" in request.messages[0].text:
                calls = () if "paid ada" in text else (ToolCall("c", "pay", '{"to": "ada"}'),)
                return ModelAnswer("" if calls else "all is paid", tool_calls=calls)
            if '(These ops were completed: `pay` {"to":"ada"}.)' in text:
                return ModelAnswer(json.dumps(finish()))
            calls = () if "all is paid" in text else (ToolCall("c", "helper", '{"text": "now"}'),)
            return ModelAnswer("", tool_calls=calls)

    project = Project(tmp_path)
    with project.open([], model=Model(), ops=[helper], max_phase_retries=0) as rt:
        assert rt.run("main", IN, run_id="k").status == "failed"
        assert rt.resume("k", retry=True).ok
    assert paid == ["ada"]
    assert project.is_sound()


@pytest.mark.parametrize("count", [25, 105])
def test_the_prompt_of_a_retry_lists_the_unsafe_ops_or_says_that_there_were_more(tmp_path: Path, count: int):
    write_skill(tmp_path, "main", {"a": ["end"]}, ops={"a": "pay"})
    paid: list[str] = []
    payments = [{"kind": "pay", "to": f"{'x' * 300}{number}"} for number in range(count)]
    model = Payer([act(*payments[at : at + 15]) for at in range(0, count, 15)] + ["no"])
    with Project(tmp_path).open([], model=model, ops=[paying(paid)], max_phase_retries=0) as rt:
        assert rt.run("main", IN, run_id="k").status == "failed"
        assert rt.resume("k", retry=True).ok
    assert len(paid) == count
    listed = [number for number in range(count) if f'x{number}"}}' in model.prompts[-1]]
    assert listed == [*range(max(0, count - 100), count)]
    assert ("more than 100 ops" in model.prompts[-1]) == (count > 100)
