"""The token budget of a transcript that grows: old results go first, then whole turns; every call has its result."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, SyncRuntime
from reyn.context.transcript import normalize
from reyn.journal import MemoryJournal, decode
from reyn.kernel import versions
from reyn.models import ModelAnswer
from reyn.testing import ScriptedModel
from tests.cost import count_calls
from tests.support import write_skill

IN = {"text": "in"}
END = {"reason": "it is good", "choice": "end", "confidence": 1, "data": {"text": "done"}}
WIDE = "敏捷的棕色狐狸跳过懒狗。"
LINES = "The quick brown fox jumps over the lazy dog.\n"


class NativeModel(ScriptedModel):
    """A scripted model with native tools, a window, and a tokenizer if `counts` says how it counts."""

    answer_form = "tools"

    def __init__(self, answers: list[Any], limit: int) -> None:
        super().__init__(answers, "native")
        self.max_prompt_tokens = limit
        self.requests: list[Any] = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        return await super().complete(request)


class TokenizingModel(NativeModel):
    async def with_tokenizer(self, work: Any) -> Any:
        return work(lambda text: len(text.split()))


def read(number: int) -> dict[str, Any]:
    return {"tool_calls": [{"name": "file_read", "arguments": {"path": f"{number}.txt"}}]}


def write(number: int, length: int) -> dict[str, Any]:
    arguments = {"path": f"output/{number}.txt", "content": f"number {number} " + "x" * length}
    return {"tool_calls": [{"name": "file_write", "arguments": arguments}]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_skill(tmp_path, "s", {"a": ["b", "end"], "b": ["end"]}, ops={"a": "file", "b": "file"})
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"number {number}\n" + LINES * 30)
    return tmp_path


def size_of(request: Any) -> int:
    texts = [
        message.text + "".join(call.name + call.arguments for call in message.tool_calls)
        for message in request.messages
    ]
    return sum(len(text.encode()) for text in texts) // 4


def frames(rt: SyncRuntime, run: str = "k") -> list[Any]:
    return [decode(event) for event in rt.runs.events(run) if event.kind == "frame_built"]


def check_sound(rt: SyncRuntime, run: str = "k") -> None:
    assert rt.runs.replay(run).events == rt.runs.verify(run).events


def test_the_oldest_tool_results_are_truncated_first_and_calls_keep_their_results(root: Path):
    model = NativeModel([*map(read, range(6)), END], limit=2000)
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        assert rt.run("s", IN, run_id="k").ok
        assert len(model.requests) == 7
        assert all(size_of(request) * 1.25 <= 2000 for request in model.requests)
        for request in model.requests:
            normalize(request.messages)  # every call has exactly one result
        *_, last = model.requests
        results = [message.text for message in last.messages if message.role == "tool"]
        assert results[-1].count("lazy dog") == 30
        assert results[0].count("lazy dog") < 30
        assert "workspace:.full/1.1.1" in results[0]
        budgets = [frame.budget for frame in frames(rt)]
        assert all(budget.tokens <= budget.limit == 2000 for budget in budgets if budget)
        sections = {one.name: one for one in budgets[-1].sections}
        assert sections["results"].tokens < sections["results"].original_tokens
        assert "1.1.1" in [one.name for one in budgets[-1].truncated]
        check_sound(rt)
        # The run's own transcript is whole.
        assert [name for name, _ in rt.runs.prompt_at("k")].count("tool") == 6


def test_what_is_truncated_can_be_read_again(root: Path):
    again = {"tool_calls": [{"name": "file_read", "arguments": {"path": "workspace:.full/1.1.1", "start": 0}}]}
    model = NativeModel([*map(read, range(5)), again, END], limit=2000)
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        assert rt.run("s", IN, run_id="k").ok
        last = [message.text for message in model.requests[-1].messages if message.role == "tool"][-1]
        content, _, note = last.partition("\n")
        assert "number 0" in json.loads(content)["content"]
        assert note.startswith("Turns with ops left: ")
        check_sound(rt)


def test_turns_are_left_out_whole_where_truncated_results_are_not_enough(root: Path):
    """The arguments of a call cannot be truncated: a call without them would be another one."""
    model = NativeModel([*(write(number, 1200) for number in range(8)), END], limit=2000)
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        assert rt.run("s", IN, run_id="k").ok
        last = model.requests[-1]
        assert size_of(last) * 1.25 <= 2000
        normalize(last.messages)
        arguments = "".join(call.arguments for message in last.messages for call in message.tool_calls)
        assert "number 7" in arguments
        assert "number 0" not in arguments
        assert "older turns are left out" in last.messages[1].text
        assert "in" in last.messages[1].text
        check_sound(rt)


def test_a_run_stops_where_nothing_is_left_to_leave_out_and_continues_with_a_higher_limit(root: Path):
    model = NativeModel([write(0, 9000), END], limit=2000)
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        result = rt.run("s", IN, run_id="k")
        assert (result.status, len(model.requests)) == ("limited", 1)
        assert "max_prompt_tokens" in result.reason
        assert rt.resume("k", raise_limits={"max_prompt_tokens": 5000}).ok
        check_sound(rt)


def test_the_tokenizer_of_a_model_counts_its_transcript_and_a_replay_needs_none(root: Path):
    model = TokenizingModel([*map(read, range(6)), END], limit=1200)
    journal = MemoryJournal()
    with SyncRuntime.open(root, model=model, journal=journal) as rt:
        assert rt.run("s", IN, run_id="k").ok
        words = [sum(len(message.text.split()) for message in request.messages) for request in model.requests]
        assert max(words) <= 1200
        assert any(frame.budget and frame.budget.truncated for frame in frames(rt))
    with SyncRuntime.open(root, model=NativeModel([], 1), journal=journal) as rt:
        check_sound(rt)


def test_a_transcript_within_its_budget_is_referred_to_and_not_counted_again(root: Path):
    (root / "reyn.yaml").write_text("max_act_turns: 100\n")
    for number in range(4):
        (root / f"{number}.txt").write_text("short\n")

    def turns(count: int) -> int:
        model = NativeModel([*(read(turn % 4) for turn in range(count)), END], limit=100_000)
        runtime = OSRuntime.open(root, model=model, journal=MemoryJournal())
        with asyncio.Runner() as runner, SyncRuntime(runtime, runner) as rt:  # in this thread, whose calls are counted
            calls = count_calls(lambda: rt.run("s", IN, run_id="k"))
            assert all(frame.transcript is not None for frame in frames(rt))
            return calls

    few, many = turns(20), turns(40)
    assert many < 2.3 * few


def test_an_interrupted_turn_is_asked_again_with_the_same_messages(root: Path):
    journal = MemoryJournal()
    model = NativeModel(list(map(read, range(6))), limit=2000)
    with SyncRuntime.open(root, model=model, journal=journal) as rt:
        assert rt.run("s", IN, run_id="k").status == "failed"  # the script is exhausted
        sent = model.requests[-1].messages
    model = NativeModel([*map(read, range(6)), END], limit=2000)
    with SyncRuntime.open(root, model=model, journal=journal) as rt:
        assert rt.resume("k", retry=True).ok
        assert list(model.requests[0].messages) == list(sent)
        check_sound(rt)


def test_a_truncated_turn_keeps_its_texts_under_a_new_wording(root: Path, monkeypatch: pytest.MonkeyPatch):
    journal = MemoryJournal()
    model = NativeModel(list(map(read, range(5))), limit=2000)
    with SyncRuntime.open(root, model=model, journal=journal) as rt:
        assert rt.run("s", IN, run_id="k").status == "failed"
    monkeypatch.setattr(versions, "WORDING", versions.WORDING + 1)
    monkeypatch.setattr("reyn.context.prompt.OPENING", "Choose a candidate. " * 40 + "\n")
    again = NativeModel([*map(read, range(6)), END], limit=2000)
    with SyncRuntime.open(root, model=again, journal=journal) as rt:
        assert rt.resume("k", retry=True).ok
        # The turn that was recorded is sent as it was; the next one has the new wording, within the same budget.
        assert list(again.requests[0].messages) == list(model.requests[-1].messages)
        assert again.requests[1].messages[0].text.startswith("Choose a candidate.")
        assert all(size_of(request) * 1.25 <= 2000 for request in again.requests)
        report = rt.runs.replay("k")
        assert report.events == rt.runs.verify("k").events
        assert report.reworded


def test_a_long_message_of_a_conversation_is_truncated_to_the_window(tmp_path: Path):
    write_skill(
        tmp_path,
        "talk",
        {"chat": ["chat"]},
        inputs={"chat": "user_message"},
        phase_keys={"chat": "conversation: true\n"},
    )
    model = NativeModel(["Hello."], limit=1000)
    history = [
        {"role": "user", "content": "first " + WIDE * 40},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": WIDE * 40},
        {"role": "assistant", "content": "a reply"},
    ]
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
        result = rt.run("talk", "second " + WIDE * 60, run_id="k", history=history)
        assert result.status == "waiting", result.reason
        [request] = model.requests
        assert size_of(request) * 1.25 <= 1000
        normalize(request.messages)
        assert request.messages[-1].text.startswith("second ")
        check_sound(rt)
