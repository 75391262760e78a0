"""An unsafe op that took effect, and whose result cannot be used, is not repeated without a word about it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, llm_chat, llm_function, tool
from reyn.errors import ReynError
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ToolCall
from tests.kernel.support import Project
from tests.support import act, finish, write_skill

OPEN = {"type": "object", "additionalProperties": True}
PAY = {"kind": "pay", "to": "ada"}
RESULTS: dict[str, Any] = {
    "no JSON": {"x": object()},
    "not a number": {"x": float("nan")},
    "another type": "text",
    "a secret": {"x": "hunter2-hunter2"},
    "too large": {"x": "y" * 200_000},
    "too late": None,
}


def paying(paid: list[str], case: str) -> Any:
    @tool(name="pay", effect="unsafe", permission=None, timeout=0.01 if case == "too late" else 60)
    async def pay(to: str) -> dict[str, Any]:
        """Pay someone."""
        paid.append(to)
        if case == "too late":
            await asyncio.Event().wait()
        return RESULTS[case]  # type: ignore[no-any-return]

    return pay


class Model:
    """Pays in the phase unless its prompt names the payment; fails the phase once."""

    name, takes_time = "m", False

    def __init__(self) -> None:
        self.is_broken = True

    async def complete(self, request: Any) -> ModelAnswer:
        text = request.messages[-1].text
        if '"pay"' not in text:
            return ModelAnswer(json.dumps(act(PAY)))
        answer = "no" if self.is_broken else json.dumps(finish())
        self.is_broken = False
        return ModelAnswer(answer)


@pytest.mark.parametrize("case", RESULTS)
@pytest.mark.parametrize("action", ["retry", "fork"])
@pytest.mark.parametrize("by", ["model", "step"])
def test_what_took_effect_is_named_or_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, action: str, case: str
):
    monkeypatch.setenv("BANK_KEY", RESULTS["a secret"]["x"])
    (tmp_path / "reyn.yaml").write_text("models: {other: {model: 'openai:x', key: 'env://BANK_KEY'}}\n")
    step = "preprocessor:\n  - run_op: {op: {kind: pay, to: ada}, into: data.paid}\n"
    keys = {"a": step} if by == "step" else {}
    write_skill(tmp_path, "main", {"a": ["end"]}, artifacts={"note": OPEN}, ops={"a": "pay"}, phase_keys=keys)
    paid: list[str] = []
    project = Project(tmp_path)
    options = {"ops": [paying(paid, case)], "max_phase_retries": 0, "sizes": {"visit_recorded_bytes": 100_000}}
    with project.open([], model=Model(), **options) as rt:
        assert rt.run("main", {"text": "in"}, run_id="k").status == "failed"
        [event] = [event for event in rt.runs.events("k") if event.data.get("may_have_effect")]
        assert "it may have taken effect" in json.loads(rt.runs.content(event.data["result"]))["error"]
        result = rt.resume("k", retry=True) if action == "retry" else rt.fork("k", run_id="f")
        assert paid == ["ada"]
        if by == "model":
            assert result.ok
        elif action == "retry":
            assert (result.status, result.question.reason) == ("waiting", "unsafe")
        assert rt.runs.replay(result.run_id).events == rt.runs.verify(result.run_id).events


def test_a_python_step_whose_result_does_not_fit_is_not_repeated_without_a_question(tmp_path: Path):
    python = "module: ./m.py, function: f, mode: unsafe"
    folder = write_skill(
        tmp_path,
        "main",
        {"a": ["end"]},
        artifacts={"note": OPEN},
        skill_keys=f"permissions:\n  python: [{{{python}}}]\n",
        phase_keys={"a": f"preprocessor:\n  - python: {{{python}, into: data.x, output_schema: {{type: string}}}}\n"},
    )
    paid = tmp_path / "paid.txt"
    (folder / "m.py").write_text(f"def f(artifact):\n    open({str(paid)!r}, 'a').write('x')\n    return 1\n")
    project = Project(tmp_path)
    with project.open([finish()], permissions={"python": "allow"}, allow_unsafe_python=True) as rt:
        assert rt.run("main", {"text": "in"}, run_id="k").status == "failed"
        result = rt.resume("k", retry=True)
        assert "It took effect." in result.question.message
        rt.answer("k", result.question.id, "failed")
        assert rt.resume("k").status == "failed"
        assert rt.resume("k", retry=True).status == "waiting"
    assert paid.read_text() == "x"
    assert project.is_sound()


@pytest.mark.parametrize("ends", ["returns", "fails", "hangs"])
@pytest.mark.parametrize("inner", ["function", "chat"])
def test_the_error_of_a_tool_names_what_its_functions_did(tmp_path: Path, inner: str, ends: str):
    paid: list[str] = []

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        paid.append(to)
        if ends == "hangs":
            await asyncio.Event().wait()
        return f"paid {to}"

    class Asked:
        name, answer_form, takes_time = "m", "tools", False

        async def complete(self, request: Any) -> ModelAnswer:
            text = "\n".join(message.text or "" for message in request.messages).replace("\\", "")
            if request.phase in ("settle", "talker"):
                if "paid ada" in text:
                    return ModelAnswer("" if ends == "fails" else "It is paid.")
                return ModelAnswer("", tool_calls=(ToolCall("c", "pay", '{"to": "ada"}'),))
            if '`pay` {"to":"ada"}.' in text:
                return ModelAnswer("I was told.")
            return ModelAnswer("", tool_calls=(ToolCall("c", "helper", '{"text": "now"}'),))

    async def scenario() -> None:
        ports: dict[str, Any] = {"model": Asked(), "journal": MemoryJournal(), "trust": True}
        async with OSRuntime.open(tmp_path, **ports, max_phase_retries=0) as rt:

            @llm_function(runtime=rt, toolkit=[pay])
            async def settle(request: str) -> str:
                """Settle a debt."""

            @llm_chat(runtime=rt, toolkit=[pay])
            async def talker(message: str, history: Any = None) -> None:
                """Settle debts."""

            @tool(effect="idempotent", permission=None, timeout=0.5 if ends == "hangs" else 60)
            async def helper(text: str) -> str:
                """Help."""
                await (settle(text) if inner == "function" else talker(text))
                raise KeyError("the tool fails itself")

            @llm_chat(runtime=rt, toolkit=[helper])
            async def chat(message: str, history: Any = None) -> None:
                """You are helpful."""

            reply = await chat.options(run_id="k")("go")
            assert reply.text == "I was told."
            assert paid == ["ada"]
            [ended] = [event.data for event in rt.runs.events("k") if event.kind == "child_ended"]
            assert ended["acted"]
            assert rt.runs.find(ended["run"]).status != "running"
            assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    asyncio.run(scenario())


def test_a_function_that_a_tool_leaves_behind_is_cancelled(tmp_path: Path):
    """Its op returns while the function pays; the tokens of the function count."""
    begun = asyncio.Event()
    left: list[asyncio.Task[Any]] = []

    @tool(effect="unsafe", permission=None)
    async def pay(to: str) -> str:
        """Pay someone."""
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    class Asked:
        name, answer_form, takes_time = "m", "tools", True

        async def complete(self, request: Any) -> ModelAnswer:
            if request.phase == "settle":
                return ModelAnswer("", tool_calls=(ToolCall("c", "pay", '{"to": "ada"}'),))
            is_done = any(message.role == "tool" for message in request.messages)
            calls = () if is_done else (ToolCall("c", "helper", '{"text": "now"}'),)
            return ModelAnswer("Done." if is_done else "", tool_calls=calls)

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=Asked(), journal=MemoryJournal(), trust=True) as rt:

            @llm_function(runtime=rt, toolkit=[pay])
            async def settle(request: str) -> str:
                """Settle a debt."""

            @tool(effect="idempotent", permission=None)
            async def helper(text: str) -> str:
                """Help."""
                left.append(asyncio.create_task(settle(text)))
                await begun.wait()
                return "ok"

            @llm_chat(runtime=rt, toolkit=[helper])
            async def chat(message: str, history: Any = None) -> None:
                """You are helpful."""

            assert (await chat.options(run_id="k")("go")).text == "Done."
            with pytest.raises(ReynError):
                await left[0]
            [ended] = [event.data for event in rt.runs.events("k") if event.kind == "child_ended"]
            assert (ended["state"], ended["answers"]) == ("canceled", 1)
            assert rt.runs.find(ended["run"]).status == "cancelled"
            assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    asyncio.run(scenario())
