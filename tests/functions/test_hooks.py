"""Hooks: functions of a program patch what the model sees; a replay applies the record, without the functions."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, SyncRuntime, llm_chat, llm_function
from reyn.context import (
    AssistantMessage,
    ContextMutation,
    ContextReplace,
    ContextSummary,
    ExperienceForget,
    ExperienceRemember,
    MultimodalToolResult,
    ToolCancelled,
    ToolResult,
    UserMessage,
)
from reyn.context.transcript import normalize
from reyn.errors import CallStopped, ChatStopped, FunctionInvalid, HookFailed
from reyn.functions import HookTurn, Image
from reyn.journal import MemoryJournal
from reyn.journal.kinds import Part
from reyn.models import ModelAnswer, ToolCall
from tests.functions.support import Answers, kinds, sync_runtime, value
from tests.functions.test_chat import Chatty, add, calls
from tests.support import finish, write_skill

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()


class Talk:
    """A chat with hooks, with a key."""

    def __init__(self, root: Path, *answers: Any, hooks: Any = (), **options: Any) -> None:
        self.model = Chatty(*answers)
        self.rt = OSRuntime.open(root, model=self.model, journal=MemoryJournal(), trust=True)

        @llm_chat(runtime=self.rt, hooks=hooks, **options)
        async def agent(message: str, history: Any = None) -> None:
            """You talk."""

        self.agent = agent.options(key="k")

    async def check(self) -> None:
        """Replay every run on a runtime without hooks."""
        for row in self.rt.runs.all():
            assert (await self.rt.runs.replay(row.run_id)).events == self.rt.runs.verify(row.run_id).events

    def seen(self, call: int = -1) -> list[str]:
        return [text for _, text in self.model.seen(call)]


class Summarising(Chatty):
    """Answers each message, and each request for a summary with the same text."""

    def __init__(self, summary: str) -> None:
        super().__init__()
        self._summary = summary

    async def complete(self, request: Any) -> Any:
        self.requests.append(request)
        is_summary = "Summarise the conversation" in request.messages[-1].text
        return ModelAnswer(self._summary if is_summary else f"answer {len(self.requests)}")


def test_mutations_of_a_hook_are_part_of_the_conversation_and_are_replayed_without_it(tmp_path: Path):
    called: list[tuple[str, int]] = []

    async def remind(turn: HookTurn) -> list[ContextMutation]:
        called.append((turn.call, len(turn.messages)))
        assert turn.is_conversation
        return [UserMessage(f"It is day {len(called)}."), ExperienceRemember(f"day {len(called)}")]

    async def scenario() -> None:
        talk = Talk(tmp_path, "Hello.", "Bye.", hooks=[remind])
        first = await talk.agent("hi")
        assert talk.seen() == ["hi", "It is day 1."]
        second = await talk.agent("again")
        assert talk.seen() == ["hi", "It is day 1.", "Hello.", "again", "It is day 2."]
        assert [message.text for message in second.history] == [*talk.seen(), "Bye."]
        assert [one.text for one in talk.rt.runs.memory(first.run_id)] == ["day 1", "day 2"]
        assert "day 2" in talk.model.requests[-1].messages[0].text
        assert called == [("1.1", 1), ("2.1", 4)]
        await talk.check()
        assert len(called) == 2  # the replay did not call it

    asyncio.run(scenario())


def every_kind(turn: HookTurn) -> list[ContextMutation]:
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "draw", "{}"), ToolCall("c", "pay", '{"sum": 1}'))
    return [
        ContextReplace(normalize([{"role": "user", "content": "from elsewhere"}])),
        AssistantMessage("Let me look.", calls),
        MultimodalToolResult("b", "a picture", (Image("image/png", PNG),)),
        ToolResult("a", "seen"),
        ToolCancelled("c", "pay", "no money", is_outcome_unknown=True),
        ExperienceRemember("first"),
        ExperienceRemember("second"),
        ExperienceForget("exp_1"),
        ContextSummary("All so far.", 5),
        UserMessage("Go on."),
    ]


def test_every_kind_of_mutation_reaches_a_real_turn(tmp_path: Path):
    async def scenario() -> None:
        talk = Talk(tmp_path, "Fine.", hooks=[every_kind])
        talk.model.reads_images = True
        reply = await talk.agent("hi")
        sent = list(talk.model.requests[0].messages)
        assert [(message.role, message.text.splitlines()[-1]) for message in sent[1:]] == [
            ("user", "All so far."),
            ("user", "from elsewhere"),
            ("assistant", "Let me look."),
            ("tool", "seen"),
            ("tool", "a picture"),
            ("tool", sent[6].text),
            ("user", "Go on."),
        ]
        assert [call.arguments for call in sent[3].tool_calls] == ["{}", "{}", '{"sum": 1}']
        assert [len(message.images) for message in sent] == [0, 0, 0, 0, 0, 1, 0, 0]
        assert "may have taken effect" in sent[6].text
        assert "second" in sent[0].text
        assert "] first" not in sent[0].text
        assert reply.text == "Fine."
        await talk.check()

    asyncio.run(scenario())


def test_hooks_are_called_before_every_model_call_of_a_turn(tmp_path: Path):
    called: list[tuple[str, list[str]]] = []

    async def watch(turn: HookTurn) -> list[ContextMutation]:
        called.append((turn.call, [message.role for message in turn.messages]))
        return [UserMessage(f"note {len(called)}")]

    async def scenario() -> None:
        talk = Talk(tmp_path, calls(("add", '{"a": 1, "b": 2}')), "It is 3.", hooks=[watch], toolkit=[add])
        await talk.agent("1 + 2?")
        assert called == [("1.1", ["user"]), ("1.2", ["user", "user", "assistant", "tool"])]
        assert [text for text in talk.seen() if text.startswith("note")] == ["note 1", "note 2"]
        await talk.check()

    asyncio.run(scenario())


def test_hooks_patch_a_turn_of_a_function(tmp_path: Path):
    def note(turn: HookTurn) -> list[ContextMutation]:
        assert not turn.is_conversation
        return [UserMessage(f"Note for {turn.call}.")]

    model = Answers("not JSON", value(4))
    with sync_runtime(tmp_path) as rt:

        @llm_function(runtime=rt, llm_interface=model, hooks=[note])
        def count(text: str) -> int:
            """Count."""

        assert count("abcd") == 4
        assert "Note for 1.1." in model.prompt(0)
        assert "Note for 1.2." in model.prompt(1)
        assert "Note for 1.1." not in model.prompt(1)  # each turn has a fresh frame
        [row] = rt.runs.all()
        assert kinds(rt, row.run_id).count("context_mutated") == 2
        assert rt.runs.replay(row.run_id).events == len(kinds(rt, row.run_id))


def test_hooks_of_a_runtime_are_called_for_its_skills_and_their_sub_runs(tmp_path: Path):
    seen: list[tuple[str, str]] = []
    write_skill(tmp_path, "s", {"a": ["end"]})
    with SyncRuntime.open(
        tmp_path,
        model=Answers(finish()),
        journal=MemoryJournal(),
        hooks=[lambda turn: seen.append((turn.skill, turn.phase))],
    ) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").ok
        assert seen == [("s", "a")]
        assert rt.runs.replay("k").events == len(kinds(rt, "k"))


def test_a_run_that_is_resumed_without_its_hooks_says_so(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]})
    journal = MemoryJournal()
    with SyncRuntime.open(tmp_path, model=Answers("no"), journal=journal, hooks=[lambda _: None]) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").status == "failed"
    with SyncRuntime.open(tmp_path, model=Answers(finish()), journal=journal) as rt:
        result = rt.resume("k", retry=True)
        assert result.ok
        assert [warning for warning in result.warnings if "hooks" in warning]
        assert rt.runs.replay("k").events == len(kinds(rt, "k"))


def as_pirate(turn: HookTurn) -> list[ContextMutation]:
    return [ContextReplace(normalize([{"role": "system", "content": "You are a pirate."}, *turn.messages]))]


@pytest.mark.parametrize("form", ["full", "short", "tools"])
def test_a_system_message_of_a_hook_takes_the_place_of_the_instructions(tmp_path: Path, form: Any):
    write_skill(tmp_path, "s", {"only": ["end"]}, phase_keys={"only": "role: editor\n"})
    full = {"full": finish("Arr."), "short": SHORT, "tools": SHORT}[form]
    model = Answers(full)
    model.answer_form = form
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), hooks=[as_pirate]) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").ok
        [system, user] = model.requests[0].messages
        assert system.text.startswith("You are a pirate.\n")
        assert "Do what only does." not in system.text
        assert "editor" not in system.text
        assert "abort" in system.text  # the rest of the prompt stays
        assert user.text.startswith("in")
        assert model.requests[0].task == "You are a pirate."
        assert rt.runs.prompt_at("k")[0][1] == system.text
        assert rt.runs.replay("k").events == len(kinds(rt, "k"))


SHORT = {"reason": "x", "choice": "end", "confidence": 1, "data": {"text": "Arr."}}


def test_a_system_message_of_a_hook_stays_in_a_conversation(tmp_path: Path):
    hooks = [as_pirate]

    def once(turn: HookTurn) -> Any:
        return hooks.pop()(turn) if hooks else [ExperienceRemember("likes rum")]

    async def scenario() -> None:
        talk = Talk(tmp_path, "Arr.", "Aye.", "Bye.", hooks=[once])
        for text in ("hi", "again", "bye"):
            await talk.agent(text)
        prompts = [request.messages[0].text for request in talk.model.requests]
        assert prompts[0].startswith("You are a pirate.\n")
        assert "likes rum" not in prompts[0]
        assert all(prompt.startswith("You are a pirate.\n") and "likes rum" in prompt for prompt in prompts[1:])
        assert talk.seen() == ["hi", "Arr.", "again", "Aye.", "bye"]
        await talk.check()

    asyncio.run(scenario())


def raises(turn: HookTurn) -> None:
    raise LookupError("no such thing")


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (raises, "raised LookupError: no such thing"),
        (lambda _: ["text"], "returned a str, which is no mutation"),
        (lambda _: 5, "raised TypeError"),
        (lambda _: [ToolResult("a", "x")], "is not open"),
        (lambda _: [AssistantMessage("", (ToolCall("a", "f", "{}"),))], "have no result"),
        (lambda _: [UserMessage("\ud800")], "lone surrogate"),
        (lambda _: [UserMessage("x", (Image("image/png", "!"),))], "not base64"),
        (lambda _: [ExperienceForget("exp_9")], "the memory has no entry"),
        (lambda _: [ContextReplace(["x"])], "raised MessageInvalid: message 0 is a str"),
    ],
)
def test_a_hook_that_fails_stops_the_run_and_is_called_again_by_a_retry(tmp_path: Path, hook: Any, words: str):
    async def scenario() -> None:
        hooks = [hook]

        def current(turn: HookTurn) -> Any:
            return hooks[0](turn)

        talk = Talk(tmp_path, "Fine.", hooks=[current])
        with pytest.raises(ChatStopped) as found:
            await talk.agent("hi")
        assert "current`" in str(found.value)
        assert words in str(found.value)
        row = talk.rt.runs.all()[0]
        [failed] = [event.data for event in talk.rt.runs.events(row.run_id) if event.kind == "run_failed"]
        assert failed["code"] == HookFailed.code
        assert not talk.model.requests
        hooks[0] = lambda _: None
        assert (await talk.agent.resume()).text == "Fine."
        await talk.check()

    asyncio.run(scenario())


def test_a_phase_without_a_conversation_has_no_memory(tmp_path: Path):
    with sync_runtime(tmp_path) as rt:

        @llm_function(runtime=rt, llm_interface=Answers(value(1)), hooks=[lambda _: [ExperienceRemember("x")]])
        def count(text: str) -> int:
            """Count."""

        with pytest.raises(CallStopped, match="it has no memory"):
            count("x")


@pytest.mark.parametrize("hooks", [5, [5], [HookTurn], "text", raises])
def test_hooks_that_are_no_list_of_functions_are_refused(tmp_path: Path, hooks: Any):
    with pytest.raises(HookFailed):
        OSRuntime.open(tmp_path, hooks=hooks)
    for decorator in (llm_function, llm_chat):
        with pytest.raises(FunctionInvalid, match="hooks"):

            @decorator(hooks=hooks)
            def configured(x: str) -> str:
                """Do."""


def test_an_image_can_be_said_in_a_conversation_with_a_key(tmp_path: Path):
    from reyn.models import Message

    async def scenario() -> None:
        talk = Talk(tmp_path, "A cat.", "A dog.", "Both.")
        talk.model.reads_images = True
        first = Image("image/png", PNG)
        second = Image(url="https://images.example/dog.png")
        await talk.agent(Message("user", "What is this?", (first,)))
        await talk.agent(Message("user", "And this?", (second, first)))
        reply = await talk.agent("Which do you prefer?")
        sent = [
            (message.text, message.images) for message in talk.model.requests[-1].messages if message.role == "user"
        ]
        assert [images for _, images in sent if images] == [(first,), (second, first)]
        assert sent[-1] == ("Which do you prefer?", ())
        assert [message.images for message in reply.history if message.images] == [(first,), (second, first)]
        await talk.check()

    asyncio.run(scenario())


def test_a_conversation_with_a_key_can_be_copied_and_both_go_on(tmp_path: Path):
    from reyn.errors import CallImpossible, RunIdTaken, RunNotFound

    async def scenario() -> None:
        talk = Talk(tmp_path, "Hello.", "One.", "Two.", toolkit=[add])
        first = await talk.agent("hi")
        talk.rt.conversations.remember(first.run_id, "The user is polite.")
        copy = await talk.agent.fork("copy")
        assert (await copy("again")).text == "One."
        reply = await talk.agent("bye")
        assert talk.seen() == ["hi", "Hello.", "bye"]
        assert [message.text for message in reply.history] == ["hi", "Hello.", "bye", "Two."]
        assert [one.text for one in talk.rt.runs.memory(copy.conversation)] == ["The user is polite."]
        for key, error in (("copy", RunIdTaken), ("k", CallImpossible), (5, CallImpossible)):
            with pytest.raises(error):
                await talk.agent.fork(key)
        with pytest.raises(RunNotFound):
            await talk.agent.options(key="nothing").fork("other")
        await talk.check()

    asyncio.run(scenario())


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_hook_reads_what_the_model_would_see_in_any_order_of_the_fields(tmp_path: Path, names: tuple[str, str]):
    seen: list[str] = []

    def look(turn: HookTurn) -> list[ContextMutation]:
        seen.extend(message.text for message in turn.messages)
        return []

    note = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    write_skill(tmp_path, "s", {"x": ["end"]}, artifacts={"note": note})
    with SyncRuntime.open(tmp_path, model=Answers(finish()), journal=MemoryJournal(), hooks=[look]) as rt:
        assert rt.run("s", {"a": "1", "b": "2"}).ok
    assert [seen[0].index(f"{name}: ") for name in names] == sorted(seen[0].index(f"{name}: ") for name in names)


@pytest.mark.parametrize("summary", ["", " \n\t", (), (Part(text=" "), Part())])
def test_a_blank_summary_of_a_hook_stops_the_run(tmp_path: Path, summary: Any):
    async def scenario() -> None:
        called: list[HookTurn] = []

        def summarise(turn: HookTurn) -> list[ContextMutation]:
            called.append(turn)
            return [ContextSummary(summary)] if len(called) == 2 else []

        talk = Talk(tmp_path, "one", "two", hooks=[summarise])
        await talk.agent("first")
        with pytest.raises(ChatStopped, match="summarise`: the summary of a conversation is blank"):
            await talk.agent("second")
        [row] = talk.rt.runs.all()
        [failed] = [event.data for event in talk.rt.runs.events(row.run_id) if event.kind == "llm_failed"]
        assert failed["code"] == HookFailed.code
        await talk.check()

    asyncio.run(scenario())


NOTE = "Note: the shop closes at 18:00. " * 20


def add_note(turn: HookTurn) -> list[ContextMutation]:
    return [UserMessage(NOTE)]


def add_note_by_replacing(turn: HookTurn) -> list[ContextMutation]:
    return [ContextReplace(normalize([*turn.messages, {"role": "user", "content": NOTE}]))]


def redact(turn: HookTurn) -> list[ContextMutation]:
    *before, last = turn.messages
    return [ContextReplace(normalize([*before, {"role": "user", "content": last.text.replace("euros", "***")}]))]


@pytest.mark.parametrize("is_keyed", [True, False])
@pytest.mark.parametrize("hook", [add_note, add_note_by_replacing, redact])
@pytest.mark.parametrize("summary", ['{"summary": "All so far."}', "no JSON"])
def test_the_message_of_the_user_is_never_compacted(tmp_path: Path, hook: Any, summary: str, is_keyed: bool):
    async def scenario() -> None:
        model = Summarising(summary)
        rt = OSRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True)

        @llm_chat(runtime=rt, hooks=[hook], max_tokens=300)
        async def agent(message: str, history: Any = None) -> None:
            """You talk."""

        reply: Any = None
        for number in range(5):
            text = f"Question {number}: pay euros?" + " w" * 150
            if is_keyed:
                reply = await agent.options(key="k")(text)
            else:
                reply = await agent(text, reply.history if reply is not None else None)
            shown = text.replace("euros", "***") if hook is redact else text
            assert shown in [message.text for message in model.requests[-1].messages], number
            assert shown in [message.text for message in reply.history]
        assert [message.is_from_hook for message in reply.history].count(True) == (hook is not redact)
        for row in rt.runs.all():
            assert (await rt.runs.replay(row.run_id)).events == rt.runs.verify(row.run_id).events

    asyncio.run(scenario())
