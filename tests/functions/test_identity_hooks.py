"""A hook sees what the model would get, and one that replaces the messages by themselves changes nothing."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import OSRuntime, SyncRuntime, llm_chat, llm_function
from reyn.context import (
    AssistantMessage,
    AssistantTruncated,
    CompileSource,
    ContextMutation,
    ContextReplace,
    ContextState,
    ContextSummary,
    DataFromAgentConfig,
    DataFromSelfRef,
    ExperienceRemember,
    NormalizedMessageList,
    UserMessage,
    apply_mutations,
    compile_context,
)
from reyn.context.compile import compile_source
from reyn.context.transcript import normalize
from reyn.errors import MessageInvalid, MutationInvalid
from reyn.functions import HookTurn, Image, tool
from reyn.journal import MemoryJournal
from reyn.journal.kinds import Part
from reyn.models import Message
from tests.functions.support import Answers, value
from tests.functions.test_chat import Chatty, calls
from tests.functions.test_image_requests import BEFORE, FORMS, LINK, PICTURE, SHOWN, draw, drawing_in, reply_in
from tests.properties import examples


@tool(effect="pure", best_practices=["Add small numbers.", "Never add letters."])
def plus(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def same(turn: HookTurn) -> list[ContextMutation]:
    return [ContextReplace(turn.messages)]


def rebuilt(turn: HookTurn) -> list[ContextMutation]:
    return [ContextReplace(normalize([*turn.messages]))]


def in_two_steps(turn: HookTurn) -> list[ContextMutation]:
    """The first replacement changes the messages, the second restores them."""
    return [ContextReplace(normalize([])), ContextReplace(turn.messages)]


IDENTITIES: list[Any] = [[same], [rebuilt], [in_two_steps], [same, in_two_steps]]


class Script:
    """What a user says and a model answers, in one form."""

    def __init__(self, form: str, steps: list[str], *, has_key: bool, has_history: bool) -> None:
        self.form, self.steps, self.has_key, self.has_history = form, steps, has_key, has_history

    def answers(self) -> list[Any]:
        summary = json.dumps({"summary": "They talked."})
        kinds: dict[str, list[Any]] = {
            "say": [],
            "show": [],
            "draw": [drawing_in(self.form)],
            "bad": [calls(("nothing", "{}")) if self.form == "tools" else "not JSON"],
            "long": [],
        }
        found: list[Any] = []
        for number, step in enumerate(self.steps):
            found += [*kinds[step], reply_in(self.form, f"Reply {number}.", ends=not self.has_key)]
        return [*found, summary]

    async def requests(self, hooks: Any) -> tuple[list[bytes], list[Any]]:
        """Hold the conversation; return the requests, and the history."""
        answers = self.answers()
        summary = answers.pop()

        class Model(Chatty):
            async def complete(self, request: Any) -> Any:
                if "You summarise a conversation" in request.messages[0].text:
                    self.answers.insert(len(self.requests), summary)
                return await super().complete(request)

        model = Model(*answers)
        model.answer_form, model.reads_images = self.form, True
        folder = tempfile.TemporaryDirectory()
        with folder as root:
            rt = OSRuntime.open(Path(root), model=model, journal=MemoryJournal(), trust=True)

            @llm_chat(
                runtime=rt,
                toolkit=[plus, draw],
                hooks=hooks,
                include_must_principles=True,
                max_tokens=600,
                max_retries=1,
            )
            async def agent(message: str, history: Any = None) -> None:
                """You talk."""

            chat, history = (agent.options(key="k") if self.has_key else agent), BEFORE if self.has_history else ()
            for step in self.steps:
                text = "x" * 1500 if step == "long" else step
                said = Message("user", text, (PICTURE, LINK)) if step == "show" else text
                reply = await (chat(said) if self.has_key else chat(said, history))
                history = reply.history
            for row in rt.runs.all():
                assert (await rt.runs.replay(row.run_id)).events == rt.runs.verify(row.run_id).events
            await rt.aclose()
        return [shown(request) for request in model.requests], [(m.role, m.text, m.images) for m in history]


def shown(request: Any) -> bytes:
    """Everything of a request that a model can send."""
    parts = [request.contract, request.tools, request.task, request.turn, request.candidates, request.needs_images]
    messages = [
        msgspec.to_builtins(Message(*(getattr(m, f) for f in Message.__struct_fields__))) for m in request.messages
    ]
    return msgspec.json.encode([messages, *map(msgspec.to_builtins, parts)])


steps = st.lists(st.sampled_from(["say", "show", "draw", "bad", "long"]), min_size=1, max_size=4)


@pytest.mark.parametrize("form", FORMS)
@examples(6)
@given(steps=steps, has_key=st.booleans(), has_history=st.booleans(), hooks=st.sampled_from(IDENTITIES))
def test_a_hook_that_replaces_messages_by_themselves_changes_no_request(
    form: str, steps: list[str], has_key: bool, has_history: bool, hooks: Any
):
    script = Script(form, steps, has_key=has_key, has_history=has_history and not has_key)
    expected, history = asyncio.run(script.requests(()))
    found, changed = asyncio.run(script.requests(hooks))
    assert [json.loads(one) for one in found] == [json.loads(one) for one in expected]
    assert found == expected
    assert changed == history


def act_in(form: str, **op: Any) -> Any:
    """An answer that calls an op."""
    kind = op.pop("kind")
    if form == "tools":
        return calls((kind, json.dumps(op)))
    ops = [{"kind": kind, **op}]
    return json.dumps({"reason": "x", "ops": ops} if form == "short" else {"control_ir": ops})


def result_in(form: str, data: Any) -> str:
    """An answer with the result of a function."""
    return (
        reply_in("full" if form == "full" else "short", "")
        .replace('"reply"', '"result"')
        .replace('{"text": ""}', json.dumps(data))
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hooks", IDENTITIES[1:3])
@pytest.mark.parametrize("max_tokens", [None, 500])
def test_requests_of_a_function_stay_as_they_are_as_well(tmp_path: Path, form: str, hooks: Any, max_tokens: int | None):
    def requests(hooks: Any) -> list[bytes]:
        acts = [act_in(form, kind="plus", a=1, b=2), act_in(form, kind="draw", number=2)]
        model = Chatty(REJECTED[form], acts[0], acts[1], REJECTED[form], result_in(form, {"value": 3}))
        model.answer_form, model.reads_images, model.takes_time = form, True, False
        root = tmp_path / str(bool(hooks))
        root.mkdir()
        (root / "reyn.yaml").write_text(
            json.dumps({"context": {"max_prompt_tokens": max_tokens}} if max_tokens else {})
        )
        with SyncRuntime.open(root, model=model, journal=MemoryJournal(), trust=True) as rt:

            @llm_function(runtime=rt, toolkit=[plus, draw], hooks=hooks, include_must_principles=True, max_retries=3)
            def look(photo: Image, question: str) -> int:
                """Look at the photo."""

            assert look(PICTURE, "How many? " * 90) == 3
            [row] = rt.runs.all()
            assert rt.runs.replay(row.run_id).events == rt.runs.verify(row.run_id).events
        return [shown(request) for request in model.requests]

    expected = requests(())
    assert len(expected) == 5
    assert requests(hooks) == expected


# -- what hooks see ------------------------------------------------------------------------------------


class Shop:
    """A chat `agent` with tools that have advice."""

    def __init__(self, root: Path, form: str, *answers: Any, **options: Any) -> None:
        self.model = Chatty(*answers)
        self.model.answer_form = form
        self.rt = OSRuntime.open(root, model=self.model, journal=MemoryJournal(), trust=True)

        @llm_chat(runtime=self.rt, toolkit=[plus], include_must_principles=True, **options)
        async def agent(message: str, history: Any = None) -> None:
            """You sell."""

        self.agent = agent

    async def check(self) -> None:
        for row in self.rt.runs.all():
            assert (await self.rt.runs.replay(row.run_id)).events == self.rt.runs.verify(row.run_id).events


REJECTED = {"full": "no JSON", "short": "no JSON", "tools": calls(("nothing", "{}"))}


@pytest.mark.parametrize("form", FORMS)
def test_hooks_see_the_correction_that_the_model_sees(tmp_path: Path, form: str):
    seen: list[list[tuple[str, str]]] = []

    def look(turn: HookTurn) -> list[ContextMutation]:
        seen.append([(message.role, message.text) for message in turn.messages])
        return [UserMessage("Be kind.")] if len(seen) == 1 else []

    async def scenario() -> None:
        shop = Shop(tmp_path, form, REJECTED[form], reply_in(form, "Yes."), hooks=[look])
        assert (await shop.agent("hi")).text == "Yes."
        assert seen[0] == [("user", "hi")]
        assert shop.model.seen(1) == seen[1]
        assert "Your answer was rejected" in seen[1][-1][1]
        await shop.check()

    asyncio.run(scenario())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keeps", [False, True])
def test_a_hook_can_replace_the_correction(tmp_path: Path, form: str, keeps: bool):
    def edit(turn: HookTurn) -> list[ContextMutation]:
        first, *rest = turn.messages
        edited = normalize([msgspec.structs.replace(first, text="Hello!"), *(rest if keeps else [])])
        return [ContextReplace(edited)] if rest else []

    async def scenario() -> None:
        shop = Shop(tmp_path, form, REJECTED[form], reply_in(form, "Yes."), hooks=[edit])
        reply = await shop.agent("hi")
        assert shop.model.seen(1)[0] == ("user", "Hello!")
        assert any("rejected" in text for _, text in shop.model.seen(1)) == keeps
        assert [message.text for message in reply.history] == ["Hello!", "Yes."]
        await shop.check()

    asyncio.run(scenario())


def test_hooks_of_a_function_see_the_correction_and_each_turn_alone(tmp_path: Path):
    seen: list[list[str]] = []

    def look(turn: HookTurn) -> list[ContextMutation]:
        seen.append([message.text for message in turn.messages])
        return [UserMessage("Only now.")] if len(seen) == 1 else []

    model = Answers("not JSON", "not JSON", value(4))
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True) as rt:

        @llm_function(runtime=rt, hooks=[look])
        def count(text: str) -> int:
            """Count."""

        assert count("abcd") == 4
    assert ["Only now." in model.prompt(call) for call in range(3)] == [True, False, False]
    for call in (1, 2):
        assert [message.text for message in model.requests[call].messages][1:] == seen[call]
        assert len(seen[call]) == 3


def test_a_hook_sees_what_the_hooks_before_it_did(tmp_path: Path):
    def forget(turn: HookTurn) -> list[ContextMutation]:
        assert [message.text for message in turn.messages] == ["hi", "Be kind."]
        assert [entry.text for entry in turn.memory] == ["The user is here."]
        return [ContextReplace(normalize([*turn.messages][1:]))]

    async def scenario() -> None:
        first = [UserMessage("Be kind."), ExperienceRemember("The user is here.")]
        shop = Shop(tmp_path, "tools", "Yes.", hooks=[lambda _: first, forget, same])
        await shop.agent.options(key="k")("hi")
        assert shop.model.seen() == [("user", "Be kind.")]
        await shop.check()

    asyncio.run(scenario())


# -- what hooks return -----------------------------------------------------------------------------------

EMPTY: list[Any] = [
    UserMessage(""),
    UserMessage(()),
    UserMessage((Part(text=""),)),
    UserMessage("", []),
    AssistantMessage(),
    AssistantMessage("", []),
    AssistantTruncated(""),
    AssistantTruncated((), "stopped"),
]


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_message_of_a_hook_adds_nothing(tmp_path: Path, form: str):
    def empty(turn: HookTurn) -> list[ContextMutation]:
        blank = [{"role": "user", "content": ""}, Message("assistant", "")]
        return [*EMPTY, ContextReplace(normalize([*blank, *turn.messages, *blank])), *EMPTY]

    async def scenario() -> None:
        shop = Shop(tmp_path, form, reply_in(form, "Yes."), hooks=[empty])
        reply = await shop.agent("hi", [Message("user", ""), {"role": "assistant", "content": ""}])
        assert shop.model.seen() == [("user", "hi")]
        assert [message.text for message in reply.history] == ["hi", "Yes."]
        await shop.check()

    asyncio.run(scenario())
    for mutation in EMPTY:
        assert len(compile_context(ContextState(), [mutation]).messages) == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", [None, "k"])
def test_a_system_message_of_a_hook_keeps_the_advice_and_is_part_of_the_history(
    tmp_path: Path, form: str, key: str | None
):
    hooks: list[Any] = [
        lambda turn: [ContextReplace(normalize([{"role": "system", "content": "You buy."}, *turn.messages]))]
    ]

    async def scenario() -> None:
        answers = [reply_in(form, text, ends=key is None) for text in ("Yes.", "No.")]
        shop = Shop(tmp_path, form, *answers, hooks=[lambda turn: hooks.pop()(turn) if hooks else None])
        plain = Shop(tmp_path, form, *answers)
        agent, other = shop.agent.options(key=key), plain.agent.options(key=key)
        reply, usual = await agent("hi"), await other("hi")
        assert [message.text for message in reply.history] == ["You buy.", "hi", "Yes."]
        assert [message.text for message in usual.history] == ["hi", "Yes."]
        await (agent("more") if key else agent("more", reply.history))
        for request in shop.model.requests:
            prompt = request.messages[0].text
            assert prompt == plain.model.requests[0].messages[0].text.replace("You sell.", "You buy.")
            assert "Never add letters." in prompt
        await shop.check()

    asyncio.run(scenario())


@pytest.mark.parametrize("keep", range(6))
def test_a_summary_of_a_hook_keeps_what_it_would_keep_of_what_it_sees(tmp_path: Path, keep: int):
    def shorten(turn: HookTurn) -> list[ContextMutation]:
        has_correction = "rejected" in turn.messages[-1].text
        return [ContextSummary("All so far.", keep)] if has_correction else []

    async def scenario() -> None:
        shop = Shop(tmp_path, "tools", REJECTED["tools"], "Yes.", hooks=[shorten])
        await shop.agent("hi", [Message("user", "a"), Message("assistant", "b")])
        roles = [role for role, _ in shop.model.seen()]
        history = ["user", "assistant"][max(0, 5 - keep) :]
        assert roles == ["user", *history, "user", "assistant", "tool"]

    asyncio.run(scenario())


def test_a_message_of_an_earlier_turn_keeps_its_images_and_metadata(tmp_path: Path):
    kept: list[Any] = []

    def remember(turn: HookTurn) -> list[ContextMutation]:
        kept.extend(turn.messages)
        return [ContextReplace(normalize([*kept[:2], *turn.messages]))] if len(kept) > 1 else []

    async def scenario() -> None:
        shop = Shop(tmp_path, "tools", "One.", "Two.", hooks=[remember])
        shop.model.reads_images = True
        agent = shop.agent.options(key="k")
        await agent(SHOWN)
        await agent("more")
        assert [message.images for message in shop.model.requests[1].messages][1:3] == [(PICTURE,), (PICTURE,)]
        await shop.check()

    asyncio.run(scenario())


# -- values ---------------------------------------------------------------------------------------------


def test_lists_that_are_passed_are_copied_and_may_hold_messages_of_any_kind():
    said: list[Any] = [{"role": "user", "content": "hi"}, Message("assistant", "Yes.")]
    pending: list[ContextMutation] = [UserMessage("more")]
    state = ContextState(said, None, pending)
    pending.append(UserMessage("again"))
    said.clear()
    assert [message.text for message in compile_context(state).messages] == ["hi", "Yes.", "more"]
    assert [message.text for message in apply_mutations([Message("user", "hi")], pending)] == ["hi", "more", "again"]
    experiences: list[Any] = [{"id": "exp_4", "text": "Likes tea."}]
    selfref = DataFromSelfRef(
        experiences=experiences,
        working_messages=[{"role": "user", "content": "hi"}],
        summary_message={"role": "user", "content": "All so far."},
    )
    experiences.clear()
    assert selfref.experiences[0].text == "Likes tea."
    assert selfref.next_id == 5
    assert selfref.working_messages[0].text == "hi"
    images = [PICTURE]
    message = NormalizedMessageList([Message("user", "look", images)])[0]
    images.clear()
    assert message.images == (PICTURE,)
    specs: list[Any] = [{"name": "plus", "best_practices": "Small."}]
    config = DataFromAgentConfig("You sell.", None, specs)
    source = CompileSource(config, None, [Message("user", "hi")])
    specs.clear()
    assert compile_source(source).system_prompt == "You sell.\n\n# Tools\n- plus: Small.\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda: NormalizedMessageList(["hi"]),
        lambda: NormalizedMessageList([["hi"]]),
        lambda: ContextState(["hi"]),
        lambda: ContextState("hi"),
        lambda: apply_mutations([UserMessage("hi")], []),
        lambda: compile_context(ContextState(), [UserMessage(["hi"])]),
        lambda: compile_context(ContextState(), [UserMessage(5)]),
        lambda: compile_context(ContextState(), [UserMessage([{"type": "text", "text": "hi"}])]),
        lambda: compile_context(ContextState(), [UserMessage("hi", ["cat.png"])]),
        lambda: compile_context(ContextState(), [AssistantMessage("hi", ["look"])]),
        lambda: compile_context(ContextState(), [ContextReplace(["hi"])]),
        lambda: compile_context(ContextState(), ["hi"]),
        lambda: normalize([Message("user", 5)]),
        lambda: DataFromSelfRef(experiences=["Likes tea."]),
        lambda: DataFromSelfRef(working_messages=["hi"]),
    ],
)
def test_a_value_of_another_type_is_an_error_with_a_code(make: Any):
    with pytest.raises((MessageInvalid, MutationInvalid)):
        make()
