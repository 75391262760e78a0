"""Runs whose model is asked with native tools: requests, records, corrections, replay, fallback, recovery."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.journal import MemoryJournal, decode
from reyn.models import ModelAnswer, ToolCall
from reyn.models.protocol import decode_reply
from reyn.testing import ScriptedModel
from tests.support import abort, act, file, finish, go, write_skill

IN = {"text": "in"}
END = {"reason": "it is good", "choice": "end", "confidence": 1, "data": {"text": "done"}}
GO = END | {"choice": "b"}


def calls(*named: tuple[str, Any], content: str = "") -> dict[str, Any]:
    return {"content": content, "tool_calls": [{"name": name, "arguments": args} for name, args in named]}


READ = calls(("file_read", {"path": "prices.csv"}))


class NativeModel(ScriptedModel):
    """A scripted model with native tools that records its requests."""

    answer_form = "tools"

    def __init__(self, answers: list, name: str = "native") -> None:
        super().__init__(answers, name)
        self.requests: list = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        return await super().complete(request)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_skill(tmp_path, "s", {"a": ["b", "end"], "b": ["end"]}, ops={"a": "file", "b": "file"})
    write_skill(tmp_path, "reply", {"only": ["end"]}, ops={"only": "file"})
    (tmp_path / "prices.csv").write_text("noodles,3.1\n")
    return tmp_path


def bodies(rt: SyncRuntime, run: str, kind: str) -> list[Any]:
    return [decode(event) for event in rt.runs.events(run) if event.kind == kind]


def check_sound(rt: SyncRuntime, run: str) -> None:
    assert rt.runs.replay(run).events == rt.runs.verify(run).events


def test_the_tokens_of_a_prompt_include_the_tools_and_each_part_of_the_input(root: Path):
    with SyncRuntime.open(root, model=NativeModel([READ, END]), journal=MemoryJournal(), trust=True) as rt:
        run = rt.run("s", IN).run_id
        first, second = (frame.seq for frame in rt.runs.events(run) if frame.kind == "frame_built")
        sections = {section.name: section.tokens for section in rt.runs.prompt_sections(run, first)}
        assert list(sections) == ["tools", "system", "input", "notes", "answer"]
        [tools] = [text for role, text in rt.runs.prompt_at(run, first) if role == "tools"]
        assert sections["tools"] == pytest.approx(len(tools) / 4, abs=5)
        assert [section.name for section in rt.runs.prompt_sections(run, second)][-1] == "transcript"


def test_tool_calls_are_executed_as_ops_and_the_content_decides(root: Path):
    model = NativeModel([calls(("file_read", {"path": "prices.csv"}), content="Let me look."), GO, "done"])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        result = rt.run("s", IN, run_id="k")
        assert (result.status, result.artifact) == ("finished", {"type": "note", "data": {"text": "done"}})
        [started] = bodies(rt, "k", "file_started")
        assert json.loads(rt.runs.content(started.args)) == file("read", "prices.csv")
        assert [frame.form for frame in bodies(rt, "k", "frame_built")] == ["tools"] * 3
        check_sound(rt, "k")


def test_the_request_has_the_tools_and_the_text_does_not_repeat_them(root: Path):
    model = NativeModel([READ, GO, "done"])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        rt.run("s", IN, run_id="k")
        first = model.requests[0]
        assert "file_read" in [tool.name for tool in first.tools]
        assert first.answer_form == "tools"
        assert not any("control_ir" in message.text or '"kind"' in message.text for message in first.messages)
        assert "noodles" in "".join(message.text for message in model.requests[1].messages)
        requested = bodies(rt, "k", "llm_requested")[0]
        assert json.loads(rt.runs.content(requested.tools))[0]["name"] == first.tools[0].name


def test_the_recorded_answer_is_what_the_model_sent(root: Path):
    with SyncRuntime.open(root, model=NativeModel([READ, GO, "done"]), journal=MemoryJournal()) as rt:
        rt.run("s", IN, run_id="k")
        replies = [decode_reply(rt.runs.content(one.text)) for one in bodies(rt, "k", "llm_responded")]
        assert [(call.name, call.arguments) for call in replies[0].tool_calls] == [
            ("file_read", '{"path":"prices.csv"}')
        ]
        assert [reply.content for reply in replies] == ["", json.dumps(GO, separators=(",", ":")), "done"]


def test_a_plain_text_reply_is_asked_for_without_a_format(root: Path):
    model = NativeModel(["Hello!\n"])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        assert rt.run("reply", IN, run_id="k").artifact == {"type": "note", "data": {"text": "Hello!\n"}}
        assert "JSON" not in model.requests[0].messages[0].text
        check_sound(rt, "k")


@pytest.mark.parametrize(
    "wrong",
    [
        calls(("nothing", {})),
        calls(("file_read", '{"path": ')),
        calls(("file_read", {"path": 3})),
        {"tool_calls": [{"id": "x", "name": "file_read", "arguments": {"path": "a"}}] * 2},
        act(file("read", "prices.csv")),
        "Hello!",
    ],
)
def test_a_wrong_answer_is_rejected_and_the_model_is_asked_again(root: Path, wrong: Any):
    model = NativeModel([wrong, GO, "done"])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        assert rt.run("s", IN, run_id="k").ok
        [error] = bodies(rt, "k", "validation_error")
        assert error.message in "".join(message.text for message in model.requests[1].messages)
        check_sound(rt, "k")


class Broken(NativeModel):
    """Its first answer has lone surrogates everywhere."""

    async def complete(self, request: Any) -> ModelAnswer:
        reply = await super().complete(request)
        if request.answered:
            return reply
        return ModelAnswer("\ud800", tool_calls=(ToolCall("\udfff", "\udfff", '{"path": "\ud800"}'),))


def test_lone_surrogates_are_recorded_as_escapes_and_rejected(root: Path):
    with SyncRuntime.open(root, model=Broken(["", GO, "done"]), journal=MemoryJournal()) as rt:
        assert rt.run("s", IN, run_id="k").ok
        [error] = bodies(rt, "k", "validation_error")
        assert error.path == "$.tool_calls[0].name"
        check_sound(rt, "k")


class Careless(NativeModel):
    answer_form = "short"

    async def complete(self, request: Any) -> ModelAnswer:
        return ModelAnswer("", tool_calls=(ToolCall("x", "file_read", "{}"),))


class Mistyped(NativeModel):
    async def complete(self, request: Any) -> ModelAnswer:
        return ModelAnswer("", tool_calls=(ToolCall("x", "file_read", {"path": "a"}),))


@pytest.mark.parametrize(("model", "words"), [(Careless([]), "returned tool calls"), (Mistyped([]), "must be str")])
def test_a_reply_that_no_model_may_give_fails_the_call(root: Path, model: Any, words: str):
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        result = rt.run("s", IN)
        assert (result.status, result.code) == ("failed", "RYN505")
        assert words in result.reason


def test_another_model_answers_an_open_request_in_the_form_that_was_asked(root: Path):
    """The new model has no native tools: it calls them in words, and is asked in its own form afterwards."""
    journal = MemoryJournal()
    with SyncRuntime.open(root, model=NativeModel([]), journal=journal) as rt:
        assert rt.run("s", IN, run_id="k").status == "failed"
    other = ScriptedModel([READ, go("b"), finish()], name="other")
    with SyncRuntime.open(root, model=other, journal=journal) as rt:
        assert rt.resume("k", retry=True).ok
        assert [frame.form for frame in bodies(rt, "k", "frame_built")] == ["tools", "full", "full"]
        check_sound(rt, "k")


def test_a_fallback_model_without_native_tools_is_asked_in_words(root: Path):
    (root / "none.jsonl").write_text("")
    (root / "some.jsonl").write_text("\n".join(json.dumps(one) for one in (READ, GO, {"content": "done"})))
    models = {
        "first": {"model": "scripted:none.jsonl", "answer_form": "tools", "fallback": ["second"]},
        "second": {"model": "scripted:some.jsonl"},
    }
    with SyncRuntime.open(root, model="first", models=models, trust=True) as rt:
        result = rt.run("s", IN, run_id="k")
        assert (result.status, result.artifact) == ("finished", {"type": "note", "data": {"text": "done"}})
        assert [frame.form for frame in bodies(rt, "k", "frame_built")] == ["tools"] * 3
        check_sound(rt, "k")
    with SyncRuntime.open(root, model="recorded:k") as rt:
        assert rt.run("s", IN, run_id="again").ok


def test_a_scripted_file_can_declare_native_tools(root: Path):
    (root / "a.jsonl").write_text("\n".join(json.dumps(one) for one in (READ, GO, "done")))
    models = {"mine": {"model": "scripted:a.jsonl", "answer_form": "tools"}}
    with SyncRuntime.open(root, model="mine", models=models, journal=MemoryJournal()) as rt:
        assert rt.run("s", IN, run_id="k").ok
        check_sound(rt, "k")


@pytest.mark.parametrize(
    ("settings", "form"),
    [
        ({"model": "openai:gpt-4.1-mini"}, "tools"),
        ({"model": "openai:m", "base_url": "http://127.0.0.1:9/v1"}, "short"),
        ({"model": "openai:m", "base_url": "http://127.0.0.1:9/v1", "answer_form": "tools"}, "tools"),
        ({"model": "openai:gpt-4.1-mini", "answer_form": "short"}, "short"),
    ],
)
def test_the_default_form_of_openai_models_depends_on_the_server(root: Path, settings: dict, form: str):
    with SyncRuntime.open(root, model="m", models={"m": settings}, journal=MemoryJournal(), trust=True) as rt:
        assert rt.async_form.services.roster.answer_form("m") == form


def test_a_fork_from_the_middle_of_a_visit_repeats_nothing(root: Path):
    journal = MemoryJournal()
    with SyncRuntime.open(root, model=NativeModel([READ, GO, "done"]), journal=journal) as rt:
        rt.run("s", IN, run_id="k")
        after_read = next(event.seq for event in rt.runs.events("k") if event.kind == "file_completed")
        forked = rt.fork("k", at=after_read, run_id="f")
        assert forked.ok
        assert len(bodies(rt, "f", "llm_responded")) <= 3
        check_sound(rt, "f")


def test_a_conversation_with_native_tools_shows_calls_and_results_of_earlier_turns(tmp_path: Path):
    write_skill(
        tmp_path,
        "talk",
        {"chat": ["chat", "end"]},
        inputs={"chat": "user_message"},
        phase_keys={"chat": "conversation: {max_tokens: 300}\n"},
        ops={"chat": "file, remember"},
    )
    (tmp_path / "prices.csv").write_text("noodles,3.1\n")
    reply = END | {"choice": "chat", "data": {"text": "They cost 3.1."}}
    both = calls(("file_read", {"path": "prices.csv"}), ("remember", {"text": "likes noodles"}), content="I look.")
    answers = [both, reply, calls(("nothing", {})), END | {"choice": "chat", "data": {"text": "x" * 2_000}}]
    model = NativeModel([*answers, '{"summary": "Noodles cost 3.1."}', END])
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
        waiting = rt.run("talk", "How much are noodles?", run_id="k")
        for text in ("Really?", "Bye"):
            assert waiting.question is not None, waiting
            rt.answer("k", waiting.question.id, text)
            waiting = rt.resume("k")
        assert waiting.status == "finished"
        second = list(model.requests[2].messages)
        assert [message.role for message in second] == [
            *["system", "user", "assistant", "tool", "tool", "assistant", "user"]
        ]
        assert [call.name for call in second[2].tool_calls] == ["file_read", "remember"]
        assert json.loads(second[2].tool_calls[0].arguments) == {"path": "prices.csv"}
        assert second[2].text == "I look."
        assert [message.tool_call_id for message in second[3:5]] == [call.id for call in second[2].tool_calls]
        assert "noodles,3.1" in second[3].text
        assert "likes noodles" in second[0].text
        corrected = list(model.requests[3].messages)
        assert [message.role for message in corrected[7:]] == ["assistant", "tool"]
        assert "rejected" in corrected[8].text
        assert model.requests[4].tools == ()
        assert [message.text for message in model.requests[5].messages][1:] == [
            "# Summary of the conversation so far\nNoodles cost 3.1.",
            "Bye",
        ]
        for call, frame in enumerate(event for event in rt.runs.events("k") if event.kind == "llm_requested"):
            recorded = [text for role, text in rt.runs.prompt_at("k", frame.seq) if role in ("system", "user")]
            assert recorded == [one.text for one in model.requests[call].messages if one.role in ("system", "user")]
        check_sound(rt, "k")


def test_turns_with_native_tools_record_what_is_new(root: Path):
    model = NativeModel([*[READ] * 40, GO, "done"])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal(), max_act_turns=None) as rt:
        skill = root / "reyn/project/s/phases/a.md"
        skill.write_text(skill.read_text().replace("name: a\n", "name: a\nmax_act_turns: 60\n"))
        assert rt.run("s", IN, run_id="k").status == "finished"
        frames = [len(event.raw) for event in rt.runs.events("k") if event.kind == "frame_built"][:40]
        assert max(frames) <= min(frames) + 1
        assert len(model.requests[40].messages) == 2 + 2 * 40
        check_sound(rt, "k")


@pytest.mark.parametrize("skill", ["s", "reply"])
@pytest.mark.parametrize("answer", [abort("no data"), {"reason": "no data", "choice": "abort", "confidence": 1}])
def test_a_model_with_native_tools_aborts_by_an_object_of_the_contract(root: Path, skill: str, answer: Any):
    model = NativeModel([READ, json.dumps(answer)])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        result = rt.run(skill, IN, run_id="k")
        assert (result.status, result.reason, result.artifact) == ("aborted", "no data", None)
        assert "abort" in model.requests[0].messages[0].text
        check_sound(rt, "k")


def test_every_turn_with_native_tools_says_how_many_are_left(root: Path):
    both = calls(("file_read", {"path": "prices.csv"}), ("file_glob", {"pattern": "*.csv"}))
    model = NativeModel([READ, both, GO, READ, "done"])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        assert rt.run("s", IN, run_id="k").ok
        frames = [event.seq for event in rt.runs.events("k") if event.kind == "frame_built"]
        left = [rt.runs.context_frame("k", seq).remaining_act_turns for seq in frames]
        assert left == [10, 9, 8, 10, 9]
        for request, turns in zip(model.requests, left, strict=True):
            notes = re.findall(r"^Turns with ops left: (\d+)\.$", request.messages[-1].text, re.MULTILINE)
            assert notes == [str(turns)]
        assert "Turns" not in model.requests[2].messages[-2].text  # of one batch, only the last result
        check_sound(rt, "k")


def test_reading_more_of_a_truncated_result_costs_no_turn(root: Path):
    (root / "long.txt").write_text("long words\n" * 2_000)
    more = calls(("file_read", {"path": "workspace:.full/1.1.1", "start": 0, "length": 10}))
    model = NativeModel([calls(("file_read", {"path": "long.txt"})), more, GO, "done"])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        assert rt.run("s", IN, run_id="k").ok
        frames = [event.seq for event in rt.runs.events("k") if event.kind == "frame_built"]
        assert [rt.runs.context_frame("k", seq).remaining_act_turns for seq in frames[:3]] == [10, 9, 9]


@pytest.mark.parametrize(
    ("skill", "wrong", "again"),
    [
        ("s", calls(("nothing", {})), "Correct the calls, or answer without them."),
        ("reply", calls(("file_read", {"path": 3})), "Correct the calls, or answer without them."),
        ("s", {"tool_calls": [{"id": "x", "name": "file_read", "arguments": {}}] * 2}, "Correct the calls, or answer"),
        ("reply", "  ", "Reply again in text."),
        ("s", "Hello!", "Answer again with one corrected JSON object."),
        ("bare", calls(("file_read", {"path": "a"})), "Answer without tools."),
    ],
)
def test_after_a_rejection_a_model_is_asked_for_what_it_may_answer(root: Path, skill: str, wrong: Any, again: str):
    write_skill(root, "bare", {"only": ["end"]})
    model = NativeModel([wrong, END if skill == "s" else "done"])
    with SyncRuntime.open(root, model=model, journal=MemoryJournal()) as rt:
        assert rt.run(skill, IN, run_id="k").ok
        told = model.requests[1].messages[-1].text
        assert "Your answer was rejected: " in told
        assert told.splitlines()[-1].startswith(again)
        assert ("JSON" in told.splitlines()[-1]) is ("JSON" in again)
        check_sound(rt, "k")


@pytest.mark.parametrize("retries", [0, 1, 2])
@pytest.mark.parametrize("keys", ["conversation: true\n", "conversation: {stays_open: true}\n"])
def test_a_conversation_that_stays_open_asks_once_more_without_ops(tmp_path: Path, retries: int, keys: str):
    write_skill(
        tmp_path,
        "desk",
        {"talk": ["talk"]},
        inputs={"talk": "user_message"},
        ops={"talk": "file"},
        phase_keys={"talk": keys},
    )
    model = NativeModel(["", "", "", "", ""])
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), max_phase_retries=retries, trust=True) as rt:
        rt.run("desk", "Hello", run_id="k")
        prompts = [event.kind for event in rt.runs.events("k")].count("llm_requested")
        assert prompts == retries + (2 if "stays_open" in keys else 1)
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
