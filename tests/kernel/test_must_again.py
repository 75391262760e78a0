"""What an attempt before this one did, and must not be repeated, is work that is done: one source for both."""

from __future__ import annotations

import json
import re
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

from reyn import RunResult, tool
from reyn.journal import kinds
from reyn.kernel.core.history import MAX_DONE, History
from reyn.models.protocol import ModelAnswer
from tests.kernel.support import IN, Project
from tests.kernel.test_native_tools import NativeModel, calls
from tests.support import act, file, finish, go, write_skill

TOOLS = ("pay", "send", "note")
UNSAFE = ("pay", "send")
BEFORE = [*chain.from_iterable(combinations((*TOOLS, "file write"), size) for size in range(5))]
MUST = {
    "[pay]": ("pay",),
    "[pay, send]": ("pay", "send"),
    "[note, pay, file.write]": ("note", "pay"),
    "{any: [send, pay]}": ("send", "pay"),
    "{any: [note, pay]}": ("note", "pay"),
}
"""Values of `must`, and the tools among them."""
DONE = re.compile("You have done this already, do not repeat it: (.*)")
TRIED = re.compile("You have tried this already, do not repeat what took effect: (.*)")
LEFT = re.compile(r"Left to do before anything else: (.*)\.")
WRITE = file("write", "output/note.txt", content="x")


def tools(done: list[str], fails: str = "") -> list[Any]:
    def make(name: str) -> Any:
        @tool(name=name, effect="unsafe" if name in UNSAFE else "idempotent", permission=None)
        def act_of(to: str) -> dict[str, str]:
            """Do it."""
            done.append(name)
            if name == fails and done.count(name) == 1:
                return {"receipt": 1}  # not what it declares
            return {"receipt": f"{name} {done.count(name)}"}

        return act_of

    return [make(name) for name in TOOLS]


def op(name: str) -> dict[str, Any]:
    return WRITE if name == "file write" else {"kind": name, "to": "ada"}


class Worker:
    """A model of the phase `a` that does what the prompt says is left to do, and of a phase `b` that fails at first.

    Its first visit of `a` begins with the ops `before`. Unless `b` follows, it fails then.
    """

    name, takes_time = "worker", False

    def __init__(self, before: tuple[str, ...], *, rolls_back: bool) -> None:
        self.before, self.rolls_back = list(before), rolls_back
        self.visits: set[str] = set()
        self.told: set[str] = set()
        self.prompts: list[str] = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.visits.add(request.call.partition(".")[0])
        if request.phase == "b":
            answer: Any = "no" if len(self.visits) == 2 else finish()
        else:
            answer = self._work(request.messages[1].text)
        return ModelAnswer(answer if isinstance(answer, str) else json.dumps(answer))

    def _work(self, text: str) -> Any:
        self.prompts.append(text)
        left = [name for found in LEFT.findall(text) for name in re.split(" or |, ", found)]
        told = " ".join(DONE.findall(text))
        self.told |= {name for name in TOOLS if f'"kind":"{name}"' in told}
        assert self.told.isdisjoint(left), text
        if len(self.visits) == 1 and (offered := [name for name in self.before if not left or name in left]):
            self.before.remove(offered[0])
            return act(op(offered[0]))
        if len(self.visits) == 1 and not self.rolls_back:
            return "no"
        if left:
            return act(op(left[0]))
        return go("b", f"on {len(self.visits)}") if self.rolls_back else finish("done", "sent")


def write(root: Path, must: str, how: str, fill: str = "") -> Project:
    nodes = {"retry": {"max": 1, "on": ["rejected"]}} if how == "node" else {}
    nodes |= {"fill": {"receipt": fill}} if fill else {}
    sent = {"type": "object", "properties": {"text": {"type": "string"}, "receipt": {"type": "string"}}}
    write_skill(
        root,
        "s",
        {"a": ["b"], "b": ["end"]} if how == "rollback" else {"a": ["end"]},
        artifacts={"sent": sent},
        final_output="note" if how == "rollback" else "sent",
        ops={"a": "pay, send, note, file"},
        phase_keys={"a": f"must: {must}\n"},
        skill_keys=f"nodes: {json.dumps({'a': nodes} if nodes else {})}\n"
        + ("on_phase_failure: rollback\n" if how == "rollback" else ""),
    )
    return Project(root)


def execute(project: Project, model: Worker, done: list[str], fails: str = "") -> RunResult:
    with project.open([], model=model, ops=tools(done, fails), max_phase_retries=0) as rt:
        result = rt.run("s", IN, run_id="k")
        if result.status == "failed":
            result = rt.resume("k", retry=True)
        for event in rt.runs.events("k"):
            if event.kind == "frame_built":
                frame = rt.runs.context_frame("k", event.seq)
                assert not frame.warnings
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
    return result


