"""Native tools of one answer: which of them overlap, the order of events and results, kills, aborts, invalid calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reyn import OSRuntime, llm_function, tool
from reyn.journal import Blob, Event, MemoryJournal
from reyn.kernel.core.snapshot import PersonInput, RunState
from reyn.models import ModelAnswer
from reyn.testing import CountingIds, ScriptedModel, SteppingClock
from tests.kernel.test_turn_abort import Chatty, Talk, calls, forever, reached
from tests.properties import examples
from tests.support import write_skill

KINDS: dict[str, dict[str, Any]] = {
    "look": {"effect": "pure"},
    "note": {"effect": "idempotent"},
    "mark": {"effect": "idempotent", "concurrent": True},
    "send": {"effect": "unsafe"},
    "post": {"effect": "unsafe", "concurrent": True},
}
OVERLAPPING = {"look", "mark", "post"}
INVALID = "invalid"


class Native(ScriptedModel):
    answer_form = "tools"

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(answers, "native")
        self.requests: list[Any] = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        return await super().complete(request)


class Desk:
    """A project with tools of each effect class. A call yields `times` to other tasks before it returns."""

    def __init__(self, root: Path, answers: list[Any], journal: MemoryJournal | None = None, **options: Any) -> None:
        self.active: list[str] = []
        self.overlaps: list[frozenset[str]] = []
        self.performed: list[str] = []
        self.delay: Callable[[int], int] = lambda times: times
        self.model = Native(answers)
        self.rt = OSRuntime.open(
            root,
            model=self.model,
            journal=journal or MemoryJournal(),
            ids=CountingIds(),
            clock=SteppingClock(),
            ops=[self._tool(kind, **settings) for kind, settings in KINDS.items()],
            trust=True,
            **options,
        )

    def _tool(self, kind: str, **settings: Any) -> Any:
        async def act(name: str, times: int) -> str:
            self.performed.append(name)
            self.active.append(name)
            for _ in range(self.delay(times)):
                self.overlaps.append(frozenset(self.active))
                await asyncio.sleep(0)
            self.active.remove(name)
            return f"{name} is done"

        return tool(name=kind, description="A tool.", permission=None, **settings)(act)

    async def run(self) -> Any:
        return await self.rt.run("s", {"text": "in"}, run_id="k")

    def events(self) -> list[Event]:
        return list(self.rt.runs.events("k"))

    def order(self) -> list[str]:
        """The starts, outcomes and rejections of the calls, in the order of their events."""
        found = [(event.kind.rpartition("_")[2], event.data.get("call", "")) for event in self.events()]
        return [f"{what} {call[4:]}" for what, call in found if call.startswith("1.1.")]

    async def check(self) -> None:
        assert (await self.rt.runs.replay("k")).events == self.rt.runs.verify("k").events


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    write_skill(folder, "s", {"a": ["end"]}, ops={"a": ", ".join(KINDS)})
    return folder


def batch(kinds: list[str], times: list[int]) -> dict[str, Any]:
    """An answer that calls tools; an invalid call has no name."""
    found = [
        {"name": "look", "arguments": {"times": number}}
        if kind == INVALID
        else {"name": kind, "arguments": {"name": f"{kind}{number}", "times": count}}
        for number, (kind, count) in enumerate(zip(kinds, times, strict=True), start=1)
    ]
    return {"content": "", "tool_calls": found}


def groups_of(kinds: list[str]) -> list[list[str]]:
    """The calls that overlap, by the rule: consecutive valid calls that are pure or declared concurrent."""
    valid = [(kind, f"{kind}{number}") for number, kind in enumerate(kinds, start=1) if kind != INVALID]
    together = (list(group) for _, group in groupby(valid, key=lambda one: one[0] in OVERLAPPING))
    return [part for group in together for part in split([name for _, name in group], group[0][0] in OVERLAPPING)]


def split(names: list[str], overlaps: bool) -> list[list[str]]:
    size = 20 if overlaps else 1
    return [names[at : at + size] for at in range(0, len(names), size)]


BATCHES = st.lists(st.tuples(st.sampled_from([*KINDS, INVALID]), st.integers(3, 9)), min_size=1, max_size=8).filter(
    lambda calls: any(kind != INVALID for kind, _ in calls)
)


@given(BATCHES)
@examples(40)
def test_tools_overlap_by_their_effects_and_the_state_does_not_depend_on_who_is_faster(root: Path, drawn: list):
    kinds, times = [kind for kind, _ in drawn], [count for _, count in drawn]

    async def run() -> None:
        found = []
        for delay in (lambda times: times, lambda times: 12 - times):
            desk = Desk(root, [batch(kinds, times), "done"])
            desk.delay = delay
            assert (await desk.run()).ok
            largest = {name: max((one for one in desk.overlaps if name in one), key=len) for name in desk.performed}
            for group in groups_of(kinds):
                assert all(largest[name] == frozenset(group) for name in group)
            sent = [message for message in desk.model.requests[1].messages if message.role == "tool"]
            results = [json.loads(message.text.splitlines()[0]) for message in sent]  # notes may follow
            done = [None if kind == INVALID else f"{kind}{number} is done" for number, kind in enumerate(kinds, 1)]
            assert [result.get("result") for result in results] == done
            errors = [result["status"] == "error" for result in results]
            assert errors == [kind == INVALID for kind in kinds]
            await desk.check()
            events = [(event.kind, event.data.get("call"), event.data.get("result")) for event in desk.events()]
            sent = [(message.role, message.text) for message in desk.model.requests[1].messages]
            found.append((sorted(map(repr, events)), sent, outcome_of(desk.rt.runs.state("k"))))
        assert found[0] == found[1]

    asyncio.run(run())


def outcome_of(state: RunState) -> RunState:
    """Return a state without the times, which the clock counts."""
    return replace(state, last_input=0, active=0, visit_start=0, person=PersonInput())


MIXED = ["look", "post", INVALID, "post", "mark", "note", "send", "look", "post"]


def test_intents_are_recorded_in_call_order_and_outcomes_as_they_arrive(root: Path):
    async def run() -> None:
        desk = Desk(root, [batch(MIXED, [30, 20, 1, 12, 6, 1, 1, 9, 3]), "done"])
        assert (await desk.run()).ok
        assert desk.order() == [
            *("started 1", "started 2", "started 4", "started 5"),
            *("completed 5", "completed 4", "completed 2", "completed 1", "error 3"),
            *("started 6", "completed 6", "started 7", "completed 7"),
            *("started 8", "started 9", "completed 9", "completed 8"),
        ]

    asyncio.run(run())


@pytest.mark.parametrize("commit", range(4))
def test_outcomes_that_arrive_during_a_commit_do_not_wait_for_a_slower_call(root: Path, commit: int):
    """A commit lets the tools go on `commit` times."""
    others = ["mark", "look", "post"] * 5

    async def run() -> None:
        desk = Desk(root, [batch(["look", *others], [200, *range(1, len(others) + 1)]), "done"])
        append = desk.rt.services.commits.append

        async def slow_append(*batch: Any) -> int:
            for _ in range(commit):
                await asyncio.sleep(0)
            return await append(*batch)

        desk.rt.services.commits.append = slow_append
        assert (await desk.run()).ok
        ended = [line for line in desk.order() if line.startswith("completed")]
        assert ended == [*(f"completed {number}" for number in range(2, len(others) + 2)), "completed 1"]
        await desk.check()

    asyncio.run(run())


def beginning(source: MemoryJournal, events: list[Event], count: int) -> MemoryJournal:
    """A journal with the first events of a run, as a kill after them leaves it."""
    journal = MemoryJournal()
    blobs = [Blob(name, content) for name, content in source._blobs.items()]
    journal.append("k", 0, events[:count], blobs)
    return journal


@pytest.mark.parametrize("times", [[3] * 9, [9, 2, 1, 3, 6, 1, 1, 5, 1], [1, 9, 1, 5, 3, 1, 1, 1, 5]])
def test_a_kill_between_any_two_events_repeats_no_unsafe_call_without_asking(root: Path, times: list[int]):
    answers = [batch(MIXED, times), "done"]

    async def run() -> None:
        journal = MemoryJournal()
        whole = Desk(root, answers, journal)
        assert (await whole.run()).ok
        events, asked = whole.events(), 0
        for count in range(1, len(events)):
            begun = [event for event in events[:count] if event.kind in ("post_started", "send_started")]
            done = {
                event.data["call"] for event in events[:count] if event.kind in ("post_completed", "send_completed")
            }
            unknown = [event.data["call"] for event in begun if event.data["call"] not in done]
            desk = Desk(root, answers, beginning(journal, events, count))
            result = await desk.run()
            questions = 0
            while result.status == "waiting":
                assert result.question.reason == "unsafe"
                questions += 1
                desk.rt.answer("k", result.question.id, "done")
                result = await desk.rt.resume("k")
            assert result.ok
            assert questions == len(unknown)
            asked = max(asked, questions)
            recorded = {event.data.get("call") for event in events[:count] if event.kind.endswith("_completed")}
            ended = [event for event in events[:count] if event.data.get("call") in recorded and "args" in event.data]
            known = [json.loads(whole.rt.runs.content(event.data["args"]))["name"] for event in (*begun, *ended)]
            assert not {*known} & {*desk.performed}
            await desk.check()
        assert asked == 2  # both of a group

    asyncio.run(run())


def test_the_ops_of_a_control_ir_stay_sequential(root: Path):
    async def run() -> None:
        ops = [{"kind": "look", "name": f"look{number}", "times": 3} for number in (1, 2)]
        end = {"type": "finish", "decision": "finish", "next_phase": None, "confidence": 1, "reason": {"summary": "x"}}
        desk = Desk(root, [{"control_ir": ops}, {"control": end, "artifact": {"type": "note", "data": {"text": "x"}}}])
        desk.model.answer_form = "full"
        assert (await desk.run()).ok
        assert max(map(len, desk.overlaps)) == 1
        assert desk.order() == ["started 1", "completed 1", "started 2", "completed 2"]

    asyncio.run(run())


@pytest.mark.parametrize("effect", ["ask", "deny"])
def test_a_call_that_needs_an_approval_waits_until_those_before_it_are_done(root: Path, effect: str):
    """A denied one is complete, and holds nothing up."""

    async def run() -> None:
        tools = [
            tool(name="look", description="Look.", effect="pure", permission=None)(look),
            tool(name="mark", description="Mark.", effect="pure")(look),
        ]
        names = ["look", "mark", "look", "look"]
        answer = {"tool_calls": [{"name": name, "arguments": {}} for name in names]}
        rt = OSRuntime.open(
            root,
            model=Native([answer, "done"]),
            journal=MemoryJournal(),
            ops=tools,
            trust=True,
            permissions={"tool": [{effect: "mark"}]},
        )

        @llm_function(toolkit=tools, runtime=rt)
        async def describe(text: str) -> str:
            """Describe."""

        skill = describe.skill
        result = await rt.run(skill, {"text": "in"}, run_id="k")
        if effect == "ask":
            assert (result.status, result.question.reason) == ("waiting", "approval")
            rt.answer("k", result.question.id, "approve")
            result = await rt.resume("k")
        assert result.ok, result
        found = [(event.kind, event.data.get("call", "")) for event in rt.runs.events("k")]
        order = [f"{kind} {call[4:]}" for kind, call in found if call.startswith("1.1.")]
        if effect == "ask":
            assert order[:3] == ["look_started 1", "approval_required 2", "look_completed 1"]
            assert order[-6:] == [
                *("mark_started 2", "mark_completed 2"),
                *("look_started 3", "look_started 4", "look_completed 3", "look_completed 4"),
            ]
        else:
            assert order[:4] == ["look_started 1", "permission_denied 2", "look_started 3", "look_started 4"]
        assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    async def look() -> str:
        return "seen"

    asyncio.run(run())


@pytest.mark.parametrize(("limit", "peak"), [(1, 1), (2, 2), (None, 5)])
def test_max_concurrency_bounds_the_calls_and_each_gets_its_whole_timeout(
    root: Path, monkeypatch: pytest.MonkeyPatch, limit: int, peak: int
):
    timeout, delays = asyncio.timeout, list[float]()

    def recorded(delay: float) -> Any:
        delays.append(delay)
        return timeout(delay)

    async def run() -> None:
        active, most = 0, 0

        async def look() -> str:
            nonlocal active, most
            active += 1
            most = max(most, active)
            for _ in range(9):
                await asyncio.sleep(0)
            active -= 1
            return "seen"

        one = tool(name="look", description="Look.", effect="pure", max_concurrency=limit, permission=None)(look)
        answer = {"tool_calls": [{"name": "look", "arguments": {}}] * 5}
        rt = OSRuntime.open(root, model=Native([answer, "done"]), journal=MemoryJournal(), ops=[one], trust=True)

        @llm_function(toolkit=[one], runtime=rt)
        async def describe(text: str) -> str:
            """Describe."""

        assert await describe("x") == "done"
        assert most == peak

    with monkeypatch.context() as patch:
        patch.setattr("reyn.functions.tools.asyncio.timeout", recorded)
        asyncio.run(run())
    behind = 5 - peak
    assert sorted(delays)[10 - max(0, behind - 1) :] == [60 * (1 + ahead) for ahead in range(1, behind)]


def test_functions_that_tools_call_at_the_same_time_are_all_recorded(root: Path):
    async def run() -> None:
        journal = MemoryJournal()
        model = Native([{"tool_calls": [{"name": "ask", "arguments": {"n": n}} for n in range(6)]}, *["yes"] * 20])
        rt = OSRuntime.open(root, model=model, journal=journal, trust=True)

        @llm_function(runtime=rt)
        async def agree(n: int) -> str:
            """Agree."""

        @tool(effect="pure", permission=None)
        async def ask(n: int) -> str:
            """Ask."""
            for _ in range(n):
                await asyncio.sleep(0)
            return await agree(n) + await agree(n + 10)

        @llm_function(toolkit=[ask], runtime=rt)
        async def describe(text: str) -> str:
            """Describe."""

        result = await describe.run("x")
        events = list(rt.runs.events(result.run_id))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert sum(event.kind == "child_ended" for event in events) == 12
        assert (await rt.runs.replay(result.run_id)).events == rt.runs.verify(result.run_id).events

    asyncio.run(run())


# -- aborts ---------------------------------------------------------------------------------------------


def talk_with(root: Path, model: Chatty, effect: str, **tools: Callable[..., Any]) -> Talk:
    talk = Talk(root, model, **tools)
    ops = [
        tool(name=name, description="A tool.", effect=effect, concurrent=True, permission=None)(one)
        for name, one in tools.items()
    ]
    talk.rt = OSRuntime.open(root, model=model, journal=MemoryJournal(), ops=ops, trust=True)
    return talk


@pytest.mark.parametrize("ended", [["second"], ["third"], ["second", "fourth"], ["second", "third", "fourth"]])
@pytest.mark.parametrize("effect", ["pure", "unsafe"])
def test_an_abort_keeps_the_outcomes_that_came_before_slower_ones(tmp_path: Path, effect: str, ended: list[str]):
    async def run() -> None:
        recorded, names = asyncio.Event(), ["first", "second", "third", "fourth"]

        async def first() -> str:
            while not talk.bodies(f"{ended[-1]}_completed"):  # noqa: ASYNC110 - the journal sets no event
                await asyncio.sleep(0)
            recorded.set()
            return await slow()

        async def slow() -> str:
            return str(await forever())

        async def quick() -> str:
            return "x" * 3_000

        tools = {"first": first} | {name: quick if name in ended else slow for name in names[1:]}
        model = Chatty(calls(*names), "Fine.")
        talk = talk_with(tmp_path, model, effect, **tools)
        turn = asyncio.create_task(talk.say("one"))
        await reached(recorded, turn)
        talk.abort()
        assert (await turn).status == "waiting"
        assert {name for name in names if talk.bodies(f"{name}_completed")} == {*ended}
        await talk.say("two")
        results = dict(zip(names, [text for role, text in talk.seen() if role == "tool"], strict=True))
        assert [name for name in names if "xxx" in results[name]] == ended
        unknown = [name for name in names if "may have taken effect" in results[name]]
        assert unknown == ([name for name in names if name not in ended] if effect == "unsafe" else [])
        await talk.check()

    asyncio.run(run())


@pytest.mark.parametrize("effect", ["pure", "idempotent", "unsafe"])
def test_an_abort_cancels_all_calls_in_progress_and_keeps_the_results_before_them(tmp_path: Path, effect: str):
    async def run() -> None:
        called, ended = asyncio.Event(), []

        async def first() -> str:
            return "done"

        async def second() -> str:
            try:
                await forever()
            finally:
                ended.append("second")
            return "never"

        async def third() -> str:
            called.set()
            try:
                await forever()
            finally:
                ended.append("third")
            return "never"

        model = Chatty(calls("first", "second", "third"), "Fine.")
        talk = talk_with(tmp_path, model, effect, first=first, second=second, third=third)
        turn = asyncio.create_task(talk.say("one"))
        await reached(called, turn)
        talk.abort()
        assert (await turn).status == "waiting"
        assert sorted(ended) == ["second", "third"]
        await talk.say("two")
        done, *cancelled = [text for role, text in talk.seen() if role == "tool"]
        assert "done" in done
        assert len(cancelled) == 2
        assert ["may have taken effect" in text for text in cancelled] == [effect != "pure"] * 2
        await talk.check()

    asyncio.run(run())
