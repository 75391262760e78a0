"""Measure turns of conversations: `python -m bench.turns` prints CPU by length of the transcript, and the growth.

A turn is everything between two calls of the model: fold, ops, compile, the values of the request, durable events. The
model looks at no message, so serialisation for the wire is not part of it and is reported apart.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reyn import ModelAnswer, OSRuntime
from reyn.context import (
    AssistantMessage,
    ContextState,
    InvocationSpec,
    NormalizedMessageList,
    PromptContract,
    ToolResult,
    UserMessage,
    compile_context,
    compile_invocation_turn,
)
from reyn.models import ModelRequest, ToolCall
from reyn.models.chat_messages import to_wire

SHORT, LONG = 10, 5_000
TOOL_TURNS = 800
MAX_GROWTH, MAX_DOUBLING, MAX_MS = 1.5, 2.3, 1.0
_TEXT = "What does the invoice of the third of May say about the price of noodles? " * 3


def compile_turn(messages: NormalizedMessageList, number: int) -> NormalizedMessageList:
    """Compile one tool turn, as a loop does: patches, snapshot, request."""
    spec = InvocationSpec("bench", "chat", PromptContract("You are an assistant."))
    call = ToolCall(f"call_{number}", "look", '{"at": 1}')
    state = ContextState(messages).pending(AssistantMessage("", (call,)), ToolResult(call.id, _TEXT))
    compiled = compile_context(state)
    return compile_invocation_turn(spec, compiled.messages).transcript


def pipeline(length: int, rounds: int = 300) -> float:
    """Return the CPU of one tool turn of the pipeline alone, in microseconds, at a length of the transcript."""
    messages = NormalizedMessageList().append(*_history(length))
    costs = []
    for _ in range(7):
        started = time.process_time()
        for number in range(rounds):
            compile_turn(messages, number)
        costs.append((time.process_time() - started) / rounds)
    return 1e6 * min(costs)


def tool_turns(count: int) -> float:
    """Return the CPU of a conversation of tool turns from an empty transcript, in seconds, with its digests."""
    best = 9e9
    for _ in range(7):
        started, messages = time.process_time(), NormalizedMessageList()
        for number in range(count):
            messages = compile_turn(messages, number)
            assert messages.digest
        best = min(best, time.process_time() - started)
    return best


def _history(length: int) -> list[Any]:
    mutations = [UserMessage(_TEXT) if number % 2 == 0 else AssistantMessage(_TEXT) for number in range(length)]
    return list(compile_context(ContextState(), mutations).messages)


class TalkativeUser:
    """A user who always says the same."""

    async def ask(self, run_id: str, wait: Any) -> Any:
        return _TEXT


class TimedModel:
    """Answers with the next of some replies, and notes the CPU time and the length of each request."""

    name = "timed"
    takes_time = False

    def __init__(self, *replies: ModelAnswer, turns: int, last: ModelAnswer, form: str = "tools") -> None:
        self.answer_form = form
        self._replies = replies
        self._last = last
        self._turns = turns
        self.marks: list[tuple[int, float]] = []
        self.last_request: ModelRequest | None = None

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.marks.append((len(request.messages), time.process_time()))
        self.last_request = request
        number = len(self.marks) - 1
        return self._last if number >= self._turns else self._replies[number % len(self._replies)]

    def per_turn(self, length: int, around: int = 60) -> float:
        """Return the median CPU of the turns around a length of the transcript, in milliseconds."""
        at = next(index for index, (size, _) in enumerate(self.marks) if size >= length)
        first = max(1, min(at - around // 2, len(self.marks) - around - 1))
        times = [after - before for (_, before), (_, after) in zip(self.marks, self.marks[1:], strict=False)]
        return 1e3 * statistics.median(times[first : first + around])


def _project(root: Path, conversation: str) -> None:
    folder = root / "reyn" / "project" / "talk"
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    (root / "reyn.yaml").write_text("model: timed\n")
    (root / "note.txt").write_text(_TEXT)
    (folder / "skill.md").write_text(
        "---\ntype: skill\nname: talk\nentry: chat\nfinal_output: reply\ngraph: {chat: [chat, end]}\n---\nTalk.\n"
    )
    (folder / "phases" / "chat.md").write_text(
        f"---\ntype: phase\nname: chat\ninput: user_message\nallowed_ops: [file]\nmax_act_turns: 1000000\n"
        f"{conversation}---\nAnswer.\n"
    )
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    (folder / "artifacts" / "reply.yaml").write_text(json.dumps(schema))


def _decide(choice: str) -> ModelAnswer:
    return ModelAnswer(json.dumps({"reason": "r", "choice": choice, "confidence": 1, "data": {"text": _TEXT}}))


async def kernel(turns: int, conversation: str, *replies: ModelAnswer, **options: Any) -> TimedModel:
    """Run a conversation or a visit of so many turns, durably."""
    with tempfile.TemporaryDirectory(prefix="reyn-turns-") as root:
        _project(Path(root), conversation)
        model = TimedModel(*replies, turns=turns, last=_decide("end"))
        async with OSRuntime.open(Path(root), model=model, people=TalkativeUser(), trust=True, **options) as rt:
            result = await rt.run("talk", _TEXT)
            assert result.ok, result
        return model


READ = ModelAnswer("", tool_calls=(ToolCall("call_1", "file_read", '{"path": "note.txt"}'),))


def main() -> int:
    short, long = pipeline(SHORT), pipeline(LONG)
    growth = long / short
    print(f"pipeline, CPU of a tool turn: {short:.0f} µs at {SHORT} messages, {long:.0f} µs at {LONG} ({growth:.2f} x)")
    half, whole = tool_turns(TOOL_TURNS // 2), tool_turns(TOOL_TURNS)
    double = whole / half
    print(f"pipeline, {TOOL_TURNS} tool turns: {whole * 1e3:.0f} ms, half of them {half * 1e3:.0f} ms ({double:.2f} x)")

    talk = "conversation: {max_tokens: 100000000}\n"
    model = asyncio.run(kernel(LONG // 2 + 60, talk, READ))
    early, late = model.per_turn(SHORT), model.per_turn(LONG)
    print(f"durable tool turn, CPU: {early:.2f} ms at {SHORT} messages, {late:.2f} ms at {LONG} ({late / early:.2f} x)")
    assert model.last_request is not None
    messages, started = model.last_request.messages, time.process_time()
    size = len(json.dumps(to_wire(messages)))
    took = 1e3 * (time.process_time() - started)
    print(f"serialisation of {len(messages)} messages for the wire: {took:.0f} ms, {size / 1e6:.1f} MB")
    said = asyncio.run(kernel(300, talk, _decide("chat")))
    print(f"durable turn with a question to the user, CPU: {said.per_turn(SHORT):.2f} ms")
    costs = []
    for count in (TOOL_TURNS // 2, TOOL_TURNS):
        marks = asyncio.run(kernel(count, "", READ)).marks
        costs.append(marks[-1][1] - marks[0][1])
    ratio = costs[1] / costs[0]
    print(
        f"{TOOL_TURNS} durable tool turns in one visit: {costs[1]:.2f} s, half of them {costs[0]:.2f} s ({ratio:.2f} x)"
    )
    met = late / early <= MAX_GROWTH and late <= MAX_MS and growth <= MAX_GROWTH and ratio < MAX_DOUBLING
    print(
        f"targets {'met' if met else 'missed'}: a turn at {LONG} messages at most {MAX_GROWTH} x that at {SHORT} and "
        f"at most {MAX_MS} ms; twice the tool turns below {MAX_DOUBLING} x"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