@pytest.mark.sampled(5)
@pytest.mark.parametrize("must", MUST)
@pytest.mark.parametrize("how", ["retry", "rollback", "node"])
def test_no_prompt_demands_what_it_forbids(tmp_path: Path, must: str, how: str):
    for number, before in enumerate(BEFORE):
        done: list[str] = []
        model = Worker(before, rolls_back=how == "rollback")
        result = execute(write(tmp_path / str(number), must, how), model, done)
        assert result.ok, (before, result.reason)
        assert model.told <= {*UNSAFE}
        assert all(done.count(name) <= 1 for name in UNSAFE), (before, done)
        wanted = {name for name in MUST[must] if name in TOOLS}
        assert wanted & set(done) if must.startswith("{any") else wanted <= set(done)


@pytest.mark.parametrize("how", ["retry", "node"])
def test_what_an_earlier_attempt_did_fills_the_field(tmp_path: Path, how: str):
    done: list[str] = []
    model = Worker(("pay",), rolls_back=False)
    result = execute(write(tmp_path, "[pay]", how, "ops.pay.result.receipt"), model, done)
    assert done == ["pay"]
    assert result.artifact == {"type": "sent", "data": {"text": "done", "receipt": "pay 1"}}


def test_an_op_without_a_usable_result_is_no_work(tmp_path: Path):
    """It may have taken effect: the prompt says so, and does not say that it is done."""
    done: list[str] = []
    model = Worker(("pay",), rolls_back=False)
    project = write(tmp_path, "[pay]", "retry")
    result = execute(project, model, done, fails="pay")
    assert result.ok
    assert done == ["pay", "pay"]
    [tried] = TRIED.findall(model.prompts[-2])
    assert tried == '{"kind":"pay","to":"ada"} (It may have taken effect.)'
    assert not model.told


def test_a_turn_that_is_continued_need_not_repeat_its_work(tmp_path: Path):
    """The transcript has what it did."""
    write_skill(
        tmp_path,
        "desk",
        {"talk": ["end"]},
        inputs={"talk": "user_message"},
        ops={"talk": "pay"},
        phase_keys={"talk": "conversation: {}\nmust: [pay]\n"},
    )
    done: list[str] = []
    pay = calls(("pay", {"to": "ada"}))
    model = NativeModel([pay, "", "It is paid."])
    with Project(tmp_path).open([], model=model, ops=tools(done), max_phase_retries=0) as rt:
        assert rt.run("desk", {"text": "Pay."}, run_id="k").status == "failed"
        result = rt.resume("k", retry=True)
        assert result.ok, result.reason
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
    assert done == ["pay"]


def test_after_an_error_was_handled_the_work_is_done_for_the_other_input(tmp_path: Path):
    write_skill(
        tmp_path,
        "s",
        {"a": ["end"], "h": ["a"]},
        inputs={"h": "node_error"},
        ops={"a": "pay"},
        phase_keys={"a": "must: [pay]\n"},
        skill_keys="nodes: {a: {on_error: {'*': h}}}\n",
    )
    done: list[str] = []
    answers = [act(op("pay")), "no", go("a", "other"), act(op("pay") | {"to": "bo"}), finish()]
    project = Project(tmp_path)
    assert project.run("s", answers, max_phase_retries=0, ops=tools(done)).ok
    text = project.model.turn_message(3)
    assert TRIED.findall(text) == ['{"kind":"pay","to":"ada"}']
    assert LEFT.findall(text) == ["pay"]
    assert not DONE.search(text)
    assert done == ["pay", "pay"]
    assert project.is_sound()


@pytest.mark.parametrize("count", [1, MAX_DONE, MAX_DONE + 1, 3 * MAX_DONE])
def test_the_work_of_a_visit_is_known_however_many_ops_followed(count: int):
    """The list for the prompt is bounded; the last op of each form is kept."""
    ops = [
        kinds.DoneOp("1" * 64, form, f"{number:064}", "2" * 64) for number, form in enumerate(["pay"] * 3 + ["send"])
    ]
    history = History().with_done("a", tuple(ops), None)
    for number in range(count):
        history = history.with_done("a", (kinds.DoneOp(f"{number:064}", "log", f"{number:064}", "3" * 64),), None)
    kept = history.done["a"]
    assert {op.form: op.args for op in kept} == {"pay": ops[2].args, "send": ops[3].args, "log": f"{count - 1:064}"}
    assert len(kept) <= MAX_DONE + 3
    assert (len(kept) > MAX_DONE) == (count + len(ops) > MAX_DONE)
